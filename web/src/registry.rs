//! The registry, one repository, and the deletion of a tag.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use ui::State;
use ui::data::{RegistryJson, Repositories, RepositoryDetail};
use ui::view::{FormView, RegistryPlace, RegistryTls, Tab, TableView, repository_path};

use super::form::Form;
use super::refusal::Refusal;
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

/// Asks before a tag is deleted.
pub(super) async fn ask_delete_tag(visit: Visit) -> Response {
    let (name, tag) = (visit.query.get("repository"), visit.query.get("tag"));
    let shown = async { html(&question(&visit, name, tag).await?) };
    let shown = shown.await;
    visit.respond(shown).await
}

/// The question about a tag as it is now.
async fn question(visit: &Visit, name: &str, tag: &str) -> Result<FormView, Refusal> {
    let path = format!("{REPOSITORIES}/{}?limit=1&cursor={}", encoded(name), encoded(&before(tag)));
    let repository: RepositoryDetail = visit.get(&path).await?;
    let found = repository.tags.iter().find(|found| found.tag == tag).ok_or_else(|| {
        let message = format!("{} has no tag {tag:?}; its page shows its tags", repository.name);
        Refusal::new(StatusCode::NOT_FOUND, "unknown_tag", &message)
    })?;
    let frame = visit.frame(format!("Delete {tag}?"), Tab::Registry).await?;
    Ok(FormView::delete_tag(frame, &repository.name, found))
}

/// A text before a tag, and after every tag before it: tags have bytes below the tilde only, and are in the order of their bytes.
fn before(tag: &str) -> String {
    let mut letters = tag.chars();
    let last = letters.next_back().and_then(|last| char::from_u32(u32::from(last).saturating_sub(1)));
    last.map_or_else(String::new, |last| format!("{}{last}~", letters.as_str()))
}

/// Deletes a tag. A tag that names another manifest than the question said stays, and the question is asked again.
pub(super) async fn delete_tag(visit: Visit, sent: Form) -> Response {
    let done = async {
        let (name, tag, digest) = (sent.get("repository"), sent.get("tag"), sent.get("digest"));
        let path =
            format!("{REPOSITORIES}/{}/tags/{}?digest={}", encoded(name), encoded(tag), encoded(digest));
        match visit.change(Change { method: Method::DELETE, path: &path, body: None, form: &sent }).await {
            Ok(_) => Ok(Redirect::to(&format!("{}?done=tag-deleted", repository_path(name))).into_response()),
            Err(refusal) if refusal.status == StatusCode::PRECONDITION_FAILED => {
                let again = question(&visit, name, tag).await?;
                let why = "The tag names another manifest than the question said, so nothing was deleted. This is the question for \
                           its present manifest.";
                Ok((refusal.status, html(&again.note(State::Held, why))?).into_response())
            }
            Err(refusal) => Err(refusal),
        }
    };
    let done = done.await;
    visit.respond(done).await
}

#[cfg(test)]
mod tests {
    use super::before;

    #[test]
    fn no_tag_is_between_a_tag_and_the_text_before_it() {
        let all =
            ["-", ".x", "0", "1.2", "1.2-", "1.2.", "A", "Z9", "_", "a", "v1", "v1-a", "v10", "v2", "z"];
        for tag in all {
            let cursor = before(tag);
            assert!(cursor.as_str() < tag, "{tag}");
            assert!(all.iter().all(|other| *other >= tag || *other < cursor.as_str()), "{tag}: {cursor}");
        }
        assert_eq!(before(""), "");
    }
}
