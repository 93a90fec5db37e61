//! The command line of `shoal-agent`: finds the task of this machine, carries it out, reports, and ends.
//!
//! As process 1 of the medium it is the system: see [`crate::init`]. Otherwise an operator's own systemd starts it:
//!
//! ```text
//! arguments -> serial numbers -> search (2 min) -> clock -> HTTP -> run -> exit code
//! ```
//!
//! Exit codes: 0 the report of a success was acknowledged, 1 the task failed or its report was not acknowledged, 10 no
//! task was found, 64 wrong arguments.

use std::{
    cell::RefCell,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use crate::clock::{Clock, SystemClock, set_clock};
use crate::device::{Disk, FileDisk};
use crate::discovery::RefusedJobs;
use crate::facts;
use crate::http::HttpClient;
use crate::init;
use crate::inventory;
use crate::linux::{LinuxHost, enter_root};
use crate::log::{self, Log};
use crate::medium::open_medium;
use crate::modules::{self, Loader, ModuleIndex, RunningKernel};
use crate::outcome::Outcome;
use crate::report::ReportDelivery;
use crate::rescue::NoRescue;
use crate::run::{Machine, run};
use crate::search::{Devices, Readers, SETTLE_TIME, block_devices, is_fixed, search};
use crate::serials::MachineSerials;
use crate::stable_disks::DriverLoads;
use crate::task::unit;

const USAGE: &str = "\
usage: shoal-agent [--serial SERIAL] [--medium PATH]... [--modules FOLDER] [--report-limit SECONDS]

Finds the task of this machine on its block devices, carries it out, and reports its end to the controller.
It writes to the one disk that the recipe selects.

  --serial SERIAL          the serial number of this machine instead of those of its firmware
  --medium PATH            a device or an ISO image that holds the task; without it every block device is read
  --modules FOLDER         loads the kernel modules that the devices need, by FOLDER/shoal.index
  --report-limit SECONDS   gives the final report up after this time; without it the report is repeated until it is
                           acknowledged
";

const NO_TASK: u8 = 10;
const WRONG_ARGUMENTS: u8 = 64;

#[derive(Default)]
struct Arguments {
    serial: Option<String>,
    media: Vec<PathBuf>,
    modules: Option<PathBuf>,
    report_limit: Option<Duration>,
}

/// Runs the program with the arguments of this process. Returns its exit code.
pub fn main() -> ExitCode {
    if let Some(code) = enter_root(std::env::args_os().skip(1)) {
        return code;
    }
    // In a container the agent can be process 1 too, under its own name.
    let name = std::env::args_os().next().unwrap_or_default();
    if std::process::id() == 1 && Path::new(&name) == Path::new("/init") {
        init::supervisor::supervise();
    }
    let mut given = std::env::args().skip(1);
    if given.next().as_deref() == Some(init::WORKER) {
        return init::worker::work(given.next());
    }
    let system = System {
        sys: Path::new("/sys"),
        proc: Path::new("/proc"),
        dev: Path::new("/dev"),
        clock: &SystemClock::default(),
    };
    program(std::env::args().skip(1), &system, io::stderr())
}

/// The system that the program runs on.
struct System<'run> {
    sys: &'run Path,
    proc: &'run Path,
    dev: &'run Path,
    clock: &'run dyn Clock,
}

/// Runs the program under another system, with its log in `output`. Returns its exit code.
fn program(
    given: impl Iterator<Item = String>,
    system: &System<'_>,
    mut output: impl Write + Send + 'static,
) -> ExitCode {
    let arguments = match arguments(given) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            let _ = io::stdout().write_all(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            let _ = write!(output, "{reason}\n\n{USAGE}");
            return ExitCode::from(WRONG_ARGUMENTS);
        }
    };
    let (sink, drain) = log::detached(output);
    let log = Log::new(vec![sink]);
    let code = match install(&arguments, system, &log) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(reason) => {
            log.line(unit::DISPATCHER, reason);
            ExitCode::from(NO_TASK)
        }
    };
    drain.wait();
    code
}

