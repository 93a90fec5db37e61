//! Backups: whether the target of the settings can be used, and how old its newest backup is.

use std::net::TcpStream;
use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use controller::app::backup::{BackupError, OwnBackups, beside_data, own_backups};
use model::{Clock as _, SystemClock, Time, error_chain};
use settings::{BackupSchedule, BackupTarget, Settings};

use super::finding::{Finding, State};

/// How long a connection to a registry may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a folder may take to respond and to be listed.
const FOLDER_PATIENCE: Duration = Duration::from_secs(30);

/// The target of backups.
pub(super) fn target(settings: &Settings) -> Finding {
    let finding = Finding::new("backup", "without a backup on another disk a lost disk takes everything");
    let Some(target) = &settings.backup_target else {
        return finding.warned(
            "BACKUP_TARGET is not set",
            "set BACKUP_SCHEDULE and BACKUP_TARGET, or run `shoal backup DIRECTORY` by a timer",
        );
    };
    match target {
        BackupTarget::Folder(path) => folder_in_time(finding, settings, path),
        BackupTarget::Registry(target) => {
            let host = target.base.host_str().unwrap_or_default();
            let port = target.base.port_or_known_default().unwrap_or(443);
            match (connects(host.trim_matches(['[', ']']), port), beside_data(settings)) {
                (Err(why), _) => finding.failed(
                    format!("{target}: {why}"),
                    "check the name, the port and the firewall between this host and the registry",
                ),
                (Ok(()), Some(warning)) => finding.warned(warning, "use a registry on another machine"),
                (Ok(()), None) => match own_backups(settings, SystemClock.now()) {
                    Ok(None) => finding.passed(format!("{target} accepts connections")),
                    own => aged(finding, settings.backup_schedule, &target.to_string(), own),
                },
            }
        }
    }
}

fn connects(host: &str, port: u16) -> Result<(), String> {
    let found = (host, port).to_socket_addrs().map_err(|error| error.to_string())?.next();
    let address = found.ok_or_else(|| "the name has no address".to_owned())?;
    TcpStream::connect_timeout(&address, PATIENCE).map(drop).map_err(|error| error.to_string())
}

/// [`folder`] in a thread of its own: a folder whose server is away blocks it for ever.
fn folder_in_time(finding: Finding, settings: &Settings, path: &Path) -> Finding {
    let (found, wait) = mpsc::channel();
    let (of_thread, settings, folder_path) = (finding.clone(), settings.clone(), path.to_owned());
    std::thread::spawn(move || {
        // The receiver may have given up.
        let _late = found.send(folder(of_thread, &settings, &folder_path));
    });
    wait.recv_timeout(FOLDER_PATIENCE).unwrap_or_else(|_| {
        finding.failed(
            format!("BACKUP_TARGET {} does not respond", path.display()),
            "check its disk, or the server that it is mounted from",
        )
    })
}

fn folder(finding: Finding, settings: &Settings, path: &Path) -> Finding {
    let shown = path.display();
    if !path.is_dir() {
        return finding.failed(
            format!("BACKUP_TARGET {shown} is no directory"),
            format!(
                "mount its disk, or create it once as the user of the controller: install -d -m 0700 {shown}"
            ),
        );
    }
    // Without a name: the file is gone with this process, however that ends.
    if let Err(error) = tempfile::tempfile_in(path) {
        return finding.failed(
            format!("BACKUP_TARGET {shown} cannot be written: {error}"),
            "run this as the user of the controller, and give it the folder; the unit of the package needs ReadWritePaths= for it",
        );
    }
    let own = own_backups(settings, SystemClock.now());
    let aged = aged(finding, settings.backup_schedule, &shown.to_string(), own);
    match beside_data(settings) {
        None => aged,
        Some(warning) if aged.state == State::Pass => aged.warned(warning, "use a folder on another disk"),
        Some(warning) => Finding { what: format!("{}; {warning}", aged.what), ..aged },
    }
}

/// The age of the newest backup of this controller.
fn aged(
    finding: Finding,
    schedule: BackupSchedule,
    place: &str,
    own: Result<Option<OwnBackups>, BackupError>,
) -> Finding {
    match own {
        Ok(own) => judged(finding, schedule, place, own.unwrap_or_default(), SystemClock.now()),
        Err(error @ (BackupError::Store(_) | BackupError::UnreadableData { .. })) => finding.warned(
            format!("which backups this controller has made is not known: {}", error_chain(&error)),
            "run this as the user of the controller",
        ),
        Err(error) => finding.failed(format!("{place}: {}", error_chain(&error)), "check the disk"),
    }
}

