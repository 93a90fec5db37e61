//! What settings demand of each other. Each rule judges the values it can read; one that cannot be read is a problem
//! already and hides no other.

use std::net::SocketAddr;

use crate::auth::AuthMode;

use super::LONGEST_STEP_CALL;
use super::definition::Setting;
use super::error::Problem;
use super::load::RawSettings;
use super::table::{
    AUTH_MODE, AUTH_NONE_ALLOW_REMOTE, BASIC_PASS_HASH, BASIC_USER, CONTROLLER_CA_FILE, CONTROLLER_HTTP_ADDR,
    CONTROLLER_PUBLIC_URL, JOB_LEASE_TTL, JOB_STUCK_TIMEOUT, JWT_SECRET, MEDIA_HTTP_ADDR, WEBHOOK_SECRET,
    WEBHOOK_SECRET_OLD,
};
use super::values::duration_text;

/// Every rule that is broken.
pub(super) fn check(texts: &RawSettings) -> Vec<Problem> {
    [
        user_and_hash(texts),
        jwt_has_its_key(texts),
        open_only_on_loopback(texts),
        previous_has_a_current(texts),
        listeners_differ(texts),
        ca_belongs_to_https(texts),
        lease_outlasts_a_call(texts),
        job_outlasts_its_lease(texts),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn at<T>(texts: &RawSettings, setting: &Setting<T>, message: impl Into<String>) -> Option<Problem> {
    Some(Problem::Together { origin: texts.origin(setting), message: message.into() })
}

fn user_and_hash(texts: &RawSettings) -> Option<Problem> {
    match (texts.is_set(&BASIC_USER), texts.is_set(&BASIC_PASS_HASH)) {
        (true, false) => {
            at(texts, &BASIC_USER, "BASIC_USER has no password; set BASIC_PASS_HASH or leave both out")
        }
        (false, true) => {
            at(texts, &BASIC_PASS_HASH, "BASIC_PASS_HASH belongs to nobody; set BASIC_USER or leave both out")
        }
        _ => None,
    }
}

fn jwt_has_its_key(texts: &RawSettings) -> Option<Problem> {
    let needed = texts.get(&AUTH_MODE) == Some(AuthMode::Jwt) && !texts.is_set(&JWT_SECRET);
    needed
        .then(|| at(texts, &AUTH_MODE, "AUTH_MODE=jwt needs JWT_SECRET; set it to env:NAME or file:PATH"))
        .flatten()
}

fn open_only_on_loopback(texts: &RawSettings) -> Option<Problem> {
    let open =
        texts.get(&AUTH_MODE) == Some(AuthMode::None) && texts.get(&AUTH_NONE_ALLOW_REMOTE) == Some(false);
    let address = texts.get(&CONTROLLER_HTTP_ADDR)?;
    (open && !address.ip().is_loopback())
        .then(|| {
            let message = format!(
                "AUTH_MODE=none makes everybody who reaches {address} an administrator; listen on loopback \
             (CONTROLLER_HTTP_ADDR=127.0.0.1:{}) or set AUTH_NONE_ALLOW_REMOTE=true",
                address.port()
            );
            at(texts, &AUTH_MODE, message)
        })
        .flatten()
}

fn previous_has_a_current(texts: &RawSettings) -> Option<Problem> {
    let alone = texts.is_set(&WEBHOOK_SECRET_OLD) && !texts.is_set(&WEBHOOK_SECRET);
    alone.then(|| {
        let message = "WEBHOOK_SECRET_OLD is accepted beside WEBHOOK_SECRET, which is not set; set it, or leave both out";
        at(texts, &WEBHOOK_SECRET_OLD, message)
    })
    .flatten()
}

fn listeners_differ(texts: &RawSettings) -> Option<Problem> {
    let (main, media) = (texts.get(&CONTROLLER_HTTP_ADDR)?, texts.get(&MEDIA_HTTP_ADDR)?);
    collide(main, media).then(|| {
        let message = format!(
            "MEDIA_HTTP_ADDR {media} collides with CONTROLLER_HTTP_ADDR {main}; choose another port, or leave it \
             out to have media there"
        );
        at(texts, &MEDIA_HTTP_ADDR, message)
    })
    .flatten()
}

fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let overlap = one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && overlap
}

fn ca_belongs_to_https(texts: &RawSettings) -> Option<Problem> {
    let idle = texts.is_set(&CONTROLLER_CA_FILE)
        && !texts.get(&CONTROLLER_PUBLIC_URL).is_some_and(|url| url.starts_with("https:"));
    idle.then(|| {
        let message = "CONTROLLER_CA_FILE is of no use without CONTROLLER_PUBLIC_URL=https://…; set that, or leave it out";
        at(texts, &CONTROLLER_CA_FILE, message)
    })
    .flatten()
}

fn lease_outlasts_a_call(texts: &RawSettings) -> Option<Problem> {
    let lease = texts.get(&JOB_LEASE_TTL)?;
    (lease <= LONGEST_STEP_CALL)
        .then(|| {
            let message = format!(
                "JOB_LEASE_TTL {} could end in the middle of a step; give more than {}",
                duration_text(lease),
                duration_text(LONGEST_STEP_CALL)
            );
            at(texts, &JOB_LEASE_TTL, message)
        })
        .flatten()
}

fn job_outlasts_its_lease(texts: &RawSettings) -> Option<Problem> {
    let (lease, job) = (texts.get(&JOB_LEASE_TTL)?, texts.get(&JOB_STUCK_TIMEOUT)?);
    (job <= lease).then(|| {
        let message = format!(
            "JOB_STUCK_TIMEOUT {} ends a job before its first lease of {} could; give more than JOB_LEASE_TTL",
            duration_text(job),
            duration_text(lease)
        );
        at(texts, &JOB_STUCK_TIMEOUT, message)
    })
    .flatten()
}
