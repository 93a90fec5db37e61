//! The virtual machine room: a simulated BMC whose machine is QEMU.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use lab_bmc::{
    BootPolicy, Graceful, HttpMediaReader, MediaReaderError, PowerPolicy, ServeError, SimBmc, SimBmcConfig,
    SimBmcServer, SimBmcSnapshot, SimIdentity,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::{net::TcpListener, sync::watch};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    console::VmConsole,
    host::{HostHandle, Media, QUIT, VmHost, private_folder},
    spec::{Firmware, Slots, VmSpec},
    storage::{StorageError, VmFiles},
    tools::VmTools,
};

/// The configuration of a virtual machine and of its BMC.
#[derive(Clone, Debug)]
pub struct VmConfig {
    /// The machine.
    pub spec: VmSpec,
    /// The programs that run the machine.
    pub tools: VmTools,
    /// The folder in which the machine has a folder for its disks.
    pub folder: PathBuf,
    /// The address on which the BMC listens; port 0 selects any free port.
    pub address: SocketAddr,
    /// User name on the BMC.
    pub username: String,
    /// Password on the BMC.
    pub password: SecretString,
    /// Whether the BMC uses TLS, with a certificate of its own.
    pub https: bool,
}

/// A virtual machine could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// The files of the machine could not be prepared.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A folder for the control socket could not be made.
    #[error("making a private folder for the control socket; set TMPDIR to a folder that can be written")]
    Runtime(#[source] std::io::Error),
    /// The log of the console could not be opened.
    #[error("opening the console log {}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The media reader of the BMC could not be made.
    #[error("starting the BMC of the virtual machine")]
    MediaReader(#[from] MediaReaderError),
    /// The port is not free.
    #[error("listening on {address} for the BMC of the virtual machine; choose another port")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// The BMC could not be served.
    #[error("serving the BMC of the virtual machine")]
    Serve(#[from] ServeError),
}

/// A virtual machine and its BMC. Dropping it cuts the power; [`VirtualMachine::shutdown`] also waits for the end of QEMU.
#[derive(Debug)]
pub struct VirtualMachine {
    /// URL of the BMC, such as `http://127.0.0.1:8443`.
    pub bmc_url: String,
    /// The BMC.
    pub bmc: SimBmc,
    host: Arc<VmHost>,
    server: SimBmcServer,
    tracker: TaskTracker,
    /// The guard of the power supply: when it is dropped, the machine loses its power.
    power_supply: DropGuard,
    log: PathBuf,
    _runtime: tempfile::TempDir,
}

impl VirtualMachine {
    /// Starts the BMC. The machine is off.
    ///
    /// # Errors
    /// Returns an error if a file cannot be made or the port is taken.
    pub async fn start(config: VmConfig) -> Result<Self, VmError> {
        let files = VmFiles::open(&config.folder, config.spec.serial())?;
        // What cannot be prepared is an error now, not at the first power-on.
        files.disks(&config.spec)?;
        let runtime = private_folder().map_err(VmError::Runtime)?;
        let log = files.log();
        let console = VmConsole::new(&log).map_err(|source| VmError::Log { path: log.clone(), source })?;
        let bmc_config = bmc_config(&config.spec, &config.username, &config.password);
        let slots = bmc_config.slots.clone();
        let (sender, changes) = watch::channel(vec![None; slots.len()]);
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        let address = config.address;
        let listener =
            TcpListener::bind(address).await.map_err(|source| VmError::Listen { address, source })?;
        let host = Arc::new(VmHost {
            spec: config.spec,
            tools: config.tools,
            files,
            runtime: runtime.path().join("vm"),
            console,
            slots,
            changes,
            tracker: tracker.clone(),
            power_supply: stop.clone(),
            running: tokio::sync::Mutex::default(),
            button: parking_lot::Mutex::default(),
            input: parking_lot::Mutex::default(),
        });
        let handle = Arc::new(HostHandle(Arc::clone(&host)));
        let bmc = SimBmc::new(bmc_config, handle, Arc::new(HttpMediaReader::new()?));
        let server = if config.https { bmc.serve_tls(listener)? } else { bmc.serve(listener)? };
        tracker.spawn(watch_slots(bmc.clone(), sender, stop.clone()));
        let power_supply = stop.drop_guard();
        Ok(Self { bmc_url: server.url(), bmc, host, server, tracker, power_supply, log, _runtime: runtime })
    }

    /// The serial number.
    #[must_use]
    pub fn serial(&self) -> &str {
        self.host.spec.serial()
    }

    /// The serial console.
    #[must_use]
    pub fn console(&self) -> &VmConsole {
        &self.host.console
    }

    /// The file that has the text of the console.
    #[must_use]
    pub fn log(&self) -> &std::path::Path {
        &self.log
    }

    /// The input of the serial console.
    #[must_use]
    pub fn keyboard(&self) -> VmKeyboard {
        VmKeyboard(Arc::clone(&self.host))
    }

    /// The base URL by which the machine reaches a controller that listens on this address of this computer.
    #[must_use]
    pub fn controller_url(&self, controller: SocketAddr) -> String {
        self.host.spec.network.controller_url(controller)
    }

    /// Cuts the power and waits for the end of QEMU and of the BMC.
    pub async fn shutdown(self) {
        self.server.stop().await;
        drop(self.power_supply);
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// The input of the serial console of a virtual machine. A clone is another handle to it.
#[derive(Clone, Debug)]
pub struct VmKeyboard(Arc<VmHost>);

impl VmKeyboard {
    /// Types. Returns whether the machine is on and took the text.
    #[must_use]
    pub fn type_text(&self, text: &str) -> bool {
        let input = self.0.input.lock();
        input.as_ref().is_some_and(|input| input.try_send(text.as_bytes().to_vec()).is_ok())
    }
}

/// The configuration of a standard BMC that accepts what its machine can do.
fn bmc_config(spec: &VmSpec, username: &str, password: &SecretString) -> SimBmcConfig {
    let mut config = SimBmcConfig::new(spec.serial(), username, password.expose_secret());
    config.identity = SimIdentity {
        manufacturer: "Shoal".to_owned(),
        model: "Virtual machine".to_owned(),
        bios_version: if spec.firmware == Firmware::Bios { "SeaBIOS" } else { "OVMF" }.to_owned(),
        uuid: spec.uuid,
        ..config.identity
    };
    config = match spec.slots {
        Slots::Dual => config,
        Slots::CdUsb => config.with_cd_and_usb(),
        Slots::Single => config.with_single_cd(),
    };
    // The firmware of a machine does not change with a boot.
    let mode = if spec.firmware == Firmware::Bios { "Legacy" } else { "UEFI" };
    config.boot = BootPolicy { modes: vec![mode.to_owned()], ..config.boot };
    // QEMU is killed before the BMC shows `Off`.
    config.power =
        PowerPolicy { graceful: Graceful::PassedToHost, off_time: QUIT + QUIT / 2, ..config.power };
    config
}

/// Tells the host which media are in the slots.
async fn watch_slots(bmc: SimBmc, changes: watch::Sender<Media>, stop: CancellationToken) {
    let watch = async {
        loop {
            let last = changes.borrow().clone();
            let changed = bmc.wait_for(|now| media(now) != last).await;
            changes.send_replace(media(&changed));
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = watch => {}
    }
}

fn media(now: &SimBmcSnapshot) -> Media {
    now.slots.iter().map(|slot| slot.image.as_ref().map(|url| url.as_str().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use lab_bmc::MediaKind;

    use super::*;

    #[test]
    fn the_slots_of_the_bmc_are_those_of_the_machine() {
        let kinds = |slots| {
            let spec = VmSpec { slots, ..VmSpec::new("VM-1").unwrap() };
            let config = bmc_config(&spec, "admin", &SecretString::from("password"));
            config.slots.iter().map(|slot| slot.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(Slots::Dual), [MediaKind::Cd, MediaKind::Cd, MediaKind::Usb]);
        assert_eq!(kinds(Slots::CdUsb), [MediaKind::Cd, MediaKind::Usb]);
        assert_eq!(kinds(Slots::Single), [MediaKind::Cd]);
    }
}
