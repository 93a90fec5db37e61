//! The measured programs. Each is a separate process: its resource use is read from `/proc`, and it can be killed.
//!
//! Invariant: dropping a value kills its process, so no process is left running.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::client::Api;

/// The time within which a controller must respond after its start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The text before the admin token in the output of a controller.
const TOKEN_LINE: &str = "shown only now: ";

/// A child process. Dropping the value kills it.
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
            .context("start this program as a child process")?;
        let output = child.stdout.take().context("open the output of the child process")?;
        Ok((Self { child }, BufReader::new(output)))
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).with_context(|| format!("read {path}"))
    }

    /// The processor time of the process, in user and kernel mode.
    fn cpu(&self) -> anyhow::Result<Duration> {
        let stat = self.proc("stat")?;
        // The name of the program, in parentheses, may contain spaces.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
        Ok(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap_or(100))
    }

    /// Resident memory in bytes.
    fn memory(&self) -> anyhow::Result<u64> {
        self.status("VmRSS:")
    }

    /// An amount of memory of the process in bytes.
    fn status(&self, name: &'static str) -> anyhow::Result<u64> {
        let status = self.proc("status")?;
        let kib = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
        Ok(kib.and_then(|kib| kib.trim().parse::<u64>().ok()).context(name)? * 1024)
    }

    /// The most resident memory so far, in bytes.
    fn peak_memory(&self) -> anyhow::Result<u64> {
        self.status("VmHWM:")
    }

    fn open_files(&self) -> anyhow::Result<usize> {
        let path = format!("/proc/{}/fd", self.child.id());
        Ok(std::fs::read_dir(&path).with_context(|| format!("read {path}"))?.count())
    }
}

impl Process {
    fn kill(&mut self) {
        // If the process has already ended, there is nothing to kill.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A running controller.
pub(super) struct Controller {
    process: Process,
    /// The API of the controller, with the admin token.
    pub(super) api: Api,
    /// Time from the start of the process to its first response.
    pub(super) first_response: Duration,
}

/// Data directory, port and secrets of the controllers of a benchmark, which run one after another.
pub(super) struct BenchHome {
    folder: PathBuf,
    port: u16,
    token: Option<SecretString>,
    /// The report secret, with which the benchmark sends reports in place of the hosts.
    pub(super) webhook_secret: SecretString,
    workers: usize,
}

impl BenchHome {
    /// Chooses a free port below the range of ephemeral ports.
    pub(super) fn new(folder: &Path, workers: usize, secret: SecretString) -> anyhow::Result<Self> {
        let port = (18_000..28_000)
            .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
            .context("no free port on loopback")?;
        Ok(Self { folder: folder.to_owned(), port, token: None, webhook_secret: secret, workers })
    }

    /// Starts a controller with `shoal serve` and waits for its first response.
    pub(super) async fn start(&mut self, iso: &Path) -> anyhow::Result<Controller> {
        let base = format!("http://127.0.0.1:{}", self.port);
        let mut command = Command::new(std::env::current_exe().context("find this program")?);
        command.env_clear().arg("serve").envs([
            ("STORAGE_ROOT", self.folder.join("data").into_os_string()),
            ("CONTROLLER_HTTP_ADDR", format!("127.0.0.1:{}", self.port).into()),
            ("CONTROLLER_HTTPS_ADDR", "off".into()),
            ("MAINTENANCE_ISO_URL", iso.as_os_str().to_owned()),
            ("WORKER_CONCURRENCY", self.workers.to_string().into()),
            ("WEBHOOK_SECRET", "env:BENCH_WEBHOOK_SECRET".into()),
            ("BENCH_WEBHOOK_SECRET", self.webhook_secret.expose_secret().into()),
            // No rate limit for BMCs: only the controller is measured.
            ("REDFISH_RATE", "0".into()),
            ("LOG_LEVEL", "warn".into()),
        ]);
        let began = Instant::now();
        let (process, mut output) = Process::start(&mut command)?;
        let anonymous = Api::new(&base, None)?;
        while !anonymous.is_up().await {
            if began.elapsed() > START_TIMEOUT {
                bail!("the controller does not respond");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let first_response = began.elapsed();
        if self.token.is_none() {
            let mut line = String::new();
            while !line.contains(TOKEN_LINE) {
                line.clear();
                let read = (&mut output).take(4096).read_line(&mut line).context("read the admin token")?;
                if read == 0 {
                    bail!("the controller printed no admin token");
                }
            }
            let token = line.split(TOKEN_LINE).nth(1).unwrap_or_default().trim().to_owned();
            self.token = Some(SecretString::from(token));
        }
        Ok(Controller { process, api: Api::new(&base, self.token.clone())?, first_response })
    }
}

impl Controller {
    /// Kills the controller with SIGKILL.
    pub(super) fn kill(&mut self) {
        self.process.kill();
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        self.process.cpu()
    }

    pub(super) fn memory(&self) -> anyhow::Result<u64> {
        self.process.memory()
    }

    pub(super) fn peak_memory(&self) -> anyhow::Result<u64> {
        self.process.peak_memory()
    }

    pub(super) fn open_files(&self) -> anyhow::Result<usize> {
        self.process.open_files()
    }
}

/// The BMC of a simulated server.
pub(super) struct Bmc {
    pub(super) serial: String,
    pub(super) address: String,
}

/// A process with simulated servers whose hosts do nothing.
pub(super) struct SimProcess {
    process: Process,
    pub(super) bmcs: Vec<Bmc>,
}

impl SimProcess {
    /// Starts `servers` simulated servers.
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
            bail!("{} of {servers} simulated servers started; check the limit of open files", bmcs.len());
        }
        Ok(Self { process, bmcs })
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Duration> {
        self.process.cpu()
    }
}
