//! The requests of an operator to a running controller: reload, and a line about its state.
//!
//! ```text
//!  settings, read again and checked --reload--> users, keys, shared report secrets, authorities of BMCs,
//!                                          |    the certificate of the TLS listeners, revocation lists     in force at once
//!                                          `--> any other setting that differs       reported, in force after a restart
//! ```
//!
//! The files of the registry (`REGISTRY_HTPASSWD_FILE`, `REGISTRY_ACCESS_FILE`) and of TLS are watched and need no reload. The log filter
//! is global to the process and changed by the caller.
//!
//! Invariant: a reload that cannot be applied completely changes nothing.

use super::{RunningController, StartError, controller, purposes, setting};
use access::audit::{AuditAction, record};
use keys::ReportSource;
use model::audit::{ActorKind, AuditActor};
use model::{JobStatus, error_chain};
use settings::Settings;
use telemetry::{REQUESTED, dropped_log_lines};

/// The settings that a reload puts in force.
const RELOADED: [&str; 14] = [
    "BASIC_USER",
    "BASIC_PASS_HASH",
    "JWT_SECRET",
    "JWT_PUBLIC_KEY_FILE",
    "JWT_JWKS",
    "JWT_CA_FILE",
    "JWT_ISSUER",
    "JWT_AUDIENCE",
    "JWT_ROLE_CLAIM",
    "JWT_ROLES",
    "WEBHOOK_SECRET",
    "WEBHOOK_SECRET_OLD",
    "REDFISH_CA_FILE",
    "LOG_LEVEL",
];

impl RunningController {
    /// Puts new settings in force as far as that is possible without a restart. Returns the names of the other settings that
    /// differ from those of the start.
    ///
    /// # Errors
    /// When a file or key that a setting names cannot be used; then nothing has changed.
    pub fn reload(&self, settings: &Settings) -> Result<Vec<&'static str>, StartError> {
        purposes::check(settings)?;
        let users = controller::auth_config(settings)?;
        let users = self.parts.api.auth.check(users).map_err(setting("set up authentication"))?;
        let authorities = controller::bmc_authorities(settings)?;
        let public = controller::controller_authorities(settings)?;
        let api = &self.parts.api;
        let reporters = api.report_certificates.as_ref();
        let revoked = reporters
            .map(|certificates| certificates.read_lists())
            .transpose()
            .map_err(setting("use REPORT_CLIENT_CRL_FILE"))?;
        // A rotation may have replaced the files of the report secrets while the other files were read.
        let renewal = api.report_renewal.lock();
        let report_source = ReportSource::of(settings);
        let secrets = controller::report_secrets(&report_source, self.parts.clock.now())?;
        // The last part that can be refused: it is in force when it is accepted.
        if let Some(certificates) = &self.certificates {
            certificates.reload().map_err(setting("use TLS_CERT_FILE and TLS_KEY_FILE"))?;
        }
        api.auth.apply(users);
        // The next rotation, and the end of its overlap, use the files of these settings.
        api.keys.use_report_source(report_source);
        *api.report_secrets.write() = secrets;
        drop(renewal);
        if let (Some(certificates), Some(revoked)) = (reporters, revoked) {
            certificates.apply(revoked);
        }
        api.services.bmc.connections.trust(authorities);
        api.workers.trust(controller::authorities_of(settings));
        let trusted = controller::machine_authorities(public.as_deref(), self.certificates.as_deref());
        let before = self.parts.settings.show();
        let differ = before.iter().zip(settings.show()).filter(|(old, new)| {
            old.value != new.value
                || (old.name == "CONTROLLER_CA_FILE"
                    && public.is_some()
                    && (api.services.settings.controller_ca)() != trusted)
        });
        Ok(differ.map(|(old, _)| old.name).filter(|name| !RELOADED.contains(name)).collect())
    }

    /// Records a reload in the audit log. A reload is not undone when that fails; the log of the process says it.
    pub async fn record_reload(&self, result: &str) {
        let now = self.parts.clock.now();
        // A signal does not say which user sent it.
        let actor = AuditActor::new(ActorKind::Local, "local");
        let store = self.engine.store();
        let target = ("settings", "reload");
        let recorded = record(store, AuditAction::SettingsReload, &actor, target, result, now).await;
        if let Err(error) = recorded {
            tracing::error!(error = %error_chain(&error), "the reload was not stored in the audit log");
        }
    }

    /// Writes what the controller is and does now as one log line, which passes every filter.
    pub async fn log_state(&self) {
        let store = self.engine.store();
        let counts = store.job_counts().await.inspect_err(|error| {
            tracing::error!(target: REQUESTED, error = %error_chain(error), "the jobs cannot be counted");
        });
        let counts = counts.unwrap_or_default();
        let of = |wanted: JobStatus| -> u64 {
            counts.iter().filter(|count| count.status == wanted).map(|count| count.jobs).sum()
        };
        let drained = store.drained().await.is_ok_and(|closed| closed.is_some());
        let pressure = self.engine.pressure().map_or_else(|| "none".to_owned(), |pressure| pressure.name);
        let about = &self.parts.api.about;
        tracing::info!(
            target: REQUESTED,
            version = about.version,
            instance = about.instance,
            started_at = %about.started_at,
            schema_version = about.schema_version,
            api = %self.api,
            media = %self.media,
            active_runs = self.engine.active_runs(),
            queued = of(JobStatus::Queued),
            provisioning = of(JobStatus::Provisioning),
            running = of(JobStatus::Running),
            succeeded = of(JobStatus::Succeeded),
            failed = of(JobStatus::Failed),
            complete = of(JobStatus::Complete),
            drained,
            pressure,
            tasks = self.parts.work.len(),
            connection_tasks = self.parts.connections.len(),
            dropped_log_lines = dropped_log_lines(),
            "state of the controller"
        );
    }
}
