//! What can go wrong with a BMC, by what it means for the caller.
//!
//! ```text
//!   no answer          Unreachable  Timeout  Tls            -- the BMC or the way to it
//!   it wants not       Unauthorized License Refused NotFound NotSupported TaskFailed
//!   not now            Busy {retry_after}  Server
//!   not understood     BadAnswer
//!   our side           Config  Fenced
//! ```
//!
//! Every error names the operation, the request, the BMC's own words (bounded, without secrets) and what to do
//! next. Two questions decide how to go on: [`RedfishError::is_transient`] (may the same call succeed later?)
//! and [`RedfishError::maybe_applied`] (may it have happened? then read before anything is sent again).

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::limits::CircuitOpen;
use crate::message::ErrorBody;
use crate::transport::{TransportError, TransportErrorKind};

/// What was being done; the label `op` of metrics.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Reaching the BMC at all.
    Connect,
    /// Opening a session.
    Login,
    /// Deleting a session.
    Logout,
    /// Finding the host, its manager and its slots.
    Discover,
    /// Reading what else there is: update service, firmware, account.
    Inventory,
    /// Reading the power state.
    PowerState,
    /// Switching power.
    Reset,
    /// Reading a virtual media slot.
    Slot,
    /// Inserting media.
    Insert,
    /// Ejecting media.
    Eject,
    /// Reading the boot override.
    BootOverride,
    /// Setting the boot override.
    SetBootOnce,
    /// Clearing the boot override.
    ClearBootOverride,
    /// Switching virtual media on.
    PrepareMedia,
}

impl Operation {
    /// A short stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Connect => "connect",
            Operation::Login => "login",
            Operation::Logout => "logout",
            Operation::Discover => "discover",
            Operation::Inventory => "inventory",
            Operation::PowerState => "power_state",
            Operation::Reset => "reset",
            Operation::Slot => "slot",
            Operation::Insert => "insert",
            Operation::Eject => "eject",
            Operation::BootOverride => "boot_override",
            Operation::SetBootOnce => "set_boot_once",
            Operation::ClearBootOverride => "clear_boot_override",
            Operation::PrepareMedia => "prepare_media",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A failed operation on a BMC.
#[derive(Clone, Debug, thiserror::Error)]
#[error("redfish {operation}{}: {kind}; {}", Shown(.request), self.next_step())]
pub struct RedfishError {
    /// What was being done.
    pub operation: Operation,
    /// Method and path of the request that failed, when one was sent or about to be.
    pub request: Option<Box<(Method, String)>>,
    /// What went wrong.
    pub kind: ErrorKind,
    /// Whether a mutation may have been carried out although it failed.
    pub maybe_applied: bool,
}

struct Shown<'a>(&'a Option<Box<(Method, String)>>);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(request) => {
                let (method, path) = request.as_ref();
                write!(f, " ({method} {path})")
            }
            None => Ok(()),
        }
    }
}

/// Why the BMC does not accept who is asking.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Denial {
    /// User name or password are wrong.
    Credentials,
    /// The account must change its password first.
    PasswordChangeRequired,
    /// The account lacks a privilege.
    Privilege,
    /// Too many failed logins from here; nothing was sent, to not lock the account.
    TooManyRejections,
}

