//! The programs under measurement, each a process of its own: what they use is read from `/proc`, and they can be killed.
//!
//! Invariants: a process ends with its value; whatever happens here, none is left running.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::client::Api;

/// How long a process may take to answer first.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is said on the line that shows the admin token.
const TOKEN_LINE: &str = "shown only now: ";

/// A child process; dropped, it is killed.
struct Process {
    child: Child,
}

impl Process {
    fn start(command: &mut Command) -> anyhow::Result<(Self, BufReader<ChildStdout>)> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start this program once more")?;
        let output = child.stdout.take().context("the output of a started program")?;
        Ok((Self { child }, BufReader::new(output)))
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
    }

    /// The processor time it has used, its own and the system's for it.
    fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = self.proc("stat")?;
        // The name of the program, in parentheses, may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
        Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100))
    }

    /// Resident memory in bytes.
    fn memory(&self) -> anyhow::Result<u64> {
        let status = self.proc("status")?;
        let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        Ok(kib.and_then(|kib| kib.trim().parse::<u64>().ok()).context("VmRSS")? * 1024)
    }

    fn open_files(&self) -> anyhow::Result<usize> {
        let path = format!("/proc/{}/fd", self.child.id());
        Ok(std::fs::read_dir(&path).with_context(|| format!("read {path}"))?.count())
    }
}

impl Process {
    fn kill(&mut self) {
        // It may have ended by itself: then there is nothing to end.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A controller on a data directory.
pub(super) struct Controller {
    process: Process,
    /// Its API under the admin token.
    pub(super) api: Api,
    /// From the start of the process to its first answer.
    pub(super) first_answer: Duration,
}

/// Where the controllers of a run work, one after another.
pub(super) struct Place {
    folder: PathBuf,
    port: u16,
    token: Option<SecretString>,
    /// The shared secret under which the measurement reports in place of hosts.
    pub(super) webhook_secret: SecretString,
    workers: usize,
}

impl Place {
    /// A place in a folder. The port is free now, and below those the system gives to connections.
    pub(super) fn new(folder: &Path, workers: usize, secret: SecretString) -> anyhow::Result<Self> {
        let port = (18_000..28_000)
            .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
            .context("no free port on loopback")?;
        Ok(Self { folder: folder.to_owned(), port, token: None, webhook_secret: secret, workers })
    }

    /// Starts a controller as `shoal serve` would be started, and waits for its first answer.
    pub(super) async fn start(&mut self, iso: &Path) -> anyhow::Result<Controller> {
        let base = format!("http://127.0.0.1:{}", self.port);
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.env_clear().arg("serve").envs([
            ("STORAGE_ROOT", self.folder.join("data").into_os_string()),
            ("CONTROLLER_HTTP_ADDR", format!("127.0.0.1:{}", self.port).into()),
            ("MAINTENANCE_ISO_URL", iso.as_os_str().to_owned()),
            ("WORKER_CONCURRENCY", self.workers.to_string().into()),
            ("WEBHOOK_SECRET", "env:BENCH_WEBHOOK_SECRET".into()),
            ("BENCH_WEBHOOK_SECRET", self.webhook_secret.expose_secret().into()),
            // What is measured is the controller, not the politeness towards BMCs.
            ("REDFISH_RATE", "0".into()),
            ("LOG_LEVEL", "warn".into()),
        ]);
        let began = Instant::now();
        let (process, mut output) = Process::start(&mut command)?;
        let anonymous = Api::new(&base, None)?;
        while !anonymous.is_up().await {
            if began.elapsed() > PATIENCE {
                bail!("the controller does not answer");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let first_answer = began.elapsed();
        if self.token.is_none() {
            let mut line = String::new();
            while !line.contains(TOKEN_LINE) {
                line.clear();
                let read = (&mut output).take(4096).read_line(&mut line).context("read the admin token")?;
                if read == 0 {
                    bail!("the controller showed no admin token");
                }
            }
            let token = line.split(TOKEN_LINE).nth(1).unwrap_or_default().trim().to_owned();
            self.token = Some(SecretString::from(token));
        }
        Ok(Controller { process, api: Api::new(&base, self.token.clone())?, first_answer })
    }
}

impl Controller {
    /// The end that nobody can prepare for: SIGKILL.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        self.process.cpu()
    }

    pub(super) fn memory(&self) -> anyhow::Result<u64> {
        self.process.memory()
    }

    pub(super) fn open_files(&self) -> anyhow::Result<usize> {
        self.process.open_files()
    }
}

/// One simulated server.
pub(super) struct Bmc {
    pub(super) serial: String,
    pub(super) address: String,
}

/// Simulated servers whose hosts do nothing, in a process of their own.
pub(super) struct Fleet {
    process: Process,
    pub(super) bmcs: Vec<Bmc>,
}

impl Fleet {
    /// Starts so many servers.
    pub(super) fn start(servers: usize, folder: &Path, password: &SecretString) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command
            .args(["sim", "--json", "--idle-hosts", "--time", "0", "--servers", &servers.to_string()])
            .arg("--disks")
            .arg(folder.join("disks"))
            .env_clear()
            .env("SHOAL_SIM_PASSWORD", password.expose_secret());
        let (process, output) = Process::start(&mut command)?;
        let mut bmcs = Vec::with_capacity(servers);
        for line in output.lines().take(servers) {
            let shown: Value = serde_json::from_str(&line.context("read the list of simulated servers")?)?;
            let text = |name: &str| shown[name].as_str().unwrap_or_default().to_owned();
            bmcs.push(Bmc { serial: text("serial"), address: text("bmc_address") });
        }
        if bmcs.len() < servers {
            bail!("{} of {servers} simulated servers started: are so many open files allowed?", bmcs.len());
        }
        Ok(Self { process, bmcs })
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        self.process.cpu()
    }
}
