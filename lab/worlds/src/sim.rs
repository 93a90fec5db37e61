//! `shoal sim`: simulated servers for a controller, without hardware.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lab_bmc::{SimBmcConfig, VARIANTS, VENDORS, VendorError};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use crate::SimArgs;
use crate::vm::{self, BmcPlace};
use controller::app::stop_signal;
use lab_machines::admin::FarmAdmin;
use lab_machines::{Farm, FarmConfig, HostKind, InstallerBehaviour, ServerSpec, images};
use lab_vm::{HOST_ADDRESS, Network, VirtualMachine};

/// The tag of the OS image that `--os-image` writes.
const OS_TAG: &str = "22.04";

/// Runs the simulated servers until a stop signal.
pub(super) async fn run(args: SimArgs, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    if let Some(path) = &args.maintenance_iso {
        write_maintenance_iso(path)?;
        writeln!(std::io::stderr(), "maintenance ISO written to {}", path.display())?;
    }
    if let Some(folder) = &args.os_image {
        images::rootfs_image(&images::RootfsSpec::default())?.write_layout(folder, OS_TAG)?;
        writeln!(std::io::stderr(), "OS image written to {} with the tag {OS_TAG}", folder.display())?;
    }
    if args.list {
        for vendor in VENDORS.iter().chain(VARIANTS) {
            writeln!(out, "{:<22} {}", vendor.name, vendor.about()?)?;
        }
        return Ok(());
    }
    let serials = serials(&args);
    if serials.is_empty() && args.vm.is_none() {
        return Ok(());
    }
    let temporary = tempfile::tempdir()?;
    let disks = args.disks.clone().unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&disks)?;
    let (password, generated) = match &args.bmc_password {
        Some(password) => (password.clone(), false),
        None => (random_password()?, true),
    };
    let specs = serials
        .into_iter()
        .zip(args.vendors.iter().cycle())
        .map(|(serial, vendor)| {
            let bmc = SimBmcConfig::vendor(vendor, &serial, &args.bmc_user, password.expose_secret())?;
            let mut spec = ServerSpec::new(serial);
            spec.bmc = Some(Box::new(bmc.in_time(args.time)));
            spec.behaviour =
                InstallerBehaviour { unit_time: args.unit_time, ..InstallerBehaviour::default() };
            spec.host = if args.idle_hosts { HostKind::Idle } else { HostKind::Boot };
            Ok(spec)
        })
        .collect::<Result<_, VendorError>>()?;
    let mut config = FarmConfig::new(specs, args.bmc_user.clone(), password.clone(), disks);
    config.base_port = args.base_port;
    config.https = args.https;
    let vm = match &args.vm {
        Some(serial) => Some(start_vm(&args, serial, &password, temporary.path()).await?),
        None => None,
    };
    let farm = Farm::start(config).await?;
    let admin = match args.admin_port {
        Some(port) => Some(FarmAdmin::open(&farm, port).await?),
        None => None,
    };
    for (server, vendor) in farm.servers().iter().zip(args.vendors.iter().cycle()) {
        let address = &server.bmc_url;
        if json {
            let shown = json!({ "serial": server.serial, "bmc_address": address, "vendor": vendor });
            writeln!(out, "{shown}")?;
        } else {
            writeln!(out, "{:<24} {address:<28} {vendor}", server.serial)?;
        }
    }
    if let Some(vm) = &vm {
        show_vm(vm, &args, json)?;
    }
    if let Some(admin) = &admin {
        let url = admin.url();
        match json {
            true => writeln!(out, "{}", json!({ "admin": url }))?,
            false => writeln!(out, "faults and journals: {url}/servers")?,
        }
    }
    if generated {
        writeln!(out, "BMC user {}, password (shown only now): {}", args.bmc_user, password.expose_secret())?;
    }
    out.flush()?;
    let mut console = farm.console();
    let print_console = async {
        let mut err = std::io::stderr();
        // If the output is too slow, console lines are lost; nothing else is affected.
        while let Some(line) = next_line(&mut console).await {
            let _closed = writeln!(err, "{} {}: {}", line.serial, line.unit, line.text);
        }
    };
    tokio::select! {
        () = print_console => {}
        () = stop_signal() => {}
    }
    farm.shutdown().await;
    if let Some(vm) = vm {
        vm.shutdown().await;
    }
    Ok(())
}

