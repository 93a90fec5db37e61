//! Rules between settings. A rule checks only valid values; an invalid value is reported elsewhere and hides no other
//! problem.

use std::net::SocketAddr;

use access::auth::AuthMode;
use provision::step_names;

use super::backups::{BackupSchedule, BackupTarget};
use super::definition::Setting;
use super::error::Problem;
use super::load::RawSettings;
use super::suggest::nearest;
use super::table::{
    AUTH_MODE, AUTH_NONE_ALLOW_REMOTE, BACKUP_CA_FILE, BACKUP_REGISTRY_PASSWORD, BACKUP_REGISTRY_USER,
    BACKUP_SCHEDULE, BACKUP_TARGET, BASIC_PASS_HASH, BASIC_USER, CONTROLLER_CA_FILE, CONTROLLER_HTTP_ADDR,
    CONTROLLER_HTTPS_ADDR, CONTROLLER_PUBLIC_URL, EVENTS, EVENTS_CREDENTIALS_FILE, JOB_LEASE_TTL,
    JOB_STUCK_TIMEOUT, JWT_AUDIENCE, JWT_CA_FILE, JWT_ISSUER, JWT_JWKS, JWT_PUBLIC_KEY_FILE, JWT_SECRET,
    MEDIA_HTTP_ADDR, MEDIA_HTTPS_ADDR, REPORT_CERTIFICATES, REPORT_CLIENT_CA_FILE, REPORT_CLIENT_CRL_FILE,
    STEP_TIMEOUTS, TLS_CERT_FILE, TLS_KEY_FILE, TLS_NAMES, WEBHOOK_SECRET, WEBHOOK_SECRET_OLD,
};
use super::values::{KeySetLocation, Listener, duration_text};

