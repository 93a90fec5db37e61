//! The number of requests that a job sends to a BMC, counted by the BMC.

use std::collections::BTreeMap;
use std::path::Path;

use lab_bmc::{JournalItem, RequestKind, SimBmcConfig, VARIANTS, VENDORS};
use lab_machines::ServerSpec;
use serde_json::{Value, json};
use settings::{Listener, Settings};

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy, with_bmc};

/// The maximum of requests for a whole job on a standard BMC whose host was off.
const MOST: usize = 30;
/// The maximum on a BMC that expands a collection to its members.
const MOST_EXPANDED: usize = 24;
/// The maximum for a host that was on. Powering it off takes a request, its read-back, and a read of its three slots, which
/// a reset may change.
const MOST_FOUND_ON: usize = MOST + 5;
/// The variants whose host boots its disk by the first way to boot and is started twice.
const STARTED_TWICE: [&str; 2] = ["dell-idrac9-physical-cd", "smc-x12-cd"];

fn word(operation: RequestKind) -> &'static str {
    match operation {
        RequestKind::Read => "read",
        RequestKind::Login => "login",
        RequestKind::Logout => "logout",
        RequestKind::PatchSystem => "boot",
        RequestKind::PatchBios => "bios",
        RequestKind::Reset => "reset",
        RequestKind::ResetManager => "restart",
        RequestKind::Insert => "insert",
        RequestKind::Eject => "eject",
        RequestKind::Configure => "configure",
        RequestKind::Update => "update",
        RequestKind::Unknown => "unknown",
    }
}

fn head(what: &str) -> String {
    format!("{what:<16} {:<8} {:<8} total  by operation", "plan", "$expand")
}

/// The requests of a whole job to its BMC, in order.
struct JobRequests {
    job: Value,
    requests: Vec<(RequestKind, String)>,
}

impl JobRequests {
    async fn on(spec: ServerSpec) -> Self {
        let serial = spec.serial.clone();
        let scene = Scene::start(vec![spec]).await;
        let allow = json!({ "allow_unverified_serial": true });
        scene.admin.patch(&format!("/api/v1/servers/{serial}"), &allow).await.expect(200);
        let id = scene.admin.create_job(&serial).await;
        let job = scene.complete_skipping(&id).await;
        let journal = scene.bmc(&serial).journal().into_iter();
        let requests = journal.filter_map(|entry| match entry.what {
            JournalItem::Request { operation, path, .. } => Some((operation, path)),
            JournalItem::Change(_) => None,
        });
        let sent = Self { job, requests: requests.collect() };
        assert!(
            sent.job["outcome"] == "succeeded" || sent.mutations() == 0,
            "{}",
            scene.admin.event_log(&id).await
        );
        scene.end().await;
        sent
    }

    fn mutations(&self) -> usize {
        self.requests.iter().filter(|(operation, _)| operation.is_mutation()).count()
    }

    fn row(&self, name: &str, expand: bool) -> String {
        let mut by_operation: BTreeMap<&str, usize> = BTreeMap::new();
        for (operation, _) in &self.requests {
            *by_operation.entry(word(*operation)).or_default() += 1;
        }
        let each: Vec<String> = by_operation.iter().map(|(word, count)| format!("{word} {count}")).collect();
        let plan = self.job["slot_plan"]["plan"].as_str().unwrap_or("refused");
        let expand = if expand { "offered" } else { "-" };
        format!("{name:<16} {plan:<8} {expand:<8} {:>5}  {}", self.requests.len(), each.join(", "))
    }

    fn listing(&self) -> String {
        self.requests.iter().map(|(what, path)| format!("{what:?} {path}\n")).collect()
    }

