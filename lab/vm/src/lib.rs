//! Virtual machines behind simulated BMCs: QEMU boots what a controller inserts, installs its disk and boots it.
//!
//! ```text
//!   controller ──Redfish──► SimBmc ──Host──► host ──► one QEMU process per boot
//!       ▲                                    │ │ │
//!       │                                    │ │ └─ life      what follows from what happens: a pure state machine
//!       │                                    │ └─── qmp       the control protocol, over a private socket
//!       │                                    └───── process   a program that never outlives this one
//!       ├── media by Range ◄── QEMU's own HTTP driver
//!       └── image, report ◄─── the system in the machine, over QEMU's user network
//!
//!   spec (bounds) ─► command (the command line as text) ◄─ storage (disks that stay)   tools (what must be installed)
//!   console ◄─ text     the serial console in memory, in a file and for readers
//! ```
//!
//! What is real: firmware, boot media read by Range through the controller's URL, disks, network, SMBIOS. What is
//! simulated: the BMC, which decides what the next start of QEMU boots.
//!
//! Invariants
//! - The machine is on exactly while a QEMU process runs, and a QEMU process never outlives the program.
//! - Text of QEMU and of the machine is foreign: it is bounded, and no control character of it reaches a terminal.
//! - No message contains the URL of a medium. The command line of QEMU does: other users of the computer can see it for
//!   as long as the machine runs. The URL is valid for one job.
//!
//! The crate is for tests and demonstrations on Linux. It needs QEMU; [`VmTools::find`] names the packages.

mod command;
mod console;
mod host;
mod life;
mod process;
mod qmp;
mod room;
mod spec;
mod storage;
mod text;
mod tools;

pub use command::Acceleration;
pub use console::{ConsoleMark, VmConsole};
pub use room::{VirtualMachine, VmConfig, VmError, VmKeyboard};
pub use spec::{
    DiskSize, Firmware, GUEST_ADDRESS, HOST_ADDRESS, MAX_DISKS, Network, OutOfBounds, Slots, VmSpec,
};
pub use storage::StorageError;
pub use tools::{AccelerationChoice, MissingTool, VmTools};
