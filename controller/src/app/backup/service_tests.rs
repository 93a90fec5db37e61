//! Backups that a controller makes by itself, in a folder.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::own::{OwnBackups, own_backups};
use super::restore::restore;
use super::service::BackupService;
use super::state::{BackupState, KEY};
use super::tests::{Data, names, now, settings, sha256};
use super::verify::verify;
use api::BackupAdmin;
use model::{Clock, EventLevel, ManualClock};
use settings::{BackupSchedule, BackupTarget, Settings};
use store::{AuditFilter, EventFilter, Store};
use telemetry::Metrics;

const DAY: Duration = Duration::from_secs(86_400);

/// A controller's data whose backups go to a folder once a day.
pub(super) struct Scheduled {
    pub(super) data: Data,
    pub(super) clock: Arc<ManualClock>,
    pub(super) settings: Settings,
    pub(super) target: PathBuf,
}

impl Scheduled {
    pub(super) async fn new() -> Self {
        let data = Data::new().await;
        let target = data.path("backups");
        fs::create_dir(&target).unwrap();
        let mut settings = data.settings.clone();
        settings.backup_schedule = BackupSchedule::Every(DAY);
        settings.backup_target = Some(BackupTarget::Folder(target.clone()));
        Self { data, clock: Arc::new(ManualClock::new(now())), settings, target }
    }

    /// The service as a start of the controller makes it.
    pub(super) async fn start(&self) -> BackupService {
        open(&self.settings, &self.data.store, &self.clock).await
    }

    /// The complete backups in the folder.
    fn backups(&self) -> Vec<String> {
        names(&self.target).into_iter().filter(|name| name.starts_with("shoal-")).collect()
    }

    async fn events(&self) -> Vec<String> {
        let all = EventFilter { run: None, after: 0, limit: 1000 };
        let events = self.data.store.events(all).await.unwrap();
        events.into_iter().map(|event| event.kind).filter(|kind| kind.starts_with("backup.")).collect()
    }
}

pub(super) async fn open(settings: &Settings, store: &Store, clock: &Arc<ManualClock>) -> BackupService {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    BackupService::open(settings, store, &clock, &Arc::new(Metrics::default())).await.unwrap()
}

/// A request of a verification, and its damage.
pub(super) async fn verified(service: &BackupService, name: &str) -> Option<String> {
    assert!(service.verify(name, "ann").unwrap());
    assert!(service.step_now().await);
    let result = service.status().verification.unwrap();
    assert_eq!((result.name.as_str(), result.error), (name, None));
    result.damage
}

#[tokio::test]
async fn a_due_backup_is_made_verified_recorded_and_shown_and_the_next_one_a_day_later() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    let before = service.status();
    assert_eq!((before.next, before.last.is_none(), before.old), (Some(now()), true, false));
    assert!(service.step_now().await);
    let status = service.status();
    let last = status.last.unwrap();
    assert_eq!(kit.backups(), std::slice::from_ref(&last.name));
    assert_eq!((last.made_at, last.verified_at, last.own), (Some(now()), Some(now()), true));
    assert_eq!((status.next, status.age_seconds), (Some(now().plus(DAY)), Some(0)));
    let made = verify(&kit.target.join(&last.name)).unwrap();
    assert_eq!((made.bytes, made.master_key), (last.bytes.unwrap(), false));
    assert_eq!(kit.events().await, ["backup.made"]);
    let audit = AuditFilter { action: Some("data.backup".to_owned()), limit: 9, ..AuditFilter::default() };
    assert_eq!(kit.data.store.audit(audit).await.unwrap().len(), 1);

    assert!(!service.step_now().await, "it is not due");
    kit.clock.advance(DAY);
    assert!(service.step_now().await);
    assert_eq!(kit.backups().len(), 2);
    assert_eq!(service.list().await.unwrap().iter().filter(|backup| backup.own).count(), 2);
    // The state is durable.
    assert_eq!(kit.start().await.state(), service.state());
}

