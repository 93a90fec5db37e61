//! The listening sockets of a controller, and what each serves.
//!
//! | socket | this machine | other machines |
//! |---|---|---|
//! | `CONTROLLER_HTTPS_ADDR` | everything | everything |
//! | `CONTROLLER_HTTP_ADDR` | everything | media, health, `/ca.pem`; everything with `CONTROLLER_HTTP_ALLOW_REMOTE` |
//! | `MEDIA_HTTP_ADDR`, `MEDIA_HTTPS_ADDR` | media | media |
//!
//! Invariants: sockets with media open first and close last; nothing that takes credentials is served in the clear to another
//! machine unless the operator allowed it (decision D16).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::StartError;
use super::connections::{Admission, AdmissionParts, Serves};
use super::inherited::InheritedSockets;
use super::listen::{self, Served};
use access::tls::{CertificateFiles, Certificates, MachineTrust, TlsAcceptor, TlsOptions};
use api::{Api, media_router, plain_router, router};
use bmc::Addresses;
use model::Clock;
use settings::Settings;
use web::with_pages;

/// The bound sockets.
pub(super) struct Sockets {
    http: Bound,
    https: Option<Bound>,
    media_http: Option<Bound>,
    media_https: Option<Bound>,
}

struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

impl Sockets {
    /// Takes the sockets of the service manager for the addresses of the settings, and binds the others.
    pub(super) async fn bind(
        settings: &Settings,
        mut inherited: InheritedSockets,
    ) -> Result<Self, StartError> {
        let given = &mut inherited;
        let sockets = Self {
            http: bind(settings.controller_http_addr, given).await?,
            https: bind_if(settings.controller_https_addr.address(), given).await?,
            media_http: bind_if(settings.media_http_addr, given).await?,
            media_https: bind_if(settings.media_https_addr, given).await?,
        };
        inherited.all_used()?;
        Ok(sockets)
    }

    /// Whether a socket needs a certificate.
    pub(super) fn has_tls(&self) -> bool {
        self.https.is_some() || self.media_https.is_some()
    }

    /// The addresses at which BMCs and machines reach this controller.
    pub(super) fn addresses(&self, settings: &Settings) -> Addresses {
        let of = |bound: &Option<Bound>| bound.as_ref().map(|bound| bound.address);
        Addresses {
            api: self.http.address,
            media: of(&self.media_http).unwrap_or(self.http.address),
            api_tls: of(&self.https),
            media_tls: of(&self.media_https).or(of(&self.https)),
            plain_api: settings.controller_http_allow_remote,
            public_url: settings.controller_public_url.clone(),
            media_base_url: settings.media_base_url.clone(),
        }
    }

    /// Serves every socket until its token is cancelled: the first one for the API, the second one for media.
    pub(super) fn serve(
        self,
        settings: &Settings,
        api: Api,
        registry: Option<Router>,
        admission: &AdmissionParts,
        (stop_api, stop_media): (&CancellationToken, &CancellationToken),
        connections: &TaskTracker,
    ) -> Result<(), StartError> {
        let tls = api.tls.as_ref().map(TlsAcceptor::new).transpose().map_err(StartError::Tls)?;
        // Media listeners ask for none: the TLS of a BMC may not know what to do with the question.
        let main_tls = match (&api.tls, &api.report_certificates) {
            (Some(certificates), Some(reports)) => {
                Some(TlsAcceptor::asking(certificates, reports.hints()).map_err(StartError::Tls)?)
            }
            _ => tls.clone(),
        };
        let stop_of = |media_elsewhere: bool| if media_elsewhere { stop_api } else { stop_media }.clone();
        let (stop_http, stop_https) =
            (stop_of(self.media_http.is_some()), stop_of(self.media_https.is_some()));
        let serve = |bound: Bound, served: Served, stop: CancellationToken| {
            connections.spawn(listen::serve(bound.listener, served, stop, connections.clone()));
        };
        // Sockets that serve the same share one budget.
        let has_media = self.media_http.is_some() || self.media_https.is_some();
        let main_serves = if has_media { Serves::Api } else { Serves::All };
        let of_media = Admission::new(admission.clone(), Serves::Media);
        let of_main = Admission::new(admission.clone(), main_serves);
        // Media first: a BMC that was reading when the previous process ended reads again at once.
        let media = media_router(api.clone());
        for (bound, tls) in [(self.media_http, None), (self.media_https, tls.clone())] {
            if let Some(bound) = bound {
                let admission = of_media.clone();
                let served = Served { router: media.clone(), elsewhere: None, tls, admission };
                serve(bound, served, stop_media.clone());
            }
        }
        let elsewhere = (!settings.controller_http_allow_remote).then(|| plain_router(api.clone()));
        let clock = std::sync::Arc::clone(api.engine.clock());
        let keys = std::sync::Arc::clone(&api.keys);
        let public_url = settings.controller_public_url.as_deref();
        let router = with_pages(router(api, registry), clock, keys.master(), public_url);
        let served = Served { router: router.clone(), elsewhere, tls: None, admission: of_main.clone() };
        serve(self.http, served, stop_http);
        if let Some(bound) = self.https {
            serve(bound, Served { router, elsewhere: None, tls: main_tls, admission: of_main }, stop_https);
        }
        Ok(())
    }
}

