//! Errors of operations on a BMC, classified by what they mean for the caller.
//!
//! ```text
//!   no response        Unreachable  CircuitOpen  Timeout  Tls     -- the BMC or the network
//!   refused            Unauthorized License Refused NotFound NotSupported Unsupported NoVirtualMedia MediaUrl TaskFailed
//!   not now            Busy {retry_after}  Server
//!   invalid response   BadAnswer
//!   client side        Config  Fenced
//! ```
//!
//! Every error names the operation, the request, the BMC's message (bounded, without secrets) and the next
//! action. Two questions decide how to continue: [`RedfishError::is_transient`] (may the same call succeed
//! later?) and [`RedfishError::maybe_applied`] (may it have been carried out? then read before anything is sent
//! again).

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};

use crate::limits::CircuitOpen;
use crate::message::ErrorBody;
use crate::transport::{TransportError, TransportErrorKind};

/// An operation of the client; the label `op` of metrics.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, strum::IntoStaticStr, strum::Display)]
#[non_exhaustive]
#[strum(serialize_all = "snake_case")]
pub enum Operation {
    /// Connecting to the BMC.
    Connect,
    /// Opening a session.
    Login,
    /// Deleting a session.
    Logout,
    /// Discovering the host, its manager and its slots.
    Discover,
    /// Reading the update service, the firmware inventory and the account.
    Inventory,
    /// Reading the power state.
    PowerState,
    /// Changing the power state.
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
    /// Enabling virtual media.
    PrepareMedia,
    /// Reading the update service and the firmware inventory before an update.
    UpdateService,
    /// Starting an update of firmware: upload, or request to read the image.
    Update,
    /// Reading the state of an update.
    UpdateState,
    /// Reading or restarting the manager.
    ResetManager,
    /// Reading settings of the BIOS or the boot order.
    ReadSettings,
    /// Writing settings of the BIOS or the boot order.
    WriteSettings,
}

impl Operation {
    /// A short stable name.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A failed operation on a BMC.
#[derive(Clone, Debug, thiserror::Error)]
#[error("redfish {operation}{}: {kind}; {}", RequestLabel(.request), self.next_action())]
pub struct RedfishError {
    /// The operation that failed.
    pub operation: Operation,
    /// Method and path of the failed request, when one was sent or prepared.
    pub request: Option<Box<(Method, String)>>,
    /// The kind of failure.
    pub kind: ErrorKind,
    /// Whether a mutation may have been carried out although the operation failed.
    pub maybe_applied: bool,
}

struct RequestLabel<'a>(&'a Option<Box<(Method, String)>>);

impl fmt::Display for RequestLabel<'_> {
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

/// The reason why the BMC does not authorize the account.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum DenialReason {
    /// User name or password is wrong.
    Credentials,
    /// The account must change its password first.
    PasswordChangeRequired,
    /// The account lacks a privilege.
    Privilege,
    /// Too many logins were rejected; none is sent, so that the account is not locked.
    TooManyRejections,
}

