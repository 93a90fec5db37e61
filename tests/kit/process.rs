//! The controller as a process of its own, which can be killed and started again on the same data and port.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Client, LOOK, PATIENCE, maintenance_iso};

/// Ports for controllers that come back on the same one: below those the kernel gives to connections by itself, where
/// another connection could take the port while the controller is down.
static NEXT_PORT: AtomicU16 = AtomicU16::new(0);
const FIRST_PORT: u16 = 18_000;
const PORTS: u16 = 10_000;

fn free_port() -> u16 {
    // Runs of this test program beside each other begin at different places.
    let start = u16::try_from(std::process::id() % u32::from(PORTS)).unwrap();
    loop {
        let step = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
        let port = FIRST_PORT + (start + step) % PORTS;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The program with an environment of its own and nothing else.
pub(crate) fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.args(arguments).env_clear().stdin(Stdio::null());
    command
}

/// A data directory, and the settings of the controllers that work on it one after another.
pub(crate) struct DataDir {
    folder: TempDir,
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
            ("MAINTENANCE_ISO_URL", iso.display().to_string()),
            ("LOG_LEVEL", "trace".to_owned()),
            ("LOG_FORMAT", "json".to_owned()),
        ];
        let environment = environment.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { folder, environment, base: format!("http://{address}"), starts: 0, token: None }
    }

    /// The same with one more setting.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn output(&self, start: usize, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}-{start}"))
    }

    /// All that the controllers wrote so far, to both of their outputs.
    pub(crate) fn logs(&self) -> String {
        let outputs =
            (1..=self.starts).flat_map(|start| ["stdout", "stderr"].map(|name| self.output(start, name)));
        outputs.map(|path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()).collect()
    }

    /// The command that serves this directory.
    pub(crate) fn command(&self) -> Command {
        let mut command = binary(&["serve"]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts a controller and waits until it answers.
    pub(crate) async fn serve(&mut self) -> Served {
        self.starts += 1;
        let open = |name: &str| File::create(self.output(self.starts, name)).unwrap();
        let child = self.command().stdout(open("stdout")).stderr(open("stderr")).spawn().unwrap();
        let mut served = Served { child: Some(child), admin: Client::anonymous(self.base.clone()) };
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = served.admin.request(reqwest::Method::GET, "/healthz");
            if served.admin.try_send(request).await.is_ok_and(|answer| answer.status == 200) {
                break;
            }
            assert!(served.running(), "the controller ended:\n{}", self.logs());
            assert!(Instant::now() < deadline, "the controller does not answer:\n{}", self.logs());
            tokio::time::sleep(LOOK).await;
        }
        served.admin = served.admin.with_token(&self.admin_token().await);
        served
    }

    /// The admin token, printed at the first start only. The API may answer a moment before it is printed.
    async fn admin_token(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        while self.token.is_none() {
            let printed = std::fs::read_to_string(self.output(1, "stdout")).unwrap();
            let rest = printed.split_once("shown only now: ").map(|(_, rest)| rest.split_once('\n'));
            self.token = rest.flatten().map(|(token, _)| token.to_owned());
            assert!(Instant::now() < deadline, "no admin token was shown:\n{printed}");
            tokio::time::sleep(LOOK).await;
        }
        self.token.clone().unwrap()
    }
}

/// A running controller; dropped, it is killed.
pub(crate) struct Served {
    child: Option<Child>,
    pub(crate) admin: Client,
}

impl Served {
    fn running(&mut self) -> bool {
        matches!(self.child.as_mut().unwrap().try_wait(), Ok(None))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The end that nobody can prepare for: SIGKILL.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// The polite end: SIGTERM; answers with what the process said by its exit.
    pub(crate) async fn terminate(mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::TERM).unwrap();
        tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself; then there is nothing to kill.
            let _gone = child.kill();
            child.wait().unwrap();
        }
    }
}
