//! Learned behaviour of one BMC with one firmware: stored by the caller, so that the next job avoids requests that
//! were refused, and discarded when the firmware changes.
//!
//! ```text
//!   BMC refused a body with Inserted           -> refuses [inserted]      the next insert leaves it out at once
//!   BMC demanded TransferProtocolType          -> wants [protocol]        the next insert sends it at once
//!   insert refused with 405 or 501             -> refusing_slots          discovery marks the slot as unusable
//!   session limit reached                      -> (not learned: it is temporary)
//!   login refused as unknown or unsupported    -> basic_only
//!   ETag refused, * accepted                   -> etag_star
//!   boot override refused, other way accepted  -> boot_via
//!   first way booted the disk, second the media -> boot_via or boot_target
//!   firmware differs from the learned one      -> everything is discarded
//! ```
//!
//! Learned behaviour sets only what a profile leaves open; the profile and the operator take precedence.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::flags::Profile;
use super::values::{Auth, BootVia, IfMatch, Include, InsertFields};
use crate::boot::BootTarget;
use crate::version::FirmwareVersion;

/// Maximum number of refusing slots that are stored.
const MAX_SLOTS: usize = 16;

/// A member of an insert that a BMC demanded or refused.
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
    /// All members, in the order in which their names are searched in a refusal.
    pub(crate) const ALL: [InsertMember; 6] = [
        InsertMember::Protocol,
        InsertMember::Method,
        InsertMember::Creds,
        InsertMember::MediaType,
        InsertMember::Inserted,
        InsertMember::WriteProtected,
    ];

    /// The flag of this member.
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

    /// Names of the member in a body.
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

/// Learned behaviour of one BMC.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Learned {
    /// The firmware version of the manager from which the behaviour was learned.
    pub firmware_version: Option<FirmwareVersion>,
    /// Members of an insert the BMC demanded.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub wants: BTreeSet<InsertMember>,
    /// Members of an insert the BMC refused.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub refuses: BTreeSet<InsertMember>,
    /// The paths of slots that accept no image although they show a way to insert one.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub refusing_slots: BTreeSet<String>,
    /// Whether the BMC has no sessions although it links to them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub basic_only: bool,
    /// The BMC accepts only `If-Match: *`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub etag_star: bool,
    /// The way to set the next boot, on a BMC that refuses the boot override, or whose host then boots its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_via: Option<BootVia>,
    /// The target of the boot override that boots the media.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_target: Option<BootTarget>,
}

impl Learned {
    /// Whether nothing was learned.
    pub fn is_empty(&self) -> bool {
        let Learned {
            firmware_version: _,
            wants,
            refuses,
            refusing_slots,
            basic_only,
            etag_star,
            boot_via,
            boot_target,
        } = self;
        wants.is_empty()
            && refuses.is_empty()
            && refusing_slots.is_empty()
            && !basic_only
            && !etag_star
            && boot_via.is_none()
            && boot_target.is_none()
    }

    /// Discards everything when `firmware` differs from the version it was learned from. What was learned at the login,
    /// before the version was known, is kept.
    pub(crate) fn on_firmware(&mut self, firmware: Option<&FirmwareVersion>) {
        if self.firmware_version.as_ref() != firmware {
            if self.firmware_version.is_some() {
                *self = Learned::default();
            }
            self.firmware_version = firmware.cloned();
        }
    }

    pub(crate) fn refusing_slot(&mut self, uri: &str) {
        if self.refusing_slots.len() < MAX_SLOTS {
            self.refusing_slots.insert(uri.to_owned());
        }
    }
}

impl Profile {
    /// Returns this profile with learned behaviour where it leaves a value open.
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
        if let Some(boot_via) = learned.boot_via.filter(|_| self.boot_via == BootVia::Override) {
            self.boot_via = boot_via;
        }
        if let Some(target) = &learned.boot_target {
            self.boot_targets.retain(|known| known != target);
            self.boot_targets.insert(0, target.clone());
        }
        self
    }
}