#[tokio::test]
async fn a_start_and_the_status_do_not_look_at_the_target() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    assert_eq!(service.status().warnings, [""; 0], "its disk was not looked at");
    service.look().await;
    let warnings = service.status().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("same file system"), "{warnings:?}");
}

#[tokio::test]
async fn a_backup_of_a_former_target_is_not_damaged_because_the_new_one_lacks_it() {
    let mut kit = Scheduled::new().await;
    let service = kit.start().await;
    assert!(service.step_now().await);
    let first = kit.backups().remove(0);
    let other = kit.target.with_file_name("another-target");
    fs::create_dir(&other).unwrap();
    kit.settings.backup_target = Some(BackupTarget::Folder(other));
    let service = kit.start().await;
    assert!(service.verify(&first, "ann").unwrap());
    while service.step_now().await {}
    assert!(service.status().verification.unwrap().damage.is_none());
    assert!(!kit.events().await.contains(&"backup.damaged".to_owned()));
}

#[tokio::test]
async fn older_backups_are_removed_and_never_what_another_made() {
    let mut kit = Scheduled::new().await;
    kit.settings.backup_keep = 2;
    let service = kit.start().await;
    assert!(service.step_now().await);
    let first = kit.backups().remove(0);
    // Files of others: a note, a copy by hand, a backup of another controller, and one that has taken an own name.
    fs::write(kit.target.join("notes.txt"), "mine").unwrap();
    copy(&kit.target.join(&first), &kit.target.join("before-the-upgrade"));
    let other = first.replace(&first[6..14], "deadbeef");
    copy(&kit.target.join(&first), &kit.target.join(&other));
    kit.clock.advance(DAY);
    assert!(service.step_now().await);
    let second = service.status().last.unwrap().name;
    let summary = kit.target.join(&second).join("backup.json");
    let mut text = fs::read_to_string(&summary).unwrap();
    text.push('\n');
    fs::write(&summary, text).unwrap();
    for _ in 0..3 {
        kit.clock.advance(DAY);
        assert!(service.step_now().await);
    }
    let left = names(&kit.target);
    for kept in ["notes.txt", "before-the-upgrade", other.as_str(), second.as_str()] {
        assert!(left.iter().any(|name| name == kept), "{kept}: {left:?}");
    }
    assert!(!left.contains(&first));
    assert_eq!(left.len(), 4 + 2, "{left:?}");
    assert_eq!(service.state().records.len(), 2);
    let listed = service.list().await.unwrap();
    assert_eq!(listed.iter().filter(|backup| backup.own).count(), 2);
    assert_eq!(listed.iter().filter(|backup| !backup.own).count(), 3, "{listed:?}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[tokio::test]
async fn two_controllers_with_one_folder_keep_their_own_backups() {
    let mut one = Scheduled::new().await;
    let mut other = Scheduled::new().await;
    one.settings.backup_keep = 1;
    other.settings.backup_keep = 1;
    other.settings.backup_target = one.settings.backup_target.clone();
    let services = [one.start().await, other.start().await];
    for _ in 0..3 {
        for (kit, service) in [&one, &other].into_iter().zip(&services) {
            assert!(service.step_now().await);
            kit.clock.advance(DAY);
        }
    }
    let left = one.backups();
    assert_eq!(left.len(), 2, "{left:?}");
    for service in &services {
        assert!(left.contains(&service.status().last.unwrap().name));
    }
    let source = super::BackupSource::parse(one.target.to_str().unwrap()).unwrap();
    let refused = source.verify(&one.settings).await.unwrap_err().to_string();
    assert!(refused.contains("2 controllers") && refused.contains(&left[0]), "{refused}");
}

#[tokio::test]
async fn a_target_that_is_gone_is_a_failure_that_is_repeated_and_removes_nothing() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    assert!(service.step_now().await);
    let away = kit.data.path("away");
    fs::rename(&kit.target, &away).unwrap();
    kit.clock.advance(DAY);
    for attempt in 1..=3 {
        assert!(service.step_now().await);
        let failure = service.status().failure.unwrap();
        assert!(failure.message.contains("is its disk mounted"), "{failure:?}");
        assert_eq!(failure.attempts, attempt);
        assert!(!service.step_now().await, "it waits");
        kit.clock.advance(Duration::from_secs(60 << (attempt - 1)));
    }
    assert!(!kit.target.exists(), "the folder is not made in place of a disk");
    assert!(service.status().last.is_some(), "the last success is not forgotten");
    // The failure survives a restart.
    let service = kit.start().await;
    assert_eq!(service.status().failure.unwrap().attempts, 3);
    fs::rename(&away, &kit.target).unwrap();
    assert!(service.step_now().await);
    assert_eq!((service.status().failure.is_none(), kit.backups().len()), (true, 2));
    assert_eq!(
        kit.events().await,
        ["backup.made", "backup.failed", "backup.failed", "backup.failed", "backup.made"]
    );
}

#[tokio::test]
async fn a_target_without_space_is_refused_before_the_first_byte() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    // An image without a byte on the disk, longer than any disk.
    let image = kit.settings.maintenance_dir().join(format!("{}.iso", "0".repeat(64)));
    fs::File::create(&image).unwrap().set_len(1 << 43).unwrap();
    assert!(service.step_now().await);
    let failure = service.status().failure.unwrap();
    assert!(failure.message.contains("MiB free and this backup needs about"), "{failure:?}");
    assert_eq!(names(&kit.target), [""; 0]);
    fs::remove_file(image).unwrap();
    assert!(service.make("ann").unwrap(), "a request does not wait for the pause");
    assert!(service.step_now().await);
    assert_eq!(kit.backups().len(), 1);
}

