//! The registry, and one repository.

use axum::extract::Path;
use axum::response::Response;
use ui::data::{RegistryJson, Repositories, RepositoryDetail};
use ui::view::{RegistryPlace, Tab, TableView};

use super::visit::{Visit, encoded, html};

/// Tags on one page.
const PAGE: u32 = 50;

fn place(visit: &Visit) -> RegistryPlace<'_> {
    RegistryPlace { host: visit.host(), over_tls: visit.is_over_tls() }
}

/// Shows the registry.
pub(super) async fn show(visit: Visit) -> Response {
    let shown = async {
        let (status, repositories) = tokio::try_join!(
            visit.get::<RegistryJson>("/api/v1/registry"),
            visit.get::<Repositories>("/api/v1/registry/repositories"),
        )?;
        let frame = visit.frame("Registry", Tab::Registry).await?;
        html(&TableView::registry(frame, &status, &repositories, place(&visit)))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Shows one repository.
pub(super) async fn repository(visit: Visit, Path(name): Path<String>) -> Response {
    let shown = async {
        let after = match visit.query.get("after") {
            "" => String::new(),
            after => format!("&cursor={}", encoded(after)),
        };
        let path = format!("/api/v1/registry/repositories/{}?limit={PAGE}{after}", encoded(&name));
        let repository: RepositoryDetail = visit.get(&path).await?;
        let frame = visit.frame(repository.name.clone(), Tab::Registry).await?;
        html(&TableView::repository(frame, &repository, place(&visit)))
    };
    let shown = shown.await;
    visit.respond(shown).await
}
