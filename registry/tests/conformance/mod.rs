//! A conformance suite for the distribution specification, over HTTP only.
//!
//! ```text
//!  before anything is pushed    ping, empty lists
//!  blobs                        every way to push (with and without a length, whole, in chunks, out of order), wrong digests,
//!                               read, ranges, mount and failed mount, cancel, delete, also of missing content; sha256 and
//!                               sha512
//!  content                      each kind: push, list tags, head, get, referrers, delete, also of refused manifests
//!  errors                       missing content, malformed digests
//! ```
//!
//! The groups are those of the specification's official suite in its development mode, with every optional one on. The
//! two were compared check by check and request by request, down to the headers and to the token of each request: this
//! suite requires what the official one requires, mostly more (error documents, exact lists, statuses without a
//! choice). No file of it is copied. The official check of a read-only registry has no counterpart, and a registry that
//! requires large chunks (`OCI-Chunk-Min-Length`) would be judged wrongly; this registry does not.
//!
//! The suite makes 1,419 checks ([`CHECKS`]: a run must make as many) anonymously, with a password, with a password
//! that is requested each time, and with bearer tokens. The registry's challenge selects the login, so another way
//! needs another server but no other suite, and any other registry can be tested (`REGISTRY_UNDER_TEST=http://…`).
//! Broken registries, each with one rule wrong, must be reported; a part of the suite is enough for them.

mod blobs;
mod client;
mod content;
mod data;
mod mutants;
mod report;
mod servers;

use registry::{Algorithm, Digest};
use reqwest::Method;

use self::blobs::PushMethod;
use self::client::{Failure, Login, PreparedRequest, Target};
use self::data::Manifest;
use self::report::Report;

const REPOSITORY: &str = "conformance/repo1";
const OTHER: &str = "conformance/repo2";

/// Every group that must have at least one check.
const GROUPS: [&str; 53] = [
    "blob delete",
    "blob delete, at once",
    "blob get",
    "blob get range",
    "blob head",
    "blob mount",
    "blob mount, without source",
    "blob push",
    "blob push: chunked",
    "blob push: post only",
    "blob push: post put",
    "blob push: streaming",
    "blob upload cancel",
    "blobs: sha256",
    "blobs: sha512",
    "data: artifact",
    "data: artifact index",
    "data: artifact without layers",
    "data: artifacts with subject",
    "data: bad digest image",
    "data: custom fields",
    "data: data field",
    "data: empty index",
    "data: image",
    "data: image uncompressed",
    "data: image, large manifest",
    "data: index",
    "data: index with subject",
    "data: invalid digest",
    "data: missing subject",
    "data: nested index",
    "data: no layers",
    "data: non-distributable layers",
    "data: sha512",
    "data: sparse manifests",
    "data: tag param",
    "data: tag param sha512",
    "empty registry",
    "manifest delete",
    "manifest delete, at once",
    "manifest get by digest",
    "manifest get by tag",
    "manifest head by digest",
    "manifest head by tag",
    "manifest put by digest",
    "manifest put by tag",
    "manifest put with subject",
    "manifest put with tags",
    "ping",
    "referrers",
    "tag delete",
    "tag delete, at once",
    "tag listing",
];

/// The number of checks of one run; a check that is lost by mistake would not be noticed otherwise.
const CHECKS: usize = 1419;

/// The kinds of content that a broken registry is tested with.
const BRIEFLY: [&str; 4] =
    ["data: image", "data: artifacts with subject", "data: bad digest image", "data: tag param"];

/// One run against one registry.
struct Suite {
    target: Target,
    report: Report,
}

impl Suite {
    /// Runs the whole suite, or only one algorithm and a few kinds of content.
    async fn run(target: Target, whole: bool) -> Report {
        let mut suite = Suite { target, report: Report::default() };
        let outcome = suite.ping().await;
        suite.check(&["ping"], "ping", outcome);
        let outcome = suite.empty().await;
        suite.check(&["empty registry"], "lists", outcome);
        for algorithm in
            Algorithm::ALL.into_iter().filter(|algorithm| whole || *algorithm == Algorithm::Sha256)
        {
            suite.blobs(algorithm).await;
        }
        for set in data::all(true).into_iter().filter(|set| whole || BRIEFLY.contains(&set.group)) {
            suite.content(&set).await;
        }
        let outcome = suite.absent().await;
        suite.check(&["manifest get by digest", "manifest get by tag"], "missing content", outcome);
        suite.invalid_digest().await;
        suite.report
    }

