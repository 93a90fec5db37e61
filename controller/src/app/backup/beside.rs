//! Whether a lost disk takes the backups together with the data.
//!
//! ```text
//!   start, then each minute --> look at the disk of the target (blocks) --> text --> status, metrics, readiness
//!                                   └── longer than 5 s: the text says so; the next round waits for the same look
//! ```
//!
//! Invariants: no request and no start looks at the target, because a folder whose server is away blocks the thread that looks; one look
//! is under way at a time.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::folder::same_disk;
use settings::{BackupTarget, Settings};

/// The time after which a target is said not to respond.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two looks.
pub(super) const PAUSE: Duration = Duration::from_secs(60);

/// Finds the warning of a target. Blocks on its disk.
pub(super) type Look = Arc<dyn Fn(&Settings) -> Option<String> + Send + Sync>;

/// The warning about the place of the target, as of the last look.
pub(super) struct TargetWarning {
    settings: Arc<Settings>,
    look: Look,
    text: Mutex<Option<String>>,
    /// The look that did not end in time.
    pending: tokio::sync::Mutex<Option<JoinHandle<Option<String>>>>,
}

impl TargetWarning {
    /// No warning before the first look.
    pub(super) fn new(settings: Arc<Settings>, look: Look) -> Self {
        Self { settings, look, text: Mutex::default(), pending: tokio::sync::Mutex::default() }
    }

    /// The text of the last look.
    pub(super) fn text(&self) -> Option<String> {
        self.text.lock().clone()
    }

    /// Looks at the target, for at most [`PATIENCE`].
    pub(super) async fn refresh(&self) {
        let mut pending = self.pending.lock().await;
        let mut look = pending.take().unwrap_or_else(|| {
            let (look, settings) = (Arc::clone(&self.look), Arc::clone(&self.settings));
            tokio::task::spawn_blocking(move || look(&settings))
        });
        let text = match tokio::time::timeout(PATIENCE, &mut look).await {
            Ok(Ok(text)) => text,
            // The runtime ends.
            Ok(Err(_)) => return,
            Err(_) => {
                *pending = Some(look);
                silent(&self.settings)
            }
        };
        let mut known = self.text.lock();
        if let Some(warning) = text.as_ref().filter(|_| *known != text) {
            tracing::warn!("{warning}");
        }
        *known = text;
    }
}

/// The warning about a target that does not respond.
fn silent(settings: &Settings) -> Option<String> {
    settings.backup_target.as_ref().map(|target| {
        format!(
            "BACKUP_TARGET {target} does not respond: no backup is made until it does; check its disk, or the server that it is \
             mounted from"
        )
    })
}

/// [`beside_data`] for a command: a target that does not respond within five seconds is a warning too. The thread that waits for it
/// ends with the process.
pub fn beside_data_in_time(settings: &Settings) -> Option<String> {
    look_in_time(settings, Arc::new(beside_data))
}

fn look_in_time(settings: &Settings, look: Look) -> Option<String> {
    let (found, wait) = mpsc::channel();
    let of_thread = settings.clone();
    std::thread::spawn(move || {
        // The receiver may have given up.
        let _late = found.send(look(&of_thread));
    });
    match wait.recv_timeout(PATIENCE) {
        Ok(text) => text,
        Err(mpsc::RecvTimeoutError::Timeout) => silent(settings),
        // The look panicked, which is on standard error.
        Err(mpsc::RecvTimeoutError::Disconnected) => None,
    }
}

/// Why a backup at this target may be lost together with the data; `None` if there is no such reason. Blocks on the disk of a folder.
pub fn beside_data(settings: &Settings) -> Option<String> {
    match settings.backup_target.as_ref()? {
        BackupTarget::Folder(path) => {
            let inside = [&settings.storage_root, &settings.registry_storage]
                .into_iter()
                .find(|data| path.starts_with(data));
            if let Some(data) = inside {
                return Some(format!(
                    "BACKUP_TARGET {} is in the data directory {}: what destroys the data destroys the backups; use a folder on \
                     another disk",
                    path.display(),
                    data.display()
                ));
            }
            same_disk(path, &settings.storage_root).then(|| {
                format!(
                    "BACKUP_TARGET {} is on the same file system as the data: a lost disk takes both; use another disk, or check \
                     that its disk is mounted",
                    path.display()
                )
            })
        }
        BackupTarget::Registry(target) => {
            let own = [Some(settings.controller_http_addr), settings.controller_https_addr.address()];
            let port = target.base.port_or_known_default();
            let is_own = own.into_iter().flatten().any(|address| {
                let host = target.base.host_str().unwrap_or_default();
                Some(address.port()) == port && (target.is_local() || host == address.ip().to_string())
            });
            is_own.then(|| {
                format!("BACKUP_TARGET {target} is this controller's own registry: a lost disk takes both; use another registry")
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_folder_that_does_not_respond_is_a_warning_and_holds_one_thread() {
        let mut settings = super::super::tests::settings(Path::new("/nowhere/data"));
        settings.backup_target = Some(BackupTarget::Folder("/nowhere/backups".into()));
        let (server, away) = mpsc::channel::<()>();
        let (away, looks) = (Mutex::new(away), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&looks);
        let look: Look = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            away.lock().recv().ok().map(|()| "beside the data".to_owned())
        });
        let warning = TargetWarning::new(Arc::new(settings), look);
        assert_eq!(warning.text(), None);
        for _ in 0..3 {
            let later = async {
                tokio::task::yield_now().await;
                tokio::time::advance(PATIENCE).await;
            };
            tokio::join!(warning.refresh(), later);
            let text = warning.text().unwrap();
            assert!(text.contains("/nowhere/backups does not respond"), "{text}");
        }
        server.send(()).unwrap();
        warning.refresh().await;
        assert_eq!(warning.text().as_deref(), Some("beside the data"));
        assert_eq!(looks.load(Ordering::SeqCst), 1, "a later round waits for the same look");
    }
    #[test]
    fn a_command_does_not_wait_for_a_folder_that_does_not_respond() {
        let mut settings = super::super::tests::settings(Path::new("/nowhere/data"));
        settings.backup_target = Some(BackupTarget::Folder("/nowhere/backups".into()));
        let (server, away) = mpsc::channel::<()>();
        let away = Mutex::new(away);
        let look: Look = Arc::new(move |_| away.lock().recv().ok().map(|()| "beside the data".to_owned()));
        let text = look_in_time(&settings, look).unwrap();
        assert!(text.contains("/nowhere/backups does not respond"), "{text}");
        drop(server);
        let text = look_in_time(&settings, Arc::new(|_| Some("beside the data".to_owned())));
        assert_eq!(text.as_deref(), Some("beside the data"));
    }
}
