//! crane: pushing, validating, copying, deleting.

use std::process::Command;

use super::{corrupt, image_in, run, served, succeed, write_layout};
use crate::support::sha256;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs crane, run by .ci/run"]
async fn crane_copies_validates_and_deletes() {
    let scratch = tempfile::tempdir().unwrap();
    let server = served(scratch.path()).await;
    let layout = write_layout(scratch.path().join("in"), "v1");
    let crane = |arguments: &[&str]| {
        let mut command = Command::new("crane");
        command.args(arguments).arg("--insecure");
        command
    };
    let remote = format!("{}/os-images/test:v1", server.address);
    succeed(crane(&["push", &layout.directory.display().to_string(), &remote])).await;
    let digest = sha256(&layout.manifest).to_string();
    assert_eq!(succeed(crane(&["digest", &remote])).await.trim(), digest);
    succeed(crane(&["validate", "--remote", &remote])).await;

    let out = scratch.path().join("out");
    succeed(crane(&["pull", "--format", "oci", &remote, &out.display().to_string()])).await;
    assert_eq!(image_in(&out), sha256(&layout.manifest));

    let copy = format!("{}/other:v2", server.address);
    succeed(crane(&["copy", &remote, &copy])).await;
    assert_eq!(succeed(crane(&["ls", &copy.replace(":v2", "")])).await, "v2\n");
    succeed(crane(&["delete", &format!("{}/other@{digest}", server.address)])).await;
    assert_eq!(succeed(crane(&["ls", &copy.replace(":v2", "")])).await, "");

    corrupt(&scratch.path().join("store"), &sha256(&layout.layer));
    let spoiled = run(crane(&["validate", "--remote", &remote])).await;
    assert!(!spoiled.status.success(), "a corrupted blob must not validate");
}