/// Returns the problem of every rule that is violated.
pub(super) fn check(raw: &RawSettings) -> Vec<Problem> {
    [
        user_and_hash(raw),
        jwt_has_its_key(raw),
        jwt_has_its_mode(raw),
        public_keys_have_an_issuer(raw),
        key_set_has_an_authority(raw),
        open_only_on_loopback(raw),
        previous_has_a_current(raw),
        report_certificates_have_an_authority(raw),
        listeners_differ(raw),
        ca_belongs_to_https(raw),
        certificate_and_key(raw),
        names_or_certificate(raw),
        certificate_needs_a_listener(raw),
        steps_exist(raw),
        job_outlasts_its_lease(raw),
        backups_have_a_target(raw),
        backup_login(raw),
        backup_authority(raw),
        events_credentials(raw),
        events_authority(raw),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn at<T>(raw: &RawSettings, setting: &Setting<T>, message: impl Into<String>) -> Option<Problem> {
    Some(Problem::Conflict { origin: raw.origin(setting), message: message.into() })
}

fn user_and_hash(raw: &RawSettings) -> Option<Problem> {
    match (raw.is_set(&BASIC_USER), raw.is_set(&BASIC_PASS_HASH)) {
        (true, false) => at(raw, &BASIC_USER, "BASIC_USER has no password; set BASIC_PASS_HASH or omit both"),
        (false, true) => {
            at(raw, &BASIC_PASS_HASH, "BASIC_PASS_HASH has no user; set BASIC_USER or omit both")
        }
        _ => None,
    }
}

fn jwt_has_its_key(raw: &RawSettings) -> Option<Problem> {
    let key = raw.is_set(&JWT_SECRET) || raw.is_set(&JWT_PUBLIC_KEY_FILE) || raw.is_set(&JWT_JWKS);
    let needed = raw.get(&AUTH_MODE) == Some(AuthMode::Jwt) && !key;
    needed
        .then(|| {
            let message = "AUTH_MODE=jwt needs JWT_SECRET, JWT_PUBLIC_KEY_FILE or JWT_JWKS; set one of them";
            at(raw, &AUTH_MODE, message)
        })
        .flatten()
}

/// The keys of an issuer have no effect while the mode is another. The mistake is found at the start, not at the first login.
fn jwt_has_its_mode(raw: &RawSettings) -> Option<Problem> {
    let message =
        |name: &str| format!("{name} has no effect with AUTH_MODE=basic; set AUTH_MODE=jwt or omit {name}");
    if raw.get(&AUTH_MODE) != Some(AuthMode::Basic) {
        return None;
    }
    if raw.is_set(&JWT_SECRET) {
        return at(raw, &JWT_SECRET, message("JWT_SECRET"));
    }
    if raw.is_set(&JWT_JWKS) {
        return at(raw, &JWT_JWKS, message("JWT_JWKS"));
    }
    raw.is_set(&JWT_PUBLIC_KEY_FILE)
        .then(|| at(raw, &JWT_PUBLIC_KEY_FILE, message("JWT_PUBLIC_KEY_FILE")))
        .flatten()
}

/// The issuer that has the private key also signs tokens for other programs, in which the role claim means something else.
fn public_keys_have_an_issuer(raw: &RawSettings) -> Option<Problem> {
    let complete = raw.is_set(&JWT_ISSUER) && raw.is_set(&JWT_AUDIENCE);
    let why = "needs JWT_ISSUER and JWT_AUDIENCE: its issuer also signs tokens for other programs; set both";
    let message = |name: &str| format!("{name} {why}");
    match (raw.is_set(&JWT_JWKS), raw.is_set(&JWT_PUBLIC_KEY_FILE)) {
        (true, _) if !complete => at(raw, &JWT_JWKS, message("JWT_JWKS")),
        (false, true) if !complete => at(raw, &JWT_PUBLIC_KEY_FILE, message("JWT_PUBLIC_KEY_FILE")),
        _ => None,
    }
}

/// Checks that a key set that is fetched has an authority: without one, every token is refused as long as the controller runs.
fn key_set_has_an_authority(raw: &RawSettings) -> Option<Problem> {
    let fetched = matches!(raw.get(&JWT_JWKS), Some(KeySetLocation::Url(_)));
    match (fetched, raw.is_set(&JWT_CA_FILE)) {
        (true, false) if !raw.is_set(&CONTROLLER_CA_FILE) => {
            let message = "JWT_JWKS is a URL, and no authority of its server is given; set JWT_CA_FILE, for a public issuer to \
                           the file of the system, such as /etc/ssl/certs/ca-certificates.crt";
            at(raw, &JWT_JWKS, message)
        }
        (false, true) => {
            let message =
                "JWT_CA_FILE has no effect without a JWT_JWKS that is a URL; set it or omit the file";
            at(raw, &JWT_CA_FILE, message)
        }
        _ => None,
    }
}

fn open_only_on_loopback(raw: &RawSettings) -> Option<Problem> {
    let open = raw.get(&AUTH_MODE) == Some(AuthMode::None) && raw.get(&AUTH_NONE_ALLOW_REMOTE) == Some(false);
    let listeners = [
        ("CONTROLLER_HTTP_ADDR", raw.get(&CONTROLLER_HTTP_ADDR)),
        ("CONTROLLER_HTTPS_ADDR", raw.get(&CONTROLLER_HTTPS_ADDR).and_then(Listener::address)),
    ];
    let reached = listeners.into_iter().filter_map(|(name, address)| Some((name, address?)));
    let (name, address) = reached.into_iter().find(|(_, address)| !address.ip().is_loopback())?;
    open.then(|| {
        let message = format!(
            "AUTH_MODE=none makes every client that reaches {address} an administrator; listen on loopback \
             ({name}=127.0.0.1:{}) or set AUTH_NONE_ALLOW_REMOTE=true",
            address.port()
        );
        at(raw, &AUTH_MODE, message)
    })
    .flatten()
}

fn previous_has_a_current(raw: &RawSettings) -> Option<Problem> {
    let alone = raw.is_set(&WEBHOOK_SECRET_OLD) && !raw.is_set(&WEBHOOK_SECRET);
    alone.then(|| {
        let message = "WEBHOOK_SECRET_OLD is accepted in addition to WEBHOOK_SECRET, which is not set; set it or omit both";
        at(raw, &WEBHOOK_SECRET_OLD, message)
    })
    .flatten()
}

fn report_certificates_have_an_authority(raw: &RawSettings) -> Option<Problem> {
    let off = raw.get(&CONTROLLER_HTTPS_ADDR) == Some(Listener::Off);
    match (raw.is_set(&REPORT_CLIENT_CA_FILE), raw.is_set(&REPORT_CERTIFICATES)) {
        (false, true) => {
            let message =
                "REPORT_CERTIFICATES has no effect without REPORT_CLIENT_CA_FILE; set it or omit both";
            at(raw, &REPORT_CERTIFICATES, message)
        }
        (false, false) if raw.is_set(&REPORT_CLIENT_CRL_FILE) => {
            let message =
                "REPORT_CLIENT_CRL_FILE has no effect without REPORT_CLIENT_CA_FILE; set it or omit both";
            at(raw, &REPORT_CLIENT_CRL_FILE, message)
        }
        (true, _) if off => {
            let message = "REPORT_CLIENT_CA_FILE has no effect with CONTROLLER_HTTPS_ADDR=off; set an address or omit the file";
            at(raw, &REPORT_CLIENT_CA_FILE, message)
        }
        _ => None,
    }
}

fn listeners_differ(raw: &RawSettings) -> Option<Problem> {
    let listeners = [
        (&CONTROLLER_HTTP_ADDR.definition, raw.get(&CONTROLLER_HTTP_ADDR)),
        (&CONTROLLER_HTTPS_ADDR.definition, raw.get(&CONTROLLER_HTTPS_ADDR).and_then(Listener::address)),
        (&MEDIA_HTTP_ADDR.definition, raw.get(&MEDIA_HTTP_ADDR)),
        (&MEDIA_HTTPS_ADDR.definition, raw.get(&MEDIA_HTTPS_ADDR)),
    ];
    for (at, (later, other)) in listeners.iter().enumerate() {
        for (former, one) in &listeners[..at] {
            let (Some(one), Some(other)) = (one, other) else { continue };
            if collide(*one, *other) {
                let message = format!(
                    "{} {other} collides with {} {one}; give another port, or omit the setting of media: then they share the \
                     address of the controller",
                    later.name, former.name
                );
                return Some(Problem::Conflict { origin: raw.origin_of(later), message });
            }
        }
    }
    None
}

fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let overlap = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && overlap
}

fn ca_belongs_to_https(raw: &RawSettings) -> Option<Problem> {
    let tls = raw.get(&CONTROLLER_HTTPS_ADDR).is_none_or(|listener| listener != Listener::Off);
    let https = raw.get(&CONTROLLER_PUBLIC_URL).map_or(tls, |url| url.starts_with("https:"));
    let idle = raw.is_set(&CONTROLLER_CA_FILE) && !https;
    idle.then(|| {
        let message = "CONTROLLER_CA_FILE has no effect while machines reach the controller by http; set \
                       CONTROLLER_PUBLIC_URL=https://… or omit the file";
        at(raw, &CONTROLLER_CA_FILE, message)
    })
    .flatten()
}

fn certificate_and_key(raw: &RawSettings) -> Option<Problem> {
    match (raw.is_set(&TLS_CERT_FILE), raw.is_set(&TLS_KEY_FILE)) {
        (true, false) => at(raw, &TLS_CERT_FILE, "TLS_CERT_FILE has no key; set TLS_KEY_FILE or omit both"),
        (false, true) => {
            at(raw, &TLS_KEY_FILE, "TLS_KEY_FILE has no certificate; set TLS_CERT_FILE or omit both")
        }
        _ => None,
    }
}

fn names_or_certificate(raw: &RawSettings) -> Option<Problem> {
    let both = raw.is_set(&TLS_NAMES) && raw.is_set(&TLS_CERT_FILE);
    both.then(|| {
        let message = "TLS_NAMES has no effect with TLS_CERT_FILE, whose certificate has names of its own; omit one of them";
        at(raw, &TLS_NAMES, message)
    })
    .flatten()
}

fn certificate_needs_a_listener(raw: &RawSettings) -> Option<Problem> {
    let off = raw.get(&CONTROLLER_HTTPS_ADDR) == Some(Listener::Off) && !raw.is_set(&MEDIA_HTTPS_ADDR);
    (off && raw.is_set(&TLS_CERT_FILE))
        .then(|| {
            let message = "TLS_CERT_FILE has no effect with CONTROLLER_HTTPS_ADDR=off and without MEDIA_HTTPS_ADDR; set an \
                           address or omit the certificate";
            at(raw, &TLS_CERT_FILE, message)
        })
        .flatten()
}

fn steps_exist(raw: &RawSettings) -> Option<Problem> {
    let times = raw.get(&STEP_TIMEOUTS)?;
    let unknown = times.iter().filter(|(step, _)| !step_names().any(|known| known == step));
    let unknown: Vec<String> = unknown
        .map(|(step, _)| {
            let meant = nearest(step, step_names()).map(|meant| format!(" (did you mean {meant}?)"));
            format!("{step}{}", meant.unwrap_or_default())
        })
        .collect();
    if unknown.is_empty() {
        return None;
    }
    let known = step_names().collect::<Vec<_>>().join(", ");
    at(raw, &STEP_TIMEOUTS, format!("there is no step {}; the steps are {known}", unknown.join(", ")))
}

fn job_outlasts_its_lease(raw: &RawSettings) -> Option<Problem> {
    let (lease, job) = (raw.get(&JOB_LEASE_TTL)?, raw.get(&JOB_STUCK_TIMEOUT)?);
    (job <= lease).then(|| {
        let message = format!(
            "JOB_STUCK_TIMEOUT {} ends a job before its first lease of {} ends; give more than JOB_LEASE_TTL",
            duration_text(job),
            duration_text(lease)
        );
        at(raw, &JOB_STUCK_TIMEOUT, message)
    })
    .flatten()
}

fn backups_have_a_target(raw: &RawSettings) -> Option<Problem> {
    let scheduled = raw.get(&BACKUP_SCHEDULE).is_some_and(|schedule| schedule != BackupSchedule::Off);
    (scheduled && !raw.is_set(&BACKUP_TARGET))
        .then(|| at(raw, &BACKUP_SCHEDULE, "BACKUP_SCHEDULE needs BACKUP_TARGET; set it or omit both"))
        .flatten()
}

fn backup_login(raw: &RawSettings) -> Option<Problem> {
    let target = match raw.get(&BACKUP_TARGET) {
        Some(BackupTarget::Registry(target)) => Some(target),
        Some(BackupTarget::Folder(_)) | None => None,
    };
    match (raw.is_set(&BACKUP_REGISTRY_USER), raw.is_set(&BACKUP_REGISTRY_PASSWORD), target) {
        (true, false, _) => {
            let message = "BACKUP_REGISTRY_USER has no password; set BACKUP_REGISTRY_PASSWORD or omit both";
            at(raw, &BACKUP_REGISTRY_USER, message)
        }
        (false, true, _) => {
            let message = "BACKUP_REGISTRY_PASSWORD has no user; set BACKUP_REGISTRY_USER or omit both";
            at(raw, &BACKUP_REGISTRY_PASSWORD, message)
        }
        (true, true, Some(target)) if target.is_plain() && !target.is_local() => {
            let message = "BACKUP_REGISTRY_PASSWORD would cross the network in the clear; give BACKUP_TARGET as oci:// (HTTPS)";
            at(raw, &BACKUP_REGISTRY_PASSWORD, message)
        }
        _ => None,
    }
}

/// Checks that backups over HTTPS have an authority: without one no certificate is trusted, and every backup fails.
fn backup_authority(raw: &RawSettings) -> Option<Problem> {
    let target = raw.get(&BACKUP_TARGET)?;
    let encrypted = matches!(&target, BackupTarget::Registry(target) if !target.is_plain());
    match (encrypted, raw.is_set(&BACKUP_CA_FILE)) {
        (true, false) if !raw.is_set(&CONTROLLER_CA_FILE) => {
            let message = "BACKUP_TARGET is reached by HTTPS, and no authority of its registry is given; set BACKUP_CA_FILE";
            at(raw, &BACKUP_TARGET, message)
        }
        (false, true) => {
            let message = "BACKUP_CA_FILE has no effect while BACKUP_TARGET is not reached by HTTPS; omit it";
            at(raw, &BACKUP_CA_FILE, message)
        }
        _ => None,
    }
}

fn events_credentials(raw: &RawSettings) -> Option<Problem> {
    (raw.is_set(&EVENTS_CREDENTIALS_FILE) && !raw.is_set(&EVENTS))
        .then(|| {
            let message = "EVENTS_CREDENTIALS_FILE has no effect without EVENTS; set it or omit the file";
            at(raw, &EVENTS_CREDENTIALS_FILE, message)
        })
        .flatten()
}

/// Checks that events over TLS have an authority: without one no certificate is trusted, and no connection is made.
fn events_authority(raw: &RawSettings) -> Option<Problem> {
    let encrypted = raw.get(&EVENTS)?.is_tls();
    (encrypted && !raw.is_set(&CONTROLLER_CA_FILE))
        .then(|| {
            let message =
                "EVENTS is reached by TLS, and no authority of its server is given; set CONTROLLER_CA_FILE";
            at(raw, &EVENTS, message)
        })
        .flatten()
}
