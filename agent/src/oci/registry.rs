//! Requests to one repository: Basic authentication, the token flow, redirects, patience.
//!
//! ```text
//! GET --401 Basic--> GET with user and password
//!     --401 Bearer realm="…"--> GET realm with user and password -> token -> GET with the token
//!     --3xx--> GET Location; credentials stay with the origin of the registry
//!     --5xx, 429, no response--> pause and again, for ten minutes
//! ```
//!
//! Invariants: credentials and tokens go to the registry's origin and the realm that it names, nowhere else, and never into
//! an error. A redirect from `https` to `http` is refused.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use base64::Engine as _;
use serde::Deserialize;
use url::Url;

use super::error::PullError;
use super::source::{ImageSource, OpenedBlob, SourceFailure};
use crate::clock::Clock;
use crate::http::{Http, Request, Response};
use crate::job::PullAccess;
use crate::transmit::Fault;
use beacon::Class;
use recipe::ImageReference;

const MAX_REDIRECTS: usize = 5;
const MAX_TOKEN_BYTES: u64 = 256 * 1024;
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a registry that does not respond is waited for, from the last success.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// One repository of a registry.
pub struct Registry<'run> {
    http: &'run dyn Http,
    clock: &'run dyn Clock,
    base: Url,
    repository: String,
    credentials: Option<String>,
    authorization: Mutex<Option<String>>,
    fault: Fault,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// A response, or the reason why there is none yet.
type Attempt = Result<Response, SourceFailure>;

