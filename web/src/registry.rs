//! The registry, one repository, and the deletion of a tag.

use axum::extract::Path;
use axum::http::Method;
use axum::response::{IntoResponse, Redirect, Response};
use ui::data::{RegistryJson, Repositories, RepositoryDetail};
use ui::view::{FormView, RegistryPlace, RegistryTls, Tab, TableView, repository_path};

use super::form::Form;
use super::visit::{Change, Visit, encoded, html};

const REPOSITORIES: &str = "/api/v1/registry/repositories";

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
            visit.get::<Repositories>(REPOSITORIES),
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
        let path = format!("{REPOSITORIES}/{}?limit={PAGE}{after}", encoded(&name));
        let repository: RepositoryDetail = visit.get(&path).await?;
        let frame = visit.frame(repository.name.clone(), Tab::Registry).await?;
        html(&TableView::repository(frame, &repository, place(&visit)))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Asks before a tag is deleted. The question is about the manifest that the page of the repository showed.
pub(super) async fn ask_delete_tag(visit: Visit) -> Response {
    let shown = async {
        let (name, tag) = (visit.query.get("repository"), visit.query.get("tag"));
        let repository: RepositoryDetail =
            visit.get(&format!("{REPOSITORIES}/{}?limit=1", encoded(name))).await?;
        let frame = visit.frame(format!("Delete {tag}?"), Tab::Registry).await?;
        html(&FormView::delete_tag(frame, &repository, tag, visit.query.get("digest")))
    };
    let shown = shown.await;
    visit.respond(shown).await
}

/// Deletes a tag. A tag that names another manifest than the question said stays.
pub(super) async fn delete_tag(visit: Visit, sent: Form) -> Response {
    let done = async {
        let (name, tag, digest) = (sent.get("repository"), sent.get("tag"), sent.get("digest"));
        let path =
            format!("{REPOSITORIES}/{}/tags/{}?digest={}", encoded(name), encoded(tag), encoded(digest));
        visit.change(Change { method: Method::DELETE, path: &path, body: None, form: &sent }).await?;
        Ok(Redirect::to(&format!("{}?done=tag-deleted", repository_path(name))).into_response())
    };
    let done = done.await;
    visit.respond(done).await
}
