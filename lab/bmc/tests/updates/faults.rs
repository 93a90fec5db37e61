//! Each defect of an update, and what the client reports.

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, FlashFault};
use redfish::{ErrorKind, TlsVerification, UpdateHandle, UpdateStart, UpdateState};

use crate::kit::{Bench, LONG, Stored, Wanted};

async fn started(vendor: &str, component: &'static str, fault: FlashFault) -> (Bench, UpdateHandle) {
    let bench = Bench::new(vendor, Wanted::new(component, "99.1")).await;
    bench.discover().await.unwrap();
    bench.sim.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(fault)));
    let prepared = bench.prepare().await.unwrap();
    let UpdateStart::Accepted(handle) = bench.start(&prepared).await.unwrap() else { panic!("accepted") };
    (bench, handle)
}

#[tokio::test]
async fn a_bmc_that_lies_says_done_and_the_version_tells() {
    for vendor in ["generic", "hpe-ilo6", "lenovo-xcc"] {
        let (mut bench, handle) = started(vendor, "bios", FlashFault::Lie).await;
        bench.sim.skip_flash_time(LONG);
        assert_eq!(bench.poll(&handle).await.unwrap().state, UpdateState::Done, "{vendor}");
        assert!(!bench.is_installed().await.unwrap(), "{vendor}");
    }
}

#[tokio::test]
async fn a_flash_that_hangs_stays_running_at_99_percent() {
    let (mut bench, handle) = started("generic", "bios", FlashFault::Hang).await;
    bench.sim.skip_flash_time(Duration::from_secs(120));
    let first = bench.poll(&handle).await.unwrap().state;
    assert!(matches!(first, UpdateState::Running { percent: Some(1..99) }), "{first:?}");
    for _ in 0..3 {
        bench.sim.skip_flash_time(LONG);
        assert_eq!(bench.poll(&handle).await.unwrap().state, UpdateState::Running { percent: Some(99) });
    }
}

#[tokio::test]
async fn a_lost_task_is_gone_and_the_version_tells() {
    let (mut bench, handle) = started("generic", "Network adapter", FlashFault::LoseTask).await;
    bench.sim.skip_flash_time(LONG);
    assert_eq!(bench.poll(&handle).await.unwrap().state, UpdateState::Gone);
    assert!(bench.is_installed().await.unwrap());
}

#[tokio::test]
async fn a_failed_task_is_failed_with_its_message_also_when_it_says_completed() {
    let message = "the image is not signed".to_owned();
    for fault in
        [FlashFault::Fail { message: message.clone() }, FlashFault::Critical { message: message.clone() }]
    {
        for vendor in ["generic", "smc-x11-cfgcd", "hpe-ilo5"] {
            let (mut bench, handle) = started(vendor, "bios", fault.clone()).await;
            bench.sim.skip_flash_time(LONG);
            let poll = bench.poll(&handle).await.unwrap();
            assert_eq!(poll.state, UpdateState::Failed, "{vendor}");
            assert!(poll.messages.iter().any(|shown| shown.contains("not signed")), "{vendor}: {poll:?}");
            assert!(!bench.is_installed().await.unwrap(), "{vendor}");
        }
    }
}

#[tokio::test]
async fn another_certificate_after_the_restart_is_a_state_with_the_shown_fingerprint() {
    let mut bench = Bench::of("generic", Wanted::new("bmc", "99.1"), true).await;
    bench.discover().await.unwrap();
    bench.sim.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(FlashFault::NewCertificate)));
    let prepared = bench.prepare().await.unwrap();
    let handle = bench.start(&prepared).await.unwrap().handle().clone();
    bench.sim.skip_flash_time(LONG);
    assert!(matches!(bench.poll(&handle).await.unwrap().state, UpdateState::Away { .. }));
    bench.bmc.release_idle();
    bench.sim.set_reachable(true);
    let shown = loop {
        match bench.poll(&handle).await.unwrap().state {
            UpdateState::Away { .. } => tokio::task::yield_now().await,
            UpdateState::CertificateChanged { shown, .. } => break shown,
            other => panic!("{other:?}"),
        }
    };
    let fingerprint = redfish::Fingerprint(bench.sim.fingerprint().unwrap());
    assert_eq!(shown, Some(fingerprint.to_string()));
    // A caller that pins it again continues with the same handle.
    bench.pin(TlsVerification::Pin(fingerprint));
    assert_eq!(bench.poll(&handle).await.unwrap().state, UpdateState::Gone);
    assert!(bench.is_installed().await.unwrap());
}

#[tokio::test]
async fn a_bmc_that_does_not_come_back_stays_away() {
    let (mut bench, handle) = started("generic", "bmc", FlashFault::StayAway).await;
    bench.sim.skip_flash_time(LONG);
    for _ in 0..3 {
        assert!(matches!(bench.poll(&handle).await.unwrap().state, UpdateState::Away { .. }));
    }
}

