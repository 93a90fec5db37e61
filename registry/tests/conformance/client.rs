//! The client of the suite: one request, one whole response, and the login that the registry's challenge requires.
//!
//! ```text
//!  a request with the held authorization --> any other response
//!         |  401 WWW-Authenticate --Basic--> the credentials                                  --+
//!         |                       --Bearer-> GET realm?service=&scope= with them -> a token   --+--> held
//!         +--- the same request, once more <----------------------------------------------------+
//! ```
//!
//! An authorization is held per repository and per kind of access (read, write, delete), whatever the endpoint, like in
//! the official client: so the first request of each kind is sent whole and without one, a session's status is
//! requested with a token for pulls and cancelled with one for deletes, and the registry has to name the missing scope
//! each time. A client that holds nothing is challenged every time.
//!
//! A body is sent with its length or, streamed, without one. The client accepts compression for everything but HEAD and
//! ranges, and compares the response undecoded: content with a digest must not be compressed.

use std::collections::HashMap;
use std::sync::Mutex;

use base64::Engine as _;
use bytes::Bytes;
use futures_util::stream;
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};

/// The reason why a check failed, for the report.
pub(super) type Failure = String;

/// The registry under test.
pub(super) struct Target {
    base: Url,
    client: reqwest::Client,
    login: Option<Login>,
    /// The accepted authorizations, by repository and kind of access.
    held: Mutex<HashMap<(String, AccessKind), String>>,
}

pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
    /// Whether no authorization is held from one request to the next.
    pub(super) holds_nothing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum AccessKind {
    Reading,
    Writing,
    Deleting,
}

/// A request before it is sent.
pub(super) struct PreparedRequest<'a> {
    target: &'a Target,
    method: Method,
    location: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
    streamed: bool,
}

/// A response with its whole body.
pub(super) struct FullResponse {
    what: String,
    pub(super) status: u16,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Target {
    pub(super) fn new(base: Url, client: reqwest::Client, login: Option<Login>) -> Self {
        Target { base, client, login, held: Mutex::default() }
    }

    /// A request to a path, or to a `Location` of the registry.
    pub(super) fn request(&self, method: Method, location: &str) -> PreparedRequest<'_> {
        PreparedRequest {
            target: self,
            method,
            location: location.to_owned(),
            headers: Vec::new(),
            body: None,
            streamed: false,
        }
    }

    fn held(&self, key: &(String, AccessKind)) -> Option<String> {
        self.held.lock().unwrap().get(key).cloned()
    }

    /// The authorization that a challenge requires.
    async fn authorization(&self, login: &Login, challenge: &str) -> Result<String, Failure> {
        let basic =
            base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", login.user, login.password));
        let basic = format!("Basic {basic}");
        let (scheme, parameters) = challenge.split_once(' ').ok_or("a challenge without parameters")?;
        match scheme.to_ascii_lowercase().as_str() {
            "basic" => Ok(basic),
            "bearer" => Ok(format!("Bearer {}", self.token(parameters, &basic).await?)),
            other => Err(format!("a challenge of the unknown scheme {other}")),
        }
    }

    async fn token(&self, parameters: &str, basic: &str) -> Result<String, Failure> {
        let parameter = |wanted: &str| {
            parameters.split("\",").find_map(|pair| {
                let (name, value) = pair.trim().split_once("=\"")?;
                (name == wanted).then(|| value.trim_end_matches('"').to_owned())
            })
        };
        let mut url =
            Url::parse(&parameter("realm").ok_or("a Bearer challenge without a realm")?).map_err(shown)?;
        let service = parameter("service").unwrap_or_default();
        url.query_pairs_mut().append_pair("service", &service);
        if let Some(scope) = parameter("scope") {
            url.query_pairs_mut().append_pair("scope", &scope);
        }
        let ask = self.client.get(url).header("authorization", basic).header("accept", "application/json");
        let response = ask.send().await.map_err(shown)?;
        if response.status() != 200 {
            return Err(format!("the token endpoint responded with {} and not 200", response.status()));
        }
        let document: serde_json::Value =
            serde_json::from_slice(&response.bytes().await.map_err(shown)?).map_err(shown)?;
        let token = document["access_token"].as_str().or(document["token"].as_str());
        token.map(str::to_owned).ok_or_else(|| format!("no token in {document}"))
    }
}

