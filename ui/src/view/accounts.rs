//! Users and API tokens: who can log in, and what each may do.

use askama::Template;
use jiff::Timestamp;

use super::form::{Field, FormView};
use super::frame::Frame;
use super::section::{Cell, Section};
use super::table::TableView;
use crate::data::{ErrorDetail, IssuedToken, Token, TokenPage, User, UserPage};
use crate::parts::{Badge, Copy};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The roles of users, with what they may do.
const ROLES: [(&str, &str); 3] = [
    ("viewer", "viewer: sees everything, changes nothing"),
    ("operator", "operator: changes servers, jobs and firmware"),
    ("admin", "administrator: everything, users and settings too"),
];
/// The roles of tokens besides those of users.
const TOKEN_ROLES: [(&str, &str); 2] = [
    ("report-only", "reports only: receives reports of installers"),
    ("registry-only", "registry only: pulls and pushes images"),
];
/// The lifetimes that the form of a token offers: days, with their words.
const LASTS: [(&str, &str); 4] =
    [("30", "30 days"), ("90", "90 days"), ("365", "one year"), ("", "until it is revoked")];

fn choices(from: &[(&str, &str)]) -> Vec<(String, String)> {
    from.iter().map(|(value, words)| ((*value).to_owned(), (*words).to_owned())).collect()
}

fn standing(disabled: bool, unconfirmed: bool) -> Badge {
    let (state, word) = match (disabled, unconfirmed) {
        (true, _) => (State::Cancelled, "Disabled"),
        (false, true) => (State::Held, "Not confirmed"),
        (false, false) => (State::Done, "Active"),
    };
    state.badge_saying(word)
}

/// The state of a token. One whose end has passed is refused also after it is confirmed.
fn standing_of(token: &Token, now: Timestamp) -> Badge {
    match token.expires_at.is_some_and(|end| end <= now) {
        true => State::Cancelled.badge_saying("Expired"),
        false => standing(false, token.unconfirmed),
    }
}

impl TableView {
    /// Users and API tokens.
    pub fn accounts(f: Frame, users: &UserPage, tokens: &TokenPage) -> Self {
        let now = f.now;
        let user_row = |user: &User| {
            let path = format!("/ui/users/{}", words::encoded(&user.name));
            let mut acts = vec![(path.clone(), "Change…", format!("Change the user {}", user.name))];
            if user.unconfirmed {
                acts.insert(
                    0,
                    (format!("{path}/confirm"), "Confirm…", format!("Confirm the user {}", user.name)),
                );
            }
            vec![
                Cell::Link(path, user.name.clone()),
                Cell::text(words::role(&user.role)),
                Cell::State(standing(user.disabled_at.is_some(), user.unconfirmed)),
                Cell::text(&user.created_by),
                Cell::Time(When::of(user.created_at, now)),
                Cell::Acts(acts),
            ]
        };
        let token_row = |token: &Token| {
            let path = format!("/ui/tokens/{}", words::encoded(&token.name));
            let act = |verb: &'static str, word: &'static str| {
                (
                    format!("{path}/{verb}"),
                    word,
                    format!("{} the token {}", word.trim_end_matches('…'), token.name),
                )
            };
            let mut acts = vec![act("rotate", "Rotate…"), act("revoke", "Revoke…")];
            if token.unconfirmed {
                acts.insert(0, act("confirm", "Confirm…"));
            }
            let labels = token.labels.iter().map(|(key, value)| format!("{key}={value}"));
            let limits: Vec<String> = labels.chain(token.registry.iter().cloned()).collect();
            vec![
                Cell::text(&token.name),
                Cell::Two(words::role(&token.role).to_owned(), words::cut(&limits.join(", "))),
                Cell::State(standing_of(token, now)),
                Cell::time_or(token.last_used_at.map(|at| When::of(at, now)), "never used"),
                Cell::time_or(token.expires_at.map(|at| When::of(at, now)), "does not end"),
                Cell::Acts(acts),
            ]
        };
        let columns = ["Name", "May", "State", "Made by", "Made", "Changes"];
        let users = Section::new("users", "Users", &columns, users.users.iter().map(user_row).collect())
            .or("No users: logins are API tokens, or the user of the settings.");
        let columns = ["Name", "May", "State", "Last used", "Ends", "Changes"];
        let tokens =
            Section::new("tokens", "API tokens", &columns, tokens.tokens.iter().map(token_row).collect())
                .note("for programs; each is shown once, when it is made")
                .or("No tokens.");
        Self::new(f, "Users and tokens", "Who can log in, and what each may do.", vec![users, tokens])
            .below("/ui/settings", "Settings")
            .acts(vec![("/ui/tokens/new".to_owned(), "New token"), ("/ui/users/new".to_owned(), "New user")])
    }
}