/// Kind of a failure.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no connection, or it was lost.
    #[error("{} ({detail})", unreachable_text(.problem))]
    Unreachable {
        /// The transport failure: no name, refused, lost, or another.
        problem: TransportErrorKind,
        /// The cause as the operating system reports it.
        detail: String,
    },
    /// Several requests in a row got no response; no request is sent until the open time has passed.
    #[error("{0}")]
    CircuitOpen(CircuitOpen),
    /// There was no response within the deadline, or a task did not end in time.
    #[error("no response in time ({detail})")]
    Timeout {
        /// The thing for which the client waited.
        detail: String,
    },
    /// The BMC's certificate is not accepted, or client and BMC share no TLS version.
    #[error("{problem} ({detail})")]
    Tls {
        /// The TLS failure: pin mismatch, untrusted certificate, handshake.
        problem: TransportErrorKind,
        /// The cause as the TLS library reports it.
        detail: String,
    },
    /// The BMC does not accept the credentials.
    #[error("not authorized: {}", denial_text(.denial, .message))]
    Unauthorized {
        /// The reason of the rejection.
        denial: DenialReason,
        /// The BMC's message.
        message: String,
    },
    /// The function needs a licence the BMC does not have.
    #[error("licence missing: {message}")]
    License {
        /// The BMC's message.
        message: String,
    },
    /// The BMC refused the request and did not carry it out.
    #[error("refused with {status}{}: {message}", id_text(.message_id))]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The BMC's message id.
        message_id: Option<String>,
        /// The BMC's message.
        message: String,
    },
    /// The resource does not exist (also for a while after a BMC reset).
    #[error("not found: {message}")]
    NotFound {
        /// The BMC's message.
        message: String,
    },
    /// The BMC accepts media and does not pass them on to the host.
    #[error("virtual media do not reach the host: the BMC's attribute {attribute} is Detached")]
    MediaDetached {
        /// The name of the attribute.
        attribute: String,
    },
    /// The system is another machine than the one that was discovered: the BMC at this address was exchanged.
    #[error(
        "another machine is at this address now: its system shows the serial number {shown}, and {known} was discovered"
    )]
    OtherMachine {
        /// The serial number at the time of discovery.
        known: String,
        /// The serial number that the system shows now.
        shown: String,
    },
    /// The BMC offers no supported way to do this.
    #[error("not supported: {what}")]
    NotSupported {
        /// The missing function.
        what: String,
    },
    /// The BMC's profile says that this BMC cannot be used.
    #[error("this BMC cannot be used (profile {profile}): {why}")]
    Unsupported {
        /// Name of the profile.
        profile: &'static str,
        /// The reason and the next action.
        why: String,
    },
    /// There is no slot that accepts an image.
    #[error("no virtual media: {detail}")]
    NoVirtualMedia {
        /// The places in which slots were searched.
        detail: String,
    },
    /// The BMC does not support the scheme or port at which media are served.
    #[error("the BMC reads media by {reads} only, but media are served by {served}")]
    MediaUrl {
        /// Schemes or port the BMC supports.
        reads: String,
        /// Scheme or port of the media URL.
        served: String,
    },
    /// The BMC cannot carry out the request now: busy, rate limited, or not ready.
    #[error("busy ({status}{}): {message}", id_text(.message_id))]
    Busy {
        /// The HTTP status.
        status: u16,
        /// The BMC's message id.
        message_id: Option<String>,
        /// The BMC's message.
        message: String,
        /// The `Retry-After` of the response.
        retry_after: Option<Duration>,
    },
    /// The BMC reported an internal failure.
    #[error("the BMC failed with {status}{}: {message}", id_text(.message_id))]
    Server {
        /// The HTTP status.
        status: u16,
        /// The BMC's message id.
        message_id: Option<String>,
        /// The BMC's message.
        message: String,
    },
    /// An asynchronous operation failed.
    #[error("task ended as {state}{}: {message}", id_text(.message_id))]
    TaskFailed {
        /// The task state.
        state: String,
        /// The BMC's message id.
        message_id: Option<String>,
        /// The BMC's message.
        message: String,
    },
    /// The response is not valid for the request.
    #[error("invalid response: {detail}")]
    BadAnswer {
        /// The difference to a valid response.
        detail: String,
        /// Whether a repeated request would get an invalid response too.
        lasting: bool,
    },
    /// A setting or an argument is not valid.
    #[error("invalid request: {detail}")]
    Config {
        /// The invalid setting or argument.
        detail: String,
    },
    /// The [`Fence`](crate::Fence) did not allow the request; nothing was sent.
    #[error("this controller no longer owns the server")]
    Fenced,
}

/// The end of a next action: a condition, and the restart of the BMC when it holds.
macro_rules! or_restart {
    ($condition:literal) => {
        concat!(
            $condition,
            ", and its web interface shows no update, restart the BMC (there, or with `ipmitool mc reset cold`); the host keeps running"
        )
    };
}

impl RedfishError {
    pub(crate) fn new(operation: Operation, kind: ErrorKind) -> Self {
        RedfishError { operation, request: None, kind, maybe_applied: false }
    }

    /// The error for a failure before the first request: reading the certificate, or invalid TLS settings.
    pub fn connecting(error: TransportError) -> Self {
        RedfishError::new(Operation::Connect, from_transport(error))
    }

    /// The error for a request that was not sent because the circuit is open.
    pub fn circuit_open(open: CircuitOpen) -> Self {
        RedfishError::new(Operation::Connect, ErrorKind::CircuitOpen(open))
    }