impl PreparedRequest<'_> {
    pub(super) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn query(mut self, name: &str, value: &str) -> Self {
        let separator = if self.location.contains('?') { '&' } else { '?' };
        let value: String = url_encoded(value);
        self.location.push_str(&format!("{separator}{name}={value}"));
        self
    }

    pub(super) fn body(mut self, body: &[u8]) -> Self {
        self.body = Some(body.to_vec());
        self
    }

    /// Sends the body in pieces, without a length.
    pub(super) fn streamed(mut self) -> Self {
        self.streamed = true;
        self
    }

    pub(super) async fn send(self) -> Result<FullResponse, Failure> {
        let url = self.target.base.join(&self.location).map_err(shown)?;
        // A location may be long; its beginning identifies it.
        let shown: String = self.location.chars().take(160).collect();
        let what = format!("{} {shown}", self.method);
        let Some(login) = &self.target.login else { return self.once(&what, &url, None).await };
        let repository = repository_in(url.path()).ok_or_else(|| format!("{what}: not a path of the API"))?;
        let key = (repository.to_owned(), access_kind(&self.method));
        let held = self.target.held(&key);
        let refused = self.once(&what, &url, held.as_deref()).await?;
        if refused.status != 401 {
            // Without credentials the response may name another error than a 401, and nothing more.
            if held.is_none() && refused.status < 400 {
                return Err(format!("{what} without credentials: {} and not 401", refused.status));
            }
            return Ok(refused);
        }
        if self.method != Method::HEAD {
            refused.refuses(&[401])?;
        }
        let authorization = self.target.authorization(login, refused.header("www-authenticate")?).await?;
        let response = self.once(&what, &url, Some(&authorization)).await?;
        if !login.holds_nothing {
            self.target.held.lock().unwrap().insert(key, authorization);
        }
        Ok(response)
    }

    async fn once(
        &self,
        what: &str,
        url: &Url,
        authorization: Option<&str>,
    ) -> Result<FullResponse, Failure> {
        let mut request = self.target.client.request(self.method.clone(), url.clone());
        if let Some(authorization) = authorization {
            request = request.header("authorization", authorization);
        }
        if self.method != Method::HEAD && self.headers.iter().all(|(name, _)| *name != "range") {
            request = request.header("accept-encoding", "gzip");
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        match &self.body {
            Some(body) if self.streamed => request = request.body(in_pieces(body)),
            Some(body) => request = request.body(body.clone()),
            None => {}
        }
        let response = request.send().await.map_err(|error| format!("{what}: {error:?}"))?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.map_err(|error| format!("{what}: {error:?}"))?;
        Ok(FullResponse { what: what.to_owned(), status, headers, body })
    }
}

impl FullResponse {
    pub(super) fn is(&self, allowed: &[u16]) -> Result<&Self, Failure> {
        if allowed.contains(&self.status) {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]).into_owned();
        Err(format!("{}: {} and not one of {allowed:?}: {body}", self.what, self.status))
    }

    /// Checks that the request was refused with one of the statuses, and with an error document.
    pub(super) fn refuses(&self, allowed: &[u16]) -> Result<&Self, Failure> {
        let kind = self.is(allowed)?.header("content-type")?;
        if !kind.starts_with("application/json") {
            return Err(format!("{}: an error of the type {kind}", self.what));
        }
        let document: serde_json::Value = serde_json::from_slice(&self.body)
            .map_err(|error| format!("{}: the error is not JSON: {error}", self.what))?;
        match document["errors"][0]["code"].as_str() {
            Some(_) => Ok(self),
            None => Err(format!("{}: an error without a code: {document}", self.what)),
        }
    }

    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    }

    pub(super) fn header(&self, name: &str) -> Result<&str, Failure> {
        self.all(name).first().copied().ok_or_else(|| format!("{}: no {name}", self.what))
    }

    pub(super) fn has(&self, name: &str, value: &str) -> Result<&Self, Failure> {
        let found = self.header(name)?;
        if found == value {
            Ok(self)
        } else {
            Err(format!("{}: {name} is {found:?} and not {value:?}", self.what))
        }
    }

    pub(super) fn holds(&self, body: &[u8]) -> Result<&Self, Failure> {
        if self.body == body {
            return Ok(self);
        }
        Err(format!("{}: another body: {} bytes and not {}", self.what, self.body.len(), body.len()))
    }

    pub(super) fn json(&self) -> Result<serde_json::Value, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| format!("{}: not JSON: {error}", self.what))
    }
}

fn shown(error: impl std::fmt::Debug) -> Failure {
    format!("{error:?}")
}

/// The repository of a path, empty for the registry itself; `None` where the API has no such path.
fn repository_in(path: &str) -> Option<&str> {
    let rest = path.strip_prefix("/v2/")?;
    if rest.is_empty() {
        return Some(rest);
    }
    let (repository, word) = rest.rsplit_once('/')?.0.rsplit_once('/')?;
    match word {
        "blobs" | "manifests" | "tags" | "referrers" => Some(repository),
        "uploads" => repository.strip_suffix("/blobs"),
        _ => None,
    }
}

fn access_kind(method: &Method) -> AccessKind {
    match *method {
        Method::GET | Method::HEAD => AccessKind::Reading,
        Method::DELETE => AccessKind::Deleting,
        _ => AccessKind::Writing,
    }
}

fn in_pieces(body: &[u8]) -> reqwest::Body {
    let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
        body.chunks(32 << 10).map(|piece| Ok(piece.to_vec())).collect();
    reqwest::Body::wrap_stream(stream::iter(pieces))
}

fn url_encoded(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
