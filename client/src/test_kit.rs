//! The parts of the crate that tests of the program use: a client without options, and `shoal job watch` with short pauses.

pub use super::job::watch_to_the_end;
pub use super::watch::PollInterval;

use super::connection::{Client, ConnectionArgs};
use super::error::CliError;
use super::login::LoginArgs;

/// A client without login of the controller at `url`.
///
/// # Errors
/// When the URL is not valid.
pub fn client(url: &str) -> Result<Client, CliError> {
    Client::new(&ConnectionArgs { url: url.to_owned(), login: LoginArgs::default(), ca_file: None })
}
