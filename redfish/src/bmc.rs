//! The handle to one BMC.
//!
//! ```text
//!   Bmc::connect(endpoint, credentials, tls, profile)      the usual way
//!   Bmc::builder(endpoint, credentials, transport, profile)  .options .observer .fence .session_keeper .build
//!        discover -> Discovery { system, slots, … }
//!        power_state reset          slot insert eject          boot_override set_boot_once clear_boot_override
//!        logout
//! ```
//!
//! A handle is cheap to clone and its clones share the two permits, the session and what was learned; use one
//! handle per BMC in a process. Dropping a future of an operation that changes something leaves its fate
//! unknown, as a timeout does.

use std::sync::Arc;
use std::time::Duration;

use crate::discovery::Discovery;
use crate::endpoint::Endpoint;
use crate::error::RedfishError;
use crate::exchange::Core;
use crate::http_transport::{HttpOptions, HttpTransport};
use crate::limits::Limits;
use crate::observe::{Fence, Nobody, Observer, SessionKeeper};
use crate::profile::{Choice, Flags, Learned, Profile};
use crate::session::{Credentials, SessionHandle};
use crate::tls::TlsMode;
use crate::transport::{Transport, TransportError};

/// A BMC that can be discovered and driven.
#[derive(Clone)]
pub struct Bmc {
    pub(crate) core: Arc<Core>,
}

/// How reads are bounded and repeated. Times of mutations are in the [`Profile`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// Deadline of one read.
    pub read_timeout: Duration,
    /// How often a read is sent at most; at least 1.
    pub read_attempts: u32,
    /// How long a read with all its repetitions may take.
    pub read_budget: Duration,
    /// First back-off between repetitions; doubles each time, with full jitter.
    pub backoff_base: Duration,
    /// Longest back-off.
    pub backoff_cap: Duration,
    /// Seed of the jitter; none takes a random one.
    pub jitter_seed: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            read_timeout: Duration::from_secs(30),
            read_attempts: 5,
            read_budget: Duration::from_secs(180),
            backoff_base: Duration::from_secs(2),
            backoff_cap: Duration::from_secs(30),
            jitter_seed: None,
        }
    }
}

/// What came of an operation that makes something true.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Applied<T> {
    /// Whether a mutation was sent; without need none is.
    pub changed: bool,
    /// Whether the read-back shows what was asked for. If not yet, read again until the profile's lag is over.
    pub confirmed: bool,
    /// What the read-back showed.
    pub observed: T,
}

/// A [`Bmc`] in the making.
pub struct BmcBuilder {
    endpoint: Endpoint,
    credentials: Credentials,
    transport: Arc<dyn Transport>,
    profile: Profile,
    detecting: bool,
    overrides: Flags,
    learned: Learned,
    options: Options,
    observer: Arc<dyn Observer>,
    fence: Arc<dyn Fence>,
    keeper: Arc<dyn SessionKeeper>,
    limits: Limits,
}

impl BmcBuilder {
    /// Sets bounds of reads.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Lets discovery choose the profile; the one given holds until then.
    pub fn detecting(mut self) -> Self {
        self.detecting = true;
        self
    }

    /// Sets flags that have the last word, whatever the profile says.
    pub fn overrides(mut self, overrides: Flags) -> Self {
        self.overrides = overrides;
        self
    }

    /// Sets what was learned of this BMC before; forgotten when discovery shows another firmware.
    pub fn learned(mut self, learned: Learned) -> Self {
        self.learned = learned;
        self
    }

    /// Sets who sees every request.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Sets who decides whether a mutation may still be sent.
    pub fn fence(mut self, fence: Arc<dyn Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// Sets who keeps session tokens for the next incarnation.
    pub fn session_keeper(mut self, keeper: Arc<dyn SessionKeeper>) -> Self {
        self.keeper = keeper;
        self
    }

    /// Sets the limits of this BMC, shared with its other handles.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The handle; nothing is sent yet.
    pub fn build(self) -> Bmc {
        let choice = Choice::new(self.profile, self.detecting, self.overrides, self.learned);
        let mut core = Core::new(
            self.endpoint,
            self.credentials,
            self.transport,
            choice,
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
    /// A handle that speaks HTTP or HTTPS to the endpoint. Fails only on unusable TLS settings; nothing is sent.
    pub fn connect(
        endpoint: &Endpoint,
        credentials: Credentials,
        tls: &TlsMode,
        profile: Profile,
    ) -> Result<Self, TransportError> {
        let transport = HttpTransport::new(endpoint, tls, HttpOptions::default())?;
        Ok(Bmc::new(endpoint.clone(), credentials, Arc::new(transport), profile))
    }

    /// A handle over any transport, with default options.
    pub fn new(
        endpoint: Endpoint,
        credentials: Credentials,
        transport: Arc<dyn Transport>,
        profile: Profile,
    ) -> Self {
        Bmc::builder(endpoint, credentials, transport, profile).build()
    }

    /// Begins a handle over any transport.
    pub fn builder(
        endpoint: Endpoint,
        credentials: Credentials,
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
            options: Options::default(),
            observer: Arc::new(Nobody),
            fence: Arc::new(Nobody),
            keeper: Arc::new(Nobody),
            limits: Limits::default(),
        }
    }

    /// Where the BMC is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.core.endpoint
    }

    /// How it is spoken to, as far as is known by now.
    pub fn profile(&self) -> Arc<Profile> {
        self.core.profile()
    }

    /// What was learned of it, to be kept with its firmware version.
    pub fn learned(&self) -> Learned {
        self.core.choice.learned()
    }

    /// Learns that a slot takes nothing although it looks as if it did.
    pub fn slot_refuses(&self, uri: &str) {
        self.core.choice.learn(|learned| learned.refusing_slot(uri));
    }

    /// Takes the profile a former discovery led to, in a process that has not discovered.
    pub fn recall(&self, discovery: &Discovery) {
        self.core.choice.identify(&discovery.identity);
        let firmware = discovery.identity.firmware.as_deref();
        self.core.choice.learn(|learned| learned.on_firmware(firmware));
    }

    /// The open session, to be sealed and kept.
    pub async fn session(&self) -> Option<SessionHandle> {
        self.core.session.lock().await.handle()
    }

    /// Goes on with a session that was kept; it is dropped for a new one when the BMC no longer knows it.
    pub async fn adopt_session(&self, session: SessionHandle) {
        self.core.session.lock().await.adopt(session);
    }

    /// Nothing is asked for a while: lets go of what was read and of what carries requests. The session stays open; thousands
    /// of handles that rest while machines install are small.
    pub fn rest(&self) {
        self.core.rest();
    }

    /// Deletes a session a former incarnation left behind, with its own token. Gone already is fine.
    pub async fn delete_session(&self, session: &SessionHandle) -> Result<(), RedfishError> {
        self.core.delete_session(session).await
    }

    /// Deletes the open session, if there is one. A later operation opens a new one.
    pub async fn logout(&self) -> Result<(), RedfishError> {
        let taken = self.core.session.lock().await.take();
        match taken {
            Some(session) => self.core.delete_session(&session).await,
            None => Ok(()),
        }
    }
}
