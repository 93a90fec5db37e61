//! Selects the BMC profile of a server from its record, from detection and from learned behaviour.
//!
//! ```text
//!   bmc_profile, else a vendor that is a profile name          -> that profile, fixed
//!   neither                                                    -> generic until discovery detects the vendor
//!   quirks                                                     -> flags that override the profile
//!   learned (stored with the firmware version)                 -> refinements; stored again when they grow
//! ```

use redfish::profile::{Flags, Learned};
use redfish::{Bmc, BmcBuilder, Profile};
use serde_json::{Map, Value};

use model::{Effect, Server};

/// Checks the name of a profile.
///
/// # Errors
/// Returns a message with the nearest known name when the profile is unknown.
pub fn checked_profile(name: &str) -> Result<(), String> {
    Profile::find(name).map(drop)
}

/// Checks the quirks of a server.
///
/// # Errors
/// Returns the name of the wrong flag and the reason.
pub fn checked_quirks(quirks: &Map<String, Value>) -> Result<(), (String, String)> {
    Flags::parse(quirks).map(drop).map_err(|why| (why.flag().to_owned(), why.to_string()))
}

/// Returns the profile that the record names, if any.
fn named_profile(server: &Server) -> Option<Profile> {
    let names = [&server.bmc_profile, &server.vendor];
    names.into_iter().flatten().find_map(|name| Profile::named(name))
}

/// Returns the profile for the first request.
pub(super) fn first(server: &Server) -> Profile {
    named_profile(server).unwrap_or_else(Profile::generic)
}

/// Applies quirks and learned behaviour to a client. Values of another version that cannot be parsed are ignored: the record
/// was checked when it was written.
pub(super) fn choose(builder: BmcBuilder, server: &Server) -> BmcBuilder {
    let quirks = server.quirks.as_ref().and_then(|quirks| Flags::parse(quirks).ok()).unwrap_or_default();
    let learned = server.learned.clone().and_then(|learned| serde_json::from_value(learned).ok());
    let builder = builder.overrides(quirks).learned(learned.unwrap_or_default());
    match named_profile(server) {
        Some(_) => builder,
        None => builder.detecting(),
    }
}

/// Returns the effect that stores learned behaviour, if the client learned something new.
pub(super) fn learned_effect(server: &Server, bmc: &Bmc) -> Option<Effect> {
    let learned = bmc.learned();
    let known: Option<Learned> =
        server.learned.clone().and_then(|learned| serde_json::from_value(learned).ok());
    let nothing = learned.is_empty() && known.as_ref().is_none_or(Learned::is_empty);
    (!nothing && known.as_ref() != Some(&learned))
        .then(|| Effect::ServerLearned { serial: server.serial.clone(), learned: serde_json::json!(learned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        let serial = "A1".parse().unwrap();
        Server::unknown(serial, model::Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH))
    }

    #[test]
    fn a_profile_name_in_the_record_fixes_the_profile_and_a_vendor_does_so_only_if_it_is_a_profile_name() {
        let mut server = server();
        server.vendor = Some("Contoso".to_owned());
        assert_eq!((named_profile(&server), first(&server).name), (None, "generic"));
        server.vendor = Some("hpe-ilo5".to_owned());
        assert_eq!(first(&server).name, "hpe-ilo5");
        server.bmc_profile = Some("smc-x12".to_owned());
        assert_eq!(first(&server).name, "smc-x12");
    }
}
