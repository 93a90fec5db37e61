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
    /// The page to go to: path and name.
    back: (String, &'static str),
}

impl ErrorPage {
    /// The page of an error of the API.
    pub fn of(mut frame: Frame, status: u16, mut error: ErrorBody) -> Self {
        let head = match status {
            502 if error.error == "bmc" => "The BMC did not respond as needed",
            403 => "This is not permitted",
            404 => "There is no such thing",
            409 | 412 => "This is not possible now",
            429 | 503 => "Not now",
            400..=499 => "The request cannot be carried out",
            _ => "The controller failed",
        };
        error.message = words::cut(&error.message);
        frame.title = head.to_owned();
        let back = match server(&frame.path).filter(|_| status != 404) {
            Some(path) => (path, "To the server"),
            None => ("/ui/".to_owned(), "To the overview"),
        };
        Self { f: frame, status, head, error, back }
    }
}

/// The page of the server that a path is below, such as `/ui/servers/A/release`.
fn server(path: &str) -> Option<String> {
    let (serial, _action) = path.strip_prefix("/ui/servers/")?.split_once('/')?;
    let others = ["new", "import", "selection"];
    (!others.contains(&serial)).then(|| format!("/ui/servers/{serial}"))
}
