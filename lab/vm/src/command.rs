//! The command line of QEMU for one start of a machine, as text. Nothing is opened or started here.
//!
//! Boot media are on the command line: SeaBIOS does not boot a CD that was put into an empty drive afterwards. What boots
//! first is a boot index of this start. `-no-reboot` turns a restart by the system into the end of the process, so that
//! the BMC chooses the source of the next boot again.
//!
//! QEMU connects its control socket to this program, and not the reverse: there is nothing to poll for, and a QEMU whose
//! parent ended before it started finds no socket and ends.

use std::path::PathBuf;

use lab_bmc::MediaKind;
use serde_json::{Value, json};

use crate::spec::{Firmware, GUEST_ADDRESS, Network, VmSpec};

/// The way in which instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceleration {
    /// The processor executes instructions (`/dev/kvm`).
    Kvm,
    /// QEMU translates instructions; many times slower.
    Emulation,
}

impl Acceleration {
    /// The words of the command line.
    pub(crate) fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            Self::Emulation => ["-accel", "tcg", "-cpu", "max"],
        }
    }
}

/// The files of UEFI firmware.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UefiFiles {
    /// The program; never written.
    pub(crate) code: PathBuf,
    /// The variables of this machine.
    pub(crate) variables: PathBuf,
}

/// One virtual media slot at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SlotDrive {
    pub(crate) kind: MediaKind,
    /// The URL of the medium in the slot. The URL is a secret: it is the right to read the medium.
    pub(crate) url: Option<String>,
    /// Whether the firmware boots the slot first.
    pub(crate) boots: bool,
}

/// One start of a machine.
#[derive(Clone, Debug)]
pub(crate) struct VmStart<'a> {
    pub(crate) spec: &'a VmSpec,
    pub(crate) acceleration: Acceleration,
    /// The files of the UEFI firmware; `None` for BIOS.
    pub(crate) uefi: Option<UefiFiles>,
    /// The files of the disks, in boot order.
    pub(crate) disks: Vec<PathBuf>,
    /// The slots, in the order of the BMC.
    pub(crate) slots: Vec<SlotDrive>,
    /// The control socket, on which this program listens.
    pub(crate) control: PathBuf,
}

/// The name of the block device of a slot.
pub(crate) fn medium_node(slot: usize) -> String {
    format!("medium{slot}")
}

/// The arguments of QEMU.
pub(crate) fn arguments(start: &VmStart<'_>) -> Vec<String> {
    let spec = start.spec;
    let mut line = CommandLine::default();
    // The name is for the process list.
    line.option("-name", format!("{},process=shoal-vm", spec.serial));
    let secure = start.uefi.is_some() && spec.firmware == Firmware::SecureBoot;
    line.option("-machine", if secure { "q35,smm=on" } else { "q35" });
    line.words(&start.acceleration.arguments());
    line.option("-smp", spec.processors.to_string());
    line.option("-m", spec.memory_mb.to_string());
    line.words(&["-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-no-reboot"]);
    line.option("-chardev", "stdio,id=console,signal=off");
    line.option("-serial", "chardev:console");
    line.option("-chardev", format!("socket,id=control,path={}", value(&start.control)));
    line.option("-mon", "chardev=control,mode=control");
    line.option(
        "-smbios",
        format!(
            "type=1,manufacturer=Shoal,product=Virtual machine,serial={},uuid={}",
            spec.serial, spec.uuid
        ),
    );
    line.option("-smbios", format!("type=3,manufacturer=Shoal,serial={}", spec.serial));
    if let Some(files) = &start.uefi {
        if secure {
            line.option("-global", "driver=cfi.pflash01,property=secure,value=on");
        }
        let flash = "if=pflash,format=raw";
        line.option("-drive", format!("{flash},unit=0,readonly=on,file={}", value(&files.code)));
        line.option("-drive", format!("{flash},unit=1,file={}", value(&files.variables)));
    }
    line.option("-boot", "strict=on");
    line.option("-device", "qemu-xhci,id=usb");
    for (index, slot) in start.slots.iter().enumerate() {
        add_slot(&mut line, index, slot);
    }
    for (index, file) in start.disks.iter().enumerate() {
        add_disk(&mut line, index, file);
    }
    line.option("-nic", network(spec));
    line.0
}

fn add_slot(line: &mut CommandLine, index: usize, slot: &SlotDrive) {
    let node = medium_node(index);
    if let Some(url) = &slot.url {
        line.option("-blockdev", medium(index, url).to_string());
    }
    let drive = if slot.url.is_some() { format!(",drive={node}") } else { String::new() };
    let first = if slot.boots { ",bootindex=0" } else { "" };
    match (slot.kind, &slot.url) {
        (MediaKind::Cd, _) => {
            line.option("-device", format!("usb-bot,bus=usb.0,id=slot{index}"));
            line.option("-device", format!("scsi-cd,bus=slot{index}.0,id=drive{index}{drive}{first}"));
        }
        (MediaKind::Usb, Some(_)) => {
            line.option("-device", format!("usb-storage,bus=usb.0,id=drive{index}{drive}{first}"));
        }
        // A USB stick that is not plugged in.
        (MediaKind::Usb, None) => {}
    }
}

