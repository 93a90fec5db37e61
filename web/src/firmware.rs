//! Firmware files and sets.

use axum::extract::Path;
use axum::response::Response;
use ui::data::{FirmwarePage, FirmwareSetJson, FirmwareSetPage};
use ui::view::{Tab, TableView};

use super::visit::{Visit, encoded, html};

/// Lists files and sets.
pub(super) async fn list(visit: Visit) -> Response {
    let shown = async {
        let (files, sets) = tokio::try_join!(
            visit.get::<FirmwarePage>("/api/v1/firmware"),
            visit.get::<FirmwareSetPage>("/api/v1/firmware-sets"),
        )?;
        html(&TableView::firmware(visit.frame("Firmware", Tab::Registry).await?, &files, &sets))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows one set.
pub(super) async fn set(visit: Visit, Path(name): Path<String>) -> Response {
    let shown = async {
        let set: FirmwareSetJson = visit.get(&format!("/api/v1/firmware-sets/{}", encoded(&name))).await?;
        html(&TableView::firmware_set(visit.frame(set.name.clone(), Tab::Registry).await?, &set))
    };
    let shown = shown.await;
    visit.respond(shown).await
}