impl FormView {
    /// The form of a new user.
    pub fn new_user(f: Frame, name: &str, role: &str, refused: Vec<ErrorDetail>) -> Self {
        let role = if role.is_empty() { "viewer" } else { role };
        Self::new(f, "New user", "/ui/users/new", "/ui/users")
            .below("/ui/users", "Users and tokens")
            .refused(refused)
            .field(
                Field::text("name", "Name", name)
                    .required()
                    .hint("Letters, digits and - . _ @; events show it."),
            )
            .field(Field::choice("role", "May", role, choices(&ROLES)))
            .field(
                Field::new_password("password", "Password")
                    .required()
                    .hint("At least 8 characters. The user changes it on the page of the own account."),
            )
            .yes("Make the user")
    }

    /// The form that changes a user.
    pub fn user(f: Frame, user: &User, refused: Vec<ErrorDetail>) -> Self {
        let path = format!("/ui/users/{}", words::encoded(&user.name));
        let state = match (user.disabled_at.is_some(), user.unconfirmed) {
            (true, _) => Some("The user is disabled and cannot log in."),
            (_, true) => {
                Some("The user came back with restored data and cannot log in before it is confirmed.")
            }
            _ => None,
        };
        let made = format!("Made by {} {}.", user.created_by, When::of(user.created_at, f.now).words());
        let view = Self::new(f, format!("User {}", user.name), path.clone(), "/ui/users")
            .below("/ui/users", "Users and tokens")
            .intro(made)
            .refused(refused)
            .hidden("was_role", &user.role)
            .hidden("was_disabled", if user.disabled_at.is_some() { "yes" } else { "" })
            .field(Field::choice("role", "May", &user.role, choices(&ROLES)))
            .field(
                Field::new_password("password", "New password")
                    .hint("Empty: the password stays. A new one ends the logins of the user."),
            )
            .field(Field::switch("disabled", "Disabled: the user cannot log in", user.disabled_at.is_some()))
            .link(format!("{path}/logout"), "End all logins…")
            .link(format!("{path}/delete"), "Delete the user…")
            .yes("Change the user");
        let view = match user.unconfirmed {
            true => view.link(format!("{path}/confirm"), "Confirm…"),
            false => view,
        };
        match state {
            Some(text) => view.note(State::Held, text),
            None => view,
        }
    }

    /// The form of a new token.
    pub fn new_token(f: Frame, entered: [&str; 5], refused: Vec<ErrorDetail>) -> Self {
        let [name, role, labels, registry, lasts] = entered;
        let role = if role.is_empty() { "operator" } else { role };
        let roles = choices(&ROLES).into_iter().chain(choices(&TOKEN_ROLES)).collect();
        Self::new(f, "New API token", "/ui/tokens/new", "/ui/users")
            .below("/ui/users", "Users and tokens")
            .intro("A token is the login of a program. Its text is shown once, on the next page.")
            .refused(refused)
            .field(Field::text("name", "Name", name).required().hint("Events show it as who did something."))
            .field(Field::choice("role", "May", role, roles))
            .field(Field::choice("lasts", "Lasts", lasts, choices(&LASTS)))
            .field(
                Field::text("labels", "Only servers with these labels", labels)
                    .hint("Such as site=north rack=n04. Empty: all servers."),
            )
            .field(
                Field::text("registry", "Only these rights in the registry", registry)
                    .hint("Such as pull,push:os-images/** divided by blanks. Empty: what the role may do."),
            )
            .yes("Make the token")
    }

    /// The form of another password for the caller.
    pub fn own_password(f: Frame, refused: Vec<ErrorDetail>) -> Self {
        Self::new(f, "Change your password", "/ui/account/password", "/ui/account")
            .below("/ui/account", "Your account")
            .refused(refused)
            .effect(State::Held, "Your other logins end. This browser is logged in again.")
            .field(Field::password("current", "Present password").required())
            .field(Field::new_password("password", "New password").required().hint("At least 8 characters."))
            .yes("Change the password")
    }
}

/// The only page that shows the text of a token.
#[derive(Template)]
#[template(path = "issued.html")]
pub struct IssuedView {
    f: Frame,
    name: String,
    may: String,
    ends: Option<When>,
    token: Copy,
}

impl IssuedView {
    /// The page of a token that was made or rotated just now.
    pub fn of(f: Frame, issued: &IssuedToken) -> Self {
        let now = f.now;
        Self {
            name: issued.view.name.clone(),
            may: words::role(&issued.view.role).to_owned(),
            ends: issued.view.expires_at.map(|at| When::of(at, now)),
            token: Copy { what: "token", text: issued.token.clone(), shown: issued.token.clone() },
            f,
        }
    }
}
