//! The specification of a virtual machine, within bounds: names, firmware, memory, disks, network.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use uuid::Uuid;

/// Maximum number of disks.
pub const MAX_DISKS: usize = 8;
/// Sizes of a disk. The file is sparse: only written blocks use space.
const DISK_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=2 << 40;
/// Sizes of the memory in MiB.
const MEMORY_MB: std::ops::RangeInclusive<u32> = 64..=65_536;
/// Maximum number of processors.
const MAX_PROCESSORS: u16 = 16;
/// The longest serial number. SMBIOS has no limit; serial numbers of real machines are shorter.
const MAX_SERIAL: usize = 64;

/// The value is outside of the bounds of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {rule}")]
pub struct OutOfBounds {
    /// The part of the machine.
    pub what: &'static str,
    /// The rule that the value breaks.
    pub rule: String,
}

fn refuse<T>(what: &'static str, rule: impl Into<String>) -> Result<T, OutOfBounds> {
    Err(OutOfBounds { what, rule: rule.into() })
}

/// The firmware of a virtual machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Firmware {
    /// OVMF, without Secure Boot.
    #[default]
    Uefi,
    /// OVMF with Microsoft's keys and Secure Boot on.
    SecureBoot,
    /// SeaBIOS.
    Bios,
}

impl Firmware {
    /// The names that [`Firmware::from_str`] accepts.
    pub const NAMES: [&str; 3] = ["uefi", "secure-boot", "bios"];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uefi => "uefi",
            Self::SecureBoot => "secure-boot",
            Self::Bios => "bios",
        }
    }
}

impl FromStr for Firmware {
    type Err = OutOfBounds;

    fn from_str(text: &str) -> Result<Self, OutOfBounds> {
        match text {
            "uefi" => Ok(Self::Uefi),
            "secure-boot" => Ok(Self::SecureBoot),
            "bios" => Ok(Self::Bios),
            _ => refuse("the firmware", format!("give one of {}", Self::NAMES.join(", "))),
        }
    }
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The virtual media slots of the BMC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slots {
    /// Two CD slots and a USB slot: the task has a CD of its own.
    #[default]
    Dual,
    /// One CD slot and one USB slot: the task is on a USB stick.
    CdUsb,
    /// One CD slot: the task is in the boot medium.
    Single,
}

impl Slots {
    /// The names that [`Slots::from_str`] accepts.
    pub const NAMES: [&str; 3] = ["dual", "cd-usb", "single"];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dual => "dual",
            Self::CdUsb => "cd-usb",
            Self::Single => "single",
        }
    }
}

impl FromStr for Slots {
    type Err = OutOfBounds;

    fn from_str(text: &str) -> Result<Self, OutOfBounds> {
        match text {
            "dual" => Ok(Self::Dual),
            "cd-usb" => Ok(Self::CdUsb),
            "single" => Ok(Self::Single),
            _ => refuse("the slots", format!("give one of {}", Self::NAMES.join(", "))),
        }
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The size of a disk in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSize(u64);

impl DiskSize {
    /// A size in bytes.
    ///
    /// # Errors
    /// Returns an error unless it is a whole number of MiB, from 1 MiB to 2 TiB.
    pub fn new(bytes: u64) -> Result<Self, OutOfBounds> {
        if DISK_BYTES.contains(&bytes) && bytes.is_multiple_of(1 << 20) {
            return Ok(Self(bytes));
        }
        refuse("the size of a disk", "give a size from 1M to 2T in whole MiB, such as 512M or 20G")
    }

    /// The size in bytes.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for DiskSize {
    type Err = OutOfBounds;

    /// A number with the unit `M`, `G` or `T` (powers of 1024), such as `20G`.
    fn from_str(text: &str) -> Result<Self, OutOfBounds> {
        let unit = |(digits, unit): (&str, u64)| digits.parse::<u64>().ok()?.checked_mul(unit);
        let units = [('M', 1_u64 << 20), ('G', 1 << 30), ('T', 1 << 40)];
        let bytes = units.iter().find_map(|&(letter, bytes)| unit((text.strip_suffix(letter)?, bytes)));
        Self::new(bytes.unwrap_or_default())
    }
}

/// The network of a virtual machine: what it reaches over its network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Everything that this program reaches. The computer that runs the machine is [`HOST_ADDRESS`], its loopback included.
    #[default]
    Open,
    /// The controller, which the machine sees as [`GUEST_ADDRESS`], port 80.
    Controller {
        /// The program that QEMU starts for each connection. It carries the connection over its standard input and output.
        program: PathBuf,
        /// The arguments of the program.
        arguments: Vec<String>,
        /// Whether nothing else is reached.
        only: bool,
    },
    /// Nothing: the machine has no network card.
    None,
}

/// The address of the controller inside of a machine whose network is [`Network::Controller`].
pub const GUEST_ADDRESS: &str = "10.0.2.100";
/// The address of the computer that runs the machine, inside of the machine.
pub const HOST_ADDRESS: &str = "10.0.2.2";

impl Network {
    /// The base URL by which the machine reaches a controller that listens on `controller` on this computer.
    #[must_use]
    pub fn controller_url(&self, controller: SocketAddr) -> String {
        match self {
            Self::Open => format!("http://{HOST_ADDRESS}:{}", controller.port()),
            // A machine without a card reaches no URL.
            Self::Controller { .. } | Self::None => format!("http://{GUEST_ADDRESS}"),
        }
    }
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    pub(crate) serial: String,
    pub(crate) uuid: Uuid,
    /// The firmware.
    pub firmware: Firmware,
    /// The virtual media slots of the BMC.
    pub slots: Slots,
    pub(crate) disks: Vec<DiskSize>,
    pub(crate) memory_mb: u32,
    pub(crate) processors: u16,
    /// The network.
    pub network: Network,
}

impl VmSpec {
    /// A machine with one disk of 8 GiB, 2 GiB of memory, two processors and two CD slots. SMBIOS shows `serial`, and a UUID that follows
    /// from it.
    ///
    /// # Errors
    /// Returns an error unless the serial number has 1 to 64 letters, digits, `-`, `_` and `.`, and begins with a letter or
    /// digit. It names a folder.
    pub fn new(serial: &str) -> Result<Self, OutOfBounds> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = serial.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !begins || serial.len() > MAX_SERIAL || !serial.chars().all(fits) {
            return refuse(
                "the serial number of a virtual machine",
                format!("give 1 to {MAX_SERIAL} letters, digits, '-', '_' and '.'"),
            );
        }
        Ok(Self {
            serial: serial.to_owned(),
            uuid: Uuid::new_v5(&Uuid::NAMESPACE_OID, serial.as_bytes()),
            firmware: Firmware::default(),
            slots: Slots::default(),
            disks: Self::usual_disks(),
            memory_mb: 2048,
            processors: 2,
            network: Network::default(),
        })
    }