    pub(crate) fn at(mut self, method: &Method, path: &str) -> Self {
        self.request = Some(Box::new((method.clone(), path.to_owned())));
        self
    }

    pub(crate) fn not_supported(operation: Operation, what: impl Into<String>) -> Self {
        RedfishError::new(operation, ErrorKind::NotSupported { what: what.into() })
    }

    /// Whether the failed request was a read, which changes nothing.
    pub fn is_read(&self) -> bool {
        self.request.as_ref().is_some_and(|request| request.0 == Method::GET)
    }

    /// Whether the same call may succeed later without a change by an operator.
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
            | ErrorKind::OtherMachine { .. }
            | ErrorKind::NotSupported { .. }
            | ErrorKind::Unsupported { .. }
            | ErrorKind::NoVirtualMedia { .. }
            | ErrorKind::MediaDetached { .. }
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

    /// The HTTP status of the response, if the kind has one.
    pub fn status(&self) -> Option<u16> {
        match &self.kind {
            ErrorKind::Refused { status, .. }
            | ErrorKind::Busy { status, .. }
            | ErrorKind::Server { status, .. } => Some(*status),
            ErrorKind::NotFound { .. } => Some(404),
            _ => None,
        }
    }

    /// The time the BMC asked the client to wait before the next request.
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
            ErrorKind::CircuitOpen(_) => "circuit_open",
            ErrorKind::Timeout { .. } => "timeout",
            ErrorKind::Tls { .. } => "tls",
            ErrorKind::Unauthorized { .. } => "unauthorized",
            ErrorKind::License { .. } => "license",
            ErrorKind::Refused { .. } => "refused",
            ErrorKind::NotFound { .. } => "not_found",
            ErrorKind::OtherMachine { .. } => "other_machine",
            ErrorKind::NotSupported { .. } => "not_supported",
            ErrorKind::Unsupported { .. } => "unsupported",
            ErrorKind::NoVirtualMedia { .. } => "no_virtual_media",
            ErrorKind::MediaDetached { .. } => "media_detached",
            ErrorKind::MediaUrl { .. } => "media_url",
            ErrorKind::Busy { .. } => "busy",
            ErrorKind::Server { .. } => "server",
            ErrorKind::TaskFailed { .. } => "task_failed",
            ErrorKind::BadAnswer { .. } => "bad_answer",
            ErrorKind::Config { .. } => "config",
            ErrorKind::Fenced => "fenced",
        }
    }

    /// The next action where a firmware update or settings need another one than virtual media do.
    fn next_action_of_update(&self) -> Option<&'static str> {
        let updates = matches!(self.operation, Operation::UpdateService | Operation::Update);
        let settings = matches!(self.operation, Operation::ReadSettings | Operation::WriteSettings);
        match &self.kind {
            ErrorKind::License { .. } if updates || settings => {
                Some("install the BMC licence that includes this function, or use the BMC's web interface")
            }
            ErrorKind::Refused { status: 413, .. } if updates => {
                Some("the image is too large for this way: choose another one with the flag update_ways")
            }
            ErrorKind::Refused { .. } if updates => Some(
                "read the BMC's message: the image may be for another model, or the BMC may demand a version in between",
            ),
            ErrorKind::NotSupported { .. } if updates => {
                Some("update this component in the BMC's web interface, or use newer firmware of the BMC")
            }
            ErrorKind::Unauthorized { denial: DenialReason::Privilege, .. } if updates || settings => {
                Some("grant the account the privilege to configure components and the manager")
            }
            ErrorKind::Refused { .. } | ErrorKind::NotSupported { .. } if settings => {
                Some("read the BMC's message and compare names and values with its attribute registry")
            }
            _ => None,
        }
    }

    /// The next action for the operator, as a clause.
    pub fn next_action(&self) -> &'static str {
        if self.maybe_applied {
            return "it may have been carried out: read the state before trying again";
        }
        if let Some(action) = self.next_action_of_update() {
            return action;
        }
        match &self.kind {
            ErrorKind::Unreachable { problem: TransportErrorKind::Resolve, .. } => {
                "correct the name in the server's BMC address, or the DNS this controller uses"
            }
            ErrorKind::Unreachable { problem: TransportErrorKind::Refused, .. } => {
                "check the port, and that Redfish (HTTPS) is switched on in the BMC"
            }
            ErrorKind::Unreachable { problem: TransportErrorKind::HandshakeCut, .. } => {
                "if it happens again, the BMC may offer only TLS older than 1.2: update its firmware or allow TLS 1.2 in its settings; if it offers TLS 1.2, restart the BMC"
            }
            ErrorKind::CircuitOpen(_) => {
                "check power and network of the BMC; requests resume by themselves, one at a time at first"
            }
            ErrorKind::Unreachable { .. } => {
                "check address, port, cabling and firewall between this controller and the BMC"
            }
            ErrorKind::Timeout { .. } => {
                or_restart!("try again later; if the BMC still does not respond")
            }
            ErrorKind::Tls { problem: TransportErrorKind::PinMismatch, .. } => {
                "compare the shown fingerprint with the one on the BMC's console (a firmware update creates a new certificate); if they are equal, pin it again"
            }
            ErrorKind::Tls { problem: TransportErrorKind::Untrusted, .. } => {
                "pin the certificate's fingerprint or configure the CA that issued it"
            }
            ErrorKind::Tls { problem: TransportErrorKind::LegacyTls, .. } => {
                "update the BMC's firmware or allow TLS 1.2 in its settings; older versions are not supported"
            }
            ErrorKind::Tls { problem: TransportErrorKind::NotTls, .. } => {
                "check the port, or write http:// into the server's BMC address"
            }
            ErrorKind::Tls { .. } => "check scheme and port of the server's BMC address",
            ErrorKind::Unauthorized { denial, .. } => match denial {
                DenialReason::Credentials => {
                    "correct user name and password of this server; they are used at once, and wrong ones are sent twice at most, so that the account is not locked"
                }
                DenialReason::PasswordChangeRequired => {
                    "log in to the web interface of the BMC with this account, set a new password, then register it"
                }
                DenialReason::Privilege => {
                    "grant the account the privileges to configure components and virtual media"
                }
                DenialReason::TooManyRejections => {
                    "correct the credentials, which are used at once; unchanged ones are tried again after ten minutes"
                }
            },
            ErrorKind::License { .. } => "install the BMC licence that includes virtual media",
            ErrorKind::Refused { .. } => {
                "read the BMC's message; another slot, value or firmware version may be needed"
            }
            ErrorKind::NotFound { .. } => {
                "check that the address is that of the BMC's Redfish service; after a BMC reset resources appear late: then try again"
            }
            ErrorKind::OtherMachine { .. } => {
                "find the BMC of the registered machine and give it a fixed address; its media and power may be as the job left them"
            }
            ErrorKind::NotSupported { .. } => {
                "use another slot, another flag of the profile, or newer firmware"
            }
            ErrorKind::Unsupported { .. } => {
                "if the profile is wrong, set bmc_profile or a flag override for this server"
            }
            ErrorKind::NoVirtualMedia { .. } => {
                "check the licence, the privilege to use virtual media, and whether newer firmware exists"
            }
            ErrorKind::MediaDetached { .. } => {
                "set it to AutoAttach in the BMC (virtual media, attach mode), then create the job again"
            }
            ErrorKind::MediaUrl { reads, .. } if reads == "https" => {
                "serve media by https (CONTROLLER_HTTPS_ADDR or MEDIA_HTTPS_ADDR) and leave media_base_url of this server and MEDIA_BASE_URL unset, or set one of them to an https:// address; for firmware that reads http, override url_schemes"
            }
            ErrorKind::MediaUrl { .. } => {
                "serve media there and set media_base_url of this server to that address, or override url_schemes and url_port"
            }
            ErrorKind::Busy { .. } => {
                or_restart!("wait and try again; if the BMC stays busy for more than 15 minutes")
            }
            ErrorKind::Server { .. } => {
                or_restart!("wait and try again; if it persists")
            }
            ErrorKind::TaskFailed { .. } => "read the BMC's message and the BMC's log",
            ErrorKind::BadAnswer { lasting: false, .. } => "wait until the BMC is ready and try again",
            ErrorKind::BadAnswer { lasting: true, .. } => {
                "check that the address is that of a Redfish service"
            }
            ErrorKind::Config { .. } => "correct the settings of this server",
            ErrorKind::Fenced => "nothing to do: another controller instance continues",
        }
    }
}

