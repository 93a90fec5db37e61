//! What goes wrong, as data: a rule names the requests it strikes and what becomes of them.
//!
//! ```text
//!   request ──► first rule that matches (when, only_if, chance), in the order of injection
//!                 │ skip > 0:  skip -= 1, the request passes this rule
//!                 │ times = 0, or `lasts` over since its first strike: the rule is spent and gone
//!                 ▼
//!   connection              NewCertificate, FailHandshake, LegacyTls, Reset, Drop
//!   before the twin looks   Status, Raw, Answer, RateLimit, Hang, Drop, Reset, BmcRestart     nothing is carried out
//!   around it               Delay, LoseMedia, WrongSerial, Lie, and what is done to the body  carried out
//!   instead of it           AcceptButIgnore                                                   2xx, nothing is carried out
//!   after it                ApplyButTimeout, ApplyButDrop                                     carried out, never answered
//! ```
//!
//! Invariants: at most one rule strikes a request; a rule strikes before authentication, as a broken BMC would; what
//! chance decides is a function of the rule's seed and of how often it was asked.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    call::{Call, Detail},
    config::{ErrorShape, time},
    journal::Operation,
    power::{Power, ResetType},
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
    /// This method (upper case, `*` for any) on a path that fits, `*` standing for anything.
    Path {
        /// The method.
        method: String,
        /// The pattern.
        glob: String,
    },
    /// A new connection, before anything is sent over it.
    Connect,
}

impl When {
    fn matches(&self, call: Option<&Call>) -> bool {
        let Some(call) = call else { return *self == Self::Connect };
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
            Self::Path { method, glob } => {
                (method == "*" || call.method.as_str() == method) && fits(glob, &call.path)
            }
            Self::Connect => false,
        }
    }
}

/// Whether a text fits a pattern in which `*` stands for anything.
fn fits(glob: &str, text: &str) -> bool {
    let mut parts = glob.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    true
}

/// What has to be so for a fault to strike.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCondition {
    /// The power (as it is, not as it is shown).
    Power(Power),
    /// A slot has a medium.
    AnyMedium,
    /// No slot has one.
    NoMedium,
    /// A boot override waits for the next boot.
    OverrideSet,
    /// The host was powered on at least so often.
    PowerOns(u64),
}

/// What [`FaultCondition`] is asked of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    pub(super) power: Power,
    pub(super) media: bool,
    pub(super) override_set: bool,
    pub(super) power_ons: u64,
    pub(super) at: Duration,
}

impl FaultCondition {
    fn holds(self, now: &Circumstances) -> bool {
        match self {
            Self::Power(power) => now.power == power,
            Self::AnyMedium => now.media,
            Self::NoMedium => !now.media,
            Self::OverrideSet => now.override_set,
            Self::PowerOns(least) => now.power_ons >= least,
        }
    }
}

/// A fault that strikes sometimes.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Chance {
    /// How often, of a hundred times.
    pub percent: u8,
    /// Decides which of them.
    pub seed: u64,
    /// How often it was asked so far.
    #[serde(default)]
    pub asked: u64,
}

