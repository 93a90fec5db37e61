//! The table of all settings of the controller. A new setting is one row of it.
//!
//! ```text
//! /// The description for operators.
//! VARIABLE field: Type = default, Kind, parser;
//!                        "text"                       the field has the type; the text is parsed like any other
//!                        (STORAGE_ROOT / "path")      the field has the type; the path is below the data directory
//!                        unset                        the field is an Option of the type
//!                        empty                        the field has the type, a list, and is empty
//! ```
//!
//! From a row follow the setting itself, its place in [`SETTINGS`], its field of [`Settings`] and the line that loads it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use ipnet::IpNet;
use nats_carrier::ServerUrl;
use registry::{ImmutableTags, Quota, RepositoryPattern, RetentionRule};
use strum::VariantNames;

use access::auth::{AuthMode, CertificateEntry, Networks, RoleEntry, TrustedProxies};
use secrets::SecretSource;

use super::backups::{self, BackupSchedule, BackupTarget};
use super::definition::{AnySetting, Definition, Setting, SettingDefault, SettingKind};
use super::error::ConfigErrors;
use super::load::RawSettings;
use super::values::{self, KeySetLocation, Listener, LogFormat, TaskIsoMode};
use super::{LONGEST_STEP_CALL, Shown, images};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The maximum width of a line of a description in the reference.
const REFERENCE_WIDTH: usize = 100;

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// The minimum of `JOB_LEASE_TTL`: a lease must not end during a call of a step.
const MIN_LEASE: Duration = seconds(LONGEST_STEP_CALL.as_secs() + 1);

