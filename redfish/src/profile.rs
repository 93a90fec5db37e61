//! A vendor's behaviour as data: times, what goes into bodies, where things live.
//!
//! Operations read a profile and never ask for a vendor. A row that deviates from [`Profile::generic`] names
//! where that is known from. The generic profile follows the specification, tries the smallest body first and
//! lets the BMC's own refusals widen it; it suits a BMC that was never seen before.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::boot::BootTarget;

/// How a BMC wants to be spoken to.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name operators and the server record use.
    pub name: &'static str,
    /// How requests authenticate.
    pub auth: Auth,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// How long a mutation may take, insert excepted.
    pub mutation_timeout: Duration,
    /// How long an insert may take; some BMCs read the image inside the request.
    pub insert_timeout: Duration,
    /// How long an asynchronous operation may take after it was accepted.
    pub task_timeout: Duration,
    /// How long after an insert the media may be unusable to the host; the caller waits.
    pub settle_after_insert: Duration,
    /// How long a read-back may lag behind an accepted change; the caller polls.
    pub read_back_lag: Duration,
    /// Where virtual media is looked for first.
    pub media_home: MediaHome,
    /// What an insert sends besides the image.
    pub insert: InsertFields,
    /// Which URLs the BMC can read media from.
    pub media_url: MediaUrl,
    /// Boot targets for a virtual CD, the best first.
    pub boot_targets: &'static [BootTarget],
    /// What the PATCH of a boot override holds.
    pub boot_body: BootBody,
    /// Whether `If-Match` is sent with PATCH.
    pub if_match: IfMatch,
}

/// How requests authenticate.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Auth {
    /// A session where there are sessions, else Basic.
    Auto,
    /// Basic with every request.
    Basic,
}

/// Where a virtual media collection is looked for first; the other place is the fall-back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MediaHome {
    /// Under the System (the newer place; where both exist, this one shows all slots).
    System,
    /// Under the Manager.
    Manager,
}

/// When a member is part of an insert.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Include {
    /// In every body.
    Always,
    /// Once the BMC has asked for it.
    WhenAsked,
    /// In no body.
    Never,
}

/// Members of an insert besides `Image`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InsertFields {
    /// `Inserted: true` and `WriteProtected: true`.
    pub inserted: Include,
    /// `TransferProtocolType`, from the URL's scheme.
    pub protocol: Include,
    /// `TransferMethod: Stream`.
    pub method: Include,
    /// `UserName` and `Password` with the word `none`, for BMCs that demand them without need.
    pub placeholder_credentials: Include,
}

/// What a media URL should look like; the caller builds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MediaUrl {
    /// Schemes the BMC can read, the best first.
    pub schemes: &'static [&'static str],
    /// The only port it connects to, if it is that picky.
    pub port: Option<u16>,
    /// The file name suffix for a CD slot.
    pub cd_suffix: &'static str,
    /// The file name suffix for a USB or floppy slot.
    pub usb_suffix: &'static str,
}

/// What the PATCH of a boot override holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BootBody {
    /// Target and Enabled; Mode when the caller asks for one that differs.
    TargetAndEnabled,
    /// Target, Enabled and Mode, always.
    Full,
}

/// What stands in `If-Match`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IfMatch {
    /// The ETag of the last read, when there is one.
    ETag,
    /// `*`, always.
    Star,
}

impl Profile {
    /// The profile for a BMC nothing is known of.
    pub const fn generic() -> Self {
        Profile {
            name: "generic",
            auth: Auth::Auto,
            login_timeout: Duration::from_secs(30),
            mutation_timeout: Duration::from_secs(60),
            insert_timeout: Duration::from_secs(120),
            task_timeout: Duration::from_secs(120),
            settle_after_insert: Duration::ZERO,
            read_back_lag: Duration::from_secs(60),
            media_home: MediaHome::System,
            insert: InsertFields {
                inserted: Include::WhenAsked,
                protocol: Include::WhenAsked,
                method: Include::WhenAsked,
                placeholder_credentials: Include::WhenAsked,
            },
            media_url: MediaUrl {
                schemes: &["http", "https"],
                port: None,
                cd_suffix: "iso",
                usb_suffix: "img",
            },
            boot_targets: &[BootTarget::Cd, BootTarget::UsbCd],
            boot_body: BootBody::TargetAndEnabled,
            if_match: IfMatch::ETag,
        }
    }

