//! Arguments of `shoal demo` and `shoal sim`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use jiff::SignedDuration;
use lab_vm::{AccelerationChoice, DiskSize, Firmware, OutOfBounds, Slots, VmSpec};
use secrecy::SecretString;

/// Options of a virtual machine.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Virtual machine")]
pub struct VmArgs {
    /// The firmware: uefi, secure-boot or bios.
    #[arg(long = "vm-firmware", value_name = "NAME", default_value = "uefi", value_parser = firmware)]
    pub vm_firmware: Firmware,
    /// The virtual media slots of its BMC: dual (two CDs), cd-usb (a CD and a USB stick) or single (one CD, with the task in
    /// the boot medium).
    #[arg(long = "vm-slots", value_name = "NAME", default_value = "dual", value_parser = slots)]
    pub vm_slots: Slots,
    /// The size of a disk, such as 512M or 20G; by default one of 8G. May be given more than once.
    #[arg(long = "disk", value_name = "SIZE", value_parser = disk_size)]
    pub disk: Vec<DiskSize>,
    /// The folder of the disk files, which stay; by default a temporary folder.
    #[arg(long = "vm-folder", value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// The memory in MiB.
    #[arg(long, value_name = "MB", default_value_t = 2048)]
    pub memory: u32,
    /// Give the machine no network card: the OS image must be on its medium (`delivery: media`).
    #[arg(long, requires = "vm")]
    pub no_network: bool,
    /// How instructions are executed: auto (KVM if it works), kvm, or tcg (emulation).
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = acceleration)]
    pub accel: AccelerationChoice,
    /// Print the serial console of the machine on standard error, and type on it.
    #[arg(long, requires = "vm")]
    pub console: bool,
}

impl VmArgs {
    /// The disks.
    pub(crate) fn disks(&self) -> Vec<DiskSize> {
        if self.disk.is_empty() { VmSpec::usual_disks() } else { self.disk.clone() }
    }

    /// The folder of the disk files.
    pub(crate) fn disks_folder(&self, temporary: &Path) -> PathBuf {
        self.folder.clone().unwrap_or_else(|| temporary.join("vm"))
    }
}

/// Arguments of `shoal demo`.
#[derive(Args, Clone, Debug)]
pub struct DemoArgs {
    /// How many simulated servers to install.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = servers)]
    pub servers: usize,
    /// Let one installation fail on purpose; this failure is expected.
    #[arg(long)]
    pub fail_one: bool,
    /// Keep running after the jobs have ended, and print how to access the controller.
    #[arg(long)]
    pub keep: bool,
    /// Simulate the BMCs of these vendors, one server each: names from `shoal sim --list`, or `five`, or `all`.
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "servers")]
    pub vendors: Vec<String>,
    /// Install firmware on three simulated servers of three vendors; one BMC restarts in the middle, and one lies.
    #[arg(long, conflicts_with_all = ["servers", "vendors", "fail_one", "vm"])]
    pub firmware: bool,
    /// Install a virtual machine (QEMU) in place of simulated servers, from the packages of `shoal maintenance fetch packages`.
    #[arg(long, conflicts_with_all = ["servers", "vendors", "fail_one"])]
    pub vm: bool,
    /// The boot medium of the maintenance OS, as `shoal maintenance build` makes it.
    #[arg(long, value_name = "FILE", requires = "vm")]
    pub medium: Option<PathBuf>,
    /// Make the boot medium from this folder of packages, as `shoal maintenance fetch` fills it; by default the folder `packages`.
    #[arg(long, value_name = "FOLDER", requires = "vm")]
    pub packages: Option<PathBuf>,
    /// The static agent of the medium that is made, as `cargo static-agent` builds it; by default `shoal-agent` beside this
    /// program, or in `../lib/shoal`.
    #[arg(long, value_name = "FILE", requires = "vm", conflicts_with = "medium")]
    pub agent: Option<PathBuf>,
    /// The image to install: an OCI image layout (folder or tar), or a reference. By default a trial system that is made from the
    /// packages and starts by UEFI.
    #[arg(long, value_name = "IMAGE", requires = "vm")]
    pub image: Option<String>,
    /// The recipe; its `oci_url` is replaced. By default that of the demo, for the disk of the machine.
    #[arg(long, value_name = "FILE", requires = "vm")]
    pub recipe: Option<PathBuf>,
    /// The virtual machine.
    #[command(flatten)]
    pub machine: VmArgs,
}