    /// One disk of 8 GiB.
    #[must_use]
    pub fn usual_disks() -> Vec<DiskSize> {
        vec![DiskSize(8 << 30)]
    }

    /// Replaces the disks.
    ///
    /// # Errors
    /// Returns an error if there are more than [`MAX_DISKS`].
    pub fn with_disks(mut self, disks: Vec<DiskSize>) -> Result<Self, OutOfBounds> {
        if disks.len() > MAX_DISKS {
            return refuse("the disks", format!("give at most {MAX_DISKS}"));
        }
        self.disks = disks;
        Ok(self)
    }

    /// Replaces the size of the memory.
    ///
    /// # Errors
    /// Returns an error unless it is from 64 to 65536 MiB.
    pub fn with_memory(mut self, mb: u32) -> Result<Self, OutOfBounds> {
        if !MEMORY_MB.contains(&mb) {
            let (least, most) = (MEMORY_MB.start(), MEMORY_MB.end());
            return refuse("the memory", format!("give {least} to {most} MiB"));
        }
        self.memory_mb = mb;
        Ok(self)
    }

    /// Replaces the number of processors.
    ///
    /// # Errors
    /// Returns an error unless it is from 1 to 16.
    pub fn with_processors(mut self, processors: u16) -> Result<Self, OutOfBounds> {
        if !(1..=MAX_PROCESSORS).contains(&processors) {
            return refuse("the processors", format!("give 1 to {MAX_PROCESSORS}"));
        }
        self.processors = processors;
        Ok(self)
    }

    /// The serial number in SMBIOS and of the BMC.
    #[must_use]
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The address of the network interface: QEMU's prefix, then bytes of the UUID.
    pub(crate) fn mac(&self) -> String {
        let bytes = self.uuid.as_bytes();
        format!("52:54:00:{:02x}:{:02x}:{:02x}", bytes[0], bytes[1], bytes[2])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes_have_a_unit_and_bounds() {
        for (text, bytes) in [("1M", 1 << 20), ("512M", 512 << 20), ("20G", 20 << 30), ("2T", 2 << 40)] {
            assert_eq!(text.parse::<DiskSize>().unwrap().bytes(), bytes, "{text}");
        }
        for text in
            ["", "G", "0G", "8", "8g", "-1G", "3T", "99999999999999999999T", "18446744073709551615T", "1.5G"]
        {
            assert!(text.parse::<DiskSize>().is_err(), "{text:?}");
        }
        let spec = VmSpec::new("VM-1").unwrap();
        assert!(spec.clone().with_memory(63).is_err() && spec.clone().with_memory(65_537).is_err());
        assert!(spec.clone().with_processors(0).is_err());
        assert!(spec.with_disks(vec![DiskSize(1 << 20); 9]).is_err());
    }

    #[test]
    fn every_name_of_a_firmware_is_read_back() {
        for name in Firmware::NAMES {
            assert_eq!(name.parse::<Firmware>().unwrap().name(), name);
        }
        assert_eq!(
            "coreboot".parse::<Firmware>().unwrap_err().to_string(),
            "the firmware: give one of uefi, secure-boot, bios"
        );
    }

    #[test]
    fn every_name_of_slots_is_read_back() {
        for name in Slots::NAMES {
            assert_eq!(name.parse::<Slots>().unwrap().to_string(), name);
        }
        assert_eq!(
            "two".parse::<Slots>().unwrap_err().to_string(),
            "the slots: give one of dual, cd-usb, single"
        );
    }

    #[test]
    fn the_controller_has_another_address_inside_of_the_machine() {
        let controller = "127.0.0.1:8080".parse().unwrap();
        assert_eq!(Network::Open.controller_url(controller), "http://10.0.2.2:8080");
        let only = Network::Controller { program: "shoal".into(), arguments: Vec::new(), only: true };
        assert_eq!(only.controller_url(controller), "http://10.0.2.100");
    }

    proptest! {
        #[test]
        fn a_serial_number_is_one_component_of_a_path_and_one_word_of_an_option(serial in ".*") {
            if VmSpec::new(&serial).is_ok() {
                prop_assert!(!serial.contains(['/', ',', '=', ' ', '\0']) && serial != "." && serial != "..");
                prop_assert!(serial.len() <= MAX_SERIAL);
            }
        }
    }
}
