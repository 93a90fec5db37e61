//! Users and API tokens. The text of a token is in the response to the form that made it, and in no other page.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use jiff::ToSpan as _;
use serde_json::{Value, json};
use ui::State;
use ui::data::{ErrorDetail, IssuedToken, TokenPage, User, UserPage};
use ui::view::{FormView, IssuedView, Tab, TableView};

use super::form::Form;
use super::refusal::Refusal;
use super::servers::labels;
use super::visit::{Change, Visit, encoded, html};

/// Shows users and tokens.
pub(super) async fn show(visit: Visit) -> Response {
    let shown = async {
        let (users, tokens) = tokio::try_join!(
            visit.get::<UserPage>("/api/v1/users"),
            visit.get::<TokenPage>("/api/v1/tokens")
        )?;
        html(&TableView::accounts(visit.frame("Users and tokens", Tab::Settings).await?, &users, &tokens))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

fn again(view: &FormView, refused: bool) -> Result<Response, Refusal> {
    let status = if refused { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    Ok((status, html(view)?).into_response())
}

/// Shows the form of a new user.
pub(super) async fn new_user(visit: Visit) -> Response {
    let shown = async {
        // Only an administrator sees it: the list refuses every other role.
        let _users: UserPage = visit.get("/api/v1/users").await?;
        again(&FormView::new_user(visit.frame("New user", Tab::Settings).await?, "", "", Vec::new()), false)
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Makes a user.
pub(super) async fn create_user(visit: Visit, form: Form) -> Response {
    let done = async {
        let (name, role) = (form.get("name").trim(), form.get("role"));
        let body = json!({ "name": name, "role": role, "password": form.get("password") });
        let change = Change { method: Method::POST, path: "/api/v1/users", body: Some(body), form: &form };
        match visit.change(change).await {
            Ok(_) => Ok(Redirect::to("/ui/users?done=user-created").into_response()),
            Err(refusal) => {
                let details = refusal.details()?;
                let frame = visit.frame("New user", Tab::Settings).await?;
                again(&FormView::new_user(frame, name, role, details), true)
            }
        }
    };
    let done = done.await;
    visit.respond(done).await
}

/// Shows the form that changes a user.
pub(super) async fn user(visit: Visit, Path(name): Path<String>) -> Response {
    let shown = user_again(&visit, &name, Vec::new()).await;
    visit.respond(shown).await
}

async fn user_again(visit: &Visit, name: &str, refused: Vec<ErrorDetail>) -> Result<Response, Refusal> {
    let user: User = visit.get(&format!("/api/v1/users/{}", encoded(name))).await?;
    let is_refused = !refused.is_empty();
    again(&FormView::user(visit.frame(user.name.clone(), Tab::Settings).await?, &user, refused), is_refused)
}

/// Changes a user.
pub(super) async fn change_user(visit: Visit, Path(name): Path<String>, form: Form) -> Response {
    let done = async {
        // Only what was changed in the form is sent: another person may have changed the rest since it was shown.
        let mut body = json!({});
        if form.get("role") != form.get("was_role") {
            body["role"] = json!(form.get("role"));
        }
        if form.get("disabled") != form.get("was_disabled") {
            body["disabled"] = json!(form.get("disabled") == "yes");
        }
        if !form.get("password").is_empty() {
            body["password"] = json!(form.get("password"));
        }
        let path = format!("/api/v1/users/{}", encoded(&name));
        let change = Change { method: Method::PATCH, path: &path, body: Some(body), form: &form };
        match visit.change(change).await {
            Ok(_) => Ok(Redirect::to("/ui/users?done=user").into_response()),
            Err(refusal) => user_again(&visit, &name, refusal.details()?).await,
        }
    };
    let done = done.await;
    visit.respond(done).await
}

/// A verb on a user or a token: its question and its request.
struct Verb {
    of: &'static str,
    word: &'static str,
    question: &'static str,
    effect: (State, &'static str),
    method: Method,
    /// The end of the path of the API, after the name of the user or token.
    action: &'static str,
    done: &'static str,
    risk: bool,
}

const CONFIRM: &str = "It came back with restored data. It is accepted again, with the rights that it had then: look whether they are still right.";

const VERBS: [Verb; 5] = [
    Verb {
        of: "users",
        word: "confirm",
        question: "Confirm the user",
        effect: (State::Held, CONFIRM),
        method: Method::POST,
        action: "/confirm",
        done: "user-confirm",
        risk: false,
    },
    Verb {
        of: "users",
        word: "logout",
        question: "End all logins of the user",
        effect: (State::Held, "Browsers of the user show the login at their next request."),
        method: Method::DELETE,
        action: "/sessions",
        done: "user-logout",
        risk: false,
    },
    Verb {
        of: "users",
        word: "delete",
        question: "Delete the user",
        effect: (
            State::Failed,
            "Logins of the user end. Tokens that the user made stay; events and audit keep the name.",
        ),
        method: Method::DELETE,
        action: "",
        done: "user-delete",
        risk: true,
    },
    Verb {
        of: "tokens",
        word: "confirm",
        question: "Confirm the token",
        effect: (State::Held, CONFIRM),
        method: Method::POST,
        action: "/confirm",
        done: "token-confirm",
        risk: false,
    },
    Verb {
        of: "tokens",
        word: "revoke",
        question: "Revoke the token",
        effect: (
            State::Failed,
            "The next request with it is refused, and its logins end. It cannot be brought back.",
        ),
        method: Method::DELETE,
        action: "",
        done: "token",
        risk: true,
    },
];

fn verb(of: &str, word: &str) -> Result<&'static Verb, Refusal> {
    VERBS.iter().find(|verb| verb.of == of && verb.word == word).ok_or_else(Refusal::unknown_page)
}

/// Asks before a verb on a user.
pub(super) async fn ask_user(visit: Visit, Path((name, word)): Path<(String, String)>) -> Response {
    let shown = question(&visit, "users", &name, &word).await;
    visit.respond(shown).await
}

/// Asks before a verb on a token.
pub(super) async fn ask_token(visit: Visit, Path((name, word)): Path<(String, String)>) -> Response {
    let shown = match word.as_str() {
        "rotate" => rotation(&visit, &name).await,
        word => question(&visit, "tokens", &name, word).await,
    };
    visit.respond(shown).await
}

async fn question(visit: &Visit, of: &str, name: &str, word: &str) -> Result<Response, Refusal> {
    let verb = verb(of, word)?;
    let segment = encoded(name);
    // Only a user who may do it is asked, and only about an account that exists.
    let _it: Value = visit.get(&format!("/api/v1/{of}/{segment}")).await?;
    let frame = visit.frame(format!("{}?", verb.question), Tab::Settings).await?;
    let title = format!("{} {name}?", verb.question);
    let view = FormView::new(frame, title, format!("/ui/{of}/{segment}/{word}"), "/ui/users")
        .below("/ui/users", "Users and tokens")
        .effect(verb.effect.0, verb.effect.1)
        .yes(verb.question);
    html(&if verb.risk { view.risky() } else { view })
}

async fn rotation(visit: &Visit, name: &str) -> Result<Response, Refusal> {
    let segment = encoded(name);
    let _it: Value = visit.get(&format!("/api/v1/tokens/{segment}")).await?;
    let frame = visit.frame("Rotate the token?", Tab::Settings).await?;
    let title = format!("Rotate the token {name}?");
    html(
        &FormView::new(frame, title, format!("/ui/tokens/{segment}/rotate"), "/ui/users")
            .below("/ui/users", "Users and tokens")
            .effect(State::Failed, "The present text is refused at once, and its logins end.")
            .effect(State::Done, "The next page shows another text, once. Name, rights and end stay.")
            .risky()
            .yes("Rotate the token"),
    )
}

/// Carries out a verb on a user.
pub(super) async fn act_user(
    visit: Visit,
    Path((name, word)): Path<(String, String)>,
    form: Form,
) -> Response {
    let done = carry_out(&visit, "users", &name, &word, &form).await;
    visit.respond(done).await
}

/// Carries out a verb on a token.
pub(super) async fn act_token(
    visit: Visit,
    Path((name, word)): Path<(String, String)>,
    form: Form,
) -> Response {
    let done = match word.as_str() {
        "rotate" => {
            let path = format!("/api/v1/tokens/{}/rotate", encoded(&name));
            issued(&visit, &path, json!({}), &form).await
        }
        word => carry_out(&visit, "tokens", &name, word, &form).await,
    };
    visit.respond(done).await
}

async fn carry_out(
    visit: &Visit,
    of: &str,
    name: &str,
    word: &str,
    form: &Form,
) -> Result<Response, Refusal> {
    let verb = verb(of, word)?;
    let path = format!("/api/v1/{of}/{}{}", encoded(name), verb.action);
    visit.change(Change { method: verb.method.clone(), path: &path, body: None, form }).await?;
    Ok(Redirect::to(&format!("/ui/users?done={}", verb.done)).into_response())
}

/// Shows the form of a new token.
pub(super) async fn new_token(visit: Visit) -> Response {
    let shown = async {
        let _tokens: TokenPage = visit.get("/api/v1/tokens").await?;
        let frame = visit.frame("New token", Tab::Settings).await?;
        again(&FormView::new_token(frame, ["", "", "", "", "90"], Vec::new()), false)
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Makes a token and shows its text, once: the response to the form is the page.
pub(super) async fn create_token(visit: Visit, form: Form) -> Response {
    let done = async {
        let made = match token_request(&visit, &form) {
            Ok(body) => issued(&visit, "/api/v1/tokens", body, &form).await,
            Err(refusal) => Err(refusal),
        };
        match made {
            Err(refusal) => {
                let details = refusal.details()?;
                let entered = ["name", "role", "labels", "registry", "lasts"].map(|name| form.get(name));
                let frame = visit.frame("New token", Tab::Settings).await?;
                again(&FormView::new_token(frame, entered, details), true)
            }
            made => made,
        }
    };
    let done = done.await;
    visit.respond(done).await
}

fn token_request(visit: &Visit, form: &Form) -> Result<Value, Refusal> {
    let labels = labels(form.get("labels")).map_err(|detail| Refusal::field("labels", &detail.message))?;
    let registry: Vec<&str> = form.get("registry").split_whitespace().collect();
    let mut body = json!({
        "name": form.get("name").trim(), "role": form.get("role"), "labels": labels, "registry": registry,
    });
    if !form.get("lasts").is_empty() {
        let days: i64 =
            form.get("lasts").parse().map_err(|_| Refusal::field("lasts", "is a number of days"))?;
        let end = visit.now().checked_add((days.clamp(1, 36_500) * 24).hours());
        body["expires_at"] = json!(end.map_err(|_| Refusal::field("lasts", "is too long"))?.to_string());
    }
    Ok(body)
}

async fn issued(visit: &Visit, path: &str, body: Value, form: &Form) -> Result<Response, Refusal> {
    let change = Change { method: Method::POST, path, body: Some(body), form };
    let issued: IssuedToken = visit.change(change).await?.read()?;
    html(&IssuedView::of(visit.frame("New token", Tab::Settings).await?, &issued))
}