    /// The profile of that name.
    pub fn named(name: &str) -> Option<Self> {
        PROFILES.iter().find(|profile| profile.name == name).cloned()
    }

    /// The profile for what a BMC says of itself: the first row of the table that fits, else the generic one.
    pub fn detect(identity: &Identity) -> Self {
        let fitting = DETECTION.iter().find(|rule| rule.fits(identity));
        fitting.and_then(|rule| Profile::named(rule.profile)).unwrap_or_else(Profile::generic)
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile::generic()
    }
}

/// What a BMC says of itself, as far as it chooses a profile.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Identity {
    /// `Vendor` of the service root, else `Manufacturer` of the system.
    pub vendor: Option<String>,
    /// `Product` of the service root.
    pub product: Option<String>,
    /// Names in `Oem` of the service root.
    pub oem: Vec<String>,
    /// `Model` of the system.
    pub model: Option<String>,
    /// `FirmwareVersion` of the manager.
    pub firmware: Option<String>,
}

/// One row of the detection table: all that is given must fit.
struct Rule {
    /// Begins the vendor, or is one of the OEM names; compared without case.
    vendor: &'static str,
    /// Part of the product name; empty fits all.
    product: &'static str,
    profile: &'static str,
}

impl Rule {
    fn fits(&self, identity: &Identity) -> bool {
        let starts = |text: &str| text.to_ascii_lowercase().starts_with(self.vendor);
        let product = identity.product.as_deref().unwrap_or_default().to_ascii_lowercase();
        (identity.vendor.as_deref().is_some_and(starts) || identity.oem.iter().any(|name| starts(name)))
            && product.contains(self.product)
    }
}

/// Which BMC gets which profile, the most special first.
static DETECTION: &[Rule] = &[
    Rule { vendor: "supermicro", product: "", profile: "supermicro" },
    Rule { vendor: "super micro", product: "", profile: "supermicro" },
    Rule { vendor: "ami", product: "", profile: "ami" },
    Rule { vendor: "openbmc", product: "", profile: "openbmc" },
];

/// Every profile. Rows besides the generic one hold only what is documented and were not run on hardware here.
static PROFILES: &[Profile] = &[
    Profile::generic(),
    // UsbCd is the virtual CD, Cd a physical one; the mode falls back to Legacy when the device changes unless
    // it is sent along (OpenStack stories 2008547 and 2008712).
    Profile {
        name: "supermicro",
        boot_targets: &[BootTarget::UsbCd, BootTarget::Cd],
        boot_body: BootBody::Full,
        ..Profile::generic()
    },
    // Wants the whole Boot object and `If-Match: *` (ironic management.py, libredfish); reads plain HTTP on port
    // 80 only and shows media to the host minutes after the insert (field reports on MegaRAC 13).
    Profile {
        name: "ami",
        boot_body: BootBody::Full,
        if_match: IfMatch::Star,
        settle_after_insert: Duration::from_secs(180),
        media_url: MediaUrl { schemes: &["http"], port: Some(80), ..Profile::generic().media_url },
        ..Profile::generic()
    },
    // bmcweb accepts https and smb only, and insists on streaming (bmcweb virtual_media.hpp).
    Profile {
        name: "openbmc",
        media_url: MediaUrl { schemes: &["https"], ..Profile::generic().media_url },
        ..Profile::generic()
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_detection_table_names_a_profile() {
        for rule in DETECTION {
            assert!(Profile::named(rule.profile).is_some(), "{}", rule.profile);
        }
    }

    #[test]
    fn an_unknown_bmc_gets_the_generic_profile() {
        assert_eq!(Profile::detect(&Identity::default()).name, "generic");
        let unknown = Identity { vendor: Some("Contoso".to_owned()), ..Identity::default() };
        assert_eq!(Profile::detect(&unknown), Profile::generic());
    }

    #[test]
    fn a_vendor_is_recognised_by_name_or_by_oem_section() {
        let by_oem = Identity { oem: vec!["Supermicro".to_owned()], ..Identity::default() };
        assert_eq!(Profile::detect(&by_oem).name, "supermicro");
        let by_vendor = Identity { vendor: Some("AMI".to_owned()), ..Identity::default() };
        assert_eq!(Profile::detect(&by_vendor).name, "ami");
    }
}