fn unreachable_text(problem: &TransportErrorKind) -> &'static str {
    match problem {
        TransportErrorKind::Resolve => "the BMC's host name does not resolve",
        TransportErrorKind::Refused => "the BMC refuses connections on this port",
        TransportErrorKind::HandshakeCut => "the BMC ended the connection during the TLS handshake",
        TransportErrorKind::Lost => "the BMC closed the connection",
        _ => "the BMC is unreachable",
    }
}

fn denial_text(denial: &DenialReason, message: &str) -> String {
    let reason = match denial {
        DenialReason::Credentials => "user name or password is wrong",
        DenialReason::PasswordChangeRequired => "the password must be changed first",
        DenialReason::Privilege => "the account lacks a privilege",
        DenialReason::TooManyRejections => "too many rejected logins, none is sent now",
    };
    if message.is_empty() { reason.to_owned() } else { format!("{reason} ({message})") }
}

fn id_text(id: &Option<String>) -> String {
    id.as_ref().map(|id| format!(" {id}")).unwrap_or_default()
}

/// Message keys that mean "not now" with any status.
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
/// The keys of these that leave open whether the request was carried out; with 5xx they do not mean "not now".
const UNCLEAR_KEYS: [&str; 1] = ["operationtimeout"];
const LICENSE_KEYS: [&str; 4] =
    ["oemlicensenotpassed", "licensekeyrequired", "insufficientlicense", "lic501"];
