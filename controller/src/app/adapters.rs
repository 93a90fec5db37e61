//! Implements the traits of the lower crates over the store, the registry and the metrics.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::os_medium;
use access::auth::{
    CredentialStore, RegistryScope, ServerScope, SessionRecord, StoreUnavailable, TokenLimits, TokenRecord,
    UserRecord,
};
use bmc::power::power_on_permit;
use bmc::{SealedSession, ServerLookup, SessionStore, Unavailable};
use media::{GrantStore, GrantStoreUnavailable};
use model::{Clock, GrantReads, NewEvent, PullGrant, Serial, Server, StoredGrant, Time, error_chain};
use provision::{MediumImage, OsImages, ProvisionMetrics};
use secrets::{ColumnSeal, Key, MasterKey};
use store::{CausedByReads, SealPurpose, Store, StoreError, StoredToken, TextSeal};
use telemetry::Metrics;

/// Reads users, API tokens and pull grants from the database.
pub(super) struct StoreCredentials(pub(super) Store);

#[async_trait]
impl CredentialStore for StoreCredentials {
    async fn user(&self, name: &str) -> Result<Option<UserRecord>, StoreUnavailable> {
        let user = self.0.user(name).await.map_err(unavailable)?;
        user.map(|user| {
            let role = user.role.parse().map_err(|_| StoreUnavailable("a stored role is unknown".into()))?;
            Ok(UserRecord {
                name: user.name,
                password_hash: user.password_hash,
                role,
                disabled: user.disabled_at.is_some(),
                unconfirmed: user.unconfirmed,
            })
        })
        .transpose()
    }

    async fn api_token(&self, hash: &str) -> Result<Option<TokenRecord>, StoreUnavailable> {
        self.0.api_token(hash).await.map_err(unavailable)?.map(token_record).transpose()
    }

    async fn api_token_used(&self, id: &str, now: Timestamp) {
        // Not awaited: a request must not wait for the disk because its token was used.
        let (store, id) = (self.0.clone(), id.to_owned());
        tokio::spawn(async move {
            if let Err(error) = store.api_token_used(&id, Time::from_timestamp(now)).await {
                tracing::warn!(error = %error_chain(&error), "the last use of an API token could not be stored");
            }
        });
    }

    async fn api_token_named(&self, name: &str) -> Result<Option<TokenRecord>, StoreUnavailable> {
        self.0.api_token_named(name).await.map_err(unavailable)?.map(token_record).transpose()
    }

    async fn web_session(&self, hash: &str) -> Result<Option<SessionRecord>, StoreUnavailable> {
        let session = self.0.web_session(hash).await.map_err(unavailable)?;
        Ok(session.map(|session| SessionRecord {
            id: session.id,
            name: session.name,
            token_id: session.token_id,
            mark: session.mark,
            last_used_at: session.last_used_at.timestamp(),
            expires_at: session.expires_at.timestamp(),
        }))
    }

    async fn web_session_used(&self, id: &str, now: Timestamp) {
        // Not awaited, like the use of an API token.
        let (store, id) = (self.0.clone(), id.to_owned());
        tokio::spawn(async move {
            if let Err(error) = store.web_session_used(&id, Time::from_timestamp(now)).await {
                tracing::warn!(error = %error_chain(&error), "the last use of a web session could not be stored");
            }
        });
    }

    async fn pull_grant(&self, hash: &str) -> Result<Option<PullGrant>, StoreUnavailable> {
        self.0.pull_grant(hash).await.map_err(unavailable)
    }
}

/// The record of a stored token.
pub(super) fn token_record(token: StoredToken) -> Result<TokenRecord, StoreUnavailable> {
    let unreadable = |what: &'static str| StoreUnavailable(what.into());
    let registry: Result<Vec<RegistryScope>, _> = token.registry.iter().map(|scope| scope.parse()).collect();
    Ok(TokenRecord {
        id: token.id,
        name: token.name,
        role: token.role.parse().map_err(|_| unreadable("a stored role is unknown"))?,
        limits: TokenLimits {
            servers: ServerScope(token.labels),
            registry: registry.map_err(|_| unreadable("a stored registry scope is malformed"))?,
        },
        expires_at: token.expires_at.map(Time::timestamp),
        last_used_at: token.last_used_at.map(Time::timestamp),
        unconfirmed: token.unconfirmed,
    })
}

fn unavailable(error: StoreError) -> StoreUnavailable {
    StoreUnavailable(Box::new(error))
}

/// Seals columns of the database with the master key.
pub(super) struct MasterKeySeal {
    columns: ColumnSeal,
    ring: MasterKey,
    credentials: Key,
    texts: Key,
    media_inputs: Key,
    sessions: Key,
}

impl MasterKeySeal {
    pub(super) fn new(key: &MasterKey) -> Self {
        Self {
            columns: ColumnSeal::new(key),
            ring: key.clone(),
            credentials: key.derive("seal"),
            texts: key.derive("seal-columns"),
            media_inputs: key.derive("media-grants"),
            sessions: key.derive("bmc-sessions"),
        }
    }
}

