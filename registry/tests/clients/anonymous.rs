//! Clients without credentials, where they need none.
//!
//! ```text
//!  every caller is an administrator     no challenge                              push, copy, list, pull, delete
//!  every caller may push, none may read tokens, and the `Basic` challenge         push, push again, copy to another tag;
//!                                                                                 a pull is refused
//! ```

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use registry::{Policy, Realm, Reference, Registry, SubjectPattern, TokenAuthority, TokenOptions};

use super::containers::Storage;
use super::oras::{build, oras};
use super::skopeo::skopeo;
use super::{image_in, run, succeed, write_layout};
use crate::support::{Server, access_control_for, config, sha256};

/// How a registry challenges callers that it does not know.
#[derive(Clone, Copy)]
enum Challenge {
    Basic,
    Bearer,
    /// The challenge behind a TLS proxy that does not say so: the token flow with a `Basic` challenge.
    UnknownScheme,
}

async fn served(scratch: &Path, policy: Policy, challenge: Challenge) -> Server {
    let control = access_control_for(&[], &[]).await;
    control.set_policy(policy);
    let registry = Registry::open(config(&scratch.join("store"))).await.unwrap();
    let realm = match challenge {
        Challenge::Basic => return Server::serve(registry.clone(), registry.router(Arc::new(control))).await,
        Challenge::Bearer => Realm::SameHost,
        Challenge::UnknownScheme => Realm::AsReached { plain: None },
    };
    let authority = Arc::new(TokenAuthority::new(control, TokenOptions { realm, ..TokenOptions::default() }));
    let router = registry.router(Arc::clone(&authority) as _).merge(authority.token_router());
    Server::serve(registry, router).await
}

/// A registry like that of a controller without authentication.
async fn served_to_all(scratch: &Path) -> Server {
    let administrators = vec![SubjectPattern::Anonymous];
    served(scratch, Policy { administrators, ..Policy::default() }, Challenge::Basic).await
}

/// A registry like that of a controller with `REGISTRY_ANONYMOUS_WRITE` alone.
async fn served_to_writers(scratch: &Path, challenge: Challenge) -> Server {
    served(scratch, Policy { anonymous_write: true, ..Policy::default() }, challenge).await
}

const CHALLENGES: [Challenge; 3] = [Challenge::Basic, Challenge::Bearer, Challenge::UnknownScheme];

/// Runs a test against a registry that every caller may push to and none may read, once with each challenge.
async fn with_each_challenge(test: impl AsyncFn(&Path, &Server)) {
    for challenge in CHALLENGES {
        let scratch = tempfile::tempdir().unwrap();
        let server = served_to_writers(scratch.path(), challenge).await;
        test(scratch.path(), &server).await;
    }
}

/// skopeo without the logins of the machine.
fn skopeo_without_login(scratch: &Path, arguments: &[&str]) -> Command {
    let mut command = skopeo(arguments);
    command.env("HOME", scratch).env("REGISTRY_AUTH_FILE", scratch.join("auth.json"));
    command
}

/// The digest of a pushed tag, read by the embedding program: the client may not read it.
async fn pushed(server: &Server, repository: &str, tag: &str) -> String {
    let reference = Reference::Tag(tag.parse().unwrap());
    server.registry.resolve(&repository.parse().unwrap(), &reference).await.unwrap().digest.to_string()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_needs_no_login_where_every_caller_may_do_everything() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served_to_all(scratch.path()).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    let skopeo = |arguments: &[&str]| skopeo_without_login(scratch.path(), arguments);
    let (first, second) =
        (format!("docker://{}/a:v1", server.address), format!("docker://{}/b:v1", server.address));
    let source = format!("oci:{}:v1", layout.directory.display());
    succeed(skopeo(&["copy", "-q", "--preserve-digests", "--dest-tls-verify=false", &source, &first])).await;
    let both = ["copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false", &first, &second];
    succeed(skopeo(&both)).await;
    succeed(skopeo(&["list-tags", "--tls-verify=false", &format!("docker://{}/b", server.address)])).await;
    let out = scratch.path().join("out");
    let target = format!("oci:{}:v1", out.display());
    succeed(skopeo(&["copy", "-q", "--src-tls-verify=false", &second, &target])).await;
    assert_eq!(image_in(&out), sha256(&layout.manifest));
    succeed(skopeo(&["delete", "--tls-verify=false", &second])).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman and buildah, run by .ci/run"]
async fn podman_and_buildah_need_no_login_where_every_caller_may_do_everything() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served_to_all(scratch.path()).await;
    let storage = Storage::new(scratch.path());
    let image = local_image(scratch.path(), &storage).await;
    let remote = format!("docker://{}/podman/test:v1", server.address);
    succeed(storage.remote("podman", "push", &[&image, &remote])).await;
    succeed(storage.command("podman", &["rmi", "--force", &image])).await;
    succeed(storage.remote("podman", "pull", &[&remote])).await;
    let container = succeed(storage.remote("buildah", "from", &[&remote])).await;
    let built = format!("docker://{}/built:v1", server.address);
    succeed(storage.remote("buildah", "commit", &[container.trim(), &built])).await;
    succeed(storage.remote("podman", "pull", &[&built])).await;
}

