//! The disks of a machine, read from sysfs.
//!
//! ```text
//! /sys/block/NAME/{size,ro,removable,holders,serial,wwid,device/…} --> DiskFacts
//! /sys/block/NAME -> ../devices/pci…/ata1/host0/…                  --> by-path names, without udev
//! ```
//!
//! Invariants: nothing is opened but files of sysfs, below a root that the caller names. Virtual disks (loop, RAM,
//! device mapper, md, CD drives) are not listed.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
};

/// Prefixes of block devices that are no disks of the machine.
const NO_DISKS: [&str; 10] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd", "drbd", "bcache"];

/// The properties of one disk, as the kernel shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// The name of the kernel, such as `sda`. It can be another one after every boot.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
    /// The size of a logical sector in bytes.
    pub sector: u64,
    /// Whether the disk rotates.
    pub rotational: bool,
    /// Whether the medium is removable.
    pub removable: bool,
    /// Whether the disk cannot be written.
    pub read_only: bool,
    /// The serial number.
    pub serial: Option<String>,
    /// The World Wide Name, lower case, without a prefix such as `naa.` or `0x`.
    pub wwn: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The vendor.
    pub vendor: Option<String>,
    /// Host, channel, target and LUN of a SCSI disk.
    pub hctl: Option<String>,
    /// The number of an NVMe namespace.
    pub nvme_namespace: Option<u32>,
    /// Names as in `/dev/disk/by-id`.
    pub by_id: Vec<String>,
    /// Names as in `/dev/disk/by-path`.
    pub by_path: Vec<String>,
    /// Devices that use the disk or a partition of it: device mapper, md, bcache.
    pub holders: Vec<String>,
}

impl DiskFacts {
    /// Whether the other disk is another namespace of the same NVMe drive.
    #[must_use]
    pub fn shares_nvme_drive(&self, other: &Self) -> bool {
        // The name is nvme, the number of the drive, n, the number of the namespace.
        let drive =
            |name: &str| name.strip_prefix("nvme")?.split_once('n').map(|(drive, _)| drive.to_owned());
        self.name != other.name && drive(&self.name).is_some() && drive(&self.name) == drive(&other.name)
    }

    /// Whether the disk takes ATA commands through its driver. One behind a USB bridge is left out: bridges interrupt commands that
    /// take hours.
    #[must_use]
    pub fn takes_ata_commands(&self) -> bool {
        self.vendor.as_deref() == Some("ATA") && !self.by_path.iter().any(|path| path.contains("-usb-"))
    }

    /// Returns one line that identifies the disk for an operator.
    #[must_use]
    pub fn shown(&self) -> String {
        let gib = self.bytes as f64 / f64::from(1 << 30);
        let mut text = format!("{} {gib:.1} GiB", self.name);
        for (name, value) in [("model", &self.model), ("serial", &self.serial), ("wwn", &self.wwn)] {
            if let Some(value) = value {
                text += &format!(" {name}={value}");
            }
        }
        text
    }
}

