//! The power button, which is how a BMC asks for a graceful shutdown.
//!
//! ```text
//! /sys/class/input/eventN/device/capabilities/key has KEY_POWER -> /dev/input/eventN --24-byte records--> pressed
//! ```

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use super::mounts::small_file;

const KEY: u16 = 1;
const KEY_POWER: u16 = 116;
/// Bytes of an event on 64-bit machines.
const EVENT: usize = 24;
const MAX_BUTTONS: usize = 32;
const ROUND: Duration = Duration::from_millis(500);

/// Returns whether a device has a power button, from the text of its keys: numbers of 64 bits, the highest first.
#[must_use]
pub fn has_button(capabilities: &str) -> bool {
    let words: Vec<&str> = capabilities.split_whitespace().rev().collect();
    let word = words.get(usize::from(KEY_POWER / 64)).and_then(|word| u64::from_str_radix(word, 16).ok());
    word.is_some_and(|word| word >> (KEY_POWER % 64) & 1 == 1)
}

/// Returns whether the records contain a press of the power button.
#[must_use]
pub fn pressed(records: &[u8]) -> bool {
    let number =
        |record: &[u8], at: usize| Some(u16::from_ne_bytes(record.get(at..at + 2)?.try_into().ok()?));
    records.chunks_exact(EVENT).any(|record| {
        let (kind, code, value) = (number(record, 16), number(record, 18), number(record, 20));
        (kind, code, value) == (Some(KEY), Some(KEY_POWER), Some(1))
    })
}

/// Returns when the power button was pressed.
pub fn wait(sys: &Path, dev: &Path) {
    let mut buttons: BTreeMap<String, File> = BTreeMap::new();
    loop {
        find(sys, dev, &mut buttons);
        let mut records = [0; EVENT * 64];
        let mut any = false;
        buttons.retain(|_, button| match button.read(&mut records) {
            Ok(length) => {
                any |= pressed(&records[..length.min(EVENT * 64)]);
                true
            }
            // Nothing to read. With any other error the device is gone, and its name can be given to another.
            Err(source) => source.kind() == ErrorKind::WouldBlock,
        });
        if any {
            return;
        }
        std::thread::sleep(ROUND);
    }
}

fn find(sys: &Path, dev: &Path, buttons: &mut BTreeMap<String, File>) {
    for entry in fs::read_dir(sys.join("class/input")).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !name.starts_with("event") || buttons.contains_key(&name) || buttons.len() >= MAX_BUTTONS {
            continue;
        }
        if has_button(&small_file(&entry.path().join("device/capabilities/key"))) {
            let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
            let file = OpenOptions::new().read(true).custom_flags(flags).open(dev.join("input").join(&name));
            buttons.extend(file.ok().map(|file| (name, file)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u16, code: u16, value: u32) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(code.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_power_button_is_known_by_its_key() {
        assert!(has_button("10000000000000 0\n"));
        assert!(!has_button("20000000000000 0\n") && !has_button("10000000000000\n") && !has_button("x y\n"));
    }

    #[test]
    fn a_press_is_seen_among_other_records_and_a_release_is_none() {
        let records = [record(0, 0, 0), record(1, 30, 1), record(1, 116, 1)].concat();
        assert!(pressed(&records));
        assert!(!pressed(&records[..records.len() - 1]) && !pressed(&record(1, 116, 0)));
    }

    #[test]
    fn a_press_on_a_device_that_appears_ends_the_wait() {
        let (sys, dev) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let device = sys.path().join("class/input/event3/device/capabilities");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("key"), "10000000000000 0\n").unwrap();
        fs::create_dir_all(dev.path().join("input")).unwrap();
        fs::write(dev.path().join("input/event3"), record(1, 116, 1)).unwrap();
        wait(sys.path(), dev.path());
    }
}