    fn request(&self, method: Method, location: &str) -> PreparedRequest<'_> {
        self.target.request(method, location)
    }

    fn check(&mut self, groups: &[&'static str], name: &str, outcome: Result<(), Failure>) {
        self.report.record(groups, name, outcome);
    }

    async fn ping(&self) -> Result<(), Failure> {
        self.request(Method::GET, "/v2/").send().await?.is(&[200])?;
        Ok(())
    }

    async fn empty(&self) -> Result<(), Failure> {
        let tags = self.request(Method::GET, &format!("/v2/{REPOSITORY}/tags/list")).send().await?;
        if tags.status != 404 {
            let listed = tags.is(&[200])?.json()?;
            if !listed["name"].is_string() || !listed["tags"].is_array() {
                return Err(format!("not a list of tags: {listed}"));
            }
        }
        self.referrers_of(&Digest::of(Algorithm::Sha256, b"never pushed"), None, &[]).await
    }

    async fn absent(&self) -> Result<(), Failure> {
        for reference in [Digest::of(Algorithm::Sha256, b"absent").to_string(), "absent".to_owned()] {
            let path = format!("/v2/{REPOSITORY}/manifests/{reference}");
            self.request(Method::GET, &path).send().await?.refuses(&[404])?;
        }
        Ok(())
    }

    /// Puts an image with existing blobs under a wrong digest: it must be refused, and not exist under its real digest.
    async fn invalid_digest(&mut self) {
        const GROUP: &str = "data: invalid digest";
        let sets = data::all(false);
        let (set, image) = (&sets[0], &sets[0].manifests[0]);
        for (digest, content) in &set.blobs {
            let outcome = self.push_blob(REPOSITORY, PushMethod::PostPut, digest, content).await;
            self.check(&["blob push", GROUP], "push", outcome);
        }
        let outcome = self.put_under_no_digest(image).await;
        self.check(
            &["manifest put by digest", "manifest get by digest", GROUP],
            "sha256:baddigeststring",
            outcome,
        );
        let outcome = self.delete_nothing(&format!("/v2/{REPOSITORY}/manifests/{}", image.digest)).await;
        self.check(&["manifest delete", GROUP], "under its digest", outcome);
        for (digest, _) in &set.blobs {
            self.delete_blob(REPOSITORY, GROUP, digest).await;
        }
    }

    async fn put_under_no_digest(&self, image: &Manifest) -> Result<(), Failure> {
        let path = format!("/v2/{REPOSITORY}/manifests/sha256:baddigeststring");
        let put = self.request(Method::PUT, &path).header("content-type", image.kind).body(&image.document);
        put.streamed().send().await?.refuses(&[400])?;
        self.request(Method::GET, &path).send().await?.refuses(&[400, 404])?;
        Ok(())
    }
}

/// Runs the suite, prints its table and expects no failure and no missing check.
#[expect(clippy::print_stdout, reason = "the table is the output of the suite")]
async fn conforms(name: &str, target: Target) {
    let report = Suite::run(target, true).await;
    println!("{name}\n{report}");
    assert_eq!(report.failed(), Vec::<&str>::new(), "{name}\n{report}");
    assert_eq!(report.covered(), GROUPS);
    assert_eq!(report.checks(), CHECKS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_conforms_for_anonymous_clients() {
    let served = servers::open().await;
    conforms("anonymous", served.target(None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_conforms_behind_basic_authentication() {
    let served = servers::behind_basic().await;
    conforms("basic", served.target(Some(servers::login()))).await;
}

/// Each request is sent without authorization first, even the largest manifest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_conforms_for_a_client_that_logs_in_each_time() {
    let served = servers::behind_basic().await;
    let login = Login { holds_nothing: true, ..servers::login() };
    conforms("basic, each time", served.target(Some(login))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_conforms_behind_bearer_tokens() {
    let served = servers::behind_bearer(|router| router).await;
    conforms("bearer", served.target(Some(servers::login()))).await;
}

/// Tests another registry with the same rules when the environment names one, and prints the table without a verdict.
#[tokio::test]
async fn a_registry_named_in_the_environment_is_measured() {
    let Ok(base) = std::env::var("REGISTRY_UNDER_TEST") else { return };
    let target = Target::new(base.parse().unwrap(), crate::support::client(), None);
    println!("{base}\n{}", Suite::run(target, true).await);
}
