//! A call with the record of its server and the password of its BMC, and of no other.

use super::super::Api;
use super::super::error::ApiError;
use engine::CallMessage;
use model::{Server, error_chain};
use secrecy::ExposeSecret;
use secrets::CredentialRef;
use worker::messages::{Parcel, Password, ServerRecord};

/// Adds to a call what its worker needs.
pub(super) async fn parcel(api: &Api, call: CallMessage) -> Result<Parcel, ApiError> {
    let server = match call.server() {
        Some(serial) => api.store().server(serial).await?,
        None => None,
    };
    let server = server.map(|server| {
        let password = password(api, &server);
        ServerRecord::of(&server, password)
    });
    Ok(Parcel { call, server })
}

/// The password of a BMC, or why it cannot be read.
fn password(api: &Api, server: &Server) -> Result<Password, String> {
    let reference: CredentialRef = server.bmc_password.parse().map_err(|_| {
        "the BMC password in the server's record is not a credential reference; register it again".to_owned()
    })?;
    let text = api.resolver.resolve(&reference, server.serial.as_str());
    let text =
        text.map_err(|why| format!("the controller cannot read the BMC password: {}", error_chain(&why)))?;
    Ok(Password::new(text.expose_secret()))
}
