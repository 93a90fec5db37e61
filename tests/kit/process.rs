//! The controller as a child process that can be killed and started again on the same data and port.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::scene::LOOPBACK;
use super::{Client, POLL_INTERVAL, TIME_LIMIT, maintenance_iso};

/// Ports for controllers that are started again on the same port. They are below the ephemeral range of the kernel, in which
/// another connection could take the port while the controller is down.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
const FIRST_PORT: u16 = 18_000;
const PORTS: u16 = 10_000;

/// Chooses a port of loopback that a controller can bind again after a restart.
pub(crate) fn free_port() -> u16 {
    // Parallel processes of this test program start at different ports.
    let start = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap();
    loop {
        let step = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + (start + step) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Builds a command of the program with an empty environment.
pub(crate) fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// A data directory and the settings of the controllers that use it one after another.
pub(crate) struct DataDir {
    folder: TempDir,
    program: fn() -> Command,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    base: String,
    starts: usize,
    token: Option<String>,
}

impl DataDir {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let iso = maintenance_iso(folder.path());
        let data = folder.path().join("data");
        let environment = [
            ("STORAGE_ROOT", data.display().to_string()),
            ("CONTROLLER_HTTP_ADDR", address.clone()),
            ("CONTROLLER_HTTPS_ADDR", "127.0.0.1:0".to_owned()),
            ("MAINTENANCE_ISO_URL", iso.display().to_string()),
            ("FETCH_ALLOW_CIDRS", LOOPBACK.to_owned()),
            ("LOG_LEVEL", "trace".to_owned()),
            ("LOG_FORMAT", "json".to_owned()),
        ];
        let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self {
            folder,
            program: || binary(&["serve"]),
            arguments: Vec::new(),
            environment,
            base: format!("http://{address}"),
            starts: 0,
            token: None,
        }
    }

    /// Replaces the program. It must print its first admin token as `shoal serve` does.
    pub(crate) fn run_by(mut self, program: fn() -> Command) -> Self {
        self.program = program;
        self
    }

    /// Adds one setting.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds arguments of the program.
    pub(crate) fn given(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn output(&self, start: usize, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}-{start}"))
    }

    /// Reads all that the controllers wrote to standard output and standard error.
    pub(crate) fn logs(&self) -> String {
        let outputs =
            (1..=self.starts).flat_map(|start| ["stdout", "stderr"].map(|name| self.output(start, name)));
        // A controller whose standard error is no file has no such output.
        outputs
            .map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned())
            .collect()
    }

    /// Builds the command that serves this directory.
    pub(crate) fn command(&self) -> Command {
        let mut command = (self.program)();
        command.args(&self.arguments).envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Builds another command of the program with the settings of this directory.
    pub(crate) fn command_of(&self, arguments: &[&str]) -> Command {
        let mut command = binary(arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The base URL of the controllers.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Starts a controller and waits until it responds.
    pub(crate) async fn serve(&mut self) -> ControllerProcess {
        let stderr = File::create(self.output(self.starts + 1, "stderr")).unwrap();
        self.serve_logging_to(stderr).await
    }

    /// Starts a controller with this standard error and waits until it responds.
    pub(crate) async fn serve_logging_to(&mut self, stderr: impl Into<Stdio>) -> ControllerProcess {
        self.starts += 1;
        let stdout = File::create(self.output(self.starts, "stdout")).unwrap();
        let child = self.command().stdout(stdout).stderr(stderr).spawn().unwrap();
        let mut served =
            ControllerProcess { child: Some(child), admin: Client::anonymous(self.base.clone()) };
        let deadline = Instant::now() + TIME_LIMIT;
        loop {
            let request = served.admin.request(reqwest::Method::GET, "/healthz");
            if served.admin.try_send(request).await.is_ok_and(|response| response.status == 200) {
                break;
            }
            assert!(served.running(), "the controller ended:\n{}", self.logs());
            assert!(Instant::now() < deadline, "the controller does not respond:\n{}", self.logs());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        served.admin = served.admin.with_token(self.admin_token());
        served
    }

    /// The admin token, which the first start prints before the controller responds.
    fn admin_token(&mut self) -> &str {
        let first = self.output(1, "stdout");
        self.token.get_or_insert_with(|| {
            let printed = std::fs::read_to_string(first).unwrap();
            let rest = printed.split_once("shown only now: ").and_then(|(_, rest)| rest.split_once('\n'));
            rest.unwrap_or_else(|| panic!("no admin token was printed: {printed:?}")).0.to_owned()
        })
    }
}

/// A running controller process. It is killed when this is dropped.
pub(crate) struct ControllerProcess {
    child: Option<Child>,
    pub(crate) admin: Client,
}

impl ControllerProcess {
    pub(crate) fn running(&mut self) -> bool {
        matches!(self.child.as_mut().unwrap().try_wait(), Ok(None))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Ends the process with SIGKILL, so that it runs no shutdown code.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }

    /// Ends the process with SIGTERM and returns its exit status.
    pub(crate) async fn terminate(self) -> ExitStatus {
        self.end_by(Signal::TERM).await
    }

    /// Ends the process with a signal and returns its exit status.
    pub(crate) async fn end_by(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        let mut child = self.child.take().unwrap();
        tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap()
    }
}

impl Drop for ControllerProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // The process may have ended already; then there is nothing to kill.
            let _gone = child.kill();
            child.wait().unwrap();
        }
    }
}
