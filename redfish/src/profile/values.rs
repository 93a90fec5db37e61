//! Types of the flags' values. Profile files and overrides use the `serde` names.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::boot::BootMode;

/// Sets a field of a profile from the value in a file or an override.
pub(super) trait Set<T> {
    fn set(self, field: &mut T);
}

impl<T> Set<T> for T {
    fn set(self, field: &mut T) {
        *field = self;
    }
}

/// A time in whole seconds, `MAX` at most; an hour unless a flag says otherwise.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(try_from = "u64")]
pub struct Seconds<const MAX: u64 = 3600>(u64);

impl<const MAX: u64> TryFrom<u64> for Seconds<MAX> {
    type Error = String;

    fn try_from(seconds: u64) -> Result<Self, Self::Error> {
        let hours = if MAX == 3600 { "an hour".to_owned() } else { format!("{} hours", MAX / 3600) };
        (seconds <= MAX).then_some(Seconds(seconds)).ok_or(format!("a time of more than {hours} ({MAX} s)"))
    }
}

impl<const MAX: u64> Set<Duration> for Seconds<MAX> {
    fn set(self, field: &mut Duration) {
        *field = Duration::from_secs(self.0);
    }
}

/// The authentication of requests.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    /// A session if the BMC offers sessions, else Basic.
    Auto,
    /// Basic with every request.
    Basic,
}

/// Whether collections are read together with their members.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Expand {
    /// Collections are read with their members if the service root offers it.
    Auto,
    /// Collections are never read with their members, although the service root may offer it.
    Never,
}

/// The virtual media collection that is read first; the other one is the fallback.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum MediaCollection {
    /// The collection under the System (newer; where both exist, this one shows all slots).
    System,
    /// The collection under the Manager.
    Manager,
}

/// The mechanism by which images are inserted into slots.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum MediaMethod {
    /// The action inserts images if the slot has one, else a PATCH.
    Auto,
    /// The action inserts images; a slot without it accepts no image.
    Action,
    /// A PATCH of the slot inserts images, even if the slot has an action.
    Patch,
    /// The OEM resource `IsoConfig` inserts images: PATCH of host and path, then its Mount action.
    #[serde(rename = "oem:iso_config")]
    IsoConfigAction,
    /// The OEM action `VmmControl` inserts images.
    #[serde(rename = "oem:vmm_control")]
    VmmControlAction,
    /// The OEM actions `InsertVirtualMedia` and `EjectVirtualMedia` insert and eject images.
    #[serde(rename = "oem:insert_virtual_media")]
    InsertVirtualMediaAction,
}

/// The feature that must be enabled before slots accept images.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum MediaPrepare {
    /// Slots accept images at once.
    #[serde(rename = "none")]
    Nothing,
    /// Remote media, by the OEM action `EnableRMedia`; the BMC shows no slots before.
    #[serde(rename = "oem:enable_rmedia")]
    EnableRemoteMedia,
}

/// The condition under which a member is part of a request.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Include {
    /// Every body contains the member.
    Always,
    /// A body contains the member after the BMC has demanded it.
    WhenAsked,
    /// No body contains the member.
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
    /// `UserName` and `Password` with the value `none`, for BMCs that demand them without using them.
    pub creds: Include,
    /// `MediaType: CD`.
    pub media_type: Include,
}

impl InsertFields {
    /// One value for all members.
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

/// Values for some members of an insert; the others stay unchanged.
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
        for (value, field) in pairs {
            *field = value.unwrap_or(*field);
        }
    }
}

/// The mechanism that sets the next boot to the media.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum BootVia {
    /// The boot override of the specification.
    #[serde(rename = "override")]
    Override,
    /// An imported server configuration that sets the first boot device, for BMCs where the target `Cd` of the boot
    /// override is the physical drive.
    #[serde(rename = "oem:configuration_import")]
    ConfigurationImport,
    /// The OEM property `BootOnNextServerReset` of the slot.
    #[serde(rename = "oem:boot_on_next_server_reset")]
    BootOnNextServerReset,
}

/// The properties that the PATCH of a boot override contains.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum BootBody {
    /// The PATCH contains the properties that differ from the shown values.
    Minimal,
    /// Target and Enabled; Mode when the caller demands one that differs.
    EnabledAlways,
    /// Target, Enabled and Mode, always.
    Full,
}

/// The mode in which a one-time boot is set.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum BootModeRule {
    /// The mode that the BMC shows, but UEFI where the whole object is sent and no override is set: after a consumed override such
    /// BMCs show `Legacy` on UEFI hosts too.
    Auto,
    /// UEFI.
    Uefi,
    /// BIOS, for a host whose firmware setup says so.
    Legacy,
}

impl BootModeRule {
    /// The fixed mode; `None` for the mode that the BMC shows.
    pub(crate) fn fixed(self) -> Option<BootMode> {
        match self {
            Self::Auto => None,
            Self::Uefi => Some(BootMode::Uefi),
            Self::Legacy => Some(BootMode::Legacy),
        }
    }
}

/// The resource to which the boot override is written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum BootResource {
    /// The settings resource if it shows a boot target, else the system.
    Auto,
    /// The system, even if there is a settings resource.
    System,
    /// The settings resource, even if it shows no boot target.
    Settings,
}

/// The value of `If-Match`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
pub enum IfMatch {
    /// The ETag of the last read, if there was one.
    #[serde(rename = "etag")]
    ETag,
    /// `*`, always.
    #[serde(rename = "star")]
    Star,
    /// No header, until the BMC demands it.
    #[serde(rename = "none")]
    Without,
}

/// The way to restart a host.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum RestartWay {
    /// Power off, wait for `Off`, power on: some firmware hangs on a forced restart.
    OffOn,
    /// The host is restarted by one forced restart.
    ForceRestart,
}