/// Starts the virtual machine. Its BMC has the port after those of the simulated servers.
async fn start_vm(
    args: &SimArgs,
    serial: &str,
    password: &SecretString,
    temporary: &Path,
) -> anyhow::Result<VirtualMachine> {
    let tools = vm::tools(&args.machine).await?;
    writeln!(std::io::stderr(), "virtual machine {serial}: firmware {}, {tools}", args.machine.vm_firmware)?;
    let network = match args.controller {
        Some(controller) => vm::network_to(controller, true)?,
        None => Network::Open,
    };
    let servers = serials(args).len();
    let port = match args.base_port {
        Some(base) => u16::try_from(servers).ok().and_then(|servers| base.checked_add(servers)),
        None => Some(0),
    };
    let port = port.context("there is no port for the BMC of the virtual machine; use a lower base port")?;
    let place = BmcPlace {
        address: ([127, 0, 0, 1], port).into(),
        user: args.bmc_user.clone(),
        password: password.clone(),
        https: args.https,
    };
    let folder = args.machine.disks_folder(temporary);
    let machine = vm::start(&args.machine, serial, tools, network, folder, place).await?;
    if args.machine.console {
        tokio::spawn(vm::print_console(machine.console().clone()));
        vm::type_from_terminal(machine.keyboard());
    }
    Ok(machine)
}

/// Says where the virtual machine is, and by which address it reaches the controller.
fn show_vm(machine: &VirtualMachine, args: &SimArgs, json: bool) -> anyhow::Result<()> {
    let (serial, address) = (machine.serial(), &machine.bmc_url);
    let log = machine.log().display();
    // Without its address any port stands for the controller's.
    let controller = args.controller.map(|controller| machine.controller_url(controller));
    let mut out = std::io::stdout();
    if json {
        let shown = json!({
            "serial": serial, "bmc_address": address, "vm": true, "console_log": log.to_string(),
            "controller_url": controller,
        });
        writeln!(out, "{shown}")?;
        return Ok(());
    }
    writeln!(out, "{serial:<24} {address:<28} virtual machine, console in {log}")?;
    let url = controller.unwrap_or_else(|| format!("http://{HOST_ADDRESS}:PORT"));
    writeln!(out, "the machine reaches the controller with CONTROLLER_PUBLIC_URL={url}")?;
    if args.machine.folder.is_none() {
        writeln!(out, "its disks are in a temporary folder; --vm-folder DIR keeps them")?;
    }
    Ok(())
}

/// Returns the next line of a console and skips lost lines. Returns `None` at the end of the console.
pub(super) async fn next_line(
    console: &mut tokio::sync::broadcast::Receiver<lab_machines::ConsoleLine>,
) -> Option<lab_machines::ConsoleLine> {
    use tokio::sync::broadcast::error::RecvError;
    loop {
        match console.recv().await {
            Ok(line) => return Some(line),
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

fn serials(args: &SimArgs) -> Vec<String> {
    // Without options for servers there are three servers, or none if only files are to be written.
    let files_only = args.maintenance_iso.is_some() || args.os_image.is_some();
    let default = if args.serials.is_empty() && !files_only { 3 } else { 0 };
    let count = args.servers.unwrap_or(default);
    args.serials.iter().cloned().chain(numbered(count)).collect()
}

/// Returns serial numbers of simulated servers: `SIM-0001`, `SIM-0002` and so on.
pub(super) fn numbered(servers: usize) -> impl Iterator<Item = String> {
    (1..=servers).map(|number| format!("SIM-{number:04}"))
}

/// Writes the maintenance ISO of the demo.
pub(super) fn write_maintenance_iso(path: &Path) -> anyhow::Result<PathBuf> {
    let plan = images::maintenance_iso()?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    plan.write_to(&mut file)?;
    file.flush()?;
    Ok(std::fs::canonicalize(path)?)
}

/// Generates a random password.
pub(super) fn random_password() -> anyhow::Result<SecretString> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the operating system returned no random bytes: {error}"))?;
    Ok(SecretString::from(hex::encode(bytes)))
}