/// Kinds of failure.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No connection, or it broke.
    #[error("{} ({detail})", unreachable_text(.problem))]
    Unreachable {
        /// What kind of failure: no name, refused, or any other.
        problem: TransportErrorKind,
        /// The cause as the system gave it.
        detail: String,
    },
    /// It has not answered so often that it is left alone for a while; nothing is sent meanwhile.
    #[error("{0}")]
    CircuitOpen(CircuitOpen),
    /// No answer within the deadline, or a task that did not end in time.
    #[error("no answer in time ({detail})")]
    Timeout {
        /// What was waited for.
        detail: String,
    },
    /// The BMC's certificate is not accepted, or there is no common TLS version.
    #[error("{problem} ({detail})")]
    Tls {
        /// Pin mismatch, untrusted, or handshake.
        problem: TransportErrorKind,
        /// The cause as the library gave it.
        detail: String,
    },
    /// The BMC does not accept the credentials.
    #[error("not authorized: {}", denial_text(.denial, .message))]
    Unauthorized {
        /// Why.
        denial: Denial,
        /// What the BMC said.
        message: String,
    },
    /// The function needs a licence the BMC does not have.
    #[error("licence missing: {message}")]
    License {
        /// What the BMC said.
        message: String,
    },
    /// A definite no to this very request.
    #[error("refused with {status}{}: {message}", id_text(.message_id))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The BMC's message id.
        message_id: Option<String>,
        /// What the BMC said.
        message: String,
    },
    /// The resource is not there (also for a while after a BMC reset).
    #[error("not found: {message}")]
    NotFound {
        /// What the BMC said.
        message: String,
    },
    /// This BMC cannot do it in any way known here.
    #[error("not supported: {what}")]
    NotSupported {
        /// What is missing.
        what: String,
    },
    /// The BMC's profile says that it cannot be used, and why.
    #[error("this BMC cannot be used (profile {profile}): {why}")]
    Unsupported {
        /// The profile.
        profile: &'static str,
        /// Why, with what to do.
        why: String,
    },
    /// There is no slot an image could be put into.
    #[error("no virtual media: {detail}")]
    NoVirtualMedia {
        /// What was looked at.
        detail: String,
    },
    /// The BMC cannot read media the way they are served.
    #[error("the BMC reads media by {reads} only, they are served by {served}")]
    MediaUrl {
        /// What it can read.
        reads: String,
        /// What was offered.
        served: String,
    },
    /// Not now: busy, rate limited, or not ready.
    #[error("busy ({status}{}): {message}", id_text(.message_id))]
    Busy {
        /// The HTTP status.
        status: u16,
        /// The BMC's message id.
        message_id: Option<String>,
        /// What the BMC said.
        message: String,
        /// When the BMC asked to be asked again.
        retry_after: Option<Duration>,
    },
    /// The BMC failed inside.
    #[error("the BMC failed with {status}{}: {message}", id_text(.message_id))]
    Server {
        /// The HTTP status.
        status: u16,
        /// The BMC's message id.
        message_id: Option<String>,
        /// What the BMC said.
        message: String,
    },
    /// An asynchronous operation ended badly.
    #[error("task ended as {state}{}: {message}", id_text(.message_id))]
    TaskFailed {
        /// The task state.
        state: String,
        /// The BMC's message id.
        message_id: Option<String>,
        /// What the BMC said.
        message: String,
    },
    /// An answer that is not what the request asks for.
    #[error("unusable answer: {detail}")]
    BadAnswer {
        /// What it is instead.
        detail: String,
        /// Whether asking again is pointless.
        lasting: bool,
    },
    /// What was configured or asked for cannot be right.
    #[error("invalid request: {detail}")]
    Config {
        /// What.
        detail: String,
    },
    /// The [`Fence`](crate::Fence) did not allow the request; nothing was sent.
    #[error("no longer entitled to speak to this server")]
    Fenced,
}

impl RedfishError {
    pub(crate) fn new(operation: Operation, kind: ErrorKind) -> Self {
        RedfishError { operation, request: None, kind, maybe_applied: false }
    }

    /// What a failure before the first request means: the first look at a certificate, or unusable TLS settings.
    pub fn connecting(error: TransportError) -> Self {
        RedfishError::new(Operation::Connect, from_transport(error))
    }

    /// Nothing is sent for now.
    pub fn resting(resting: CircuitOpen) -> Self {
        RedfishError::new(Operation::Connect, ErrorKind::CircuitOpen(resting))
    }

    pub(crate) fn at(mut self, method: &Method, path: &str) -> Self {
        self.request = Some(Box::new((method.clone(), path.to_owned())));
        self
    }

