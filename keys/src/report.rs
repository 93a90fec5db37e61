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

/// The file of the shared report secret.
#[derive(Clone, Debug)]
pub(super) struct ReportFile {
    pub(super) path: PathBuf,
}

impl ReportFile {
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        match &settings.webhook_secret {
            Some(SecretSource::File(path)) => Some(Self { path: path.clone() }),
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
pub fn previous_report_secret(settings: &Settings, now: Time) -> Result<Option<SecretString>, RotateError> {
    let Some(file) = ReportFile::of(settings) else { return Ok(None) };
    Ok(file.previous()?.filter(|(_, until)| now < *until).map(|(secret, _)| secret))
}

impl Keys {
    /// A name of the present report secret that does not reveal it, also to a reader who can guess secrets.
    pub(super) fn report_id(&self) -> Result<Option<String>, RotateError> {
        let Some(file) = &self.report else { return Ok(None) };
        let secret = file.secret()?;
        let tag = self.master.ring.derive("report-secret-id").tag(&[secret.expose_secret().as_bytes()]);
        Ok(Some(hex::encode(&tag[..8])))
    }

    pub(super) fn report_until(&self) -> Result<Option<Time>, RotateError> {
        let previous = self.report.as_ref().map(ReportFile::previous).transpose()?.flatten();
        Ok(previous.map(|(_, until)| until))
    }

    pub(super) fn rotate_report(&self, from: &str, now: Time) -> Result<RotationView, RotateError> {
        let file = self.report.as_ref().ok_or(RotateError::NotOurs)?;
        if self.report_id()?.as_deref() == Some(from) {
            let former = file.secret()?;
            let former =
                Zeroizing::new(format!("until={}\n{}\n", now.plus(REPORT_OVERLAP), former.expose_secret()));
            file.replace(&file.previous_path(), &former)?;
            let new = base32_lower(&*Zeroizing::new(random_bytes::<SECRET_BYTES>()?));
            file.replace(&file.path, &Zeroizing::new(format!("{}\n", new.expose_secret())))?;
        } else {
            self.remove_ended_report(now)?;
        }
        let until = self.report_until()?;
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
        let Some(file) = &self.report else { return Ok(false) };
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