#[tokio::test]
async fn a_flash_that_loses_power_in_the_middle_leaves_no_task_and_a_host_that_is_off() {
    for vendor in ["generic", "dell-idrac9-6", "hpe-ilo6"] {
        for keeps_version in [true, false] {
            let loss = FlashFault::PowerLoss { away: LONG, keeps_version };
            let bench = Bench::new(vendor, Wanted::new("bios", "99.1")).await;
            let found = bench.discover().await.unwrap();
            bench.bmc.reset(&found.system, redfish::ResetType::On).await.unwrap();
            bench.sim.wait_for(|now| now.power == lab_bmc::Power::On).await;
            let before = bench.sim.versions_of(lab_bmc::Component::Bios);
            bench.sim.inject(Fault::once(FaultTrigger::Update, FaultEffect::Flash(loss)));
            let prepared = bench.prepare().await.unwrap();
            let handle = bench.start(&prepared).await.unwrap().handle().clone();
            bench.sim.skip_flash_time(LONG);
            if bench.sim.snapshot().power == lab_bmc::Power::On {
                // This BMC writes the image when the host restarts.
                bench.sim.warm_reset();
                bench.sim.skip_flash_time(LONG);
                bench.sim.skip_flash_time(LONG);
            }
            assert_eq!(bench.sim.snapshot().power, lab_bmc::Power::Off, "{vendor}");
            let state = bench.bmc.poll_update(&handle).await.unwrap().state;
            assert!(matches!(state, UpdateState::Away { .. }), "{vendor}: {state:?}");
            bench.bmc.release_idle();
            bench.sim.set_reachable(true);
            let state = loop {
                match bench.bmc.poll_update(&handle).await.unwrap().state {
                    UpdateState::Away { .. } => tokio::task::yield_now().await,
                    state => break state,
                }
            };
            assert_eq!(state, UpdateState::Gone, "{vendor}");
            let power = bench.bmc.power_state(&found.system).await.unwrap();
            assert_eq!(power, redfish::PowerState::Off, "{vendor}");
            let after = bench.sim.versions_of(lab_bmc::Component::Bios);
            assert_eq!(after == before, keeps_version, "{vendor}: {after:?}");
            assert!(!bench.is_installed().await.unwrap(), "{vendor}");
            assert!(!bench.sim.updates()[0].applied, "{vendor}");
        }
    }
}

#[tokio::test]
async fn a_login_that_is_refused_after_the_restart_is_a_state_and_stops_after_two() {
    let (mut bench, handle) = started("generic", "bmc", FlashFault::Lie).await;
    bench.sim.reset_bmc();
    let refused = FaultEffect::Status {
        status: 401,
        message_id: "Base.1.18.ResourceAtUriUnauthorized".to_owned(),
        message: "not ready".to_owned(),
    };
    bench.sim.inject(Fault::always(FaultTrigger::Login, refused));
    for _ in 0..4 {
        let state = bench.poll(&handle).await.unwrap().state;
        assert!(matches!(state, UpdateState::LoginRefused { .. }), "{state:?}");
    }
    let logins = bench.sim.journal().into_iter().filter(|entry| {
        matches!(
            &entry.what,
            lab_bmc::JournalItem::Request { operation: lab_bmc::RequestKind::Login, status: Some(401), .. }
        )
    });
    assert_eq!(logins.count(), 2, "a third one locks the account on some BMCs");
}

#[tokio::test]
async fn an_upload_that_breaks_off_in_the_middle_is_certainly_not_accepted() {
    for vendor in ["generic", "dell-idrac9-6", "hpe-ilo6", "smc-x12"] {
        let bench = Bench::new(vendor, Wanted::new("bios", "99.1")).await;
        bench.discover().await.unwrap();
        bench.sim.inject(Fault::once(FaultTrigger::Update, FaultEffect::CutUpload(70_000)));
        let prepared = bench.prepare().await.unwrap();
        // The image is larger than what sockets buffer, so that the client sees the cut before its last byte.
        let image = vec![0_u8; 24 << 20];
        let (length, progress) = (image.len() as u64, redfish::UploadProgress::default());
        let image = redfish::UpdateImage::Stream { image: Box::new(std::io::Cursor::new(image)), length };
        let error = bench.bmc.start_update(&prepared, image, &progress).await.unwrap_err();
        assert!(!error.maybe_applied() && !progress.is_complete(), "{vendor}: {error}");
        let end = bench.sim.snapshot();
        assert_eq!((end.images, end.updates_started, end.uploads_cut), (0, 0, 1), "{vendor}");
    }
}

#[tokio::test]
async fn a_connection_lost_after_the_last_byte_is_maybe_accepted_and_found() {
    for (effect, arrived) in [(FaultEffect::Drop, 0), (FaultEffect::ApplyButDrop, 1)] {
        for vendor in ["generic", "dell-idrac10", "lenovo-tsm", "smc-x11-cfgcd"] {
            let bench = Bench::new(vendor, Wanted::new("bios", "99.1")).await;
            bench.discover().await.unwrap();
            bench.sim.inject(Fault::once(FaultTrigger::Update, effect.clone()));
            let prepared = bench.prepare().await.unwrap();
            let started = bench.start(&prepared).await.unwrap();
            let UpdateStart::MaybeAccepted { handle, error } = started else { panic!("{vendor}: not known") };
            assert!(error.maybe_applied(), "{error}");
            assert_eq!(bench.sim.snapshot().updates_started, arrived, "{vendor}");
            let found = bench.bmc.find_update(&handle).await.unwrap();
            assert_eq!(found.is_some(), arrived == 1, "{vendor}");
        }
    }
}

