//! What flags can be set to. The words in files and in a server's overrides are the `serde` names.

use std::time::Duration;

use serde::Deserialize;

/// Sets a field of a profile from what was written.
pub(super) trait Set<T> {
    fn set(self, field: &mut T);
}

impl<T> Set<T> for T {
    fn set(self, field: &mut T) {
        *field = self;
    }
}

/// A time in whole seconds, an hour at most.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "u64")]
pub struct Seconds(u64);

impl TryFrom<u64> for Seconds {
    type Error = &'static str;

    fn try_from(seconds: u64) -> Result<Self, Self::Error> {
        if seconds <= 3600 { Ok(Seconds(seconds)) } else { Err("a time of more than an hour (3600 s)") }
    }
}

impl Set<Duration> for Seconds {
    fn set(self, field: &mut Duration) {
        *field = Duration::from_secs(self.0);
    }
}

/// How requests authenticate.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// A session where there are sessions, else Basic.
    Auto,
    /// Basic with every request.
    Basic,
}

/// Whether collections are read together with their members.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Expand {
    /// Where the service root offers it.
    Auto,
    /// Never: what it offers does not work.
    Never,
}

/// Where a virtual media collection is looked for first; the other place is the fall-back.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum MediaCollection {
    /// Under the System (the newer place; where both exist, this one shows all slots).
    System,
    /// Under the Manager.
    Manager,
}

/// How media gets into a slot.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum MediaMethod {
    /// By the action where there is one, else by PATCH.
    Auto,
    /// By the action; a slot without one takes nothing.
    Action,
    /// By PATCH of the slot, also where an action is shown.
    Patch,
    /// By Supermicro's `IsoConfig`: PATCH host and path, then its Mount action.
    #[serde(rename = "oem:smc_cfgcd")]
    SmcCfgCd,
    /// By the `VmmControl` action of iBMC and its kin.
    #[serde(rename = "oem:vmm")]
    Vmm,
    /// By the actions of iLO 4 and early iLO 5.
    #[serde(rename = "oem:hp")]
    Hp,
}

/// What has to be switched on before slots take media.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum MediaPrepare {
    /// Nothing.
    #[serde(rename = "none")]
    Nothing,
    /// Remote media of MegaRAC, which shows no slots before.
    #[serde(rename = "oem:ami_enable_rmedia")]
    AmiEnableRMedia,
}

/// When a member is part of an insert.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
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
    /// `Inserted: true`.
    pub inserted: Include,
    /// `WriteProtected: true`.
    pub write_protected: Include,
    /// `TransferProtocolType`, from the URL's scheme.
    pub protocol: Include,
    /// `TransferMethod: Stream`.
    pub method: Include,
    /// `UserName` and `Password` with the word `none`, for BMCs that demand them without need.
    pub creds: Include,
    /// `MediaType: CD`.
    pub media_type: Include,
}

impl InsertFields {
    /// All members alike.
    pub const fn all(include: Include) -> Self {
        InsertFields {
            inserted: include,
            write_protected: include,
            protocol: include,
            method: include,
            creds: include,
            media_type: include,
        }
    }
}

/// What is said of some members of an insert.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct InsertFieldsPatch {
    /// `Inserted`.
    pub inserted: Option<Include>,
    /// `WriteProtected`.
    pub write_protected: Option<Include>,
    /// `TransferProtocolType`.
    pub protocol: Option<Include>,
    /// `TransferMethod`.
    pub method: Option<Include>,
    /// `UserName` and `Password`.
    pub creds: Option<Include>,
    /// `MediaType`.
    pub media_type: Option<Include>,
}

impl Set<InsertFields> for InsertFieldsPatch {
    fn set(self, fields: &mut InsertFields) {
        let pairs = [
            (self.inserted, &mut fields.inserted),
            (self.write_protected, &mut fields.write_protected),
            (self.protocol, &mut fields.protocol),
            (self.method, &mut fields.method),
            (self.creds, &mut fields.creds),
            (self.media_type, &mut fields.media_type),
        ];
        for (said, field) in pairs {
            *field = said.unwrap_or(*field);
        }
    }
}

/// By what the next boot is led to the media.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum BootVia {
    /// The boot override of the specification.
    #[serde(rename = "override")]
    Override,
    /// An imported configuration profile: `Cd` of the override means the physical drive there.
    #[serde(rename = "oem:dell_scp")]
    DellScp,
    /// `BootOnNextServerReset` of the slot.
    #[serde(rename = "oem:hpe_bonsr")]
    HpeBonsr,
}

/// What the PATCH of a boot override holds.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum BootBody {
    /// What differs from what is shown.
    Minimal,
    /// Target and Enabled; Mode when the caller asks for one that differs.
    EnabledAlways,
    /// Target, Enabled and Mode, always.
    Full,
}

/// Where the boot override is written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum BootResource {
    /// In the settings resource where that one shows a boot target, else in the system.
    Auto,
    /// In the system, also where there is a settings resource.
    System,
    /// In the settings resource, whatever it shows.
    Settings,
}

/// What stands in `If-Match`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum IfMatch {
    /// The ETag of the last read, when there is one.
    #[serde(rename = "etag")]
    ETag,
    /// `*`, always.
    #[serde(rename = "star")]
    Star,
    /// Nothing, until the BMC demands it.
    #[serde(rename = "none")]
    Without,
}

/// How a host is restarted.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    /// Off, wait until it is, on: some firmware hangs on a forced restart.
    OffOn,
    /// By one forced restart.
    ForceRestart,
}
