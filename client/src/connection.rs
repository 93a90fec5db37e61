//! The HTTP client of a running controller: one request, one bounded JSON response.
//!
//! Invariants: the credentials are sent only to the host of `--url`, because redirects are not followed and no proxy is used; path
//! segments and query values are percent-encoded; a request has a timeout and a response a size limit.

mod events;
mod push;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use secrecy::SecretString;
use serde::Serialize;
use serde_json::Value;
use url::Url;

use model::distinct_causes;
use settings::DEFINITIONS;

use super::error::CliError;
use super::input;
use super::login::LoginArgs;

pub(crate) use events::Changes;
#[cfg(test)]
pub(crate) use events::tests::changes;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout of a request during which the controller talks to a BMC or creates many jobs.
const SLOW_TIMEOUT: Duration = Duration::from_secs(200);
/// The timeout of a request that reads a whole image.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(3600);
const MAX_RESPONSE_BYTES: usize = 16 << 20;
const MAX_CERTIFICATES_BYTES: usize = 4 << 20;
/// The maximum of pages of one list.
const MAX_PAGES: usize = 10_000;
/// The maximum of rows of one page that every list has.
const MAX_PAGE: usize = 500;

/// Address of the controller and credentials of the client.
#[derive(Args, Clone, Debug)]
pub struct ConnectionArgs {
    /// The URL of the controller
    #[arg(
        long,
        global = true,
        help_heading = "Controller",
        value_name = "URL",
        env = "SHOAL_URL",
        default_value = "http://127.0.0.1:8080"
    )]
    pub url: String,
    #[command(flatten)]
    pub(crate) login: LoginArgs,
    /// The certificate authorities of an https controller, as PEM. Default: those of the data directory on this machine
    #[arg(
        long,
        visible_alias = "ca",
        global = true,
        help_heading = "Controller",
        value_name = "FILE",
        env = "SHOAL_CA_FILE"
    )]
    pub ca_file: Option<PathBuf>,
}

impl ConnectionArgs {
    /// The API token of the login; `None` without one.
    ///
    /// # Errors
    /// When two logins are given, or the source of the token cannot be read.
    pub fn token(&self) -> Result<Option<SecretString>, CliError> {
        self.login.token()
    }
}

/// A client of one controller.
pub struct Client {
    http: reqwest::Client,
    base: Url,
    authorization: Option<HeaderValue>,
}

/// A success response of a controller.
#[derive(Debug)]
pub struct ApiResponse {
    /// The HTTP status.
    pub status: u16,
    /// The JSON document; null without one.
    pub body: Value,
}

impl Client {
    /// A client of the controller of `connection`.
    ///
    /// # Errors
    /// When the URL, the authorities or the credentials are not valid.
    pub fn new(connection: &ConnectionArgs) -> Result<Self, CliError> {
        let (base, tls) = tls_of(connection)?;
        let authorization = connection.login.authorization()?;
        Ok(Self { http: http(tls)?, base, authorization })
    }

    /// A GET request for a route of the API, whose path is given in segments.
    ///
    /// # Errors
    /// When there is no response, or it is an error.
    pub async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<ApiResponse, CliError> {
        self.send(Method::GET, path, query, None::<&Value>, HeaderMap::new()).await
    }

