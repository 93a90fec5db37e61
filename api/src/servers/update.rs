//! `PATCH /api/v1/servers/{serial}`. With `dry_run` the request is checked and the changed server is returned, and nothing is stored.

use access::auth::Permission;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use serde::Deserialize;

use super::super::Api;
use super::super::error::{ApiError, Detail};
use super::super::error_code::{ErrorCode, Rule};
use super::super::extract::{CanWrite, JsonBody, Parameters, SerialPath, unknown_server};
use super::super::request_audit;
use super::change::ServerFields;
use super::password_reach::{PasswordReach, media_reach_another_host, password_reach};
use super::view::{self, ServerView};
use model::{NewEvent, RunId, Serial, Server};
use store::{CertificateChange, JobFilter, UpdatedServer};

/// The query of a change.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct UpdateQuery {
    dry_run: bool,
}

/// Changes a server. `If-Match` with the `ETag` of GET refuses the request after a concurrent change.
pub(crate) async fn update(
    State(api): State<Api>,
    CanWrite(principal): CanWrite,
    SerialPath(serial): SerialPath,
    Parameters(query): Parameters<UpdateQuery>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<(HeaderMap, Json<ServerView>), ApiError> {
    if query.dry_run {
        request_audit::changes_nothing();
    }
    let fields: ServerFields = body.read()?;
    if fields.serial.as_deref().is_some_and(|given| given != serial.as_str()) {
        return Err(ApiError::invalid(vec![Detail::new(
            "/serial",
            Rule::Const,
            "the serial number of a server cannot be changed",
        )]));
    }
    let existing = api.store().server(&serial).await?.ok_or_else(|| unknown_server(serial.as_str()))?;
    if let Some(expected) = headers.get(header::IF_MATCH) {
        let current = format!("\"{}\"", existing.revision);
        if expected != "*" && expected.as_bytes() != current.as_bytes() {
            return Err(changed_since(&existing));
        }
    }
    let mut server = existing.clone();
    let (knows_password, gives_fingerprint) = (fields.password().is_some(), fields.gives_fingerprint());
    fields.apply(&api, &mut server)?;
    server.updated_at = api.now();
    let moves = server.bmc_address != existing.bmc_address;
    let replaces_bmc = moves || server.tls_fingerprint != existing.tls_fingerprint;
    let active = if replaces_bmc { api.store().active_job(&serial).await? } else { None };
    if let Some(job) = active
        && (moves || !awaits_certificate(&api, &serial).await?)
    {
        return Err(in_use(&serial, job));
    }
    if knows_password {
        if moves && !gives_fingerprint {
            // Another address is another BMC, so the fingerprint of the old certificate is removed.
            server.tls_fingerprint = None;
        }
    } else {
        check_password_reach(&api, &existing, &server, gives_fingerprint).await?;
        if media_reach_another_host(&existing, &server) && !principal.allows(Permission::Administer) {
            return Err(password_needed(format!(
                "task images of server {serial}, with the secrets of its jobs, are not read from a host that an operator chooses: \
                 send bmc_password in the same request, or let an administrator change media_base_url"
            )));
        }
    }
    if query.dry_run {
        return Ok((view::etag(&existing), Json(ServerView::of(&server))));
    }
    // The first contact may pin a certificate meanwhile. A change that does not name the certificate leaves it; one that names it,
    // or another address, was decided by the one that was read.
    let certificate = match gives_fingerprint || moves {
        true => CertificateChange::Replace { from: existing.tls_fingerprint },
        false => CertificateChange::Keep,
    };
    let event = NewEvent::info("server.updated", format!("server {serial} changed")).by(&principal.name);
    match api.store().update_server(server, certificate, event, active).await? {
        UpdatedServer::Busy(job) => Err(in_use(&serial, job)),
        UpdatedServer::Updated(server) => Ok((view::etag(&server), Json(ServerView::of(&server)))),
        UpdatedServer::Moved(server) => Err(changed_since(&server)),
        UpdatedServer::Unknown => Err(unknown_server(serial.as_str())),
    }
}

/// Refuses a change after which another machine could receive the stored password. A BMC that moved keeps its pin.
async fn check_password_reach(
    api: &Api,
    existing: &Server,
    changed: &Server,
    gives_fingerprint: bool,
) -> Result<(), ApiError> {
    let why = match password_reach(existing, changed) {
        PasswordReach::Same => return Ok(()),
        PasswordReach::PinnedElsewhere if gives_fingerprint => return Ok(()),
        PasswordReach::PinnedElsewhere => {
            if api.services.bmc.connections.shows_pin(changed).await {
                return Ok(());
            }
            "the new address does not show the pinned certificate"
        }
        PasswordReach::Wider(why) => why,
    };
    let message = format!(
        "the stored password of server {} is not sent to a machine that the caller chooses: {why}; send bmc_password in the \
         same request",
        existing.serial
    );
    Err(password_needed(message))
}

fn password_needed(message: String) -> ApiError {
    ApiError::new(ErrorCode::BmcPasswordNeeded, message).detail(Detail::new(
        "/bmc_password",
        Rule::Required,
        "the password of the BMC is needed for this change",
    ))
}

fn in_use(serial: &Serial, job: RunId) -> ApiError {
    ApiError::new(
        ErrorCode::ConflictActiveJob,
        format!(
            "job {job} is active on server {serial}; change address or fingerprint of its BMC after the job has ended"
        ),
    )
}

fn changed_since(server: &Server) -> ApiError {
    ApiError::new(
        ErrorCode::PreconditionFailed,
        format!(
            "server {} has changed since it was read; read it again and repeat the change",
            server.serial
        ),
    )
}

/// Whether a restart of the BMC, by itself or in an update of its firmware, is held until an operator registers the certificate with which the BMC returned. Until then
/// nothing is sent to the BMC, so its fingerprint may change during the job.
async fn awaits_certificate(api: &Api, serial: &Serial) -> Result<bool, ApiError> {
    for workflow in [upkeep::BMC_RESET, upkeep::FIRMWARE_INSTALL, upkeep::BIOS_APPLY] {
        let filter = JobFilter {
            server: Some(serial.clone()),
            workflow: Some(workflow.to_owned()),
            limit: 1,
            ..JobFilter::default()
        };
        let newest = api.store().jobs(filter).await?.jobs.pop();
        let hold = newest.and_then(|job| job.run.hold);
        if hold.is_some_and(|hold| hold.class == upkeep::CERTIFICATE_CHANGED) {
            return Ok(true);
        }
    }
    Ok(false)
}