    pub(crate) fn not_supported(operation: Operation, what: impl Into<String>) -> Self {
        RedfishError::new(operation, ErrorKind::NotSupported { what: what.into() })
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        match &self.kind {
            ErrorKind::Unreachable { .. }
            | ErrorKind::CircuitOpen(_)
            | ErrorKind::Timeout { .. }
            | ErrorKind::Busy { .. }
            | ErrorKind::Server { .. }
            | ErrorKind::BadAnswer { lasting: false, .. } => true,
            ErrorKind::Unauthorized { .. }
            | ErrorKind::Tls { .. }
            | ErrorKind::License { .. }
            | ErrorKind::Refused { .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::NotSupported { .. }
            | ErrorKind::Unsupported { .. }
            | ErrorKind::NoVirtualMedia { .. }
            | ErrorKind::MediaUrl { .. }
            | ErrorKind::TaskFailed { .. }
            | ErrorKind::BadAnswer { lasting: true, .. }
            | ErrorKind::Config { .. }
            | ErrorKind::Fenced => false,
        }
    }

    /// Whether a mutation may have been carried out: read the resource before sending anything again.
    pub fn maybe_applied(&self) -> bool {
        self.maybe_applied
    }

    /// The HTTP status behind the error, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match &self.kind {
            ErrorKind::Refused { status, .. }
            | ErrorKind::Busy { status, .. }
            | ErrorKind::Server { status, .. } => Some(*status),
            ErrorKind::NotFound { .. } => Some(404),
            _ => None,
        }
    }

    /// How long the BMC asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.kind {
            ErrorKind::Busy { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// A short stable name of the kind; a label for metrics and failure classes.
    pub fn code(&self) -> &'static str {
        match &self.kind {
            ErrorKind::Unreachable { .. } => "unreachable",
            ErrorKind::CircuitOpen(_) => "resting",
            ErrorKind::Timeout { .. } => "timeout",
            ErrorKind::Tls { .. } => "tls",
            ErrorKind::Unauthorized { .. } => "unauthorized",
            ErrorKind::License { .. } => "license",
            ErrorKind::Refused { .. } => "refused",
            ErrorKind::NotFound { .. } => "not_found",
            ErrorKind::NotSupported { .. } => "not_supported",
            ErrorKind::Unsupported { .. } => "unsupported",
            ErrorKind::NoVirtualMedia { .. } => "no_virtual_media",
            ErrorKind::MediaUrl { .. } => "media_url",
            ErrorKind::Busy { .. } => "busy",
            ErrorKind::Server { .. } => "server",
            ErrorKind::TaskFailed { .. } => "task_failed",
            ErrorKind::BadAnswer { .. } => "bad_answer",
            ErrorKind::Config { .. } => "config",
            ErrorKind::Fenced => "fenced",
        }
    }

    /// What to do about it, as a clause for people.
    pub fn next_step(&self) -> &'static str {
        if self.maybe_applied {
            return "it may have been carried out: read the state before trying again";
        }
        match &self.kind {
            ErrorKind::Unreachable { problem: TransportErrorKind::Resolve, .. } => {
                "correct the name in the server's BMC address, or the DNS this controller uses"
            }
            ErrorKind::Unreachable { problem: TransportErrorKind::Refused, .. } => {
                "check the port, and that Redfish (HTTPS) is switched on in the BMC"
            }
            ErrorKind::CircuitOpen(_) => {
                "look whether the BMC has power and network; it is asked again by itself, one request at a time"
            }
            ErrorKind::Unreachable { .. } => {
                "check address, port, cabling and firewall between here and the BMC"
            }
            ErrorKind::Timeout { .. } => {
                "try again later; a BMC that stays silent may need a reset of its own"
            }
            ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, .. } => {
                "compare the fingerprint shown with the BMC's own console (a firmware update makes a new one); if it is right, pin it anew"
            }
            ErrorKind::Tls { problem: TransportErrorKind::Untrusted, .. } => {
                "pin the certificate's fingerprint or give the CA that issued it"
            }
            ErrorKind::Tls { problem: TransportErrorKind::LegacyTls, .. } => {
                "update the BMC's firmware or allow TLS 1.2 in its settings; older versions are not spoken here"
            }
            ErrorKind::Tls { problem: TransportErrorKind::NotTls, .. } => {
                "check the port, or write http:// into the server's BMC address"
            }
            ErrorKind::Tls { .. } => "check scheme and port of the server's BMC address",
            ErrorKind::Unauthorized { denial, .. } => match denial {
                Denial::Credentials => {
                    "correct user name and password of this server; no login is tried again before that, so that the account is not locked"
                }
                Denial::PasswordChangeRequired => "log in to the BMC once and set a new password",
                Denial::Privilege => {
                    "give the account the privileges to configure components and virtual media"
                }
                Denial::TooManyRejections => {
                    "correct the credentials; the next login is allowed after ten minutes"
                }
            },
            ErrorKind::License { .. } => "install the BMC licence that includes virtual media",
            ErrorKind::Refused { .. } => {
                "read the BMC's message; another slot, value or firmware may be needed"
            }
            ErrorKind::NotFound { .. } => "discover again; after a BMC reset resources come back late",
            ErrorKind::NotSupported { .. } => "use another slot or way, or newer firmware",
            ErrorKind::Unsupported { .. } => {
                "if the profile is the wrong one, set bmc_profile or an override at this server"
            }
            ErrorKind::NoVirtualMedia { .. } => {
                "look for a licence, for the privilege to use virtual media, and for newer firmware"
            }
            ErrorKind::MediaUrl { .. } => {
                "serve media that way and set media_base_url of this server to it, or override url_schemes and url_port"
            }
            ErrorKind::Busy { .. } => "wait and try again",
            ErrorKind::Server { .. } => "wait and try again; if it persists, restart the BMC",
            ErrorKind::TaskFailed { .. } => "read the BMC's message and its own log",
            ErrorKind::BadAnswer { lasting: false, .. } => "wait until the BMC is ready and try again",
            ErrorKind::BadAnswer { lasting: true, .. } => {
                "check that the address is that of a Redfish service"
            }
            ErrorKind::Config { .. } => "correct the settings of this server",
            ErrorKind::Fenced => "nothing to do: another owner goes on",
        }
    }
}

