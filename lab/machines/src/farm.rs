//! A simulated data centre: machines with a simulated BMC, whose hosts run a simulated maintenance OS.
//!
//! ```text
//!              controller
//!                 │ Redfish, one address per machine            ┌──────────── media, registry, webhook
//!                 ▼                                             │             over HTTP
//!   ┌──────── SimulatedServer ────────┐    power_on(media)   ┌──┴────────────┐
//!   │ SimBmc on 127.0.0.1:PORT ─ Host ┼────────────────────► │ MaintenanceOs │ ──► disk files
//!   │                                 │    power_on(disk)    ├───────────────┤
//!   │ history of boots ◄──────────────┼───────────────────── │ disk::verify  │ boots, or finds it blank
//!   └─────────────────────────────────┘                      └───────────────┘
//! ```
//!
//! Invariants: a machine runs one boot at a time; the next begins only when the last one's work has ended. Every boot
//! ends as one [`BootRecord`] in a bounded history. Nothing here asks whether a controller is a demo's.

use std::{
    collections::VecDeque,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use lab_bmc::{
    BootContext, BootSource, Host, HttpMediaReader, MediaReader, MediaReaderError, NullHost, ServeError,
    SimBmc, SimBmcConfig, SimBmcServer,
};
use thiserror::Error;
use tokio::{
    net::TcpListener,
    sync::{Mutex, broadcast, watch},
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    console::{Console, ConsoleLine},
    disk::Installed,
    http::HttpError,
    machine::{DiskSpec, Machine, NoBootableDisk},
    maintenance_os::{
        AfterReport, InstallResult, InstallerBehaviour, MaintenanceOs, MediaBoot, Medium, Tools, unit,
    },
};

/// Boots a machine remembers.
const HISTORY: usize = 64;

/// A farm to be started.
#[derive(Clone, Debug)]
pub struct FarmConfig {
    /// The machines.
    pub servers: Vec<ServerSpec>,
    /// Account of every BMC.
    pub bmc_username: String,
    /// Password of every BMC.
    pub bmc_password: secrecy::SecretString,
    /// Where disk files go.
    pub disk_dir: PathBuf,
    /// Address the BMCs listen on.
    pub address: IpAddr,
    /// Port of the first BMC, the others follow; ephemeral ports when absent.
    pub base_port: Option<u16>,
    /// Whether the BMCs speak TLS, each with a certificate of its own.
    pub https: bool,
}

impl FarmConfig {
    /// Machines on loopback with ephemeral ports.
    #[must_use]
    pub fn new(
        servers: Vec<ServerSpec>,
        bmc_username: impl Into<String>,
        bmc_password: secrecy::SecretString,
        disk_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            servers,
            bmc_username: bmc_username.into(),
            bmc_password,
            disk_dir: disk_dir.into(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            base_port: None,
            https: false,
        }
    }
}

/// One machine of a farm.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Serial the BMC shows.
    pub serial: String,
    /// Serial DMI shows; the BMC's when absent.
    pub dmi_serial: Option<String>,
    /// How its installer behaves.
    pub behaviour: InstallerBehaviour,
    /// Its disks, in boot order.
    pub disks: Vec<DiskSpec>,
    /// Its BMC; a strict standard one with the farm's account when absent.
    pub bmc: Option<Box<SimBmcConfig>>,
    /// What its host does.
    pub host: HostKind,
}

/// What the host of a machine does once it has power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostKind {
    /// Starts what its firmware finds: a maintenance OS or a disk.
    #[default]
    Boots,
    /// Has power, and nothing else: a controller is measured, not hosts.
    Idles,
}

impl ServerSpec {
    /// An honest machine with the usual disks behind a standard BMC.
    #[must_use]
    pub fn new(serial: impl Into<String>) -> Self {
        Self {
            serial: serial.into(),
            dmi_serial: None,
            behaviour: InstallerBehaviour::default(),
            disks: Machine::usual_disks(),
            bmc: None,
            host: HostKind::default(),
        }
    }
}