fn arguments(mut given: impl Iterator<Item = String>) -> Result<Option<Arguments>, String> {
    let mut arguments = Arguments::default();
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--serial" => arguments.serial = Some(value()?),
            "--medium" => arguments.media.push(PathBuf::from(value()?)),
            "--modules" => arguments.modules = Some(PathBuf::from(value()?)),
            "--report-limit" => {
                let seconds = value()?.parse().map_err(|_| format!("{name} needs a number of seconds"))?;
                arguments.report_limit = Some(Duration::from_secs(seconds));
            }
            "-h" | "--help" => return Ok(None),
            other => return Err(format!("{other} is not known")),
        }
    }
    Ok(Some(arguments))
}

/// Carries out the task. Returns whether it succeeded and its report was acknowledged.
fn install(arguments: &Arguments, system: &System<'_>, log: &Log) -> Result<bool, String> {
    let System { sys, proc, dev, clock } = *system;
    let serials = match &arguments.serial {
        Some(serial) => MachineSerials::new([serial.as_str()]),
        None => MachineSerials::read(sys),
    };
    log.line(unit::DISPATCHER, format!("the serial numbers of this machine are {:?}", serials.all()));
    let index = arguments.modules.as_deref().map(module_index).transpose()?;
    let loader = RefCell::new(Loader::default());
    // In every round: devices on USB appear late, and each driver can bring others.
    let load = || {
        if let (Some(folder), Some(index)) = (&arguments.modules, &index) {
            loader.borrow_mut().coldplug(sys, folder, index, &RunningKernel, log);
        }
    };
    let devices = || {
        load();
        match &arguments.media[..] {
            [] => block_devices(sys, dev),
            media => media.to_vec(),
        }
    };
    // What the operator names counts at once, and nothing else is awaited.
    let is_fixed = |path: &Path| arguments.media.is_empty() && is_fixed(sys, path);
    let settle = if arguments.media.is_empty() { SETTLE_TIME } else { Duration::ZERO };
    let devices = Devices { list: &devices, is_fixed: &is_fixed, settle };
    let (found, media) = search(&Readers::default(), &devices, &serials, &RefusedJobs::default(), clock, log)
        .map_err(|reason| format!("{reason}; no disk was touched"))?;
    set_clock(clock, found.job.created_at, None, unit::DISPATCHER, log);
    let http = HttpClient::new(found.job.controller_ca.as_deref()).map_err(|source| source.to_string())?;
    let foreign_http = HttpClient::new(None).map_err(|source| source.to_string())?;
    let linux = LinuxHost::default();
    let machine = Machine {
        http: &http,
        foreign_http: &foreign_http,
        clock,
        log,
        disks: &|| {
            load();
            facts::read_disks(sys)
        },
        media,
        open: &|disk| Ok(Box::new(FileDisk::open(&dev.join(&disk.name), disk.sector)?) as Box<dyn Disk>),
        peek: &|disk| {
            Ok(Box::new(FileDisk::open_to_read(&dev.join(&disk.name), disk.sector)?) as Box<dyn Disk>)
        },
        // The system of the operator loads its drivers, and those of --modules are loaded between two looks at the disks.
        drivers: &DriverLoads::default,
        linux: &linux,
        inventory: &|| inventory::read(sys, proc),
        rescue: &NoRescue,
        medium: &open_medium,
        report_limit: arguments.report_limit,
    };
    let (outcome, delivery) = run(&machine, &found);
    Ok(outcome == Outcome::Success && matches!(delivery, ReportDelivery::Acknowledged | ReportDelivery::Said))
}

fn module_index(folder: &Path) -> Result<ModuleIndex, String> {
    let path = folder.join(modules::INDEX);
    let text = fs::read_to_string(&path).map_err(|source| format!("reading {}: {source}", path.display()))?;
    ModuleIndex::parse(&text)
}

#[cfg(test)]
mod tests;
