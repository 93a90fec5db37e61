//! How much a job asks of a BMC, counted by the BMC.

use std::collections::BTreeMap;

use redfish::sim::{Happening, Operation};
use serde_json::json;

use crate::kit::{Scene, honest, with_twin};

/// So many requests a whole job may need on a standard BMC that was found off.
const MOST: usize = 30;
/// Switching it off first takes a request and its read-back.
const MOST_FOUND_ON: usize = MOST + 2;

fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Login => "login",
        Operation::Logout => "logout",
        Operation::PatchSystem => "boot",
        Operation::Reset => "reset",
        Operation::Insert => "insert",
        Operation::Eject => "eject",
        Operation::Unknown => "unknown",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_job_needs_few_requests_and_reads_back_each_change() {
    let machines = [
        ("ECO-DUAL", with_twin(honest("ECO-DUAL"), |_| {}), MOST),
        ("ECO-ON", with_twin(honest("ECO-ON"), |twin| twin.starts_on = true), MOST_FOUND_ON),
        ("ECO-USB", with_twin(honest("ECO-USB"), |twin| *twin = twin.clone().with_cd_and_usb()), MOST),
        ("ECO-ONE", with_twin(honest("ECO-ONE"), |twin| *twin = twin.clone().with_single_cd()), MOST),
    ];
    println!("{:<10} {:>5}  by operation", "server", "total");
    for (serial, spec, most) in machines {
        let scene = Scene::start(vec![spec]).await;
        let id = scene.admin.create_job(serial).await;
        let job = scene.admin.complete(&id).await;
        assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.story(&id).await);
        let requests: Vec<(Operation, String)> = scene
            .twin(serial)
            .journal()
            .into_iter()
            .filter_map(|entry| match entry.what {
                Happening::Request { operation, path, .. } => Some((operation, path)),
                Happening::Change(_) => None,
            })
            .collect();
        let mut by_operation: BTreeMap<&str, usize> = BTreeMap::new();
        for (operation, _) in &requests {
            *by_operation.entry(word(*operation)).or_default() += 1;
        }
        println!("{serial:<10} {:>5}  {by_operation:?}", requests.len());
        let listing = || requests.iter().map(|(what, path)| format!("{what:?} {path}\n")).collect::<String>();
        assert!(requests.len() <= most, "{} requests:\n{}", requests.len(), listing());
        // What a mutation changed is read before anything else is sent.
        for pair in requests.windows(2) {
            let unread = pair[0].0.is_mutation() && pair[1].0 != Operation::Read;
            assert!(!unread, "{:?} was not read back:\n{}", pair[0], listing());
        }
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_and_flags_of_the_record_are_obeyed_and_a_bmc_that_cannot_be_used_is_left_alone() {
    let scene = Scene::start(vec![honest("NFS-1")]).await;
    let huawei = json!({ "bmc_profile": "huawei-ibmc" });
    scene.admin.patch("/api/v1/servers/NFS-1", &huawei).await.expect(200);
    let id = scene.admin.create_job("NFS-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["failed_step"], "redfish.discover", "{job:#}");
    assert_eq!(job["failure"]["class"], "unsupported");
    let summary = job["failure"]["summary"].as_str().unwrap();
    assert!(summary.contains("NFS and CIFS only"), "{summary}");
    assert_eq!(scene.twin("NFS-1").mutations(), []);

    let https = json!({ "bmc_profile": null, "quirks": { "url_schemes": ["https"] } });
    scene.admin.patch("/api/v1/servers/NFS-1", &https).await.expect(200);
    let id = scene.admin.create_job("NFS-1").await;
    let job = scene.admin.complete(&id).await;
    let summary = job["failure"]["summary"].as_str().unwrap();
    assert!(summary.contains("by https only, they are served by http"), "{summary}");
    assert_eq!(scene.twin("NFS-1").mutations(), []);

    let none = json!({ "quirks": { "url_schemes": null } });
    let server = scene.admin.patch("/api/v1/servers/NFS-1", &none).await.expect(200);
    assert_eq!(server["quirks"], json!(null));
    let id = scene.admin.create_job("NFS-1").await;
    assert_eq!(scene.admin.complete(&id).await["outcome"], "succeeded");
    let observed = scene.admin.get("/api/v1/servers/NFS-1").await.expect(200);
    assert_eq!(observed["observed"]["profile"], "generic");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_bmc_has_taught_is_kept_and_used_by_the_next_job() {
    // This one takes an image only with the protocol beside it.
    let spec = with_twin(honest("WISE-1"), |twin| {
        twin.media.insert.required.push("TransferProtocolType".to_owned());
    });
    let scene = Scene::start(vec![spec]).await;
    let refused = || {
        let journal = scene.twin("WISE-1").journal().into_iter();
        journal
            .filter(|entry| {
                matches!(
                    &entry.what,
                    Happening::Request { operation: Operation::Insert, status: Some(400), .. }
                )
            })
            .count()
    };
    for _ in 0..2 {
        let id = scene.admin.create_job("WISE-1").await;
        let job = scene.admin.complete(&id).await;
        assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.story(&id).await);
        assert_eq!(refused(), 1, "one refusal, and it is remembered");
    }
    let server = scene.admin.get("/api/v1/servers/WISE-1").await.expect(200);
    assert_eq!(server["learned"]["wants"], json!(["protocol"]), "{server:#}");
    assert!(server["learned"]["firmware_version"].is_string());
    assert_eq!(server["revision"], 1, "nobody has changed the server");
    scene.end().await;
}
