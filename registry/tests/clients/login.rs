//! Logging in with each client: with passwords, and with tokens.
//!
//! ```text
//!  without credentials refused ─> wrong password refused ─> logged in ─> pushed, pulled, copied with a mount
//! ```

use std::fs;
use std::path::Path;
use std::process::Command;

use super::containers::Storage;
use super::oras::{build, oras};
use super::skopeo::skopeo;
use super::{image_in, run, served_for_tokens, served_to_users, succeed, write_layout};
use crate::support::{PASSWORD, Server, USER, sha256};

async fn skopeo_logs_in(scratch: &Path, server: &Server) {
    let layout = write_layout(scratch.join("in"), "v1");
    let (address, auth) = (server.address.to_string(), scratch.join("auth.json").display().to_string());
    let skopeo = |arguments: &[&str]| {
        let mut command = skopeo(arguments);
        command.env("REGISTRY_AUTH_FILE", &auth).env("HOME", scratch);
        command
    };
    let (first, second) =
        (format!("docker://{address}/os-images/a:v1"), format!("docker://{address}/os-images/b:v1"));
    let source = format!("oci:{}:v1", layout.directory.display());
    let push = ["copy", "-q", "--preserve-digests", "--dest-tls-verify=false", &source, &first];
    assert!(!run(skopeo(&push)).await.status.success(), "an anonymous client may not push");
    let login =
        |password: &str| skopeo(&["login", "--tls-verify=false", "-u", USER, "-p", password, &address]);
    assert!(!run(login("wrong")).await.status.success());
    succeed(login(PASSWORD)).await;
    succeed(skopeo(&push)).await;
    let both = ["copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false", &first, &second];
    succeed(skopeo(&both)).await;
    let out = scratch.join("out");
    let target = format!("oci:{}:v1", out.display());
    succeed(skopeo(&["copy", "-q", "--src-tls-verify=false", &second, &target])).await;
    assert_eq!(image_in(&out), sha256(&layout.manifest));
    succeed(skopeo(&["list-tags", "--tls-verify=false", &format!("docker://{address}/os-images/b")])).await;
    succeed(skopeo(&["delete", "--tls-verify=false", &second])).await;
    succeed(skopeo(&["logout", &address])).await;
    assert!(!run(skopeo(&["inspect", "--tls-verify=false", &first])).await.status.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_logs_in_with_a_password() {
    let scratch = tempfile::tempdir().unwrap();
    skopeo_logs_in(scratch.path(), &served_to_users(scratch.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs skopeo, run by .ci/run"]
async fn skopeo_logs_in_for_tokens_and_reads_public_images_without() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served_for_tokens(scratch.path()).await;
    skopeo_logs_in(scratch.path(), &server).await;
    let source = format!("oci:{}:v1", scratch.path().join("in").display());
    let (public, login) = (format!("docker://{}/public/a:v1", server.address), format!("{USER}:{PASSWORD}"));
    let push = ["copy", "-q", "--dest-tls-verify=false", "--dest-creds", &login, &source, &public];
    succeed(skopeo(&push)).await;
    succeed(skopeo(&["inspect", "--tls-verify=false", "--no-creds", &public])).await;
}

async fn podman_logs_in(scratch: &Path, server: &Server) {
    let storage = Storage::new(scratch);
    write_layout(scratch.join("in"), "v1");
    let (address, image) = (server.address.to_string(), format!("{}/os-images/test:v1", server.address));
    let login = |password: &str| {
        storage.command("podman", &["login", "--tls-verify=false", "-u", USER, "-p", password, &address])
    };
    assert!(!run(login("wrong")).await.status.success());
    succeed(login(PASSWORD)).await;
    // The name of the local image must not contain capital letters, which the scratch directory may.
    let mut read = storage.command("podman", &["pull", "-q", "oci:in:v1"]);
    read.current_dir(scratch);
    let id = succeed(read).await;
    succeed(storage.remote("podman", "push", &[id.trim(), &image])).await;
    succeed(storage.command("podman", &["rmi", "--force", id.trim()])).await;
    succeed(storage.remote("podman", "pull", &[&image])).await;
    succeed(storage.command("podman", &["logout", &address])).await;
    assert!(!run(storage.remote("podman", "pull", &[&image])).await.status.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman, run by .ci/run"]
async fn podman_logs_in_with_a_password() {
    let scratch = tempfile::tempdir().unwrap();
    podman_logs_in(scratch.path(), &served_to_users(scratch.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs podman, run by .ci/run"]
async fn podman_logs_in_for_tokens() {
    let scratch = tempfile::tempdir().unwrap();
    podman_logs_in(scratch.path(), &served_for_tokens(scratch.path()).await).await;
}

async fn oras_logs_in(scratch: &Path, server: &Server) {
    build(scratch).await;
    let address = server.address.to_string();
    let oras = |arguments: &[&str]| oras(scratch, arguments);
    fs::write(scratch.join("note.txt"), "a note").unwrap();
    let push = ["push", "--plain-http", &format!("{address}/notes:v1"), "note.txt"];
    assert!(!run(oras(&push)).await.status.success(), "an anonymous client may not push");
    let login = |password: &str| oras(&["login", "--plain-http", "-u", USER, "-p", password, &address]);
    assert!(!run(login("wrong")).await.status.success());
    succeed(login(PASSWORD)).await;
    succeed(oras(&push)).await;
    succeed(oras(&["pull", "--plain-http", "-o", "out", &format!("{address}/notes:v1")])).await;
    assert_eq!(fs::read(scratch.join("out/note.txt")).unwrap(), b"a note");
    let copy = ["cp", "--from-plain-http", "--to-plain-http"];
    let (from, to) = (format!("{address}/notes:v1"), format!("{address}/copies/notes:v1"));
    succeed(oras(&[&copy[..], &[&from, &to]].concat())).await;
    assert_eq!(succeed(oras(&["repo", "ls", "--plain-http", &address])).await, "copies/notes\nnotes\n");
    succeed(oras(&["manifest", "delete", "--plain-http", "--force", &to])).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs go and its module proxy, run by .ci/run"]
async fn oras_logs_in_with_a_password() {
    let scratch = tempfile::tempdir().unwrap();
    oras_logs_in(scratch.path(), &served_to_users(scratch.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs go and its module proxy, run by .ci/run"]
async fn oras_logs_in_for_tokens() {
    let scratch = tempfile::tempdir().unwrap();
    oras_logs_in(scratch.path(), &served_for_tokens(scratch.path()).await).await;
}

async fn crane_logs_in(scratch: &Path, server: &Server) {
    let layout = write_layout(scratch.join("in"), "v1");
    let address = server.address.to_string();
    let (first, second) = (format!("{address}/os-images/a:v1"), format!("{address}/os-images/b:v1"));
    let crane = |arguments: &[&str]| {
        let mut command = Command::new("crane");
        command.env("HOME", scratch).env("DOCKER_CONFIG", scratch.join("docker"));
        command.args(arguments).arg("--insecure");
        command
    };
    let push = ["push", &layout.directory.display().to_string(), &first];
    assert!(!run(crane(&push)).await.status.success(), "an anonymous client may not push");
    // Logging in only stores the password; the next command checks it.
    let login = |password: &str| crane(&["auth", "login", &address, "-u", USER, "-p", password]);
    succeed(login("wrong")).await;
    assert!(!run(crane(&push)).await.status.success());
    succeed(login(PASSWORD)).await;
    succeed(crane(&push)).await;
    succeed(crane(&["copy", &first, &second])).await;
    succeed(crane(&["validate", "--remote", &second])).await;
    assert_eq!(succeed(crane(&["catalog", &address])).await, "os-images/a\nos-images/b\n");
    let digest = sha256(&layout.manifest);
    succeed(crane(&["delete", &format!("{address}/os-images/b@{digest}")])).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs crane, run by .ci/run"]
async fn crane_logs_in_with_a_password() {
    let scratch = tempfile::tempdir().unwrap();
    crane_logs_in(scratch.path(), &served_to_users(scratch.path()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs crane, run by .ci/run"]
async fn crane_logs_in_for_tokens() {
    let scratch = tempfile::tempdir().unwrap();
    crane_logs_in(scratch.path(), &served_for_tokens(scratch.path()).await).await;
}
