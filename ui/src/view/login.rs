//! The login page.

use askama::Template;

use crate::assets;

/// The login of a browser.
#[derive(Template)]
#[template(path = "login.html")]
pub struct LoginView {
    /// The reason why the last attempt was refused.
    pub refused: Option<String>,
    /// Whether the login of a form that was sent has ended.
    pub ended: bool,
    /// The name of the last attempt.
    pub user: String,
    /// The page to open after the login.
    pub next: String,
    /// Whether the page came over plain HTTP.
    pub plain_http: bool,
}

impl LoginView {
    fn style(&self) -> &'static str {
        &assets::STYLE.path
    }
}
