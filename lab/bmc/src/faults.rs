//! Faults as data: a fault says which requests it affects and the effect on them.
//!
//! ```text
//!   request ──► first fault that matches (when, only_if, chance), in the order of injection
//!                 │ skip > 0:  skip -= 1, the request is not affected by this fault
//!                 │ times = 0, or `lasts` over since its first use: the fault is removed
//!                 ▼
//!   connection              NewCertificate, FailHandshake, LegacyTls, Reset, Drop
//!   before the request      Status, Raw, Answer, RateLimit, Hang, Drop, Reset, BmcRestart     nothing is carried out
//!   update                  CutUpload (in the middle of it), Flash (carried out, the update goes wrong)
//!   image read from a URL   Fetch (carried out, the BMC cannot read the image, or reads it in another way)
//!   with the request        Delay, LoseMedia, WrongSerial, Lie, and effects on the body       carried out
//!   instead of it           AcceptButIgnore                                                   2xx, nothing is carried out
//!   after it                ApplyButTimeout, ApplyButDrop                                     carried out, no response
//! ```
//!
//! Invariants: at most one fault applies to a request; a fault applies before authentication, as on a broken BMC; a random
//! decision is a function of the fault's seed and of the number of decisions before.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    config::{ErrorShape, time},
    types::{Power, ResetType},
};

/// The requests that a fault affects.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultTrigger {
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
    /// A request that brings a firmware image or starts an update.
    Update,
    /// Requests with this method (upper case) and this end of the path.
    Request {
        /// The method.
        method: String,
        /// The end of the path.
        path_ends_with: String,
    },
    /// Requests with this method (upper case, `*` for any) and a path that matches a pattern with `*` for any text.
    Path {
        /// The method.
        method: String,
        /// The pattern.
        glob: String,
    },
    /// A new connection, before anything is sent over it.
    Connect,
}

/// The state in which a fault applies.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCondition {
    /// The host has this power state (the real one, not the one shown).
    Power(Power),
    /// At least one slot has a medium.
    AnyMedium,
    /// No slot has a medium.
    NoMedium,
    /// A boot override is set for the next boot.
    OverrideSet,
    /// The host was powered on at least this often.
    PowerOns(u64),
}

/// The probability with which a fault applies.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Probability {
    /// Percentage of matching requests.
    pub percent: u8,
    /// Seed of the decisions.
    pub seed: u64,
    /// Number of decisions so far.
    #[serde(default)]
    pub asked: u64,
}

