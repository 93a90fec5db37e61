//! What one firmware of one BMC has taught: kept by the caller, so that the next job does not meet the same
//! refusals again, and dropped when the firmware changes.
//!
//! ```text
//!   refused a body with Inserted        -> refuses [inserted]      next insert leaves it out at once
//!   asked for TransferProtocolType      -> wants [protocol]        next insert sends it at once
//!   slot answered that it takes nothing -> refusing_slots          discovery shows it as taking nothing
//!   no sessions, or none free           -> (not learned: it passes)
//!   login answered "no such thing"      -> basic_only
//!   firmware another than learned from  -> everything is forgotten
//! ```
//!
//! Learned facts refine what a profile leaves open; they never overrule what it or an operator says.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::flags::Profile;
use super::values::{Auth, IfMatch, Include, InsertFields};

/// So many slots are remembered as refusing.
const MAX_SLOTS: usize = 16;

/// A member of an insert that a BMC asked for or refused.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InsertMember {
    /// `Inserted`.
    Inserted,
    /// `WriteProtected`.
    WriteProtected,
    /// `TransferProtocolType`.
    Protocol,
    /// `TransferMethod`.
    Method,
    /// `UserName` and `Password`.
    Creds,
    /// `MediaType`.
    MediaType,
}

impl InsertMember {
    /// All of them, in the order in which a refusal is searched for their names.
    pub(crate) const ALL: [InsertMember; 6] = [
        InsertMember::Protocol,
        InsertMember::Method,
        InsertMember::Creds,
        InsertMember::MediaType,
        InsertMember::Inserted,
        InsertMember::WriteProtected,
    ];

    /// Its place in the flags.
    pub(crate) fn of(self, fields: &mut InsertFields) -> &mut Include {
        match self {
            InsertMember::Inserted => &mut fields.inserted,
            InsertMember::WriteProtected => &mut fields.write_protected,
            InsertMember::Protocol => &mut fields.protocol,
            InsertMember::Method => &mut fields.method,
            InsertMember::Creds => &mut fields.creds,
            InsertMember::MediaType => &mut fields.media_type,
        }
    }

    /// Its names in a body.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            InsertMember::Inserted => &["Inserted"],
            InsertMember::WriteProtected => &["WriteProtected"],
            InsertMember::Protocol => &["TransferProtocolType"],
            InsertMember::Method => &["TransferMethod"],
            InsertMember::Creds => &["UserName", "Password"],
            InsertMember::MediaType => &["MediaType"],
        }
    }
}

/// What was learned of one BMC.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Learned {
    /// The manager's firmware it was learned from.
    pub firmware_version: Option<String>,
    /// Members of an insert it asked for.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub wants: BTreeSet<InsertMember>,
    /// Members of an insert it refused.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub refuses: BTreeSet<InsertMember>,
    /// Paths of slots that take nothing although they look as if they did.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub refusing_slots: BTreeSet<String>,
    /// It has no sessions although it links to them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub basic_only: bool,
    /// It demands `If-Match: *`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub etag_star: bool,
}

impl Learned {
    /// Whether nothing was learned.
    pub fn is_empty(&self) -> bool {
        let Learned { firmware_version: _, wants, refuses, refusing_slots, basic_only, etag_star } = self;
        wants.is_empty() && refuses.is_empty() && refusing_slots.is_empty() && !basic_only && !etag_star
    }

    /// Forgets everything when the firmware is another one than it was learned from. What was learned at the login,
    /// before the firmware was known, is true of this one.
    pub(crate) fn on_firmware(&mut self, firmware: Option<&str>) {
        if self.firmware_version.as_deref() != firmware {
            if self.firmware_version.is_some() {
                *self = Learned::default();
            }
            self.firmware_version = firmware.map(str::to_owned);
        }
    }

    pub(crate) fn refusing_slot(&mut self, uri: &str) {
        if self.refusing_slots.len() < MAX_SLOTS {
            self.refusing_slots.insert(uri.to_owned());
        }
    }
}

impl Profile {
    /// This profile, refined by what was learned where it leaves something open.
    #[must_use]
    pub fn refined(mut self, learned: &Learned) -> Self {
        for (members, to) in [(&learned.wants, Include::Always), (&learned.refuses, Include::Never)] {
            for member in members {
                InsertFields::learn(member.of(&mut self.insert_fields), to);
            }
        }
        if learned.basic_only {
            self.session = Auth::Basic;
        }
        if learned.etag_star && self.if_match == IfMatch::ETag {
            self.if_match = IfMatch::Star;
        }
        self
    }
}