const PASSWORD_KEYS: [&str; 2] = ["passwordchangerequired", "passwordresetrequired"];
/// Message keys that mean "no more sessions".
pub(crate) const SESSION_LIMIT_KEYS: [&str; 4] =
    ["rac0218", "sessionlimitexceeded", "createlimitreachedforresource", "maximumsessionsreached"];

/// Classifies a response with a status outside 2xx.
pub(crate) fn classify(
    status: StatusCode,
    body: &ErrorBody,
    retry_after: Option<Duration>,
    secrets: &[&str],
) -> ErrorKind {
    let message = body.message_text(secrets);
    let message_id = body.id(secrets);
    let code = status.as_u16();
    if body.has_key(&PASSWORD_KEYS) {
        return ErrorKind::Unauthorized { denial: DenialReason::PasswordChangeRequired, message };
    }
    if body.has_key(&LICENSE_KEYS) {
        return ErrorKind::License { message };
    }
    let busy = body.has_key(&BUSY_KEYS) || body.has_key(&SESSION_LIMIT_KEYS);
    match code {
        401 => ErrorKind::Unauthorized { denial: DenialReason::Credentials, message },
        403 if !busy => ErrorKind::Unauthorized { denial: DenialReason::Privilege, message },
        404 | 410 => ErrorKind::NotFound { message },
        405 | 501 => {
            let what = if message.is_empty() { format!("the BMC returns {code}") } else { message };
            ErrorKind::NotSupported { what }
        }
        408 | 423 | 429 | 503 => ErrorKind::Busy { status: code, message_id, message, retry_after },
        400..=499 if busy => ErrorKind::Busy { status: code, message_id, message, retry_after },
        // The status says less than the message: a BMC that is not ready has not begun the request.
        500..=599 if busy && !body.has_key(&UNCLEAR_KEYS) => {
            ErrorKind::Busy { status: code, message_id, message, retry_after }
        }
        500..=599 => ErrorKind::Server { status: code, message_id, message },
        300..=399 => {
            ErrorKind::BadAnswer { detail: format!("a redirect ({code}) to another address"), lasting: true }
        }
        _ => ErrorKind::Refused { status: code, message_id, message },
    }
}

/// Converts a transport failure.
pub(crate) fn from_transport(error: TransportError) -> ErrorKind {
    let TransportError { kind, detail, .. } = error;
    match kind {
        TransportErrorKind::Connect
        | TransportErrorKind::Refused
        | TransportErrorKind::Resolve
        | TransportErrorKind::HandshakeCut
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

/// Marks the error of a failed read-back: the mutation before it was sent.
pub(crate) fn mark_maybe_applied(error: RedfishError) -> RedfishError {
    RedfishError { maybe_applied: true, ..error }
}
