//! The handle to one BMC.
//!
//! ```text
//!   Bmc::connect(endpoint, credentials, tls, profile)      over HTTP or HTTPS
//!   Bmc::builder(endpoint, credentials, transport, profile)  .options .observer .fence .session_keeper .build
//!        discover -> Discovery { system, slots, … }
//!        power_state reset          slot insert eject          boot_override set_boot_once clear_boot_override
//!        logout
//! ```
//!
//! A handle is cheap to clone; its clones share the two permits, the session and the learned behaviour. Use one
//! handle per BMC in a process. When the future of a mutation is dropped, the outcome of the mutation is
//! unknown, as after a timeout.

use std::sync::Arc;

use crate::credentials::{BmcCredentials, SessionHandle};
use crate::endpoint::Endpoint;
use crate::error::RedfishError;
use crate::exchange::Core;
use crate::http_transport::{HttpOptions, HttpTransport};
use crate::limits::RequestLimits;
use crate::observe::{Fence, Noop, Observer, SessionKeeper};
use crate::options::ClientOptions;
use crate::profile::{ActiveProfile, Flags, Learned, Profile};
use crate::tls::TlsVerification;
use crate::transport::{Transport, TransportError};

/// The handle to one BMC; every Redfish operation is a method of it.
#[derive(Clone)]
pub struct Bmc {
    pub(crate) core: Arc<Core>,
}

/// Result of an operation that brings a resource into a wanted state.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ChangeResult<T> {
    /// Whether a mutation was sent; none is sent when the resource is in the wanted state already.
    pub changed: bool,
    /// Whether the read-back shows the wanted state. If not, read again until the profile's `read_back_lag` has passed.
    pub confirmed: bool,
    /// The state in the read-back.
    pub observed: T,
}

/// Builder of a [`Bmc`].
pub struct BmcBuilder {
    endpoint: Endpoint,
    credentials: BmcCredentials,
    transport: Arc<dyn Transport>,
    profile: Profile,
    detecting: bool,
    overrides: Flags,
    learned: Learned,
    options: ClientOptions,
    observer: Arc<dyn Observer>,
    fence: Arc<dyn Fence>,
    keeper: Arc<dyn SessionKeeper>,
    limits: RequestLimits,
}

impl BmcBuilder {
    /// Sets deadlines and retries of reads.
    pub fn options(mut self, options: ClientOptions) -> Self {
        self.options = options;
        self
    }

    /// Lets discovery choose the profile; the profile passed to the builder is used until then.
    pub fn detecting(mut self) -> Self {
        self.detecting = true;
        self
    }

    /// Sets flags that take precedence over the profile and over learned behaviour.
    pub fn overrides(mut self, overrides: Flags) -> Self {
        self.overrides = overrides;
        self
    }

    /// Sets the behaviour learned earlier; it is discarded when discovery shows another firmware version.
    pub fn learned(mut self, learned: Learned) -> Self {
        self.learned = learned;
        self
    }

    /// Sets the observer, which receives every request with its result.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Sets the fence, which decides before each request whether it may be sent.
    pub fn fence(mut self, fence: Arc<dyn Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// Sets the keeper that stores session tokens, so that a session left behind by a crash can be deleted.
    pub fn session_keeper(mut self, keeper: Arc<dyn SessionKeeper>) -> Self {
        self.keeper = keeper;
        self
    }

    /// Sets the request limits of this BMC, which the other handles of the BMC share.
    pub fn limits(mut self, limits: RequestLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Builds the handle; nothing is sent.
    pub fn build(self) -> Bmc {
        let active_profile = ActiveProfile::new(self.profile, self.detecting, self.overrides, self.learned);
        let mut core = Core::new(
            self.endpoint,
            self.credentials,
            self.transport,
            active_profile,
            self.options,
            self.observer,
            self.fence,
            self.keeper,
        );
        core.limits = self.limits;
        Bmc { core: Arc::new(core) }
    }
}

impl Bmc {
    /// Creates a handle that sends HTTP or HTTPS to the endpoint; nothing is sent yet.
    ///
    /// # Errors
    ///
    /// When the TLS settings are not usable.
    pub fn connect(
        endpoint: &Endpoint,
        credentials: BmcCredentials,
        tls: &TlsVerification,
        profile: Profile,
    ) -> Result<Self, TransportError> {
        let transport = HttpTransport::new(endpoint, tls, HttpOptions::default())?;
        Ok(Bmc::new(endpoint.clone(), credentials, Arc::new(transport), profile))
    }

    /// Creates a handle over any transport, with default options.
    pub fn new(
        endpoint: Endpoint,
        credentials: BmcCredentials,
        transport: Arc<dyn Transport>,
        profile: Profile,
    ) -> Self {
        Bmc::builder(endpoint, credentials, transport, profile).build()
    }

    /// Returns a builder of a handle over any transport.
    pub fn builder(
        endpoint: Endpoint,
        credentials: BmcCredentials,
        transport: Arc<dyn Transport>,
        profile: Profile,
    ) -> BmcBuilder {
        BmcBuilder {
            endpoint,
            credentials,
            transport,
            profile,
            detecting: false,
            overrides: Flags::default(),
            learned: Learned::default(),
            options: ClientOptions::default(),
            observer: Arc::new(Noop),
            fence: Arc::new(Noop),
            keeper: Arc::new(Noop),
            limits: RequestLimits::default(),
        }
    }

    /// The address of the BMC.
    pub fn endpoint(&self) -> &Endpoint {
        &self.core.endpoint
    }

    /// The profile now in force.
    pub fn profile(&self) -> Arc<Profile> {
        self.core.profile()
    }

    /// The learned behaviour, to be stored with the firmware version it names.
    pub fn learned(&self) -> Learned {
        self.core.active_profile.learned()
    }

    /// Learns that the slot at `uri` accepts no image although it shows a way to insert one.
    pub fn slot_refuses(&self, uri: &str) {
        self.core.active_profile.learn(|learned| learned.refusing_slot(uri));
    }

    /// The open session, to be stored sealed.
    pub async fn session(&self) -> Option<SessionHandle> {
        self.core.session.lock().await.handle()
    }

    /// Continues with a stored session; a new one replaces it when the BMC rejects it.
    pub async fn adopt_session(&self, session: SessionHandle) {
        self.core.session.lock().await.adopt(session);
    }

    /// Releases cached resources and the connection. The session stays open, and the next request connects again.
    /// Keeps thousands of handles small while their machines install.
    pub fn release_idle(&self) {
        self.core.release_idle();
    }

    /// Deletes a session left behind by an earlier controller instance, with the token of that session. A session that no
    /// longer exists counts as deleted.
    ///
    /// # Errors
    ///
    /// When the BMC is unreachable or refuses the request.
    pub async fn delete_session(&self, session: &SessionHandle) -> Result<(), RedfishError> {
        self.core.delete_session(session).await
    }

    /// Deletes the open session, if there is one. A later operation opens a new one.
    ///
    /// # Errors
    ///
    /// When the BMC is unreachable or refuses the request.
    pub async fn logout(&self) -> Result<(), RedfishError> {
        let taken = self.core.session.lock().await.take();
        match taken {
            Some(session) => self.core.delete_session(&session).await,
            None => Ok(()),
        }
    }
}
