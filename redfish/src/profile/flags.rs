//! Every flag once: its name, its type, its default and what it is for.
//!
//! ```text
//!   flags! { field "flag": Type (written as Raw) = default, … }
//!      -> Profile   all fields, with defaults: how one BMC is spoken to
//!      -> Flags     all fields optional: what a profile file or an operator says of some of them
//!      -> FLAGS     the names, for messages and for the test that each one is obeyed
//! ```
//!
//! Defaults follow the specifications and suit a BMC nothing is known of. A profile file holds only rows that
//! deviate, each with its source.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::values::{
    Auth, BootBody, BootResource, BootVia, Expand, IfMatch, Include, InsertFields, InsertFieldsPatch,
    MediaCollection, MediaMethod, MediaPrepare, Restart, Seconds, Set,
};
use crate::boot::BootTarget;

macro_rules! flags {
    ($($(#[$doc:meta])* $field:ident $flag:literal : $type:ty [$raw:ty] = $default:expr;)*) => {
        /// How a BMC wants to be spoken to.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Profile {
            /// The name operators and the server record use.
            pub name: &'static str,
            /// What it is for, in a few words.
            pub title: String,
            $($(#[$doc])* pub $field: $type,)*
        }

        /// What is said of some flags; the others stay as they are.
        #[derive(Clone, Debug, Default, Deserialize, PartialEq)]
        #[serde(deny_unknown_fields, default)]
        pub struct Flags {
            $($(#[$doc])* #[serde(rename = $flag)] pub $field: Option<$raw>,)*
        }

        /// The names of all flags.
        pub const FLAGS: &[&str] = &[$($flag),*];

        impl Profile {
            /// The profile for a BMC nothing is known of.
            pub fn generic() -> Self {
                Profile {
                    name: "generic",
                    title: "Any BMC that follows the specifications".to_owned(),
                    $($field: $default,)*
                }
            }

            /// This profile with some flags set otherwise.
            #[must_use]
            pub fn with(mut self, flags: &Flags) -> Self {
                $(if let Some(raw) = flags.$field.clone() { raw.set(&mut self.$field); })*
                self
            }

            /// The flags in which this profile differs from another one.
            pub fn differing(&self, other: &Profile) -> Vec<&'static str> {
                let mut names = Vec::new();
                $(if self.$field != other.$field { names.push($flag); })*
                names
            }
        }
    };
}

flags! {
    /// How requests authenticate.
    session "session": Auth [Auth] = Auth::Auto;
    /// What stands under `Oem` in the body of a login.
    login_oem "login_oem": Map<String, Value> [Map<String, Value>] = Map::new();
    /// How long a login may take.
    login_timeout "login_timeout_s": Duration [Seconds] = Duration::from_secs(30);
    /// How long a mutation may take, insert excepted.
    mutation_timeout "mutation_timeout_s": Duration [Seconds] = Duration::from_secs(60);
    /// How long an insert may take; some BMCs read the image inside the request.
    insert_timeout "insert_timeout_s": Duration [Seconds] = Duration::from_secs(120);
    /// How long an asynchronous operation may take after it was accepted.
    task_timeout "task_timeout_s": Duration [Seconds] = Duration::from_secs(120);
    /// How long a read-back may lag behind an accepted change; the caller polls.
    read_back_lag "read_back_lag_s": Duration [Seconds] = Duration::from_secs(60);
    /// How long after an insert the media may be unusable to the host; the caller waits before it powers on.
    settle_after_mount "settle_after_mount_s": Duration [Seconds] = Duration::ZERO;
    /// How long after a power-off the host cannot be powered on; the caller waits.
    settle_after_off "settle_after_off_s": Duration [Seconds] = Duration::ZERO;
    /// Keys of messages that mean "not now" on this BMC although they mean "no" elsewhere; in lower case.
    busy_ids "busy_ids": Vec<String> [Vec<String>] = Vec::new();
    /// Which system is the host, by id, when several could be; the best first.
    system_select "system_select": Vec<String> [Vec<String>] = Vec::new();
    /// Whether collections are read with their members where the BMC offers it.
    expand "expand": Expand [Expand] = Expand::Auto;
    /// Where virtual media is looked for first.
    vm_path "vm_path": MediaCollection [MediaCollection] = MediaCollection::System;
    /// How media gets into a slot.
    vm_method "vm_method": MediaMethod [MediaMethod] = MediaMethod::Auto;
    /// What has to be switched on before slots take media.
    vm_pre "vm_pre": MediaPrepare [MediaPrepare] = MediaPrepare::Nothing;
    /// Ids of the slots that may be used, `*` at the end for any rest; empty allows all.
    slot_allow "slot_allow": Vec<String> [Vec<String>] = Vec::new();
    /// Ids of slots that are never used, written likewise.
    slot_deny "slot_deny": Vec<String> [Vec<String>] = Vec::new();
    /// What an insert sends besides the image.
    insert_fields "insert_fields": InsertFields [InsertFieldsPatch] = InsertFields::all(Include::WhenAsked);
    /// Schemes of media URLs the BMC can read, the best first.
    url_schemes "url_schemes": Vec<String> [Vec<String>] = vec!["http".to_owned(), "https".to_owned()];
    /// The only port it connects to for media, if it is that picky; 0 for any.
    url_port "url_port": u16 [u16] = 0;
    /// The suffix of the file name in a URL for a CD slot.
    url_suffix_cd "url_suffix_cd": String [String] = "iso".to_owned();
    /// The suffix of the file name in a URL for a USB or floppy slot.
    url_suffix_usb "url_suffix_usb": String [String] = "img".to_owned();
    /// By what the next boot is led to the media.
    boot_via "boot_via": BootVia [BootVia] = BootVia::Override;
    /// Boot targets for a virtual CD, the best first.
    boot_targets "boot_targets": Vec<BootTarget> [Vec<BootTarget>] = vec![BootTarget::Cd, BootTarget::UsbCd];
    /// What the PATCH of a boot override holds.
    boot_body "boot_body": BootBody [BootBody] = BootBody::EnabledAlways;
    /// Where the boot override is written.
    boot_at "boot_at": BootResource [BootResource] = BootResource::Auto;
    /// Never asks for the disk as boot target: firmware shows a recovery screen afterwards.
    no_hdd_override "no_hdd_override": bool [bool] = false;
    /// What stands in `If-Match` of a PATCH.
    if_match "if_match": IfMatch [IfMatch] = IfMatch::ETag;
    /// How a host is restarted.
    restart "restart": Restart [Restart] = Restart::OffOn;
    /// Why this BMC cannot be used, as a sentence with what to do; empty when it can.
    unsupported "unsupported": String [String] = String::new();
}
