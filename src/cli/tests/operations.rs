//! Every operation of the API has a command, or a reason why it has none: an operator needs no other client.

use std::collections::BTreeSet;

use serde_json::Value;

use super::without_json::commands;

/// The operations of the API with the command that uses each. In the order of `golden/openapi.json`.
const COMMANDS: &[(&str, &str)] = &[
    ("getAbout", "about"),
    ("listAudit", "audit list"),
    ("getBackupStatus", "backup status"),
    ("listBackups", "backup list"),
    ("createBackup", "backup now"),
    ("verifyBackup", "backup verify"),
    ("listBatches", "batch list"),
    ("createBatch", "batch create"),
    ("getBatch", "batch show"),
    ("cancelBatch", "batch cancel"),
    ("continueBatch", "batch continue"),
    ("retryBatch", "batch retry"),
    ("endDrain", "controller undrain"),
    ("getDrain", "controller status"),
    ("beginDrain", "controller drain"),
    ("listEvents", "event list"),
    ("listFirmware", "firmware list"),
    ("addFirmware", "firmware add"),
    ("matchFirmwareSet", "firmware set match"),
    ("listFirmwareSets", "firmware set list"),
    ("createFirmwareSet", "firmware set create"),
    ("deleteFirmwareSet", "firmware set delete"),
    ("getFirmwareSet", "firmware set show"),
    ("removeFirmware", "firmware remove"),
    ("getFirmware", "firmware show"),
    ("cancelJobs", "job cancel"),
    ("retryJobs", "job retry"),
    ("listJobs", "job list"),
    ("createJob", "job create"),
    ("getJob", "job show"),
    ("cancelJob", "job cancel"),
    ("listJobEvents", "job events"),
    ("explainJob", "job explain"),
    ("finishJob", "job finish"),
    ("holdJob", "job hold"),
    ("getJobLog", "job log"),
    ("getJobMedia", "job watch"),
    ("issueMediaUrl", "job media-url"),
    ("resumeJob", "job resume"),
    ("retryJob", "job retry"),
    ("resetLogLevel", "log level"),
    ("getLogLevel", "log level"),
    ("changeLogLevel", "log level"),
    ("getMe", "whoami"),
    ("setMyPassword", "user passwd"),
    ("listMedia", "media list"),
    ("getOverview", "top"),
    ("getRegistry", "registry status"),
    ("collectGarbage", "registry gc"),
    ("endRegistryReadOnly", "registry read-only"),
    ("beginRegistryReadOnly", "registry read-only"),
    ("listRepositories", "registry ls"),
    ("getRepository", "registry ls"),
    ("deleteTag", "registry delete"),
    ("retainTags", "registry retain"),
    ("scrubRegistry", "registry scrub"),
    ("listUploads", "registry uploads"),
    ("cancelUpload", "registry cancel-upload"),
    ("listRestored", "controller restored"),
    ("releaseAll", "controller release"),
    ("listSecrets", "secret list"),
    ("rotateSecret", "secret rotate"),
    ("importServers", "server import"),
    ("listServers", "server list"),
    ("createServer", "server add"),
    ("deleteServer", "server remove"),
    ("getServer", "server show"),
    ("updateServer", "server update"),
    ("getServerBios", "server bios show"),
    ("getCard", "bmc probe"),
    ("createServerCondition", "server power-cycle"),
    ("listServerConditions", "server conditions"),
    ("getDiagnostics", "bmc doctor"),
    ("diagnoseServer", "bmc doctor"),
    ("getServerInventory", "server inventory"),
    ("endMaintenance", "server maintenance end"),
    ("beginMaintenance", "server maintenance begin"),
    ("probeServer", "bmc probe"),
    ("releaseServer", "server release"),
    ("getRestoredServer", "server restored"),
    ("endMySessions", "session end"),
    ("listSessions", "session list"),
    ("endSession", "session end"),
    ("listSettings", "config show"),
    ("makeSupportBundle", "support-bundle"),
    ("listTokens", "token list"),
    ("createToken", "token create"),
    ("revokeToken", "token revoke"),
    ("getToken", "token show"),
    ("confirmToken", "token confirm"),
    ("rotateToken", "token rotate"),
    ("listUsers", "user list"),
    ("createUser", "user add"),
    ("deleteUser", "user remove"),
    ("getUser", "user show"),
    ("updateUser", "user role"),
    ("confirmUser", "user confirm"),
    ("endUserSessions", "session end"),
    ("listWebhooks", "webhook list"),
    ("createWebhook", "webhook add"),
    ("deleteWebhook", "webhook remove"),
    ("getWebhook", "webhook show"),
    ("listDeadLetters", "webhook dead-letters"),
    ("redeliver", "webhook redeliver"),
    ("disableWebhook", "webhook disable"),
    ("enableWebhook", "webhook enable"),
    ("testWebhook", "webhook test"),
    ("listWorkerTokens", "worker token list"),
    ("createWorkerToken", "worker token create"),
    ("revokeWorkerToken", "worker token revoke"),
    ("getAuthority", "ca export"),
    ("getTaskImage", "job media-url"),
    ("getReadiness", "controller ready"),
];

/// The operations without a command, with the reason.
const WITHOUT_COMMAND: &[(&str, &str)] = &[
    ("getServerCondition", "for machine managers that poll one kind; `server conditions` lists all kinds"),
    ("getProbe", "the look of probeServer without what it keeps; `bmc probe` uses probeServer"),
    ("deleteSession", BROWSER),
    ("getSession", BROWSER),
    ("createSession", BROWSER),
    ("reportInstallation", "the maintenance OS sends its reports"),
    ("getHealth", "for supervisors; `controller ready` says more"),
    ("getMetrics", "for Prometheus; `dashboards export` writes what reads it"),
    ("getOpenApi", "`openapi` prints the document without a controller"),
];

const BROWSER: &str = "the login of a browser; a command logs in with each request";

#[test]
fn every_operation_of_the_api_has_a_command_or_a_reason_why_it_has_none() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(document).unwrap()).unwrap();
    let operations: BTreeSet<&str> = document["paths"]
        .as_object()
        .unwrap()
        .values()
        .flat_map(|methods| methods.as_object().unwrap().values())
        .filter_map(|operation| operation["operationId"].as_str())
        .collect();
    let listed: Vec<&str> = COMMANDS.iter().chain(WITHOUT_COMMAND).map(|(operation, _)| *operation).collect();
    let known: BTreeSet<&str> = listed.iter().copied().collect();
    let missing: Vec<&&str> = operations.difference(&known).collect();
    assert!(missing.is_empty(), "give them a command, or a reason: {missing:?}");
    let gone: Vec<&&str> = known.difference(&operations).collect();
    assert!(gone.is_empty(), "the API has no such operations: {gone:?}");
    assert_eq!(known.len(), listed.len(), "an operation is listed twice");
    let commands = commands();
    for (operation, command) in COMMANDS {
        assert!(commands.contains(*command), "{operation}: there is no command {command}");
    }
}
