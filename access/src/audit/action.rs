//! The actions of the audit log: a closed set of stable names.

use axum::http::Method;

macro_rules! actions {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// An action that the audit log records.
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        pub enum AuditAction {
            $($(#[$doc])* $variant,)*
        }

        impl AuditAction {
            /// All actions.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable name of the action, such as `user.create`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

actions! {
    /// A job was created.
    JobCreate = "job.create";
    /// A job was cancelled.
    JobCancel = "job.cancel";
    /// A job was held.
    JobHold = "job.hold";
    /// A held job was resumed.
    JobResume = "job.resume";
    /// The rescue session of a job was ended.
    JobFinish = "job.finish";
    /// A job was created with the request of an ended one.
    JobRetry = "job.retry";
    /// The jobs of a filter were cancelled.
    JobsCancel = "jobs.cancel";
    /// A batch was created with the ended jobs of a filter.
    JobsRetry = "jobs.retry";
    /// A signed URL of a task image was issued.
    JobMediaUrl = "job.media-url";
    /// An installation reported its result.
    JobReport = "job.report";
    /// A batch was created.
    BatchCreate = "batch.create";
    /// The jobs of a batch were cancelled.
    BatchCancel = "batch.cancel";
    /// A batch that had stopped was continued.
    BatchContinue = "batch.continue";
    /// A batch was created with the failed jobs of another one.
    BatchRetry = "batch.retry";
    /// A server was registered.
    ServerCreate = "server.create";
    /// Servers were registered by one request.
    ServerImport = "server.import";
    /// The record of a server was changed.
    ServerChange = "server.change";
    /// A server was deleted.
    ServerRemove = "server.remove";
    /// The maintenance of a server began.
    ServerMaintenance = "server.maintenance";
    /// The maintenance of a server ended.
    ServerMaintenanceEnd = "server.maintenance-end";
    /// A BMC was probed.
    ServerProbe = "server.probe";
    /// Diagnostics of a BMC were requested.
    ServerDiagnostics = "server.diagnostics";
    /// A condition of a server was requested.
    ServerCondition = "server.condition";
    /// A server of restored data was released.
    ServerRelease = "server.release";
    /// All servers of restored data were released.
    ControllerRelease = "controller.release";
    /// A drain began.
    ControllerDrain = "controller.drain";
    /// A drain ended.
    ControllerDrainEnd = "controller.drain-end";
    /// The log filter was changed.
    ControllerLogLevel = "controller.log-level";
    /// A user was created.
    UserCreate = "user.create";
    /// The role or state of a user, or the password by an administrator, was changed.
    UserChange = "user.change";
    /// A user of restored data was confirmed.
    UserConfirm = "user.confirm";
    /// A user changed the own password.
    UserPassword = "user.password";
    /// A user was removed.
    UserRemove = "user.remove";
    /// An API token was created.
    TokenCreate = "token.create";
    /// An API token got another text.
    TokenRotate = "token.rotate";
    /// An API token of restored data was confirmed.
    TokenConfirm = "token.confirm";
    /// An API token was revoked.
    TokenRevoke = "token.revoke";
    /// The token of a worker was created.
    WorkerTokenCreate = "worker-token.create";
    /// The token of a worker was revoked.
    WorkerTokenRevoke = "worker-token.revoke";
    /// A browser logged in.
    SessionCreate = "session.create";
    /// Web sessions were ended.
    SessionEnd = "session.end";
    /// A step of the rotation of a key was carried out.
    SecretRotate = "secret.rotate";
    /// A webhook was created.
    WebhookCreate = "webhook.create";
    /// A webhook was removed.
    WebhookRemove = "webhook.remove";
    /// A webhook was enabled.
    WebhookEnable = "webhook.enable";
    /// A webhook was disabled.
    WebhookDisable = "webhook.disable";
    /// Dead letters of a webhook were delivered again.
    WebhookRedeliver = "webhook.redeliver";
    /// A test delivery of a webhook was sent.
    WebhookTest = "webhook.test";
    /// A firmware file was added.
    FirmwareAdd = "firmware.add";
    /// A firmware file was removed.
    FirmwareRemove = "firmware.remove";
    /// A firmware set was created.
    FirmwareSetCreate = "firmware-set.create";
    /// A firmware set was deleted.
    FirmwareSetDelete = "firmware-set.delete";
    /// A blob was pushed.
    RegistryPushBlob = "registry.push-blob";
    /// A blob was mounted from another repository.
    RegistryMountBlob = "registry.mount-blob";
    /// A manifest was pushed.
    RegistryPushManifest = "registry.push-manifest";
    /// A tag was set.
    RegistryPushTag = "registry.push-tag";
    /// A blob was deleted.
    RegistryDeleteBlob = "registry.delete-blob";
    /// A manifest was deleted.
    RegistryDeleteManifest = "registry.delete-manifest";
    /// A tag was deleted.
    RegistryDeleteTag = "registry.delete-tag";
    /// A request to the registry was refused.
    RegistryRefused = "registry.refused";
    /// Garbage of the registry was collected.
    RegistryCollect = "registry.gc";
    /// Tags that retention does not keep were removed.
    RegistryRetain = "registry.retain";
    /// The content of the registry was hashed again.
    RegistryScrub = "registry.scrub";
    /// The registry became read-only.
    RegistryReadOnly = "registry.read-only";
    /// The registry accepts changes again.
    RegistryReadOnlyEnd = "registry.read-only-end";
    /// An upload session was cancelled.
    RegistryCancelUpload = "registry.cancel-upload";
    /// Images were imported on the machine of the controller.
    RegistryImport = "registry.import";
    /// The indexes of the registry were rebuilt on the machine of the controller.
    RegistryRebuild = "registry.rebuild";
    /// Settings were reloaded.
    SettingsReload = "settings.reload";
    /// A support bundle was made.
    SupportBundle = "support.bundle";
    /// A backup was requested.
    BackupRequest = "backup.request";
    /// The verification of a backup was requested.
    BackupVerify = "backup.verify";
    /// A backup was made.
    DataBackup = "data.backup";
    /// A backup was restored into this data directory.
    DataRestore = "data.restore";
    /// A read was refused.
    Read = "api.read";
    /// Refused attempts of more sources than are recorded one by one.
    RefusedOthers = "api.refused-others";
    /// The oldest entries were pruned.
    AuditPrune = "audit.prune";
}

impl AuditAction {
    /// The action of a request to a route of the API; `None` for a read.
    pub fn of_route(method: &Method, route: &str) -> Option<Self> {
        Some(match (method.as_str(), route.strip_prefix("/api/v1/")?) {
            ("POST", "jobs") => Self::JobCreate,
            ("POST", "jobs/{id}/cancel") => Self::JobCancel,
            ("POST", "jobs/{id}/hold") => Self::JobHold,
            ("POST", "jobs/{id}/resume") => Self::JobResume,
            ("POST", "jobs/{id}/finish") => Self::JobFinish,
            ("POST", "jobs/{id}/retry") => Self::JobRetry,
            ("POST", "jobs/{id}/media-url") => Self::JobMediaUrl,
            ("POST", "status-webhook/{serial}") => Self::JobReport,
            ("POST", "job-selections/cancel") => Self::JobsCancel,
            ("POST", "job-selections/retry") => Self::JobsRetry,
            ("POST", "batches") => Self::BatchCreate,
            ("POST", "batches/{id}/cancel") => Self::BatchCancel,
            ("POST", "batches/{id}/continue") => Self::BatchContinue,
            ("POST", "batches/{id}/retry") => Self::BatchRetry,
            ("POST", "server-imports") => Self::ServerImport,
            ("POST", "servers") => Self::ServerCreate,
            ("PATCH", "servers/{serial}") => Self::ServerChange,
            ("DELETE", "servers/{serial}") => Self::ServerRemove,
            ("POST", "servers/{serial}/maintenance") => Self::ServerMaintenance,
            ("DELETE", "servers/{serial}/maintenance") => Self::ServerMaintenanceEnd,
            ("POST", "servers/{serial}/probe") => Self::ServerProbe,
            ("POST", "servers/{serial}/diagnostics") => Self::ServerDiagnostics,
            ("POST", "servers/{serial}/condition") => Self::ServerCondition,
            ("POST", "servers/{serial}/release") => Self::ServerRelease,
            ("POST", "restored/release") => Self::ControllerRelease,
            ("POST", "drain") => Self::ControllerDrain,
            ("DELETE", "drain") => Self::ControllerDrainEnd,
            ("POST" | "DELETE", "log-level") => Self::ControllerLogLevel,
            ("POST", "users") => Self::UserCreate,
            ("PATCH", "users/{name}") => Self::UserChange,
            ("POST", "users/{name}/confirm") => Self::UserConfirm,
            ("DELETE", "users/{name}") => Self::UserRemove,
            ("POST", "me/password") => Self::UserPassword,
            ("POST", "tokens") => Self::TokenCreate,
            ("POST", "tokens/{name}/rotate") => Self::TokenRotate,
            ("POST", "tokens/{name}/confirm") => Self::TokenConfirm,
            ("DELETE", "tokens/{name}") => Self::TokenRevoke,
            ("POST", "worker-tokens") => Self::WorkerTokenCreate,
            ("DELETE", "worker-tokens/{name}") => Self::WorkerTokenRevoke,
            ("POST", "session") => Self::SessionCreate,
            ("DELETE", "session" | "sessions" | "sessions/{id}" | "users/{name}/sessions") => {
                Self::SessionEnd
            }
            ("POST", "secrets/{name}/rotate") => Self::SecretRotate,
            ("POST", "webhooks") => Self::WebhookCreate,
            ("DELETE", "webhooks/{id}") => Self::WebhookRemove,
            ("POST", "webhooks/{id}/enable") => Self::WebhookEnable,
            ("POST", "webhooks/{id}/disable") => Self::WebhookDisable,
            ("POST", "webhooks/{id}/dead-letters/redeliver") => Self::WebhookRedeliver,
            ("POST", "webhooks/{id}/test") => Self::WebhookTest,
            ("POST", "firmware") => Self::FirmwareAdd,
            ("DELETE", "firmware/{digest}") => Self::FirmwareRemove,
            ("POST", "firmware-sets") => Self::FirmwareSetCreate,
            ("DELETE", "firmware-sets/{name}") => Self::FirmwareSetDelete,
            ("POST", "backups") => Self::BackupRequest,
            ("POST", "backups/{name}/verify") => Self::BackupVerify,
            ("POST", "support-bundle") => Self::SupportBundle,
            ("POST", "registry/gc") => Self::RegistryCollect,
            ("POST", "registry/retention") => Self::RegistryRetain,
            ("POST", "registry/scrub") => Self::RegistryScrub,
            ("POST", "registry/read-only") => Self::RegistryReadOnly,
            ("DELETE", "registry/read-only") => Self::RegistryReadOnlyEnd,
            ("DELETE", "registry/repositories/{name}/tags/{tag}") => Self::RegistryDeleteTag,
            ("DELETE", "registry/uploads/{id}") => Self::RegistryCancelUpload,
            _ => return None,
        })
    }

    /// The kind of the target that the path of a route names.
    pub fn target_of_route(route: &str) -> &'static str {
        let mut segments = route.strip_prefix("/api/v1/").unwrap_or_default().split('/');
        match segments.next() {
            Some("jobs") => "job",
            Some("batches") => "batch",
            Some("servers" | "status-webhook") => "server",
            Some("users") => "user",
            Some("tokens") => "token",
            Some("worker-tokens") => "worker-token",
            Some("sessions") => "session",
            Some("secrets") => "secret",
            Some("webhooks") => "webhook",
            Some("registry") if segments.next() == Some("repositories") => "repository",
            Some("registry") => "upload",
            Some("backups") => "backup",
            Some("firmware") => "firmware",
            Some("firmware-sets") => "firmware-set",
            _ => "route",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actions_are_those_of_the_golden_list() {
        let list: String = AuditAction::ALL.iter().map(|action| format!("{}\n", action.as_str())).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/audit-actions.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &list).unwrap();
        }
        assert_eq!(list, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }

    #[test]
    fn the_engine_records_a_pruning_under_a_name_of_this_list() {
        assert_eq!(AuditAction::AuditPrune.as_str(), model::audit::PRUNED);
    }
}
