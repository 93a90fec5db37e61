//! Files of a controller: the data directory, who can read secrets, the boot image, the clock beside them, the certificate.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use access::tls::{certificate_end, unverifiable};
use controller::app::tls_options;
use model::error_chain;
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use secrets::{KeyRing, MasterKeyError, SecretSource};
use settings::Settings;
use url::Url;

use super::finding::Finding;

/// No controller of this version ran before 2026.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// How far the clock may be behind the newest file of the data.
const BEHIND: Duration = Duration::from_secs(300);
/// How long before its end a certificate is a warning.
const ENDS_SOON: Duration = Duration::from_secs(14 * 86_400);
/// Why files with secrets are checked.
const FOR_SECRETS: &str = "a user who reads a key has what it protects";

/// Whether a controller holds the lock of this data directory.
pub(super) fn is_locked(data: &Path) -> bool {
    let Ok(directory) = File::open(data) else { return false };
    let lock = flock(&directory, FlockOperation::NonBlockingLockShared);
    lock.is_err_and(|error| error == rustix::io::Errno::WOULDBLOCK)
}

/// The data directory: whose it is, and who can read it.
pub(super) fn data_directory(settings: &Settings, running: bool) -> Finding {
    let finding = Finding::new("data", "the data directory holds keys, BMC passwords and the database");
    let path = &settings.storage_root;
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => metadata,
        Ok(_) => return finding.failed(format!("{shown} is no directory"), "give another STORAGE_ROOT"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return finding.passed(format!("{shown} does not exist; the first start creates it"));
        }
        Err(error) => {
            return finding.failed(format!("{shown}: {error}"), "run this as the user of the controller");
        }
    };
    let (user, mode) = (geteuid().as_raw(), metadata.permissions().mode() & 0o7777);
    if metadata.uid() != user {
        return finding.warned(
            format!("{shown} belongs to user {}, and this is user {user}", metadata.uid()),
            "run this command as the user of the controller, for example: setpriv --reuid shoal --regid shoal --clear-groups shoal doctor",
        );
    }
    if mode & 0o077 != 0 {
        return finding.failed(format!("{shown} has mode {mode:04o}"), format!("chmod 0700 {shown}"));
    }
    let state = if running { "a controller runs on it" } else { "no controller runs on it" };
    finding.passed(format!("{shown} is this user's only; {state}"))
}

/// Files with keys and passwords: each must exist and be closed to others.
pub(super) fn secrets(settings: &Settings) -> Vec<Finding> {
    let file = |source: &Option<SecretSource>| match source {
        Some(SecretSource::File(path)) => Some(path.clone()),
        _ => None,
    };
    let own = settings.master_key.is_none().then(|| settings.master_key_file()).filter(|path| path.exists());
    let named = [
        ("MASTER_KEY", file(&settings.master_key)),
        ("TLS_KEY_FILE", settings.tls_key_file.clone()),
        ("JWT_SECRET", file(&settings.jwt_secret)),
        ("WEBHOOK_SECRET", file(&settings.webhook_secret)),
        ("WEBHOOK_SECRET_OLD", file(&settings.webhook_secret_old)),
        ("BACKUP_REGISTRY_PASSWORD", file(&settings.backup_registry_password)),
        ("EVENTS_CREDENTIALS_FILE", settings.events_credentials_file.clone()),
    ];
    let named = named.into_iter().filter_map(|(name, path)| Some(secret(name, &path?)));
    own.map(|path| key_file(&path, &settings.storage_root)).into_iter().chain(named).collect()
}

/// The key file of the data directory, read as the start reads it.
fn key_file(path: &Path, data: &Path) -> Finding {
    let finding = Finding::new("secret", FOR_SECRETS);
    let shown = path.display();
    if let Err(error) = KeyRing::load(path) {
        let advice = match error {
            MasterKeyError::ReadableByOthers { .. } => format!("chmod 0600 {shown}"),
            _ => "the controller does not start with it: correct the file, or take it from its backup"
                .to_owned(),
        };
        return finding.failed(format!("MASTER_KEY: {}", error_chain(&error)), advice);
    }
    let owner = |path: &Path| fs::metadata(path).map(|metadata| metadata.uid()).ok();
    match (owner(path), owner(data)) {
        (Some(of_key), Some(of_data)) if of_key != of_data => finding.failed(
            format!(
                "MASTER_KEY: {shown} belongs to user {of_key}, and the data directory to user {of_data}, who cannot read it"
            ),
            format!("chown {of_data} {shown}"),
        ),
        _ => finding.passed(format!("MASTER_KEY: {shown} is closed to other users")),
    }
}

fn secret(name: &str, path: &Path) -> Finding {
    let finding = Finding::new("secret", FOR_SECRETS);
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) => {
            finding.failed(format!("{name}: {shown}: {error}"), "create the file, or correct the setting")
        }
        Ok(metadata) if metadata.permissions().mode() & 0o007 != 0 => finding
            .failed(format!("{name}: every user of this host may use {shown}"), format!("chmod o= {shown}")),
        Ok(metadata) if File::open(path).is_err() => finding.failed(
            format!("{name}: this user cannot read {shown}, which belongs to user {}", metadata.uid()),
            "give the file to the user or the group of the controller",
        ),
        Ok(_) => finding.passed(format!("{name}: {shown} is closed to other users")),
    }
}

