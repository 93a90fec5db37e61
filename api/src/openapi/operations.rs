//! The operation table: one row per route and method, beside the table of routes in `api/mod.rs`.

use serde_json::{Value, json};

use super::super::about::About;
use super::super::accounts::{me, tokens, users};
use super::super::audit;
use super::super::drain::DrainView;
use super::super::error_code::ErrorCode;
use super::super::events::EventPage;
use super::super::health::{Health, Readiness};
use super::super::jobs::log::InstallLogView;
use super::super::jobs::{order as job_order, verbs, view as job};
use super::super::log_level;
use super::super::media::MediaUrlView;
use super::super::report::ReportAccepted;
use super::super::restored;
use super::super::secrets;
use super::super::servers::bios::BiosView;
use super::super::servers::inventory::ServerInventoryView;
use super::super::servers::{change, delete as server_delete, diagnostics, release, view as server};
use super::super::session;
use super::super::support;
use super::firmware::firmware;
use super::lists::{flag, job_filters, server_filters};
use super::operation::{ApiOperation, delete, get, patch, post};
use super::types;
use access::accounts::{ChangedUser, NewToken, NewUser, TokenView, UserView};
use keys::RotationView;

/// Every operation, in the order of the table of routes.
pub(super) fn operations() -> Vec<ApiOperation> {
    [
        jobs(),
        super::fleet::fleet(),
        accounts(),
        super::workers::workers(),
        controller(),
        super::insight::insight(),
        super::backups::backups(),
        firmware(),
        super::registry::registry(),
        keys(),
        servers(),
        super::conditions::conditions(),
        super::webhooks::webhooks(),
        media(),
        health(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A path with its tag.
type Place = (&'static str, &'static str);

fn jobs() -> Vec<ApiOperation> {
    const JOBS: Place = ("jobs", "/api/v1/jobs");
    const JOB: Place = ("jobs", "/api/v1/jobs/{id}");
    vec![
        post(JOBS, "createJob", "Create a job, or preview it with `dry_run`")
            .query("dry_run", "Write nothing and return the preview of the job.", flag())
            .idempotency_key()
            .body::<job_order::NewJob>()
            .returns::<job::JobResponse<'static>>(
                200,
                "The job of an earlier request with the same idempotency key, or the preview.",
            )
            .returns::<job::CreatedJobView<'static>>(202, "The job is stored and queued.")
            .errors(&[
                ErrorCode::UnknownServer,
                ErrorCode::UnknownWorkflow,
                ErrorCode::ConflictActiveJob,
                ErrorCode::NoMaintenanceIso,
            ]),
        job_filters(get(JOBS, "listJobs", "List jobs, the newest first"))
            .query("status", "Only jobs in this state.", reference("JobStatus"))
            .query("outcome", "Only jobs that ended so.", reference("Outcome"))
            .query("workflow", "Only jobs of this workflow, such as `provision` or `power.cycle`.", text())
            .query("server_serial", "Only jobs of this server.", reference("SerialNumber"))
            .query(
                "id",
                "Only jobs whose id begins with these 4 to 36 characters, whether another job started them or not.",
                json!({ "type": "string", "minLength": 4, "maxLength": 36 }),
            )
            .query(
                "parent",
                "The jobs that this job started; without it, jobs that no job started.",
                reference("JobId"),
            )
            .query("failure_class", "The same as `class`.", text())
            .query("batch", "Only jobs of this batch.", reference("BatchId"))
            .query("cursor", "The field `next` of the previous page.", text())
            .page_size(50, 500)
            .returns::<job::JobPage<'static>>(200, "One page of jobs."),
        get(JOB, "getJob", "Show a job with its steps and latest events")
            .of_job()
            .returns::<job::JobDetailView<'static>>(200, "The job.")
            .with_header("ETag", "The revision of the job, for `If-Match`."),
        events(
            get(
                ("jobs", "/api/v1/jobs/{id}/events"),
                "listJobEvents",
                "Page or stream of the events of a job",
            )
            .of_job(),
        ),
        get(("jobs", "/api/v1/jobs/{id}/explain"), "explainJob", "Explain why a job is in its state")
            .of_job()
            .returns::<job::JobExplanationView>(200, "The explanation."),
        get(("jobs", "/api/v1/jobs/{id}/log"), "getJobLog", "Show the end of the log of the maintenance OS")
            .for_operators()
            .of_job()
            .returns::<InstallLogView>(200, "The log; null without a final report that carried one."),
        verb(("jobs", "/api/v1/jobs/{id}/cancel"), "cancelJob", "Cancel a job; its cleanup runs"),
        verb(("jobs", "/api/v1/jobs/{id}/hold"), "holdJob", "Hold a queued or waiting job"),
        verb(("jobs", "/api/v1/jobs/{id}/resume"), "resumeJob", "Resume a held job"),
        verb(
            ("jobs", "/api/v1/jobs/{id}/finish"),
            "finishJob",
            "End the rescue session of a job with success",
        ),
        post(
            ("jobs", "/api/v1/jobs/{id}/retry"),
            "retryJob",
            "Create a job with the request of an ended one",
        )
        .of_job()
        .idempotency_key()
        .if_match()
        .optional_body::<verbs::Request>()
        .returns::<job::CreatedJobView<'static>>(
            200,
            "The job of an earlier request with the same idempotency key.",
        )
        .returns::<job::CreatedJobView<'static>>(202, "The new job is stored and queued.")
        .errors(&[
            ErrorCode::UnknownServer,
            ErrorCode::ConflictPhase,
            ErrorCode::ConflictVerb,
            ErrorCode::ConflictInput,
            ErrorCode::ConflictActiveJob,
            ErrorCode::NoMaintenanceIso,
        ]),
    ]
}

fn verb(place: Place, id: &'static str, summary: &'static str) -> ApiOperation {
    post(place, id, summary)
        .of_job()
        .if_match()
        .optional_body::<verbs::Request>()
        .returns::<job::JobVerbView<'static>>(202, "The request is stored.")
        .errors(&[
            ErrorCode::ConflictPhase,
            ErrorCode::ConflictVerb,
            ErrorCode::ConflictRestored,
            ErrorCode::Busy,
        ])
}

/// A page or stream of events. A stream has no filter.
fn events(operation: ApiOperation) -> ApiOperation {
    let position = json!({ "type": "integer", "format": "int64", "minimum": 0 });
    let or_latest = json!({ "anyOf": [position.clone(), { "const": "latest" }] });
    let time = json!({ "type": "string", "format": "date-time" });
    operation
        .query(
            "after",
            "The field `seq` of the last event that the client has; `latest` is the newest event, for what happens from now.",
            or_latest.clone(),
        )
        .query(
            "before",
            "Instead of `after`: the newest events before this position, for a look back. `latest` begins at the newest event, the \
             field `previous` of a page continues.",
            or_latest,
        )
        .query("server", "Only events of this server and of its jobs.", reference("SerialNumber"))
        .query(
            "type",
            "Only events of these types, with commas between them; `*` stands for any characters, `?` for one: `job.*,server.updated`.",
            text(),
        )
        .query(
            "level",
            "Only events of this level or a higher one.",
            json!({ "type": "string", "enum": ["info", "warn", "error"] }),
        )
        .query(
            "actor",
            "Only events that this actor caused: the name of a user, token or part of the program, or `people` for every user and token.",
            text(),
        )
        .query("since", "Only events of this time or later.", time.clone())
        .query("until", "Only events before this time.", time)
        .page_size(200, 1000)
        .header("Last-Event-ID", "The position to resume after; it takes precedence over `after`.", position)
        .returns::<EventPage>(
            200,
            "One page of events, or with `Accept: text/event-stream` the events as they happen.",
        )
        .or_media("text/event-stream")
        .errors(&[ErrorCode::TooManyStreams])
}

fn accounts() -> Vec<ApiOperation> {
    const USERS: Place = ("accounts", "/api/v1/users");
    const USER: Place = ("accounts", "/api/v1/users/{name}");
    const SESSION: Place = ("accounts", "/api/v1/session");
    const SESSIONS: Place = ("accounts", "/api/v1/sessions");
    const TOKENS: Place = ("accounts", "/api/v1/tokens");
    const TOKEN: Place = ("accounts", "/api/v1/tokens/{name}");
    vec![
        post(USERS, "createUser", "Create a user")
            .for_admins()
            .body::<NewUser>()
            .returns::<UserView>(201, "The user is created.")
            .errors(&[ErrorCode::ConflictName, ErrorCode::ConflictAccounts]),
        get(USERS, "listUsers", "List the users by name")
            .for_admins()
            .returns::<users::UserPage>(200, "All users of the database."),
        get(USER, "getUser", "Show a user").for_admins().of_user().returns::<UserView>(200, "The user."),
        patch(USER, "updateUser", "Change role, password or state of a user")
            .for_admins()
            .of_user()
            .merge_patch::<ChangedUser>()
            .returns::<UserView>(200, "The changed user.")
            .errors(&[ErrorCode::ConflictLastAdmin]),
        post(("accounts", "/api/v1/users/{name}/confirm"), "confirmUser", "Accept a user of restored data")
            .for_admins()
            .of_user()
            .returns::<UserView>(200, "The user, who can log in."),
        delete(USER, "deleteUser", "Remove a user")
            .for_admins()
            .of_user()
            .returns_nothing(204, "The user is removed.")
            .errors(&[ErrorCode::ConflictLastAdmin]),
        delete(
            ("accounts", "/api/v1/users/{name}/sessions"),
            "endUserSessions",
            "End all web sessions of a user or API token",
        )
        .for_admins()
        .path_parameter("name", "The name of the user or API token.", text())
        .returns::<session::EndedSessions>(200, "They have ended."),
        post(SESSION, "createSession", "Log a browser in: the response sets the session cookie")
            .for_any_role()
            .begins_session()
            .returns::<session::OwnSession>(201, "The session, with the proof for its changes.")
            .with_header("Set-Cookie", "The session cookie."),
        get(SESSION, "getSession", "Show the session of the cookie")
            .for_any_role()
            .returns::<session::OwnSession>(200, "The session, with the proof for its changes.")
            .errors(&[ErrorCode::UnknownSession]),
        delete(SESSION, "deleteSession", "Log a browser out")
            .for_any_role()
            .returns_nothing(204, "The session has ended.")
            .with_header("Set-Cookie", "Removes the cookie.")
            .errors(&[ErrorCode::UnknownSession]),
        get(SESSIONS, "listSessions", "List the caller's web sessions; for an administrator all")
            .for_any_role()
            .returns::<session::SessionPage>(200, "The sessions, the newest first."),
        delete(SESSIONS, "endMySessions", "End all web sessions of the caller")
            .for_any_role()
            .returns::<session::EndedSessions>(200, "They have ended."),
        delete(
            ("accounts", "/api/v1/sessions/{id}"),
            "endSession",
            "End a web session of the caller; for an administrator any",
        )
        .for_any_role()
        .path_parameter("id", "The id of the session.", text())
        .returns_nothing(204, "The session has ended.")
        .errors(&[ErrorCode::UnknownSession]),
        post(TOKENS, "createToken", "Create an API token")
            .for_admins()
            .body::<NewToken>()
            .returns::<tokens::IssuedToken>(201, "The token with its text, which is not shown again.")
            .errors(&[ErrorCode::ConflictName, ErrorCode::ConflictAccounts]),
        get(TOKENS, "listTokens", "List the API tokens by name")
            .for_admins()
            .returns::<tokens::TokenPage>(200, "All API tokens, without their texts."),
        get(TOKEN, "getToken", "Show an API token")
            .for_admins()
            .of_token()
            .returns::<TokenView>(200, "The token, without its text."),
        delete(TOKEN, "revokeToken", "Revoke an API token")
            .for_admins()
            .of_token()
            .returns_nothing(204, "The token is refused with the next request.")
            .errors(&[ErrorCode::ConflictLastAdmin]),
        post(
            ("accounts", "/api/v1/tokens/{name}/confirm"),
            "confirmToken",
            "Accept an API token of restored data",
        )
        .for_admins()
        .of_token()
        .returns::<TokenView>(200, "The token, which is accepted."),
        post(("accounts", "/api/v1/tokens/{name}/rotate"), "rotateToken", "Give an API token another text")
            .for_admins()
            .of_token()
            .optional_body::<tokens::Rotation>()
            .returns::<tokens::IssuedToken>(200, "The token with its new text; the former one is refused."),
        get(("accounts", "/api/v1/me"), "getMe", "Show the caller's own login")
            .for_any_role()
            .returns::<me::Me>(200, "The caller."),
        post(("accounts", "/api/v1/me/password"), "setMyPassword", "Change the caller's own password")
            .for_any_role()
            .body::<me::NewPassword>()
            .returns_nothing(204, "The password is changed; the former one is refused with the next request.")
            .errors(&[ErrorCode::ConflictNoPassword, ErrorCode::UnknownUser]),
    ]
}

fn controller() -> Vec<ApiOperation> {
    const DRAIN: Place = ("controller", "/api/v1/drain");
    const LOG_LEVEL: Place = ("controller", "/api/v1/log-level");
    vec![
        get(("controller", "/api/v1/audit"), "listAudit", "List the audit log, the newest entry first")
            .for_admins()
            .query("actor", "Only entries of the actor with this name.", text())
            .query("action", "Only this action; `user.*` for all actions that begin so.", text())
            .query("target", "Only this target; `server/*` for all targets that begin so.", text())
            .query(
                "since",
                "Only entries of this time or later.",
                json!({ "type": "string", "format": "date-time" }),
            )
            .query("cursor", "The field `next` of the previous page.", text())
            .page_size(100, 1000)
            .returns::<audit::AuditPage>(200, "One page of entries."),
        post(DRAIN, "beginDrain", "Start a drain: no job begins until it ends")
            .optional_body::<verbs::Request>()
            .returns::<DrainView>(200, "A drain was in force before.")
            .returns::<DrainView>(202, "The drain is in force."),
        get(DRAIN, "getDrain", "Show whether jobs begin").returns::<DrainView>(200, "The drain."),
        delete(DRAIN, "endDrain", "End the drain").returns::<DrainView>(200, "No drain is in force."),
        events(get(("controller", "/api/v1/events"), "listEvents", "Page or stream of all events")),
        post(
            ("controller", "/api/v1/support-bundle"),
            "makeSupportBundle",
            "Return the state of the controller without secrets, for a person who helps",
        )
        .for_admins()
        .returns::<support::SupportBundle>(200, "The files of the bundle."),
        post(
            LOG_LEVEL,
            "changeLogLevel",
            "Change the log filter until a reload or the end of the controller",
        )
        .for_admins()
        .body::<log_level::ChangeLogLevel>()
        .returns::<log_level::LogLevelView>(200, "The filter in force.")
        .errors(&[ErrorCode::Unavailable]),
        get(LOG_LEVEL, "getLogLevel", "Show the log filter")
            .returns::<log_level::LogLevelView>(200, "The filter in force.")
            .errors(&[ErrorCode::Unavailable]),
        delete(LOG_LEVEL, "resetLogLevel", "Return to the log filter of the setting")
            .for_admins()
            .returns::<log_level::LogLevelView>(200, "The filter in force.")
            .errors(&[ErrorCode::Unavailable]),
        get(("controller", "/api/v1/restored"), "listRestored", "List the servers of restored data")
            .returns::<restored::RestoredList>(200, "The servers that are not released."),
        post(
            ("controller", "/api/v1/restored/release"),
            "releaseAll",
            "Release all servers of restored data",
        )
        .body::<restored::ReleaseAll>()
        .returns::<restored::ReleasedAll>(200, "The released servers, and those that need a decision."),
    ]
}

fn keys() -> Vec<ApiOperation> {
    vec![
        get(
            ("controller", "/api/v1/secrets"),
            "listSecrets",
            "List the keys of the controller, without values",
        )
        .for_admins()
        .returns::<secrets::SecretPage>(200, "The keys with purpose, id and age."),
        post(
            ("controller", "/api/v1/secrets/{name}/rotate"),
            "rotateSecret",
            "Begin or continue the rotation of a key",
        )
        .for_admins()
        .path_parameter("name", "The name of the key.", json!({ "type": "string" }))
        .body::<secrets::RotateSecret>()
        .returns::<RotationView>(200, "Where the rotation is; repeat the request while it is `sealing`.")
        .errors(&[ErrorCode::UnknownSecret, ErrorCode::ConflictSecret]),
    ]
}

fn servers() -> Vec<ApiOperation> {
    const SERVERS: Place = ("servers", "/api/v1/servers");
    const SERVER: Place = ("servers", "/api/v1/servers/{serial}");
    const MAINTENANCE: Place = ("servers", "/api/v1/servers/{serial}/maintenance");
    const PROBE: Place = ("servers", "/api/v1/servers/{serial}/probe");
    const ETAG: (&str, &str) = ("ETag", "The revision of the server, for `If-Match`.");
    let probe = |operation: ApiOperation| {
        operation
            .for_operators()
            .of_server()
            .query("capture", "Return the redacted resources as well.", json!({ "type": "boolean" }))
            .returns::<types::BmcCard>(200, "The capability card.")
            .errors(&[ErrorCode::Bmc, ErrorCode::ServerRecord])
    };
    vec![
        post(SERVERS, "createServer", "Register a server")
            .body::<change::NewServer>()
            .returns::<server::ServerView>(200, "The server is registered with equal values.")
            .with_header(ETAG.0, ETAG.1)
            .returns::<server::ServerView>(201, "The server is registered.")
            .with_header(ETAG.0, ETAG.1)
            .errors(&[ErrorCode::ConflictServer]),
        server_filters(get(SERVERS, "listServers", "List servers by serial number"))
            .query("cursor", "The field `next` of the previous page.", reference("SerialNumber"))
            .page_size(100, 1000)
            .returns::<server::ServerPage>(200, "One page of servers."),
        get(SERVER, "getServer", "Show a server")
            .of_server()
            .returns::<server::ServerView>(200, "The server.")
            .with_header(ETAG.0, ETAG.1),
        patch(
            SERVER,
            "updateServer",
            "Change a server by a merge patch (RFC 7396), or preview it with `dry_run`",
        )
        .of_server()
        .query("dry_run", "Store nothing and return the server as it would be.", json!({ "type": "boolean" }))
        .if_match()
        .merge_patch::<change::ServerFields>()
        .returns::<server::ServerView>(200, "The changed server, or the preview.")
        .with_header(ETAG.0, ETAG.1)
        .errors(&[ErrorCode::ConflictActiveJob, ErrorCode::BmcPasswordNeeded]),
        delete(SERVER, "deleteServer", "Delete a server, or preview it with `dry_run`")
            .of_server()
            .query(
                "with_history",
                "Delete the ended jobs of the server as well, with their events. Otherwise a server with stored jobs is kept.",
                json!({ "type": "boolean" }),
            )
            .query(
                "dry_run",
                "Delete nothing and return how many jobs would be deleted.",
                json!({ "type": "boolean" }),
            )
            .returns::<server_delete::DeletionView>(200, "The preview.")
            .returns_nothing(204, "The server is deleted.")
            .errors(&[ErrorCode::ConflictJobs]),
        post(MAINTENANCE, "beginMaintenance", "Start maintenance: no job begins on the server")
            .of_server()
            .optional_body::<verbs::Request>()
            .returns::<server::ServerView>(200, "Maintenance was in force before.")
            .returns::<server::ServerView>(202, "Maintenance is in force."),
        delete(MAINTENANCE, "endMaintenance", "End maintenance")
            .of_server()
            .returns::<server::ServerView>(200, "No maintenance was in force.")
            .returns::<server::ServerView>(202, "Maintenance has ended."),
        probe(get(PROBE, "getProbe", "Read what the BMC of a server is and can do; nothing is stored")),
        probe(post(
            PROBE,
            "probeServer",
            "Read what the BMC of a server is and can do; the card is kept, and the first certificate is pinned",
        )),
        post(
            ("servers", "/api/v1/servers/{serial}/diagnostics"),
            "diagnoseServer",
            "Try what a job needs of the BMC",
        )
        .of_server()
        .query("write", "Set and clear the boot override as well.", json!({ "type": "boolean" }))
        .returns::<diagnostics::DiagnosticsReport>(200, "The result of all checks.")
        .returns::<diagnostics::DiagnosticsRunning>(
            202,
            "The diagnostics continue; their result is an event of the server.",
        )
        .errors(&[ErrorCode::ConflictActiveJob, ErrorCode::ConflictRestored]),
        get(
            ("servers", "/api/v1/servers/{serial}/inventory"),
            "getServerInventory",
            "Show what a machine is made of, as it reported and as its BMC shows it",
        )
        .of_server()
        .returns::<ServerInventoryView>(
            200,
            "The inventories; null without a report that carried one, and without a read of the BMC.",
        ),
        get(
            ("servers", "/api/v1/servers/{serial}/bios"),
            "getServerBios",
            "Read the settings of the BIOS and the boot order from the BMC; nothing is changed",
        )
        .for_operators()
        .of_server()
        .returns::<BiosView>(200, "The settings as the BMC shows them now, without passwords.")
        .errors(&[ErrorCode::Bmc, ErrorCode::ServerRecord]),
        get(
            ("servers", "/api/v1/servers/{serial}/restored"),
            "getRestoredServer",
            "Show what the data says about a server beside what its BMC shows",
        )
        .for_operators()
        .of_server()
        .returns::<release::RestoredDetail>(200, "The server; a BMC that cannot be read is a `problem`."),
        post(
            ("servers", "/api/v1/servers/{serial}/release"),
            "releaseServer",
            "Release a server of restored data",
        )
        .of_server()
        .body::<release::Release>()
        .returns::<server::ServerView>(200, "The server is released.")
        .errors(&[ErrorCode::ConflictRestored]),
        post(
            ("reports", "/api/v1/status-webhook/{serial}"),
            "reportInstallation",
            "Report the end of an installation",
        )
        .with_report_secret()
        .path_parameter("serial", "The serial number of the server.", reference("SerialNumber"))
        .body_of_any_type::<types::InstallReport>()
        .returns::<ReportAccepted>(200, "The report is stored.")
        .errors(&[
            ErrorCode::ReportCertificate,
            ErrorCode::UnknownServer,
            ErrorCode::NoActiveJob,
            ErrorCode::ConflictReport,
            ErrorCode::ConflictJobId,
            ErrorCode::Busy,
        ]),
    ]
}

fn media() -> Vec<ApiOperation> {
    const IMAGE: &str = "application/x-iso9660-image";
    vec![
        post(
            ("jobs", "/api/v1/jobs/{id}/media-url"),
            "issueMediaUrl",
            "Issue a signed URL that reads the task image of a job without a login",
        )
        .for_admins()
        .of_job()
        .returns::<MediaUrlView>(201, "The URL, which is a secret.")
        .errors(&[ErrorCode::NoTaskImage]),
        get(("jobs", "/media/tasks/{id}/task.iso"), "getTaskImage", "Read the task image of a job")
            .for_admins()
            .of_job()
            .query(
                "expires",
                "The expiry of a signed URL, in seconds since 1970; no login is needed then.",
                text(),
            )
            .query("sig", "The signature of a signed URL.", text())
            .header("Range", "The bytes to read.", text())
            .returns_media(200, "The whole image.", IMAGE)
            .with_header("ETag", "The digest of the image.")
            .returns_media(206, "The requested bytes.", IMAGE)
            .with_header("Content-Range", "The position of the bytes.")
            .returns_nothing(304, "The client has the image.")
            .returns_nothing(416, "The image has no such bytes.")
            .errors(&[
                ErrorCode::MediaUrlExpired,
                ErrorCode::MediaUrlInvalid,
                ErrorCode::NoTaskImage,
                ErrorCode::NotFound,
                ErrorCode::MediaChanged,
            ]),
    ]
}

fn health() -> Vec<ApiOperation> {
    vec![
        get(("controller", "/about"), "getAbout", "Show version, build, features, schema and instance")
            .returns::<About>(200, "What the controller is."),
        get(
            ("controller", "/ca.pem"),
            "getAuthority",
            "The certificates that clients of the TLS listeners trust",
        )
        .for_everyone()
        .returns_media(200, "PEM certificates.", "application/pem-certificate-chain")
        .errors(&[ErrorCode::NotFound]),
        get(("controller", "/healthz"), "getHealth", "Liveness: the process responds")
            .for_everyone()
            .returns::<Health>(200, "The process responds."),
        get(("controller", "/readyz"), "getReadiness", "Readiness: database, disk and registry can be used")
            .for_everyone()
            .returns::<Readiness>(200, "The controller can do its work.")
            .returns::<Readiness>(503, "A check has failed."),
        get(
            ("controller", "/metrics"),
            "getMetrics",
            "Metrics; `METRICS_ANONYMOUS=true` allows access without credentials",
        )
        .returns_media(200, "The metrics.", "application/openmetrics-text"),
        get(("controller", "/openapi.json"), "getOpenApi", "This document")
            .for_everyone()
            .returns::<types::Object>(200, "An OpenAPI 3.1 document."),
    ]
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}
