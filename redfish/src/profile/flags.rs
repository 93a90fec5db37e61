//! All flags, each declared once with name, type, default and purpose.
//!
//! ```text
//!   flags! { field "flag": Type (written as Raw) = default, … }
//!      -> Profile   all fields, with defaults: the behaviour of one BMC
//!      -> Flags     all fields optional: the values a profile file or an operator sets
//!      -> FLAGS     the names, for messages and for the test that each flag has an effect
//! ```
//!
//! Defaults follow the specifications and suit an unknown BMC. A profile file contains only rows that deviate, each
//! with its source.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::update_values::{ApplyTimeRule, ImageUri, PushBody, UpdateStateAt, UpdateWay};
use super::values::{
    Auth, BootBody, BootModeRule, BootResource, BootVia, Expand, IfMatch, Include, InsertFields,
    InsertFieldsPatch, MediaCollection, MediaMethod, MediaPrepare, RestartWay, Seconds, Set,
};
use crate::boot::BootTarget;

macro_rules! flags {
    ($($(#[$doc:meta])* $field:ident $flag:literal : $type:ty [$raw:ty] = $default:expr;)*) => {
        /// The behaviour of a kind of BMC: one value for every flag.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Profile {
            /// Name of the profile, as used by operators and in the server record.
            pub name: &'static str,
            /// The BMCs the profile is for, in a few words.
            pub title: String,
            $($(#[$doc])* pub $field: $type,)*
        }

        /// Values for some flags; the others stay unchanged.
        #[derive(Clone, Debug, Default, Deserialize, PartialEq)]
        #[serde(deny_unknown_fields, default)]
        pub struct Flags {
            $($(#[$doc])* #[serde(rename = $flag)] pub $field: Option<$raw>,)*
        }

        /// The names of all flags.
        pub const FLAGS: &[&str] = &[$($flag),*];

        impl Profile {
            /// The profile for an unknown BMC: the default of every flag.
            pub fn generic() -> Self {
                Profile {
                    name: "generic",
                    title: "Any BMC that follows the specifications".to_owned(),
                    $($field: $default,)*
                }
            }

            /// Returns this profile with the given flags set.
            #[must_use]
            pub fn with(mut self, flags: &Flags) -> Self {
                $(if let Some(raw) = flags.$field.clone() { raw.set(&mut self.$field); })*
                self
            }

            /// Names of the flags in which this profile differs from another one.
            pub fn differing(&self, other: &Profile) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$field != other.$field { names.push($flag); })*
                names
            }
        }
    };
}

flags! {
    /// The authentication of requests.
    session "session": Auth [Auth] = Auth::Auto;
    /// The member `Oem` in the body of a login.
    login_oem "login_oem": Map<String, Value> [Map<String, Value>] = Map::new();
    /// Deadline of a login.
    login_timeout "login_timeout_s": Duration [Seconds] = Duration::from_secs(30);
    /// Deadline of a mutation other than an insert.
    mutation_timeout "mutation_timeout_s": Duration [Seconds] = Duration::from_secs(60);
    /// Deadline of an insert; some BMCs read the image before they respond.
    insert_timeout "insert_timeout_s": Duration [Seconds] = Duration::from_secs(120);
    /// Maximum duration of a task after it was accepted.
    task_timeout "task_timeout_s": Duration [Seconds] = Duration::from_secs(120);
    /// Time after an accepted change within which the read-back shows it; the caller polls.
    read_back_lag "read_back_lag_s": Duration [Seconds] = Duration::from_secs(60);
    /// Time after an insert during which the host may not see the media; the caller waits before the power-on.
    settle_after_mount "settle_after_mount_s": Duration [Seconds] = Duration::ZERO;
    /// Time after a power-off during which the host cannot be powered on; the caller waits.
    settle_after_off "settle_after_off_s": Duration [Seconds] = Duration::ZERO;
    /// Message keys that mean "not now" on this BMC although they mean "no" on others; in lower case.
    busy_ids "busy_ids": Vec<String> [Vec<String>] = Vec::new();
    /// Ids of the system that is the host, in order of preference, if the BMC shows several systems. The first one is read
    /// before the collection of systems, which is read only if that system does not show the expected serial number.
    system_select "system_select": Vec<String> [Vec<String>] = Vec::new();
    /// Whether `SKU` of the system is its service tag, which identifies one machine; elsewhere it is a product number.
    sku_is_serial "sku_is_serial": bool [bool] = false;
    /// Whether collections are read together with their members (`$expand`).
    expand "expand": Expand [Expand] = Expand::Auto;
    /// The virtual media collection that is read first.
    vm_path "vm_path": MediaCollection [MediaCollection] = MediaCollection::System;
    /// The way to insert images into slots.
    vm_method "vm_method": MediaMethod [MediaMethod] = MediaMethod::Auto;
    /// The feature that must be enabled before slots accept images.
    vm_pre "vm_pre": MediaPrepare [MediaPrepare] = MediaPrepare::Nothing;
    /// Attribute of the manager whose value `Detached` keeps inserted media from the host; empty when there is none.
    attach_attribute "attach_attribute": String [String] = String::new();
    /// Ids of the slots that may be used, with `*` at the end for any suffix; empty allows all.
    slot_allow "slot_allow": Vec<String> [Vec<String>] = Vec::new();
    /// Ids of slots that are never used, with `*` at the end for any suffix.
    slot_deny "slot_deny": Vec<String> [Vec<String>] = Vec::new();
    /// Members of an insert besides `Image`.
    insert_fields "insert_fields": InsertFields [InsertFieldsPatch] = InsertFields::all(Include::WhenAsked);
    /// Schemes of media URLs the BMC supports, in order of preference.
    url_schemes "url_schemes": Vec<String> [Vec<String>] = vec!["http".to_owned(), "https".to_owned()];
    /// The only port to which the BMC connects for media; 0 for any.
    url_port "url_port": u16 [u16] = 0;
    /// Suffix of the file name in the URL for a CD slot.
    url_suffix_cd "url_suffix_cd": String [String] = "iso".to_owned();
    /// Suffix of the file name in the URL for a USB or floppy slot.
    url_suffix_usb "url_suffix_usb": String [String] = "img".to_owned();
    /// The way to set the next boot to the media.
    boot_via "boot_via": BootVia [BootVia] = BootVia::Override;
    /// Time after a power-on within which a host that boots from the media reads them; then the caller tries another way to
    /// boot once. 0: never.
    boot_read_within "boot_read_within_s": Duration [Seconds] = Duration::from_secs(600);
    /// Boot targets for a virtual CD, in order of preference.
    boot_targets "boot_targets": Vec<BootTarget> [Vec<BootTarget>] = vec![BootTarget::Cd, BootTarget::UsbCd];
    /// The properties that the PATCH of a boot override contains.
    boot_body "boot_body": BootBody [BootBody] = BootBody::EnabledAlways;
    /// The mode in which a one-time boot is set.
    boot_mode "boot_mode": BootModeRule [BootModeRule] = BootModeRule::Auto;
    /// The resource to which the boot override is written.
    boot_at "boot_at": BootResource [BootResource] = BootResource::Auto;
    /// Never sets the disk as boot target: the firmware shows a recovery screen afterwards.
    no_hdd_override "no_hdd_override": bool [bool] = false;
    /// The value of `If-Match` in a PATCH.
    if_match "if_match": IfMatch [IfMatch] = IfMatch::ETag;
    /// The way to restart a host.
    restart "restart": RestartWay [RestartWay] = RestartWay::OffOn;
    /// Ways in which firmware images reach the BMC, in order of preference; a way that is not listed is not used.
    update_ways "update_ways": Vec<UpdateWay> [Vec<UpdateWay>] = vec![UpdateWay::Multipart, UpdateWay::Push, UpdateWay::Simple];
    /// The body of an upload to `HttpPushUri`.
    update_push_body "update_push_body": PushBody [PushBody] = PushBody::Raw;
    /// The condition under which `SimpleUpdate` has `TransferProtocol`: always, when the BMC lists protocols, never.
    update_protocol "update_protocol": Include [Include] = Include::WhenAsked;
    /// The form in which `SimpleUpdate` names the image.
    update_uri "update_uri": ImageUri [ImageUri] = ImageUri::Url;
    /// The condition under which `Targets` are part of an update: also when there are none, when the caller names some, never.
    update_targets "update_targets": Include [Include] = Include::WhenAsked;
    /// The apply time that is sent when the caller asks for none.
    update_apply_time "update_apply_time": ApplyTimeRule [ApplyTimeRule] = ApplyTimeRule::Unset;
    /// Members of the part `OemParameters` of a multipart upload; without members the part is left out.
    update_oem_parameters "update_oem_parameters": Map<String, Value> [Map<String, Value>] = Map::new();
    /// The place that shows the progress of an update.
    update_state_at "update_state_at": UpdateStateAt [UpdateStateAt] = UpdateStateAt::Task;
    /// Whether the host must be powered off before an update of its BIOS; the caller switches it off.
    update_bios_host_off "update_bios_host_off": bool [bool] = false;
    /// Maximum duration of an update after it was accepted; the caller decides by the version then. Four hours at most: some BMCs update
    /// a whole tray at once.
    update_timeout "update_timeout_s": Duration [Seconds<14_400>] = Duration::from_secs(3600);
    /// The reason why this BMC cannot be used, with the next action; empty when it can be used.
    unsupported "unsupported": String [String] = String::new();
}