/// The block device that reads a medium by Range, as a BMC does. No certificate is verified: most BMCs cannot.
pub(crate) fn medium(slot: usize, url: &str) -> Value {
    let secure = url.starts_with("https:");
    let mut device = json!({
        "driver": if secure { "https" } else { "http" },
        "node-name": medium_node(slot),
        "read-only": true,
        "url": url,
        "timeout": 30,
    });
    if secure {
        device["sslverify"] = json!(false);
    }
    device
}

fn add_disk(line: &mut CommandLine, index: usize, file: &std::path::Path) {
    let device = json!({
        "driver": "raw",
        "node-name": format!("disk{index}"),
        "discard": "unmap",
        "file": { "driver": "file", "filename": file, "discard": "unmap" },
    });
    line.option("-blockdev", device.to_string());
    let boot = index + 1;
    line.option("-device", format!("virtio-blk-pci,drive=disk{index},serial=DISK-{index},bootindex={boot}"));
}

fn network(spec: &VmSpec) -> String {
    let card = format!("user,model=virtio-net-pci,mac={}", spec.mac());
    match &spec.network {
        Network::Open => card,
        Network::None => "none".to_owned(),
        Network::Controller { program, arguments, only } => {
            let mut command = shell_word(&program.to_string_lossy());
            for argument in arguments {
                command.push(' ');
                command.push_str(&shell_word(argument));
            }
            let only = if *only { "on" } else { "off" };
            format!("{card},restrict={only},guestfwd=tcp:{GUEST_ADDRESS}:80-cmd:{}", double_commas(&command))
        }
    }
}

/// A word as GLib takes a command line apart.
fn shell_word(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A path as the value of an option: a comma ends a value unless it is doubled.
fn value(path: &std::path::Path) -> String {
    double_commas(&path.to_string_lossy())
}

fn double_commas(text: &str) -> String {
    text.replace(',', ",,")
}

#[derive(Default)]
struct CommandLine(Vec<String>);

impl CommandLine {
    fn words(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(|&word| word.to_owned()));
    }

    fn option(&mut self, name: &str, value: impl Into<String>) {
        self.0.push(name.to_owned());
        self.0.push(value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> Vec<SlotDrive> {
        let cd =
            |url: Option<&str>, boots| SlotDrive { kind: MediaKind::Cd, url: url.map(str::to_owned), boots };
        let boot = cd(Some("http://127.0.0.1:8081/tSECRET/boot.iso"), true);
        vec![boot, cd(None, false), SlotDrive { kind: MediaKind::Usb, url: None, boots: false }]
    }

    fn text(start: &VmStart<'_>) -> String {
        let mut text = String::new();
        for word in arguments(start) {
            // An option and its value are one line.
            text.push_str(if word.starts_with('-') { "\n" } else { " " });
            text.push_str(&word);
        }
        text.push('\n');
        text.trim_start().to_owned()
    }

    fn golden(name: &str, made: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, made).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), made, "{}", path.display());
    }

    #[test]
    fn a_bios_machine_boots_the_cd_in_the_first_slot() {
        let spec = VmSpec::new("VM-1").unwrap();
        let start = VmStart {
            spec: &spec,
            acceleration: Acceleration::Emulation,
            uefi: None,
            disks: vec!["/data/VM-1/disk0.raw".into()],
            slots: slots(),
            control: "/run/vm/control".into(),
        };
        golden("bios.txt", &text(&start));
    }

    #[test]
    fn a_machine_without_a_network_has_no_card() {
        let mut spec = VmSpec::new("VM-1").unwrap();
        let mut start = |network| {
            spec.network = network;
            let (disks, slots, control) = (Vec::new(), slots(), "/run/vm/control".into());
            let acceleration = Acceleration::Emulation;
            text(&VmStart { spec: &spec, acceleration, uefi: None, disks, slots, control })
        };
        assert!(start(Network::Open).contains("-nic user,"));
        let without = start(Network::None);
        assert!(without.contains("-nic none\n") && !without.contains("virtio-net"), "{without}");
    }

    #[test]
    fn a_secure_machine_boots_its_disk_and_reaches_one_address_only() {
        let mut spec = VmSpec::new("VM-1").unwrap();
        spec.firmware = Firmware::SecureBoot;
        spec.network = Network::Controller {
            program: "/opt/a, b/it's shoal".into(),
            arguments: vec!["vm-connect".to_owned(), "127.0.0.1:8080".to_owned()],
            only: true,
        };
        let mut slots = slots();
        slots[0].url = None;
        slots[0].boots = false;
        slots[1].url = Some("https://[::1]:8443/t/boot.iso".to_owned());
        slots[2].url = Some("http://127.0.0.1:8081/t/task.img".to_owned());
        let start = VmStart {
            spec: &spec,
            acceleration: Acceleration::Kvm,
            uefi: Some(UefiFiles { code: "/ovmf/CODE.fd".into(), variables: "/data/a,b/vars.fd".into() }),
            disks: vec!["/data/a,b/disk0.raw".into(), "/data/a,b/disk1.raw".into()],
            slots,
            control: "/run/vm/control".into(),
        };
        golden("secure-boot.txt", &text(&start));
    }
}
