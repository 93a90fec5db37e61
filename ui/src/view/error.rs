//! A refusal or an error as a page.

use askama::Template;

use super::frame::Frame;
use crate::data::ErrorBody;
use crate::words;

/// A refusal or an error as a page.
#[derive(Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    f: Frame,
    status: u16,
    head: &'static str,
    error: ErrorBody,
    back: &'static str,
}

impl ErrorPage {
    /// The page of an error of the API.
    pub fn of(mut frame: Frame, status: u16, mut error: ErrorBody) -> Self {
        let head = match status {
            403 => "This is not permitted",
            404 => "There is no such thing",
            409 | 412 => "This is not possible now",
            429 | 503 => "Not now",
            400..=499 => "The request cannot be carried out",
            _ => "The controller failed",
        };
        error.message = words::cut(&error.message);
        frame.title = head.to_owned();
        Self { f: frame, status, head, error, back: "/ui/" }
    }
}
