//! Log lines about a grant carry the ids of its job, whichever task writes them.

use http_body_util::BodyExt as _;
use tempfile::NamedTempFile;

use super::*;

/// The log lines of a thread.
pub(crate) struct Written(NamedTempFile);

impl Written {
    pub(crate) fn new() -> Self {
        Self(NamedTempFile::new().unwrap())
    }

    /// Collects the log lines of this thread until the guard is dropped.
    pub(crate) fn collect(&self) -> tracing::subscriber::DefaultGuard {
        let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::INFO);
        tracing::subscriber::set_default(lines.with_writer(self.0.as_file().try_clone().unwrap()).finish())
    }

    /// The line with this text.
    pub(crate) fn line(&self, text: &str) -> String {
        let lines = std::fs::read_to_string(self.0.path()).unwrap();
        let found = lines.lines().find(|line| line.contains(text)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("no line {text:?} in\n{lines}"))
    }
}

fn carries_the_ids(line: &str, artifact: &str) {
    for field in
        [format!("job_id={}", run()), "server_serial=\"XF-1\"".to_owned(), format!("artifact=\"{artifact}\"")]
    {
        assert!(line.contains(&field), "{field} is missing in {line}");
    }
}

/// A store with one task grant of a job on server `XF-1`.
fn store_of(inputs: Option<String>) -> (Arc<FakeGrantStore>, MediaGrants, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = FakeGrantStore::new();
    let mut stored = task_grant(TASK_TOKEN, &record_inputs(&task_input()).unwrap());
    stored.server = Some("XF-1".parse().unwrap());
    stored.grant.inputs = inputs.or(stored.grant.inputs);
    store.add(stored);
    let grants = MediaGrants::new(store.clone(), library(dir.path()), &key(), clock());
    (store, grants, dir)
}

#[tokio::test]
async fn a_response_that_stops_early_is_logged_with_the_ids_of_its_job() {
    let lines = Written::new();
    let _collecting = lines.collect();
    let (store, grants, _dir) = store_of(None);
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    let request = ::http::Request::get("/").body(()).unwrap().into_parts().0;
    let response = respond(&grant.body, &request, grant.clone());
    store.end(TASK_TOKEN);
    grants.end(run());
    // The connection sends the body after the request was handled, outside of every span.
    assert!(response.into_body().collect().await.is_err());
    carries_the_ids(&lines.line("media response stopped early"), "task");
}

#[tokio::test]
async fn an_image_that_cannot_be_served_is_logged_with_the_ids_of_its_job() {
    let lines = Written::new();
    let _collecting = lines.collect();
    let (_store, grants, _dir) = store_of(sealed(b"not the inputs of a task"));
    assert!(matches!(grants.open(TASK_TOKEN).await, Err(GrantError::Task(_))));
    carries_the_ids(&lines.line("a medium cannot be served"), "task");
}

#[tokio::test(start_paused = true)]
async fn reads_that_cannot_be_recorded_are_logged_with_the_ids_of_their_job() {
    let lines = Written::new();
    let _collecting = lines.collect();
    let (store, grants, _dir) = store_of(None);
    let grant = grants.open(TASK_TOKEN).await.unwrap();
    store.set_down(true);
    grant.read(0, 7);
    grants.flush().await;
    carries_the_ids(&lines.line("media reads not recorded"), "task");
}
