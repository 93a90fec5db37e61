//! Simulated servers: each has a simulated BMC and a host that runs a simulated maintenance OS.
//!
//! ```text
//!              controller
//!                 │ Redfish, one address per machine            ┌──────────── media, registry, report
//!                 ▼                                             │             over HTTP
//!   ┌──────── SimulatedServer ────────┐    power_on(media)   ┌──┴────────────┐
//!   │ SimBmc on 127.0.0.1:PORT ─ Host ┼────────────────────► │ MaintenanceOs │ ──► disk files
//!   │                                 │    power_on(disk)    ├───────────────┤
//!   │ history of boots ◄──────────────┼───────────────────── │ disk::verify  │ boots, or finds it blank
//!   └─────────────────────────────────┘                      └───────────────┘
//! ```
//!
//! Invariants: a machine runs one boot at a time; the next boot starts after the work of the previous one has ended. Every
//! boot ends as one [`BootRecord`] in a bounded history. The farm does not know which controller uses it.

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
        AfterReport, InstallOutcome, InstallResult, InstallerBehaviour, MaintenanceOs, MediaBoot, Medium,
        ReportDelivery, Tools, unit,
    },
};

/// Boots in the history of a machine.
const HISTORY: usize = 64;

/// The configuration of a farm.
#[derive(Clone, Debug)]
pub struct FarmConfig {
    /// The simulated servers.
    pub servers: Vec<ServerSpec>,
    /// User name on every BMC.
    pub bmc_username: String,
    /// Password of every BMC.
    pub bmc_password: secrecy::SecretString,
    /// Directory of the disk files.
    pub disk_dir: PathBuf,
    /// Address on which the BMCs listen.
    pub address: IpAddr,
    /// Port of the first BMC; the others use the following ports. `None` selects ephemeral ports.
    pub base_port: Option<u16>,
    /// Whether the BMCs use TLS, each with a separate certificate.
    pub https: bool,
}

impl FarmConfig {
    /// A configuration with BMCs on loopback, on ephemeral ports.
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

/// The configuration of one simulated server.
#[derive(Clone, Debug)]
pub struct ServerSpec {
    /// Serial number that the BMC shows.
    pub serial: String,
    /// Serial number in DMI. `None` means: the one of the BMC.
    pub dmi_serial: Option<String>,
    /// Behaviour of the installer.
    pub behaviour: InstallerBehaviour,
    /// The disks, in boot order.
    pub disks: Vec<DiskSpec>,
    /// Configuration of the BMC. `None` means: a strict standard BMC with the account of the farm.
    pub bmc: Option<Box<SimBmcConfig>>,
    /// The behaviour of the host while it has power.
    pub host: HostKind,
}

/// The behaviour of the host of a machine while it has power.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostKind {
    /// The firmware boots a maintenance OS from media, or a disk.
    #[default]
    Boot,
    /// The host does nothing. For measurements of a controller.
    Idle,
}