/// Declares the settings; the module documentation describes a row.
macro_rules! settings {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $field:ident: $type:ty = $default:tt,
            $kind:ident $({ $($bounds:tt)* })? $(($($form:tt)*))?, $parse:path $(, flag $alias:literal)?;
    )+) => {
        $(
            const _: () = assert!(stringify!($name).eq_ignore_ascii_case(stringify!($field)));

            pub(super) static $name: Setting<$type> = Setting {
                definition: Definition {
                    name: stringify!($name),
                    kind: SettingKind::$kind $({ $($bounds)* })? $(($($form)*))?,
                    default: settings!(@default $default),
                    doc: concat!($($doc),+).trim_ascii_start(),
                    flag_alias: settings!(@alias $($alias)?),
                },
                parse: $parse,
            };
        )+

        /// The settings in the order of the reference.
        pub(super) static SETTINGS: [&dyn AnySetting; [$(stringify!($name)),+].len()] = [$(&$name),+];

        /// The validated settings of a controller.
        #[derive(Clone, Debug)]
        pub struct Settings {
            $($(#[doc = $doc])+ pub $field: settings!(@type $default $type),)+
            pub(super) shown: Vec<Shown>,
        }

        impl Settings {
            /// Parses the texts, which have been checked.
            pub(super) fn parse(raw: &RawSettings) -> Result<Self, ConfigErrors> {
                Ok(Self {
                    $($field: settings!(@value $default raw.get(&$name), raw.required(&$name)),)+
                    shown: raw.show(),
                })
            }
        }
    };
    (@default unset) => { SettingDefault::Unset };
    (@default empty) => { SettingDefault::Unset };
    (@default (STORAGE_ROOT / $path:literal)) => { SettingDefault::UnderStorageRoot($path) };
    (@default $text:literal) => { SettingDefault::Text($text) };
    (@type unset $type:ty) => { Option<$type> };
    (@type $default:tt $type:ty) => { $type };
    (@value unset $get:expr, $required:expr) => { $get };
    (@value empty $get:expr, $required:expr) => { $get.unwrap_or_default() };
    (@value $default:tt $get:expr, $required:expr) => { $required? };
    (@alias) => { None };
    (@alias $alias:literal) => { Some($alias) };
}

settings! {
    /// The address on which API, registry and media listen with TLS, or off. The default :8443 means
    /// 0.0.0.0:8443, all IPv4 addresses.
    CONTROLLER_HTTPS_ADDR controller_https_addr: Listener = ":8443", Listener, values::listener;
    /// The address for plain HTTP, where media listen unless MEDIA_HTTP_ADDR is set. Clients on this machine
    /// also reach API and registry there; others only with CONTROLLER_HTTP_ALLOW_REMOTE.
    CONTROLLER_HTTP_ADDR controller_http_addr: SocketAddr = ":8080", Address, values::address;
    /// Serves API and registry over plain HTTP to clients on other machines too, for example to a TLS proxy.
    /// Passwords and tokens then cross the network in the clear.
    CONTROLLER_HTTP_ALLOW_REMOTE controller_http_allow_remote: bool = "false", Switch, values::switch;
    /// A separate plain HTTP address for media, for example :80 for BMCs that support no other port. Unset:
    /// media share CONTROLLER_HTTP_ADDR.
    MEDIA_HTTP_ADDR media_http_addr: SocketAddr = unset, Address, values::address;
    /// A separate address for media with TLS, for example :443, for BMCs that read media over HTTPS only.
    /// Unset: media share CONTROLLER_HTTPS_ADDR.
    MEDIA_HTTPS_ADDR media_https_addr: SocketAddr = unset, Address, values::address;
    /// The certificate of the TLS listeners as PEM, followed by those of its intermediate authorities. A
    /// change is read without a restart. Unset: a certificate of the own authority in STORAGE_ROOT/tls.
    TLS_CERT_FILE tls_cert_file: PathBuf = unset, Path, values::path;
    /// The private key of TLS_CERT_FILE as PEM, without a passphrase.
    TLS_KEY_FILE tls_key_file: PathBuf = unset, Path, values::path;
    /// Further names and addresses of the own certificate, for example those of a load balancer. It always
    /// names this host, its addresses and the hosts of CONTROLLER_PUBLIC_URL and MEDIA_BASE_URL.
    TLS_NAMES tls_names: Vec<String> = empty, Entries("host"), values::host_names;
    /// The base of the media URLs that BMCs receive. Unset: the local address from which the controller
    /// reaches the BMC, with https for BMCs that read nothing else. A server can override it.
    MEDIA_BASE_URL media_base_url: String = unset, BaseUrl, values::base_url;
    /// How long a signed URL of a task image is valid after POST /api/v1/jobs/ID/media-url. An expiry ends new
    /// requests; a response that has begun is sent to its end. BMCs do not use such URLs: what they receive is
    /// valid as long as their job uses media.
    MEDIA_URL_TTL media_url_ttl: Duration =
        "30m", Duration { min: seconds(60), max: seconds(86_400) }, values::duration;
    /// Addresses and networks whose clients read /media/tasks/ID/task.iso without a login, for example that of
    /// the BMCs. The image holds the secrets of its job. Addresses of TRUSTED_PROXIES never count. Unset: a
    /// login or a signed URL is needed.
    MEDIA_ALLOW_CIDRS media_allow_cidrs: Networks =
        empty, Entries("ADDRESS or NETWORK/BITS"), values::networks;
    /// The base URL at which the maintenance OS reaches API and registry. Unset: https at the local address
    /// from which the controller reaches the BMC. Set it when a proxy is in front of the controller.
    CONTROLLER_PUBLIC_URL controller_public_url: String = unset, BaseUrl, values::base_url;
    /// Addresses and networks of reverse proxies. Only from them is the address of the client taken from
    /// Forwarded or X-Forwarded-For, for limits, audit and logs. Unset: every client behind a proxy has the
    /// address of the proxy.
    TRUSTED_PROXIES trusted_proxies: TrustedProxies =
        empty, Entries("ADDRESS or NETWORK/BITS"), values::trusted_proxies;
    /// PEM certificates that the maintenance OS trusts for an https controller. Without TLS_CERT_FILE it trusts
    /// the own authority too. Unset: the own authority, or the last certificate of TLS_CERT_FILE. The controller
    /// trusts the file, and nothing else, for https images and webhooks.
    CONTROLLER_CA_FILE controller_ca_file: PathBuf = unset, Path, values::path;
    /// The data directory: database, images, keys. An empty directory is enough to start.
    STORAGE_ROOT storage_root: PathBuf = "/var/lib/shoal", Path, values::path, flag "data";
    /// The database file. It must be on a local file system, because SQLite cannot rely on locks of network
    /// file systems.
    DB_PATH db_path: PathBuf = (STORAGE_ROOT / "provisioner.db"), Path, values::path;
    /// The directory for task images with TASK_ISO_MODE=file. The files contain secrets of their jobs.
    TASK_ISO_DIR task_iso_dir: PathBuf = (STORAGE_ROOT / "task-isos"), Path, values::path;
    /// computed: task images are computed when a BMC reads them and not written to disk. file: they are also
    /// written to TASK_ISO_DIR, for inspection.
    TASK_ISO_MODE task_iso_mode: TaskIsoMode = "computed", Choice(TaskIsoMode::VARIANTS), values::choice;
    /// The maintenance image of jobs that name none: an absolute path, a file:, http: or https: URL, or
    /// oci:REPOSITORY:TAG of the controller's own registry. Unset: such jobs are refused, except
    /// install-esxi.target.
    MAINTENANCE_ISO_URL maintenance_iso_url: String = unset, ImageUrl, values::image_url;
    /// The installer image of install-esxi.target jobs that name none: an absolute path, a file:, http: or
    /// https: URL, or oci:REPOSITORY:TAG of the controller's own registry. Unset: such jobs are refused.
    ESXI_INSTALLER_URL esxi_installer_url: String = unset, ImageUrl, values::image_url;
    /// The folder from which jobs may name images by a local path. Other paths are refused, except those of
    /// MAINTENANCE_ISO_URL and ESXI_INSTALLER_URL.
    IMAGE_DIR image_dir: PathBuf = (STORAGE_ROOT / "images"), Path, values::path;
    /// Addresses that the controller may fetch images from and post webhooks to although they are loopback,
    /// link-local, multicast, reserved or of a metadata service, for example 127.0.0.0/8,::1/128.
    FETCH_ALLOW_CIDRS fetch_allow_cidrs: Vec<IpNet> = empty, Entries("ADDRESS/BITS"), images::cidrs;
    /// Enables the OCI registry under /v2/. With false, recipes can only use images of other registries.
    ENABLE_REGISTRY enable_registry: bool = "true", Switch, values::switch;
    /// The directory of the registry: one OCI image layout per repository. It can be on another disk than
    /// STORAGE_ROOT.
    REGISTRY_STORAGE registry_storage: PathBuf = (STORAGE_ROOT / "oci"), Path, values::path;
    /// Maximum size of one blob. A larger upload is refused, so that one push cannot fill the disk.
    REGISTRY_MAX_BLOB_SIZE registry_max_blob_size: u64 =
        "20GiB", Size { min: MIB, max: 16 * 1024 * GIB }, values::size;
    /// Free space that pushes leave on the disk of the registry: a size, or a share of the disk such as 2%. A push
    /// that would use it is refused. Pushes at one time may use a quarter of it, 16 MiB at most, before that.
    REGISTRY_RESERVE registry_reserve: String = "64MiB", Reserve, values::reserve;
    /// Time between two garbage collections of the registry, which remove content that no image needs. Each
    /// one also applies REGISTRY_RETENTION.
    REGISTRY_GC_INTERVAL registry_gc_interval: Duration =
        "1h", Duration { min: seconds(60), max: seconds(90 * 86_400) }, values::duration;
    /// Time that unreferenced content is kept after its last push or request. It must be longer than the pause
    /// between two requests of one push. While a push is under way, content of the last 24 h is kept.
    REGISTRY_GC_GRACE_PERIOD registry_gc_grace_period: Duration =
        "1h", Duration { min: seconds(0), max: seconds(90 * 86_400) }, values::duration;
    /// Garbage collection also removes images without a tag once REGISTRY_GC_GRACE_PERIOD has passed. With
    /// false they stay until they are deleted.
    REGISTRY_GC_UNTAGGED registry_gc_untagged: bool = "false", Switch, values::switch;
    /// Time between two scrubs of the registry. A scrub hashes all content again and moves corrupted content
    /// to quarantine.
    REGISTRY_SCRUB_INTERVAL registry_scrub_interval: Duration =
        "7d", Duration { min: seconds(3600), max: seconds(365 * 86_400) }, values::duration;
    /// Maximum bytes that a scrub reads per second. The default leaves the disk free for pushes and pulls; a
    /// higher rate finishes a scrub earlier.
    REGISTRY_SCRUB_RATE registry_scrub_rate: u64 = "32MiB", Size { min: MIB, max: 16 * GIB }, values::size;
    /// Tags to keep, applied after each REGISTRY_GC_INTERVAL. The first entry that matches a tag decides; tags
    /// that no entry matches stay. Unset: all tags stay.
    REGISTRY_RETENTION registry_retention: Vec<RetentionRule> =
        empty, Entries("repositories:tags newest=N younger=DURATION"), images::retention;
    /// Maximum bytes of all repositories that match a pattern, for example os-images/**=500GiB,
    /// tools/**=20GiB. A push over a quota is refused. Unset: no quotas.
    REGISTRY_QUOTAS registry_quotas: Vec<Quota> = empty, Entries("repositories=SIZE"), images::quotas;
    /// Refuses pushes and deletes from the start of the controller. `shoal registry read-only on` does so
    /// while it runs.
    REGISTRY_READ_ONLY registry_read_only: bool = "false", Switch, values::switch;
    /// A file of further registry users made with `htpasswd -B`. A change is read without a restart. Unset:
    /// only users and API tokens of the controller.
    REGISTRY_HTPASSWD_FILE registry_htpasswd_file: PathBuf = unset, Path, values::path;
    /// A file of access rules for the registry, one rule per line. A change is read without a restart. Unset:
    /// administrators have full access, other users may pull.
    REGISTRY_ACCESS_FILE registry_access_file: PathBuf = unset, Path, values::path;
    /// Allows pulls without login where no rule of REGISTRY_ACCESS_FILE matches. Images may contain secrets,
    /// so the default denies it.
    REGISTRY_ANONYMOUS_READ registry_anonymous_read: bool = "false", Switch, values::switch;
    /// Allows pushes without login where no rule of REGISTRY_ACCESS_FILE matches. Every client on the network
    /// can then replace images that machines install.
    REGISTRY_ANONYMOUS_WRITE registry_anonymous_write: bool = "false", Switch, values::switch;
    /// Tags that can be neither moved nor deleted once they exist, nor anything of their images, for example
    /// os-images/**:v*. Retention keeps them. Unset: every tag can change.
    REGISTRY_IMMUTABLE_TAGS registry_immutable_tags: Vec<ImmutableTags> =
        empty, Entries("repositories:tags"), images::immutable_tags;
    /// Repositories that accept an image although some of its blobs are missing, for partial mirrors, for
    /// example mirror/**. Unset: an image needs all its blobs.
    REGISTRY_SPARSE_IMAGES registry_sparse_images: Vec<RepositoryPattern> =
        empty, Entries("repositories"), images::repositories;
    /// How API callers authenticate: basic (user and password), jwt (tokens of another system), none
    /// (every caller is an administrator; loopback only). API tokens work in every mode.
    AUTH_MODE auth_mode: AuthMode = "basic", Choice(AuthMode::VARIANTS), values::choice;
    /// Allows AUTH_MODE=none on addresses other than loopback. Every client that reaches the address is then
    /// an administrator.
    AUTH_NONE_ALLOW_REMOTE auth_none_allow_remote: bool = "false", Switch, values::switch;
    /// Name of an administrator for AUTH_MODE=basic. It needs BASIC_PASS_HASH and takes precedence over a
    /// stored user of this name.
    BASIC_USER basic_user: String = unset, UserName, values::user_name;
    /// The password of BASIC_USER as an argon2id hash in PHC form ($argon2id$v=19$m=...).
    BASIC_PASS_HASH basic_pass_hash: String = unset, PasswordHash, values::password_hash;
    /// The HS256 key for AUTH_MODE=jwt, at least 32 bytes, as RFC 7518 requires. A new key invalidates all
    /// tokens signed with the old one.
    JWT_SECRET jwt_secret: SecretSource = unset, Secret, values::secret;
    /// Time without a request after which a web session ends and a browser must log in again.
    SESSION_IDLE_TIME session_idle_time: Duration =
        "1h", Duration { min: seconds(300), max: seconds(30 * 86_400) }, values::duration;
    /// Time after its login at which a web session ends, however much it is used.
    SESSION_LIFETIME session_lifetime: Duration =
        "12h", Duration { min: seconds(300), max: seconds(90 * 86_400) }, values::duration;
    /// A file of PEM public keys for AUTH_MODE=jwt: RSA (RS256), P-256 (ES256) or Ed25519 (EdDSA). It needs
    /// JWT_ISSUER and JWT_AUDIENCE.
    JWT_PUBLIC_KEY_FILE jwt_public_key_file: PathBuf = unset, Path, values::path;
    /// The JSON Web Key Set of the issuer of tokens for AUTH_MODE=jwt: an absolute path or an https: URL. A URL
    /// is read when a token needs it, every 10 minutes, and at once for a new kid. It needs JWT_ISSUER and
    /// JWT_AUDIENCE.
    JWT_JWKS jwt_jwks: KeySetLocation = unset, KeySet, values::key_set;
    /// PEM certificates of the authorities of the server of JWT_JWKS; no others are trusted. For a public issuer the file
    /// of the system, such as /etc/ssl/certs/ca-certificates.crt. Unset: CONTROLLER_CA_FILE.
    JWT_CA_FILE jwt_ca_file: PathBuf = unset, Path, values::path;
    /// The issuer that a token must name (iss). Unset: any, for tokens of JWT_SECRET.
    JWT_ISSUER jwt_issuer: String = unset, Text, values::text;
    /// The audience that a token must name (aud). Unset: a token with an audience must name shoal, for tokens
    /// of JWT_SECRET.
    JWT_AUDIENCE jwt_audience: String = unset, Text, values::text;
    /// The claim of a token that contains its role, or a list of roles. Dots lead into objects, for example
    /// realm_access.roles.
    JWT_ROLE_CLAIM jwt_role_claim: String = "role", Text, values::text;
    /// The values of JWT_ROLE_CLAIM that are roles, for example shoal-admins=admin,staff=viewer. Of several
    /// the one with most rights counts; other values give no right. Unset: admin, operator and viewer.
    JWT_ROLES jwt_roles: Vec<RoleEntry> = empty, Entries("VALUE=ROLE"), values::jwt_roles;
    /// A shared secret for installation reports of systems that cannot read the token in job.json. Unset: only
    /// the report token of each job is accepted.
    WEBHOOK_SECRET webhook_secret: SecretSource = unset, Secret, values::secret;
    /// The previous WEBHOOK_SECRET, accepted in addition while the secret is replaced. Remove it when all
    /// systems use the new one.
    WEBHOOK_SECRET_OLD webhook_secret_old: SecretSource = unset, Secret, values::secret;
    /// PEM certificates of authorities whose client certificates may report: each for the server whose serial
    /// number it names (CN, serialNumber or DNS name). Unset: clients are not asked for a certificate.
    REPORT_CLIENT_CA_FILE report_client_ca_file: PathBuf = unset, Path, values::path;
    /// Certificate revocation lists of these authorities, in PEM or one in DER, followed when the file changes. Set: a
    /// certificate is refused if it is revoked, or if no list of its authority is in the file or it has expired.
    REPORT_CLIENT_CRL_FILE report_client_crl_file: PathBuf = unset, Path, values::path;
    /// Names of client certificates and the server each reports for, for example installer.example=SN-1. A
    /// name in the list stands for nothing else.
    REPORT_CERTIFICATES report_certificates: Vec<CertificateEntry> =
        empty, Entries("NAME=SERIAL"), values::report_certificates;
    /// The key that seals credentials: 64 hex digits; former keys may follow it while records are sealed again. Unset: created
    /// once in STORAGE_ROOT/master.key. If it is lost, BMC passwords must be entered again.
    MASTER_KEY master_key: SecretSource = unset, Secret, values::secret;
    /// Serves /metrics without login. Metrics name routes and repositories, so the default requires a login.
    METRICS_ANONYMOUS metrics_anonymous: bool = "false", Switch, values::switch;
    /// Maximum size of a request body of the API; larger requests receive status 413. Registry uploads have
    /// REGISTRY_MAX_BLOB_SIZE instead.
    MAX_BODY_BYTES max_body_bytes: usize = "8MiB", Size { min: 64 << 10, max: 256 * MIB }, values::memory;
    /// Maximum number of steps that run at once. A job that waits occupies no worker, so a few are enough.
    /// With 0 jobs are accepted and none starts or continues; cancelled jobs still end and clean up.
    WORKER_CONCURRENCY worker_concurrency: usize = "4", Count { min: 0, max: 1024 }, values::count;
    /// Maximum number of hosts that power on at once, for example to limit the inrush current. A host counts
    /// from the request until it reads its boot image or POWER_ON_SETTLE has passed. 0 is no limit.
    MAX_POWER_ONS max_power_ons: u32 = "0", Count { min: 0, max: 100_000 }, values::small_count;
    /// Time that a host counts for MAX_POWER_ONS after its power-on, unless it reads its boot image earlier. A
    /// longer time starts the hosts of a large batch more slowly.
    POWER_ON_SETTLE power_on_settle: Duration =
        "2m", Duration { min: seconds(1), max: seconds(3600) }, values::duration;
    /// Maximum number of jobs in progress among servers with an equal label `site`; others stay queued. 0 is
    /// no limit.
    SITE_LIMIT site_limit: u32 = "0", Count { min: 0, max: 100_000 }, values::small_count;
    /// Time limits of steps, waits included, that replace the built-in ones, for example
    /// webhook.wait=90m,redfish.mount.task=5m. A step that exceeds its limit fails the job. A job keeps the limits for ejecting and mounting that
    /// it had when its BMC was discovered.
    STEP_TIMEOUTS step_timeouts: Vec<(String, Duration)> = empty, StepTimes, values::step_times;
    /// Timeout of one read from a BMC. Slow operations such as inserting media have longer fixed timeouts.
    REDFISH_TIMEOUT redfish_timeout: Duration =
        "30s", Duration { min: seconds(1), max: seconds(120) }, values::duration;
    /// Maximum attempts of a step that uses a BMC before the step fails; cleanup steps have four times as
    /// many. 0 counts as 1. A change is read back before it is requested again.
    REDFISH_RETRIES redfish_retries: u32 = "5", Count { min: 0, max: 20 }, values::small_count;
    /// Maximum average of requests per second to one BMC; after a pause four times as many are sent at once. A
    /// higher rate can overload slow BMCs. 0 is no limit.
    REDFISH_RATE redfish_rate: u32 = "10", Count { min: 0, max: 1000 }, values::small_count;
    /// Maximum number of requests in flight to all BMCs together. One BMC has at most two in flight, and only
    /// one of them changes something.
    REDFISH_MAX_IN_FLIGHT redfish_max_in_flight: usize = "256", Count { min: 1, max: 65_536 }, values::count;
    /// Number of requests in a row without a response after which the circuit of a BMC opens: no request is
    /// sent and its jobs wait. 0: never.
    REDFISH_BREAKER_FAILURES redfish_breaker_failures: u32 =
        "5", Count { min: 0, max: 1000 }, values::small_count;
    /// Time that the circuit of a BMC stays open before one request tests the BMC.
    REDFISH_BREAKER_OPEN_TIME redfish_breaker_open_time: Duration =
        "30s", Duration { min: seconds(1), max: seconds(3600) }, values::duration;
    /// PEM certificates of the authorities that sign BMC certificates, for servers registered with `--tls
    /// verify`. Servers with pinned certificates need none.
    REDFISH_CA_FILE redfish_ca_file: PathBuf = unset, Path, values::path;
    /// Time for which a worker keeps a job without progress, for example while the database cannot be written.
    /// Then another worker takes the job over. The minimum outlasts the longest call of a step. A start does
    /// not wait for this time: a controller takes over the jobs of its predecessor at once.
    JOB_LEASE_TTL job_lease_ttl: Duration =
        "10m", Duration { min: MIN_LEASE, max: seconds(86_400) }, values::duration;
    /// Time limit of a job from its acceptance to its outcome, time in the queue included. A job that exceeds
    /// it fails and is cleaned up.
    JOB_STUCK_TIMEOUT job_stuck_timeout: Duration =
        "4h", Duration { min: seconds(60), max: seconds(30 * 86_400) }, values::duration;
    /// Time after power-on in which no observation counts as the end of an installer that cannot report
    /// (ESXi). Restarts during the installation would otherwise end the job too early.
    INSTALL_MIN_TIME install_min_time: Duration =
        "10m", Duration { min: seconds(60), max: seconds(86_400) }, values::duration;
    /// Time to wait for an observation that an installer that cannot report (ESXi) has ended. Without one the
    /// job is recorded as succeeded with completion `assumed` and a warning.
    INSTALL_WINDOW install_window: Duration =
        "90m", Duration { min: seconds(60), max: seconds(7 * 86_400) }, values::duration;
    /// Time limit of the cleanup of a job. What remains is recorded as pending cleanup, and the next job of
    /// the server does it.
    CLEANUP_TIMEOUT cleanup_timeout: Duration =
        "10m", Duration { min: seconds(10), max: seconds(86_400) }, values::duration;
    /// Days after its end that a job is kept with its events and its idempotency key. 0: never deleted.
    JOB_RETENTION_DAYS job_retention_days: u32 = "90", Count { min: 0, max: 3650 }, values::small_count;
    /// Days that an entry of the audit log is kept. 0: no limit. Pruned entries leave an anchor from which the rest verifies.
    AUDIT_RETENTION_DAYS audit_retention_days: u32 = "400", Count { min: 0, max: 3650 }, values::small_count;
    /// The largest number of entries of the audit log (some 500 bytes each); the oldest are pruned.
    AUDIT_MAX_ENTRIES audit_max_entries: u32 = "1000000", Count { min: 10_000, max: 100_000_000 },
        values::small_count;
    /// When the controller makes a backup of its data: off, an interval after the last one such as 24h, or a time of day in
    /// UTC such as 03:30. A backup that was missed while the controller was down is made soon after the start.
    BACKUP_SCHEDULE backup_schedule: BackupSchedule = "off", Schedule, backups::schedule;
    /// Where backups are kept: the absolute path of a folder that exists, on another disk than the data, or a repository
    /// of an OCI registry, oci://HOST[:PORT]/REPOSITORY (oci+http:// for plain HTTP). Unset: no backups, except by
    /// `shoal backup DIRECTORY`.
    BACKUP_TARGET backup_target: BackupTarget = unset, BackupTarget, backups::target;
    /// The number of backups that are kept. Older ones that this controller made are removed after each backup, never the
    /// newest one that is not damaged.
    BACKUP_KEEP backup_keep: usize = "7", Count { min: 1, max: 1000 }, values::count;
    /// The user of the registry of BACKUP_TARGET. It needs BACKUP_REGISTRY_PASSWORD.
    BACKUP_REGISTRY_USER backup_registry_user: String = unset, Text, values::text;
    /// The password of BACKUP_REGISTRY_USER. Unset: the registry needs no login.
    BACKUP_REGISTRY_PASSWORD backup_registry_password: SecretSource = unset, Secret, values::secret;
    /// PEM certificates of the authorities of the registry of BACKUP_TARGET; no others are trusted. Unset:
    /// CONTROLLER_CA_FILE.
    BACKUP_CA_FILE backup_ca_file: PathBuf = unset, Path, values::path;
    /// The NATS server to which events and wake-ups are published: nats://HOST[:PORT], or tls://HOST[:PORT] for TLS with the
    /// authorities of CONTROLLER_CA_FILE. Its loss adds latency only. Unset: none.
    EVENTS events: ServerUrl = unset, NatsServer, values::nats_server;
    /// The file with the credentials for EVENTS: a .creds file, or one line with USER:PASSWORD, an NKEY seed or a token.
    EVENTS_CREDENTIALS_FILE events_credentials_file: PathBuf = unset, Path, values::path;
    /// Log filter: error, warn, info, debug or trace, or levels for parts of the program such as
    /// info,engine=debug.
    LOG_LEVEL log_level: String = "info", LogFilter, values::log_filter;
    /// Format of log lines on standard error. auto: text on a terminal, JSON otherwise.
    LOG_FORMAT log_format: LogFormat = "auto", Choice(LogFormat::VARIANTS), values::choice;
}

/// The rows of the table.
pub static DEFINITIONS: LazyLock<Vec<&'static Definition>> =
    LazyLock::new(|| SETTINGS.iter().map(|setting| setting.definition()).collect());

/// The table as text, for `shoal config reference`.
pub fn reference() -> String {
    let mut text = String::from(
        "Settings of the controller. Precedence: flag, environment variable, configuration file, default.\n",
    );
    for definition in DEFINITIONS.iter() {
        let alias = definition.flag_alias.map(|alias| format!(", --{alias}")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n{}\n{}    flag --{}{alias}   file key {}   kind {}   default {}\n",
            definition.name,
            wrapped(definition.doc),
            definition.flag(),
            definition.key(),
            definition.kind,
            definition.default,
        );
    }
    text
}

/// Breaks a description into indented lines.
fn wrapped(doc: &str) -> String {
    let mut lines = vec![String::new()];
    for word in doc.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => *line = format!("    {word}"),
            Some(line) if line.len() + 1 + word.len() <= REFERENCE_WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("    {word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
