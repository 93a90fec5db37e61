//! Twins: simulated BMCs that behave honestly, on a real socket or in process.
//!
//! A twin is one server's BMC. It keeps its own state, reads the media it is given over real HTTP, decides by itself
//! what the host boots, and hands the host over to whatever plays the operating system ([`Host`]).
//!
//! ```text
//!   socket, TLS ([`SimBmc::serve`], [`SimBmc::serve_tls`])     [`SimBmc::router`]     in process ([`InProcess`])
//!                        └───────────────────────┼───────────────────────┘
//!                                                ▼
//!   http ──► call (method, path, body ─► what is meant) ──► faults (what goes wrong now) ──► auth
//!                                                │
//!                      reads ◄───────────────────┴──────────────────► mutations (detached: they
//!                  resources (JSON)                                   finish though the client left)
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
//! - The client and the twins share no type, no path and no JSON: a misunderstanding cannot cancel itself out.
//! - A request that changes something is carried out to its end even if the client hangs up, as on a real BMC.
//! - The host boots only what is truly there: an override to `Cd` without a bootable image ends on the disk.
//! - Nothing secret enters the journal: no credential, no token, no media URL beyond its file name.
//! - Time is `tokio::time` only; a twin owns no thread, and no task while nothing is pending.
//!
//! What a particular vendor does differently is data in [`SimBmcConfig`] (a file for each in `redfish/twins/`); what goes
//! wrong is data in [`Fault`].
//!
//! Reference: DSP0266 (protocol), DSP0268 (ComputerSystem, VirtualMedia), DESIGN sections 3 (L1, L3, L4, L17) and 8.

mod actions;
mod auth;
mod body;
mod boot;
mod call;
mod config;
mod etag;
mod faults;
mod handle;
mod host;
mod http;
mod http_media;
mod in_process;
mod journal;
mod media_actions;
mod media_reader;
mod oem;
mod power;
mod reply;
mod resources;
mod response_faults;
mod routes;
mod sim_bmc;
mod slots;
mod state;
mod tasks;
mod tls;
mod vendors;
mod warm_reset;

#[cfg(test)]
mod tests;

pub use boot::{BootOverride, OverrideEnabled};
pub use config::{
    AlreadyThere, AnswerPolicy, BootDemands, BootOem, BootPolicy, BootSearch, EjectEmpty, EnableMedia,
    ErrorPolicy, ErrorShape, EtagKind, EtagPolicy, ExtraSystem, FirmwareItem, Graceful, Identity, IfMatch,
    ImageShown, InsertRules, LoginOem, MediaKind, MediaPolicy, MediaVia, MonitorAfter, Occupied, OddPath,
    PowerPolicy, SerialShown, ServicePolicy, SessionPolicy, SettingsObject, SimBmcConfig, SlotConfig,
    SlotTree, Success, TaskPolicy, UrlRules,
};
pub use faults::{Chance, Effect, Fault, FaultCondition, When};
pub use host::{BootContext, BootSource, Host, InsertedMedia, MediaUrl, NullHost};
pub use http::{ServeError, SimBmcServer};
pub use http_media::{HttpMediaReader, MediaReaderError, any_certificate};
pub use in_process::InProcess;
pub use journal::{Change, Entry, JournalItem, Operation};
pub use media_reader::{MediaAnswer, MediaFacts, MediaReader, MediaRefusal, MediaRequest, ReadStyle};
pub use power::{Power, ResetType};
pub use response_faults::Delivery;
pub use sim_bmc::{ConnectionCut, SimBmc};
pub use state::{SimBmcSnapshot, SlotSnapshot};
pub use tls::CertificateError;
pub use vendors::{SHOWN, VENDORS, Vendor, VendorError};