impl ServerSpec {
    /// A server without faults: usual disks, standard BMC.
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

/// A farm could not be started.
#[derive(Debug, Error)]
pub enum FarmError {
    /// The HTTP clients could not be built.
    #[error("starting the simulated machines")]
    Http(#[from] HttpError),
    /// The media reader of the simulated BMCs could not be created.
    #[error("starting the simulated BMCs")]
    MediaReader(#[from] MediaReaderError),
    /// A port is not free.
    #[error("listening on {address} for the BMC of {serial}; choose another base port")]
    Listen {
        /// Serial number of the server.
        serial: String,
        /// The address that was tried.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A simulated BMC could not be served.
    #[error("serving the BMC of {serial}")]
    Serve {
        /// Serial number of the server.
        serial: String,
        /// The cause.
        #[source]
        source: ServeError,
    },
    /// Two servers have one serial number, or there are more servers than ports.
    #[error("the farm's configuration: {rule}")]
    Config {
        /// The rule that the configuration breaks.
        rule: String,
    },
}

/// The result of a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BootResult {
    /// The maintenance OS ran.
    Maintenance(InstallResult),
    /// The machine booted from a disk.
    Disk {
        /// The device name of the disk.
        device: String,
        /// The system on the disk.
        installed: Box<Installed>,
    },
    /// The machine found no bootable disk.
    Blank(NoBootableDisk),
}

/// One boot of one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootRecord {
    /// Number of the boot, counted from 1.
    pub generation: u64,
    /// The result of the boot.
    pub result: BootResult,
}

/// A running farm. Dropping it stops the BMCs; [`Farm::shutdown`] also waits for the machines.
#[derive(Debug)]
pub struct Farm {
    servers: Vec<SimulatedServer>,
    console: Console,
    tracker: TaskTracker,
    /// The guard of the power supply: when it is dropped, every machine loses its power.
    power_supply: DropGuard,
}

/// A simulated server of a running farm.
#[derive(Debug)]
pub struct SimulatedServer {
    /// Serial number that the BMC shows.
    pub serial: String,
    /// URL of the BMC, such as `http://127.0.0.1:8443`.
    pub bmc_url: String,
    /// The simulated BMC.
    pub bmc: SimBmc,
    machine: Arc<Machine>,
    history: watch::Receiver<VecDeque<BootRecord>>,
    server: SimBmcServer,
}

impl Farm {
    /// Starts the BMCs of all servers. The hosts are off unless the configuration of the BMC says otherwise.
    ///
    /// # Errors
    /// Returns an error if a port is taken or the configuration breaks a rule.
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
                    rule: format!("two servers have the serial number {}", spec.serial),
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

    /// The servers, in the order of the configuration.
    #[must_use]
    pub fn servers(&self) -> &[SimulatedServer] {
        &self.servers
    }

    /// The server with this serial number.
    #[must_use]
    pub fn server(&self, serial: &str) -> Option<&SimulatedServer> {
        self.servers.iter().find(|server| server.serial == serial)
    }

    /// Receives every line that the machines print after this call.
    #[must_use]
    pub fn console(&self) -> broadcast::Receiver<ConsoleLine> {
        self.console.subscribe()
    }

    /// Cuts the power of all machines and waits until all their tasks have ended.
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

    /// The boots that have ended, oldest first.
    #[must_use]
    pub fn history(&self) -> Vec<BootRecord> {
        self.history.borrow().iter().cloned().collect()
    }

    /// Waits until a boot satisfies `wanted`. Returns `None` if the farm was dropped. The caller sets a timeout.
    pub async fn wait_for_boot(&self, wanted: impl Fn(&BootRecord) -> bool) -> Option<BootRecord> {
        let mut history = self.history.clone();
        let boots = history.wait_for(|boots| boots.iter().any(&wanted)).await.ok()?;
        boots.iter().find(|boot| wanted(boot)).cloned()
    }

    /// Returns the device and system that the firmware would boot from disk now. Reads and hashes the disks: call it on a
    /// blocking thread.
    ///
    /// # Errors
    /// Returns [`NoBootableDisk`] with a reason for every disk if none is bootable.
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
    // The directory is named by the serial number of the BMC, which is unique in the farm. A wrong DMI serial number may
    // not be unique.
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

/// The parts that all machines of a farm share.
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
    /// The lock that a running boot holds, so that the next boot waits for its end.
    running: Mutex<()>,
    context: FarmContext,
}

/// The host that the simulated BMC controls.
struct HostHandle(Arc<MachineHost>);

impl Host for HostHandle {
    fn power_on(&self, boot: BootContext) {
        let host = Arc::clone(&self.0);
        self.0.context.tracker.spawn(async move { host.boot(boot).await });
    }

    fn power_off(&self, _serial: &str) {
        // The cancellation token of the boot is already cancelled, which ends the task.
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
        // Without a network the power state is a part of the report: off after a success.
        let said_success = matches!(
            &result,
            BootResult::Maintenance(InstallResult {
                delivery: ReportDelivery::Said,
                outcome: InstallOutcome::Succeeded(_),
                ..
            })
        );
        self.remember(BootRecord { generation: boot.generation, result });
        match self.after_report {
            _ if said_success => boot.halt(),
            AfterReport::PowerOff if reported => boot.halt(),
            AfterReport::Reboot if reported => boot.reboot(),
            _ => {}
        }
    }

    /// Runs the maintenance OS until it ends, the BMC cuts the power or the farm shuts down.
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