/// Why a farm did not start.
#[derive(Debug, Error)]
pub enum FarmError {
    /// The HTTP clients could not be made.
    #[error("starting the simulated machines")]
    Http(#[from] HttpError),
    /// The media reader of the simulated BMCs could not be created.
    #[error("starting the simulated BMCs")]
    MediaReader(#[from] MediaReaderError),
    /// A port is not free.
    #[error("listening on {address} for the BMC of {serial}; choose another base port")]
    Listen {
        /// The machine.
        serial: String,
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A simulated BMC could not be served.
    #[error("serving the BMC of {serial}")]
    Serve {
        /// The machine.
        serial: String,
        /// Why.
        #[source]
        source: ServeError,
    },
    /// Two machines with one serial, or more machines than ports.
    #[error("the farm's configuration: {rule}")]
    Config {
        /// Which rule is broken.
        rule: String,
    },
}

/// What a boot came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootResult {
    /// The maintenance OS ran.
    Maintenance(InstallResult),
    /// The machine started what is on this disk.
    Disk {
        /// The device.
        device: String,
        /// What is on it.
        installed: Box<Installed>,
    },
    /// The machine found nothing to start.
    Blank(NoBootableDisk),
}

/// One boot of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootRecord {
    /// Counts the boots of the machine.
    pub generation: u64,
    /// What it came to.
    pub result: BootResult,
}

/// A running farm; dropping it stops the BMCs, [`Farm::shutdown`] also waits.
#[derive(Debug)]
pub struct Farm {
    servers: Vec<SimulatedServer>,
    console: Console,
    tracker: TaskTracker,
    /// Dropped, it cuts the power of every machine.
    power_supply: DropGuard,
}

/// A machine of a running farm.
#[derive(Debug)]
pub struct SimulatedServer {
    /// Serial the BMC shows.
    pub serial: String,
    /// Where its BMC answers, such as `http://127.0.0.1:8443`.
    pub bmc_url: String,
    /// Its BMC.
    pub bmc: SimBmc,
    machine: Arc<Machine>,
    history: watch::Receiver<VecDeque<BootRecord>>,
    server: SimBmcServer,
}

impl Farm {
    /// Starts all machines. They are off, unless the configuration of their BMC says otherwise.
    ///
    /// # Errors
    /// When a port is taken or the configuration breaks a rule.
    pub async fn start(config: FarmConfig) -> Result<Self, FarmError> {
        let reader: Arc<dyn MediaReader> = Arc::new(HttpMediaReader::new()?);
        let context = FarmContext {
            tools: Tools::new()?,
            console: Console::default(),
            tracker: TaskTracker::new(),
            power_supply: CancellationToken::new(),
        };
        let mut servers = Vec::with_capacity(config.servers.len());
        let mut seen = std::collections::BTreeSet::new();
        for (index, spec) in config.servers.iter().enumerate() {
            if !seen.insert(&spec.serial) {
                return Err(FarmError::Config {
                    rule: format!("two machines have the serial {}", spec.serial),
                });
            }
            let address = SocketAddr::new(config.address, port(config.base_port, index)?);
            let listener = TcpListener::bind(address).await.map_err(|source| FarmError::Listen {
                serial: spec.serial.clone(),
                address,
                source,
            })?;
            servers.push(start(&config, spec, listener, &reader, &context)?);
        }
        Ok(Self {
            servers,
            console: context.console,
            tracker: context.tracker,
            power_supply: context.power_supply.drop_guard(),
        })
    }

    /// The machines, in the order of the configuration.
    #[must_use]
    pub fn servers(&self) -> &[SimulatedServer] {
        &self.servers
    }

    /// The machine of this serial.
    #[must_use]
    pub fn server(&self, serial: &str) -> Option<&SimulatedServer> {
        self.servers.iter().find(|server| server.serial == serial)
    }

    /// What all machines print from now on.
    #[must_use]
    pub fn console(&self) -> broadcast::Receiver<ConsoleLine> {
        self.console.subscribe()
    }

    /// Cuts the power of all machines and waits until nothing of them runs.
    pub async fn shutdown(self) {
        for server in self.servers {
            server.server.stop().await;
        }
        drop(self.power_supply);
        self.tracker.close();
        self.tracker.wait().await;
    }
}

impl SimulatedServer {
    /// Whether the host is powered on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.bmc.snapshot().power == lab_bmc::Power::On
    }

    /// The boots so far, oldest first; only ended ones.
    #[must_use]
    pub fn history(&self) -> Vec<BootRecord> {
        self.history.borrow().iter().cloned().collect()
    }

    /// Waits until a boot satisfies `wanted`; bound it with a timeout. `None` when the farm is gone.
    pub async fn wait_for_boot(&self, wanted: impl Fn(&BootRecord) -> bool) -> Option<BootRecord> {
        let mut history = self.history.clone();
        let boots = history.wait_for(|boots| boots.iter().any(&wanted)).await.ok()?;
        boots.iter().find(|boot| wanted(boot)).cloned()
    }

    /// What the firmware would start from disk now. Reads and hashes the disks: use a blocking thread.
    ///
    /// # Errors
    /// With a reason for every disk when none is bootable.
    pub fn boots_from_disk(&self) -> Result<(String, Installed), NoBootableDisk> {
        self.machine.boot_from_disk()
    }

    /// The machine behind the BMC.
    #[must_use]
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }
}

fn port(base: Option<u16>, index: usize) -> Result<u16, FarmError> {
    let Some(base) = base else { return Ok(0) };
    let port = u16::try_from(index).ok().and_then(|index| base.checked_add(index));
    port.ok_or_else(|| FarmError::Config {
        rule: format!("there is no port {base} + {index}; use a lower base port"),
    })
}

