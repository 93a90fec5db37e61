//! Reads what a BMC is and which virtual media slots it has. Sends no change.
//!
//! ```text
//!  BMC_PASSWORD=... probe ADDRESS USER SERIAL [SHA256 OF THE CERTIFICATE]
//! ```
//!
//! Without a fingerprint any certificate is accepted: only for a laboratory.

use std::io::Write as _;
use std::sync::Arc;

use redfish::{
    Bmc, BmcCredentials, Endpoint, HttpOptions, HttpTransport, Profile, SystemSelector, TlsVerification,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, user, serial, pin) = match arguments.as_slice() {
        [address, user, serial] => (address, user, serial, None),
        [address, user, serial, pin] => (address, user, serial, Some(pin)),
        _ => return Err("usage: BMC_PASSWORD=... probe ADDRESS USER SERIAL [FINGERPRINT]".into()),
    };
    let endpoint: Endpoint = address.parse()?;
    let credentials = BmcCredentials::new(user, std::env::var("BMC_PASSWORD")?);
    let tls = match pin {
        Some(pin) => TlsVerification::Pin(pin.parse()?),
        None => TlsVerification::Insecure,
    };
    let transport = Arc::new(HttpTransport::new(&endpoint, &tls, HttpOptions::default())?);
    let bmc = Bmc::builder(endpoint, credentials, transport, Profile::generic()).detecting().build();
    let found = bmc.discover(&SystemSelector::serial(serial)).await;
    // Also after a failure: some BMCs have few sessions.
    let ended = bmc.logout().await;
    let found = found?;
    let mut out = std::io::stdout();
    writeln!(out, "{:?}", found.identity)?;
    writeln!(out, "profile {}", found.profile)?;
    for slot in &found.slots {
        writeln!(out, "{}: {}, takes media: {}", slot.id, slot.media_types.join(" "), slot.takes_media())?;
    }
    ended?;
    Ok(())
}
