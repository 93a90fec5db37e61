//! Space on the disks of a controller, and how fast a write is durable.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use settings::Settings;

use super::finding::Finding;

/// With less a controller starts no job.
const LEAST: u64 = 256 << 20;
/// With less a few images fill the disk.
const USUAL: u64 = 10 << 30;
/// The number of small durable writes that are measured.
const SMALL_WRITES: usize = 16;
/// The bytes of the large durable write.
const LARGE_WRITE: usize = 16 << 20;
/// The time after which no further write begins.
const TIME: Duration = Duration::from_secs(10);
/// The median of a durable write above which jobs wait for the disk.
const SLOW: Duration = Duration::from_millis(30);
const TOO_SLOW: Duration = Duration::from_millis(500);

/// The free space of the data directory and of the registry.
pub(super) fn room(settings: &Settings) -> Vec<Finding> {
    let mut places = vec![("data", settings.storage_root.as_path())];
    if settings.enable_registry && !settings.registry_storage.starts_with(&settings.storage_root) {
        places.push(("registry", settings.registry_storage.as_path()));
    }
    places.into_iter().map(|(what, path)| room_of(what, path)).collect()
}

fn room_of(what: &str, path: &Path) -> Finding {
    let finding = Finding::new("disk-space", "a full disk stops new jobs and pushes");
    let place = nearest(path);
    let free = match rustix::fs::statvfs(&place) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            return finding.failed(
                format!("the disk of {} cannot be read: {error}", place.display()),
                "check that the disk is mounted",
            );
        }
    };
    judge_room(finding, &format!("{what} ({})", place.display()), free)
}

fn judge_room(finding: Finding, place: &str, free: u64) -> Finding {
    let shown = format!("{place}: {} MiB free", free >> 20);
    match free {
        free if free < LEAST => {
            finding.failed(shown, "free space: `shoal registry gc`, remove old images, or use a larger disk")
        }
        free if free < USUAL => {
            finding.warned(shown, "give 10 GiB or more: OS images are stored here and each has some GiB")
        }
        _ => finding.passed(shown),
    }
}

/// The directory, or the nearest one above it that exists: the first start creates the directory.
fn nearest(path: &Path) -> PathBuf {
    path.ancestors().find(|place| place.is_dir()).unwrap_or(Path::new("/")).to_owned()
}

/// Writes with sync into the data directory and measures them.
pub(super) fn writes(data: &Path) -> Finding {
    let finding = Finding::new(
        "disk-speed",
        "each step of a job is durable before the next, so a slow sync slows all jobs",
    );
    let place = nearest(data);
    match measure(&place) {
        Ok((median, rate)) => judge(finding, median, rate),
        Err(error) => finding.failed(
            format!("{} cannot be written: {error}", place.display()),
            format!(
                "run this command as the user of the controller, and make {} writable for it",
                data.display()
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
    let advice = "put STORAGE_ROOT on a local SSD, or on a controller with a protected write cache";
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
        for (free, state) in [(LEAST - 1, State::Fail), (LEAST, State::Warn), (USUAL, State::Pass)] {
            assert_eq!(judge_room(open(), "data", free).state, state, "{free}");
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