#[tokio::test]
async fn what_a_killed_controller_left_is_removed_and_its_named_backup_is_recorded() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    assert!(service.step_now().await);
    let mut state = service.state();
    // Killed after the name and before the record, with a half backup of an earlier attempt beside it.
    state.pending = state.records.pop();
    store_state(&kit.data.store, &state).await;
    let half = kit.target.join(format!(".shoal-{}.partial-1", &state.series[..8]));
    fs::create_dir_all(half.join("data")).unwrap();
    let of_another = kit.target.join(".shoal-deadbeef.partial-1");
    fs::create_dir(&of_another).unwrap();
    kit.clock.advance(DAY);
    let service = kit.start().await;
    assert!(service.step_now().await);
    assert_eq!(service.state().records.len(), 2);
    assert_eq!((half.exists(), of_another.exists()), (false, true));
    // Killed before the name: the backup is not there and is forgotten.
    let mut state = service.state();
    let mut pending = state.records[1].clone();
    pending.number += 1;
    pending.name = pending.name.replace("-000002-", "-000003-");
    state.pending = Some(pending);
    store_state(&kit.data.store, &state).await;
    kit.clock.advance(DAY);
    let service = kit.start().await;
    assert!(service.step_now().await);
    let state = service.state();
    assert_eq!((state.records.len(), state.pending), (3, None));
    assert_eq!(kit.backups().len(), 3);
}

#[tokio::test]
async fn a_start_removes_the_download_of_a_killed_restore() {
    let data = Data::new().await;
    let download = data.settings.storage_root.join("restore-download");
    fs::create_dir_all(download.join("shoal-deadbeef-000001-20260101T000000Z")).unwrap();
    let service = open(&data.settings, &data.store, &Arc::new(ManualClock::new(now()))).await;
    service.run(CancellationToken::new()).await;
    assert!(!download.exists());
}

async fn store_state(store: &Store, state: &BackupState) {
    let text = serde_json::to_string(state).unwrap();
    store.set_setting(KEY, Some(text), Vec::new(), now()).await.unwrap();
}

#[tokio::test]
async fn a_stop_ends_a_backup_without_a_trace_and_the_next_start_makes_it() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    let stop = CancellationToken::new();
    let target = super::target::Target::of(&Arc::new(kit.settings.clone())).unwrap().unwrap();
    stop.cancel();
    assert!(service.step(&target, &stop).await);
    assert_eq!(names(&kit.target), [""; 0]);
    assert!(service.status().failure.is_none());
    assert_eq!(kit.events().await, [""; 0]);
    let service = kit.start().await;
    assert!(service.step_now().await);
    assert_eq!(kit.backups().len(), 1);
}

