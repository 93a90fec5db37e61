//! `GET /about`: what this controller is: version, build, features, database schema, instance.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::extract::CanRead;
use super::openapi::types;
use access::tls::TlsState;
use model::Time;

/// What a controller is.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct About {
    /// The version of the program.
    pub version: &'static str,
    /// How the program was built.
    pub build: Build,
    /// The parts of the controller that its settings enable.
    pub features: Vec<Feature>,
    /// The schema version of the database.
    pub schema_version: usize,
    /// The id of this run of the controller; a restart has another one.
    pub instance: String,
    /// When this run began.
    #[schemars(with = "types::Timestamp")]
    pub started_at: Time,
    /// The workflows that this version runs.
    pub workflows: Vec<&'static str>,
    /// The certificate of the TLS listeners; null without one.
    pub tls: Option<AboutTls>,
}

/// The certificate of the TLS listeners.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AboutTls {
    /// Whether the controller's own authority issued it.
    pub own_authority: bool,
    /// SHA-256 of the certificate in force, in hex.
    pub certificate_sha256: String,
    /// SHA-256 of the certificate of `/ca.pem`, in hex.
    pub authority_sha256: String,
    /// The end of the certificate in force.
    #[schemars(with = "Option<types::Timestamp>")]
    pub until: Option<Time>,
}

impl From<TlsState> for AboutTls {
    fn from(state: TlsState) -> Self {
        let TlsState { own_authority, certificate_sha256, authority_sha256, until, .. } = state;
        Self { own_authority, certificate_sha256, authority_sha256, until }
    }
}

/// How the program was built.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Build {
    /// The commit, if the build had the variable `SHOAL_BUILD_COMMIT`.
    pub commit: Option<&'static str>,
    /// Processor architecture and operating system.
    #[schemars(with = "String")]
    pub target: Target,
    /// Whether the program is optimised.
    pub optimised: bool,
    /// Whether the program is one statically linked file.
    #[serde(rename = "static")]
    pub is_static: bool,
}

/// Processor architecture and operating system.
#[derive(Clone, Copy, Debug)]
pub struct Target;

impl Serialize for Target {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}-{}", std::env::consts::ARCH, std::env::consts::OS))
    }
}

/// A part of the controller that settings enable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// The OCI registry (`ENABLE_REGISTRY`).
    Registry,
    /// API and registry over HTTPS (`CONTROLLER_HTTPS_ADDR`).
    Tls,
    /// API and registry over plain HTTP for other machines (`CONTROLLER_HTTP_ALLOW_REMOTE`).
    PlainHttpForAll,
    /// A listener for media only (`MEDIA_HTTP_ADDR`, `MEDIA_HTTPS_ADDR`).
    MediaListener,
    /// Users with passwords (`AUTH_MODE=basic`).
    Passwords,
    /// JWTs (`AUTH_MODE=jwt`).
    Jwt,
    /// Requests without credentials (`AUTH_MODE=none`).
    NoAuthentication,
    /// Task images as files (`TASK_ISO_MODE=file`).
    TaskImageFiles,
    /// A shared secret for reports (`WEBHOOK_SECRET`).
    SharedReportSecret,
    /// Metrics without credentials (`METRICS_ANONYMOUS`).
    AnonymousMetrics,
}

impl Build {
    /// The build of this program.
    pub const THIS: Self = Self {
        commit: option_env!("SHOAL_BUILD_COMMIT"),
        target: Target,
        optimised: !cfg!(debug_assertions),
        is_static: cfg!(target_feature = "crt-static"),
    };
}

/// Shows what this controller is.
pub(super) async fn show(State(api): State<Api>, _reader: CanRead) -> Json<About> {
    Json(about_now(&api))
}

/// Returns the description of this controller, with the present state of its certificate.
pub(super) fn about_now(api: &Api) -> About {
    let tls = api.tls.as_ref().map(|certificates| certificates.state().into());
    About { tls, ..About::clone(&api.about) }
}
