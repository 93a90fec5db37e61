//! The host of the simulated BMC: QEMU, one process per boot.
//!
//! ```text
//!   BMC: end of POST ─► power_on ─► boot: files ─ control socket ─ start QEMU ─ connect
//!                                         │
//!                                         └► loop: what QEMU says, the end of the process, power cut, power button,
//!                                                  media inserted and ejected ─► Life ─► commands, kill
//!                                   end of the process ─► halt, reboot, or nothing after a power cut
//! ```
//!
//! Invariant: one process per machine at a time; the next boot begins after the end of the process of the previous one.

use std::{
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, mpsc as std_mpsc},
    time::Duration,
};

use lab_bmc::{BootContext, BootSource, Host, MediaKind, SlotConfig};
use parking_lot::Mutex;
use serde_json::json;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    command::{self, SlotDrive, VmStart},
    console::VmConsole,
    life::{Action, End, Input, Life},
    process::{self, Exit, Process},
    qmp::{Event, Qmp, QmpError},
    spec::VmSpec,
    storage::{StorageError, VmFiles},
    tools::VmTools,
};

/// The time in which QEMU must open its control connection.
const CONNECT: Duration = Duration::from_secs(30);
/// The time in which QEMU must end after it was asked to. The BMC shows `Off` after more than this.
pub(crate) const QUIT: Duration = Duration::from_secs(2);
/// The time for the last events after the end of QEMU.
const LAST_EVENTS: Duration = Duration::from_secs(1);
/// The longest path of a Unix socket.
const MAX_SOCKET_PATH: usize = 107;

/// The URLs of the media in the slots of the BMC, in their order.
pub(crate) type Media = Vec<Option<String>>;

/// The parts that all boots of one machine share.
#[derive(Debug)]
pub(crate) struct VmHost {
    pub(crate) spec: VmSpec,
    pub(crate) tools: VmTools,
    pub(crate) files: VmFiles,
    /// A private folder for the control socket.
    pub(crate) runtime: PathBuf,
    pub(crate) console: VmConsole,
    /// The slots of the BMC.
    pub(crate) slots: Vec<SlotConfig>,
    /// The media in the slots, and their changes.
    pub(crate) changes: watch::Receiver<Media>,
    pub(crate) tracker: TaskTracker,
    pub(crate) power_supply: CancellationToken,
    /// The lock that a running boot holds, so that the next boot waits for its end.
    pub(crate) running: tokio::sync::Mutex<()>,
    /// The power button of the running boot.
    pub(crate) button: Mutex<Option<mpsc::Sender<()>>>,
    /// The serial input of the running boot.
    pub(crate) input: Mutex<Option<std_mpsc::SyncSender<Vec<u8>>>>,
}

/// The reason why a boot did not start.
#[derive(Debug, thiserror::Error)]
enum BootError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("a task of this program was lost")]
    Lost,
    #[error("the control socket {} cannot be used: {reason}; set TMPDIR to a folder with a short path", path.display())]
    Socket { path: PathBuf, reason: String },
    #[error("QEMU cannot be started: {0}")]
    Start(std::io::Error),
}

/// The handle that the simulated BMC has.
pub(crate) struct HostHandle(pub(crate) Arc<VmHost>);

impl Host for HostHandle {
    fn power_on(&self, boot: BootContext) {
        let host = Arc::clone(&self.0);
        let changes = host.changes_from_now();
        self.0.tracker.spawn(async move { host.boot(boot, changes).await });
    }

    fn power_off(&self, _serial: &str) {
        // The cancellation token of the boot is cancelled already, which ends QEMU.
    }

    fn shut_down(&self, _serial: &str) {
        if let Some(button) = &*self.0.button.lock() {
            // One press that waits is as good as two.
            let _waits = button.try_send(());
        }
    }
}

