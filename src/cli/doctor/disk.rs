//! Space on the disks of a controller, and how fast a write is durable.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use settings::Settings;

use super::finding::Finding;

/// With less a controller starts no job.
const LEAST: u64 = 256 << 20;
/// The space that a disk usually needs, by what it stores.
struct Usual {
    /// With less there is a warning.
    bytes: u64,
    /// How to free space.
    free: &'static str,
    /// How much to give, and why.
    more: &'static str,
}

/// With less a few images fill the disk.
const IMAGES: Usual = Usual {
    bytes: 10 << 30,
    free: "free space: `shoal registry gc`, remove old images, or use a larger disk",
    more: "give 10 GiB or more: OS images are stored here and each has some GiB",
};
/// With less the write-ahead log of a long transaction and a few months of events fill the disk.
const DATABASE: Usual = Usual {
    bytes: 1 << 30,
    free: "free space on the disk of DB_PATH, or use a larger disk",
    more: "give 1 GiB or more: jobs and their events are stored here",
};
/// The number of small durable writes that are measured.
const SMALL_WRITES: usize = 16;
/// The bytes of the large durable write.
const LARGE_WRITE: usize = 16 << 20;
/// The time after which no further write begins.
const TIME: Duration = Duration::from_secs(10);
/// The median of a durable write above which jobs wait for the disk.
const SLOW: Duration = Duration::from_millis(30);
const TOO_SLOW: Duration = Duration::from_millis(500);

/// The free space of the data directory, and of the registry and the database where they are on other disks.
pub(super) fn room(settings: &Settings) -> Vec<Finding> {
    let data = nearest(&settings.storage_root);
    let other = |path: &Path| Some(nearest(path)).filter(|place| device(place) != device(&data));
    let mut findings = vec![room_of("data", &data, &IMAGES)];
    if settings.enable_registry {
        findings.extend(other(&settings.registry_storage).map(|place| room_of("registry", &place, &IMAGES)));
    }
    findings.extend(other(&settings.db_path).map(|place| room_of("database", &place, &DATABASE)));
    findings
}

/// The device of a directory; `None` when it cannot be read.
fn device(place: &Path) -> Option<u64> {
    std::fs::metadata(place).ok().map(|metadata| metadata.dev())
}

fn room_of(what: &str, place: &Path, usual: &Usual) -> Finding {
    let finding = Finding::new("disk-space", "a full disk stops new jobs and pushes");
    let free = match rustix::fs::statvfs(place) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            return finding.failed(
                format!("the disk of {} cannot be read: {error}", place.display()),
                "check that the disk is mounted",
            );
        }
    };
    judge_room(finding, &format!("{what} ({})", place.display()), usual, free)
}

fn judge_room(finding: Finding, place: &str, usual: &Usual, free: u64) -> Finding {
    let shown = format!("{place}: {} MiB free", free >> 20);
    match free {
        free if free < LEAST => finding.failed(shown, usual.free),
        free if free < usual.bytes => finding.warned(shown, usual.more),
        _ => finding.passed(shown),
    }
}

/// The directory, or the nearest one above it that exists: the first start creates the directory.
fn nearest(path: &Path) -> PathBuf {
    path.ancestors().find(|place| place.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Writes with sync into the directory of the database and measures them.
pub(super) fn writes(database: &Path) -> Finding {
    let finding = Finding::new(
        "disk-speed",
        "each step of a job is durable before the next, so a slow sync slows all jobs",
    );
    let place = nearest(database);
    match measure(&place) {
        Ok((median, rate)) => judge(finding, median, rate),
        Err(error) => finding.failed(
            format!("{} cannot be written: {error}", place.display()),
            format!(
                "run this command as the user of the controller, and make {} writable for it",
                place.display()
            ),
        ),
    }
}

/// The median time of a small durable write, and the bytes per second of a large one.
fn measure(place: &Path) -> io::Result<(Duration, u64)> {
    // Without a name: the file is gone with this process, however that ends.
    let mut file: File = tempfile::tempfile_in(place)?;
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < SMALL_WRITES && (times.is_empty() || began.elapsed() < TIME) {
        let before = Instant::now();
        file.write_all(&[0x5a; 4096])?;
        file.sync_data()?;
        times.push(before.elapsed());
    }
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    let before = Instant::now();
    file.write_all(&vec![0x5a; LARGE_WRITE])?;
    file.sync_data()?;
    let micros = before.elapsed().as_micros().max(1);
    let rate = LARGE_WRITE as u128 * 1_000_000 / micros;
    Ok((median, u64::try_from(rate).unwrap_or(u64::MAX)))
}

fn judge(finding: Finding, median: Duration, rate: u64) -> Finding {
    let shown = format!(
        "a durable write takes {:.1} ms, 16 MiB are written with {} MiB/s",
        median.as_secs_f64() * 1000.0,
        rate >> 20
    );
    let advice = "put STORAGE_ROOT, or the database (DB_PATH), on a local SSD, or on a controller with a protected write cache";
    if median >= TOO_SLOW {
        finding.failed(shown, advice)
    } else if median >= SLOW || rate < 10 << 20 {
        finding.warned(shown, advice)
    } else {
        finding.passed(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    #[test]
    fn space_and_speed_have_two_limits_each() {
        let open = || Finding::new("disk", "");
        for usual in [IMAGES, DATABASE] {
            for (free, state) in [(LEAST - 1, State::Fail), (LEAST, State::Warn), (usual.bytes, State::Pass)]
            {
                assert_eq!(judge_room(open(), "data", &usual, free).state, state, "{free}");
            }
        }
        for (median, rate, state) in [
            (TOO_SLOW, u64::MAX, State::Fail),
            (SLOW, u64::MAX, State::Warn),
            (Duration::from_millis(1), 1 << 20, State::Warn),
            (Duration::from_millis(1), 100 << 20, State::Pass),
        ] {
            assert_eq!(judge(open(), median, rate).state, state, "{median:?} {rate}");
        }
    }

    #[test]
    fn the_measurement_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!writes(&folder.path().join("not/there/yet")).what.is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
