//! The faults in force: the choice of the fault for a request, and the count of the uses of each.

use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{
    call::{Call, Detail},
    faults::{Fault, FaultCondition, FaultEffect, FaultTrigger, Probability},
    journal::RequestKind,
    types::Power,
};

impl FaultTrigger {
    fn matches(&self, call: Option<&Call>) -> bool {
        let Some(call) = call else { return *self == Self::Connect };
        match self {
            Self::Anything => true,
            Self::Read => call.operation == RequestKind::Read,
            Self::Mutation => call.operation.is_mutation(),
            Self::Login => call.operation == RequestKind::Login,
            Self::Logout => call.operation == RequestKind::Logout,
            Self::Insert => call.operation == RequestKind::Insert,
            Self::InsertInto(id) => call.operation == RequestKind::Insert && call.detail.slot() == Some(id),
            Self::Eject => call.operation == RequestKind::Eject,
            Self::EjectFrom(id) => call.operation == RequestKind::Eject && call.detail.slot() == Some(id),
            Self::Reset => call.operation == RequestKind::Reset,
            Self::ResetTo(kind) => {
                call.operation == RequestKind::Reset && call.detail == Detail::Reset(*kind)
            }
            Self::PatchBoot => call.operation == RequestKind::PatchSystem,
            Self::Update => call.operation == RequestKind::Update,
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

/// Whether a text matches a pattern in which `*` stands for any text.
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

/// The state that a [`FaultCondition`] is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct FaultContext {
    pub(super) power: Power,
    pub(super) media: bool,
    pub(super) override_set: bool,
    pub(super) power_ons: u64,
    pub(super) at: Duration,
}

impl FaultCondition {
    fn holds(self, now: &FaultContext) -> bool {
        match self {
            Self::Power(power) => now.power == power,
            Self::AnyMedium => now.media,
            Self::NoMedium => !now.media,
            Self::OverrideSet => now.override_set,
            Self::PowerOns(least) => now.power_ons >= least,
        }
    }
}

impl Probability {
    fn falls(&mut self) -> bool {
        self.asked += 1;
        let mut hash = Sha256::new();
        hash.update(self.seed.to_be_bytes());
        hash.update(self.asked.to_be_bytes());
        let drawn = hash.finalize();
        // Sixteen bits are precise enough for one percent.
        u32::from(u16::from_be_bytes([drawn[0], drawn[1]])) * 100 < u32::from(self.percent) * 65_536
    }
}

/// A fault in force and the time of its first use.
#[derive(Debug)]
struct Rule {
    fault: Fault,
    first: Option<Duration>,
}

/// The faults in force.
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

    /// Returns the effect on this request (`None`: a new connection) and counts the use.
    pub(super) fn apply(&mut self, call: Option<&Call>, now: &FaultContext) -> Option<FaultEffect> {
        self.apply_if(call, now, |effect| !matches!(effect, FaultEffect::CutUpload(_)))
    }

    /// Returns after how many bytes this upload is cut, and counts the use.
    pub(super) fn cut_upload(&mut self, call: &Call, now: &FaultContext) -> Option<u64> {
        match self.apply_if(Some(call), now, |effect| matches!(effect, FaultEffect::CutUpload(_))) {
            Some(FaultEffect::CutUpload(bytes)) => Some(bytes),
            _ => None,
        }
    }

    fn apply_if(
        &mut self,
        call: Option<&Call>,
        now: &FaultContext,
        fits: impl Fn(&FaultEffect) -> bool,
    ) -> Option<FaultEffect> {
        self.0.retain(|Rule { fault, first }| {
            let over = first.zip(fault.lasts).is_some_and(|(first, lasts)| now.at >= first + lasts);
            fault.times != Some(0) && !over
        });
        for Rule { fault, first } in &mut self.0 {
            if !fits(&fault.effect)
                || !fault.when.matches(call)
                || fault.only_if.is_some_and(|state| !state.holds(now))
            {
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
    fn a_pattern_matches_whole_paths_only() {
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
    fn a_probability_decides_the_same_for_one_seed_and_about_as_often_as_set() {
        let draws = |seed| {
            let mut chance = Probability { percent: 30, seed, asked: 0 };
            (0..1000).map(|_| chance.falls()).collect::<Vec<_>>()
        };
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7), draws(8));
        let hits = draws(7).into_iter().filter(|hit| *hit).count();
        assert!((250..350).contains(&hits), "{hits}");
    }
}