/// Arguments of `shoal sim`.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// The serial number of a simulated server. May be given more than once.
    #[arg(long = "serial", value_name = "SERIAL", conflicts_with = "servers")]
    pub serials: Vec<String>,
    /// How many simulated servers to run, with generated serial numbers.
    #[arg(long, value_name = "N", value_parser = servers)]
    pub servers: Option<usize>,
    /// The vendor of the simulated BMCs. If given more than once, the servers are assigned to the vendors in rotation. See
    /// `--list`.
    #[arg(long = "vendor", value_name = "NAME", default_value = "generic")]
    pub vendors: Vec<String>,
    /// List the vendors that can be simulated, and exit.
    #[arg(long)]
    pub list: bool,
    /// Serve the BMCs over HTTPS, each with a separate certificate.
    #[arg(long)]
    pub https: bool,
    /// Factor for the delays of the simulated BMCs, from 0 to 1.
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = share)]
    pub time: f64,
    /// Serve an API for faults and journals on this port of loopback; 0 selects any free port.
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<u16>,
    /// The port of the first BMC; the others use the following ports. By default any free ports.
    #[arg(long, value_name = "PORT")]
    pub base_port: Option<u16>,
    /// The user name on the BMCs.
    #[arg(long, value_name = "NAME", default_value = "admin")]
    pub bmc_user: String,
    /// The password on the BMCs; by default a random one, which is printed once.
    #[arg(long, value_name = "PASSWORD", env = "SHOAL_SIM_PASSWORD", hide_env_values = true, value_parser = secret)]
    pub bmc_password: Option<SecretString>,
    /// The directory of the disk files; by default a temporary directory.
    #[arg(long, value_name = "DIR")]
    pub disks: Option<PathBuf>,
    /// The minimum duration of each unit of an installation, such as 500ms.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = unit_time)]
    pub unit_time: Duration,
    /// Let the hosts do nothing when they have power. For measurements of a controller.
    #[arg(long)]
    pub idle_hosts: bool,
    /// Write the maintenance image of the demo to this file.
    #[arg(long, value_name = "FILE")]
    pub maintenance_iso: Option<PathBuf>,
    /// Write the OS image of the demo to this folder, as an OCI image layout with the tag 22.04.
    #[arg(long, value_name = "DIR")]
    pub os_image: Option<PathBuf>,
    /// Run a virtual machine (QEMU) beside the simulated servers, with this serial number.
    #[arg(long, value_name = "SERIAL", num_args = 0..=1, require_equals = true, default_missing_value = "VM-0001")]
    pub vm: Option<String>,
    /// The address of the controller on this computer. The virtual machine then reaches nothing else, and the controller
    /// as http://10.0.2.100.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "vm")]
    pub controller: Option<SocketAddr>,
    /// The virtual machine.
    #[command(flatten)]
    pub machine: VmArgs,
}

/// Maximum number of simulated servers.
const MAX_SERVERS: usize = 20_000;

fn servers(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=MAX_SERVERS).contains(number))
        .ok_or_else(|| format!("give a number from 1 to {MAX_SERVERS}"))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a number from 0 to 1".to_owned())
}

fn secret(text: &str) -> Result<SecretString, String> {
    if text.is_empty() { Err("the password is empty".to_owned()) } else { Ok(SecretString::from(text)) }
}

fn unit_time(text: &str) -> Result<Duration, String> {
    text.parse::<SignedDuration>()
        .ok()
        .and_then(|time| Duration::try_from(time).ok())
        .filter(|time| *time <= Duration::from_secs(3600))
        .ok_or_else(|| "give a duration with its unit, such as 500ms or 2s, at most 1h".to_owned())
}

fn disk_size(text: &str) -> Result<DiskSize, String> {
    text.parse().map_err(|error: OutOfBounds| error.rule)
}

fn firmware(text: &str) -> Result<Firmware, String> {
    text.parse().map_err(|error: OutOfBounds| error.rule)
}

fn slots(text: &str) -> Result<Slots, String> {
    text.parse().map_err(|error: OutOfBounds| error.rule)
}

fn acceleration(text: &str) -> Result<AccelerationChoice, String> {
    text.parse().map_err(|error: OutOfBounds| error.rule)
}