impl VmHost {
    /// The changes of media that count for a boot which begins now: the media of the boot are newer than all before. Taken at the
    /// power-on, so that a medium that is changed while files are prepared and QEMU starts is changed once QEMU can be controlled.
    fn changes_from_now(&self) -> watch::Receiver<Media> {
        let mut changes = self.changes.clone();
        changes.mark_unchanged();
        changes
    }

    async fn boot(&self, boot: BootContext, changes: watch::Receiver<Media>) {
        let _running = self.running.lock().await;
        if boot.cancel.is_cancelled() {
            return;
        }
        let slots = drives(&boot, &self.slots);
        let source = match &boot.boots_from {
            BootSource::Disk => "its disk".to_owned(),
            BootSource::Media { slot, url } => format!("{} in {slot}", url.file_name()),
        };
        self.console.note(&format!("power on, boots {source}"));
        let end = match self.start(&slots).await {
            Ok((process, listener)) => self.run(process, listener, slots, &boot.cancel, changes).await,
            Err(error) => {
                self.console.note(&format!("{error}"));
                End::Failed
            }
        };
        match end {
            End::Cut => self.console.note("power off"),
            End::Off => {
                self.console.note("the system switched the machine off");
                boot.halt();
            }
            End::Restart => {
                self.console.note("the system restarts the machine");
                boot.reboot();
            }
            End::Failed => boot.halt(),
        }
    }

    async fn start(&self, slots: &[SlotDrive]) -> Result<(Process, UnixListener), BootError> {
        let control = self.runtime.join("control");
        let listener = listen(&control)?;
        let (files, spec, ovmf) = (self.files.clone(), self.spec.clone(), self.tools.ovmf.clone());
        let prepared = tokio::task::spawn_blocking(move || {
            let uefi = ovmf.map(|ovmf| files.uefi(&spec, &ovmf)).transpose()?;
            Ok::<_, StorageError>((files.disks(&spec)?, uefi))
        });
        let (disks, uefi) = prepared.await.map_err(|_| BootError::Lost)??;
        let start = VmStart {
            spec: &self.spec,
            acceleration: self.tools.acceleration,
            uefi,
            disks,
            slots: slots.to_vec(),
            control,
        };
        let command = process::command(&self.tools.setpriv, &self.tools.qemu, command::arguments(&start));
        let console = self.console.clone();
        let process = Process::start(command, "vm", move |bytes| console.push(bytes)).await;
        Ok((process.map_err(BootError::Start)?, listener))
    }

    /// Controls QEMU until its process has ended.
    async fn run(
        &self,
        mut process: Process,
        listener: UnixListener,
        slots: Vec<SlotDrive>,
        cancel: &CancellationToken,
        mut changes: watch::Receiver<Media>,
    ) -> End {
        let (button, mut presses) = mpsc::channel(1);
        *self.button.lock() = Some(button);
        *self.input.lock() = Some(process.input());
        let mut run = Run {
            life: Life::new(),
            qmp: None,
            kill_at: None,
            console: &self.console,
            kinds: slots.iter().map(|slot| slot.kind).collect(),
            media: slots.iter().map(|slot| slot.url.clone()).collect(),
        };
        let secrets: Vec<String> = slots.into_iter().filter_map(|slot| slot.url).collect();
        let connect = connect(listener);
        tokio::pin!(connect);
        let mut connecting = true;
        let mut cut = false;
        let exit = loop {
            tokio::select! {
                biased;
                exit = process.wait() => break exit,
                () = cancel.cancelled(), if !cut => {
                    cut = true;
                    run.input(Input::PowerCut, &process).await;
                }
                () = self.power_supply.cancelled(), if !cut => {
                    cut = true;
                    run.input(Input::PowerCut, &process).await;
                }
                () = time_is_up(run.kill_at), if run.kill_at.is_some() => {
                    run.kill_at = None;
                    run.input(Input::TimeIsUp, &process).await;
                }
                connected = &mut connect, if connecting => {
                    connecting = false;
                    run.connected(connected, &process).await;
                }
                event = next_event(&mut run.qmp), if run.qmp.is_some() => run.event(event, &process).await,
                Some(()) = presses.recv() => run.input(Input::PowerButton, &process).await,
                Ok(()) = changes.changed(), if run.qmp.is_some() => {
                    let now = changes.borrow_and_update().clone();
                    run.change_media(now).await;
                }
            }
        };
        run.last_events(&process).await;
        *self.button.lock() = None;
        *self.input.lock() = None;
        let end = run.life.end();
        if end == End::Failed {
            self.explain(&exit, &secrets);
        }
        end
    }

