//! Tools for the tests of every workflow over this crate: one registered server, its stored sessions, and the services around it.
//! Only tests use it; other crates name the feature `test-support` in their dev-dependencies.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use secrets::{KEY_BYTES, MasterKey, Resolver, SealError};

use super::{
    Addresses, BmcLimits, BmcServices, Bmcs, SealedSession, ServerLookup, SessionStore, Unavailable,
};
use model::{Serial, Server, Time};

/// The password of the account `root` of the registered server.
pub const PASSWORD: &str = "calvin-and-hobbes";

/// The master key of the tests.
pub fn key() -> MasterKey {
    MasterKey::from_bytes(&[7; KEY_BYTES])
}

/// A registered server with a sealed password.
///
/// # Errors
/// Returns an error when the password cannot be sealed.
pub fn server(serial: Serial, bmc_address: String, now: Time) -> Result<Server, SealError> {
    let password = Resolver::new(&key()).seal(serial.as_str(), &PASSWORD.into())?;
    Ok(Server {
        bmc_address,
        bmc_username: "root".to_owned(),
        bmc_password: password.to_string(),
        ..Server::unknown(serial, now)
    })
}

/// Knows one server.
pub struct OneServer(pub Server);

#[async_trait]
impl ServerLookup for OneServer {
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable> {
        Ok((*serial == self.0.serial).then(|| self.0.clone()))
    }
}

/// The stored BMC sessions, shared by the engines of a test.
#[derive(Clone, Default)]
pub struct SharedSessions(Arc<Mutex<HashMap<Serial, SealedSession>>>);

#[async_trait]
impl SessionStore for SharedSessions {
    async fn save(&self, server: &Serial, session: Option<SealedSession>) -> Result<(), Unavailable> {
        let mut sessions = self.0.lock();
        match session {
            Some(session) => sessions.insert(server.clone(), session),
            None => sessions.remove(server),
        };
        Ok(())
    }

    async fn load(&self, server: &Serial) -> Result<Option<SealedSession>, Unavailable> {
        Ok(self.0.lock().get(server).cloned())
    }

    async fn list(&self) -> Result<Vec<Serial>, Unavailable> {
        Ok(self.0.lock().keys().cloned().collect())
    }
}

/// Counts nothing.
pub struct NoMetrics;

impl redfish::Observer for NoMetrics {
    fn exchange(&self, _: redfish::Exchange<'_>) {}
}

/// Addresses of a controller that serves API and media by HTTP at one address.
pub fn addresses(listen: SocketAddr) -> Addresses {
    Addresses {
        api: listen,
        media: listen,
        api_tls: None,
        media_tls: None,
        plain_api: true,
        public_url: None,
        media_base_url: None,
    }
}

/// Services with connections of their own to one server: one attempt for each read, no limits.
pub fn services(server: Server, sessions: impl SessionStore + 'static) -> BmcServices {
    BmcServices {
        servers: Box::new(OneServer(server)),
        connections: Bmcs::new(
            Resolver::new(&key()),
            key().derive("bmc-sessions"),
            Arc::new(sessions),
            Arc::new(NoMetrics),
            redfish::ClientOptions { read_attempts: 1, ..redfish::ClientOptions::default() },
            BmcLimits { each: redfish::LimitOptions::none(), in_flight: 16 },
            None,
        ),
        addresses: addresses(([127, 0, 0, 1], 8080).into()),
        tries: 1,
    }
}
