//! The end of the log of a maintenance OS.

use askama::Template;

use super::frame::Frame;

/// The end of the log of a maintenance OS.
#[derive(Template)]
#[template(path = "log.html")]
pub struct LogView {
    /// The frame of the page.
    pub f: Frame,
    /// The page of the job.
    pub back: String,
    /// The log; empty without one.
    pub log: String,
}
