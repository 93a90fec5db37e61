//! Simulated BMCs: each behaves like the BMC of one vendor, on a real socket or in process.
//!
//! A simulated BMC belongs to one server. It keeps its state, reads inserted media over real HTTP, decides what the host
//! boots, and starts the operating system through a trait ([`Host`]).
//!
//! ```text
//!   socket, TLS ([`SimBmc::serve`], [`SimBmc::serve_tls`])     [`SimBmc::router`]     in process ([`InProcess`])
//!                        └───────────────────────┼───────────────────────┘
//!                                                ▼
//!   http ──► call (method, path, body ─► request kind) ──► faults (is one in force?) ──► auth
//!                                                │
//!                      reads ◄───────────────────┴──────────────────► mutations (detached: they
//!                  resources (JSON)                                   finish without the client)
//!                        ▲                                                  actions
//!                        │                                     ┌────────────┼───────────────┐
//!                        │                                   power        slots         boot override
//!                        └────────── state (one mutex) ◄───────┴────────────┼───────────────┘
//!                                      │        │                           ▼
//!                                   journal   snapshot ([`SimBmc::wait_for`])  media_reader (HEAD, ranges)
//!                                                        power-on ──► host ([`Host::power_on`])
//! ```
//!
//! Invariants
//! - The client and the simulated BMCs share no type, path or JSON: one wrong reading of the specification cannot hide
//!   in both.
//! - A mutation runs to its end even if the client closes the connection, as on a real BMC.
//! - The host boots only what is inserted: with an override to `Cd` and no bootable image it boots the disk.
//! - One update of firmware runs at a time; every complete image is counted, and a version changes only at the end of it.
//! - The journal holds no secret: no credential, no token, of a media URL only the file name.
//! - Time is `tokio::time` only; a simulated BMC owns no thread, and no task while nothing is pending.
//!
//! The behaviour of a vendor is data in [`SimBmcConfig`] (one file per vendor in `lab/bmc/vendors`); a defect is data in
//! [`Fault`].
//!
//! Reference: DSP0266 (protocol), DSP0268 (ComputerSystem, VirtualMedia), decisions D1, D3, D4 and D17;
//! docs/hardware.md.

mod actions;
mod auth;
mod bios;
mod bios_actions;
mod body;
mod boot;
mod call;
mod config;
mod etag;
mod fault_list;
mod faults;
mod handle;
mod hardware;
mod host;
mod http;
mod http_media;
mod in_process;
mod journal;
mod manager_actions;
mod media_actions;
mod media_reader;
mod oem;
mod parts;
mod power;
mod reply;
mod resources;
mod response_faults;
mod routes;
mod sim_bmc;
mod slots;
mod state;
mod task_actions;
mod tasks;
mod tls;
mod types;
mod update;
mod vendors;
mod warm_reset;

#[cfg(test)]
mod tests;

pub use body::BodyTransfer;
pub use boot::OverrideState;
pub use config::{
    AlreadyThere, BiosAttribute, BiosPolicy, BiosUpdate, BootDemands, BootOem, BootPolicy, BootSearch,
    Component, EjectEmpty, EnableMedia, ErrorPolicy, ErrorShape, EtagKind, EtagPolicy, ExtraSystem,
    FirmwareItem, FixedStatusPath, Graceful, HardwareConfig, IfMatchRule, ImageShown, InsertRules, LoginOem,
    ManagerPolicy, ManagerRestart, MediaPolicy, MediaVia, MonitorAfter, Occupied, PowerPolicy, PushForm,
    ResponsePolicy, SerialShown, ServicePolicy, SessionPolicy, SettingsObject, SimBmcConfig, SimIdentity,
    SimplePolicy, SlotConfig, SlotTree, Success, TaskPolicy, UpdateAnswer, UpdatePolicy, UrlRules,
    WaitingTask,
};
pub use faults::{Fault, FaultCondition, FaultEffect, FaultTrigger, FetchFault, FlashFault, Probability};
pub use host::{BootContext, BootSource, Host, InsertedMedia, MediaUrl, NullHost};
pub use http::{ServeError, SimBmcServer};
pub use http_media::{HttpMediaReader, MediaReaderError, any_certificate};
pub use in_process::InProcess;
pub use journal::{JournalEntry, JournalItem, RequestKind, StateChange};
pub use media_reader::{MediaFacts, MediaReader, MediaRefusal, MediaRequest, MediaResponse, ReadPace};
pub use sim_bmc::{ConnectionCut, SimBmc};
pub use state::{SimBmcSnapshot, SlotSnapshot};
pub use tls::CertificateError;
pub use types::{MediaKind, OverrideEnabled, Power, ReadStyle, ResetType};
pub use update::{UpdateRecord, firmware_image};
pub use vendors::{DEMO_VENDORS, VARIANTS, VENDORS, Vendor, VendorError};