    /// Prints why QEMU ended, without the URLs of media, which are secrets.
    fn explain(&self, exit: &Exit, secrets: &[String]) {
        self.console.note(&format!("QEMU ended unexpectedly ({})", exit.status));
        for line in redact(&exit.stderr, secrets).lines().rev().take(5).collect::<Vec<_>>().into_iter().rev()
        {
            self.console.note(&format!("QEMU: {line}"));
        }
    }
}

/// The drives of a boot: the slots of the BMC with the media that the host has at the start.
fn drives(boot: &BootContext, slots: &[SlotConfig]) -> Vec<SlotDrive> {
    let booted = match &boot.boots_from {
        BootSource::Media { slot, .. } => Some(slot),
        BootSource::Disk => None,
    };
    let drive = |slot: &SlotConfig| {
        let medium = boot.media.iter().find(|medium| medium.slot == slot.id);
        let url = medium.map(|medium| medium.url.as_str().to_owned());
        SlotDrive { kind: slot.kind, boots: url.is_some() && booted == Some(&slot.id), url }
    };
    slots.iter().map(drive).collect()
}

fn redact(text: &str, secrets: &[String]) -> String {
    let file_name = |url: &str| format!("…/{}", url.rsplit('/').next().unwrap_or_default());
    secrets.iter().fold(text.to_owned(), |text, url| text.replace(url.as_str(), &file_name(url)))
}

fn listen(path: &Path) -> Result<UnixListener, BootError> {
    let refuse = |reason: String| BootError::Socket { path: path.to_owned(), reason };
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        return Err(refuse(format!("its path is longer than {MAX_SOCKET_PATH} bytes")));
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(refuse(error.to_string())),
        _ => {}
    }
    UnixListener::bind(path).map_err(|error| refuse(error.to_string()))
}

/// A folder that only this user reaches.
pub(crate) fn private_folder() -> std::io::Result<tempfile::TempDir> {
    let folder = tempfile::Builder::new().prefix("shoal-vm-").tempdir()?;
    // The mode of a folder of `tempfile` depends on the umask.
    std::fs::DirBuilder::new().mode(0o700).create(folder.path().join("vm"))?;
    Ok(folder)
}

async fn connect(listener: UnixListener) -> Result<Qmp<UnixStream>, QmpError> {
    let open = async {
        let (stream, _) = listener.accept().await?;
        Qmp::open(stream).await
    };
    tokio::time::timeout(CONNECT, open).await.unwrap_or(Err(QmpError::TimeOut { command: "the connection" }))
}

async fn next_event(qmp: &mut Option<Qmp<UnixStream>>) -> Result<Event, QmpError> {
    match qmp {
        Some(qmp) => qmp.next_event().await,
        None => std::future::pending().await,
    }
}

async fn time_is_up(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// One running boot.
struct Run<'a> {
    life: Life,
    qmp: Option<Qmp<UnixStream>>,
    /// The time at which QEMU is killed because it did not end.
    kill_at: Option<Instant>,
    console: &'a VmConsole,
    kinds: Vec<MediaKind>,
    /// The media in the drives.
    media: Media,
}

