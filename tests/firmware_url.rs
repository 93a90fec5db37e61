//! Installations of firmware on BMCs that take no upload: they read the image from the media server of the controller, over
//! real sockets, and each way in which they fail at it has its name.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lab_bmc::{Fault, FaultEffect, FaultTrigger, FetchFault, JournalItem, RequestKind, SimBmcConfig};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::firmware_install::{
    File, NEW, SERIAL, failed, installed, installed_anyway, installs_both, log, order, quick, scene, set_of,
    version,
};
use crate::kit::{BMC_PASSWORD, BMC_USER, POLL_INTERVAL, Scene, TIME_LIMIT, silent};

/// Larger than what the sockets of a connection hold, so that a read that ends early is seen.
const LARGE: usize = 24 << 20;
/// The vendors that read images only, and the scheme by which they do.
const READERS: [(&str, &str); 3] =
    [("smc-x11-cfgcd", "HTTP"), ("fujitsu-irmc", "HTTP"), ("huawei-ibmc", "HTTPS")];

/// The grants of firmware images: how many were issued, how many are open, how many bytes were read.
fn grants(scene: &Scene) -> (i64, i64, i64) {
    let database = Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    let all = "SELECT count(*), count(*) - count(ended_at), coalesce(sum(bytes), 0) FROM media_grants
               WHERE artifact = 'firmware'";
    database.query_row(all, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap()
}

/// Waits until the grants are these: the last reads are written a moment after they are sent.
async fn grants_become(scene: &Scene, expected: (i64, i64, i64), log: &str) {
    let deadline = Instant::now() + TIME_LIMIT;
    while grants(scene) != expected {
        assert!(Instant::now() < deadline, "{:?} and not {expected:?}\n{log}", grants(scene));
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The requests that changed the BMC, in their order, and the number of resources that were read.
fn requests(scene: &Scene) -> (Vec<String>, usize) {
    let journal = scene.bmc(SERIAL).journal().into_iter();
    let requests: Vec<(RequestKind, String)> = journal
        .filter_map(|entry| match entry.what {
            JournalItem::Request { operation, path, .. } => Some((operation, path)),
            _ => None,
        })
        .collect();
    let reads = requests.iter().filter(|(operation, _)| *operation == RequestKind::Read);
    let read: BTreeSet<&String> = reads.map(|(_, path)| path).collect();
    let is_change = |operation: &RequestKind| {
        !matches!(operation, RequestKind::Read | RequestKind::Login | RequestKind::Logout)
    };
    let changes = requests.iter().filter(|(operation, _)| is_change(operation));
    (changes.map(|(operation, path)| format!("{operation:?} {path}")).collect(), read.len())
}

/// Installs a BIOS on a server whose BMC reads the image in this way, each time or once.
async fn read_by(
    vendor: &'static str,
    size: usize,
    fault: FetchFault,
    each_time: bool,
) -> (Scene, Value, String) {
    let scene = scene(vendor, |_| {}).await;
    set_of(&scene.admin, vendor, &[File::sized("bios", NEW, size)]).await;
    let effect = FaultEffect::Fetch(fault);
    scene.bmc(SERIAL).inject(match each_time {
        true => Fault::always(FaultTrigger::Update, effect),
        false => Fault::once(FaultTrigger::Update, effect),
    });
    let job = installed(&scene).await;
    let log = log(&scene, &job).await;
    assert_eq!(grants(&scene).1, 0, "every grant has ended\n{log}");
    // "f" and the 32 characters of a token.
    let mut words = log.split(|sign: char| !sign.is_ascii_alphanumeric());
    assert!(
        !words.any(|word| word.len() == 33 && word.starts_with('f')),
        "no URL of an image is shown\n{log}"
    );
    (scene, job, log)
}

#[tokio::test(flavor = "multi_thread")]
async fn bmc_and_bios_are_installed_on_servers_whose_bmcs_read_images_only() {
    for (vendor, _) in READERS {
        installs_both(vendor).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_is_read_once_by_the_scheme_of_the_bmc_and_its_grant_ends() {
    for (vendor, scheme) in READERS {
        let scene = scene(vendor, |_| {}).await;
        set_of(&scene.admin, vendor, &[File::of("bios", NEW)]).await;
        let job = installed_anyway(&scene).await;
        let log = log(&scene, &job).await;
        assert_eq!(job["outcome"], "succeeded", "{vendor}: {log}");
        assert!(log.contains("was read by the BMC"), "{vendor}: {log}");
        grants_become(&scene, (1, 0, 150_000), &log).await;
        let events = json!(scene.admin.events(job["job_id"].as_str().unwrap()).await).to_string();
        assert!(events.contains(&format!("the BMC reads the image by {scheme}")), "{vendor}: {events}");
        // The clock of the controller skips waits, so the speed of the machine decides how often a state is read and a host that
        // is slow to shut down is asked again. What is changed and what is read does not depend on it.
        let (changes, read) = requests(&scene);
        let updates = changes.iter().filter(|change| change.starts_with("Update ")).count();
        let distinct: BTreeSet<&String> = changes.iter().collect();
        assert!(
            updates == 1 && distinct.len() <= 4 && read <= 40,
            "{vendor}: {read} resources are read, {changes:#?}\n{log}"
        );
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_cannot_reach_the_image_is_asked_three_times_and_the_failure_names_the_address() {
    for (fault, said) in
        [(FetchFault::Unreachable, "cannot be reached"), (FetchFault::WrongPath, "status 404")]
    {
        let (scene, job, log) = read_by("fujitsu-irmc", 150_000, fault, true).await;
        failed(&job, "image_not_read", &["never asked", "http://127.0.0.1:", said], &log);
        assert!(job["failure"]["next_action"].as_str().unwrap().contains("MEDIA_BASE_URL"), "{job:#}");
        assert_eq!(log.matches("firmware.upload-again").count(), 2, "{log}");
        assert_eq!((grants(&scene).0, scene.bmc(SERIAL).snapshot().images), (3, 0), "{log}");
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_refuses_the_certificate_of_the_media_server_is_named_with_what_it_must_trust() {
    let (scene, job, log) = read_by("huawei-ibmc", 150_000, FetchFault::RefuseCertificate, true).await;
    failed(&job, "image_not_read", &["https://127.0.0.1:"], &log);
    assert!(job["failure"]["next_action"].as_str().unwrap().contains("shoal ca export"), "{job:#}");
    assert_eq!(scene.bmc(SERIAL).snapshot().images, 0, "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_stops_in_the_middle_is_asked_again_and_a_second_attempt_succeeds() {
    let (first, job, said) = read_by("fujitsu-irmc", LARGE, FetchFault::StopAfter(100_000), true).await;
    failed(&job, "image_not_read", &["of 26 MB", "ends too early"], &said);
    assert_eq!(first.bmc(SERIAL).snapshot().images, 0, "{said}");
    first.end().await;
    let (second, job, log) = read_by("fujitsu-irmc", LARGE, FetchFault::StopAfter(100_000), false).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    assert!(log.contains("firmware.upload-again"), "{log}");
    assert_eq!((grants(&second).0, second.bmc(SERIAL).snapshot().images), (2, 1), "{log}");
    second.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_image_with_a_wrong_checksum_is_the_failure_of_the_bmc_and_is_not_offered_again() {
    let (scene, job, log) = read_by("fujitsu-irmc", 150_000, FetchFault::Damaged, true).await;
    failed(&job, "update_failed", &["checksum of the image is wrong"], &log);
    assert_eq!((grants(&scene).0, log.matches("firmware.upload-again").count()), (1, 0), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_reads_the_image_twice_installs_it_once() {
    let (scene, job, log) = read_by("fujitsu-irmc", 150_000, FetchFault::Twice, false).await;
    assert_eq!(job["outcome"], "succeeded", "{log}");
    let end = scene.bmc(SERIAL).snapshot();
    assert_eq!((end.images, end.updates_started), (1, 1), "{log}");
    grants_become(&scene, (1, 0, 300_000), &log).await;
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_never_asks_is_explained_while_it_is_waited_for_and_named_at_the_end() {
    let scene = scene("fujitsu-irmc", |_| {}).await;
    set_of(&scene.admin, "fujitsu-irmc", &[File::of("bios", NEW)]).await;
    let never = FaultEffect::Fetch(FetchFault::Never);
    scene.bmc(SERIAL).inject(Fault::once(FaultTrigger::Update, never));
    let id = order(&scene, json!({ "firmware_set": "all" })).await;
    let asks = |job: &Value| job["wait"]["detail"].as_str().is_some_and(|text| text.contains("not asked"));
    scene.wait_skipping(&id, "the question", asks).await;
    let why = scene.admin.explain(&id).await;
    assert_eq!(why["reason"], "image_read", "{why:#}");
    let summary = why["summary"].as_str().unwrap();
    assert!(
        summary.contains("http://127.0.0.1:") && summary.contains("reachable from its network?"),
        "{why:#}"
    );
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    failed(&job, "image_not_read", &["never asked for the image of bios 99.1"], &log);
    assert_eq!(grants(&scene), (1, 0, 0), "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_while_the_bmc_reads_lets_it_finish_and_a_slow_reader_is_shown_in_megabytes() {
    let scene = scene("fujitsu-irmc", |_| {}).await;
    set_of(&scene.admin, "fujitsu-irmc", &[File::sized("bmc", NEW, LARGE), File::of("bios", NEW)]).await;
    let slow = FaultEffect::Fetch(FetchFault::Slow(Duration::from_millis(8)));
    scene.bmc(SERIAL).inject(Fault::once(FaultTrigger::Update, slow));
    let id = order(&scene, json!({ "firmware_set": "all", "allow_downgrade": true })).await;
    let reads = |job: &Value| job["wait"]["detail"].as_str().is_some_and(|text| text.contains("of 26 MB"));
    scene.wait_skipping(&id, "the read", reads).await;
    assert!(scene.admin.explain(&id).await["summary"].as_str().unwrap().contains("the BMC has read"));
    scene.admin.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await.expect(202);
    let bmc = scene.bmc(SERIAL).clone();
    crate::kit::soon("the update", bmc.wait_for(|_| bmc.updates().first().is_some_and(|one| one.applied)))
        .await;
    let job = scene.complete_skipping(&id).await;
    let log = log(&scene, &job).await;
    assert_eq!(job["outcome"], "cancelled", "{log}");
    assert_eq!((version(&bmc, "bmc").as_str(), bmc.snapshot().images), (NEW, 1), "{log}");
    assert_eq!(grants(&scene).1, 0, "{log}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_gets_lost_is_answered_by_the_reads_of_the_image() {
    for effect in [FaultEffect::ApplyButDrop, FaultEffect::Drop] {
        let scene = scene("fujitsu-irmc", |_| {}).await;
        set_of(&scene.admin, "fujitsu-irmc", &[File::of("bios", NEW)]).await;
        scene.bmc(SERIAL).inject(Fault::once(FaultTrigger::Update, effect));
        let job = installed(&scene).await;
        let log = log(&scene, &job).await;
        assert_eq!(job["outcome"], "succeeded", "{log}");
        let end = scene.bmc(SERIAL).snapshot();
        assert_eq!((end.images, end.updates_started), (1, 1), "{log}");
        scene.end().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_whose_scheme_is_not_served_is_refused_with_the_settings_to_change() {
    let bmc = SimBmcConfig::vendor("huawei-ibmc", SERIAL, BMC_USER, BMC_PASSWORD).unwrap();
    let mut bmc = bmc.in_time(0.01);
    bmc.starts_on = true;
    let mut spec = silent(SERIAL);
    spec.host = lab_machines::HostKind::Idle;
    spec.bmc = Some(Box::new(bmc));
    let scene = Scene::start_with(vec![spec], |settings, _| {
        quick(settings);
        settings.media_base_url = Some("http://127.0.0.1:9".to_owned());
    })
    .await;
    set_of(&scene.admin, "huawei-ibmc", &[File::of("bios", NEW)]).await;
    let job = installed(&scene).await;
    let log = log(&scene, &job).await;
    failed(&job, "unsupported", &["HTTPS", "served by http"], &log);
    assert!(job["failure"]["next_action"].as_str().unwrap().contains("MEDIA_BASE_URL"), "{job:#}");
    assert_eq!((grants(&scene).0, scene.bmc(SERIAL).snapshot().images), (0, 0), "{log}");
    scene.end().await;
}
