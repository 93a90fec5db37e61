//! Devices as they appear: drivers are loaded, links are switched on, variables of the firmware are mounted.
//!
//! ```text
//! start: every modalias of /sys/devices -> modules
//! then:  netlink uevent "add@…\0ACTION=add\0MODALIAS=…" -> modules     (events were lost, or none for 30 s: all again)
//! ```
//!
//! Invariants: a module is tried once, so a storm of events ends in lookups. The devices are read again at most once a second.

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType,
    netlink::{self, SocketAddrNetlink},
    sockopt,
};

use crate::log::Log;
use crate::modules::{INDEX, Loader, ModuleIndex, ModuleKernel, RunningKernel};
use crate::net::system::SystemKernel;
use crate::net::{Kernel as _, plan};
use crate::stable_disks::DriverLoads;

use super::{UNIT, mounts};

const MAX_EVENT: usize = 8192;
const ROUND: Duration = Duration::from_secs(1);
/// How often everything is looked at without an event.
const PERIOD: Duration = Duration::from_secs(30);
/// Events that are read before the drivers are loaded.
const MAX_EVENTS: usize = 512;
/// Events of the kernel; those of udev are in another group.
const KERNEL_GROUP: u32 = 1;

/// Returns the modalias of a device that was added, from an event of the kernel.
#[must_use]
pub fn added(event: &[u8]) -> Option<String> {
    let mut fields = event.split(|byte| *byte == 0);
    // The first field is `ACTION@PATH`; an event of another program has none.
    fields.next().filter(|first| first.starts_with(b"add@"))?;
    let value = fields.find_map(|field| field.strip_prefix(b"MODALIAS="))?;
    let text = std::str::from_utf8(value).ok().filter(|text| !text.is_empty() && text.len() <= 1024)?;
    Some(text.to_owned())
}

/// The drivers of the medium.
pub struct Drivers {
    folder: PathBuf,
    index: ModuleIndex,
    loader: Mutex<Loader>,
    begun: AtomicU64,
    ended: AtomicU64,
    log: Log,
}

/// The running kernel, with a count of its loads.
struct Counted<'a>(&'a Drivers);

impl ModuleKernel for Counted<'_> {
    fn load(&self, module: &Path) -> io::Result<()> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let loaded = RunningKernel.load(module);
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        loaded
    }
}

impl Drivers {
    /// Reads the index in `folder`.
    ///
    /// # Errors
    /// Returns the reason when there is none or it is damaged.
    pub fn read(folder: PathBuf, log: Log) -> Result<Self, String> {
        let path = folder.join(INDEX);
        let text =
            fs::read_to_string(&path).map_err(|source| format!("reading {}: {source}", path.display()))?;
        let index = ModuleIndex::parse(&text)?;
        let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { folder, index, loader: Mutex::default(), begun, ended, log })
    }

    /// Returns the loads so far.
    pub fn loads(&self) -> DriverLoads {
        // In this order no load seems to end before it begins.
        let ended = self.ended.load(Ordering::SeqCst);
        DriverLoads { begun: self.begun.load(Ordering::SeqCst), ended }
    }

    /// Loads what all devices need.
    pub fn coldplug(&self, sys: &Path) -> usize {
        let mut loader = self.loader.lock().unwrap_or_else(PoisonError::into_inner);
        loader.coldplug(sys, &self.folder, &self.index, &Counted(self), &self.log)
    }

    /// Loads what devices with these modaliases need.
    pub fn load_for(&self, modaliases: &BTreeSet<String>) -> usize {
        let mut loader = self.loader.lock().unwrap_or_else(PoisonError::into_inner);
        loader.load_for(modaliases, &self.folder, &self.index, &Counted(self), &self.log)
    }

    /// Loads modules that no device asks for.
    pub fn load_named(&self, names: &[&str]) -> usize {
        let mut loader = self.loader.lock().unwrap_or_else(PoisonError::into_inner);
        loader.load_named(names, &self.folder, &self.index, &Counted(self), &self.log)
    }
}

fn listen() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::KOBJECT_UEVENT),
    )?;
    // At the start of a large machine there are thousands of events; the kernel may refuse the size.
    let _ = sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20);
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ROUND))?;
    Ok(socket)
}

/// The events that came in one round.
#[derive(Debug, Default)]
struct Events {
    modaliases: BTreeSet<String>,
    /// Whether events were lost.
    lost: bool,
}

fn receive(socket: Option<&OwnedFd>) -> Events {
    let mut events = Events::default();
    let Some(socket) = socket else {
        std::thread::sleep(ROUND);
        events.lost = true;
        return events;
    };
    let mut buffer = [0; MAX_EVENT];
    for number in 0..MAX_EVENTS {
        let flags = if number == 0 { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        match rustix::net::recv(socket, &mut buffer[..], flags) {
            Ok((length, _)) => events.modaliases.extend(added(&buffer[..length.min(MAX_EVENT)])),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
            Err(_) => {
                events.lost = true;
                std::thread::sleep(ROUND);
                break;
            }
        }
    }
    events
}

/// Loads drivers and switches links on for as long as the machine is on.
pub fn watch(drivers: Option<&Drivers>, sys: &Path, log: &Log) -> ! {
    let socket = listen().map_err(|source| log.line(UNIT, format!("listening to devices: {source}"))).ok();
    let kernel = SystemKernel::open(PathBuf::new());
    let mut variables = false;
    let mut looked: Option<Instant> = None;
    loop {
        let due = looked.is_none_or(|looked| looked.elapsed() >= PERIOD);
        let events = if looked.is_none() { Events::default() } else { receive(socket.as_ref()) };
        let mut loaded = 0;
        if let Some(drivers) = drivers {
            loaded += drivers.load_for(&events.modaliases);
            if due || events.lost || loaded > 0 {
                loaded += drivers.coldplug(sys);
            }
        }
        if due || events.lost {
            looked = Some(Instant::now());
        }
        if loaded > 0 {
            log.line(UNIT, format!("{loaded} drivers are loaded"));
        }
        if !variables {
            variables = mounts::mount_variables(sys, &mounts::mount_now).unwrap_or_else(|reason| {
                log.line(UNIT, reason);
                true
            });
        }
        if let Ok(kernel) = &kernel
            && let Ok(links) = kernel.links()
        {
            let loopback = links.iter().filter(|link| link.name == "lo" && !link.up);
            let loopback = loopback.map(|link| crate::net::Change::Switch { index: link.index, up: true });
            for change in plan::raise(&links).into_iter().chain(loopback) {
                // A link that cannot be switched on is named by the network, which tries it again.
                let _ = kernel.change(&change);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_modalias_of_an_added_device_is_read_and_other_events_are_ignored() {
        let event = b"add@/devices/pci0/0000:00:03.0\0ACTION=add\0SUBSYSTEM=pci\0MODALIAS=pci:v00001AF4d1\0SEQNUM=7\0";
        assert_eq!(added(event).as_deref(), Some("pci:v00001AF4d1"));
        for other in [
            &b"remove@/devices/x\0ACTION=remove\0MODALIAS=pci:v1\0"[..],
            b"add@/devices/x\0ACTION=add\0",
            b"add@/devices/x\0MODALIAS=\0",
            b"libudev\0add@/x\0MODALIAS=pci:v1\0",
            b"",
        ] {
            assert_eq!(added(other), None);
        }
    }

    proptest! {
        #[test]
        fn any_event_is_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(added(&bytes).is_none_or(|alias| alias.len() <= 1024));
            let _ = added(&[b"add@x\0MODALIAS=", &bytes[..]].concat());
        }
    }
}
