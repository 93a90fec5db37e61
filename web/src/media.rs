//! Boot images, task images and firmware images that are or were served.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ui::data::MediaPage;
use ui::view::{MediaQuery, Tab, TableView};

use super::refusal::Refusal;
use super::visit::{Visit, encoded, html};

/// Images of one page.
const PAGE: u32 = 50;
/// Ended images below those that are served.
const ENDED: u32 = 20;

/// Shows the images.
pub(super) async fn list(visit: Visit) -> Response {
    let shown = media(&visit).await;
    visit.respond(shown).await
}

async fn media(visit: &Visit) -> Result<Response, Refusal> {
    let text = |name: &str| visit.query.get(name).trim().to_owned();
    let (show, cursor) = (text("show"), text("cursor"));
    let query = MediaQuery { server: text("server"), image: text("image"), ended_only: show == "ended" };
    let path = |served: bool, limit: u32, cursor: &str| {
        let mut path = format!("/api/v1/media?served={served}&limit={limit}");
        for (name, value) in
            [("server_serial", query.server.as_str()), ("image", query.image.as_str()), ("cursor", cursor)]
        {
            if !value.is_empty() {
                path.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        path
    };
    let (served, ended) = match query.ended_only {
        true => (None, path(false, PAGE, &cursor)),
        false => (Some(path(true, PAGE, &cursor)), path(false, ENDED, "")),
    };
    let served = async {
        match &served {
            Some(path) => visit.get::<MediaPage>(path).await,
            None => Ok(MediaPage::default()),
        }
    };
    let (served, ended, refused) = match tokio::try_join!(served, visit.get::<MediaPage>(&ended)) {
        Ok((served, ended)) => (served, ended, None),
        Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
            (MediaPage::default(), MediaPage::default(), Some(refusal.text()))
        }
        Err(refusal) => return Err(refusal),
    };
    let status = if refused.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let frame = visit.live_frame("Boot and task images", Tab::Registry).await?;
    Ok((status, html(&TableView::media(frame, &query, &served, &ended, refused))?).into_response())
}
