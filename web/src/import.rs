//! The import of servers: a table or a document, a preview with a result for each row, then the import.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use roster::DividedRows;
use serde_json::json;
use ui::data::{ErrorBody, ErrorDetail, ImportRow, ServerImport};
use ui::view::{FormView, ImportForm, Tab, TableView};

use super::form::{Form, Upload};
use super::refusal::Refusal;
use super::servers::labels;
use super::visit::{Change, Visit, html};

const PATH: &str = "/api/v1/server-imports";
/// The longest user or password that a form gives to every row.
const MAX_FOR_EVERY_ROW: usize = 1024;

/// Sends the rows that can be read to the API, and adds the unreadable rows to the results as refused.
async fn send(
    DividedRows { rows, unread }: DividedRows,
    visit: &Visit,
    path: &str,
    form: &Form,
) -> Result<ServerImport, Refusal> {
    let mut import = match rows.is_empty() {
        true => ServerImport { created: 0, exists: 0, refused: 0, rows: Vec::new() },
        false => {
            let body = Some(json!({ "rows": rows }));
            visit.change(Change { method: Method::POST, path, body, form }).await?.read()?
        }
    };
    import.refused += unread.len() as u64;
    unread.merge(&mut import.rows, |message| {
        let error = Some(ErrorBody { message, ..ErrorBody::default() });
        ImportRow { index: 0, serial: None, result: "refused".to_owned(), error }
    });
    for (index, row) in import.rows.iter_mut().enumerate() {
        row.index = index as u64;
    }
    Ok(import)
}

/// Shows the empty form.
pub(super) async fn show(visit: Visit) -> Response {
    let shown = async { form(&visit, &ImportForm::default(), Vec::new()).await };
    let shown = shown.await;
    visit.respond(shown).await
}

async fn form(visit: &Visit, entered: &ImportForm, refused: Vec<ErrorDetail>) -> Result<Response, Refusal> {
    let status = if refused.is_empty() { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let view = FormView::import(visit.frame("Import servers", Tab::Servers).await?, entered, refused);
    Ok((status, html(&view)?).into_response())
}

/// Previews an import.
pub(super) async fn preview(visit: Visit, Upload(sent): Upload) -> Response {
    let sent = Arc::new(sent);
    let shown = previewed(&visit, &sent).await;
    visit.respond(shown).await
}

async fn previewed(visit: &Visit, sent: &Arc<Form>) -> Result<Response, Refusal> {
    let (seal, csrf, now, read) = (visit.seal(), visit.csrf(), visit.now(), Arc::clone(sent));
    // A table of thousands of rows takes CPU time, so it is read outside of the threads that serve requests.
    let read = media::offload(move || {
        let rows = rows(&read)?;
        let sealed = seal.seal(&csrf, &json!(rows).to_string(), now);
        Ok::<_, ErrorDetail>((rows, sealed))
    });
    let (rows, sealed) = match read.await.map_err(|lost| Refusal::internal(&lost))? {
        Ok(read) => read,
        Err(why) => return form(visit, &entered(sent), vec![why]).await,
    };
    let import = match send(rows, visit, &format!("{PATH}?dry_run=true"), sent).await {
        Ok(import) => import,
        Err(refusal) => return form(visit, &entered(sent), refusal.details()?).await,
    };
    let sealed = sealed.map_err(|_stale| too_large())?;
    html(&FormView::import_preview(visit.frame("Import servers", Tab::Servers).await?, &import, &sealed))
}

fn too_large() -> Refusal {
    Refusal::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "too_large",
        "the rows cannot be kept for the second step; import fewer at once",
    )
}

/// The entered values, without the password. A table that has a column of passwords is not shown again.
fn entered(sent: &Form) -> ImportForm {
    let text = |name: &str| sent.get(name).to_owned();
    let table = text("text");
    let secret = table.to_lowercase().contains("password");
    ImportForm {
        text: if secret { String::new() } else { table },
        bmc_username: text("bmc_username"),
        labels: text("labels"),
    }
}

/// The rows of a form, completed with what stands beside the table.
fn rows(sent: &Form) -> Result<DividedRows, ErrorDetail> {
    let wrong = |path: &str, message: String| ErrorDetail::new(path, message);
    let (field, text) = match sent.get("file").trim() {
        "" => ("/text", sent.get("text")),
        file => ("/file", file),
    };
    if text.trim().is_empty() {
        return Err(wrong("/text", "choose a file, or paste a table".to_owned()));
    }
    // What every row gets is bounded before it is merged: a long value would be there once for each row.
    let labels = labels(sent.get("labels"))?;
    for (name, path) in [("bmc_username", "/bmc_username"), ("bmc_password", "/bmc_password")] {
        if sent.get(name).len() > MAX_FOR_EVERY_ROW {
            return Err(wrong(path, format!("at most {MAX_FOR_EVERY_ROW} bytes")));
        }
    }
    let read = roster::read(text).map_err(|why| wrong(field, why))?;
    if read.is_empty() {
        return Err(wrong(field, "there is a header and no server".to_owned()));
    }
    let mut read: DividedRows = read.into_iter().collect();
    let beside = [("bmc_username", sent.get("bmc_username")), ("bmc_password", sent.get("bmc_password"))];
    let fields: Vec<(&str, &str)> = beside.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    for row in &mut read.rows {
        roster::complete(row, &fields, &labels);
    }
    Ok(read)
}

/// Imports what was previewed.
pub(super) async fn confirm(visit: Visit, Upload(sent): Upload) -> Response {
    let sent = Arc::new(sent);
    let done = confirmed(&visit, &sent).await;
    visit.respond(done).await
}

async fn confirmed(visit: &Visit, sent: &Arc<Form>) -> Result<Response, Refusal> {
    let stale = || {
        let message = "the preview is older than half an hour, or of another login; preview the import again";
        Refusal::new(StatusCode::CONFLICT, "stale_preview", message)
    };
    let (seal, csrf, now, read) = (visit.seal(), visit.csrf(), visit.now(), Arc::clone(sent));
    let opened = media::offload(move || {
        let rows = seal.open(&csrf, read.get("rows"), now).ok()?;
        serde_json::from_str::<DividedRows>(&rows).ok()
    });
    let rows = opened.await.map_err(|lost| Refusal::internal(&lost))?.ok_or_else(stale)?;
    let import = send(rows, visit, PATH, sent).await?;
    html(&TableView::imported(visit.frame("Imported", Tab::Servers).await?, &import))
}