/// The effect of a fault on a request or its response.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultEffect {
    /// Returns a Redfish error; nothing is carried out.
    Status {
        /// The status code.
        status: u16,
        /// The `MessageId`, for example `IDRAC.2.8.SYS518`.
        message_id: String,
        /// The `Message`.
        message: String,
    },
    /// Returns this body; nothing is carried out.
    Raw {
        /// The status code.
        status: u16,
        /// The `Content-Type`.
        content_type: String,
        /// The body.
        body: String,
    },
    /// Returns these headers and this body; nothing is carried out. For redirects, dates in `Retry-After`, web pages.
    Answer {
        /// The status code.
        status: u16,
        /// The headers.
        headers: BTreeMap<String, String>,
        /// The body.
        body: String,
    },
    /// Returns 429; nothing is carried out.
    RateLimit {
        /// The `Retry-After` header, if any.
        retry_after_seconds: Option<u64>,
    },
    /// Sends no response; nothing is carried out.
    Hang,
    /// Closes the connection; nothing is carried out.
    Drop,
    /// Resets the connection; nothing is carried out.
    Reset,
    /// Restarts the BMC: sessions, media, override and tasks are lost, and connections are refused for this long.
    BmcRestart(#[serde(with = "time")] Duration),
    /// Empties all slots, then carries out the request.
    LoseMedia,
    /// Carries out the request after this delay.
    Delay(#[serde(with = "time")] Duration),
    /// Returns 2xx for a mutation and carries out nothing. Has no effect on other requests.
    AcceptButIgnore,
    /// Carries out the request and sends no response.
    ApplyButTimeout,
    /// Carries out the request and closes the connection.
    ApplyButDrop,
    /// Shows this serial number in place of the real one.
    WrongSerial(String),
    /// Replaces the values of these keys in the response, at the same depth. Keys that the response lacks are not added.
    Lie(Value),
    /// Gives an error response this shape.
    ErrorShape(ErrorShape),
    /// Ends the body after this many bytes; Content-Length agrees.
    Truncate(usize),
    /// Resets the connection after this many bytes of the body; Content-Length announces more.
    CutBody(usize),
    /// Sends the body one byte at a time, with this pause between two bytes.
    Trickle(#[serde(with = "time")] Duration),
    /// Sets this content type.
    ContentType(String),
    /// Puts a byte order mark before the body.
    ByteOrderMark,
    /// Compresses the body although the client did not ask for it.
    Gzip,
    /// Sends the body chunked, without a length.
    Chunked,
    /// Adds a key a second time, first with a wrong value.
    DuplicateKey,
    /// Returns an object nested this deep.
    Deep(u32),
    /// Pads the body to this length.
    Huge(u64),
    /// Fails the TLS handshake; on a request it closes the connection.
    FailHandshake,
    /// Fails the TLS handshake as a server limited to TLS 1.0; on a request it closes the connection.
    LegacyTls,
    /// Replaces the certificate.
    NewCertificate,
    /// Carries out the request, and the update it starts fails or lies.
    Flash(FlashFault),
    /// Carries out the request, and the BMC reads the image of the update in this way.
    Fetch(FetchFault),
    /// Resets the connection after this many bytes of an upload; only for [`FaultTrigger::Update`] over a socket.
    CutUpload(u64),
}

/// The error of an update.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlashFault {
    /// The update reports its success, and the old version stays.
    Lie,
    /// The update stays at 99 %.
    Hang,
    /// The task of the update vanishes when the image is written; the update succeeds.
    LoseTask,
    /// The task of the update ends as `Exception`; the old version stays.
    Fail {
        /// The message of the task.
        message: String,
    },
    /// The task of the update ends as `Completed` with `TaskStatus` Critical; the old version stays.
    Critical {
        /// The message of the task.
        message: String,
    },
    /// An update of the BMC ends with a new certificate.
    NewCertificate,
    /// An update of the BMC ends with a BMC that does not come back for a day.
    StayAway,
    /// The server loses mains power when half of the image is written: see [`crate::SimBmc::lose_power`]. The task is gone.
    PowerLoss {
        /// How long the power is gone.
        #[serde(with = "time")]
        away: Duration,
        /// Whether the component shows its old version afterwards, or none.
        keeps_version: bool,
    },
}

/// The error of a BMC that reads the image of a `SimpleUpdate`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchFault {
    /// The BMC never connects, and its task shows no end.
    Never,
    /// The BMC cannot reach the address, and its task fails.
    Unreachable,
    /// The BMC asks for another path, for which it gets 404.
    WrongPath,
    /// The BMC closes the connection after this many bytes: the length is wrong.
    StopAfter(u64),
    /// The BMC reads all of the image and finds a wrong checksum.
    Damaged,
    /// The BMC pauses after each piece.
    Slow(#[serde(with = "time")] Duration),
    /// The BMC verifies the certificate of the server and trusts none.
    RefuseCertificate,
    /// The BMC reads the whole image twice.
    Twice,
}

/// One fault: which requests it affects, when, how often and how.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// The affected requests.
    pub when: FaultTrigger,
    /// The state in which the fault applies; `None` for every state.
    #[serde(default)]
    pub only_if: Option<FaultCondition>,
    /// The number of matching requests that pass before the fault applies.
    #[serde(default)]
    pub skip: u32,
    /// The number of requests that the fault affects; `None` until it is cleared.
    #[serde(default)]
    pub times: Option<u32>,
    /// The time for which the fault applies after its first use; `None` until it is cleared.
    #[serde(default, with = "optional_time")]
    pub lasts: Option<Duration>,
    /// The probability of each use; `None` for every matching request.
    #[serde(default)]
    pub chance: Option<Probability>,
    /// The effect on the request.
    pub effect: FaultEffect,
}

impl Fault {
    /// A fault on the next matching request.
    pub fn once(when: FaultTrigger, effect: FaultEffect) -> Self {
        Self { times: Some(1), ..Self::always(when, effect) }
    }

    /// A fault on every matching request until it is cleared.
    pub fn always(when: FaultTrigger, effect: FaultEffect) -> Self {
        Self { when, only_if: None, skip: 0, times: None, lasts: None, chance: None, effect }
    }

    /// Limits the fault to this many requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Lets this many matching requests pass first.
    #[must_use]
    pub fn after(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Limits the fault to this time after its first use, with any number of requests.
    #[must_use]
    pub fn lasting(mut self, time: Duration) -> Self {
        self.times = None;
        self.lasts = Some(time);
        self
    }

    /// Limits the fault to this state.
    #[must_use]
    pub fn only_if(mut self, state: FaultCondition) -> Self {
        self.only_if = Some(state);
        self
    }

    /// Applies the fault to this percentage of matching requests, chosen by `seed`.
    #[must_use]
    pub fn sometimes(mut self, percent: u8, seed: u64) -> Self {
        self.chance = Some(Probability { percent, seed, asked: 0 });
        self
    }
}

mod optional_time {
    //! A duration with its unit, or none.

    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize, Serialize)]
    struct Time(#[serde(with = "super::time")] Duration);

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(Time).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Time>::deserialize(deserializer)?.map(|Time(time)| time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_survives_a_round_trip_through_json() {
        let rule = Fault::always(FaultTrigger::Read, FaultEffect::Delay(Duration::from_millis(1500)))
            .lasting(Duration::from_secs(45))
            .sometimes(50, 1);
        let text = serde_json::to_string(&rule).unwrap();
        assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), rule, "{text}");
        let short = r#"{"when":"insert","times":2,"effect":{"status":{"status":503,"message_id":"X","message":"Y"}}}"#;
        assert_eq!(serde_json::from_str::<Fault>(short).unwrap().times, Some(2));
    }
}