fn unreachable_text(problem: &TransportErrorKind) -> &'static str {
    match problem {
        TransportErrorKind::Resolve => "the BMC's host name does not resolve",
        TransportErrorKind::Refused => "the BMC refuses connections on this port",
        TransportErrorKind::Lost => "the BMC broke the connection off",
        _ => "the BMC is unreachable",
    }
}

fn denial_text(denial: &Denial, message: &str) -> String {
    let reason = match denial {
        Denial::Credentials => "user name or password are wrong",
        Denial::PasswordChangeRequired => "the password must be changed first",
        Denial::Privilege => "the account lacks a privilege",
        Denial::TooManyRejections => "too many failed logins, none is tried now",
    };
    if message.is_empty() { reason.to_owned() } else { format!("{reason} ({message})") }
}

fn id_text(id: &Option<String>) -> String {
    id.as_ref().map(|id| format!(" {id}")).unwrap_or_default()
}

/// Messages that mean "not now" whatever the status says.
const BUSY_KEYS: [&str; 11] = [
    "sys518",
    "sys446",
    "invalidoperationforsystemstate",
    "unabletomodifyduringsystempost",
    "connectionoccupied",
    "resourceinuse",
    "resourceinstandby",
    "servicetemporarilyunavailable",
    "serviceshuttingdown",
    "operationtimeout",
    "rac0679",
];
const LICENSE_KEYS: [&str; 4] =
    ["oemlicensenotpassed", "licensekeyrequired", "insufficientlicense", "lic501"];
const PASSWORD_KEYS: [&str; 2] = ["passwordchangerequired", "passwordresetrequired"];
/// Messages that mean "no more sessions".
pub(crate) const SESSION_LIMIT_KEYS: [&str; 4] =
    ["rac0218", "sessionlimitexceeded", "createlimitreachedforresource", "maximumsessionsreached"];

/// What a status outside 2xx means.
pub(crate) fn classify(
    status: StatusCode,
    body: &ErrorBody,
    retry_after: Option<Duration>,
    secrets: &[&str],
) -> ErrorKind {
    let message = body.sentence(secrets);
    let message_id = body.id(secrets);
    let code = status.as_u16();
    if body.has_key(&PASSWORD_KEYS) {
        return ErrorKind::Unauthorized { denial: Denial::PasswordChangeRequired, message };
    }
    if body.has_key(&LICENSE_KEYS) {
        return ErrorKind::License { message };
    }
    let busy = body.has_key(&BUSY_KEYS) || body.has_key(&SESSION_LIMIT_KEYS);
    match code {
        401 => ErrorKind::Unauthorized { denial: Denial::Credentials, message },
        403 if !busy => ErrorKind::Unauthorized { denial: Denial::Privilege, message },
        404 | 410 => ErrorKind::NotFound { message },
        405 | 501 => {
            let what = if message.is_empty() { format!("the BMC answers {code}") } else { message };
            ErrorKind::NotSupported { what }
        }
        408 | 423 | 429 | 503 => ErrorKind::Busy { status: code, message_id, message, retry_after },
        400..=499 if busy => ErrorKind::Busy { status: code, message_id, message, retry_after },
        500..=599 => ErrorKind::Server { status: code, message_id, message },
        300..=399 => {
            ErrorKind::BadAnswer { detail: format!("a redirect ({code}) to somewhere else"), lasting: true }
        }
        _ => ErrorKind::Refused { status: code, message_id, message },
    }
}

/// What a transport failure means.
pub(crate) fn from_transport(error: TransportError) -> ErrorKind {
    let TransportError { kind, detail, .. } = error;
    match kind {
        TransportErrorKind::Connect
        | TransportErrorKind::Refused
        | TransportErrorKind::Resolve
        | TransportErrorKind::Lost => ErrorKind::Unreachable { problem: kind, detail },
        TransportErrorKind::Timeout => ErrorKind::Timeout { detail },
        TransportErrorKind::PinMismatch
        | TransportErrorKind::Untrusted
        | TransportErrorKind::LegacyTls
        | TransportErrorKind::NotTls
        | TransportErrorKind::TlsHandshake => ErrorKind::Tls { problem: kind, detail },
        TransportErrorKind::BodyTooLarge => ErrorKind::BadAnswer { detail, lasting: true },
        TransportErrorKind::Protocol => ErrorKind::BadAnswer { detail, lasting: false },
        TransportErrorKind::Config => ErrorKind::Config { detail },
    }
}
