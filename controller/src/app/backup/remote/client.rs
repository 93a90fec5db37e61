//! Requests to one repository of a registry.

use std::time::Duration;

use parking_lot::Mutex;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderValue, LINK, LOCATION, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::artifact::{MANIFEST, MAX_MANIFEST, digest_of_bytes, hex_of};
use super::error::RemoteBackupError;
use super::login::Challenge;
use settings::{RegistryTarget, Settings};

const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The longest time without a byte, of a body that is sent and of a response without one. The client of HTTP has no such limit: its own
/// runs from the request to the head of the response, also while a large body is sent.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// The longest time of a request without a large body.
const SMALL_REQUEST: Duration = Duration::from_secs(60);
const MAX_REDIRECTS: usize = 5;
const MAX_TOKEN: u64 = 256 << 10;
const MAX_TAGS: u64 = 4 << 20;
/// The pages of tags that are read.
const MAX_PAGES: usize = 10;
const MAX_MESSAGE: u64 = 16 << 10;
/// The characters of a registry's message that an error has.
const SHOWN: usize = 200;

/// One repository of a registry.
pub(in super::super) struct RemoteRegistry {
    http: Client,
    target: RegistryTarget,
    login: Option<(String, SecretString)>,
    authorization: Mutex<Option<HeaderValue>>,
}

impl std::fmt::Debug for RemoteRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteRegistry").field("target", &self.target).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Token {
    token: Option<SecretString>,
    access_token: Option<SecretString>,
}

