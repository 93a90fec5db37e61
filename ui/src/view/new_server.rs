//! The form that registers a server.

use askama::Template;

use super::frame::Frame;
use crate::data::ErrorDetail;
use crate::words;

/// The form that registers a server. A password is never shown again.
#[derive(Template)]
#[template(path = "new_server.html")]
pub struct NewServerView {
    /// The frame of the page.
    pub f: Frame,
    /// The serial number.
    pub serial: String,
    /// The address of the BMC.
    pub bmc_address: String,
    /// The login at the BMC.
    pub bmc_username: String,
    /// Labels as `key=value` words.
    pub labels: String,
    /// The problems of the form that was sent.
    pub refused: Vec<ErrorDetail>,
    /// Whether a server with this serial number is registered.
    pub registered: bool,
}

impl NewServerView {
    /// The empty form of a new server.
    pub fn empty(f: Frame) -> Self {
        Self {
            f,
            serial: String::new(),
            bmc_address: String::new(),
            bmc_username: String::new(),
            labels: String::new(),
            refused: Vec::new(),
            registered: false,
        }
    }

    /// The page that changes the server that is registered.
    fn change(&self) -> Option<String> {
        self.registered.then(|| format!("/ui/servers/{}/edit", words::encoded(&self.serial)))
    }

    fn is_wrong(&self, field: &str) -> bool {
        self.refused.iter().any(|detail| detail.path.trim_start_matches('/') == field)
    }
}
