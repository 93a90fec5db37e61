//! The virtual machine of `shoal sim --vm` and `shoal demo --vm`: from options to a machine, and its console in the terminal.

use std::io::{IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use anyhow::Context;
use lab_vm::{Network, VirtualMachine, VmConfig, VmConsole, VmKeyboard, VmSpec, VmTools};
use secrecy::SecretString;
use tokio::sync::broadcast::error::RecvError;

use crate::VmArgs;

/// The command of this program that QEMU starts for each connection of a machine to its controller.
pub(super) const CONNECT: &str = "vm-connect";

/// The place of the BMC of a machine, and its login.
pub(super) struct BmcPlace {
    pub(super) address: SocketAddr,
    pub(super) user: String,
    pub(super) password: SecretString,
    pub(super) https: bool,
}

/// Finds the programs that the machine needs, before anything is started.
pub(super) async fn tools(args: &VmArgs) -> anyhow::Result<VmTools> {
    VmTools::find(args.vm_firmware, args.accel).await.context("virtual machines need foreign programs")
}

/// The network through which the machine reaches a controller on this computer, and with `only` nothing else.
pub(super) fn network_to(controller: SocketAddr, only: bool) -> anyhow::Result<Network> {
    let program = std::env::current_exe().context("find the file of this program")?;
    Ok(Network::Controller { program, arguments: vec![CONNECT.to_owned(), controller.to_string()], only })
}

/// Starts the BMC of the machine. The machine is off.
pub(super) async fn start(
    args: &VmArgs,
    serial: &str,
    tools: VmTools,
    network: Network,
    folder: PathBuf,
    bmc: BmcPlace,
) -> anyhow::Result<VirtualMachine> {
    let mut spec = VmSpec::new(serial)?.with_disks(args.disks())?.with_memory(args.memory)?;
    spec.firmware = args.vm_firmware;
    spec.slots = args.vm_slots;
    spec.network = if args.no_network { Network::None } else { network };
    let config = VmConfig {
        spec,
        tools,
        folder,
        address: bmc.address,
        username: bmc.user,
        password: bmc.password,
        https: bmc.https,
    };
    VirtualMachine::start(config).await.context("set up the virtual machine")
}

/// Prints the console on standard error until it ends. If the terminal is too slow, text is lost; nothing else is affected.
pub(super) async fn print_console(console: VmConsole) {
    let mut pieces = console.subscribe();
    let mut err = std::io::stderr();
    loop {
        match pieces.recv().await {
            Ok(piece) => {
                let _closed = err.write_all(piece.as_bytes()).and_then(|()| err.flush());
            }
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Types what is typed in the terminal on the console of the machine. Does nothing if standard input is no terminal.
pub(super) fn type_from_terminal(keyboard: VmKeyboard) {
    if !std::io::stdin().is_terminal() {
        return;
    }
    // Reading a terminal cannot be cancelled; the thread ends with the program.
    let read = move || {
        let mut bytes = [0; 256];
        while let Ok(length @ 1..) = std::io::stdin().read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..length]).replace('\n', "\r");
            let _off = keyboard.type_text(&text);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("vm-keyboard".to_owned()).spawn(read) {
        tracing::warn!(%error, "the terminal is not connected with the console of the virtual machine");
    }
}

/// `shoal vm-connect ADDRESS`: carries one connection over standard input and output. QEMU starts it.
pub(super) fn connect(address: SocketAddr) -> anyhow::Result<()> {
    let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    let mut incoming = stream.try_clone()?;
    let mut outgoing = stream;
    std::thread::Builder::new().name("outgoing".to_owned()).spawn(move || {
        let _ended = copy(&mut std::io::stdin(), &mut outgoing);
        let _ended = outgoing.shutdown(std::net::Shutdown::Write);
    })?;
    // The end of the controller's side is the end of the connection.
    copy(&mut incoming, &mut std::io::stdout())?;
    Ok(())
}

/// Copies until the end, and passes each piece on at once.
fn copy(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                to.write_all(&buffer[..length])?;
                to.flush()?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