impl TextSeal for MasterKeySeal {
    fn seal(&self, context: &str, text: &str) -> Result<String, String> {
        self.columns.seal(context, text).map_err(|why| error_chain(&why).to_string())
    }

    fn open(&self, context: &str, sealed: &str) -> Option<String> {
        self.columns.open(context, sealed).ok()
    }

    fn reseal(&self, purpose: SealPurpose, context: &str, sealed: &str) -> Option<String> {
        let key = match purpose {
            SealPurpose::Credential => &self.credentials,
            SealPurpose::Text => &self.texts,
            SealPurpose::MediaInputs => &self.media_inputs,
            SealPurpose::Session => &self.sessions,
        };
        secrets::reseal(key, context, sealed).ok().flatten()
    }

    fn key_of(&self, sealed: &str) -> Option<String> {
        secrets::sealed_with(sealed).map(|id| id.to_string())
    }

    fn in_force(&self) -> String {
        self.ring.in_force().id.to_string()
    }
}

/// Reads servers from the database; stores and reads sealed BMC sessions.
pub(super) struct StoreServers(pub(super) Store);

#[async_trait]
impl ServerLookup for StoreServers {
    async fn server(&self, serial: &Serial) -> Result<Option<Server>, Unavailable> {
        self.0.server(serial).await.map_err(|error| Unavailable(error_chain(&error).to_string()))
    }
}

#[async_trait]
impl SessionStore for StoreServers {
    async fn save(&self, server: &Serial, session: Option<SealedSession>) -> Result<(), Unavailable> {
        self.0
            .save_session(server, session)
            .await
            .map_err(|error| Unavailable(error_chain(&error).to_string()))
    }

    async fn load(&self, server: &Serial) -> Result<Option<SealedSession>, Unavailable> {
        self.0.saved_session(server).await.map_err(|error| Unavailable(error_chain(&error).to_string()))
    }

    async fn list(&self) -> Result<Vec<Serial>, Unavailable> {
        self.0.saved_sessions().await.map_err(|error| Unavailable(error_chain(&error).to_string()))
    }
}

/// Reads stored out-of-band inventories from the database.
pub(super) struct StoreHardware(pub(super) Store);

#[async_trait]
impl upkeep::HardwareLookup for StoreHardware {
    async fn hardware(&self, serial: &Serial) -> Result<Option<serde_json::Value>, Unavailable> {
        let found = self.0.server_hardware(serial).await;
        let found = found.map_err(|error| Unavailable(error_chain(&error).to_string()))?;
        Ok(found.map(|found| found.hardware))
    }
}

/// OS images in the registry of the controller.
pub(super) struct RegistryOsImages(pub(super) Option<registry::Registry>);

fn pin_owner(job: &str) -> Result<registry::PinOwner, Unavailable> {
    super::registry::pin_owner(job).map_err(|why| Unavailable(why.to_string()))
}

#[async_trait]
impl OsImages for RegistryOsImages {
    async fn hold(
        &self,
        repository: &str,
        reference: &str,
        owner: &str,
    ) -> Result<Option<String>, Unavailable> {
        let Some(registry) = &self.0 else { return Ok(None) };
        // The registry cannot hold a repository or reference with an invalid name.
        let (Ok(repository), Ok(reference)) = (repository.parse(), reference.parse()) else {
            return Ok(None);
        };
        let held = match registry.resolve(&repository, &reference).await {
            Ok(manifest) => {
                let pinned = registry.pin(&repository, &manifest.digest, &pin_owner(owner)?).await;
                pinned.map(|()| manifest.digest.to_string())
            }
            Err(error) => Err(error),
        };
        match held {
            Ok(digest) => Ok(Some(digest)),
            // Also when the manifest was deleted between resolve and pin.
            Err(registry::Error::ManifestUnknown | registry::Error::RepositoryUnknown) => Ok(None),
            Err(error) => Err(Unavailable(error_chain(&error).to_string())),
        }
    }

    async fn holds(&self, repository: &str, reference: &str) -> Result<bool, Unavailable> {
        let Some(registry) = &self.0 else { return Ok(false) };
        let (Ok(repository), Ok(reference)) = (repository.parse(), reference.parse()) else {
            return Ok(false);
        };
        match registry.resolve(&repository, &reference).await {
            Ok(_) => Ok(true),
            Err(registry::Error::ManifestUnknown | registry::Error::RepositoryUnknown) => Ok(false),
            Err(error) => Err(Unavailable(error_chain(&error).to_string())),
        }
    }

    async fn for_medium(&self, repository: &str, reference: &str) -> Result<MediumImage, Unavailable> {
        match &self.0 {
            Some(registry) => os_medium::find(registry, repository, reference).await,
            None => Ok(MediumImage::Missing),
        }
    }

