//! The hardware of the machine, read from sysfs and procfs.
//!
//! ```text
//! class/dmi/id, firmware/efi, class/tpm     product, firmware, boot mode, TPM
//! /proc/meminfo, /proc/cpuinfo              memory, processors
//! class/net/*/{address,carrier,device}      network interfaces of hardware, with link
//! bus/pci/devices/*/class = 0x03…           display and compute adapters
//! block/*                                   disks (facts.rs)
//! ```
//!
//! Invariants: nothing is opened but files of both trees, below roots that the caller names. Lists are bounded, so that an
//! inventory fits into a report. What cannot be read is left out.

use std::{fs, path::Path};

use serde::Serialize;

use crate::facts::{DiskFacts, read_disks};
use crate::serials::MachineSerials;

/// Maximum length of each list.
const MAX_LIST: usize = 48;
/// Maximum length of a text in characters.
const MAX_TEXT: usize = 64;

/// The inventory of a machine.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Inventory {
    /// `uefi` or `bios`.
    pub boot_mode: &'static str,
    /// The maker of the machine.
    pub manufacturer: Option<String>,
    /// The product.
    pub product: Option<String>,
    /// All serial numbers that the firmware declares.
    pub serials: Vec<String>,
    /// The version of the firmware.
    pub firmware_version: Option<String>,
    /// The date of the firmware as it is written there.
    pub firmware_date: Option<String>,
    /// The major version of the TPM.
    pub tpm: Option<String>,
    /// The memory that the kernel manages, in bytes.
    pub memory_bytes: u64,
    /// The model of the processors.
    pub cpu_model: Option<String>,
    /// The number of logical processors.
    pub cpus: usize,
    /// The network interfaces of hardware.
    pub nics: Vec<Nic>,
    /// The display and compute adapters.
    pub gpus: Vec<PciDevice>,
    /// The disks.
    pub disks: Vec<DiskRecord>,
}

/// A network interface of hardware.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct Nic {
    /// The name of the kernel.
    pub name: String,
    /// The permanent or current MAC address.
    pub mac: String,
    /// Whether there is a link; unknown while the interface is down.
    pub link: Option<bool>,
    /// The speed in Mbit/s.
    pub speed: Option<u32>,
    /// The driver.
    pub driver: Option<String>,
}

/// A device on PCI.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct PciDevice {
    /// The address.
    pub address: String,
    /// The vendor as a number.
    pub vendor: String,
    /// The device as a number.
    pub device: String,
}

/// A disk in an inventory.
#[derive(Clone, Debug, Serialize, PartialEq, Eq)]
pub struct DiskRecord {
    name: String,
    bytes: u64,
    sector: u64,
    rotational: bool,
    removable: bool,
    serial: Option<String>,
    wwn: Option<String>,
    model: Option<String>,
    /// The version of the disk's firmware: of an NVMe drive, or of a SCSI or ATA disk.
    firmware: Option<String>,
    by_path: Option<String>,
}

impl DiskRecord {
    fn new(disk: &DiskFacts, sys: &Path) -> Self {
        let device = sys.join("block").join(&disk.name).join("device");
        Self {
            firmware: ["firmware_rev", "rev"].iter().find_map(|file| text(&device.join(file))),
            name: short(&disk.name),
            bytes: disk.bytes,
            sector: disk.sector,
            rotational: disk.rotational,
            removable: disk.removable,
            serial: disk.serial.as_deref().map(short),
            wwn: disk.wwn.as_deref().map(short),
            model: disk.model.as_deref().map(short),
            by_path: disk.by_path.first().map(|path| short(path)),
        }
    }
}

