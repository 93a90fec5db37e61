//! Acknowledged changes survive every failure of the disk at every position, and every loss of power.
//!
//! ```text
//!  script of operations ──> Store ──steps──> Recorder: n-th step fails, or power is lost there
//!        │ acknowledged                          │
//!        v                                       v
//!  Expected: the states <──compare──  the store, and stores opened on what a power cut may have left
//! ```
//!
//! A power cut leaves, for each name in a directory that was changed since its last fsync, either state; for each file
//! its bytes as of its last fsync, or some of the later ones. Three such remains are built after every failure: the
//! strictest (nothing that was not fsynced) and two random ones. The mutants at the end each leave out one kind of
//! fsync, and must be detected.

pub(super) mod expected;
pub(super) mod recorder;
pub(super) mod script;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use self::expected::Expected;
use self::recorder::{DurabilityChoice, Failure, Recorder};
use self::script::run_script;
use super::Store;
use super::disk::{Disk, DiskOp};
use crate::config::{Config, Reserve};

pub(super) fn config(root: &Path) -> Config {
    let mut config = Config::new(root);
    config.reserve = Reserve::Bytes(0);
    config
}

pub(super) fn open(root: &Path, recorder: Option<Arc<Recorder>>) -> Result<Arc<Store>, crate::error::Error> {
    let disk = Disk { hook: recorder.map(|recorder| recorder as _) };
    Store::open_on(disk, config(root)).map(Arc::new)
}

/// A directory in memory if there is one: nothing here depends on a real fsync.
pub(super) fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Runs the script under one failure; returns whether the failure took place, or what is wrong.
fn trial(failure: Option<(usize, Failure)>, skip: Option<fn(DiskOp<'_>) -> bool>) -> Result<bool, String> {
    let root = directory();
    let recorder = Arc::new(Recorder::new(root.path(), failure, skip));
    let mut expected = Expected::default();
    if let Ok(store) = open(root.path(), Some(Arc::clone(&recorder))) {
        run_script(&store, &mut expected);
        if !recorder.power_is_lost() {
            recorder.stop_failing();
            expected.compare(&store).map_err(|why| format!("still running: {why}"))?;
        }
    }
    let remains = if matches!(failure, Some((_, Failure::Once(_)))) { 2 } else { 3 };
    for seed in 0..remains {
        let remains = directory();
        recorder.cut_power(remains.path(), &mut DurabilityChoice::new(seed));
        let context = |why: String| {
            format!("after a power cut (remains {seed}): {why}; last steps: {:#?}", recorder.last(12))
        };
        let store = open(remains.path(), None).map_err(|error| context(format!("cannot open: {error:?}")))?;
        expected.compare(&store).map_err(context)?;
        expected::whole(&store).map_err(context)?;
        if seed != 0 {
            continue;
        }
        // Recovered: everything can be done again, and holds.
        let mut again = Expected::default();
        run_script(&store, &mut again);
        again.complete().map_err(context)?;
        again.compare(&store).map_err(context)?;
    }
    Ok(recorder.failed())
}

fn at_every_step(failure: Failure) {
    let mut step = 0;
    loop {
        match trial(Some((step, failure)), None) {
            Ok(true) => step += 1,
            Ok(false) => break,
            Err(why) => panic!("{failure:?} at step {step}: {why}"),
        }
    }
    assert!(step > 150, "the script has only {step} steps");
}

#[test]
fn without_any_failure_everything_is_acknowledged_and_survives() {
    assert_eq!(trial(None, None), Ok(false));
}

#[test]
fn nothing_acknowledged_is_lost_when_power_fails_at_any_step() {
    at_every_step(Failure::Power);
}

#[test]
fn after_an_io_error_at_any_step_a_retry_succeeds() {
    at_every_step(Failure::Once(ErrorKind::Other));
}

#[test]
fn after_a_full_disk_at_any_step_a_retry_succeeds() {
    at_every_step(Failure::Once(ErrorKind::StorageFull));
}

#[test]
fn after_a_short_write_at_any_step_a_retry_succeeds() {
    at_every_step(Failure::Once(ErrorKind::WriteZero));
}

#[test]
fn on_a_full_disk_reads_deletes_and_collection_work() {
    let root = directory();
    let recorder = Arc::new(Recorder::new(root.path(), None, None));
    let store = open(root.path(), Some(Arc::clone(&recorder))).unwrap();
    let mut expected = Expected::default();
    script::fill(&store, &mut expected);
    recorder.fill_the_disk();
    script::empty(&store, &mut expected);
    expected.complete().unwrap();
    expected.compare(&store).unwrap();
    let left = std::fs::read_dir(root.path().join("blobs/sha256")).unwrap().count();
    assert_eq!(left, 0, "the collection freed the space");
    // And a process that starts on such a disk.
    drop(store);
    let again = open(root.path(), Some(recorder)).unwrap();
    expected.compare(&again).unwrap();
}

#[test]
fn a_store_that_leaves_out_an_fsync_is_detected() {
    fn directory_named(op: DiskOp<'_>, name: &str) -> bool {
        matches!(op, DiskOp::SyncDirectory(path) if path.components().any(|part| part.as_os_str() == name))
    }
    type Mutant = (&'static str, fn(DiskOp<'_>) -> bool);
    let mutants: [Mutant; 7] = [
        (
            "the bytes of an upload",
            |step| matches!(step, DiskOp::SyncFile(path) if path.parent().is_some_and(|parent| parent.ends_with("uploads"))),
        ),
        (
            "the bytes of a temporary file",
            |step| matches!(step, DiskOp::SyncFile(path) if path.parent().is_some_and(|parent| parent.ends_with("tmp"))),
        ),
        ("the pool", |step| matches!(step, DiskOp::SyncDirectory(path) if path.ends_with("blobs/sha256"))),
        ("layer records", |step| directory_named(step, "_layers")),
        ("manifest records", |step| directory_named(step, "_manifests")),
        ("tags", |step| matches!(step, DiskOp::SyncDirectory(path) if path.ends_with("_tags"))),
        ("pins", |step| matches!(step, DiskOp::SyncDirectory(path) if path.ends_with("_pins"))),
    ];
    for (left_out, skip) in mutants {
        assert!(trial(None, Some(skip)).is_err(), "it was not detected that {left_out} were not fsynced");
    }
}
