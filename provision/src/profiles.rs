//! How a server's BMC is spoken to: what its record says, what it was seen to be, what it has taught.
//!
//! ```text
//!   bmc_profile, else a vendor that is the name of a profile   -> that profile, fixed
//!   neither                                                    -> generic until discovery has seen whose BMC it is
//!   quirks                                                     -> flags that have the last word
//!   learned (kept with the firmware version)                   -> refinements; written again when they grow
//! ```

use redfish::profile::{Flags, Learned};
use redfish::{Bmc, BmcBuilder, Profile};
use serde_json::{Map, Value};

use engine::model::{Effect, Server};

/// Checks the name of a profile; the error suggests what was meant.
pub fn checked_profile(name: &str) -> Result<(), String> {
    Profile::find(name).map(drop)
}

/// Checks overrides; the error names the flag and what is wrong with it.
pub fn checked_quirks(quirks: &Map<String, Value>) -> Result<(), (String, String)> {
    Flags::parse(quirks).map(drop).map_err(|why| (why.flag().to_owned(), why.to_string()))
}

/// The profile a record fixes, if it does.
fn fixed(server: &Server) -> Option<Profile> {
    let names = [&server.bmc_profile, &server.vendor];
    names.into_iter().flatten().find_map(|name| Profile::named(name))
}

/// The profile to begin with.
pub(super) fn first(server: &Server) -> Profile {
    fixed(server).unwrap_or_else(Profile::generic)
}

/// Says of a client what the record and the past say. What was written by another version and is not understood any more
/// is left out: the record was checked when it was written.
pub(super) fn choose(builder: BmcBuilder, server: &Server) -> BmcBuilder {
    let quirks = server.quirks.as_ref().and_then(|quirks| Flags::parse(quirks).ok()).unwrap_or_default();
    let learned = server.learned.clone().and_then(|learned| serde_json::from_value(learned).ok());
    let builder = builder.overrides(quirks).learned(learned.unwrap_or_default());
    match fixed(server) {
        Some(_) => builder,
        None => builder.detecting(),
    }
}

/// What is to be kept because the BMC has taught something new.
pub(super) fn taught(server: &Server, bmc: &Bmc) -> Option<Effect> {
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
        Server::unknown(serial, engine::model::Time::from_timestamp(jiff::Timestamp::UNIX_EPOCH))
    }

    #[test]
    fn the_record_fixes_a_profile_by_its_name_and_a_vendor_only_if_it_is_one() {
        let mut server = server();
        server.vendor = Some("Contoso".to_owned());
        assert_eq!((fixed(&server), first(&server).name), (None, "generic"));
        server.vendor = Some("hpe-ilo5".to_owned());
        assert_eq!(first(&server).name, "hpe-ilo5");
        server.bmc_profile = Some("smc-x12".to_owned());
        assert_eq!(first(&server).name, "smc-x12");
    }
}