    /// A GET request for a route beside those of the API, such as `/about`.
    ///
    /// # Errors
    /// When there is no response, or it is an error.
    pub async fn get_root(&self, name: &str) -> Result<ApiResponse, CliError> {
        let mut url = self.base.clone();
        // A URL with a host always has segments; `base` checks the host.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(name);
        }
        self.send_to(url, REQUEST_TIMEOUT, Method::GET, None::<&Value>, HeaderMap::new()).await
    }

    /// A GET request with [`SLOW_TIMEOUT`], for routes that read a BMC.
    pub(crate) async fn get_slow(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<ApiResponse, CliError> {
        let url = self.url(path, query);
        self.send_to(url, SLOW_TIMEOUT, Method::GET, None::<&Value>, HeaderMap::new()).await
    }

    /// A POST request with [`SLOW_TIMEOUT`], for routes that talk to a BMC.
    pub(crate) async fn post_slow(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<ApiResponse, CliError> {
        let url = self.url(path, query);
        self.send_to(url, SLOW_TIMEOUT, Method::POST, None::<&Value>, HeaderMap::new()).await
    }

    /// A POST request with a body.
    ///
    /// # Errors
    /// When there is no response, or it is an error.
    pub async fn post(
        &self,
        path: &[&str],
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<ApiResponse, CliError> {
        self.send(Method::POST, path, &[], Some(body), headers).await
    }

    /// [`Self::post`] with [`SLOW_TIMEOUT`], for a request with many rows.
    pub(crate) async fn post_long(
        &self,
        path: &[&str],
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<ApiResponse, CliError> {
        self.send_to(self.url(path, &[]), SLOW_TIMEOUT, Method::POST, Some(body), headers).await
    }

    /// A POST request with a query and without a body.
    pub(crate) async fn post_empty(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<ApiResponse, CliError> {
        self.send(Method::POST, path, query, None::<&Value>, HeaderMap::new()).await
    }

    /// A POST request with a query and a body.
    pub(crate) async fn post_query(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<ApiResponse, CliError> {
        self.send(Method::POST, path, query, Some(body), headers).await
    }

    /// [`Self::post_query`] with [`SLOW_TIMEOUT`], for routes that read a BMC.
    pub(crate) async fn post_query_slow(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<ApiResponse, CliError> {
        self.send_to(self.url(path, query), SLOW_TIMEOUT, Method::POST, Some(body), headers).await
    }

    /// A PATCH request with a body.
    ///
    /// # Errors
    /// When there is no response, or it is an error.
    pub async fn patch(
        &self,
        path: &[&str],
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<ApiResponse, CliError> {
        self.send(Method::PATCH, path, &[], Some(body), headers).await
    }

    /// A PATCH request with query parameters.
    pub(crate) async fn patch_query(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        body: &impl Serialize,
        headers: HeaderMap,
    ) -> Result<ApiResponse, CliError> {
        self.send(Method::PATCH, path, query, Some(body), headers).await
    }

    /// A DELETE request.
    ///
    /// # Errors
    /// When there is no response, or it is an error.
    pub async fn delete(&self, path: &[&str], headers: HeaderMap) -> Result<ApiResponse, CliError> {
        self.send(Method::DELETE, path, &[], None::<&Value>, headers).await
    }

    /// A DELETE request with query parameters.
    pub(crate) async fn delete_query(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<ApiResponse, CliError> {
        self.send(Method::DELETE, path, query, None::<&Value>, HeaderMap::new()).await
    }

    /// Reads all pages of a list up to `limit` rows: `{KEY: […], "next": cursor of the remaining rows or null}`.
    ///
    /// # Errors
    /// When there is no response, or one of them is an error.
    pub async fn list(
        &self,
        path: &[&str],
        key: &str,
        filters: &[(&str, String)],
        limit: usize,
    ) -> Result<Value, CliError> {
        self.list_in_pages(path, key, filters, limit, MAX_PAGE).await
    }

    /// [`Self::list`] for a list whose pages have at most `most` rows.
    pub(crate) async fn list_in_pages(
        &self,
        path: &[&str],
        key: &str,
        filters: &[(&str, String)],
        limit: usize,
        most: usize,
    ) -> Result<Value, CliError> {
        let mut rows = Vec::new();
        let mut next = Value::Null;
        for _ in 0..MAX_PAGES {
            let mut query = filters.to_vec();
            query.push(("limit", (limit - rows.len()).min(most).to_string()));
            query.extend(next.as_str().map(|cursor| ("cursor", cursor.to_owned())));
            let mut page = self.get(path, &query).await?.body;
            let Some(Value::Array(mut found)) = page.get_mut(key).map(Value::take) else {
                return Err(self.unexpected_response(path, format!("the list {key} is missing")));
            };
            let empty = found.is_empty();
            next = page["next"].take();
            rows.append(&mut found);
            if next.is_null() || empty || rows.len() >= limit {
                break;
            }
        }
        Ok(Value::Object(
            [(key.to_owned(), Value::Array(rows)), ("next".to_owned(), next)].into_iter().collect(),
        ))
    }

    /// The URL of a path and query that the controller has given. `None` if they are no path.
    pub(crate) fn at(&self, path_and_query: &str) -> Option<Url> {
        let base = self.base.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}{path_and_query}")).ok().filter(|_| path_and_query.starts_with('/'))
    }

    /// Reads what a URL that needs no login has, piece by piece, however long it is. A piece comes with the number of bytes of all, if it
    /// is known. Returns the number of bytes.
    pub(crate) async fn read_to(
        &self,
        url: Url,
        mut piece: impl FnMut(&[u8], Option<u64>) -> Result<(), CliError>,
    ) -> Result<u64, CliError> {
        let unreachable = |error: reqwest::Error| CliError::Unreachable {
            url: self.base.to_string(),
            reason: distinct_causes(&error.without_url()),
            mutating: false,
        };
        let mut response = self.http.get(url).timeout(DOWNLOAD_TIMEOUT).send().await.map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            let body = bounded(response).await.map_err(unreachable)?.unwrap_or_default();
            let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
            let body = serde_json::from_slice(&body).ok().filter(Value::is_object).unwrap_or_else(text);
            return Err(CliError::Refused { status: status.as_u16(), body });
        }
        let (mut bytes, total) = (0, response.content_length());
        while let Some(read) = response.chunk().await.map_err(unreachable)? {
            piece(&read, total)?;
            bytes += read.len() as u64;
        }
        Ok(bytes)
    }

    /// The error for a success response without the expected content.
    pub fn unexpected_response(&self, path: &[&str], reason: impl Into<String>) -> CliError {
        CliError::UnexpectedResponse { url: self.url(path, &[]).to_string(), reason: reason.into() }
    }

    async fn send(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<&impl Serialize>,
        headers: HeaderMap,
    ) -> Result<ApiResponse, CliError> {
        self.send_to(self.url(path, query), REQUEST_TIMEOUT, method, body, headers).await
    }

    async fn send_to(
        &self,
        url: Url,
        deadline: Duration,
        method: Method,
        body: Option<&impl Serialize>,
        headers: HeaderMap,
    ) -> Result<ApiResponse, CliError> {
        let mutating = method != Method::GET;
        let mut request = self
            .http
            .request(method, url.clone())
            .headers(headers)
            .header(ACCEPT, "application/json")
            .timeout(deadline);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = body {
            request = with_json(request, body)?;
        }
        let unreachable = |error: reqwest::Error| CliError::Unreachable {
            url: self.base.to_string(),
            // Without a connection nothing was sent.
            mutating: mutating && !error.is_connect(),
            reason: distinct_causes(&error.without_url()),
        };
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status();
        let bytes = bounded(response).await.map_err(unreachable)?;
        let Some(bytes) = bytes else {
            let reason = format!("it is longer than {MAX_RESPONSE_BYTES} bytes");
            return Err(CliError::UnexpectedResponse { url: url.to_string(), reason });
        };
        let body = serde_json::from_slice::<Value>(&bytes);
        if status.is_success() {
            let body = match body {
                Ok(body) => body,
                Err(_) if bytes.is_empty() => Value::Null,
                Err(error) => {
                    let reason = format!("it is not JSON ({error})");
                    return Err(CliError::UnexpectedResponse { url: url.to_string(), reason });
                }
            };
            return Ok(ApiResponse { status: status.as_u16(), body });
        }
        let body = body
            .ok()
            .filter(Value::is_object)
            .unwrap_or_else(|| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Err(CliError::Refused { status: status.as_u16(), body })
    }

    fn url(&self, path: &[&str], query: &[(&str, String)]) -> Url {
        let mut url = self.base.clone();
        // A URL with a host always has segments; `base` checks the host.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

/// Headers with one entry.
pub(crate) fn header(name: &'static str, value: &str) -> Result<HeaderMap, CliError> {
    let value = HeaderValue::from_str(value).map_err(|_| {
        CliError::Usage(format!("{name}: {value:?} cannot be sent; use visible ASCII characters"))
    })?;
    Ok([(HeaderName::from_static(name), value)].into_iter().collect())
}

/// The URL of a controller, and TLS that accepts the authorities of the connection.
///
/// # Errors
/// When the URL or the authorities are not valid.
pub fn tls_of(connection: &ConnectionArgs) -> Result<(Url, ClientConfig), CliError> {
    let base = base(&connection.url)?;
    let pem = match &connection.ca_file {
        Some(path) => input::read(path, MAX_CERTIFICATES_BYTES)?,
        None if base.scheme() == "https" => own_authority()?,
        None => Vec::new(),
    };
    Ok((base, tls(&pem)?))
}

fn base(text: &str) -> Result<Url, CliError> {
    let refusal =
        || CliError::Usage("--url: give http(s)://HOST[:PORT], without user, query and fragment".to_owned());
    let url = Url::parse(text).map_err(|_| refusal())?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.host().is_some()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if plain { Ok(url) } else { Err(refusal()) }
}

/// The authority in the data directory on this machine: its controller is the one that a client without `--ca-file` means.
fn own_authority() -> Result<Vec<u8>, CliError> {
    let default =
        DEFINITIONS.iter().find(|setting| setting.name == "STORAGE_ROOT").map(|setting| setting.default);
    let default = default.map(|default| default.to_string()).unwrap_or_default();
    let root = std::env::var_os("STORAGE_ROOT").filter(|root| !root.is_empty()).unwrap_or(default.into());
    let file = PathBuf::from(root).join("tls").join("ca.pem");
    input::read(&file, MAX_CERTIFICATES_BYTES).map_err(|_| {
        CliError::Usage(format!(
            "an https controller needs --ca-file (SHOAL_CA_FILE), the authorities that its certificate comes from: `shoal ca \
             export` prints them on the controller's machine. {} cannot be read",
            file.display()
        ))
    })
}

/// Reads a short text from a controller. The caller decides what of the connection is verified.
///
/// # Errors
/// When there is no response, or it is an error or too long.
pub async fn get_text(url: &str, name: &str, tls: ClientConfig) -> Result<String, CliError> {
    let mut url = base(url)?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().push(name);
    }
    let unreachable = |error: reqwest::Error| CliError::Unreachable {
        url: url.to_string(),
        reason: distinct_causes(&error.without_url()),
        mutating: false,
    };
    let response = http(tls)?.get(url.clone()).send().await.map_err(unreachable)?;
    let status = response.status();
    let body = bounded(response).await.map_err(unreachable)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    match status.is_success() {
        true => Ok(text),
        false => {
            let body =
                serde_json::from_str(&text).ok().filter(Value::is_object).unwrap_or(Value::String(text));
            Err(CliError::Refused { status: status.as_u16(), body })
        }
    }
}

/// A client for large files of a mirror: redirects and the proxy of the environment are used, because what it reads is verified
/// by its digest. A transfer that stands still ends.
///
/// # Errors
/// When the authorities are not valid.
pub fn for_downloads(pem: &[u8]) -> Result<reqwest::Client, CliError> {
    built(builder(tls(pem)?).read_timeout(REQUEST_TIMEOUT))
}

fn built(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, CliError> {
    builder.build().map_err(|error| {
        CliError::failed(format!("cannot build an HTTP client: {}", distinct_causes(&error)))
    })
}

fn builder(tls: ClientConfig) -> reqwest::ClientBuilder {
    reqwest::Client::builder().tls_backend_preconfigured(tls).connect_timeout(CONNECT_TIMEOUT)
}

/// TLS with rustls and ring that accepts only the given certificate authorities.
fn tls(pem: &[u8]) -> Result<ClientConfig, CliError> {
    let refused = |reason: String| CliError::failed(format!("--ca-file: {reason}; give PEM certificates"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| refused(error.to_string()))?;
        roots.add(certificate).map_err(|error| refused(error.to_string()))?;
    }
    if roots.is_empty() && !pem.is_empty() {
        return Err(refused("it holds no certificate".to_owned()));
    }
    Ok(ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| CliError::failed(format!("cannot prepare TLS: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn http(tls: ClientConfig) -> Result<reqwest::Client, CliError> {
    built(builder(tls).redirect(reqwest::redirect::Policy::none()).no_proxy().timeout(REQUEST_TIMEOUT))
}

fn with_json(request: RequestBuilder, body: &impl Serialize) -> Result<RequestBuilder, CliError> {
    let body = serde_json::to_vec(body)
        .map_err(|error| CliError::failed(format!("cannot write the request as JSON: {error}")))?;
    Ok(request.header(CONTENT_TYPE, "application/json").body(body))
}

/// Reads a body; returns `None` when it is longer than [`MAX_RESPONSE_BYTES`].
async fn bounded(mut response: Response) -> Result<Option<Vec<u8>>, reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if bytes.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Ok(None);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Some(bytes))
}