fn judged(finding: Finding, schedule: BackupSchedule, place: &str, own: OwnBackups, now: Time) -> Finding {
    if let Some(later) = own.later {
        return finding.warned(
            format!("a backup of this controller in {place} is of {later}, which is later than now"),
            "check the clock of this host, then run `shoal backup now`",
        );
    }
    match (own.newest, schedule.interval()) {
        (None, _) => finding.warned(
            format!("{place} has no good backup of this controller"),
            "start the controller, or run `shoal backup now` against the running one",
        ),
        (Some(made_at), Some(interval)) if now.since(made_at) > interval * 2 => finding.warned(
            format!("the newest backup of this controller in {place} is of {made_at}"),
            "`shoal backup status` says why the controller makes no other",
        ),
        (Some(made_at), _) if schedule == BackupSchedule::Off => finding.warned(
            format!(
                "the newest backup of this controller in {place} is of {made_at}, and BACKUP_SCHEDULE is off"
            ),
            "set BACKUP_SCHEDULE, or run `shoal backup now` by a timer",
        ),
        (Some(made_at), _) => {
            finding.passed(format!("the newest backup of this controller in {place} is of {made_at}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use settings::Sources;

    use super::super::finding::State;
    use super::*;

    fn settings(data: &Path, target: &str) -> Settings {
        let flags = [("STORAGE_ROOT", data.display().to_string()), ("BACKUP_TARGET", target.to_owned())];
        let flags = flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let sources = Sources { flags, environment: &|_| None, variables: Vec::new(), file: None };
        Settings::load(&sources).unwrap()
    }

    #[test]
    fn a_target_beside_the_data_is_a_warning_and_one_that_is_away_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let inside = target(&settings(&data, &data.join("backups").display().to_string()));
        assert_eq!(inside.state, State::Fail, "{inside:?}");
        std::fs::create_dir(data.join("backups")).unwrap();
        let inside = target(&settings(&data, &data.join("backups").display().to_string()));
        assert!(inside.state == State::Warn && inside.what.contains("in the data directory"), "{inside:?}");
        let beside = target(&settings(&data, &folder.path().display().to_string()));
        assert!(beside.state == State::Warn && beside.what.contains("same file system"), "{beside:?}");
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let registry = format!("oci+http://{}/shoal", held.local_addr().unwrap());
        assert_eq!(target(&settings(&data, &registry)).state, State::Pass);
        drop(held);
        let away = target(&settings(&data, &registry));
        assert!(away.state == State::Fail && away.what.contains(&registry), "{away:?}");
    }

    #[test]
    fn the_age_is_that_of_the_own_backups_and_a_time_in_the_future_is_a_warning() {
        let at = |text: &str| text.parse::<Time>().unwrap();
        let (now, daily) = (at("2026-11-24T12:00:00Z"), BackupSchedule::Every(Duration::from_secs(86_400)));
        let judge = |newest: Option<&str>, later: Option<&str>| {
            let own = OwnBackups { newest: newest.map(at), later: later.map(at) };
            judged(Finding::new("backup", "why"), daily, "/b", own, now)
        };
        assert_eq!(judge(Some("2026-11-24T03:30:00Z"), None).state, State::Pass);
        let old = judge(Some("2026-11-20T03:30:00Z"), None);
        assert!(old.state == State::Warn && old.what.contains("2026-11-20"), "{old:?}");
        let none = judge(None, None);
        assert!(none.state == State::Warn && none.what.contains("no good backup"), "{none:?}");
        let ahead = judge(Some("2026-11-24T03:30:00Z"), Some("2027-11-24T03:30:00Z"));
        assert!(ahead.state == State::Warn && ahead.what.contains("later than now"), "{ahead:?}");
    }

    #[tokio::test]
    async fn backups_of_another_controller_do_not_hide_that_this_one_makes_none() {
        let folder = tempfile::tempdir().unwrap();
        let (data, backups) = (folder.path().join("data"), folder.path().join("backups"));
        std::fs::create_dir(&data).unwrap();
        std::fs::create_dir(&backups).unwrap();
        let settings = settings(&data, &backups.display().to_string());
        let now = SystemClock.now();
        let store = store::Store::open(&settings.db_path, now).unwrap();
        let state = serde_json::json!({ "series": "3f9a1c2b-0000", "next_number": 2, "records": [] });
        store.set_setting(store::BACKUPS, Some(state.to_string()), Vec::new(), now).await.unwrap();
        let make = |name: &str, series: &str| {
            std::fs::create_dir(backups.join(name)).unwrap();
            let summary = serde_json::json!({
                "format": 1, "program": "x", "made_at": now, "as_of": null, "servers": 0, "jobs": 0, "unfinished": 0, "files": 0,
                "bytes": 0, "registry": false, "master_key": false, "damaged": [], "sums_sha256": "",
                "series": { "id": series, "number": 1 },
            });
            std::fs::write(backups.join(name).join("backup.json"), summary.to_string()).unwrap();
        };
        make("shoal-deadbeef-000001-20261124T033000Z", "deadbeef-0000");
        let found = target(&settings);
        assert!(found.state == State::Warn && found.what.contains("no good backup"), "{found:?}");
        make("shoal-3f9a1c2b-000001-20261124T033000Z", "3f9a1c2b-0000");
        let found = target(&settings);
        assert!(!found.what.contains("no good backup"), "{found:?}");
    }
}