#[tokio::test]
async fn a_backup_that_was_damaged_is_found_and_is_never_the_one_that_stays() {
    let mut kit = Scheduled::new().await;
    kit.settings.backup_keep = 1;
    let service = kit.start().await;
    assert!(service.step_now().await);
    let first = service.status().last.unwrap().name;
    assert_eq!(verified(&service, &first).await, None);
    let blob = format!("data/oci/blobs/sha256/{}", sha256(b"v1"));
    fs::remove_file(kit.target.join(&first).join(&blob)).unwrap();
    fs::write(kit.target.join(&first).join(&blob), "rot").unwrap();
    let damage = verified(&service, &first).await.unwrap();
    assert!(damage.contains(&blob), "{damage}");
    let status = service.status();
    assert!(status.last.is_none(), "a damaged backup is none");
    assert_eq!(status.next, Some(now()), "so another one is due");
    assert!(service.step_now().await);
    assert_eq!(kit.backups().len(), 1, "the damaged one is older than the newest good one");
    let second = service.status().last.unwrap().name;
    assert_eq!(verified(&service, &second).await, None, "it shares nothing with the damaged one");
    fs::write(kit.target.join(&second).join("backup.json"), "{}").unwrap();
    assert!(verified(&service, &second).await.unwrap().contains("backup.json"));
    let kinds = kit.events().await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "backup.damaged").count(), 2, "{kinds:?}");
}

#[tokio::test]
async fn damaged_content_of_the_data_is_left_out_and_the_backup_says_so() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    let blob = kit.settings.registry_storage.join("blobs/sha256").join(sha256(b"v1"));
    fs::remove_file(&blob).unwrap();
    fs::write(&blob, "rot").unwrap();
    assert!(service.step_now().await);
    let status = service.status();
    assert!(status.last.is_some(), "the database is worth a backup");
    assert!(
        status.warnings.iter().any(|warning| warning.contains("shoal registry scrub --online")),
        "{:?}",
        status.warnings
    );
    let all = EventFilter { run: None, after: 0, limit: 1000 };
    let events = kit.data.store.events(all).await.unwrap();
    let made = events.iter().find(|event| event.kind == "backup.made").unwrap();
    assert!(
        made.level == EventLevel::Warn && made.message.contains("shoal registry scrub --online"),
        "{made:?}"
    );
}

#[tokio::test]
async fn a_clock_that_was_set_back_delays_no_backup_and_costs_none() {
    let mut kit = Scheduled::new().await;
    kit.settings.backup_keep = 1;
    assert!(kit.start().await.step_now().await);
    kit.clock = Arc::new(ManualClock::new(now().minus(DAY * 30)));
    let service = kit.start().await;
    assert!(service.step_now().await, "it is due at once");
    let last = service.status().last.unwrap();
    assert_eq!(last.made_at, Some(now().minus(DAY * 30)));
    assert_eq!(kit.backups(), [last.name], "the newest one by its number stays");
    assert!(!service.step_now().await);
}

#[tokio::test]
async fn a_backup_that_was_missed_is_made_after_the_start_and_an_old_one_is_a_warning() {
    let kit = Scheduled::new().await;
    assert!(kit.start().await.step_now().await);
    kit.clock.advance(DAY * 5);
    let service = kit.start().await;
    let status = service.status();
    assert!(status.old && status.warnings[0].contains("120 hours old"), "{:?}", status.warnings);
    assert!(service.step_now().await);
    assert_eq!((service.status().old, service.status().age_seconds), (false, Some(0)));
}

#[tokio::test]
async fn equal_content_of_two_backups_is_on_the_disk_once() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    for _ in 0..2 {
        assert!(service.step_now().await);
        kit.clock.advance(DAY);
    }
    let blob = format!("data/oci/blobs/sha256/{}", sha256(b"v1"));
    for name in kit.backups() {
        let backup = kit.target.join(name);
        assert_eq!(backup.join(&blob).metadata().unwrap().nlink(), 2);
        assert_eq!(backup.join("data/provisioner.db").metadata().unwrap().nlink(), 1);
    }
    let own = kit.settings.registry_storage.join("blobs/sha256").join(sha256(b"v1"));
    assert_eq!(own.metadata().unwrap().nlink(), 1, "never with the data itself");
}