impl Run<'_> {
    async fn input(&mut self, input: Input, process: &Process) {
        match self.life.apply(input) {
            Action::Nothing => {}
            Action::PressButton => {
                self.console.note("power button");
                self.command("system_powerdown").await;
            }
            Action::Quit => {
                self.kill_at = Some(Instant::now() + QUIT);
                // QEMU may end before its response.
                let _ended = tokio::time::timeout(QUIT, self.command("quit")).await;
            }
            Action::Kill => process.kill(),
        }
    }

    async fn command(&mut self, command: &'static str) {
        self.execute(command, json!({})).await;
    }

    /// Carries out a command and notes a refusal. Returns whether it was carried out.
    ///
    /// A connection that is over is not reported here: events that arrived before its end are read first, by
    /// [`Self::event`], since one of them may say why the machine ends.
    async fn execute(&mut self, command: &'static str, arguments: serde_json::Value) -> bool {
        let Some(qmp) = &mut self.qmp else { return false };
        match qmp.execute(command, arguments).await {
            Ok(()) => true,
            Err(error @ (QmpError::Refused { .. } | QmpError::TimeOut { .. })) => {
                let secrets: Vec<String> = self.media.iter().flatten().cloned().collect();
                self.console.note(&redact(&error.to_string(), &secrets));
                false
            }
            Err(error) => {
                tracing::debug!(%error, command, "QEMU closed its control connection");
                false
            }
        }
    }

    async fn connected(&mut self, connected: Result<Qmp<UnixStream>, QmpError>, process: &Process) {
        match connected {
            Ok(qmp) => {
                self.qmp = Some(qmp);
                self.input(Input::Connected, process).await;
            }
            Err(error) => {
                // A QEMU that refuses its arguments ends by itself, with a better reason.
                tracing::debug!(%error, "QEMU opened no control connection");
                self.input(Input::Disconnected, process).await;
            }
        }
    }

    async fn event(&mut self, event: Result<Event, QmpError>, process: &Process) {
        match event {
            Ok(Event::Shutdown(reason)) => self.input(Input::Shutdown(reason), process).await,
            Ok(Event::Stopped) => self.console.note("QEMU stopped the processors"),
            Ok(Event::IoError { device }) => {
                self.console.note(&format!("{device} could not be read or written"))
            }
            Ok(Event::Other(_)) => {}
            Err(_) => {
                self.qmp = None;
                self.input(Input::Disconnected, process).await;
            }
        }
    }

    /// Reads what QEMU sent before it ended. The end of its process may be noticed before its last event is read, and only
    /// that event says whether the system switched the machine off or restarts it.
    async fn last_events(&mut self, process: &Process) {
        let read = async {
            while self.qmp.is_some() {
                let event = next_event(&mut self.qmp).await;
                self.event(event, process).await;
            }
        };
        // The socket is closed at the end of QEMU. The limit is for a process that QEMU left behind with the socket open.
        let _limit = tokio::time::timeout(LAST_EVENTS, read).await;
    }

    /// Changes the media in the drives to those in the slots. A USB stick is not plugged in or out while the machine runs.
    async fn change_media(&mut self, media: Media) {
        for (index, url) in media.into_iter().enumerate() {
            let Some(before) = self.media.get(index).cloned() else { continue };
            if before == url || self.kinds.get(index) == Some(&MediaKind::Usb) {
                continue;
            }
            self.media[index].clone_from(&url);
            self.change_cd(index, before.is_some(), url.as_deref()).await;
        }
    }

    /// Changes the medium of one drive. A command that is refused ends the change.
    async fn change_cd(&mut self, index: usize, full: bool, url: Option<&str>) {
        let (drive, node) = (format!("drive{index}"), command::medium_node(index));
        let mut commands = vec![("blockdev-open-tray", json!({ "id": drive, "force": true }))];
        if full {
            commands.push(("blockdev-remove-medium", json!({ "id": drive })));
            commands.push(("blockdev-del", json!({ "node-name": node })));
        }
        if let Some(url) = url {
            commands.push(("blockdev-add", command::medium(index, url)));
            commands.push(("blockdev-insert-medium", json!({ "id": drive, "node-name": node })));
            commands.push(("blockdev-close-tray", json!({ "id": drive })));
        }
        for (command, arguments) in commands {
            if !self.execute(command, arguments).await {
                return;
            }
        }
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