fn start(
    config: &FarmConfig,
    spec: &ServerSpec,
    listener: TcpListener,
    reader: &Arc<dyn MediaReader>,
    context: &FarmContext,
) -> Result<SimulatedServer, FarmError> {
    use secrecy::ExposeSecret;
    let dmi_serial = spec.dmi_serial.as_deref().unwrap_or(&spec.serial);
    // The directory follows the BMC's serial: it is unique in the farm, a wrong DMI serial need not be.
    let mut machine = Machine::new(&spec.serial, spec.disks.clone(), &config.disk_dir);
    dmi_serial.clone_into(&mut machine.serial);
    let machine = Arc::new(machine);
    let (sender, history) = watch::channel(VecDeque::new());
    let (tools, console) = (context.tools.clone(), context.console.clone());
    let host = Arc::new(MachineHost {
        os: MaintenanceOs::new(Arc::clone(&machine), spec.behaviour.clone(), tools, console),
        after_report: spec.behaviour.after_report,
        machine: Arc::clone(&machine),
        history: sender,
        running: Mutex::default(),
        context: context.clone(),
    });
    let bmc_config = spec.bmc.as_deref().cloned().unwrap_or_else(|| {
        SimBmcConfig::new(&spec.serial, &config.bmc_username, config.bmc_password.expose_secret())
    });
    let host: Arc<dyn Host> = match spec.host {
        HostKind::Boot => Arc::new(HostHandle(host)),
        HostKind::Idle => Arc::new(NullHost),
    };
    let bmc = SimBmc::new(bmc_config, host, Arc::clone(reader));
    let served = if config.https { bmc.serve_tls(listener) } else { bmc.serve(listener) };
    let server = served.map_err(|source| FarmError::Serve { serial: spec.serial.clone(), source })?;
    Ok(SimulatedServer { serial: spec.serial.clone(), bmc_url: server.url(), bmc, machine, history, server })
}

/// What all machines of a farm are connected to.
#[derive(Clone)]
struct FarmContext {
    tools: Tools,
    console: Console,
    tracker: TaskTracker,
    power_supply: CancellationToken,
}

/// The host side of one machine.
struct MachineHost {
    os: MaintenanceOs,
    after_report: AfterReport,
    machine: Arc<Machine>,
    history: watch::Sender<VecDeque<BootRecord>>,
    /// Held by the boot that runs, so that the next one waits until it is gone.
    running: Mutex<()>,
    context: FarmContext,
}

/// What the slots of the simulated BMC hold.
struct HostHandle(Arc<MachineHost>);

impl Host for HostHandle {
    fn power_on(&self, boot: BootContext) {
        let host = Arc::clone(&self.0);
        self.0.context.tracker.spawn(async move { host.boot(boot).await });
    }

    fn power_off(&self, _serial: &str) {
        // The boot's token is cancelled already; the task ends by itself.
    }
}

impl MachineHost {
    async fn boot(&self, boot: BootContext) {
        let _running = self.running.lock().await;
        let result = match &boot.boots_from {
            BootSource::Media { slot, .. } => {
                BootResult::Maintenance(self.boot_from_media(&boot, slot).await)
            }
            BootSource::Disk => self.boot_from_disk(boot.generation).await,
        };
        let reported = matches!(&result, BootResult::Maintenance(report) if report.job_id.is_some());
        self.remember(BootRecord { generation: boot.generation, result });
        match self.after_report {
            AfterReport::PowerOff if reported => boot.halt(),
            AfterReport::Reboot if reported => boot.reboot(),
            _ => {}
        }
    }

    /// Runs the maintenance OS until it ends, the BMC takes the power or the farm shuts down.
    async fn boot_from_media(&self, boot: &BootContext, booted: &str) -> InstallResult {
        let cancel = self.context.power_supply.child_token();
        let media = boot.media.iter();
        let media = MediaBoot {
            generation: boot.generation,
            booted: booted.to_owned(),
            media: media
                .map(|medium| Medium { slot: medium.slot.clone(), url: medium.url.as_str().to_owned() })
                .collect(),
            cancel: cancel.clone(),
        };
        let mut run = Box::pin(self.os.run(media));
        tokio::select! {
            biased;
            report = &mut run => return report,
            () = boot.cancel.cancelled() => cancel.cancel(),
        }
        run.await
    }

    async fn boot_from_disk(&self, generation: u64) -> BootResult {
        let machine = Arc::clone(&self.machine);
        let console = self.context.console.of(&self.machine.serial, generation);
        let found =
            self.context.tools.blocking(&self.context.tracker, move || machine.boot_from_disk()).await;
        let found = found.unwrap_or_else(|reason| Err(NoBootableDisk { reasons: vec![reason] }));
        match found {
            Ok((device, installed)) => {
                console.print(unit::KERNEL, format!("{} booted from {device}", installed.os_name));
                BootResult::Disk { device, installed: Box::new(installed) }
            }
            Err(blank) => {
                console.print(unit::KERNEL, blank.to_string());
                BootResult::Blank(blank)
            }
        }
    }

    fn remember(&self, record: BootRecord) {
        self.history.send_modify(|history| {
            if history.len() == HISTORY {
                history.pop_front();
            }
            history.push_back(record);
        });
    }
}

#[cfg(test)]
mod tests;
