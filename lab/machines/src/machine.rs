//! The hardware of a simulated machine as its operating system sees it: a DMI serial number and disks.
//!
//! ```text
//! <disk_dir>/<serial>/sda.disk       created by the first write; without a file the disk is blank
//!                     nvme0n1.disk
//! ```
//!
//! Firmware boots the first disk, in the order of the list, that [`crate::disk::verify`] finds bootable.

use std::path::PathBuf;

use uuid::Uuid;

use crate::disk::{self, Installed};

/// A disk of a simulated machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskSpec {
    /// The device name, such as `/dev/sda`.
    pub device: String,
    /// Size in bytes. The file is sparse: only written blocks use space.
    pub bytes: u64,
    /// The serial number. `None` derives one from machine and device; an empty one is not shown.
    pub serial: Option<String>,
    /// The WWN, if the disk shows one.
    pub wwn: Option<String>,
}

/// A simulated machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The serial number in DMI.
    pub serial: String,
    /// The disks, in boot order.
    pub disks: Vec<DiskSpec>,
    /// Directory of the disk files. No other machine uses it.
    pub directory: PathBuf,
}

/// The machine has no bootable disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no bootable disk: {}", reasons.join("; "))]
pub struct NoBootableDisk {
    /// One reason for each disk.
    pub reasons: Vec<String>,
}

impl Machine {
    /// Creates a machine whose disk files are in a separate directory under `disk_dir`.
    #[must_use]
    pub fn new(serial: &str, disks: Vec<DiskSpec>, disk_dir: &std::path::Path) -> Self {
        Self { serial: serial.to_owned(), disks, directory: disk_dir.join(directory_name(serial)) }
    }

    /// Disks that suit most recipes: 4 GiB as SATA, NVMe and virtio.
    #[must_use]
    pub fn usual_disks() -> Vec<DiskSpec> {
        let disk =
            |device: &str| DiskSpec { device: device.to_owned(), bytes: 4 << 30, serial: None, wwn: None };
        vec![disk("/dev/sda"), disk("/dev/nvme0n1"), disk("/dev/vda")]
    }

    /// The disk of this device name, if the machine has one.
    #[must_use]
    pub fn disk(&self, device: &str) -> Option<&DiskSpec> {
        self.disks.iter().find(|disk| disk.device == device)
    }

    /// The serial number that a disk shows, if it shows one.
    #[must_use]
    pub fn disk_serial(&self, disk: &DiskSpec) -> Option<String> {
        match &disk.serial {
            Some(serial) => Some(serial.clone()).filter(|serial| !serial.is_empty()),
            None => {
                Some(self.guid(&format!("disk {}", disk.device)).simple().to_string()[..16].to_uppercase())
            }
        }
    }

    /// The file that holds the content of a disk.
    #[must_use]
    pub fn disk_file(&self, disk: &DiskSpec) -> PathBuf {
        let name = disk.device.strip_prefix("/dev/").unwrap_or(&disk.device);
        self.directory.join(format!("{}.disk", directory_name(name)))
    }

    /// Returns a GUID derived from the serial number and `what`: installing a machine again gives the same GUIDs.
    #[must_use]
    pub fn guid(&self, what: &str) -> Uuid {
        Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{}/{what}", self.serial).as_bytes())
    }

    /// Returns the device and system that the firmware boots without media. Reads and hashes the disks: call it on a
    /// blocking thread.
    ///
    /// # Errors
    /// Returns [`NoBootableDisk`] with a reason for every disk if none is bootable.
    pub fn boot_from_disk(&self) -> Result<(String, Installed), NoBootableDisk> {
        let mut reasons = Vec::new();
        for disk in &self.disks {
            match disk::verify(&self.disk_file(disk)) {
                Ok(installed) => return Ok((disk.device.clone(), installed)),
                Err(disk::DiskError::Blank { .. }) => reasons.push(format!("{} is blank", disk.device)),
                Err(source) => reasons.push(format!("{}: {source}", disk.device)),
            }
        }
        Err(NoBootableDisk { reasons })
    }
}

/// A name that is safe as one path component and different for different inputs.
fn directory_name(text: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !text.is_empty() && text.len() <= 64 && text.chars().all(safe) {
        return text.to_owned();
    }
    let readable: String = text.chars().take(32).map(|c| if safe(c) { c } else { '_' }).collect();
    format!("{readable}-{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).simple())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn no_serial_number_leads_outside_the_disk_directory_or_to_another_machines_disk() {
        let directory = |serial| Machine::new(serial, Vec::new(), Path::new("disks")).directory;
        for serial in ["..", "../x", "a/b", "", "a\0b", "ü", "/etc", "a b"] {
            let path = directory(serial);
            assert_eq!(path.parent(), Some(Path::new("disks")), "{serial:?}");
            assert_eq!(path.components().count(), 2, "{serial:?}");
        }
        assert_eq!(directory("XF-12345ABC"), Path::new("disks/XF-12345ABC"));
        assert_ne!(directory("a/b"), directory("a_b"));
        assert_ne!(directory("a/b"), directory("a b"));
    }

    #[test]
    fn a_machine_that_was_never_installed_has_no_bootable_disk() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Machine::new("S1", Machine::usual_disks(), directory.path());
        let refused = machine.boot_from_disk().unwrap_err();
        assert_eq!(refused.reasons, ["/dev/sda is blank", "/dev/nvme0n1 is blank", "/dev/vda is blank"]);
    }
}
