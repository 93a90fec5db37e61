//! The shared report secret in a file (`WEBHOOK_SECRET=file:PATH`), and its rotation.
//!
//! ```text
//!  PATH            the secret
//!  PATH.previous   until=2026-01-31T12:00:00Z        the former secret is accepted until then
//!                  the former secret
//! ```
//!
//! The former secret is durable in its file before the new one replaces it. After a crash in between both files have the same
//! secret, and the rotation begins again.
//!
//! Invariant: a rotation ends the time of no former secret. While one is accepted, or the setting WEBHOOK_SECRET_OLD gives one, a
//! further rotation is refused; a repetition of the last one is not.

use std::io;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use super::{Keys, REPORT_OVERLAP, RotateError, RotationState, RotationView, SecretName};
use model::{Time, failpoint};
use secrets::{SecretSource, base32_lower, random_bytes, replace_secret_file};
use settings::Settings;

/// The random bytes of a new secret: a whole number of base32 groups.
const SECRET_BYTES: usize = 25;

/// The settings of the shared report secret, which a reload replaces together with the secrets that are accepted.
#[derive(Clone, Debug, Default)]
pub struct ReportSource {
    /// The source of the secret, `WEBHOOK_SECRET`.
    pub secret: Option<SecretSource>,
    /// The source of the former secret, `WEBHOOK_SECRET_OLD`.
    pub former: Option<SecretSource>,
}

impl ReportSource {
    /// The sources that these settings name.
    pub fn of(settings: &Settings) -> Self {
        Self { secret: settings.webhook_secret.clone(), former: settings.webhook_secret_old.clone() }
    }
}

/// The file of the shared report secret.
#[derive(Clone, Debug)]
pub(super) struct ReportFile {
    pub(super) path: PathBuf,
    /// Whether the setting WEBHOOK_SECRET_OLD gives the former secret, in place of the one that a rotation leaves.
    pub(super) former_is_given: bool,
}

impl ReportFile {
    fn of(source: &ReportSource) -> Option<Self> {
        match &source.secret {
            Some(SecretSource::File(path)) => {
                Some(Self { path: path.clone(), former_is_given: source.former.is_some() })
            }
            _ => None,
        }
    }

    fn secret(&self) -> Result<SecretString, RotateError> {
        let read = SecretSource::File(self.path.clone()).load(&|_| None);
        read.map_err(|error| self.failed(&self.path, io::Error::other(error)))
    }

    fn previous_path(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".previous");
        PathBuf::from(name)
    }

    /// The former secret and the end of its time; `None` when there is none.
    fn previous(&self) -> Result<Option<(SecretString, Time)>, RotateError> {
        let path = self.previous_path();
        if !path.exists() {
            return Ok(None);
        }
        let read = SecretSource::File(path.clone()).load(&|_| None);
        let text = read.map_err(|error| self.failed(&path, io::Error::other(error)))?;
        let parts = text.expose_secret().split_once('\n').and_then(|(until, secret)| {
            let until: Time = until.strip_prefix("until=")?.parse().ok()?;
            Some((SecretString::from(secret), until))
        });
        let malformed =
            || io::Error::other("its form is unknown; remove it when no system uses the former secret");
        parts.map(Some).ok_or_else(|| self.failed(&path, malformed()))
    }

    fn failed(&self, path: &Path, source: io::Error) -> RotateError {
        RotateError::SecretFile { path: path.display().to_string(), source }
    }

    fn replace(&self, path: &Path, content: &str) -> Result<(), RotateError> {
        replace_secret_file(path, content.as_bytes(), &failpoint::hit)
            .map_err(|source| self.failed(path, source))
    }
}

/// The former report secret that a rotation left, while it is accepted.
///
/// # Errors
/// When its file cannot be read.
pub fn previous_report_secret(source: &ReportSource, now: Time) -> Result<Option<SecretString>, RotateError> {
    let Some(file) = ReportFile::of(source) else { return Ok(None) };
    Ok(file.previous()?.filter(|(_, until)| now < *until).map(|(secret, _)| secret))
}

impl Keys {
    /// The settings of the shared report secret that are in force.
    pub fn report_source(&self) -> ReportSource {
        self.report.read().clone()
    }

    /// Lets rotations use the settings of a reload.
    pub fn use_report_source(&self, source: ReportSource) {
        *self.report.write() = source;
    }

    /// The file of the shared report secret, if a file contains it.
    pub(super) fn report_file(&self) -> Option<ReportFile> {
        ReportFile::of(&self.report.read())
    }

    /// A name of the present report secret that does not reveal it, also to a reader who can guess secrets.
    pub(super) fn report_id(&self) -> Result<Option<String>, RotateError> {
        let Some(file) = self.report_file() else { return Ok(None) };
        Ok(Some(self.id_of(&file.secret()?)))
    }

    fn id_of(&self, secret: &SecretString) -> String {
        let tag = self.master.ring.derive("report-secret-id").tag(&[secret.expose_secret().as_bytes()]);
        hex::encode(&tag[..8])
    }

    /// The name of the former report secret and the end of its time; `None` when there is none, also when a rotation was
    /// interrupted before the new one was in its file.
    pub(super) fn former_report(&self) -> Result<Option<(String, Time)>, RotateError> {
        let previous = self.report_file().as_ref().map(ReportFile::previous).transpose()?.flatten();
        let former = previous.map(|(secret, until)| (self.id_of(&secret), until));
        let present = self.report_id()?;
        Ok(former.filter(|(id, _)| Some(id) != present.as_ref()))
    }