/// The id of an image that podman read from a layout in `scratch`.
async fn local_image(scratch: &Path, storage: &Storage) -> String {
    write_layout(scratch.join("in"), "v1");
    // The name of the local image must not contain capital letters, which the scratch directory may.
    let mut read = storage.command("podman", &["pull", "-q", "oci:in:v1"]);
    read.current_dir(scratch);
    succeed(read).await.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_pushes_where_every_caller_may_push_and_none_may_read() {
    with_each_challenge(async |scratch, server| {
        let layout = write_layout(scratch.join("in"), "v1");
        let skopeo = |arguments: &[&str]| skopeo_without_login(scratch, arguments);
        let source = format!("oci:{}:v1", layout.directory.display());
        for (repository, tag) in [("a", "v1"), ("a", "v1"), ("a", "v2"), ("b", "v1")] {
            let remote = format!("docker://{}/{repository}:{tag}", server.address);
            let push = ["copy", "-q", "--preserve-digests", "--dest-tls-verify=false", &source, &remote];
            succeed(skopeo(&push)).await;
            assert_eq!(pushed(server, repository, tag).await, sha256(&layout.manifest).to_string());
        }
        let inspect = ["inspect", "--tls-verify=false", &format!("docker://{}/a:v1", server.address)];
        assert!(!run(skopeo(&inspect)).await.status.success(), "writing is not reading");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman and buildah, run by .ci/run"]
async fn podman_and_buildah_push_where_every_caller_may_push_and_none_may_read() {
    with_each_challenge(async |scratch, server| {
        let storage = Storage::new(scratch);
        let image = local_image(scratch, &storage).await;
        for program in ["podman", "buildah"] {
            let remote = format!("docker://{}/{program}/test:v1", server.address);
            for _ in 0..2 {
                succeed(storage.remote(program, "push", &[&image, &remote])).await;
            }
            pushed(server, &format!("{program}/test"), "v1").await;
            assert!(!run(storage.remote(program, "pull", &[&remote])).await.status.success());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs go and its module proxy, run by .ci/run"]
async fn oras_pushes_where_every_caller_may_push_and_none_may_read() {
    let programs = tempfile::tempdir().unwrap();
    let program = build(programs.path()).await;
    with_each_challenge(async |scratch, server| {
        fs::copy(&program, scratch.join("oras")).unwrap();
        fs::write(scratch.join("note.txt"), "a note").unwrap();
        let image = format!("{}/notes:v1,latest", server.address);
        for _ in 0..2 {
            succeed(oras(scratch, &["push", "--plain-http", &image, "note.txt"])).await;
        }
        pushed(server, "notes", "latest").await;
        let pull = ["pull", "--plain-http", "-o", "out", &format!("{}/notes:v1", server.address)];
        assert!(!run(oras(scratch, &pull)).await.status.success(), "writing is not reading");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs crane, run by .ci/run"]
async fn crane_pushes_where_every_caller_may_push_and_none_may_read() {
    with_each_challenge(async |scratch, server| {
        let layout = write_layout(scratch.join("in"), "v1");
        let image = format!("{}/crane/test:v1", server.address);
        for _ in 0..2 {
            let mut push = Command::new("crane");
            push.env("HOME", scratch).env("DOCKER_CONFIG", scratch.join("docker"));
            push.args(["push", &layout.directory.display().to_string(), &image, "--insecure"]);
            succeed(push).await;
        }
        assert_eq!(pushed(server, "crane/test", "v1").await, sha256(&layout.manifest).to_string());
    })
    .await;
}