impl<'run> Registry<'run> {
    /// Creates the client of the repository of `reference`: at the registry of the job if it has one, otherwise at the host
    /// of the reference, by HTTPS.
    ///
    /// # Errors
    /// Returns an error when there is neither, or its URL is not valid.
    pub fn new(
        http: &'run dyn Http,
        clock: &'run dyn Clock,
        access: Option<&PullAccess>,
        reference: &ImageReference,
    ) -> Result<Self, PullError> {
        let refused =
            |reason: String| PullError::Document { what: "the address of the registry".to_owned(), reason };
        let base = match (access, &reference.host) {
            (Some(access), _) => access.url.trim_end_matches('/').to_owned(),
            (None, Some(host)) => format!("https://{host}"),
            (None, None) => return Err(refused("oci_url has no host and job.json no registry".to_owned())),
        };
        let base = Url::parse(&base).map_err(|source| refused(source.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(refused("it is neither http nor https".to_owned()));
        }
        let credentials = access.and_then(|access| {
            let (user, password) = (access.username.as_ref()?, access.password.as_ref()?);
            let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            Some(format!("Basic {pair}"))
        });
        let repository = reference.repository.clone();
        Ok(Self {
            http,
            clock,
            base,
            repository,
            credentials,
            authorization: Mutex::new(None),
            fault: Fault::default(),
        })
    }

    /// Returns the client with a place that receives the class of a failure.
    #[must_use]
    pub fn with_fault(self, fault: Fault) -> Self {
        Self { fault, ..self }
    }

    /// Returns the name of the repository.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Requests a document and waits for a registry that is away.
    fn request_document(
        &self,
        kind: &str,
        name: &str,
        accept: &str,
        limit: u64,
    ) -> Result<Vec<u8>, PullError> {
        let what = format!("reading {kind} {name} of {}", self.repository);
        let begun = self.clock.elapsed();
        let mut pause = FIRST_PAUSE;
        loop {
            let read =
                self.get(kind, name, &[("accept", accept.to_owned())], false, &what).and_then(|response| {
                    response.bytes(limit).map_err(|source| SourceFailure::Transient(source.to_string()))
                });
            let reason = match read {
                Ok(bytes) => return Ok(bytes),
                Err(SourceFailure::Permanent(error)) => return Err(error),
                Err(SourceFailure::Transient(reason)) => reason,
            };
            if self.clock.elapsed().saturating_sub(begun) + pause > PATIENCE {
                return Err(PullError::Unreachable { what, reason });
            }
            self.clock.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Sends one request for `kind` (`manifests` or `blobs`). Redirects and authentication are part of it.
    fn get(
        &self,
        kind: &str,
        name: &str,
        headers: &[(&'static str, String)],
        streams: bool,
        what: &str,
    ) -> Attempt {
        let mut url = self.base.clone();
        url.set_path(&format!(
            "{}/v2/{}/{kind}/{name}",
            self.base.path().trim_end_matches('/'),
            self.repository
        ));
        let mut challenged = false;
        let mut redirects = 0;
        loop {
            let mut request = Request::get(url.as_str());
            request.headers.extend(headers.iter().cloned());
            request.streams = streams;
            let at_home = url.origin() == self.base.origin();
            if at_home
                && let Some(value) = self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone()
            {
                request = request.with("authorization", value);
            }
            let response =
                self.http.send(&request).map_err(|source| SourceFailure::Transient(source.to_string()))?;
            match response.status {
                200 | 206 => return Ok(response),
                401 if at_home && !challenged => {
                    challenged = true;
                    self.authenticate(&response, what)?;
                }
                301 | 302 | 303 | 307 | 308 if redirects < MAX_REDIRECTS => {
                    redirects += 1;
                    url = self.redirect(&url, &response, what)?;
                }
                status => return Err(failure(what, status)),
            }
        }
    }

    fn redirect(&self, from: &Url, response: &Response, what: &str) -> Result<Url, SourceFailure> {
        let refused = |reason: &str| {
            let (what, reason) = (what.to_owned(), reason.to_owned());
            SourceFailure::Permanent(PullError::Document { what, reason })
        };
        let location = response.header("location").ok_or_else(|| refused("a redirect names no address"))?;
        let to = from.join(location).map_err(|_| refused("a redirect names no valid address"))?;
        match (from.scheme(), to.scheme()) {
            ("https", "https") | ("http", "http" | "https") => Ok(to),
            _ => Err(refused("a redirect leads from https to another scheme")),
        }
    }

    /// Sets the authorization that the challenge of a 401 asks for.
    fn authenticate(&self, response: &Response, what: &str) -> Result<(), SourceFailure> {
        let challenge = response.header("www-authenticate").unwrap_or_default();
        let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
        let authorization = if scheme.eq_ignore_ascii_case("basic") {
            self.credentials.clone().ok_or_else(|| failure(what, 401))?
        } else if scheme.eq_ignore_ascii_case("bearer") {
            self.token(&parameters(rest), what)?
        } else {
            return Err(failure(what, 401));
        };
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorization);
        Ok(())
    }

    fn token(&self, challenge: &[(String, String)], what: &str) -> Result<String, SourceFailure> {
        let what = format!("{what}: asking for a token");
        let document = |reason: &str| {
            SourceFailure::Permanent(PullError::Document { what: what.clone(), reason: reason.to_owned() })
        };
        let value =
            |name: &str| challenge.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let realm = value("realm").ok_or_else(|| document("the challenge has no realm"))?;
        let mut url = self.base.join(realm).map_err(|_| document("the realm is not a valid address"))?;
        if url.scheme() != "https" && self.base.scheme() == "https" {
            return Err(document("the realm leads from https to another scheme"));
        }
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = value("service") {
                query.append_pair("service", service);
            }
            let scope = format!("repository:{}:pull", self.repository);
            query.append_pair("scope", value("scope").unwrap_or(&scope));
        }
        let mut request = Request::get(url.as_str());
        if let Some(credentials) = &self.credentials {
            request = request.with("authorization", credentials);
        }
        let response =
            self.http.send(&request).map_err(|source| SourceFailure::Transient(source.to_string()))?;
        if response.status != 200 {
            return Err(failure(&what, response.status));
        }
        let bytes =
            response.bytes(MAX_TOKEN_BYTES).map_err(|source| SourceFailure::Transient(source.to_string()))?;
        let token: Token =
            serde_json::from_slice(&bytes).map_err(|_| document("the response is no token"))?;
        let token =
            token.token.or(token.access_token).ok_or_else(|| document("the response has no token"))?;
        Ok(format!("Bearer {token}"))
    }

    /// Forgets the token, so that the next request asks for another one. A token can expire while a blob streams.
    fn forget_token(&self) {
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl ImageSource for Registry<'_> {
    fn name(&self) -> &str {
        &self.repository
    }

    fn clock(&self) -> &dyn Clock {
        self.clock
    }

    fn document(&self, kind: &str, name: &str, accept: &str, limit: u64) -> Result<Vec<u8>, PullError> {
        self.request_document(kind, name, accept, limit)
    }

    fn open_blob(&self, digest: &str, offset: u64, what: &str) -> Result<OpenedBlob, SourceFailure> {
        let range = (offset > 0).then(|| ("range", format!("bytes={offset}-")));
        let headers: Vec<_> = range.into_iter().collect();
        let response = self.get("blobs", digest, &headers, true, what)?;
        let begins = match response.status {
            206 => response.header("content-range").and_then(range_start),
            _ => Some(0),
        };
        Ok(OpenedBlob { begins, body: response.body })
    }

    fn try_again(&self) {
        self.forget_token();
    }

    fn failed(&self, class: Class) {
        // The first failure is the cause of the others.
        let _ = self.fault.set(class);
    }
}

/// The first byte of `Content-Range: bytes 5-9/10`.
fn range_start(value: &str) -> Option<u64> {
    value.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

fn failure(what: &str, status: u16) -> SourceFailure {
    let hint = match status {
        401 | 403 => "; the job has no right to pull this repository",
        404 => "; the image is not there",
        _ => "",
    };
    if status >= 500 || matches!(status, 408 | 425 | 429) {
        SourceFailure::Transient(format!("the registry responded with {status}"))
    } else {
        SourceFailure::Permanent(PullError::Refused { what: what.to_owned(), status, hint })
    }
}

/// Parses `realm="…",service="…"`. A comma inside of quotes is part of the value.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some((name, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        found.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        rest = next.trim_start().trim_start_matches(',').trim_start();
    }
    found
}

#[cfg(test)]
mod unit_tests {
    use super::parameters;

    #[test]
    fn a_challenge_is_taken_apart() {
        let found = parameters(r#"realm="http://r/token",service=reg , scope="a:b:pull,push""#);
        let expected = [("realm", "http://r/token"), ("service", "reg"), ("scope", "a:b:pull,push")];
        assert!(found.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
        assert!(parameters("").is_empty() && parameters("garbage").is_empty());
    }
}