    pub(super) fn rotate_report(&self, from: &str, now: Time) -> Result<RotationView, RotateError> {
        let file = self.report_file().ok_or(RotateError::NotOurs)?;
        if self.report_id()?.as_deref() == Some(from) {
            if file.former_is_given || self.former_report()?.is_some_and(|(_, until)| now < until) {
                return Err(RotateError::TooMany);
            }
            let former = file.secret()?;
            let former =
                Zeroizing::new(format!("until={}\n{}\n", now.plus(REPORT_OVERLAP), former.expose_secret()));
            file.replace(&file.previous_path(), &former)?;
            let new = base32_lower(&*Zeroizing::new(random_bytes::<SECRET_BYTES>()?));
            file.replace(&file.path, &Zeroizing::new(format!("{}\n", new.expose_secret())))?;
        } else {
            self.remove_ended_report(now)?;
        }
        let until = self.former_report()?.map(|(_, until)| until);
        let text =
            format!("give the new secret to the systems that report: it is in {}", file.path.display());
        Ok(RotationView {
            name: SecretName::Report,
            state: if until.is_some() { RotationState::Overlap } else { RotationState::Ended },
            key_id: self.report_id()?.unwrap_or_default(),
            from: from.to_owned(),
            resealed: 0,
            checked: None,
            accepted_until: until,
            next_action: until.map(|_| text),
        })
    }

    /// Removes the file of the former report secret when its time has ended; whether it was removed.
    pub(super) fn remove_ended_report(&self, now: Time) -> Result<bool, RotateError> {
        let Some(file) = self.report_file() else { return Ok(false) };
        match file.previous()? {
            Some((_, until)) if until <= now => {
                let path = file.previous_path();
                std::fs::remove_file(&path).map_err(|source| file.failed(&path, source))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use secrets::KeyRing;

    fn at(hour: u64) -> Time {
        let start: Time = "2026-01-01T00:00:00Z".parse().unwrap();
        start.plus(std::time::Duration::from_secs(3600 * hour))
    }

    fn keys(folder: &Path, former_is_given: bool) -> (Keys, PathBuf) {
        let ring = KeyRing::from_hex(&"07".repeat(32).into()).unwrap();
        let path = folder.join("report.secret");
        fs::write(&path, "the first report secret\n").unwrap();
        let former = former_is_given.then(|| SecretSource::Env("OLD".to_owned()));
        let keys = Keys::in_memory(&ring);
        keys.use_report_source(ReportSource { secret: Some(SecretSource::File(path.clone())), former });
        (keys, path)
    }

    #[test]
    fn a_second_rotation_does_not_end_the_time_of_the_former_secret() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, path) = keys(folder.path(), false);
        let first = keys.report_id().unwrap().unwrap();
        let rotated = keys.rotate_report(&first, at(0)).unwrap();
        assert_eq!((rotated.state, rotated.accepted_until), (RotationState::Overlap, Some(at(24))));
        let files =
            || (fs::read(&path).unwrap(), fs::read(folder.path().join("report.secret.previous")).unwrap());
        let after_first = files();
        let why = keys.rotate_report(&rotated.key_id, at(23)).unwrap_err();
        assert!(matches!(why, RotateError::TooMany), "{why}");
        let repeated = keys.rotate_report(&first, at(23)).unwrap();
        assert_eq!((&repeated.key_id, repeated.accepted_until), (&rotated.key_id, Some(at(24))));
        assert_eq!(files(), after_first);
        let listed = keys.list(None).unwrap().pop().unwrap();
        assert_eq!((&listed.former[0].key_id, listed.made_at), (&first, Some(at(0))));
        let second = keys.rotate_report(&rotated.key_id, at(24)).unwrap();
        assert_eq!((second.from, second.accepted_until), (rotated.key_id, Some(at(48))));
    }

    #[test]
    fn a_rotation_that_was_interrupted_between_its_files_begins_again() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, path) = keys(folder.path(), false);
        let first = keys.report_id().unwrap().unwrap();
        keys.rotate_report(&first, at(0)).unwrap();
        fs::write(&path, "the first report secret\n").unwrap();
        assert!(keys.list(None).unwrap().pop().unwrap().former.is_empty());
        let rotated = keys.rotate_report(&first, at(1)).unwrap();
        assert_eq!((rotated.state, rotated.accepted_until), (RotationState::Overlap, Some(at(25))));
        assert_ne!(rotated.key_id, first);
    }

    #[test]
    fn a_rotation_uses_the_settings_of_the_last_reload() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, first_path) = keys(folder.path(), true);
        let other = folder.path().join("other.secret");
        fs::write(&other, "the secret of the reload\n").unwrap();
        let source = ReportSource { secret: Some(SecretSource::File(other.clone())), former: None };
        keys.use_report_source(source.clone());
        let id = keys.report_id().unwrap().unwrap();
        let rotated = keys.rotate_report(&id, at(0)).unwrap();
        assert_eq!(rotated.state, RotationState::Overlap);
        assert_ne!(fs::read_to_string(&other).unwrap(), "the secret of the reload\n");
        assert_eq!(fs::read_to_string(&first_path).unwrap(), "the first report secret\n");
        let accepted = |hour| previous_report_secret(&source, at(hour)).unwrap();
        assert_eq!(accepted(23).unwrap().expose_secret(), "the secret of the reload");
        assert!(accepted(24).is_none());
        assert!(keys.remove_ended_report(at(24)).unwrap());
    }

    #[test]
    fn a_former_secret_that_a_setting_gives_refuses_a_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, path) = keys(folder.path(), true);
        let first = keys.report_id().unwrap().unwrap();
        let why = keys.rotate_report(&first, at(0)).unwrap_err();
        assert!(why.to_string().contains("WEBHOOK_SECRET_OLD"), "{why}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "the first report secret\n");
    }
}
