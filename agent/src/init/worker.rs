//! The worker: from the drivers to the ending of the task.
//!
//! ```text
//! drivers, links on (a thread) -> search, again and again -> clock -> network until the controller responds
//!      (with `delivery: media` no network is configured and nothing is waited for)
//!      accepted -> the task, or the report of an earlier fault -> ending        refused -> the search, without this job
//!      not reached for a minute, and a medium with a newer job appears -> the search
//! ```

use std::{
    fs,
    panic::PanicHookInfo,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use super::after::{Ending, ending, wish};
use super::hotplug::{self, Drivers};
use super::lookout::Lookout;
use super::rescue::Rescue;
use super::{UNIT, consoles, mounts, supervisor};
use crate::clock::{Clock, SystemClock, set_clock};
use crate::device::{Disk, FileDisk};
use crate::discovery::{FoundTask, RefusedJobs};
use crate::http::HttpClient;
use crate::linux::LinuxHost;
use crate::log::Log;
use crate::medium::open_medium;
use crate::net::connect::{Connector, Reach};
use crate::net::record::{Below, Record};
use crate::net::system::SystemKernel;
use crate::net::{self};
use crate::outcome::Outcome;
use crate::report::{Announced, Reporter};
use crate::run::{Machine, run, volume};
use crate::search::{Devices, Readers, SETTLE_TIME, block_devices, is_fixed, search};
use crate::serials::MachineSerials;
use crate::task::unit;
use crate::{facts, inventory};
use recipe::Delivery;

const RESOLVER: &str = "/etc/resolv.conf";
const PAUSE: Duration = Duration::from_secs(60);

/// Runs as the worker; `fault` is the reason of the end of an earlier one. Returns the exit code for the first process.
pub fn work(fault: Option<String>) -> ExitCode {
    let (sys, dev) = (Path::new("/sys"), Path::new("/dev"));
    let log = Log::new(consoles::open(sys, dev));
    let hook = log.clone();
    std::panic::set_hook(Box::new(move |panic| leave(panic, &hook)));
    let clock = SystemClock::default();
    let drivers = Drivers::read(mounts::module_folder(), log.clone());
    let drivers = Arc::new(drivers.map_err(|reason| log.line(UNIT, reason)).ok());
    let (watched, watcher) = (Arc::clone(&drivers), log.clone());
    std::thread::spawn(move || hotplug::watch(Option::as_ref(&watched), Path::new("/sys"), &watcher));

    let (mut refused, mut fault) = (RefusedJobs::default(), fault);
    let mut readers = Readers::default();
    loop {
        let (found, media) = find(&readers, sys, dev, &refused, &clock, &log);
        set_clock(&clock, found.job.created_at, None, unit::DISPATCHER, &log);
        let lookout = Lookout::begin(readers, found.clone(), refused.clone(), &log);
        match carry_out(&found, media, fault.clone(), &clock, &log, Option::as_ref(&drivers), &lookout) {
            Ok(ending) => return end(ending, &clock, &log),
            Err(Stopped::Refused(reason)) => {
                log.line(unit::DISPATCHER, format!("{reason}; no disk was touched; another job is searched"));
                refused.insert(&found.job);
                readers = lookout.end();
                // It ended an earlier attempt of this job, not of another one.
                fault = None;
            }
            Err(Stopped::Replaced) => {
                let job = found.job.job_id;
                let line = format!("another medium replaces job {job}; no disk was touched; it is searched");
                log.line(unit::DISPATCHER, line);
                (readers, fault) = (lookout.end(), None);
            }
            Err(Stopped::Fault(reason)) => {
                lookout.stop();
                log.line(unit::DISPATCHER, format!("{reason}; no disk was touched"));
                return end(Ending::Stay, &clock, &log);
            }
        }
    }
}

/// Why a job was not carried out.
enum Stopped {
    /// The controller does not await the job: the medium of another job can follow.
    Refused(String),
    /// The controller of the job is not reached, and a medium holds a job that replaces it.
    Replaced,
    /// This machine cannot carry out the job.
    Fault(String),
}

impl From<String> for Stopped {
    fn from(reason: String) -> Self {
        Self::Fault(reason)
    }
}

/// Searches the task for as long as there is none but `refused` ones.
fn find(
    readers: &Readers,
    sys: &Path,
    dev: &Path,
    refused: &RefusedJobs,
    clock: &dyn Clock,
    log: &Log,
) -> (FoundTask, Vec<String>) {
    let mut said = String::new();
    let devices = Devices {
        list: &|| block_devices(sys, dev),
        is_fixed: &|path| is_fixed(sys, path),
        settle: SETTLE_TIME,
    };
    loop {
        let serials = MachineSerials::read(sys);
        match search(readers, &devices, &serials, refused, clock, log) {
            Ok(found) => return found,
            Err(reason) => {
                let line = format!("{reason}; no disk was touched; the search goes on");
                if line != said {
                    log.line(
                        unit::DISPATCHER,
                        format!("the serial numbers of this machine are {:?}", serials.all()),
                    );
                    log.line(unit::DISPATCHER, &line);
                    said = line;
                }
            }
        }
    }
}

fn carry_out(
    found: &FoundTask,
    media: Vec<String>,
    fault: Option<String>,
    clock: &SystemClock,
    log: &Log,
    drivers: Option<&Drivers>,
    lookout: &Lookout,
) -> Result<Ending, Stopped> {
    let (sys, dev) = (Path::new("/sys"), Path::new("/dev"));
    let http = HttpClient::new(found.job.controller_ca.as_deref()).map_err(|source| source.to_string())?;
    let foreign_http = HttpClient::new(None).map_err(|source| source.to_string())?;
    let after = found.files.as_ref().map(wish).unwrap_or_default();
    let by_medium = found.delivery() == Delivery::Media;
    if by_medium {
        lookout.stop();
    } else {
        let reporter = Reporter::new(&http, clock, &found.job, log);
        let connected = connect(found, drivers, clock, log, &reporter, &|| lookout.has_found());
        lookout.stop();
        connected?;
        set_clock(clock, found.job.created_at, reporter.date(), unit::DISPATCHER, log);
    }
    if let Some(message) = fault {
        let volume = volume(&open_medium, found, clock, log);
        let reporter = match &volume {
            Ok(None) => Reporter::new(&http, clock, &found.job, log),
            Ok(Some(volume)) => Reporter::by_medium(clock, &found.job, log, Ok(volume)),
            Err(reason) => Reporter::by_medium(clock, &found.job, log, Err(reason.clone())),
        };
        let outcome = Outcome::Failed { step: unit::DISPATCHER.to_owned(), message };
        let delivery = reporter.deliver(&outcome, None);
        return Ok(ending(after, &outcome, &delivery));
    }
    #[cfg(feature = "faults")]
    fault_of_the_test();
    let machine = Machine {
        http: &http,
        foreign_http: &foreign_http,
        clock,
        log,
        disks: &|| facts::read_disks(sys),
        media,
        open: &|disk| Ok(Box::new(FileDisk::open(&dev.join(&disk.name), disk.sector)?) as Box<dyn Disk>),
        peek: &|disk| {
            Ok(Box::new(FileDisk::open_to_read(&dev.join(&disk.name), disk.sector)?) as Box<dyn Disk>)
        },
        drivers: &|| drivers.map(Drivers::loads).unwrap_or_default(),
        linux: &LinuxHost::default(),
        inventory: &|| inventory::read(sys, Path::new("/proc")),
        rescue: &Rescue { drivers },
        medium: &open_medium,
        report_limit: None,
    };
    let (outcome, delivery) = run(&machine, found);
    Ok(ending(after, &outcome, &delivery))
}

/// Brings the network up until the controller accepted a report of the job, and keeps it up.
fn connect(
    found: &FoundTask,
    drivers: Option<&Drivers>,
    clock: &SystemClock,
    log: &Log,
    reporter: &Reporter<'_>,
    is_replaced: &dyn Fn() -> bool,
) -> Result<(), Stopped> {
    let record = found.job.network.as_ref().map(Record::parse).transpose().unwrap_or_else(|reason| {
        log.line(net::UNIT, format!("`network` of job.json: {reason}; DHCP is used instead"));
        None
    });
    let software = |interface: &net::record::Interface| !matches!(interface.below, Below::Hardware(_));
    if let (Some(record), Some(drivers)) = (&record, drivers)
        && record.interfaces.values().any(software)
    {
        drivers.load_named(&["bonding", "8021q"]);
    }
    let mut kernel =
        SystemKernel::open(PathBuf::from(RESOLVER)).map_err(|source| format!("netlink: {source}"))?;
    if let Err(source) = kernel.listen() {
        log.line(net::UNIT, format!("the kernel has no packet sockets, so DHCP does not work: {source}"));
    }
    let mut seed = [0; 4];
    // Without random numbers the links of machines still differ by their addresses.
    let _ = getrandom::fill(&mut seed);
    let mut connector = Connector::new(kernel, record, u32::from_ne_bytes(seed), log.clone());
    let probe = || match reporter.announce(net::UNIT) {
        Ok(Announced::Accepted) => Reach::Accepted,
        Ok(Announced::Refused(status)) => Reach::Refused(status),
        Ok(Announced::Other(status)) => {
            Reach::Other(format!("{} responded with {status}", found.job.controller_url))
        }
        Err(reason) => Reach::Away(format!("{}: {reason}", found.job.controller_url)),
    };
    let reach = connector.connect(clock, is_replaced, &probe);
    if let Reach::Refused(_) | Reach::Replaced = reach {
        // The next job configures the links again.
        connector.release();
    }
    match reach {
        Reach::Replaced => return Err(Stopped::Replaced),
        Reach::Refused(status) => {
            return Err(Stopped::Refused(format!(
                "the controller refused job {} with {status}: it does not await this machine",
                found.job.job_id
            )));
        }
        Reach::Other(reason) | Reach::Away(reason) => return Err(Stopped::Fault(reason)),
        Reach::Accepted => {}
    }
    // Leases are renewed, and late links of the record are configured, for as long as the machine is on.
    std::thread::spawn(move || {
        let clock = SystemClock::default();
        loop {
            connector.round(&clock);
        }
    });
    Ok(())
}

/// Ends the worker, or stays for as long as the machine is on.
fn end(ending: Ending, clock: &dyn Clock, log: &Log) -> ExitCode {
    match ending {
        Ending::Off(pause) => {
            if !pause.is_zero() {
                log.line(UNIT, format!("the machine powers off in {} minutes", pause.as_secs() / 60));
            }
            clock.sleep(pause);
            ExitCode::from(supervisor::OFF)
        }
        Ending::Stay => {
            log.line(UNIT, "the machine stays on until the controller powers it off");
            loop {
                clock.sleep(PAUSE);
            }
        }
    }
}

/// Logs a panic, and leaves it for the first process.
fn leave(panic: &PanicHookInfo<'_>, log: &Log) {
    let text = panic.to_string();
    log.line(UNIT, &text);
    let _ = fs::write(supervisor::FAULT, text);
}

/// A fault that a test orders by the command line of the kernel. The feature is off in every medium that is shipped.
#[cfg(feature = "faults")]
fn fault_of_the_test() {
    let line = mounts::small_file(Path::new("/proc/cmdline"));
    if line.split_whitespace().any(|word| word == "shoal.fault=panic") {
        let nothing: Option<u8> = None;
        assert!(nothing.is_some(), "a fault of the test");
    }
    if line.split_whitespace().any(|word| word == "shoal.fault=abort") {
        std::process::abort();
    }
}