/// Reads the inventory below `sys` and `proc`, which are `/sys` and `/proc` on a machine.
#[must_use]
pub fn read(sys: &Path, proc: &Path) -> Inventory {
    let dmi = |name: &str| text(&sys.join("class/dmi/id").join(name));
    let cpuinfo = fs::read_to_string(proc.join("cpuinfo")).unwrap_or_default();
    let mut disks = read_disks(sys);
    disks.truncate(MAX_LIST);
    Inventory {
        boot_mode: if sys.join("firmware/efi").is_dir() { "uefi" } else { "bios" },
        manufacturer: dmi("sys_vendor"),
        product: dmi("product_name"),
        serials: MachineSerials::read(sys).all().iter().map(|serial| short(serial)).collect(),
        firmware_version: dmi("bios_version"),
        firmware_date: dmi("bios_date"),
        tpm: text(&sys.join("class/tpm/tpm0/tpm_version_major")),
        memory_bytes: memory(&proc.join("meminfo")),
        cpu_model: field(&cpuinfo, "model name").map(|model| short(&model)),
        cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        nics: nics(sys),
        gpus: gpus(sys),
        disks: disks.iter().map(|disk| DiskRecord::new(disk, sys)).collect(),
    }
}

fn memory(meminfo: &Path) -> u64 {
    let meminfo = fs::read_to_string(meminfo).unwrap_or_default();
    let total = field(&meminfo, "MemTotal").unwrap_or_default();
    let kib: u64 = total.trim_end_matches("kB").trim().parse().unwrap_or(0);
    kib.saturating_mul(1024)
}

/// Returns the most memory that this process has used at a time, in bytes, from `status` of `/proc` (proc(5), `VmHWM`).
pub fn peak_memory(status: &Path) -> Option<u64> {
    let status = fs::read_to_string(status).ok()?;
    let kib: u64 = field(&status, "VmHWM")?.trim_end_matches("kB").trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs
        .map(|(known, value)| (known.trim(), value.trim()))
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value.to_owned())
}

fn nics(sys: &Path) -> Vec<Nic> {
    let folder = sys.join("class/net");
    let mut nics: Vec<Nic> = names(&folder)
        .into_iter()
        // Interfaces without a device are bridges, bonds, tunnels and the loopback.
        .filter(|name| folder.join(name).join("device").exists())
        .filter_map(|name| {
            let path = folder.join(&name);
            let driver = fs::read_link(path.join("device/driver")).ok();
            Some(Nic {
                mac: text(&path.join("address"))?.to_ascii_lowercase(),
                link: text(&path.join("carrier")).map(|carrier| carrier == "1"),
                speed: text(&path.join("speed")).and_then(|speed| speed.parse().ok()),
                driver: driver.and_then(|path| Some(short(&path.file_name()?.to_string_lossy()))),
                name: short(&name),
            })
        })
        .collect();
    nics.truncate(MAX_LIST);
    nics
}

fn gpus(sys: &Path) -> Vec<PciDevice> {
    let folder = sys.join("bus/pci/devices");
    let number = |path: &Path| text(path).map(|text| text.trim_start_matches("0x").to_owned());
    let mut gpus: Vec<PciDevice> = names(&folder)
        .into_iter()
        .filter(|address| {
            // Display controllers, and processing accelerators.
            let class = number(&folder.join(address).join("class")).unwrap_or_default();
            class.starts_with("03") || class.starts_with("12")
        })
        .filter_map(|address| {
            let path = folder.join(&address);
            Some(PciDevice {
                vendor: number(&path.join("vendor"))?,
                device: number(&path.join("device"))?,
                address: short(&address),
            })
        })
        .collect();
    gpus.truncate(MAX_LIST);
    gpus
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0');
    (!text.is_empty()).then(|| short(text))
}