    async fn release(&self, owner: &str) -> Result<(), Unavailable> {
        let Some(registry) = &self.0 else { return Ok(()) };
        let owner = pin_owner(owner)?;
        for pin in registry.pins().into_iter().filter(|pin| pin.owner == owner) {
            let unpinned = registry.unpin(&pin.repository, &pin.digest, &owner).await;
            unpinned.map_err(|error| Unavailable(error_chain(&error).to_string()))?;
        }
        Ok(())
    }

    async fn ready(&self) -> Result<(), Unavailable> {
        let Some(registry) = &self.0 else { return Ok(()) };
        let load = registry.upload_load();
        if load.exhausted {
            return Err(Unavailable(format!(
                "the registry refuses pushes: {} of {} upload sessions are open, {} of {} bodies are being received; \
                 `shoal registry uploads` lists the sessions, `shoal registry cancel-upload ID` ends one",
                load.sessions, load.sessions_max, load.receiving, load.receiving_max
            )));
        }
        match registry.accepts_pushes().await {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(Unavailable("the disk of the registry has no room for another image".to_owned()))
            }
            Err(error) => Err(Unavailable(error_chain(&error).to_string())),
        }
    }
}

/// Reads media grants from the database and stores their reads; the first reads become events.
pub(super) struct StoreGrants {
    store: Store,
    clock: Arc<dyn Clock>,
}

impl StoreGrants {
    pub(super) fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }
}

#[async_trait]
impl GrantStore for StoreGrants {
    async fn find(&self, token_hash: &str) -> Result<Option<StoredGrant>, GrantStoreUnavailable> {
        let found = self.store.grant(token_hash).await;
        found.map_err(|error| GrantStoreUnavailable { reason: error_chain(&error).to_string() })
    }

    async fn reads(&self, token_hash: &str) -> Result<Option<GrantReads>, GrantStoreUnavailable> {
        let found = self.store.grant_without_inputs(token_hash).await;
        let found =
            found.map_err(|error| GrantStoreUnavailable { reason: error_chain(&error).to_string() })?;
        Ok(found.map(|stored| stored.reads))
    }

    async fn recorded_bytes(&self, token_hashes: &[&str]) -> Result<u64, GrantStoreUnavailable> {
        let bytes = self.store.recorded_bytes(token_hashes).await;
        bytes.map_err(|error| GrantStoreUnavailable { reason: error_chain(&error).to_string() })
    }

    async fn record_reads(&self, token_hash: &str, added: GrantReads) -> Result<(), GrantStoreUnavailable> {
        let caused = move |before: &StoredGrant| caused_by(before, added);
        let recorded = self.store.record_reads(token_hash, added, caused, self.clock.now()).await;
        recorded.map_err(|error| GrantStoreUnavailable { reason: error_chain(&error).to_string() })
    }
}

/// What reads that are added to a grant cause.
fn caused_by(before: &StoredGrant, added: GrantReads) -> CausedByReads {
    let boots = before.reads.boot_read_at.is_none() && added.boot_read_at.is_some();
    let image = before.grant.artifact.as_str();
    let mut events = Vec::new();
    if before.reads.first_read_at.is_none() && added.first_read_at.is_some() {
        events.push(NewEvent::info(
            "media.first-read",
            format!("the {image} image was read for the first time"),
        ));
    }
    if boots {
        events.push(NewEvent::info("media.boot-read", "the boot record of the boot image was read"));
    }
    CausedByReads {
        events: events.into_iter().map(|event| event.by("media")).collect(),
        // The host boots, so its power-on permit is released.
        permit: boots.then(power_on_permit),
    }
}

/// Counts requests to BMCs.
pub(super) struct RedfishMetrics(pub(super) Arc<Metrics>);

impl redfish::Observer for RedfishMetrics {
    fn exchange(&self, exchange: redfish::Exchange<'_>) {
        self.0.redfish_request(exchange.operation.as_str(), exchange.duration);
        if matches!(exchange.result, redfish::ExchangeResult::Failed(_)) {
            self.0.redfish_unanswered(exchange.operation.as_str());
        }
    }
}

/// Counts built images.
pub(super) struct JobMetrics(pub(super) Arc<Metrics>);

impl ProvisionMetrics for JobMetrics {
    fn image_built(&self, took: Duration, size: u64) {
        self.0.iso_built(took, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_registry_whose_upload_sessions_are_all_open_is_not_ready_and_says_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let config = registry::Config::new(root.path());
        let ready = async |config| {
            let registry = registry::Registry::open(config).await.unwrap();
            RegistryOsImages(Some(registry)).ready().await
        };
        ready(config.clone()).await.unwrap();
        let why = ready(registry::Config { max_upload_sessions: 0, ..config }).await.unwrap_err().to_string();
        assert!(why.contains("0 of 0 upload sessions") && why.contains("shoal registry uploads"), "{why}");
    }
}
