//! A Redfish client for what provisioning needs: find the host, put media into virtual slots, set a one-time
//! boot override, switch power, update firmware, change settings of the BIOS; and read each of them back.
//!
//! ```text
//!   operations   discovery, media, boot, power, settings, update: read, compare,   follow a Profile, return ChangeResult
//!        |       act, read back
//!        |                     methods of the handle Bmc
//!   resources    json (tolerant parsing), Slot, SystemInfo, BootOverride          a wrong type affects one field only
//!        |
//!   api          exchange (one logical request), etag, collection, task,           permits, 401 once, redirects,
//!        |       resource_cache                                                     retries of reads, pages, ETags
//!   session      authentication: a session that is reused and deleted, or Basic
//!        |
//!   transport    one HTTP request with one deadline, pinned, bounded (HttpTransport, or scripted in tests)
//!
//!   profile      what differs between vendors, as data with sources: profiles/<name>.toml, learned behaviour,
//!                overrides of the operator; read by all layers from session upwards
//! ```
//!
//! Invariants: at most two requests are in flight for one BMC, at most one of them a mutation; resources are
//! reached by following links; a mutation is sent at most once per decision, and one with an unknown outcome is
//! reported as [`RedfishError::maybe_applied`], never repeated; a 2xx counts only when a read confirms it; no
//! output contains a secret; every body, list, wait and retry has a bound. What differs between vendors is data
//! in a [`Profile`].
//!
//! The crate does not know jobs, leases, stores or configuration. A [`Fence`] decides whether a request may be
//! sent, a [`SessionKeeper`] stores session tokens, an [`Observer`] receives every request for metrics.
//!
//! Specifications: DSP0266 (protocol), DSP0268 (resources).

mod attributes;
pub mod bmc;
pub mod boot;
mod collection;
pub mod credentials;
pub mod discovery;
pub mod endpoint;
pub mod error;
mod etag;
mod exchange;
#[doc(hidden)]
pub mod fuzz;
pub mod hardware;
mod host_status;
mod http_transport;
pub mod inventory;
mod json;
pub mod limits;
pub mod manager_reset;
pub mod media;
mod message;
pub mod observe;
pub mod options;
pub mod power;
pub mod power_state;
pub mod profile;
pub mod record;
mod redact;
mod resource_cache;
mod retry;
mod session;
pub mod settings;
mod task;
pub mod tls;
pub mod transport;
pub mod update;
pub mod upload;
pub mod version;

pub use bmc::{Bmc, BmcBuilder, ChangeResult};
pub use boot::{BootEnabled, BootMode, BootOverride, BootTarget, BootWay};
pub use credentials::{BmcCredentials, SessionHandle};
pub use discovery::{Discovery, SerialMatch, SystemInfo, SystemSelector};
pub use endpoint::Endpoint;
pub use error::{ErrorKind, Operation, RedfishError};
pub use hardware::Hardware;
pub use host_status::HostStatus;
pub use http_transport::{HttpOptions, HttpTransport, read_fingerprint};
pub use inventory::{Account, Firmware, UpdateService};
pub use limits::{CircuitOpen, GlobalLimit, LimitOptions, RequestLimits};
pub use manager_reset::{ManagerReset, ManagerStatus, RestartSince};
pub use media::{ImageUrl, InsertOptions, InsertVia, Slot};
pub use observe::{Exchange, ExchangeResult, Fence, Observer, SessionKeeper};
pub use options::ClientOptions;
pub use power_state::{PowerState, ResetType};
pub use profile::Profile;
pub use record::{RecordedExchange, RecordingTransport};
pub use settings::{AttributeRegistry, Bios, BiosCheck, SettingsDiff, SettingsView};
pub use tls::{Fingerprint, TlsVerification};
pub use transport::{Request, Response, Transport, TransportError, TransportErrorKind};
pub use update::{
    ApplyTime, ImageOffer, PreparedUpdate, SoftwareInventory, SoftwareItem, UpdateCapability, UpdateHandle,
    UpdateImage, UpdatePoll, UpdateRequest, UpdateStart, UpdateState, choose_way,
};
pub use upload::{UploadBody, UploadProgress};
pub use version::{FirmwareVersion, VersionNumbers};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