/// Reads the disks below `sys`, which is `/sys` on a machine, sorted by name. A disk that vanishes meanwhile is left out.
#[must_use]
pub fn read_disks(sys: &Path) -> Vec<DiskFacts> {
    let Ok(entries) = fs::read_dir(sys.join("block")) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let names = names.filter(|name| !NO_DISKS.iter().any(|prefix| name.starts_with(prefix)));
    // A path of a drive with several ones: the kernel joins them in another disk, which is the one to use (NVMe multipath). The
    // places of the paths are names of the disk.
    let is_hidden =
        |name: &String| text(&sys.join("block").join(name).join("hidden")).as_deref() == Some("1");
    let (paths, names): (Vec<String>, Vec<String>) = names.partition(is_hidden);
    let mut disks: Vec<DiskFacts> =
        names.iter().filter_map(|name| read_disk(&sys.join("block").join(name), name)).collect();
    for disk in disks.iter_mut().filter(|disk| disk.by_path.is_empty()) {
        for path in paths.iter().filter(|path| is_path_of(path, &disk.name)) {
            let folder = sys.join("block").join(path);
            disk.by_path.extend(self::by_path(&fs::canonicalize(&folder).unwrap_or(folder)));
        }
        disk.by_path.sort();
        disk.by_path.dedup();
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    disks
}

/// Whether `nvme0c1n2` is a path to `nvme0n2`.
fn is_path_of(path: &str, disk: &str) -> bool {
    let parts = |name: &str| {
        let (drive, namespace) = name.strip_prefix("nvme")?.split_once('n')?;
        let drive = drive.split_once('c').map_or(drive, |(drive, _)| drive).to_owned();
        Some((drive, namespace.to_owned()))
    };
    parts(path).is_some() && parts(path) == parts(disk)
}

fn read_disk(folder: &Path, name: &str) -> Option<DiskFacts> {
    let number = |file: &str| text(&folder.join(file)).and_then(|text| text.parse::<u64>().ok());
    let flag = |file: &str| number(file) == Some(1);
    let device = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let path = device.to_string_lossy().into_owned();
    let first = |files: &[&str]| files.iter().find_map(|file| text(&folder.join(file)));
    let mut disk = DiskFacts {
        name: name.to_owned(),
        // The unit of this file is always 512 bytes.
        bytes: number("size")?.saturating_mul(512),
        sector: number("queue/logical_block_size").unwrap_or(512),
        rotational: flag("queue/rotational"),
        removable: flag("removable"),
        read_only: flag("ro"),
        serial: first(&["device/serial", "serial"]).or_else(|| vpd_serial(folder)),
        wwn: first(&["wwid", "device/wwid"]).and_then(|text| wwn_of(&text)),
        model: ata_model(folder).or_else(|| first(&["device/model"])),
        vendor: first(&["device/vendor"]).filter(|vendor| !vendor.starts_with("0x")),
        nvme_namespace: number("nsid").and_then(|number| u32::try_from(number).ok()),
        hctl: path.split('/').rev().find(|part| is_hctl(part)).map(str::to_owned),
        holders: holders(folder, name),
        ..DiskFacts::default()
    };
    disk.by_id = by_id(&disk);
    disk.by_path = by_path(&device);
    Some(disk)
}

fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_matches(|letter: char| letter.is_whitespace() || letter == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// The serial number of a SCSI disk: page 0x80 of its vital product data, after a header of four bytes.
fn vpd_serial(folder: &Path) -> Option<String> {
    let page = fs::read(folder.join("device/vpd_pg80")).ok()?;
    let length = usize::from(*page.get(3)?);
    let serial = String::from_utf8_lossy(page.get(4..4 + length)?).trim().to_owned();
    (!serial.is_empty()).then_some(serial)
}

/// The model of an ATA disk: the SCSI inquiry cuts it to 16 characters, IDENTIFY DEVICE has all 40. It is in page 0x89 of the vital
/// product data after 60 bytes; its words 27 to 46 are the model, the first letter of each in the high byte.
fn ata_model(folder: &Path) -> Option<String> {
    const MODEL: usize = 60 + 2 * 27;
    if text(&folder.join("device/vendor"))? != "ATA" {
        return None;
    }
    let mut page = [0; MODEL + 40];
    File::open(folder.join("device/vpd_pg89")).and_then(|mut file| file.read_exact(&mut page)).ok()?;
    let letters: Vec<u8> = page[MODEL..].chunks_exact(2).flat_map(|word| [word[1], word[0]]).collect();
    let model = std::str::from_utf8(&letters).ok()?.trim_matches([' ', '\0']);
    let plain = page[1] == 0x89 && model.bytes().all(|letter| letter == b' ' || letter.is_ascii_graphic());
    (plain && !model.is_empty()).then(|| model.to_owned())
}

/// The hex digits of a World Wide Name. Other identifiers, such as `t10.…`, are no WWN.
fn wwn_of(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let digits = ["naa.", "eui.", "uuid.", "0x"].iter().find_map(|prefix| lower.strip_prefix(prefix))?;
    let digits = digits.replace('-', "");
    let plain = digits.len() >= 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    (plain && digits.bytes().any(|byte| byte != b'0')).then_some(digits)
}

fn is_hctl(part: &str) -> bool {
    let mut numbers = part.split(':');
    let four = part.matches(':').count() == 3;
    four && numbers.all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn holders(folder: &Path, name: &str) -> Vec<String> {
    let list = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
    };
    let mut holders = list(folder.join("holders"));
    for part in list(folder.to_owned()) {
        if part.starts_with(name) {
            holders.extend(list(folder.join(&part).join("holders")));
        }
    }
    holders.sort();
    holders.dedup();
    holders
}

/// The names that udev gives in `/dev/disk/by-id`, as far as sysfs alone tells them.
fn by_id(disk: &DiskFacts) -> Vec<String> {
    let clean = |text: &str| -> String {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "#+-.:=@_/".contains(letter);
        text.split_whitespace()
            .collect::<Vec<_>>()
            .join("_")
            .chars()
            .map(|letter| if plain(letter) { letter } else { '_' })
            .collect()
    };
    let mut names = Vec::new();
    let model_serial = disk.model.as_deref().zip(disk.serial.as_deref());
    if disk.name.starts_with("nvme") {
        names.extend(model_serial.map(|(model, serial)| format!("nvme-{}_{}", clean(model), clean(serial))));
        names.extend(disk.wwn.iter().map(|wwn| format!("nvme-eui.{wwn}")));
    } else if disk.name.starts_with("vd") {
        names.extend(disk.serial.iter().map(|serial| format!("virtio-{}", clean(serial))));
    } else if disk.name.starts_with("sd") {
        if disk.vendor.as_deref() == Some("ATA") {
            names.extend(
                model_serial.map(|(model, serial)| format!("ata-{}_{}", clean(model), clean(serial))),
            );
        }
        if let Some(wwn) = &disk.wwn {
            names.push(format!("wwn-0x{wwn}"));
            names.push(format!("scsi-3{wwn}"));
        }
    }
    names
}

/// The names that udev gives in `/dev/disk/by-path`, computed from the path of the device in sysfs. A bus below a PCI device (Intel VMD)
/// has a name that begins with this device too: newer versions of udev give that one only.
fn by_path(device: &Path) -> Vec<String> {
    let path = device.to_string_lossy();
    let parts: Vec<&str> = path.split('/').collect();
    let below = parts.windows(2).find(|pair| is_pci_address(pair[0]) && pair[1].starts_with("pci"));
    let mut names = names_on_bus(device);
    if let Some(outer) = below.map(|pair| pair[0]) {
        names.extend(names.clone().into_iter().map(|name| format!("pci-{outer}-{name}")));
    }
    names
}

/// The names of [`by_path`] by the nearest PCI device.
fn names_on_bus(device: &Path) -> Vec<String> {
    let path = device.to_string_lossy().into_owned();
    let parts: Vec<&str> = path.split('/').collect();
    let position = |wanted: &dyn Fn(&str) -> bool| parts.iter().rposition(|part| wanted(part));
    let Some(pci_at) = position(&is_pci_address) else { return Vec::new() };
    let pci = parts[pci_at];
    let rest = &parts[pci_at + 1..];
    let numbered = |part: &str, prefix: &str| -> Option<String> {
        let number = part.strip_prefix(prefix)?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.to_owned())
    };
    if let Some(name) = rest.iter().rev().find(|part| part.starts_with("nvme") && part.contains('n')) {
        // The last part is nvme0n1: the namespace follows the second n.
        let namespace = name.rsplit_once('n').map(|(_, number)| number).unwrap_or("1");
        return vec![format!("pci-{pci}-nvme-{namespace}")];
    }
    let hctl: Vec<&str> =
        rest.iter().find(|part| is_hctl(part)).map(|part| part.split(':').collect()).unwrap_or_default();
    if let Some(port) = rest.iter().find_map(|part| numbered(part, "ata")) {
        let target = hctl.get(2).copied().unwrap_or("0");
        // The number in sysfs is global; the port of the controller is in ata_port, one folder beside.
        let local = device
            .ancestors()
            .find(|folder| folder.ends_with(format!("ata{port}")))
            .and_then(|folder| text(&folder.join(format!("ata_port/ata{port}/port_no"))))
            .unwrap_or(port);
        return vec![format!("pci-{pci}-ata-{local}.{target}"), format!("pci-{pci}-ata-{local}")];
    }
    if rest.iter().any(|part| part.starts_with("virtio")) && hctl.is_empty() {
        return vec![format!("pci-{pci}"), format!("virtio-pci-{pci}")];
    }
    let [_, channel, target, lun] = hctl[..] else { return Vec::new() };
    // The interface of a USB device is 2-1:1.0. Parts of SAS (end_device-0:3) and Fibre Channel (rport-0:0-1) have both signs too.
    let is_interface = |part: &&&str| {
        part.starts_with(|first: char| first.is_ascii_digit()) && part.contains('-') && part.contains(':')
    };
    let usb = rest.iter().rev().find(is_interface);
    if let Some(interface) = usb.and_then(|part| part.split_once('-')).map(|(_, port)| port) {
        return vec![format!("pci-{pci}-usb-0:{interface}-scsi-0:{channel}:{target}:{lun}")];
    }
    // The numbers of these hosts and targets follow the order of discovery: a name made of them may be another disk's at the next start.
    if let Some(port) = rest.iter().find(|part| part.starts_with("rport-")) {
        let folder = device.ancestors().find(|folder| folder.ends_with(port));
        let name =
            folder.and_then(|folder| text(&folder.join("fc_remote_ports").join(port).join("port_name")));
        return name.map(|name| format!("pci-{pci}-fc-{name}-lun-{lun}")).into_iter().collect();
    }
    if rest.iter().any(|part| part.starts_with("end_device-")) {
        let address = device.ancestors().find_map(|folder| text(&folder.join("sas_address")));
        return address.map(|address| format!("pci-{pci}-sas-{address}-lun-{lun}")).into_iter().collect();
    }
    // Host numbers change with every boot: udev counts them from the first host of the same controller.
    let host = rest.iter().find_map(|part| numbered(part, "host")?.parse::<u64>().ok()).unwrap_or(0);
    let controller: PathBuf =
        device.ancestors().find(|folder| folder.ends_with(pci)).map(Path::to_owned).unwrap_or_default();
    let hosts = fs::read_dir(controller).into_iter().flatten().flatten();
    let first = hosts
        .filter_map(|entry| numbered(&entry.file_name().to_string_lossy(), "host")?.parse::<u64>().ok())
        .min()
        .unwrap_or(host);
    vec![format!("pci-{pci}-scsi-{}:{channel}:{target}:{lun}", host.saturating_sub(first))]
}

/// Whether a part of a path has the form `0000:00:1f.2`. The domain of a bus behind a controller (Intel VMD) has five digits and more.
fn is_pci_address(part: &str) -> bool {
    let Some((domain, rest)) = part.split_once(':') else { return false };
    let hex = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    let [bus @ .., b':', d1, d0, b'.', function] = rest.as_bytes() else { return false };
    domain.len() >= 4 && bus.len() == 2 && hex(domain.as_bytes()) && hex(bus) && hex(&[*d1, *d0, *function])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_kit::FakeSys;

    #[test]
    fn the_paths_of_a_drive_with_two_ports_are_names_of_one_disk() {
        let sys = FakeSys::default();
        let about: &[(&str, &str)] = &[("wwid", "eui.0025385b71b00001"), ("nsid", "1"), ("serial", "N1")];
        sys.disk(
            "nvme0n1",
            "virtual/nvme-subsystem/nvme-subsys0",
            8000,
            &[about, &[("hidden", "0")]].concat(),
        );
        sys.disk(
            "nvme0c0n1",
            "pci0000:00/0000:01:00.0/nvme/nvme0",
            8000,
            &[about, &[("hidden", "1")]].concat(),
        );
        sys.disk(
            "nvme0c1n1",
            "pci0000:00/0000:02:00.0/nvme/nvme1",
            8000,
            &[about, &[("hidden", "1")]].concat(),
        );
        let disks = read_disks(sys.path());
        assert_eq!(disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["nvme0n1"]);
        assert_eq!(disks[0].by_path, ["pci-0000:01:00.0-nvme-1", "pci-0000:02:00.0-nvme-1"]);
        assert_eq!(crate::select::select(&disks, &[], Some("/dev/nvme0n1"), None).unwrap().name, "nvme0n1");
    }

    #[test]
    fn disks_are_read_with_serial_wwn_size_and_paths() {
        let sys = FakeSys::default();
        sys.disk(
            "sda",
            "pci0000:00/0000:00:1f.2/ata3/host2/target2:0:0/2:0:0:0",
            4000,
            &[
                ("device/model", "DISK 4TB  "),
                ("device/vendor", "ATA     "),
                ("device/wwid", "naa.5000C500A1B2C3D4"),
                ("device/vpd_pg80", "\0\x08\0\x08  SER123"),
                ("queue/rotational", "1"),
            ],
        );
        sys.file("devices/pci0000:00/0000:00:1f.2/ata3/ata_port/ata3/port_no", "1");
        sys.disk(
            "nvme0n1",
            "pci0000:00/0000:01:00.0/nvme/nvme0",
            8000,
            &[
                ("device/model", "FAST 1"),
                ("device/serial", "N1"),
                ("wwid", "eui.0025385b71b00001"),
                ("queue/logical_block_size", "4096"),
                ("nsid", "1"),
            ],
        );
        sys.disk("vda", "pci0000:00/0000:00:04.0/virtio1", 2000, &[("serial", "V1")]);
        sys.disk("sr0", "pci0000:00/0000:00:1f.2/ata4/host3/target3:0:0/3:0:0:0", 10, &[]);
        let disks = read_disks(sys.path());
        assert_eq!(
            disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(),
            ["nvme0n1", "sda", "vda"]
        );
        let [nvme, sda, vda] = &disks[..] else { panic!() };
        assert_eq!((sda.serial.as_deref(), sda.wwn.as_deref()), (Some("SER123"), Some("5000c500a1b2c3d4")));
        assert_eq!((sda.bytes, sda.rotational, sda.hctl.as_deref()), (4000 << 20, true, Some("2:0:0:0")));
        assert_eq!(sda.by_id, ["ata-DISK_4TB_SER123", "wwn-0x5000c500a1b2c3d4", "scsi-35000c500a1b2c3d4"]);
        assert_eq!(sda.by_path, ["pci-0000:00:1f.2-ata-1.0", "pci-0000:00:1f.2-ata-1"]);
        assert_eq!((nvme.sector, nvme.by_path[0].as_str()), (4096, "pci-0000:01:00.0-nvme-1"));
        assert_eq!((nvme.nvme_namespace, sda.nvme_namespace), (Some(1), None));
        assert_eq!(nvme.by_id, ["nvme-FAST_1_N1", "nvme-eui.0025385b71b00001"]);
        assert_eq!(vda.by_path[0], "pci-0000:00:04.0");
    }

    #[test]
    fn host_numbers_of_a_controller_do_not_change_its_paths() {
        let sys = FakeSys::default();
        sys.disk("sda", "pci0000:00/0000:03:00.0/host7/target7:0:2/7:0:2:0", 10, &[]);
        sys.disk(
            "sdb",
            "pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0/host9/target9:0:0/9:0:0:0",
            10,
            &[("removable", "1"), ("ro", "1")],
        );
        let disks = read_disks(sys.path());
        assert_eq!(disks[0].by_path, ["pci-0000:03:00.0-scsi-0:0:2:0"]);
        assert_eq!(disks[1].by_path, ["pci-0000:00:14.0-usb-0:1:1.0-scsi-0:0:0:0"]);
        assert!(disks[1].removable && disks[1].read_only);
        let ata = |disk: &DiskFacts| {
            DiskFacts { vendor: Some("ATA".to_owned()), ..disk.clone() }.takes_ata_commands()
        };
        assert!(ata(&disks[0]) && !ata(&disks[1]) && !disks[0].takes_ata_commands());
    }

    #[test]
    fn disks_of_sas_and_fibre_channel_have_names_by_their_addresses_and_none_by_the_order_of_discovery() {
        let sys = FakeSys::default();
        let sas = "pci0000:00/0000:03:00.0/host0/port-0:0/end_device-0:3/target0:0:3/0:0:3:0";
        sys.disk("sda", sas, 10, &[]);
        let expander = "pci0000:00/0000:03:00.0/host0/port-0:1/expander-0:0/port-0:0:1/end_device-0:0:1/target0:0:4/0:0:4:0";
        sys.disk("sdb", expander, 10, &[]);
        sys.file(&format!("devices/{expander}/sas_address"), "0x5000c500a1b2c3d5");
        let fibre = "pci0000:00/0000:04:00.0/host1/rport-1:0-2/target1:0:0/1:0:0:5";
        sys.disk("sdc", fibre, 10, &[]);
        sys.file(
            "devices/pci0000:00/0000:04:00.0/host1/rport-1:0-2/fc_remote_ports/rport-1:0-2/port_name",
            "0x50060e8010000001",
        );
        let disks = read_disks(sys.path());
        assert_eq!(disks[0].by_path, [] as [&str; 0], "no address is known");
        assert_eq!(disks[1].by_path, ["pci-0000:03:00.0-sas-0x5000c500a1b2c3d5-lun-0"]);
        assert_eq!(disks[2].by_path, ["pci-0000:04:00.0-fc-0x50060e8010000001-lun-5"]);
        let sata = DiskFacts { vendor: Some("ATA".to_owned()), ..disks[1].clone() };
        assert!(sata.takes_ata_commands(), "a SATA drive behind a SAS controller is no USB drive");
    }

    #[test]
    fn drives_behind_a_controller_with_a_pci_domain_of_its_own_have_paths_of_their_own() {
        let sys = FakeSys::default();
        for (name, port, bus) in [("nvme0", "02", "01"), ("nvme1", "03", "02")] {
            let place =
                format!("pci0000:5d/0000:5d:05.5/pci10000:00/10000:00:{port}.0/10000:{bus}:00.0/nvme/{name}");
            sys.disk(&format!("{name}n1"), &place, 10, &[]);
        }
        let paths: Vec<_> = read_disks(sys.path()).into_iter().map(|disk| disk.by_path).collect();
        assert_eq!(paths[0], ["pci-10000:01:00.0-nvme-1", "pci-0000:5d:05.5-pci-10000:01:00.0-nvme-1"]);
        assert_eq!(paths[1], ["pci-10000:02:00.0-nvme-1", "pci-0000:5d:05.5-pci-10000:02:00.0-nvme-1"]);
    }

    #[test]
    fn the_model_of_an_ata_disk_is_whole_although_the_inquiry_cuts_it() {
        let sys = FakeSys::default();
        let about: &[(&str, &str)] = &[
            ("device/model", "Samsung SSD 860 "),
            ("device/vendor", "ATA     "),
            ("device/vpd_pg80", "\0\x08\0\x02S1"),
        ];
        let mut page = vec![0; 572];
        page[..4].copy_from_slice(&[0, 0x89, 0x02, 0x38]);
        let model = format!("{:40}", "Samsung SSD 860 EVO 500GB");
        for (word, pair) in page[114..154].chunks_exact_mut(2).zip(model.as_bytes().chunks_exact(2)) {
            word.copy_from_slice(&[pair[1], pair[0]]);
        }
        // A page that ends early, or holds no letters, is none.
        let mut noise = page.clone();
        noise[114..154].fill(0xff);
        for (index, page) in [page.clone(), page[..150].to_vec(), noise].into_iter().enumerate() {
            let place = format!("pci0000:00/0000:00:1f.2/ata{index}/host{index}/target0:0:0/{index}:0:0:0");
            sys.disk(&format!("sd{index}"), &place, 10, about);
            fs::write(sys.path().join("devices").join(place).join("vpd_pg89"), page).unwrap();
        }
        let disks = read_disks(sys.path());
        assert_eq!(disks[0].model.as_deref(), Some("Samsung SSD 860 EVO 500GB"));
        assert_eq!(disks[0].by_id, ["ata-Samsung_SSD_860_EVO_500GB_S1"]);
        assert!(disks[1..].iter().all(|disk| disk.model.as_deref() == Some("Samsung SSD 860")));
    }

    #[test]
    fn holders_of_a_disk_and_its_partitions_are_listed() {
        let sys = FakeSys::default();
        sys.disk(
            "sda",
            "pci0000:00/0000:03:00.0/host0/target0:0:0/0:0:0:0",
            10,
            &[("sda1/holders/md127", ""), ("holders/dm-0", "")],
        );
        assert_eq!(read_disks(sys.path())[0].holders, ["dm-0", "md127"]);
    }

    #[test]
    fn namespaces_of_one_drive_are_known_by_their_names() {
        let named = |name: &str| DiskFacts { name: name.to_owned(), ..DiskFacts::default() };
        let shares = |one: &str, other: &str| named(one).shares_nvme_drive(&named(other));
        assert!(shares("nvme0n1", "nvme0n2"));
        assert!(!shares("nvme0n1", "nvme0n1") && !shares("nvme0n1", "nvme1n1") && !shares("sda", "sdb"));
    }

    #[test]
    fn identifiers_that_are_no_wwn_are_left_out() {
        assert_eq!(wwn_of("t10.ATA     DISK"), None);
        assert_eq!(wwn_of("naa.0000000000000000"), None);
        assert_eq!(wwn_of("0x5000c500a1b2c3d4").as_deref(), Some("5000c500a1b2c3d4"));
    }
}