#[tokio::test]
async fn a_disk_that_is_not_mounted_any_more_is_not_replaced_by_the_disk_of_the_data() {
    let kit = Scheduled::new().await;
    let Ok(disk) = tempfile::tempdir_in("/dev/shm") else { return };
    if super::same_disk(disk.path(), &kit.target) {
        return;
    }
    fs::remove_dir(&kit.target).unwrap();
    std::os::unix::fs::symlink(disk.path(), &kit.target).unwrap();
    let service = kit.start().await;
    assert!(service.step_now().await);
    service.look().await;
    assert_eq!(service.status().warnings, [""; 0]);
    fs::remove_file(&kit.target).unwrap();
    fs::create_dir(&kit.target).unwrap();
    kit.clock.advance(DAY);
    assert!(service.step_now().await);
    service.look().await;
    let status = service.status();
    assert!(status.failure.unwrap().message.contains("is its disk mounted"), "{:?}", status.warnings);
    assert!(status.warnings[0].contains("same file system"), "{:?}", status.warnings);
}

#[tokio::test]
async fn a_verification_without_the_disk_of_the_folder_judges_nothing_and_keeps_the_guard() {
    let kit = Scheduled::new().await;
    let Ok(disk) = tempfile::tempdir_in("/dev/shm") else { return };
    if super::same_disk(disk.path(), &kit.target) {
        return;
    }
    let mount = || std::os::unix::fs::symlink(disk.path(), &kit.target).unwrap();
    fs::remove_dir(&kit.target).unwrap();
    mount();
    let service = kit.start().await;
    assert!(service.step_now().await);
    let name = service.status().last.unwrap().name;
    fs::remove_file(&kit.target).unwrap();
    fs::create_dir(&kit.target).unwrap();
    let unmounted = async || {
        assert!(service.verify(&name, "ann").unwrap());
        assert!(service.step_now().await);
        let status = service.status();
        (status.verification.unwrap(), status.last)
    };
    let (result, last) = unmounted().await;
    assert!(result.error.is_some_and(|why| why.contains("is its disk mounted")) && result.damage.is_none());
    assert_eq!(last.unwrap().name, name, "the backup is as good as it was");
    // Killed after the name and before the record: the backup is not forgotten because its disk is away.
    let mut state = service.state();
    state.pending = state.records.pop();
    store_state(&kit.data.store, &state).await;
    let killed = kit.start().await;
    assert!(killed.step_now().await);
    assert!(killed.status().failure.unwrap().message.contains("is its disk mounted"));
    assert_eq!(killed.state().pending, state.pending);

    // On its disk the damage is found. It does not open the empty mount point to the next backup.
    fs::remove_dir(&kit.target).unwrap();
    mount();
    fs::write(kit.target.join(&name).join("backup.json"), "{}").unwrap();
    assert!(verified(&service, &name).await.is_some());
    fs::remove_file(&kit.target).unwrap();
    fs::create_dir(&kit.target).unwrap();
    assert!(service.step_now().await);
    assert!(service.status().failure.unwrap().message.contains("is its disk mounted"));
    assert_eq!(kit.backups(), [""; 0]);
}

#[tokio::test]
async fn a_folder_without_any_backup_of_the_record_is_not_damage() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    for _ in 0..2 {
        assert!(service.step_now().await);
        kit.clock.advance(DAY);
    }
    let (first, away) = (kit.backups().remove(0), kit.data.path("away"));
    fs::rename(&kit.target, &away).unwrap();
    fs::create_dir(&kit.target).unwrap();
    assert!(service.verify(&first, "ann").unwrap());
    assert!(service.step_now().await);
    let result = service.status().verification.unwrap();
    assert!(result.error.is_some_and(|why| why.contains("is its disk mounted")) && result.damage.is_none());
    // A missing one beside others is damage.
    fs::remove_dir(&kit.target).unwrap();
    fs::rename(&away, &kit.target).unwrap();
    fs::remove_dir_all(kit.target.join(&first)).unwrap();
    assert!(verified(&service, &first).await.unwrap().contains("is missing"));
}

