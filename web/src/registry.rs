//! The registry, and one repository.

use axum::extract::Path;
use axum::response::Response;
use ui::data::{RegistryJson, Repositories, RepositoryDetail};
use ui::view::{RegistryPlace, RegistryTls, Tab, TableView};

use super::visit::{Visit, encoded, html};

/// Tags on one page.
const PAGE: u32 = 50;

/// The place of the registry for a client beside the browser. `X-Forwarded-Proto` is not read: a client that gives its
/// credentials to a proxy checks the certificate of that proxy, whatever the proxy says.
fn place(visit: &Visit) -> RegistryPlace<'_> {
    let (host, tls) = match (visit.is_proxied(), visit.is_over_tls(), visit.public_https_host()) {
        (true, _, _) => (visit.host(), RegistryTls::Elsewhere),
        (false, true, _) => (visit.host(), RegistryTls::OwnListener),
        (false, false, Some(public)) => (public, RegistryTls::Elsewhere),
        (false, false, None) => (visit.host(), RegistryTls::None),
    };
    RegistryPlace { host, tls }
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
