//! When the tags of a registry were pushed: the time of modification of a tag record, which retention reads.
//!
//! ```text
//!   1767225600.000000000  data/oci/repos/os-images=ubuntu/_tags/v1
//! ```
//!
//! They are content of a file, because a backup that is packed, or copied by another program, does not keep times of modification.
//! A backup of a program that did not write the file is restored without them: its tags are as old as the restore.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::copy::{Copier, TagTimes, line_of_data};
use super::error::{BackupError, file};
use super::names::TAG_TIMES;

/// Writes the times into a backup.
pub(super) fn write(copier: &mut Copier, times: &TagTimes) -> Result<(), BackupError> {
    let mut text = String::new();
    for (path, time) in times {
        // A registry pushes nothing before 1970.
        let time = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        text.push_str(&format!("{}.{:09}  {}\n", time.as_secs(), time.subsec_nanos(), path.display()));
    }
    copier.write(Path::new(TAG_TIMES), text.as_bytes())
}

/// Gives restored records their times. `place`: where the record with this path in the backup is, if it was restored.
pub(super) fn restore(backup: &Path, place: &dyn Fn(&Path) -> Option<PathBuf>) -> Result<(), BackupError> {
    let path = backup.join(TAG_TIMES);
    let times = match File::open(&path) {
        Ok(times) => times,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(file("read", &path)(error)),
    };
    for line in BufReader::new(times).lines() {
        let line = line.map_err(file("read", &path))?;
        let parsed = line_of_data(&line).and_then(|(time, record)| Some((parse(time)?, record)));
        let (time, record) = parsed
            .ok_or_else(|| BackupError::Damaged { reason: format!("{TAG_TIMES} has an invalid line") })?;
        let Some(record) = place(record) else { continue };
        let set =
            File::open(&record).and_then(|opened| opened.set_modified(time).and_then(|()| opened.sync_all()));
        set.map_err(file("set the time of", &record))?;
    }
    Ok(())
}

fn parse(time: &str) -> Option<SystemTime> {
    let (seconds, nanos) = time.split_once('.')?;
    let nanos: u32 = nanos.parse().ok().filter(|nanos| *nanos < 1_000_000_000)?;
    UNIX_EPOCH.checked_add(Duration::new(seconds.parse().ok()?, nanos))
}