    /// Asserts that each mutation is read back before the next request.
    fn assert_read_back(&self) {
        for pair in self.requests.windows(2) {
            let unread = pair[0].0.is_mutation() && pair[1].0 != RequestKind::Read;
            assert!(!unread, "{:?} was not read back:\n{}", pair[0], self.listing());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_job_needs_few_requests_and_reads_back_each_change() {
    type Shape = fn(SimBmcConfig) -> SimBmcConfig;
    let shapes: [(&str, Shape); 3] = [
        ("dual", |bmc| bmc),
        ("cd+usb", SimBmcConfig::with_cd_and_usb),
        ("single", SimBmcConfig::with_single_cd),
    ];
    let mut table = vec![head("standard")];
    for (plan, shape) in shapes {
        for (expand, most) in [(false, MOST), (true, MOST_EXPANDED)] {
            let sent = JobRequests::on(with_bmc(healthy("ECO-1"), |bmc| {
                *bmc = shape(bmc.clone());
                bmc.service.expand = expand;
            }))
            .await;
            assert_eq!(
                (&sent.job["outcome"], &sent.job["slot_plan"]["plan"]),
                (&json!("succeeded"), &json!(plan))
            );
            table.push(sent.row("found off", expand));
            assert!(sent.requests.len() <= most, "{} requests:\n{}", sent.requests.len(), sent.listing());
            sent.assert_read_back();
        }
    }
    let sent = JobRequests::on(with_bmc(healthy("ECO-ON"), |bmc| bmc.starts_on = true)).await;
    table.push(sent.row("found on", false));
    println!("{}", table.join("\n"));
    assert!(sent.requests.len() <= MOST_FOUND_ON, "{} requests:\n{}", sent.requests.len(), sent.listing());
    sent.assert_read_back();
}

/// A vendor needs more requests than the standard only for its own way of mounting or booting.
#[tokio::test(flavor = "multi_thread")]
async fn a_whole_job_needs_few_requests_on_the_bmcs_of_all_vendors() {
    let mut table = vec![head("vendor")];
    let started_once = VENDORS.iter().chain(VARIANTS).filter(|vendor| !STARTED_TWICE.contains(&vendor.name));
    for vendor in started_once {
        let spec = |on: bool| {
            let bmc = SimBmcConfig::vendor(vendor.name, "ECO-2", BMC_USER, BMC_PASSWORD).unwrap();
            let mut bmc = bmc.in_time(0.0);
            bmc.starts_on = on;
            let expand = bmc.service.expand;
            (expand, ServerSpec { bmc: Some(Box::new(bmc)), ..healthy("ECO-2") })
        };
        let ((expand, off), (_, on)) = (spec(false), spec(true));
        let (off, on) = tokio::join!(Box::pin(JobRequests::on(off)), Box::pin(JobRequests::on(on)));
        for (sent, found, most) in [(off, "", MOST), (on, ", on", MOST_FOUND_ON)] {
            table.push(sent.row(&format!("{}{found}", vendor.name), expand));
            assert!(sent.requests.len() <= most, "{}{found}:\n{}", vendor.name, sent.listing());
        }
    }
    println!("{}", table.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn profile_and_quirks_of_a_server_apply_and_an_unusable_bmc_is_not_changed() {
    let without_tls = |settings: &mut Settings, _: &Path| settings.controller_https_addr = Listener::Off;
    let scene = Scene::start_with(vec![healthy("NFS-1")], without_tls).await;
    let huawei = json!({ "bmc_profile": "huawei-ibmc" });
    scene.admin.patch("/api/v1/servers/NFS-1", &huawei).await.expect(200);
    let id = scene.admin.create_job("NFS-1").await;
    let job = scene.admin.complete(&id).await;
    assert_eq!(job["failed_step"], "redfish.discover", "{job:#}");
    assert_eq!(job["failure"]["class"], "unsupported");
    let summary = job["failure"]["summary"].as_str().unwrap();
    assert!(summary.contains("NFS and CIFS only"), "{summary}");
    assert_eq!(scene.bmc("NFS-1").mutations(), []);

    let https = json!({ "bmc_profile": null, "quirks": { "url_schemes": ["https"] } });
    scene.admin.patch("/api/v1/servers/NFS-1", &https).await.expect(200);
    let id = scene.admin.create_job("NFS-1").await;
    let job = scene.admin.complete(&id).await;
    let summary = job["failure"]["summary"].as_str().unwrap();
    assert!(summary.contains("by https only, but media are served by http"), "{summary}");
    assert_eq!(scene.bmc("NFS-1").mutations(), []);

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
async fn learned_behaviour_of_a_bmc_is_stored_and_used_by_the_next_job() {
    // This BMC takes an image only with TransferProtocolType.
    let spec = with_bmc(healthy("WISE-1"), |bmc| {
        bmc.media.insert.required.push("TransferProtocolType".to_owned());
    });
    let scene = Scene::start(vec![spec]).await;
    let refused = || {
        let journal = scene.bmc("WISE-1").journal().into_iter();
        journal
            .filter(|entry| {
                matches!(
                    &entry.what,
                    JournalItem::Request { operation: RequestKind::Insert, status: Some(400), .. }
                )
            })
            .count()
    };
    for _ in 0..2 {
        let id = scene.admin.create_job("WISE-1").await;
        let job = scene.admin.complete(&id).await;
        assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
        assert_eq!(refused(), 1, "one refusal, because the second job uses what the first one learned");
    }
    let server = scene.admin.get("/api/v1/servers/WISE-1").await.expect(200);
    assert_eq!(server["learned"]["wants"], json!(["protocol"]), "{server:#}");
    assert!(server["learned"]["firmware_version"].is_string());
    assert_eq!(server["revision"], 1, "no client changed the server");
    scene.end().await;
}