#[tokio::test]
async fn only_good_backups_of_the_own_series_that_are_not_later_than_now_count_for_the_age() {
    let kit = Scheduled::new().await;
    assert_eq!(own_backups(&kit.settings, now()).unwrap(), None, "no controller has started");
    let service = kit.start().await;
    assert_eq!(own_backups(&kit.settings, now()).unwrap(), Some(OwnBackups::default()));
    for _ in 0..2 {
        assert!(service.step_now().await);
        kit.clock.advance(DAY);
    }
    let (first, second) = (Some(now()), Some(now().plus(DAY)));
    let own = |now| own_backups(&kit.settings, now).unwrap().unwrap();
    // Another controller still makes its backups, and one was made by hand.
    let (series, of_second) = (service.state().series, kit.backups().remove(1));
    let other = kit.target.join(of_second.replace(&series[..8], "deadbeef"));
    copy(&kit.target.join(&of_second), &other);
    let text = fs::read_to_string(other.join("backup.json")).unwrap();
    let at = now().plus(DAY * 2).to_string();
    let text = text.replace(&series, "deadbeef-0000").replace(&second.unwrap().to_string(), &at);
    fs::write(other.join("backup.json"), text).unwrap();
    assert_eq!(own(now().plus(DAY * 9)), OwnBackups { newest: second, later: None });
    assert_eq!(own(now().plus(DAY / 2)), OwnBackups { newest: first, later: second });
    fs::write(kit.target.join(&of_second).join("data/provisioner.db"), "rot").unwrap();
    assert!(verified(&service, &of_second).await.is_some());
    assert_eq!(own(now().plus(DAY * 9)), OwnBackups { newest: first, later: None });
}

#[tokio::test]
async fn restored_data_is_held_and_begins_a_series_of_its_own() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    for _ in 0..2 {
        assert!(service.step_now().await);
        kit.clock.advance(DAY);
    }
    let target = settings(&kit.data.path("elsewhere/data"));
    let source = super::BackupSource::parse(kit.target.to_str().unwrap()).unwrap();
    let (place, summary) = source.restore(&target, now()).await.unwrap();
    let last = service.status().last.unwrap();
    assert!(place.ends_with(&last.name), "the newest one: {place}");
    assert_eq!(summary.made_at, last.made_at.unwrap());
    let restored = Store::open(&target.db_path, now()).unwrap();
    assert_eq!(restored.restored_servers().await.unwrap().len(), 2);
    assert_eq!(restored.setting(KEY).await.unwrap(), None, "it made none of the backups of its original");
    let mut moved = target.clone();
    (moved.backup_schedule, moved.backup_target) =
        (kit.settings.backup_schedule, kit.settings.backup_target.clone());
    moved.backup_keep = 1;
    let service_of_copy = open(&moved, &restored, &kit.clock).await;
    for _ in 0..2 {
        assert!(service_of_copy.step_now().await);
        kit.clock.advance(DAY);
    }
    assert_eq!(kit.backups().len(), 2 + 1, "both of the original stay");
    let again = restore(&settings(&kit.data.path("third")), &kit.target.join(&last.name), now()).unwrap();
    assert_eq!(again.series.unwrap().number, 2);
}

#[tokio::test]
async fn one_operation_is_under_way_at_a_time() {
    let kit = Scheduled::new().await;
    let service = kit.start().await;
    assert!(service.make("ann").unwrap());
    assert!(!service.make("ben").unwrap(), "an equal request joins it");
    assert_eq!(service.status().running.unwrap().by, "ann");
    service.verify("shoal-00000000-000001-20260101T000000Z", "ben").unwrap_err();
    for name in ["", "..", "a/b", ".hidden", "a b"] {
        service.verify(name, "ben").unwrap_err();
    }
    assert!(service.step_now().await);
    assert!(service.status().running.is_none());
}