/// The image that machines boot.
pub(super) fn boot_image(settings: &Settings) -> Finding {
    let finding = Finding::new("boot-image", "machines boot it; without one most jobs are refused");
    let Some(location) = &settings.maintenance_iso_url else {
        return finding.warned(
            "MAINTENANCE_ISO_URL is not set",
            "make an image with `shoal maintenance build` and set MAINTENANCE_ISO_URL, or name one in each job",
        );
    };
    let local = match location.starts_with('/') {
        true => Some(PathBuf::from(location)),
        false => Url::parse(location).ok().and_then(|url| url.to_file_path().ok()),
    };
    let Some(path) = local else {
        return finding.passed(format!("{location} is fetched when a job needs it"));
    };
    match File::open(&path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_file() => {
            finding.passed(format!("{} has {} MiB", path.display(), metadata.len() >> 20))
        }
        Ok(_) => finding.failed(format!("{} is no file", path.display()), "correct MAINTENANCE_ISO_URL"),
        Err(error) => finding.failed(
            format!("{}: {error}", path.display()),
            "copy the image there and let the user of the controller read it",
        ),
    }
}

/// The clock, beside the newest write of a controller.
pub(super) fn clock(settings: &Settings) -> Finding {
    let newest = fs::metadata(&settings.db_path).and_then(|metadata| metadata.modified()).ok();
    judge_clock(SystemTime::now(), newest)
}

fn judge_clock(now: SystemTime, newest: Option<SystemTime>) -> Finding {
    let finding = Finding::new("clock", "deadlines, certificates and tokens are judged by it");
    let advice =
        "set the clock: `timedatectl set-time`, or an NTP server of the site in chrony or systemd-timesyncd";
    if now.duration_since(UNIX_EPOCH).unwrap_or_default() < EARLIEST {
        return finding.failed("the clock is before 2026", advice);
    }
    if let Some(ahead) =
        newest.and_then(|newest| newest.duration_since(now).ok()).filter(|ahead| *ahead > BEHIND)
    {
        return finding.failed(
            format!("the clock is {} s behind the newest write of the database", ahead.as_secs()),
            advice,
        );
    }
    finding.passed("the clock is later than everything that a controller wrote")
}

/// The end of the certificate.
pub(super) fn certificate(settings: &Settings) -> Finding {
    let finding = Finding::new("certificate", "clients refuse a certificate that has ended");
    if settings.controller_https_addr.address().is_none() && settings.media_https_addr.is_none() {
        return finding.passed("no listener has TLS");
    }
    let own = settings.tls_cert_file.is_none();
    let until = match certificate_end(&tls_options(settings)) {
        Ok(Some(until)) => until,
        Ok(None) => return finding.passed("the first start makes a certificate"),
        Err(error) => {
            return finding.failed(
                error_chain(&error).to_string(),
                "correct TLS_CERT_FILE and TLS_KEY_FILE, or their permissions",
            );
        }
    };
    let end = UNIX_EPOCH + Duration::from_secs(u64::try_from(until.timestamp().as_second()).unwrap_or(0));
    let left = end.duration_since(SystemTime::now()).ok();
    let advice = match own {
        true => "start the controller: it issues its own certificate again",
        false => "replace TLS_CERT_FILE and TLS_KEY_FILE; a running controller reads them by itself",
    };
    match left {
        None => finding.failed(format!("the certificate ended at {until}"), advice),
        Some(left) if left < ENDS_SOON => finding.warned(format!("the certificate ends at {until}"), advice),
        Some(_) => match unverifiable(&tls_options(settings)) {
            Ok(Some(why)) => {
                finding.failed(why, "correct TLS_CERT_FILE or CONTROLLER_CA_FILE: shoal config check")
            }
            _ => finding.passed(format!("the certificate ends at {until}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn a_clock_that_went_back_is_noticed() {
        let now = UNIX_EPOCH + EARLIEST + Duration::from_secs(86_400);
        assert_eq!(judge_clock(now, None).state, State::Pass);
        assert_eq!(judge_clock(now, Some(now + BEHIND)).state, State::Pass);
        assert!(judge_clock(now, Some(now + BEHIND * 2)).what.contains("600 s behind"));
        assert_eq!(judge_clock(UNIX_EPOCH, None).state, State::Fail);
    }

    #[test]
    fn a_key_that_others_can_read_fails_and_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "0123456789abcdef").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        let finding = secret("JWT_SECRET", &path);
        assert_eq!(finding.state, State::Fail);
        assert!(finding.what_to_do.starts_with("chmod o= "), "{finding:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(secret("JWT_SECRET", &path).state, State::Pass);
        assert_eq!(secret("JWT_SECRET", &folder.path().join("none")).state, State::Fail);
    }

    #[test]
    fn a_master_key_that_the_start_refuses_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.key");
        fs::write(&path, "ab".repeat(32)).unwrap();
        for (mode, state) in
            [(0o600, State::Pass), (0o400, State::Pass), (0o640, State::Fail), (0o604, State::Fail)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let finding = key_file(&path, folder.path());
            assert_eq!(finding.state, state, "{mode:o} {finding:?}");
            assert_eq!(finding.what_to_do.contains("chmod 0600"), state == State::Fail, "{finding:?}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "no key").unwrap();
        assert_eq!(key_file(&path, folder.path()).state, State::Fail);
    }
}
