//! A Redfish client for what provisioning needs: find the host, put media into virtual slots, set a one-time
//! boot override, switch power; and read each of them back.
//!
//! ```text
//!   operations   discovery, media, boot, power: read, compare, act, read back     obey a Profile, return evidence
//!        |                     Bmc is the handle that has them
//!   resources    json (a tolerant reading), Slot, SystemInfo, BootOverride         a wrong type spoils one field only
//!        |
//!   api          exchange (one logical request), etag, collection, recent, task    permits, 401 once, redirects,
//!        |                                                                         retries of reads, pages, ETags
//!   session      who we are: a session that is reused and deleted, or Basic
//!        |
//!   transport    one HTTP request with one deadline, pinned, bounded (HttpTransport, or scripted in tests)
//!
//!   profile      what differs between vendors, as data with sources: profiles/<name>.toml, what was learned,
//!                what the operator overrides; read by all layers from session upwards
//! ```
//!
//! Invariants: at most two requests in flight for one BMC and one of them mutating; resources are reached by
//! following links; a mutation is sent at most once per decision, and one whose fate is unknown is reported as
//! [`RedfishError::maybe_applied`], never repeated; a 2xx is not believed before a read says the same; no
//! secret is in any output; every body, list, wait and repetition has a bound. What differs between vendors is
//! data in a [`Profile`].
//!
//! It does not know jobs, leases, stores or configuration; who may send is asked of a [`Fence`], who keeps
//! session tokens is a [`SessionKeeper`], who counts is an [`Observer`].
//!
//! Specifications: DSP0266 (protocol), DSP0268 (resources).

pub mod bmc;
pub mod boot;
mod collection;
pub mod discovery;
pub mod endpoint;
pub mod error;
mod etag;
mod exchange;
#[doc(hidden)]
pub mod fuzz;
mod host_status;
mod http_transport;
pub mod inventory;
mod json;
pub mod limits;
pub mod media;
mod message;
pub mod observe;
pub mod power;
pub mod profile;
pub mod record;
mod redact;
mod resource_cache;
mod retry;
pub mod session;
mod task;
pub mod tls;
pub mod transport;

pub use bmc::{Applied, Bmc, BmcBuilder, Options};
pub use boot::{BootEnabled, BootMode, BootOverride, BootTarget};
pub use discovery::{Discovery, SerialMatch, SystemInfo, SystemSelector};
pub use endpoint::Endpoint;
pub use error::{ErrorKind, Operation, RedfishError};
pub use host_status::HostStatus;
pub use http_transport::{HttpOptions, HttpTransport, read_fingerprint};
pub use inventory::{Account, Firmware, UpdateService};
pub use limits::{CircuitOpen, LimitOptions, Limits, Together};
pub use media::{ImageUrl, InsertOptions, InsertVia, Slot};
pub use observe::{Exchange, ExchangeResult, Fence, Observer, SessionKeeper};
pub use power::{PowerState, ResetType};
pub use profile::Profile;
pub use record::{Recorded, Recorder};
pub use session::{Credentials, SessionHandle};
pub use tls::{Fingerprint, TlsMode};
pub use transport::{Request, Response, Transport, TransportError, TransportErrorKind};