impl Chance {
    fn falls(&mut self) -> bool {
        self.asked += 1;
        let mut hash = Sha256::new();
        hash.update(self.seed.to_be_bytes());
        hash.update(self.asked.to_be_bytes());
        let drawn = hash.finalize();
        // Sixteen bits are fine enough for a hundredth.
        u32::from(u16::from_be_bytes([drawn[0], drawn[1]])) * 100 < u32::from(self.percent) * 65_536
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
    /// These very headers and bytes; nothing is carried out. Redirects, dates in `Retry-After`, pages of a web front.
    Answer {
        /// The status code.
        status: u16,
        /// The headers.
        headers: BTreeMap<String, String>,
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
    /// The connection is closed; nothing is carried out.
    Drop,
    /// The connection is reset; nothing is carried out.
    Reset,
    /// The BMC restarts: sessions, media, override and tasks are lost, no connection is taken for this long.
    BmcRestart(#[serde(with = "time")] Duration),
    /// All slots are emptied, then the request is carried out.
    LoseMedia,
    /// Carried out and answered, this much later.
    Delay(#[serde(with = "time")] Duration),
    /// 2xx for a mutation of which nothing is carried out. Has no effect on other requests.
    AcceptButIgnore,
    /// Carried out, never answered.
    ApplyButTimeout,
    /// Carried out, the connection is closed.
    ApplyButDrop,
    /// A read shows this serial number in place of the own one.
    WrongSerial(String),
    /// What an answer shows under these keys, as far as it has them, at any depth, is this.
    Lie(Value),
    /// An error has this shape.
    ErrorShape(ErrorShape),
    /// The answer's body ends after so many bytes (and its length says so).
    Truncate(usize),
    /// The connection is reset after so many bytes of the answer's body (and its length says that more comes).
    CutBody(usize),
    /// The answer's body comes in pieces of one byte, this far apart.
    Trickle(#[serde(with = "time")] Duration),
    /// The answer says it is of this type.
    ContentType(String),
    /// A byte order mark stands before the answer.
    ByteOrderMark,
    /// The answer is compressed although nobody asked for it.
    Gzip,
    /// The answer has no length; it comes in chunks.
    Chunked,
    /// The answer's object has a key twice, first with a wrong value.
    DuplicateKey,
    /// The answer's object nests this deep.
    Deep(u32),
    /// The answer's body is this long.
    Huge(u64),
    /// The TLS handshake fails; on a request its connection is closed.
    FailHandshake,
    /// The TLS handshake fails as with a server that ends at version 1.0.
    LegacyTls,
    /// From now on there is another certificate.
    NewCertificate,
}

/// One rule.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// Which requests.
    pub when: When,
    /// In which state.
    #[serde(default)]
    pub only_if: Option<FaultCondition>,
    /// How many matching requests pass before it strikes.
    #[serde(default)]
    pub skip: u32,
    /// How often it strikes; `None` until it is cleared.
    #[serde(default)]
    pub times: Option<u32>,
    /// How long it strikes, from its first time on; `None` until it is cleared.
    #[serde(default, with = "optional_time")]
    pub lasts: Option<Duration>,
    /// Whether it strikes sometimes only.
    #[serde(default)]
    pub chance: Option<Chance>,
    /// What it does.
    pub effect: Effect,
}

impl Fault {
    /// Strikes the next matching request.
    pub fn once(when: When, effect: Effect) -> Self {
        Self { times: Some(1), ..Self::always(when, effect) }
    }

    /// Strikes every matching request until it is cleared.
    pub fn always(when: When, effect: Effect) -> Self {
        Self { when, only_if: None, skip: 0, times: None, lasts: None, chance: None, effect }
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

    /// The same fault, for so long from its first strike on.
    #[must_use]
    pub fn lasting(mut self, time: Duration) -> Self {
        self.times = None;
        self.lasts = Some(time);
        self
    }

    /// The same fault, in this state only.
    #[must_use]
    pub fn only_if(mut self, state: FaultCondition) -> Self {
        self.only_if = Some(state);
        self
    }

    /// The same fault, so often of a hundred times.
    #[must_use]
    pub fn sometimes(mut self, percent: u8, seed: u64) -> Self {
        self.chance = Some(Chance { percent, seed, asked: 0 });
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

/// A rule in force.
#[derive(Debug)]
struct Rule {
    fault: Fault,
    first: Option<Duration>,
}

/// The rules in force.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Rule>);

impl Faults {
    pub(super) fn new(faults: Vec<Fault>) -> Self {
        Self(faults.into_iter().map(|fault| Rule { fault, first: None }).collect())
    }

    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(Rule { fault, first: None });
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn list(&self) -> Vec<Fault> {
        self.0.iter().map(|rule| rule.fault.clone()).collect()
    }

    /// The effect on this request (or new connection), if any; counts it.
    pub(super) fn strike(&mut self, call: Option<&Call>, now: &Circumstances) -> Option<Effect> {
        self.0.retain(|Rule { fault, first }| {
            let over = first.zip(fault.lasts).is_some_and(|(first, lasts)| now.at >= first + lasts);
            fault.times != Some(0) && !over
        });
        for Rule { fault, first } in &mut self.0 {
            if !fault.when.matches(call) || fault.only_if.is_some_and(|state| !state.holds(now)) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            if fault.chance.as_mut().is_some_and(|chance| !chance.falls()) {
                continue;
            }
            first.get_or_insert(now.at);
            fault.times = fault.times.map(|times| times - 1);
            let effect = fault.effect.clone();
            self.0.retain(|rule| rule.fault.times != Some(0));
            return Some(effect);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_whole_paths_only() {
        for (glob, path, does) in [
            ("/redfish/v1/Systems/*", "/redfish/v1/Systems/1", true),
            ("/redfish/v1/Systems/*", "/redfish/v1/Managers/1", false),
            ("*/VirtualMedia/*/Actions/*", "/redfish/v1/M/1/VirtualMedia/CD1/Actions/Insert", true),
            ("/redfish/v1/", "/redfish/v1/Systems", false),
            ("*", "", true),
            ("a*b", "ab", true),
            ("a*b*", "a", false),
        ] {
            assert_eq!(fits(glob, path), does, "{glob} {path}");
        }
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed_and_about_as_often_as_asked() {
        let draws = |seed| {
            let mut chance = Chance { percent: 30, seed, asked: 0 };
            (0..1000).map(|_| chance.falls()).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        let hits = draws(7).into_iter().filter(|hit| *hit).count();
        assert!((250..350).contains(&hits), "{hits}");
    }

    #[test]
    fn a_rule_survives_the_way_through_json() {
        let rule = Fault::always(When::Read, Effect::Delay(Duration::from_millis(1500)))
            .lasting(Duration::from_secs(45))
            .sometimes(50, 1);
        let text = serde_json::to_string(&rule).unwrap();
        assert_eq!(serde_json::from_str::<Fault>(&text).unwrap(), rule, "{text}");
        let short = r#"{"when":"insert","times":2,"effect":{"status":{"status":503,"message_id":"X","message":"Y"}}}"#;
        assert_eq!(serde_json::from_str::<Fault>(short).unwrap().times, Some(2));
    }
}
