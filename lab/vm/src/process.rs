//! A foreign program that never outlives this one.
//!
//! ```text
//!   thread: start ─ read standard output ─ wait for the end        kill: a signal to the file descriptor of the process,
//!   thread: read standard error                                   which never means another process
//!   thread: write standard input
//! ```
//!
//! `setpriv` makes the kernel kill the program when the thread that started it ends. That thread waits for the program, so
//! it ends before only together with this whole program, however that ends.

use std::{
    ffi::OsStr,
    io::{self, Read, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::sync::oneshot;

/// The newest bytes of standard error that are kept.
const MAX_STDERR: usize = 8 * 1024;
/// The time for the last bytes of standard error after the end of the program.
const ERRORS_TIME: Duration = Duration::from_secs(1);
/// Pieces of input that wait for the program.
const INPUT: usize = 64;

/// The end of a program: its status and its errors.
#[derive(Clone, Debug)]
pub(crate) struct Exit {
    /// Whether the exit code of the program was 0.
    pub(crate) success: bool,
    /// The code or signal, as text.
    pub(crate) status: String,
    /// The newest part of the standard error of the program.
    pub(crate) stderr: String,
}

/// A running program. Dropping this kills it.
#[derive(Debug)]
pub(crate) struct Process {
    handle: OwnedFd,
    input: mpsc::SyncSender<Vec<u8>>,
    exit: oneshot::Receiver<Exit>,
}

/// The command that starts `program` and kills it with this program.
pub(crate) fn command(
    setpriv: &Path,
    program: &Path,
    arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> Command {
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(arguments);
    // Messages are read by this program, in English.
    command.env("LC_ALL", "C");
    // A signal from the terminal ends this program, which then ends the machine in order.
    command.process_group(0);
    command
}

impl Process {
    /// Starts a program. `output` receives its standard output.
    pub(crate) async fn start(
        mut command: Command,
        name: &str,
        output: impl FnMut(&[u8]) + Send + 'static,
    ) -> io::Result<Self> {
        let (started, start) = oneshot::channel();
        let (ended, exit) = oneshot::channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let (child, opened) = match open(&mut command) {
                Ok(opened) => opened,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let Opened { handle, input, errors, errors_end } = opened;
            let _ = started.send(Ok((handle, input)));
            let status = supervise(child, output);
            // A program that it started may keep standard error open.
            let _end = errors_end.recv_timeout(ERRORS_TIME);
            let stderr = String::from_utf8_lossy(&errors.lock()).into_owned();
            let _ = ended.send(match status {
                Ok(status) => Exit { success: status.success(), status: status.to_string(), stderr },
                Err(error) => Exit { success: false, status: error.to_string(), stderr },
            });
        })?;
        let (handle, input) =
            start.await.map_err(|_| io::Error::other("the thread of the program ended"))??;
        Ok(Self { handle, input, exit })
    }

    /// Kills the program. Does nothing if it has ended.
    pub(crate) fn kill(&self) {
        // The only error is that the process has ended.
        let _ended = pidfd_send_signal(&self.handle, Signal::KILL);
    }

    /// The standard input. Text is refused while the program reads none.
    pub(crate) fn input(&self) -> mpsc::SyncSender<Vec<u8>> {
        self.input.clone()
    }

    /// Waits for the end. Dropping the future changes nothing; after the end it must not be called again.
    pub(crate) async fn wait(&mut self) -> Exit {
        let lost = |_| Exit { success: false, status: "unknown".to_owned(), stderr: String::new() };
        (&mut self.exit).await.unwrap_or_else(lost)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The parts of a started program that this program uses.
struct Opened {
    handle: OwnedFd,
    input: mpsc::SyncSender<Vec<u8>>,
    errors: Arc<Mutex<Vec<u8>>>,
    /// Closed after the last byte of standard error.
    errors_end: mpsc::Receiver<()>,
}

impl Opened {
    /// Opens the process and starts the threads of its input and errors.
    fn of(child: &mut Child) -> io::Result<Self> {
        // The process was not waited for, so its number is still its own.
        let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let stdin = child.stdin.take().ok_or_else(|| io::Error::other("no standard input"))?;
        let stderr = child.stderr.take().ok_or_else(|| io::Error::other("no standard error"))?;
        let (input, pieces) = mpsc::sync_channel(INPUT);
        thread::Builder::new().name("vm-input".to_owned()).spawn(move || write_input(stdin, &pieces))?;
        let errors = Arc::new(Mutex::new(Vec::new()));
        let (end, errors_end) = mpsc::sync_channel(0);
        let keep = Arc::clone(&errors);
        thread::Builder::new().name("vm-errors".to_owned()).spawn(move || {
            keep_errors(stderr, &keep);
            drop(end);
        })?;
        Ok(Self { handle, input, errors, errors_end })
    }
}

/// Starts the program. After an error it has ended.
fn open(command: &mut Command) -> io::Result<(Child, Opened)> {
    let mut child = command.spawn()?;
    match Opened::of(&mut child) {
        Ok(opened) => Ok((child, opened)),
        Err(error) => {
            let _ended = child.kill();
            let _ended = child.wait();
            Err(error)
        }
    }
}

fn write_input(mut stdin: impl Write, pieces: &mpsc::Receiver<Vec<u8>>) {
    for piece in pieces {
        if stdin.write_all(&piece).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

fn keep_errors(mut stderr: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = stderr.read(&mut buffer) {
        let mut kept = kept.lock();
        kept.extend_from_slice(&buffer[..length]);
        let surplus = kept.len().saturating_sub(MAX_STDERR);
        kept.drain(..surplus);
    }
}

/// Passes standard output on and waits for the end.
fn supervise(mut child: Child, mut output: impl FnMut(&[u8])) -> io::Result<ExitStatus> {
    if let Some(mut stdout) = child.stdout.take() {
        let mut buffer = [0; 4096];
        loop {
            match stdout.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => output(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }
    child.wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cat(arguments: &[&str]) -> Command {
        command(Path::new("setpriv"), Path::new("cat"), arguments)
    }

    #[tokio::test]
    async fn input_and_output_are_connected_and_the_end_is_noticed() {
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let output = move |bytes: &[u8]| drop(sender.send(bytes.to_vec()));
        let mut process = Process::start(cat(&[]), "test", output).await.unwrap();
        process.input().send(b"hello".to_vec()).unwrap();
        assert_eq!(receiver.recv().await.unwrap(), b"hello");
        process.kill();
        let exit = process.wait().await;
        assert!(!exit.success && exit.status.contains("signal"), "{exit:?}");
    }

    #[tokio::test]
    async fn errors_of_the_program_and_a_missing_program_are_reported() {
        let mut process = Process::start(cat(&["/does/not/exist"]), "test", |_| {}).await.unwrap();
        let exit = process.wait().await;
        assert!(!exit.success && exit.stderr.contains("No such file"), "{exit:?}");
        let missing = command(Path::new("/does/not/exist"), Path::new("cat"), [""; 0]);
        let error = Process::start(missing, "test", |_| {}).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_program_ends_when_its_handle_is_dropped() {
        let (sender, receiver) = oneshot::channel::<()>();
        let mut sender = Some(sender);
        let output = move |_: &[u8]| drop(sender.take());
        let process = Process::start(cat(&[]), "test", output).await.unwrap();
        drop(process);
        // The sender is dropped with the thread that waited for the program.
        receiver.await.unwrap_err();
    }
}