#[derive(Deserialize)]
struct TagPage {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

impl RemoteRegistry {
    /// A client with the login and the authorities of the settings.
    ///
    /// # Errors
    /// When a file or secret of the settings cannot be used.
    pub(in super::super) fn of(
        settings: &Settings,
        target: &RegistryTarget,
    ) -> Result<Self, RemoteBackupError> {
        let setup = |reason: String| RemoteBackupError::Setup { reason };
        let authorities = settings.backup_ca_file.as_ref().or(settings.controller_ca_file.as_ref());
        let authorities = authorities.map(std::fs::read).transpose();
        let authorities = authorities.map_err(|error| setup(format!("read BACKUP_CA_FILE: {error}")))?;
        let tls = media::tls_config(&authorities.unwrap_or_default());
        let tls = tls.map_err(|error| setup(format!("use BACKUP_CA_FILE: {error}")))?;
        let environment = |name: &str| std::env::var_os(name);
        let password = settings.backup_registry_password.as_ref().map(|source| source.load(&environment));
        let password = password.transpose().map_err(|error| setup(error.to_string()))?;
        if password.is_some() && target.is_plain() && !target.is_local() {
            return Err(setup(
                "a password would cross the network in the clear; give the registry as oci:// (HTTPS)"
                    .to_owned(),
            ));
        }
        // A blob may be at another server; a password is not sent there, and no content is read in the clear.
        let redirects = reqwest::redirect::Policy::custom(|attempt| {
            let former = attempt.previous().last().map(Url::scheme);
            if attempt.previous().len() > MAX_REDIRECTS
                || (former == Some("https") && attempt.url().scheme() != "https")
            {
                return attempt.stop();
            }
            attempt.follow()
        });
        let http = Client::builder()
            .no_proxy()
            .tls_backend_preconfigured(tls)
            .redirect(redirects)
            .connect_timeout(CONNECT_TIME)
            .user_agent(concat!("shoal/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| setup(error.to_string()))?;
        Ok(Self {
            http,
            target: target.clone(),
            login: settings.backup_registry_user.clone().zip(password),
            authorization: Mutex::new(None),
        })
    }

    /// The repository, for texts.
    pub(in super::super) fn place(&self) -> String {
        self.target.to_string()
    }

    pub(super) fn unexpected(&self, what: &str, reason: impl Into<String>) -> RemoteBackupError {
        RemoteBackupError::Unexpected { what: what.to_owned(), registry: self.place(), reason: reason.into() }
    }

    /// The URL of a path below the repository.
    pub(super) fn url(&self, path: &str) -> Url {
        let mut url = self.target.base.clone();
        url.set_path(&format!("/v2/{}/{path}", self.target.repository));
        url
    }

    /// The URL of a `Location` or `Link` of the registry.
    pub(super) fn join(&self, what: &str, location: Option<&HeaderValue>) -> Result<Url, RemoteBackupError> {
        let location = location.and_then(|value| value.to_str().ok());
        let url = location.and_then(|location| self.target.base.join(location).ok());
        let url = url.filter(|url| url.scheme() == "https" || url.origin() == self.target.base.origin());
        url.ok_or_else(|| self.unexpected(what, "no usable Location"))
    }

    /// Sends a request, and once more with the login that the registry asks for. `build` makes the request with its body.
    pub(super) async fn send(
        &self,
        what: &str,
        (method, url): (Method, &Url),
        build: &(dyn Fn(RequestBuilder) -> Result<RequestBuilder, RemoteBackupError> + Send + Sync),
    ) -> Result<Response, RemoteBackupError> {
        let mut challenged = false;
        loop {
            let mut request = build(self.http.request(method.clone(), url.clone()))?;
            let authorization = self.authorization.lock().clone();
            if let Some(authorization) = authorization
                && url.origin() == self.target.base.origin()
            {
                request = request.header(AUTHORIZATION, authorization);
            }
            let response = request.send().await.map_err(|source| self.no_response(what, source))?;
            if response.status() != StatusCode::UNAUTHORIZED {
                return Ok(response);
            }
            // Another host, to which the registry has redirected, gets no login: it could ask for it at a place of its own.
            if challenged || response.url().origin() != self.target.base.origin() {
                return Err(self.refused_login(what));
            }
            challenged = true;
            self.log_in(what, &response).await?;
        }
    }

    /// The error of a request without a complete response.
    pub(super) fn no_response(&self, what: &str, source: reqwest::Error) -> RemoteBackupError {
        let (what, registry, source) = (what.to_owned(), self.place(), source.without_url());
        if source.is_connect() || source.is_timeout() {
            RemoteBackupError::NoResponse { what, registry, source }
        } else {
            RemoteBackupError::Ended { what, registry, source }
        }
    }

    /// Waits for the next bytes of a response.
    pub(super) async fn unless_silent<T>(
        &self,
        what: &str,
        next: impl Future<Output = Result<T, RemoteBackupError>>,
    ) -> Result<T, RemoteBackupError> {
        tokio::time::timeout(SILENCE, next).await.unwrap_or_else(|_| Err(self.silent(what)))
    }

    /// The error of a registry that neither takes nor sends a byte.
    pub(super) fn silent(&self, what: &str) -> RemoteBackupError {
        RemoteBackupError::Silent {
            what: what.to_owned(),
            registry: self.place(),
            seconds: SILENCE.as_secs(),
        }
    }

    /// The next bytes of a body; `None` at its end.
    pub(super) async fn chunk(
        &self,
        what: &str,
        response: &mut Response,
    ) -> Result<Option<bytes::Bytes>, RemoteBackupError> {
        let next = async { response.chunk().await.map_err(|source| self.no_response(what, source)) };
        self.unless_silent(what, next).await
    }

    fn refused_login(&self, what: &str) -> RemoteBackupError {
        RemoteBackupError::Login { what: what.to_owned(), registry: self.place() }
    }

    /// Sends a request without a large body.
    pub(super) async fn send_small(
        &self,
        what: &str,
        method: Method,
        url: &Url,
    ) -> Result<Response, RemoteBackupError> {
        self.send(what, (method, url), &|request| Ok(request.timeout(SMALL_REQUEST))).await
    }

    async fn log_in(&self, what: &str, response: &Response) -> Result<(), RemoteBackupError> {
        let header = response.headers().get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok());
        let scope = format!("repository:{}:pull,push,delete", self.target.repository);
        let challenge = Challenge::parse(header.unwrap_or_default(), &self.target.base, &scope);
        let authorization = match challenge.ok_or_else(|| self.refused_login(what))? {
            Challenge::Basic => {
                let (user, password) = self.login.as_ref().ok_or_else(|| self.refused_login(what))?;
                basic(user, password)
            }
            Challenge::Token(url) => self.token(what, url).await?,
        };
        let mut value = authorization.ok_or_else(|| self.refused_login(what))?;
        value.set_sensitive(true);
        *self.authorization.lock() = Some(value);
        Ok(())
    }

    async fn token(&self, what: &str, url: Url) -> Result<Option<HeaderValue>, RemoteBackupError> {
        let mut request = self.http.get(url).timeout(SMALL_REQUEST);
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password.expose_secret()));
        }
        let response = request.send().await.map_err(|source| self.no_response(what, source))?;
        if !response.status().is_success() {
            return Err(self.refused_login(what));
        }
        let bytes = self.body(what, response, MAX_TOKEN).await?;
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|_| self.unexpected(what, "a token that is not JSON"))?;
        let token = token.token.or(token.access_token);
        Ok(token.and_then(|token| HeaderValue::from_str(&format!("Bearer {}", token.expose_secret())).ok()))
    }

    /// Reads a body up to a length.
    pub(super) async fn body(
        &self,
        what: &str,
        mut response: Response,
        limit: u64,
    ) -> Result<Vec<u8>, RemoteBackupError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.chunk(what, &mut response).await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > limit {
                return Err(self.unexpected(what, format!("more than {limit} bytes")));
            }
        }
        Ok(bytes)
    }

    /// The error of a response that has not a wanted status, with the message of the registry.
    pub(super) async fn refused(&self, what: &str, response: Response) -> RemoteBackupError {
        let status = response.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return self.refused_login(what);
        }
        let body = self.body(what, response, MAX_MESSAGE).await.unwrap_or_default();
        let document: Option<Value> = serde_json::from_slice(&body).ok();
        let message = document.as_ref().and_then(|body| body.pointer("/errors/0/message")?.as_str());
        let plain = |text: &str| -> String {
            text.chars().filter(|character| !character.is_control()).take(SHOWN).collect()
        };
        RemoteBackupError::Refused {
            what: what.to_owned(),
            registry: self.place(),
            status: status.as_u16(),
            message: message.map(|text| format!(": {}", plain(text))).unwrap_or_default(),
        }
    }

    /// Reads a manifest by its tag or digest; `None` when there is none. The digest of a reference is compared.
    pub(super) async fn manifest(&self, name: &str) -> Result<Option<Vec<u8>>, RemoteBackupError> {
        const WHAT: &str = "read the manifest of a backup";
        let url = self.url(&format!("manifests/{name}"));
        let accept = |request: RequestBuilder| Ok(request.timeout(SMALL_REQUEST).header(ACCEPT, MANIFEST));
        let response = self.send(WHAT, (Method::GET, &url), &accept).await?;
        match response.status() {
            StatusCode::NOT_FOUND => return Ok(None),
            StatusCode::OK => {}
            _ => return Err(self.refused(WHAT, response).await),
        }
        let bytes = self.body(WHAT, response, MAX_MANIFEST).await?;
        if hex_of(name).is_some() && digest_of_bytes(&bytes) != name {
            return Err(self.unexpected(WHAT, "other content than its digest says"));
        }
        Ok(Some(bytes))
    }

    /// Whether a tag has a manifest of this digest.
    pub(in super::super) async fn has(&self, tag: &str, digest: &str) -> Result<bool, RemoteBackupError> {
        Ok(self.manifest(tag).await?.is_some_and(|bytes| digest_of_bytes(&bytes) == digest))
    }

    /// Removes the manifest of a tag, unless the tag has another one.
    pub(in super::super) async fn remove(&self, tag: &str, digest: &str) -> Result<(), RemoteBackupError> {
        const WHAT: &str = "remove an older backup";
        if !self.has(tag, digest).await? {
            return Ok(());
        }
        let response =
            self.send_small(WHAT, Method::DELETE, &self.url(&format!("manifests/{digest}"))).await?;
        match response.status() {
            StatusCode::ACCEPTED | StatusCode::OK | StatusCode::NO_CONTENT | StatusCode::NOT_FOUND => Ok(()),
            _ => Err(self.refused(WHAT, response).await),
        }
    }

    /// The tags of the repository; none when there is no repository yet.
    pub(in super::super) async fn tags(&self) -> Result<Vec<String>, RemoteBackupError> {
        const WHAT: &str = "list the backups";
        let mut url = self.url("tags/list");
        url.set_query(Some("n=1000"));
        let mut tags = Vec::new();
        for _ in 0..MAX_PAGES {
            let response = self.send_small(WHAT, Method::GET, &url).await?;
            match response.status() {
                StatusCode::NOT_FOUND => break,
                StatusCode::OK => {}
                _ => return Err(self.refused(WHAT, response).await),
            }
            let next = response.headers().get(LINK).and_then(|link| next_of(link.to_str().ok()?));
            let body = self.body(WHAT, response, MAX_TAGS).await?;
            let page: TagPage = serde_json::from_slice(&body)
                .map_err(|_| self.unexpected(WHAT, "a list that is not JSON"))?;
            tags.extend(page.tags.unwrap_or_default());
            match next.and_then(|next| HeaderValue::from_str(&next).ok()) {
                Some(next) => url = self.join(WHAT, Some(&next))?,
                None => break,
            }
        }
        Ok(tags)
    }

    /// The place of an upload session.
    pub(super) fn session(&self, what: &str, response: &Response) -> Result<Url, RemoteBackupError> {
        self.join(what, response.headers().get(LOCATION))
    }
}

fn basic(user: &str, password: &SecretString) -> Option<HeaderValue> {
    use base64::Engine as _;
    let pair = zeroize::Zeroizing::new(format!("{user}:{}", password.expose_secret()));
    let encoded = base64::engine::general_purpose::STANDARD.encode(pair.as_bytes());
    HeaderValue::from_str(&format!("Basic {encoded}")).ok()
}

/// The target of `<…>; rel="next"`.
fn next_of(link: &str) -> Option<String> {
    let (target, rest) = link.strip_prefix('<')?.split_once('>')?;
    rest.contains("next").then(|| target.to_owned())
}
