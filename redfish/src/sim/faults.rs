//! What goes wrong, as data: a rule names the requests it strikes and what becomes of them.
//!
//! ```text
//!   request ──► first rule that matches, in the order of injection
//!                 │ skip > 0:  skip -= 1, the request passes this rule
//!                 │ times = 0: the rule is spent and gone
//!                 ▼
//!   before the twin looks   Status, Raw, RateLimit, Hang, Drop          nothing is carried out
//!   around it               Delay, WrongSerial, Truncate                carried out
//!   instead of it           AcceptButIgnore                             2xx, nothing is carried out
//!   after it                ApplyButTimeout, ApplyButDrop               carried out, never answered
//! ```
//!
//! Invariants: at most one rule strikes a request; a rule strikes before authentication, as a broken BMC would.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    call::{Call, Detail},
    journal::Operation,
    power::ResetType,
};

/// Which requests a fault strikes.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Every request.
    Anything,
    /// Every GET and HEAD.
    Read,
    /// Every request that would change the host, a slot or the boot override.
    Mutation,
    /// A login for a session.
    Login,
    /// The end of a session.
    Logout,
    /// `InsertMedia` into any slot.
    Insert,
    /// `InsertMedia` into the slot with this id.
    InsertInto(String),
    /// `EjectMedia` of any slot.
    Eject,
    /// `EjectMedia` of the slot with this id.
    EjectFrom(String),
    /// Any reset.
    Reset,
    /// A reset of this type.
    ResetTo(ResetType),
    /// A PATCH of the system.
    PatchBoot,
    /// This method (upper case) on a path that ends so.
    Request {
        /// The method.
        method: String,
        /// The end of the path.
        path_ends_with: String,
    },
}

impl When {
    fn matches(&self, call: &Call) -> bool {
        match self {
            Self::Anything => true,
            Self::Read => call.operation == Operation::Read,
            Self::Mutation => call.operation.is_mutation(),
            Self::Login => call.operation == Operation::Login,
            Self::Logout => call.operation == Operation::Logout,
            Self::Insert => call.operation == Operation::Insert,
            Self::InsertInto(id) => call.operation == Operation::Insert && call.detail.slot() == Some(id),
            Self::Eject => call.operation == Operation::Eject,
            Self::EjectFrom(id) => call.operation == Operation::Eject && call.detail.slot() == Some(id),
            Self::Reset => call.operation == Operation::Reset,
            Self::ResetTo(kind) => call.operation == Operation::Reset && call.detail == Detail::Reset(*kind),
            Self::PatchBoot => call.operation == Operation::PatchSystem,
            Self::Request { method, path_ends_with } => {
                call.method.as_str() == method && call.path.ends_with(path_ends_with.as_str())
            }
        }
    }
}

/// What becomes of the request.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// A Redfish error; nothing is carried out.
    Status {
        /// The status code.
        status: u16,
        /// The `MessageId`, for example `IDRAC.2.8.SYS518`.
        message_id: String,
        /// The `Message`.
        message: String,
    },
    /// These very bytes; nothing is carried out.
    Raw {
        /// The status code.
        status: u16,
        /// The `Content-Type`.
        content_type: String,
        /// The body.
        body: String,
    },
    /// 429; nothing is carried out.
    RateLimit {
        /// The `Retry-After` header, if any.
        retry_after_seconds: Option<u64>,
    },
    /// Never answered; nothing is carried out.
    Hang,
    /// The connection is cut; nothing is carried out.
    Drop,
    /// Carried out and answered, this much later.
    Delay(Duration),
    /// 2xx for a mutation of which nothing is carried out. Has no effect on other requests.
    AcceptButIgnore,
    /// Carried out, never answered.
    ApplyButTimeout,
    /// Carried out, the connection is cut.
    ApplyButDrop,
    /// A read shows this serial number in place of the own one.
    WrongSerial(String),
    /// The answer's body ends after so many bytes (and its length says so).
    Truncate(usize),
}

/// One rule.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// Which requests.
    pub when: When,
    /// How many matching requests pass before it strikes.
    #[serde(default)]
    pub skip: u32,
    /// How often it strikes; `None` until it is cleared.
    #[serde(default)]
    pub times: Option<u32>,
    /// What it does.
    pub effect: Effect,
}

impl Fault {
    /// Strikes the next matching request.
    pub fn once(when: When, effect: Effect) -> Self {
        Self { when, skip: 0, times: Some(1), effect }
    }

    /// Strikes every matching request until it is cleared.
    pub fn always(when: When, effect: Effect) -> Self {
        Self { when, skip: 0, times: None, effect }
    }

    /// The same fault, so many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// The same fault, after so many matching requests passed.
    #[must_use]
    pub fn after(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }
}

/// The rules in force.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        Self(faults)
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn list(&self) -> &[Fault] {
        &self.0
    }

    /// The effect on this request, if any; counts it.
    pub(super) fn strike(&mut self, call: &Call) -> Option<Effect> {
        let mut struck = None;
        for (index, fault) in self.0.iter_mut().enumerate() {
            if fault.times == Some(0) || !fault.when.matches(call) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            struck = Some((index, fault.effect.clone()));
            fault.times = fault.times.map(|times| times - 1);
            break;
        }
        let (index, effect) = struck?;
        if self.0[index].times == Some(0) {
            self.0.remove(index);
        }
        Some(effect)
    }
}
