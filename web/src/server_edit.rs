//! Changes of one server: its values, its release after a restore, its deletion. Each is a preview first.
//!
//! ```text
//!   form ──> patch of what differs ──dry run──> preview: what changes, the patch sealed ──> the change
//!                                   `── refused ──> the form, with why
//! ```
//!
//! Invariants: only what was changed in the form is sent, so a field that was left alone weakens nothing; a change names the
//! revision of the server from which its form was made, and is refused after another change; a password is in no page.

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use ui::State;
use ui::data::{ErrorDetail, JobPageJson, RestoredServerJson, ServerJson};
use ui::view::{FormView, ServerForm, Tab};

use super::form::Form;
use super::refusal::Refusal;
use super::visit::{Change, Visit, encoded, html};

/// The longest text of labels or flags that a form sends.
const MAX_TEXT: usize = 32 << 10;

fn path_of(serial: &str) -> String {
    format!("/api/v1/servers/{}", encoded(serial))
}

/// Shows the form that changes a server.
pub(super) async fn ask(visit: Visit, Path(serial): Path<String>) -> Response {
    let shown = async {
        let server: ServerJson = visit.get(&path_of(&serial)).await?;
        form(&visit, &server, &of(&server), Vec::new()).await
    };
    let shown = shown.await;
    visit.respond(shown).await
}

async fn form(
    visit: &Visit,
    server: &ServerJson,
    entered: &ServerForm,
    refused: Vec<ErrorDetail>,
) -> Result<Response, Refusal> {
    let status = if refused.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let frame = visit.frame(format!("Change {}", server.serial), Tab::Servers).await?;
    Ok((status, html(&FormView::server(frame, &server.serial, entered, refused))?).into_response())
}

