//! BMC profiles: the behaviour of a kind of BMC as data (times, members of bodies, locations of resources).
//!
//! ```text
//!   profiles/<name>.toml   title, [[detect]] rules, [flags] rows {value, source, verified}
//!        |  embedded, parsed once
//!        v
//!   generic defaults + rows = Profile  <- chosen by BmcIdentity (detect), or by the server's record
//!                 + Learned            <- what this BMC with this firmware demanded or refused before
//!                 + Flags              <- the operator's overrides, which take precedence
//! ```
//!
//! Operations read flags of a profile and never test for a vendor (decision D20). Each row has a source, and says
//! whether it is verified: seen on hardware or in a capture, or in the documents or code of the vendor or of another
//! client. A row that is not stays marked until a capture of a real BMC confirms it. The generic profile follows the
//! specifications, tries the smallest body first, and adds what the BMC demands.

mod active;
mod detect;
mod files;
mod flags;
mod learned;
mod overrides;
#[cfg(test)]
mod tests;
mod update_values;
mod values;

pub(crate) use active::ActiveProfile;
pub use detect::BmcIdentity;
pub use files::Row;
pub use flags::{FLAGS, Flags, Profile};
pub use learned::{InsertMember, Learned};
pub use overrides::OverrideError;
pub use update_values::{ApplyTimeRule, ImageUri, PushBody, UpdateStateAt, UpdateWay};
pub use values::{
    Auth, BootBody, BootModeRule, BootResource, BootVia, Expand, IfMatch, Include, InsertFields,
    InsertFieldsPatch, MediaCollection, MediaMethod, MediaPrepare, RestartWay, Seconds,
};

use std::time::Duration;

use files::profile_files;

impl Profile {
    /// The names of all profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        profile_files().iter().map(|file| file.profile.name)
    }

    /// The profile with this name.
    pub fn named(name: &str) -> Option<Self> {
        profile_files().iter().find(|file| file.profile.name == name).map(|file| file.profile.clone())
    }

    /// The profile for the identity of a BMC: that of the most specific rule that matches, else the generic profile.
    pub fn detect(identity: &BmcIdentity) -> Self {
        let rules = profile_files().iter().flat_map(|file| file.detect.iter().map(move |rule| (rule, file)));
        let matching = rules.filter(|(rule, _)| rule.matches(identity));
        // Of several rules with one weight the first one is taken.
        let best = matching.rev().max_by_key(|(rule, _)| rule.weight());
        best.map_or_else(Profile::generic, |(_, file)| file.profile.clone())
    }

    /// Remaining settle time before a power-on, given the time since the last insert and since the power-off.
    pub fn settle_left(&self, since_mount: Option<Duration>, since_off: Option<Duration>) -> Duration {
        let left = |settle: Duration, since: Option<Duration>| {
            since.map_or(Duration::ZERO, |since| settle.saturating_sub(since))
        };
        left(self.settle_after_mount, since_mount).max(left(self.settle_after_off, since_off))
    }

    /// The deviations of this profile from the generic one, each with its source.
    pub fn rows(&self) -> &'static [Row] {
        profile_files().iter().find(|file| file.profile.name == self.name).map_or(&[], |file| &file.rows)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile::generic()
    }
}
