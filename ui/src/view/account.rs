//! The caller's account and its logins.

use askama::Template;

use super::frame::Frame;
use crate::data::SessionPage;
use crate::time::When;
use crate::words;

/// The caller's account and its logins.
#[derive(Template)]
#[template(path = "account.html")]
pub struct AccountView {
    f: Frame,
    rows: Vec<Row>,
    /// Whether the caller has a password that can be changed here.
    password: bool,
    /// Whether the caller has other logins.
    others: bool,
}

struct Row {
    id: String,
    name: String,
    agent: String,
    address: String,
    begun: When,
    used: When,
    ends: When,
    current: bool,
}

impl AccountView {
    /// The page of the caller with the logins of `page`.
    pub fn of(f: Frame, page: &SessionPage) -> Self {
        let now = f.now;
        let current = page.sessions.iter().find(|session| session.current);
        let password = current.is_some_and(|session| session.login == "password");
        let others = current.is_some_and(|current| {
            page.sessions.iter().any(|session| !session.current && session.name == current.name)
        });
        let rows = page.sessions.iter().map(|session| Row {
            id: words::encoded(&session.session_id),
            name: session.name.clone(),
            agent: words::cut(&session.agent),
            address: session.address.clone(),
            begun: When::of(session.created_at, now),
            used: When::of(session.last_used_at, now),
            ends: When::of(session.expires_at, now),
            current: session.current,
        });
        Self { rows: rows.collect(), password, others, f }
    }
}