/// Shows the preview of a change, or why the change is refused.
pub(super) async fn preview(visit: Visit, Path(serial): Path<String>, sent: Form) -> Response {
    let shown = async {
        let before: ServerJson = visit.get(&path_of(&serial)).await?;
        let entered = entered(&sent, &before);
        let patch = match patch(&before, &entered, sent.get("bmc_password")) {
            Ok(patch) => patch,
            Err(details) => return form(&visit, &before, &entered, details).await,
        };
        if patch.is_empty() {
            let message = "nothing is changed: change a value, or go back";
            let detail = ErrorDetail::new("", message);
            return form(&visit, &before, &entered, vec![detail]).await;
        }
        let password = patch.contains_key("bmc_password");
        let previewed =
            json!(Previewed { patch: patch.clone(), tls_fingerprint: before.tls_fingerprint.clone() });
        let sealed = visit.seal().seal(&context(&visit, &serial), &previewed.to_string(), visit.now());
        let sealed = sealed.map_err(|_stale| too_large())?;
        let path = format!("{}?dry_run=true", path_of(&serial));
        let change = Change { method: Method::PATCH, path: &path, body: Some(json!(patch)), form: &sent };
        match visit.change(change).await {
            Ok(response) => {
                let after: ServerJson = response.read()?;
                let frame = visit.frame(format!("Change {serial}?"), Tab::Servers).await?;
                html(&FormView::server_change(frame, &before, &after, password, &sealed))
            }
            Err(refusal) => again(&visit, &serial, Some(&entered), refusal).await,
        }
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// A change that a preview has shown.
#[derive(Serialize, Deserialize)]
struct Previewed {
    patch: Map<String, Value>,
    /// The fingerprint that the change replaces. The first contact with a BMC stores one without another revision of the server.
    tls_fingerprint: Option<String>,
}

/// Changes a server by the change that its preview sealed.
pub(super) async fn change(visit: Visit, Path(serial): Path<String>, sent: Form) -> Response {
    let done = async {
        let opened = visit.seal().open(&context(&visit, &serial), sent.get("change"), visit.now()).ok();
        let previewed: Previewed =
            opened.and_then(|text| serde_json::from_str(&text).ok()).ok_or_else(stale)?;
        if previewed.patch.contains_key("tls_fingerprint") {
            let now: ServerJson = visit.get(&path_of(&serial)).await?;
            if now.tls_fingerprint != previewed.tls_fingerprint {
                let refused = vec![pinned_since(&of(&now).tls_fingerprint)];
                return form(&visit, &now, &of(&now), refused).await;
            }
        }
        let patch = Some(Value::Object(previewed.patch));
        let change = Change { method: Method::PATCH, path: &path_of(&serial), body: patch, form: &sent };
        match visit.change(change).await {
            Ok(_) => Ok(to(&serial, "server-changed")),
            Err(refusal) => again(&visit, &serial, None, refusal).await,
        }
    };
    let done = done.await;
    visit.respond(done).await
}

/// The form after a refusal: with the entered values. Without them, and for a server that has changed, it has the current values.
async fn again(
    visit: &Visit,
    serial: &str,
    entered: Option<&ServerForm>,
    refusal: Refusal,
) -> Result<Response, Refusal> {
    let moved = refusal.status == StatusCode::PRECONDITION_FAILED;
    let mut details = refusal.details()?;
    let server: ServerJson = visit.get(&path_of(serial)).await?;
    match entered.filter(|_| !moved) {
        Some(entered) => form(visit, &server, entered, details).await,
        None => {
            let message = "the form shows the values of now; enter your change again".to_owned();
            details.push(ErrorDetail::new("", message));
            form(visit, &server, &of(&server), details).await
        }
    }
}

/// Why an entered fingerprint is refused.
fn pinned_since(stored: &str) -> ErrorDetail {
    let message = format!(
        "was entered before the first contact stored {stored}; open the form again and enter it once more"
    );
    ErrorDetail::new("/tls_fingerprint", message)
}

/// The context of the seal of a change: the session and the server to which the change belongs.
fn context(visit: &Visit, serial: &str) -> String {
    format!("{} server {serial}", visit.csrf())
}

fn stale() -> Refusal {
    let message =
        "the preview is older than half an hour, or of another login or server; preview the change again";
    Refusal::new(StatusCode::CONFLICT, "stale_preview", message)
}

fn too_large() -> Refusal {
    let message = "the change cannot be kept for the second step; change fewer values at once";
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
}

fn to(serial: &str, done: &str) -> Response {
    Redirect::to(&format!("/ui/servers/{}?done={done}", encoded(serial))).into_response()
}

/// The pair of a line; `None` for a line that has none.
fn pair(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    (!key.is_empty()).then_some((key, value))
}

/// A label as a line, if the line means this label and no other.
fn line(key: &str, value: &str) -> Option<String> {
    let line = format!("{key}={value}");
    let plain = !line.contains(char::is_control) && line.trim() == line;
    (plain && pair(&line) == Some((key, value))).then_some(line)
}

/// The fields of the form of a server.
fn of(server: &ServerJson) -> ServerForm {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let lines: Vec<String> = server.labels.iter().filter_map(|(key, value)| line(key, value)).collect();
    let json = |object: Option<&Map<String, Value>>| {
        object.filter(|object| !object.is_empty()).map(|object| json!(object).to_string()).unwrap_or_default()
    };
    ServerForm {
        bmc_address: server.bmc_address.clone(),
        bmc_username: server.bmc_username.clone(),
        hidden_labels: server.labels.len() - lines.len(),
        labels: lines.join("\n"),
        vendor: text(&server.vendor),
        bmc_profile: text(&server.bmc_profile),
        quirks: json(server.quirks.as_ref()),
        network: json(server.network.as_ref()),
        tls: server.tls.clone(),
        tls_fingerprint: text(&server.tls_fingerprint),
        tls_fingerprint_before: text(&server.tls_fingerprint),
        allow_unverified_serial: server.allow_unverified_serial,
        media_base_url: text(&server.media_base_url),
        revision: server.revision.to_string(),
    }
}

/// The entered values, without the password.
fn entered(sent: &Form, server: &ServerJson) -> ServerForm {
    let text = |name: &str| sent.get(name).trim().to_owned();
    ServerForm {
        bmc_address: text("bmc_address"),
        bmc_username: text("bmc_username"),
        labels: text("labels"),
        vendor: text("vendor"),
        bmc_profile: text("bmc_profile"),
        quirks: text("quirks"),
        network: text("network"),
        tls: text("tls"),
        tls_fingerprint: text("tls_fingerprint"),
        tls_fingerprint_before: text("tls_fingerprint_before"),
        allow_unverified_serial: sent.get("allow_unverified_serial") == "yes",
        media_base_url: text("media_base_url"),
        revision: text("revision"),
        hidden_labels: of(server).hidden_labels,
    }
}

/// The merge patch from a server to the values of its form.
fn patch(
    server: &ServerJson,
    entered: &ServerForm,
    password: &str,
) -> Result<Map<String, Value>, Vec<ErrorDetail>> {
    let shown = of(server);
    let mut patch = Map::new();
    let mut refused = Vec::new();
    for (name, old, new) in [
        ("bmc_address", &shown.bmc_address, &entered.bmc_address),
        ("bmc_username", &shown.bmc_username, &entered.bmc_username),
        ("tls", &shown.tls, &entered.tls),
    ] {
        if old != new {
            patch.insert(name.to_owned(), json!(new));
        }
    }
    for (name, old, new) in [
        ("vendor", &shown.vendor, &entered.vendor),
        ("bmc_profile", &shown.bmc_profile, &entered.bmc_profile),
        ("media_base_url", &shown.media_base_url, &entered.media_base_url),
    ] {
        if old != new {
            patch.insert(name.to_owned(), if new.is_empty() { Value::Null } else { json!(new) });
        }
    }
    // What the form did not change is not sent, whatever the first contact has pinned since.
    if ![&entered.tls_fingerprint_before, &shown.tls_fingerprint].contains(&&entered.tls_fingerprint) {
        if entered.tls_fingerprint_before == shown.tls_fingerprint {
            let fingerprint = &entered.tls_fingerprint;
            let value = if fingerprint.is_empty() { Value::Null } else { json!(fingerprint) };
            patch.insert("tls_fingerprint".to_owned(), value);
        } else {
            refused.push(pinned_since(&shown.tls_fingerprint));
        }
    }
    if shown.allow_unverified_serial != entered.allow_unverified_serial {
        patch.insert("allow_unverified_serial".to_owned(), json!(entered.allow_unverified_serial));
    }
    if !password.is_empty() {
        patch.insert("bmc_password".to_owned(), json!(password));
    }
    match labels(&entered.labels) {
        Ok(labels) => {
            let old = server.labels.iter().filter(|(key, value)| line(key, value).is_some());
            let old = old.map(|(key, value)| (key.clone(), json!(value))).collect();
            let new = labels.into_iter().map(|(key, value)| (key, json!(value))).collect();
            patch.extend(difference(&old, &new).map(|labels| ("labels".to_owned(), labels)));
        }
        Err(detail) => refused.push(detail),
    }
    match object("/quirks", &entered.quirks, r#"{"slow_insert": true}"#) {
        Ok(quirks) => {
            let old = server.quirks.clone().unwrap_or_default();
            patch.extend(difference(&old, &quirks).map(|quirks| ("quirks".to_owned(), quirks)));
        }
        Err(detail) => refused.push(detail),
    }
    match object("/network", &entered.network, r#"{"ethernets": {"lan": {…}}}"#) {
        Ok(network) if network == server.network.clone().unwrap_or_default() => {}
        Ok(network) => drop(patch.insert(
            "network".to_owned(),
            if network.is_empty() { Value::Null } else { Value::Object(network) },
        )),
        Err(detail) => refused.push(detail),
    }
    if refused.is_empty() { Ok(patch) } else { Err(refused) }
}

/// The merge patch from one object to another; nothing when they are equal.
fn difference(old: &Map<String, Value>, new: &Map<String, Value>) -> Option<Value> {
    let removed = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let set = new.iter().filter(|(key, value)| old.get(*key) != Some(*value));
    let patch: Map<String, Value> =
        removed.chain(set.map(|(key, value)| (key.clone(), value.clone()))).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, ErrorDetail> {
    let wrong = |message: String| ErrorDetail::new("/labels", message);
    if text.len() > MAX_TEXT {
        return Err(wrong(format!("at most {MAX_TEXT} bytes are read")));
    }
    let mut labels = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let Some((key, value)) = pair(line) else {
            return Err(wrong(format!("a label is written KEY=VALUE, one on each line; {line:?} is not")));
        };
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(wrong(format!("the label {key} is there twice; remove one of its lines")));
        }
    }
    Ok(labels)
}

/// The JSON object that a field holds; an empty one when the field is empty.
fn object(path: &str, text: &str, example: &str) -> Result<Map<String, Value>, ErrorDetail> {
    let wrong = |message: String| ErrorDetail::new(path, message);
    match text {
        "" => Ok(Map::new()),
        text if text.len() > MAX_TEXT => Err(wrong(format!("at most {MAX_TEXT} bytes are read"))),
        text => serde_json::from_str(text)
            .map_err(|why| wrong(format!("is a JSON object such as {example}: {why}"))),
    }
}

/// Asks before a server is deleted.
pub(super) async fn ask_delete(visit: Visit, Path(serial): Path<String>) -> Response {
    let shown = deletion(&visit, &serial, None).await;
    visit.respond(shown).await
}

async fn deletion(visit: &Visit, serial: &str, refused: Option<&Refusal>) -> Result<Response, Refusal> {
    let (path, jobs) = (path_of(serial), format!("/api/v1/jobs?server_serial={}&limit=1", encoded(serial)));
    let (server, jobs) = tokio::try_join!(visit.get::<ServerJson>(&path), visit.get::<JobPageJson>(&jobs))?;
    let frame = visit.frame(format!("Delete {serial}?"), Tab::Servers).await?;
    let view = FormView::delete_server(frame, &server, &jobs);
    match refused {
        None => html(&view),
        Some(refusal) => {
            Ok((refusal.status, html(&view.note(State::Failed, refusal.text()))?).into_response())
        }
    }
}

/// Deletes a server. One that has jobs stays, and the question says why.
pub(super) async fn delete(visit: Visit, Path(serial): Path<String>, sent: Form) -> Response {
    let done = async {
        let change = Change { method: Method::DELETE, path: &path_of(&serial), body: None, form: &sent };
        match visit.change(change).await {
            Ok(_) => Ok(Redirect::to("/ui/servers?done=server-deleted").into_response()),
            Err(refusal) if refusal.status == StatusCode::CONFLICT => {
                deletion(&visit, &serial, Some(&refusal)).await
            }
            Err(refusal) => Err(refusal),
        }
    };
    let done = done.await;
    visit.respond(done).await
}

/// Asks before a server of restored data is released. Its BMC is read for the comparison.
pub(super) async fn ask_release(visit: Visit, Path(serial): Path<String>) -> Response {
    let shown = release_form(&visit, &serial, "", Vec::new()).await;
    visit.respond(shown).await
}

async fn release_form(
    visit: &Visit,
    serial: &str,
    decision: &str,
    refused: Vec<ErrorDetail>,
) -> Result<Response, Refusal> {
    let status = if refused.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    let server: RestoredServerJson = visit.get(&format!("{}/restored", path_of(serial))).await?;
    let frame = visit.frame(format!("Release {serial}?"), Tab::Servers).await?;
    Ok((status, html(&FormView::release_server(frame, &server, decision, refused))?).into_response())
}

/// Releases a server.
pub(super) async fn release(visit: Visit, Path(serial): Path<String>, sent: Form) -> Response {
    let done = async {
        let decision = sent.get("jobs");
        let body = if decision.is_empty() { json!({}) } else { json!({ "jobs": decision }) };
        let path = format!("{}/release", path_of(&serial));
        let change = Change { method: Method::POST, path: &path, body: Some(body), form: &sent };
        match visit.change(change).await {
            Ok(_) => Ok(to(&serial, "released")),
            Err(refusal) => release_form(&visit, &serial, decision, refusal.details()?).await,
        }
    };
    let done = done.await;
    visit.respond(done).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> ServerJson {
        serde_json::from_value(json!({
            "serial": "S-1", "bmc_address": "https://10.0.0.1", "bmc_username": "root", "vendor": "Contoso", "bmc_profile": null,
            "quirks": { "slow_insert": true }, "labels": { "site": "the quay", "note": "two\nlines", "a=b": "c" },
            "allow_unverified_serial": false, "media_base_url": null, "tls": "pinned", "tls_fingerprint": "ab12",
            "last_seen": null, "observed": null, "learned": null, "maintenance": null, "restored": null, "revision": 3,
        }))
        .unwrap()
    }

    #[test]
    fn a_form_that_was_not_changed_sends_nothing() {
        let form = of(&server());
        assert_eq!(
            (form.labels.as_str(), form.hidden_labels, form.revision.as_str()),
            ("site=the quay", 2, "3")
        );
        assert_eq!(patch(&server(), &form, "").unwrap(), Map::new());
    }

    #[test]
    fn a_certificate_that_was_pinned_while_the_form_was_open_stays() {
        let opened = ServerJson { tls_fingerprint: None, ..server() };
        let sent = ServerForm { vendor: "Fabrikam".to_owned(), ..of(&opened) };
        assert_eq!(Value::Object(patch(&server(), &sent, "").unwrap()), json!({ "vendor": "Fabrikam" }));
        // A certificate that was entered is compared with the one that the form showed.
        let sent = ServerForm { tls_fingerprint: "cd34".to_owned(), ..of(&opened) };
        let refused = patch(&server(), &sent, "").unwrap_err();
        assert_eq!(refused[0].path, "/tls_fingerprint");
        let sent = ServerForm { tls_fingerprint: "ab12".to_owned(), ..of(&opened) };
        assert_eq!(patch(&server(), &sent, "").unwrap(), Map::new(), "it has this one");
    }

    #[test]
    fn only_what_differs_is_sent_and_what_a_line_cannot_hold_stays() {
        let form = ServerForm {
            labels: " rack = n04 \r\n\r\n".to_owned(),
            quirks: r#"{"slow_insert": false, "other": 3}"#.to_owned(),
            vendor: String::new(),
            tls_fingerprint: String::new(),
            allow_unverified_serial: true,
            ..of(&server())
        };
        let sent = patch(&server(), &form, "secret").unwrap();
        let expected = json!({
            "labels": { "site": null, "rack": "n04" }, "quirks": { "slow_insert": false, "other": 3 }, "vendor": null,
            "tls_fingerprint": null, "allow_unverified_serial": true, "bmc_password": "secret",
        });
        assert_eq!(Value::Object(sent), expected);
        let text = r#"{"ethernets": {}}"#.to_owned();
        let networked = ServerForm { network: text, ..of(&server()) };
        assert_eq!(
            Value::Object(patch(&server(), &networked, "").unwrap()),
            json!({ "network": { "ethernets": {} } })
        );
        let cleared = ServerForm { quirks: String::new(), ..of(&server()) };
        assert_eq!(
            Value::Object(patch(&server(), &cleared, "").unwrap()),
            json!({ "quirks": { "slow_insert": null } })
        );
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_field() {
        for (labels, quirks, paths) in [
            ("site", "", vec!["/labels"]),
            ("=x", "[1]", vec!["/labels", "/quirks"]),
            ("a=1\na=2", "{", vec!["/labels", "/quirks"]),
        ] {
            let form = ServerForm { labels: labels.to_owned(), quirks: quirks.to_owned(), ..of(&server()) };
            let refused = patch(&server(), &form, "").unwrap_err();
            assert_eq!(refused.iter().map(|detail| detail.path.as_str()).collect::<Vec<_>>(), paths);
        }
    }
}
