//! Backups: whether the target of the settings can be used, and how old its newest backup is.

use std::net::TcpStream;
use std::net::ToSocketAddrs as _;
use std::path::Path;
use std::time::Duration;

use controller::app::backup::{beside_data, newest_backup};
use model::{Clock as _, SystemClock};
use settings::{BackupSchedule, BackupTarget, Settings};

use super::finding::Finding;

/// How long a connection to a registry may take.
const PATIENCE: Duration = Duration::from_secs(3);

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
        BackupTarget::Folder(path) => folder(finding, settings, path),
        BackupTarget::Registry(target) => {
            let host = target.base.host_str().unwrap_or_default();
            let port = target.base.port_or_known_default().unwrap_or(443);
            match (connects(host.trim_matches(['[', ']']), port), beside_data(settings)) {
                (Err(why), _) => finding.failed(
                    format!("{target}: {why}"),
                    "check the name, the port and the firewall between this host and the registry",
                ),
                (Ok(()), Some(warning)) => finding.warned(warning, "use a registry on another machine"),
                (Ok(()), None) => finding.passed(format!("{target} accepts connections")),
            }
        }
    }
}

fn connects(host: &str, port: u16) -> Result<(), String> {
    let found = (host, port).to_socket_addrs().map_err(|error| error.to_string())?.next();
    let address = found.ok_or_else(|| "the name has no address".to_owned())?;
    TcpStream::connect_timeout(&address, PATIENCE).map(drop).map_err(|error| error.to_string())
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
    if let Some(warning) = beside_data(settings) {
        return finding.warned(warning, "use a folder on another disk");
    }
    let newest = match newest_backup(path) {
        Ok(newest) => newest,
        Err(error) => return finding.failed(format!("{shown}: {error}"), "check the disk"),
    };
    match (newest, settings.backup_schedule.interval()) {
        (None, _) => finding.warned(
            format!("{shown} has no backup"),
            "start the controller, or run `shoal backup now` against the running one",
        ),
        (Some(made_at), Some(interval)) if SystemClock.now().since(made_at) > interval * 2 => finding.warned(
            format!("the newest backup in {shown} is of {made_at}"),
            "`shoal backup status` says why the controller makes no other",
        ),
        (Some(made_at), _) if settings.backup_schedule == BackupSchedule::Off => finding.warned(
            format!("the newest backup in {shown} is of {made_at}, and BACKUP_SCHEDULE is off"),
            "set BACKUP_SCHEDULE, or run `shoal backup now` by a timer",
        ),
        (Some(made_at), _) => finding.passed(format!("the newest backup in {shown} is of {made_at}")),
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
}
