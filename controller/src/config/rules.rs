//! Rules between settings. A rule checks only valid values; an invalid value is reported elsewhere and hides no other
//! problem.

use std::net::SocketAddr;

use crate::auth::AuthMode;
use provision::step_names;

use super::definition::Setting;
use super::error::Problem;
use super::load::RawSettings;
use super::suggest::nearest;
use super::table::{
    AUTH_MODE, AUTH_NONE_ALLOW_REMOTE, BASIC_PASS_HASH, BASIC_USER, CONTROLLER_CA_FILE, CONTROLLER_HTTP_ADDR,
    CONTROLLER_PUBLIC_URL, JOB_LEASE_TTL, JOB_STUCK_TIMEOUT, JWT_SECRET, MEDIA_HTTP_ADDR, STEP_TIMEOUTS,
    WEBHOOK_SECRET, WEBHOOK_SECRET_OLD,
};
use super::values::duration_text;

/// Returns the problem of every rule that is violated.
pub(super) fn check(raw: &RawSettings) -> Vec<Problem> {
    [
        user_and_hash(raw),
        jwt_has_its_key(raw),
        open_only_on_loopback(raw),
        previous_has_a_current(raw),
        listeners_differ(raw),
        ca_belongs_to_https(raw),
        steps_exist(raw),
        job_outlasts_its_lease(raw),
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
    let needed = raw.get(&AUTH_MODE) == Some(AuthMode::Jwt) && !raw.is_set(&JWT_SECRET);
    needed
        .then(|| at(raw, &AUTH_MODE, "AUTH_MODE=jwt needs JWT_SECRET; set it to env:NAME or file:PATH"))
        .flatten()
}

fn open_only_on_loopback(raw: &RawSettings) -> Option<Problem> {
    let open = raw.get(&AUTH_MODE) == Some(AuthMode::None) && raw.get(&AUTH_NONE_ALLOW_REMOTE) == Some(false);
    let address = raw.get(&CONTROLLER_HTTP_ADDR)?;
    (open && !address.ip().is_loopback())
        .then(|| {
            let message = format!(
                "AUTH_MODE=none makes every client that reaches {address} an administrator; listen on loopback \
             (CONTROLLER_HTTP_ADDR=127.0.0.1:{}) or set AUTH_NONE_ALLOW_REMOTE=true",
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

fn listeners_differ(raw: &RawSettings) -> Option<Problem> {
    let (main, media) = (raw.get(&CONTROLLER_HTTP_ADDR)?, raw.get(&MEDIA_HTTP_ADDR)?);
    collide(main, media).then(|| {
        let message = format!(
            "MEDIA_HTTP_ADDR {media} collides with CONTROLLER_HTTP_ADDR {main}; give another port, or omit it: then \
             media share CONTROLLER_HTTP_ADDR"
        );
        at(raw, &MEDIA_HTTP_ADDR, message)
    })
    .flatten()
}

fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let overlap = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && overlap
}

fn ca_belongs_to_https(raw: &RawSettings) -> Option<Problem> {
    let idle = raw.is_set(&CONTROLLER_CA_FILE)
        && !raw.get(&CONTROLLER_PUBLIC_URL).is_some_and(|url| url.starts_with("https:"));
    idle.then(|| {
        let message = "CONTROLLER_CA_FILE has no effect without CONTROLLER_PUBLIC_URL=https://…; set the URL or omit the file";
        at(raw, &CONTROLLER_CA_FILE, message)
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
