//! A vendor's behaviour as data: times, what goes into bodies, where things live.
//!
//! ```text
//!   profiles/<name>.toml   title, [[detect]] rules, [flags] rows {value, source, verified}
//!        |  embedded, parsed once
//!        v
//!   generic defaults + rows = Profile  <- chosen by Identity (detect), or by the server's record
//!                 + Learned            <- what this very firmware has refused before
//!                 + Flags              <- the operator's overrides, which have the last word
//! ```
//!
//! Operations read a profile and never ask for a vendor. A row says where it is known from and whether it was
//! verified on hardware or in the vendor's documents; what was not stays marked, so that a capture of a real BMC
//! can settle it. The generic profile follows the specifications, tries the smallest body first and lets the
//! BMC's own refusals widen it.

mod choice;
mod detect;
mod files;
mod flags;
mod learned;
mod overrides;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use choice::Choice;
pub use detect::Identity;
pub use files::Row;
pub use flags::{FLAGS, Flags, Profile};
pub use learned::{InsertMember, Learned};
pub use overrides::OverrideError;
pub use values::{
    Auth, BootBody, BootResource, BootVia, Expand, IfMatch, Include, InsertFields, InsertFieldsPatch,
    MediaCollection, MediaMethod, MediaPrepare, Restart, Seconds,
};

use std::time::Duration;

use files::vendors;

impl Profile {
    /// The names of all profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        vendors().iter().map(|vendor| vendor.profile.name)
    }

    /// The profile of that name.
    pub fn named(name: &str) -> Option<Self> {
        vendors().iter().find(|vendor| vendor.profile.name == name).map(|vendor| vendor.profile.clone())
    }

    /// The profile for what a BMC says of itself: that of the most special rule that fits, else the generic one.
    pub fn detect(identity: &Identity) -> Self {
        let rules = vendors().iter().flat_map(|vendor| vendor.detect.iter().map(move |rule| (rule, vendor)));
        let fitting = rules.filter(|(rule, _)| rule.fits(identity));
        // Of equals the first counts.
        let best = fitting.rev().max_by_key(|(rule, _)| rule.weight());
        best.map_or_else(Profile::generic, |(_, vendor)| vendor.profile.clone())
    }

    /// How long a power-on still has to wait, so long after the last insert and after the power-off.
    pub fn settle_left(&self, since_mount: Option<Duration>, since_off: Option<Duration>) -> Duration {
        let left = |settle: Duration, since: Option<Duration>| {
            since.map_or(Duration::ZERO, |since| settle.saturating_sub(since))
        };
        left(self.settle_after_mount, since_mount).max(left(self.settle_after_off, since_off))
    }

    /// Where each deviation of this profile from the generic one is known from.
    pub fn rows(&self) -> &'static [Row] {
        vendors().iter().find(|vendor| vendor.profile.name == self.name).map_or(&[], |vendor| &vendor.rows)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile::generic()
    }
}