async fn bind(address: SocketAddr, inherited: &mut InheritedSockets) -> Result<Bound, StartError> {
    let failed = |source| StartError::Listen { address, source };
    let listener = match inherited.take(address) {
        Some(socket) => TcpListener::from_std(socket).map_err(failed)?,
        None => TcpListener::bind(address).await.map_err(failed)?,
    };
    let address = listener.local_addr().map_err(failed)?;
    Ok(Bound { listener, address })
}

async fn bind_if(
    address: Option<SocketAddr>,
    inherited: &mut InheritedSockets,
) -> Result<Option<Bound>, StartError> {
    match address {
        Some(address) => bind(address, inherited).await.map(Some),
        None => Ok(None),
    }
}

/// Reads or makes the certificate of the TLS sockets.
pub(super) async fn certificates(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<Certificates>, StartError> {
    let (options, clock) = (tls_options(settings), Arc::clone(clock));
    let opened = tokio::task::spawn_blocking(move || Certificates::open(options, clock)).await;
    let certificates = match opened {
        Ok(opened) => opened.map_err(StartError::Tls)?,
        Err(panic) => return Err(super::setting("prepare the certificate")(panic)),
    };
    let state = certificates.state();
    tracing::info!(
        own_authority = state.own_authority,
        authority_sha256 = state.authority_sha256,
        certificate_sha256 = state.certificate_sha256,
        "HTTPS is served with this certificate"
    );
    Ok(certificates)
}

/// Where the certificate comes from, and the names of an own one.
pub fn tls_options(settings: &Settings) -> TlsOptions {
    let given = settings.tls_cert_file.clone().zip(settings.tls_key_file.clone());
    TlsOptions {
        given: given.map(|(certificate, key)| CertificateFiles { certificate, key }),
        directory: settings.tls_dir(),
        names: names(settings),
        machines: machine_trust(settings),
    }
}

/// Returns the host and the authorities by which machines verify the controller; `None` when they reach it by http.
fn machine_trust(settings: &Settings) -> Option<MachineTrust> {
    let public = settings.controller_public_url.as_ref().and_then(|url| url::Url::parse(url).ok());
    let https = match &public {
        Some(url) => url.scheme() == "https",
        None => settings.controller_https_addr.address().is_some(),
    };
    let host = public.and_then(|url| Some(url.host_str()?.trim_matches(['[', ']']).to_owned()));
    https.then(|| MachineTrust { host, authorities: settings.controller_ca_file.clone() })
}

/// This host by its names and loopback addresses, where it listens, and where the settings say that it is reached. Other
/// addresses of this host are added when a client first connects to one.
fn names(settings: &Settings) -> Vec<String> {
    let own = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let listening = [settings.controller_https_addr.address(), settings.media_https_addr];
    let listening = listening.into_iter().flatten().map(|address| address.ip());
    let listening = listening.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string());
    let urls = [&settings.controller_public_url, &settings.media_base_url].into_iter().flatten();
    let hosts = urls.filter_map(|url| url::Url::parse(url).ok()?.host_str().map(str::to_owned));
    // IPv6 addresses have brackets in URLs only.
    let hosts = hosts.map(|host| host.trim_matches(['[', ']']).to_owned());
    let this = host_name(Path::new("/proc/sys/kernel/hostname")).or(host_name(Path::new("/etc/hostname")));
    own.into_iter().chain(this).chain(listening).chain(hosts).chain(settings.tls_names.clone()).collect()
}

fn host_name(file: &Path) -> Option<String> {
    let name = std::fs::read_to_string(file).ok()?.trim().to_ascii_lowercase();
    (!name.is_empty()).then_some(name)
}