fn short(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::FakeSys;

    #[test]
    fn an_inventory_has_what_the_kernel_shows() {
        let sys = FakeSys::default();
        for (path, content) in [
            ("class/dmi/id/sys_vendor", "Maker\n"),
            ("class/dmi/id/product_name", "Box 1\n"),
            ("class/dmi/id/product_serial", "SN1\n"),
            ("class/dmi/id/bios_version", "1.2\n"),
            ("class/dmi/id/bios_date", "03/14/2025\n"),
            ("firmware/efi/fw_platform_size", "64\n"),
            ("class/tpm/tpm0/tpm_version_major", "2\n"),
            ("class/net/eth0/address", "52:54:00:AA:00:01\n"),
            ("class/net/eth0/carrier", "1\n"),
            ("class/net/eth0/speed", "25000\n"),
            ("class/net/eth0/device/vendor", "0x1af4\n"),
            ("class/net/eth1/address", "52:54:00:aa:00:02\n"),
            ("class/net/eth1/device/vendor", "0x1af4\n"),
            ("class/net/lo/address", "00:00:00:00:00:00\n"),
            ("bus/pci/devices/0000:65:00.0/class", "0x030200\n"),
            ("bus/pci/devices/0000:65:00.0/vendor", "0x10de\n"),
            ("bus/pci/devices/0000:65:00.0/device", "0x2330\n"),
            ("bus/pci/devices/0000:00:1f.2/class", "0x010601\n"),
            ("proc/meminfo", "MemTotal:       16314620 kB\nMemFree: 1 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Chip\n\nprocessor\t: 1\nmodel name\t: Chip\n"),
        ] {
            sys.file(path, content);
        }
        sys.disk("vda", "pci0000:00/0000:00:04.0/virtio1", 2000, &[("serial", "V1")]);
        sys.disk("sda", "pci0000:00/0000:00:05.0/ata1", 2000, &[("device/rev", "GS0F")]);
        sys.disk("nvme0n1", "pci0000:00/0000:00:06.0/nvme0", 2000, &[("device/firmware_rev", "NV01")]);
        let found = read(sys.path(), &sys.path().join("proc"));
        assert_eq!((found.boot_mode, found.cpus, found.memory_bytes), ("uefi", 2, 16_314_620 * 1024));
        assert_eq!((found.product.as_deref(), found.tpm.as_deref()), (Some("Box 1"), Some("2")));
        assert_eq!(
            (found.serials.as_slice(), found.manufacturer.as_deref()),
            (&["SN1".to_owned()][..], Some("Maker"))
        );
        assert_eq!(found.cpu_model.as_deref(), Some("Chip"));
        // The names of the report, by which the record of the server has them.
        let report = serde_json::to_value(&found).unwrap();
        assert_eq!([&report["firmware_version"], &report["firmware_date"]], ["1.2", "03/14/2025"]);
        let [first, second] = &found.nics[..] else { panic!("{:?}", found.nics) };
        assert_eq!(
            (first.mac.as_str(), first.link, first.speed),
            ("52:54:00:aa:00:01", Some(true), Some(25_000))
        );
        assert_eq!((second.name.as_str(), second.link), ("eth1", None));
        assert_eq!((found.gpus.len(), found.gpus[0].device.as_str()), (1, "2330"));
        let [nvme, ata, virtio] = &found.disks[..] else { panic!("{:?}", found.disks) };
        assert_eq!((virtio.bytes, virtio.serial.as_deref()), (2000 << 20, Some("V1")));
        let firmware = [nvme, ata, virtio].map(|disk| disk.firmware.as_deref());
        assert_eq!(firmware, [Some("NV01"), Some("GS0F"), None]);
    }

    #[test]
    fn the_peak_of_memory_is_read_from_the_status_of_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let status = folder.path().join("status");
        std::fs::write(&status, "Name:\tagent\nVmHWM:\t   20480 kB\nVmRSS:\t 100 kB\n").unwrap();
        assert_eq!(peak_memory(&status), Some(20 << 20));
        assert_eq!(peak_memory(&folder.path().join("none")), None);
    }

    #[test]
    fn an_inventory_of_a_large_machine_fits_into_a_report_and_an_empty_one_is_no_error() {
        let sys = FakeSys::default();
        for number in 0..100 {
            sys.file(&format!("class/net/eth{number}/address"), "52:54:00:aa:00:01");
            sys.file(&format!("class/net/eth{number}/device/vendor"), "1");
            let model = "\"".repeat(200);
            sys.disk(
                &format!("sd{number}"),
                &format!("pci/{number}"),
                1,
                &[("device/model", &model), ("serial", &model)],
            );
        }
        let bytes = serde_json::to_vec(&read(sys.path(), sys.path())).unwrap();
        assert!(bytes.len() < 32 * 1024, "{}", bytes.len());
        assert_eq!(read(Path::new("/nowhere"), Path::new("/nowhere")).boot_mode, "bios");
    }
}
