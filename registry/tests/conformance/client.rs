//! The client of the suite: one request, one whole answer, and logging in the way the registry asks for.
//!
//! ```text
//!  first request of a kind --> 401 WWW-Authenticate --Basic--> the credentials
//!                                                   --Bearer-> GET realm?service=&scope= with them -> a token
//!  every request of the kind with what was got
//! ```

use std::collections::HashMap;
use std::sync::Mutex;

use base64::Engine as _;
use bytes::Bytes;
use reqwest::header::HeaderMap;
use reqwest::{Method, Url};

/// Why a check failed, for the one who reads the report.
pub(super) type Failure = String;

/// The registry under test.
pub(super) struct Target {
    base: Url,
    client: reqwest::Client,
    login: Option<Login>,
    /// What the registry accepted, by method and what it is good for.
    held: Mutex<HashMap<(Method, String), String>>,
}

pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

/// A request being put together.
pub(super) struct Ask<'a> {
    target: &'a Target,
    method: Method,
    location: String,
    headers: Vec<(&'static str, String)>,
    body: Option<Vec<u8>>,
}

/// An answer with its whole body.
pub(super) struct Answer {
    what: String,
    pub(super) status: u16,
    headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Target {
    pub(super) fn new(base: Url, client: reqwest::Client, login: Option<Login>) -> Self {
        Target { base, client, login, held: Mutex::default() }
    }

    /// A request to a path, or to a `Location` the registry gave.
    pub(super) fn ask(&self, method: Method, location: &str) -> Ask<'_> {
        Ask { target: self, method, location: location.to_owned(), headers: Vec::new(), body: None }
    }

    async fn authorization(&self, method: &Method, url: &Url) -> Result<Option<String>, Failure> {
        let Some(login) = &self.login else { return Ok(None) };
        let key = (method.clone(), realm_of(url.path()));
        if let Some(held) = self.held.lock().unwrap().get(&key) {
            return Ok(Some(held.clone()));
        }
        let refused = self.client.request(method.clone(), url.clone()).send().await.map_err(shown)?;
        if refused.status() != 401 {
            return Err(format!("{method} {url} without credentials: {} and not 401", refused.status()));
        }
        let challenge = refused.headers().get("www-authenticate").and_then(|value| value.to_str().ok());
        let challenge = challenge.ok_or("401 without WWW-Authenticate")?;
        let basic =
            base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", login.user, login.password));
        let basic = format!("Basic {basic}");
        let (scheme, parameters) = challenge.split_once(' ').ok_or("a challenge without parameters")?;
        let authorization = match scheme.to_ascii_lowercase().as_str() {
            "basic" => basic,
            "bearer" => format!("Bearer {}", self.token(parameters, &basic).await?),
            other => return Err(format!("a challenge of the unknown scheme {other}")),
        };
        self.held.lock().unwrap().insert(key, authorization.clone());
        Ok(Some(authorization))
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
        let answer = self.client.get(url).header("authorization", basic).send().await.map_err(shown)?;
        let document: serde_json::Value =
            serde_json::from_slice(&answer.bytes().await.map_err(shown)?).map_err(shown)?;
        let token = document["token"].as_str().or(document["access_token"].as_str());
        token.map(str::to_owned).ok_or_else(|| format!("no token in {document}"))
    }
}

impl Ask<'_> {
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

    pub(super) async fn send(self) -> Result<Answer, Failure> {
        let url = self.target.base.join(&self.location).map_err(shown)?;
        // A location may be long; where it leads is told by its beginning.
        let shown: String = self.location.chars().take(160).collect();
        let what = format!("{} {shown}", self.method);
        let mut request = self.target.client.request(self.method.clone(), url.clone());
        if let Some(authorization) = self.target.authorization(&self.method, &url).await? {
            request = request.header("authorization", authorization);
        }
        for (name, value) in self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = self.body {
            request = request.body(body);
        }
        let answer = request.send().await.map_err(|error| format!("{what}: {error:?}"))?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.bytes().await.map_err(|error| format!("{what}: {error:?}"))?;
        Ok(Answer { what, status, headers, body })
    }
}

impl Answer {
    pub(super) fn is(&self, allowed: &[u16]) -> Result<&Self, Failure> {
        if allowed.contains(&self.status) {
            return Ok(self);
        }
        let body = String::from_utf8_lossy(&self.body[..self.body.len().min(200)]).into_owned();
        Err(format!("{}: {} and not one of {allowed:?}: {body}", self.what, self.status))
    }

    /// Refused with one of the statuses, and in the form errors have.
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

/// What one login is good for: a repository, its upload sessions apart.
fn realm_of(path: &str) -> String {
    let words = ["/blobs/uploads/", "/blobs/", "/manifests/", "/tags/", "/referrers/"];
    let Some((end, word)) = words.iter().find_map(|word| Some((path.find(word)?, word))) else {
        return path.to_owned();
    };
    let whole = end + if word.contains("uploads") { word.len() } else { 0 };
    path[..whole].to_owned()
}

fn url_encoded(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
