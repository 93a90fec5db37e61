//! Finding the task: one search order for all slot plans.
//!
//! ```text
//! boot medium   El Torito entry?  marker file?      no -> not the maintenance OS, the machine hangs
//!      |
//! every medium  /job.json, server_serial matches     newest created_at wins; volume labels are ignored
//!      | none
//! boot medium   /task/job.json, server_serial matches
//!      | none
//! refused       no disk is written, no report is sent: without a job there is no URL and no token
//! ```
//!
//! A medium that cannot be read is skipped with a line on the console: a broken USB stick beside a good CD must not stop
//! an installation. Decision D3a; docs/maintenance-os.md.

use iso9660::{Image, ReadAt};

use super::{
    behaviour::unit,
    documents::{JobDocument, TaskFiles},
};
use crate::{
    console::MachineConsole,
    images::{MARKER_PATH, MaintenanceMarker},
};

const MAX_JOB_BYTES: u64 = 256 * 1024;
const MAX_RECIPE_BYTES: u64 = 8 * 1024 * 1024;
const MAX_SCHEMA_BYTES: u64 = 1024 * 1024;
const MAX_CLOUD_INIT_BYTES: u64 = 2 * 1024 * 1024;
const MAX_MARKER_BYTES: u64 = 16 * 1024;
const CLOUD_INIT: [&str; 4] = ["user-data", "meta-data", "network-config", "vendor-data"];

/// A medium in a drive.
pub(super) struct Drive<D> {
    pub(super) slot: String,
    pub(super) disc: D,
}

/// The result of the search for the task of this machine.
pub(super) enum FoundMedia {
    /// A complete task.
    Task(Box<TaskFiles>),
    /// A task of this machine with unreadable files. The failure can be reported.
    Damaged { job: Box<JobDocument>, reason: String },
    /// No task of this machine.
    Refused { reason: String },
    /// The boot medium is not the maintenance OS.
    NotBootable { reason: String },
}

/// Boots from `drives[booted]` and looks for the task of `serial`.
pub(super) fn find_task<D: ReadAt>(
    drives: Vec<Drive<D>>,
    booted: usize,
    serial: &str,
    console: &MachineConsole,
) -> FoundMedia {
    let mut images = Vec::with_capacity(drives.len());
    for (index, drive) in drives.into_iter().enumerate() {
        match Image::open(drive.disc) {
            Ok(image) => images.push((index, drive.slot, image)),
            Err(source) if index == booted => {
                return FoundMedia::NotBootable {
                    reason: format!("{} cannot be read: {}", drive.slot, chain(&source)),
                };
            }
            Err(source) => {
                console.print(unit::KERNEL, format!("{}: skipped: {}", drive.slot, chain(&source)))
            }
        }
    }
    let Some((_, slot, boot)) = images.iter().find(|(index, ..)| *index == booted) else {
        return FoundMedia::NotBootable { reason: "the boot medium is not in a drive".to_owned() };
    };
    match check_boot_medium(boot) {
        Ok(marker) => {
            console.print(unit::KERNEL, format!("{} {} booted from {slot}", marker.name, marker.version))
        }
        Err(reason) => return FoundMedia::NotBootable { reason: format!("{slot}: {reason}") },
    }

    let mut others = Vec::new();
    let mut newest: Option<(JobDocument, &Image<D>)> = None;
    for (_, slot, image) in &images {
        let Some(job) = read_job(image, "job.json", slot, console) else { continue };
        console.print(
            unit::DISPATCHER,
            format!("{slot}: volume {} holds job {}", image.volume_id(), job.job_id),
        );
        if job.server_serial != serial {
            others.push(job.server_serial);
        } else if newest.as_ref().is_none_or(|(best, _)| job.created_at > best.created_at) {
            newest = Some((job, image));
        }
    }
    if let Some((job, image)) = newest {
        return read_task(image, "", job);
    }
    match read_job(boot, "task/job.json", slot, console) {
        Some(job) if job.server_serial == serial => read_task(boot, "task/", job),
        Some(job) => {
            others.push(job.server_serial);
            refuse(serial, &others)
        }
        None => refuse(serial, &others),
    }
}

fn refuse(serial: &str, others: &[String]) -> FoundMedia {
    let reason = if others.is_empty() {
        "no medium holds a job.json".to_owned()
    } else {
        format!("this machine is {serial}, the media hold a task for {}", others.join(", "))
    };
    FoundMedia::Refused { reason }
}

fn check_boot_medium<D: ReadAt>(image: &Image<D>) -> Result<MaintenanceMarker, String> {
    let entries = image.boot_entries().map_err(|source| chain(&source))?;
    if entries.is_empty() {
        return Err("it has no El Torito boot entry".to_owned());
    }
    let bytes = image
        .read(MARKER_PATH, MAX_MARKER_BYTES)
        .map_err(|source| format!("it is not a maintenance image: {}", chain(&source)))?;
    serde_json::from_slice(&bytes).map_err(|source| format!("{MARKER_PATH} is not readable: {source}"))
}

fn read_job<D: ReadAt>(
    image: &Image<D>,
    path: &str,
    slot: &str,
    console: &MachineConsole,
) -> Option<JobDocument> {
    // A boot medium usually has no job. A job that cannot be parsed is logged on the console.
    image.lookup(path).ok()?;
    let read = image.read(path, MAX_JOB_BYTES).map_err(|source| chain(&source));
    match read.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|source| source.to_string())) {
        Ok(job) => Some(job),
        Err(reason) => {
            console.print(unit::DISPATCHER, format!("{slot}: /{path} skipped: {reason}"));
            None
        }
    }
}

fn read_task<D: ReadAt>(image: &Image<D>, directory: &str, job: JobDocument) -> FoundMedia {
    let file = |name: &str, limit| {
        let path = format!("{directory}{name}");
        image.read(&path, limit).map_err(|source| format!("reading /{path}: {}", chain(&source)))
    };
    let read = || -> Result<_, String> {
        let recipe = file("recipe.json", MAX_RECIPE_BYTES)?;
        let schema = file("recipe.schema.json", MAX_SCHEMA_BYTES)?;
        let mut cloud_init = Vec::new();
        for name in CLOUD_INIT {
            if image.lookup(&format!("{directory}{name}")).is_ok() {
                cloud_init.push((name, file(name, MAX_CLOUD_INIT_BYTES)?));
            }
        }
        Ok((recipe, schema, cloud_init))
    };
    match read() {
        Ok((recipe, schema, cloud_init)) => {
            FoundMedia::Task(Box::new(TaskFiles { job, recipe, schema, cloud_init }))
        }
        Err(reason) => FoundMedia::Damaged { job: Box::new(job), reason },
    }
}

/// Formats an error and its causes in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