#[tokio::test]
async fn a_503_after_the_whole_image_is_maybe_accepted() {
    let bench = Bench::new("openbmc", Wanted::new("bmc", "99.1")).await;
    bench.discover().await.unwrap();
    let busy = FaultEffect::Status {
        status: 503,
        message_id: "Base.1.16.0.ServiceTemporarilyUnavailable".to_owned(),
        message: "later".to_owned(),
    };
    bench.sim.inject(Fault::once(FaultTrigger::Update, busy));
    let prepared = bench.prepare().await.unwrap();
    assert!(matches!(bench.start(&prepared).await.unwrap(), UpdateStart::MaybeAccepted { .. }));
}

#[tokio::test]
async fn a_wrong_file_is_refused_and_nothing_was_started() {
    let other = Wanted { image: b"not firmware".repeat(100).into(), ..Wanted::new("bios", "99.1") };
    let device = Wanted::new("no such device", "99.1");
    let model = Wanted {
        image: lab_bmc::firmware_image("bios", "99.1", Some("another model"), 5000).into(),
        ..Wanted::new("bios", "99.1")
    };
    for wanted in [other, device, model] {
        for vendor in ["generic", "dell-idrac9-6", "hpe-ilo6", "lenovo-xcc"] {
            let bench = Bench::new(vendor, wanted.clone()).await;
            bench.discover().await.unwrap();
            let prepared = bench.prepare().await.unwrap();
            let error = bench.start(&prepared).await.unwrap_err();
            assert!(matches!(error.kind, ErrorKind::Refused { status: 400, .. }), "{vendor}: {error}");
            assert_eq!(bench.sim.snapshot().updates_started, 0);
        }
    }
}

#[tokio::test]
async fn an_image_that_the_bmc_cannot_read_fails_in_the_task() {
    let wanted = Wanted { image: b"<html>404</html>".repeat(30).into(), ..Wanted::new("bios", "99.1") };
    let mut bench = Bench::new("fujitsu-irmc", wanted).await;
    assert!(!bench.run(&mut Stored::default()).await.unwrap());
    assert_eq!(bench.states.last(), Some(&UpdateState::Failed));
}

#[tokio::test]
async fn a_second_update_finds_the_bmc_busy() {
    let (bench, _) = started("hpe-ilo6", "bios", FlashFault::Hang).await;
    bench.sim.skip_flash_time(Duration::from_secs(60));
    let error = bench.prepare().await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Busy { .. }), "{error}");
    assert_eq!(bench.sim.snapshot().images, 1);
}

#[tokio::test]
async fn a_bios_that_needs_the_host_off_is_refused_while_it_runs() {
    let bench = Bench::new("openbmc", Wanted::new("bios", "99.1")).await;
    let found = bench.discover().await.unwrap();
    assert!(bench.bmc.profile().update_bios_host_off);
    bench.bmc.reset(&found.system, redfish::ResetType::On).await.unwrap();
    let prepared = bench.prepare().await.unwrap();
    let error = bench.start(&prepared).await.unwrap_err();
    assert!(!error.maybe_applied(), "{error}");
}

#[tokio::test]
async fn an_upload_is_streamed_with_its_exact_length_and_never_chunked() {
    let bench = Bench::new("generic", Wanted::new("bios", "99.1")).await;
    bench.discover().await.unwrap();
    let prepared = bench.prepare().await.unwrap();
    let short = redfish::UpdateImage::Stream {
        image: Box::new(std::io::Cursor::new(bench.wanted.image.slice(..50_000))),
        length: bench.wanted.image.len() as u64,
    };
    let error =
        bench.bmc.start_update(&prepared, short, &redfish::UploadProgress::default()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::Config { .. }) && !error.maybe_applied(), "{error}");
    assert_eq!(bench.sim.snapshot().images, 0);
}

#[tokio::test]
async fn the_bmc_restarts_by_its_manager() {
    let bench = Bench::new("generic", Wanted::new("bmc", "99.1")).await;
    let found = bench.discover().await.unwrap();
    let status = bench.bmc.manager_status(&found.manager.unwrap()).await.unwrap();
    let kind = bench.bmc.manager_reset_type(&status, redfish::ManagerReset::Graceful).await.unwrap();
    assert_eq!(kind, redfish::ResetType::GracefulRestart);
    bench.bmc.reset_manager(&status, kind).await.unwrap();
    let away =
        tokio::time::timeout(Duration::from_secs(20), bench.sim.wait_for(|now| now.open_sessions == 0));
    away.await.unwrap();
}
