//! `POST /api/v1/status-webhook/{serial}`: the report of the maintenance OS (docs/maintenance-os.md).
//!
//! A report is accepted with the token of the job. A maintenance OS without job token sends a report-only API token, the shared
//! secret, or a client certificate that names the server. A report with a job's token applies to that job only, so a report of
//! an old job never ends a newer one (decision D12). A report-only token with labels reports for servers with them only.

use std::net::IpAddr;

use axum::Json;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::error::{ApiError, Detail, too_many};
use super::error_code::{ErrorCode, Rule};
use super::extract::{Peer, SerialPath, read_body};
use super::{request_audit, visible};
use access::auth::{Denial, ReportAuth, Standing, prove, verify_report_secret};
use access::tls::PresentedCertificate;
use model::audit::{ActorKind, AuditActor};
use model::{Job, Serial};
use provision::{InstallReport, ReportOutcome, parse_report};
use secrets::token_hash;
use telemetry::request_span;

/// The largest report, in bytes.
const MAX_REPORT: usize = 64 * 1024;

/// The response to a stored report.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReportAccepted {
    /// Always true.
    ok: bool,
    /// Present and true if the report was stored before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    idempotent: bool,
}

/// Accepts an installation report. A 2xx response is sent after the report is stored.
pub(super) async fn report(
    State(api): State<Api>,
    Peer(peer): Peer,
    SerialPath(serial): SerialPath,
    headers: HeaderMap,
    request: Request,
) -> Result<Json<ReportAccepted>, ApiError> {
    let now = api.now().timestamp();
    let certified = certified(&api, &request, &serial, peer)?;
    let presented = headers.get("x-webhook-secret").and_then(|value| value.to_str().ok());
    let own = match presented {
        Some(token) => api.store().job_of_token(&serial, &token_hash(token)).await?,
        None => None,
    };
    let record = own.as_ref().and_then(|job| job.provision.as_ref());
    let stored = record.map(|record| record.report_token_hash.as_str());
    let mut auth = verify_report_secret(presented, stored, &api.report_secrets.read());
    let mut by = "maintenance-os".to_owned();
    let mut reporter = AuditActor::unknown();
    if auth == ReportAuth::Wrong
        && let Some(text) = presented
        && let Some(token) = api.auth.report_token(text, now).await.map_err(|_| unavailable())?
    {
        visible::server(&api, &token.servers(), &serial).await?;
        auth = ReportAuth::ReportToken;
        reporter = token.actor();
        by = token.name;
    }
    if auth == ReportAuth::Missing
        && let Some(name) = certified
    {
        auth = ReportAuth::Certificate;
        reporter = AuditActor::new(ActorKind::Certificate, &name);
        by = format!("certificate {name}");
    }
    if matches!(auth, ReportAuth::Missing | ReportAuth::Wrong) {
        // Only wrong secrets are limited: one installer with a wrong secret must not block other machines behind its address.
        api.report_failures.check(peer, now).map_err(|limited| too_many(limited.retry_after))?;
        api.report_failures.record_failure(peer, now);
        api.auth.denials().denied(Denial::ReportSecret, peer, &"it belongs to no job of this server", now);
        return Err(ApiError::new(
            ErrorCode::Unauthorized,
            "X-Webhook-Secret must be the webhook_token of the job's job.json (or a report-only API token, or the configured shared secret)",
        ));
    }
    prove(Standing::Known);
    request_audit::by_actor(match (auth, own.as_ref()) {
        (ReportAuth::JobToken, Some(job)) => {
            AuditActor::new(ActorKind::Job, "report").with_id(&job.run.id.to_string())
        }
        (ReportAuth::ReportToken | ReportAuth::Certificate, _) => reporter,
        _ => AuditActor::new(ActorKind::Secret, "maintenance-os"),
    });
    let body = read_body(request, MAX_REPORT).await?;
    let report = parse_report(&body, presented).map_err(|why| {
        ApiError::invalid(vec![Detail::new(&format!("/{}", why.field()), Rule::Report, why.to_string())])
    })?;
    let job = addressed(&api, &serial, own, &report).await?;
    request_span::of_job(job.run.id, api.engine.owner());
    request_span::in_step(job.run.step.as_deref());
    match report.deliver(&api.engine, &job, &by).await? {
        ReportOutcome::Accepted { powered_on } => {
            powered_on.into_iter().for_each(|since| api.metrics.reported(api.now().since(since)));
            Ok(Json(ReportAccepted { ok: true, idempotent: false }))
        }
        ReportOutcome::Duplicate => Ok(Json(ReportAccepted { ok: true, idempotent: true })),
        ReportOutcome::Contradiction { first } => Err(ApiError::new(
            ErrorCode::ConflictReport,
            format!("the report contradicts the recorded outcome of job {}: {first}", job.run.id),
        )),
        ReportOutcome::OtherDisk { first } => Err(ApiError::new(
            ErrorCode::ConflictReport,
            format!("job {} has written another disk, {first}; it writes to no other one", job.run.id),
        )),
        ReportOutcome::Over { how } => Err(ApiError::new(
            ErrorCode::ConflictReport,
            format!("job {} is over ({how}): the machine writes nothing for it", job.run.id),
        )),
        ReportOutcome::NotStarted => Err(no_job(&serial)),
    }
}

/// The name by which a client certificate may report for this server; `None` without a certificate. One that is not accepted is
/// refused even beside a right secret.
fn certified(
    api: &Api,
    request: &Request,
    serial: &Serial,
    peer: IpAddr,
) -> Result<Option<String>, ApiError> {
    let presented = request.extensions().get::<PresentedCertificate>();
    let (Some(presented), Some(certificates)) = (presented, &api.report_certificates) else {
        return Ok(None);
    };
    let now = api.now().timestamp();
    certificates.reporter(presented, serial, api.clock().wall().timestamp()).map(Some).map_err(|refused| {
        if let Err(limited) = api.report_failures.check(peer, now) {
            return too_many(limited.retry_after);
        }
        api.report_failures.record_failure(peer, now);
        api.auth.denials().denied(Denial::ReportCertificate, peer, &refused, now);
        ApiError::new(
            ErrorCode::ReportCertificate,
            format!("the client certificate may not report for server {serial}: {refused}"),
        )
    })
}

/// The job of a report.
async fn addressed(
    api: &Api,
    serial: &Serial,
    own: Option<Job>,
    report: &InstallReport,
) -> Result<Job, ApiError> {
    let named = report.job_id().map(str::parse).transpose().map_err(|_| no_job(serial))?;
    match (own, named) {
        (Some(job), None) => Ok(job),
        (Some(job), Some(id)) if job.run.id == id => Ok(job),
        (Some(_), Some(_)) => {
            Err(ApiError::new(ErrorCode::ConflictJobId, "job_id in the report is not the job of its token"))
        }
        (None, Some(id)) => {
            let job = api.store().job(id).await?;
            let installs = |job: &Job| job.provision.as_ref().is_some_and(|record| record.server == *serial);
            job.filter(installs).ok_or_else(|| no_job(serial))
        }
        (None, None) => api.store().newest_installation(serial).await?.ok_or_else(|| no_job(serial)),
    }
}

fn unavailable() -> ApiError {
    ApiError::new(ErrorCode::Unavailable, "the secret cannot be checked now; see /readyz, then try again")
        .header(axum::http::header::RETRY_AFTER, "5")
}

fn no_job(serial: &Serial) -> ApiError {
    ApiError::new(ErrorCode::NoActiveJob, format!("no job of server {serial} waits for a report"))
}
