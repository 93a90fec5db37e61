//! The catalogue of error codes: the only place that defines the codes of error responses and of their details.
//!
//! The pages in docs/errors/ are generated from it, and the document of `/openapi.json` names the codes of each operation.

use std::borrow::Cow;

use axum::http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

/// The texts of an error code. The message of a response states the particular case.
#[derive(Clone, Copy, Debug)]
pub struct ErrorText {
    /// The title in a few words.
    pub title: &'static str,
    /// The event that the code stands for.
    pub happened: &'static str,
    /// The reason of the event.
    pub why: &'static str,
    /// The next action of the client or operator.
    pub what_to_do: &'static str,
}

/// Defines the enum of error codes with all its tables from one list.
macro_rules! error_codes {
    ($($code:ident = $name:literal, $status:ident, {
        title: $title:literal,
        happened: $happened:literal,
        why: $why:literal,
        what_to_do: $what_to_do:literal $(,)?
    })*) => {
        /// The stable code of an error response, the field `error`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum ErrorCode {
            $(#[doc = $title] $code,)*
        }

        impl ErrorCode {
            /// Every code, in the order of the HTTP statuses.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// The code in a response.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$code => $name,)* }
            }

            /// The HTTP status of a response with the code.
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$code => StatusCode::$status,)* }
            }

            /// The texts of the code.
            pub const fn text(self) -> ErrorText {
                match self {
                    $(Self::$code => ErrorText {
                        title: $title,
                        happened: $happened,
                        why: $why,
                        what_to_do: $what_to_do,
                    },)*
                }
            }
        }
    };
}

error_codes! {
    ValidationError = "validation_error", BAD_REQUEST, {
        title: "The request has invalid values",
        happened: "The body, a header or a query parameter breaks a rule of the API, or a recipe breaks \
                   a rule of the recipe schema.",
        why: "The controller checks a request completely before it changes anything. Each problem is one \
              entry of `details`.",
        what_to_do: "Correct every place that `details` names, then send the request again. `shoal \
                     recipe validate FILE` checks a recipe without a controller.",
    }
    BadJson = "bad_json", BAD_REQUEST, {
        title: "The body is not JSON",
        happened: "The body could not be parsed as JSON.",
        why: "A comma, quote or bracket is missing, the text is not UTF-8, or the body is empty.",
        what_to_do: "Correct the line and column that `details` names.",
    }
    BadBody = "bad_body", BAD_REQUEST, {
        title: "The body is incomplete",
        happened: "The connection ended before the whole body arrived.",
        why: "The client closed the connection, or a proxy between client and controller did.",
        what_to_do: "Send the request again. If the error returns, check the time-outs of the proxy.",
    }
    NoMaintenanceIso = "config.no_maintenance_iso", BAD_REQUEST, {
        title: "No boot image for the job",
        happened: "The job names no image for the machine to boot, and the controller has no default \
                   image.",
        why: "`MAINTENANCE_ISO_URL`, or `ESXI_INSTALLER_URL` for an ESXi recipe, is not set.",
        what_to_do: "Set that setting on the controller, or give `maintenance_iso_url` with the job.",
    }
    Unauthorized = "unauthorized", UNAUTHORIZED, {
        title: "Credentials are missing or wrong",
        happened: "The request has no credentials, or the controller does not accept them.",
        why: "The token was mistyped, deleted or has expired; the password is wrong; the data was restored and the \
              login is not confirmed; or a report has a secret that is neither the token of its job nor the configured shared secret.",
        what_to_do: "Send an API token as `Authorization: Bearer TOKEN`, or user and password as Basic. \
                     A report sends the `webhook_token` of `job.json` as `X-Webhook-Secret`.",
    }
    Forbidden = "forbidden", FORBIDDEN, {
        title: "The caller has no permission",
        happened: "The credentials are valid, but their role does not permit this request.",
        why: "A viewer sees no secret of a job and changes nothing, an operator administers nothing, a report-only token only \
              reports, a registry-only token only uses the registry, and a token with labels reaches only servers with them.",
        what_to_do: "Send the request with a login that has the role; `GET /api/v1/me` shows the caller's.",
    }
    Csrf = "csrf", FORBIDDEN, {
        title: "The change is not proved to come from this controller's pages",
        happened: "A changing request of a browser came from a page of another site, or has a session cookie without its proof.",
        why: "A browser adds cookies and remembered passwords to requests that other sites cause.",
        what_to_do: "Send `csrf_token` of `GET /api/v1/session` as `X-CSRF-Token`, from a page of this controller. A program \
                     sends an API token as Bearer and needs no proof.",
    }
    HttpsRequired = "https_required", FORBIDDEN, {
        title: "The path is served over HTTPS only",
        happened: "A request for the API or the registry came from another machine over plain HTTP.",
        why: "Passwords and tokens would cross the network in the clear. Plain HTTP carries media, and on the machine of the \
              controller everything.",
        what_to_do: "Use the https address (`CONTROLLER_HTTPS_ADDR`, port 8443 by default) with the authority that `shoal ca \
                     export` prints. `CONTROLLER_HTTP_ALLOW_REMOTE=true` allows plain HTTP.",
    }
    MediaUrlExpired = "media.url_expired", FORBIDDEN, {
        title: "The signed URL has expired",
        happened: "The time in the query of a signed media URL has passed.",
        why: "Such a URL is valid for `MEDIA_URL_TTL` after it was issued. The expiry ends new requests, also those for the \
              next range of an image.",
        what_to_do: "Request another URL (`POST /api/v1/jobs/JOB/media-url`). A reader that takes longer needs a longer \
                     `MEDIA_URL_TTL`, or reads with a login.",
    }
    MediaUrlInvalid = "media.url_invalid", FORBIDDEN, {
        title: "The signed URL is not valid",
        happened: "The controller did not issue this URL, or not for the image that the job has now.",
        why: "The URL was changed or cut, belongs to another job or controller, or the master key was replaced. The response \
              is the same for each of these.",
        what_to_do: "Request another URL (`POST /api/v1/jobs/JOB/media-url`) and use it unchanged, query included.",
    }
    ReportCertificate = "report_certificate", FORBIDDEN, {
        title: "The client certificate may not report",
        happened: "A report came with a client certificate that is not accepted for the server of the path.",
        why: "The certificate has expired, is not valid yet, is revoked or has no valid list in `REPORT_CLIENT_CRL_FILE`, was not issued for clients by an authority of \
              `REPORT_CLIENT_CA_FILE`, or neither its names nor `REPORT_CERTIFICATES` name the server. A secret beside it does \
              not count.",
        what_to_do: "Use a certificate whose common name, serial number or DNS name is the serial number of the server, add the \
                     name to `REPORT_CERTIFICATES`, or report without a certificate.",
    }
    NotFound = "not_found", NOT_FOUND, {
        title: "The path does not exist",
        happened: "No route of the API has this path, or the medium of the path does not exist.",
        why: "The path was mistyped, or the grant of a medium has ended with its job.",
        what_to_do: "Compare the path with `/openapi.json`. A new job gets new media paths.",
    }
    UnknownJob = "unknown_job", NOT_FOUND, {
        title: "The job does not exist",
        happened: "No job has the id of the path.",
        why: "The id was mistyped, or retention has removed the job (`JOB_RETENTION_DAYS`).",
        what_to_do: "List the jobs with `shoal job list`.",
    }
    UnknownCondition = "unknown_condition", NOT_FOUND, {
        title: "The server never had a condition of this kind",
        happened: "The server is registered, and no stored job is a condition of the kind.",
        why: "None was requested, or retention has removed it (`JOB_RETENTION_DAYS`).",
        what_to_do: "List the conditions of the server: `GET /api/v1/servers/SERIAL/conditions`.",
    }
    UnknownServer = "unknown_server", NOT_FOUND, {
        title: "The server is not registered",
        happened: "No server has this serial number.",
        why: "The serial number was mistyped, or the server was not registered or was deleted.",
        what_to_do: "List the servers with `shoal server list`; register one with `shoal server add`.",
    }
    UnknownBatch = "unknown_batch", NOT_FOUND, {
        title: "The batch does not exist",
        happened: "No batch has the id of the path.",
        why: "The id was mistyped, or retention has removed the batch.",
        what_to_do: "List the batches with `shoal batch list`.",
    }
    UnknownWebhook = "unknown_webhook", NOT_FOUND, {
        title: "The webhook does not exist",
        happened: "No webhook has the id of the path.",
        why: "The id was mistyped, or the webhook was deleted.",
        what_to_do: "List the webhooks with `shoal webhook list`.",
    }
    UnknownFirmware = "unknown_firmware", NOT_FOUND, {
        title: "The firmware file does not exist",
        happened: "No firmware artifact below `firmware/` in the registry has the digest of the path.",
        why: "The digest was mistyped, is that of the bytes instead of the manifest, or the file was removed.",
        what_to_do: "List the files with `shoal firmware list`.",
    }
    UnknownFirmwareSet = "unknown_firmware_set", NOT_FOUND, {
        title: "The firmware set does not exist",
        happened: "No firmware set has the name of the path.",
        why: "The name was mistyped, or the set was deleted.",
        what_to_do: "List the sets with `shoal firmware set list`.",
    }
    NoFirmwareSet = "firmware.no_set", NOT_FOUND, {
        title: "No firmware set fits the server",
        happened: "No set has the labels of the request and is for the vendor and model of the server.",
        why: "No set was created for this model, or its labels name another one.",
        what_to_do: "Create a set with `shoal firmware set create`, or correct the labels `vendor` and `model`.",
    }
    UnknownUser = "unknown_user", NOT_FOUND, {
        title: "The user does not exist",
        happened: "No user has the name of the path.",
        why: "The name was mistyped, the user was removed, or the user is in the settings (`BASIC_USER`) or in the \
              htpasswd file of the registry.",
        what_to_do: "List the users with `shoal user list`.",
    }
    UnknownToken = "unknown_token", NOT_FOUND, {
        title: "The API token does not exist",
        happened: "No API token has the name of the path.",
        why: "The name was mistyped, or the token was revoked.",
        what_to_do: "List the tokens with `shoal token list`.",
    }
    UnknownWorkerToken = "unknown_worker_token", NOT_FOUND, {
        title: "The token of a worker does not exist",
        happened: "No token of a worker has the name of the path.",
        why: "The name was mistyped, the token was revoked, or the data was restored, which deletes these tokens.",
        what_to_do: "List the tokens with `shoal worker token list`.",
    }
    UnknownSecret = "unknown_secret", NOT_FOUND, {
        title: "The key does not exist",
        happened: "No key of the controller has the name of the path.",
        why: "The name was mistyped, or the settings do not use this key.",
        what_to_do: "List the keys with `shoal secret list`.",
    }
    UnknownSession = "unknown_session", NOT_FOUND, {
        title: "The web session does not exist",
        happened: "No web session has the id of the path, or the request has no session cookie.",
        why: "The session has ended or expired, or belongs to another user.",
        what_to_do: "List the sessions with `GET /api/v1/sessions`, or log in with `POST /api/v1/session`.",
    }
    UnknownDeadLetter = "unknown_dead_letter", NOT_FOUND, {
        title: "The dead letter does not exist",
        happened: "The event of the request is not a dead letter of this webhook.",
        why: "The event was delivered, the number is wrong, or newer dead letters have replaced it.",
        what_to_do: "List the dead letters with `shoal webhook dead-letters`.",
    }
    UnknownWorkflow = "unknown_workflow", NOT_FOUND, {
        title: "The controller has no provisioning",
        happened: "The controller runs without the provisioning workflow.",
        why: "The program was built or started without it.",
        what_to_do: "Send the request to a controller that has the workflow.",
    }
    NoBackupTarget = "no_backup_target", NOT_FOUND, {
        title: "The controller makes no backups",
        happened: "A route of backups was called on a controller without a target for them.",
        why: "`BACKUP_TARGET` is not set.",
        what_to_do: "Set `BACKUP_TARGET` and `BACKUP_SCHEDULE` and start the controller again, or run `shoal backup DIRECTORY` on \
                     its machine.",
    }
    UnknownBackup = "unknown_backup", NOT_FOUND, {
        title: "The backup does not exist",
        happened: "The path names no backup.",
        why: "The name was mistyped.",
        what_to_do: "List the backups with `shoal backup list`.",
    }
    NoRegistry = "no_registry", NOT_FOUND, {
        title: "The controller has no registry",
        happened: "A route of the registry was called on a controller without registry.",
        why: "`ENABLE_REGISTRY` is `false`.",
        what_to_do: "Set `ENABLE_REGISTRY=true` and start the controller again.",
    }
    UnknownRepository = "unknown_repository", NOT_FOUND, {
        title: "The repository does not exist",
        happened: "No repository of the registry has the name of the path.",
        why: "The name was mistyped, its slashes are not written `%2F`, or its last content was collected.",
        what_to_do: "List the repositories with `GET /api/v1/registry/repositories`, or open `/ui/registry`.",
    }
    UnknownTag = "unknown_tag", NOT_FOUND, {
        title: "The tag does not exist",
        happened: "The repository of the path has no such tag, or does not exist.",
        why: "The name was mistyped, its slashes are not written `%2F`, or the tag was deleted.",
        what_to_do: "List the tags with `shoal registry ls REPOSITORY --online`, or open `/ui/registry`.",
    }
    UnknownUpload = "unknown_upload", NOT_FOUND, {
        title: "The upload session does not exist",
        happened: "No open upload session has the id of the path.",
        why: "The id was mistyped, or the upload was finished, cancelled or removed.",
        what_to_do: "List the upload sessions with `shoal registry uploads`.",
    }
    NoTaskImage = "no_task_image", NOT_FOUND, {
        title: "The job has no task image yet",
        happened: "The task image of the job was requested before it was built.",
        why: "The step `iso.build` has not run yet.",
        what_to_do: "Wait until `task_iso_sha256` of the job is set, then request the image again.",
    }
    NoActiveJob = "no_active_job", NOT_FOUND, {
        title: "No job waits for the report",
        happened: "A report arrived for a server without a job that it can apply to.",
        why: "The job has not been created, is not a job of this server, or has not started the \
              installation.",
        what_to_do: "Check `shoal job list` for the server. A maintenance OS needs no action: it may \
                     repeat the report.",
    }
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, {
        title: "The method is not allowed for the path",
        happened: "The path exists, but not with this HTTP method.",
        why: "The client uses the wrong method, or the wrong path.",
        what_to_do: "Use a method of the response header `Allow`.",
    }
    BodyTimeout = "body_timeout", REQUEST_TIMEOUT, {
        title: "The body arrived too slowly",
        happened: "The whole body did not arrive within 30 seconds.",
        why: "The network is slow, or the client has stopped sending.",
        what_to_do: "Send the request again from a faster connection, or divide a batch.",
    }
    ConflictPhase = "conflict.phase", CONFLICT, {
        title: "The job is in the wrong phase",
        happened: "The verb does not apply to the present phase of the job.",
        why: "For example, an ended job cannot be cancelled, only a held job can be resumed, and only an \
              ended job can be retried.",
        what_to_do: "Read `shoal job explain JOB`, which names what can be done now.",
    }
    ConflictVerb = "conflict.verb", CONFLICT, {
        title: "Jobs of this workflow do not offer the verb",
        happened: "The request would hold, resume or retry a job whose workflow does not allow it.",
        why: "Each workflow has its own verbs: diagnostics, for example, last a few minutes and cannot be held.",
        what_to_do: "Read `verbs` of the job, which lists what it accepts now.",
    }
    ConflictSecret = "conflict.secret", CONFLICT, {
        title: "The key cannot be rotated now",
        happened: "The rotation of a key was refused. The message says why.",
        why: "The operator holds the key in a setting, or records cannot be opened with the key that they name.",
        what_to_do: "Do what the message says, then run `shoal secret rotate` again: it continues.",
    }
    ConflictInput = "conflict.input", CONFLICT, {
        title: "The job cannot be retried",
        happened: "The stored request of the job cannot be used for a new job.",
        why: "It was written by a version of the program that this version cannot read, or it is not a \
              provisioning job.",
        what_to_do: "Create a new job with the recipe.",
    }
    ConflictActiveJob = "conflict.active_job", CONFLICT, {
        title: "Another job is active on the server",
        happened: "The server has a job that has not ended.",
        why: "A server runs one job at a time, and the BMC of a server is not changed during a job.",
        what_to_do: "Wait for the end of the job that the message names, or cancel it with `shoal job \
                     cancel`.",
    }
    ConflictCondition = "conflict.condition", CONFLICT, {
        title: "The server has an open condition",
        happened: "The server has a condition that has not ended, so another one was not created.",
        why: "A server has one open condition of a kind, and by default one at all. Of several requests at the \
              same time one is accepted.",
        what_to_do: "Wait for the end of the condition that the message names, or cancel it with `shoal job \
                     cancel`. A condition of another kind can wait behind it: request it with `queue`.",
    }
    ConflictRevision = "conflict.revision", CONFLICT, {
        title: "The condition has another revision",
        happened: "The revision in the request is not that of the newest condition of the kind.",
        why: "Another request or the controller changed the condition after it was read.",
        what_to_do: "Read the condition again, then decide whether the request is still right.",
    }
    ConflictRestored = "conflict.restored", CONFLICT, {
        title: "The data about the server was restored",
        happened: "The request would change a machine, and the controller's data about it is a copy or old.",
        why: "The data directory was copied, moved or restored from a backup. What it says about a machine may \
              have changed since, so nothing is done to the machine until an operator releases its server.",
        what_to_do: "Compare the machine with its job (`shoal server restored SERIAL`), then release the \
                     server (`shoal server release SERIAL`, with `--jobs continue` or `--jobs end` if it \
                     has an unfinished job).",
    }
    ConflictServer = "conflict.server", CONFLICT, {
        title: "The server is registered with other values",
        happened: "The serial number is registered, and the request has other values for it.",
        why: "A repeated registration is accepted only if it is equal to the first one.",
        what_to_do: "Change the server with `shoal server update` (`PATCH /api/v1/servers/SERIAL`).",
    }
    ConflictJobs = "conflict.jobs", CONFLICT, {
        title: "The server has stored jobs",
        happened: "The server cannot be deleted while jobs of it are stored.",
        why: "The record of a job refers to its server.",
        what_to_do: "Delete the server with its ended jobs (`shoal server remove SERIAL --with-history`, query \
                     `with_history=true`), or after retention has removed them (`JOB_RETENTION_DAYS`). An unfinished job \
                     keeps it in each case: wait for its end or cancel it. To keep jobs off the server, use `shoal server \
                     maintenance begin`.",
    }
    ConflictJobId = "conflict.job_id", CONFLICT, {
        title: "The report names another job",
        happened: "`job_id` of the report is not the job of its token.",
        why: "The installer mixes the data of two jobs.",
        what_to_do: "Send `job_id` and `webhook_token` of one `job.json`.",
    }
    ConflictReport = "conflict.report", CONFLICT, {
        title: "The report contradicts an earlier one",
        happened: "The job has a recorded outcome, and the report states another one; or the job is over or being cancelled, and the \
                   machine reports progress; or the machine is about to write another disk than before.",
        why: "The installer reported twice with different results; the job was cancelled before the report; or the boot medium of a \
              former job was started again.",
        what_to_do: "The first outcome stays, and the machine writes nothing. Read the events of the job; create a new job if the \
                     machine must be installed again.",
    }
    ConflictWebhooks = "conflict.webhooks", CONFLICT, {
        title: "The maximum of webhooks exists",
        happened: "No further webhook can be created.",
        why: "A controller has at most 32 webhooks.",
        what_to_do: "Delete a webhook with `shoal webhook remove`.",
    }
    ConflictFirmware = "conflict.firmware", CONFLICT, {
        title: "The firmware file is there already",
        happened: "Another file for the same component, model and version is in the registry.",
        why: "Two files for one version would make it unknown which one is installed.",
        what_to_do: "Use the file that the message names, or remove it with `shoal firmware remove` and add this one.",
    }
    ConflictFirmwareInUse = "conflict.firmware_in_use", CONFLICT, {
        title: "The firmware file is in use",
        happened: "A firmware set or an open job holds the file, or an immutable tag names it.",
        why: "A file that may still be installed must not disappear.",
        what_to_do: "Delete the sets that the message names, or wait for the end of the job, then remove the file.",
    }
    ConflictFirmwareSet = "conflict.firmware_set", CONFLICT, {
        title: "The firmware set cannot be created",
        happened: "The name is taken, the maximum of sets exists, or two files are for one component of one model.",
        why: "A set says unambiguously which file a component gets. Both files are in the message.",
        what_to_do: "Leave one of the two files out, choose another name, or delete the other set.",
    }
    SeveralFirmwareSets = "firmware.several_sets", CONFLICT, {
        title: "Several firmware sets fit the server",
        happened: "More than one set has the labels of the request and is for the vendor and model of the server.",
        why: "The controller does not choose between sets.",
        what_to_do: "Name one of the sets in the message, or give a label that only one of them has.",
    }
    ConflictName = "conflict.name", CONFLICT, {
        title: "The name is taken",
        happened: "A user, an API token or a token of a worker has the name of the request.",
        why: "Users and API tokens share one space of names, because events name their actor by it. Tokens of workers have \
              a space of their own.",
        what_to_do: "Choose another name, or remove the user or token that has it.",
    }
    ConflictAccounts = "conflict.accounts", CONFLICT, {
        title: "The maximum of users or tokens exists",
        happened: "No further user, API token or token of a worker can be created.",
        why: "A controller has at most 1000 users, 1000 API tokens and 256 tokens of workers.",
        what_to_do: "Remove users with `shoal user remove`, and tokens with `shoal token revoke`.",
    }
    ConflictWorkerVersion = "conflict.worker_version", CONFLICT, {
        title: "The worker has another version",
        happened: "A worker elsewhere speaks other messages than this controller, or has another version of a workflow.",
        why: "One of the two was upgraded. A step that the two understand differently could do the wrong thing to a machine.",
        what_to_do: "Run the same version of the program at the worker. Its runs wait in their queue meanwhile.",
    }
    ConflictWorkerHello = "conflict.worker_hello", CONFLICT, {
        title: "The worker is not known since the start of the controller",
        happened: "A worker elsewhere sent a command before it said hello to this process of the controller.",
        why: "The controller was started again, or the worker was silent for an hour.",
        what_to_do: "Nothing: the worker says hello and repeats the command.",
    }
    ConflictLastAdmin = "conflict.last_admin", CONFLICT, {
        title: "No administrator could log in any more",
        happened: "The request would remove, disable or change the last login of an administrator.",
        why: "Without an admin user, an admin token without labels, `BASIC_USER` or `AUTH_MODE=jwt`, users and tokens \
              could not be managed through the API.",
        what_to_do: "Create another admin user or token first. To replace a token, use `shoal token rotate`.",
    }
    ConflictNoPassword = "conflict.no_password", CONFLICT, {
        title: "The caller has no password to change",
        happened: "The request would change the caller's own password, and the controller does not have it.",
        why: "The caller used a token, or is the user of the settings (`BASIC_USER`).",
        what_to_do: "Log in with user and password. An administrator changes passwords with `shoal user passwd`; that of \
                     `BASIC_USER` is `BASIC_PASS_HASH`.",
    }
    ConflictNoSession = "conflict.no_session", CONFLICT, {
        title: "The login cannot begin a web session",
        happened: "`POST /api/v1/session` was sent without a password or API token.",
        why: "A session cannot make another one. A JWT is sent with each request, and `AUTH_MODE=none` needs no login.",
        what_to_do: "Send `Authorization` with user and password (Basic) or an API token (Bearer).",
    }
    RegistryReadOnly = "registry.read_only", CONFLICT, {
        title: "The registry is read-only",
        happened: "The operation would change the registry, which is read-only.",
        why: "An operator has set the switch; the message contains the reason.",
        what_to_do: "End the read-only state with `shoal registry read-only off`.",
    }
    ConflictBackup = "conflict.backup", CONFLICT, {
        title: "Another operation on backups is under way",
        happened: "A backup was requested while one is verified, or a verification while one is made.",
        why: "A controller does one at a time, so that backups do not take the disk from jobs.",
        what_to_do: "Wait for its end, which `shoal backup status` shows, then send the request again.",
    }
    RegistryImmutable = "registry.immutable", CONFLICT, {
        title: "The tag is immutable",
        happened: "The request would delete a tag that never moves and is never deleted.",
        why: "A pattern of `REGISTRY_IMMUTABLE_TAGS` names it.",
        what_to_do: "Leave the tag. To delete it nevertheless, change `REGISTRY_IMMUTABLE_TAGS`, then start the controller again.",
    }
    RegistryFixed = "registry.fixed", CONFLICT, {
        title: "A setting forbids the operation",
        happened: "The operation contradicts a setting of the controller.",
        why: "For example, `REGISTRY_READ_ONLY=true` cannot be ended by a request.",
        what_to_do: "Change the setting that the message names, then start the controller again.",
    }
    MediaChanged = "media.changed", GONE, {
        title: "The content of a medium has changed",
        happened: "The image on disk does not match the digest of its grant.",
        why: "The file was changed or is damaged.",
        what_to_do: "Read the events of the job, check the disk, and create the job again. An image that \
                     was changed on purpose needs a new job.",
    }
    PreconditionFailed = "precondition_failed", PRECONDITION_FAILED, {
        title: "What the request is about has changed",
        happened: "The `ETag` in `If-Match` is not the current one, a filter selects another number of jobs or servers than \
                   the request expects (`expect`, `--expect`), or a tag names another manifest than its `digest`.",
        why: "Another request or the controller changed the resource, or what the filter selects, after it was read. \
              Nothing was changed by this request.",
        what_to_do: "Read the resource, or list what the filter selects, again; then decide whether to repeat the request with \
                     the new `ETag`, number or digest.",
    }
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, {
        title: "The body is too long",
        happened: "The body is longer than the limit.",
        why: "The limit is `MAX_BODY_BYTES`, and 64 KiB for reports.",
        what_to_do: "Send less, divide a batch, or raise `MAX_BODY_BYTES`.",
    }
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, {
        title: "The content type is not JSON",
        happened: "The request has a body without a JSON content type, or a route that needs a JSON body \
                   received none.",
        why: "`Content-Type` is not `application/json` or `application/merge-patch+json`.",
        what_to_do: "Send `Content-Type: application/json`. A route without required fields accepts the \
                     body `{}`.",
    }
    IdempotencyKeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY, {
        title: "The idempotency key belongs to another request",
        happened: "The key was used before, with another request.",
        why: "A key identifies one request, so that a repetition creates nothing twice.",
        what_to_do: "Use a new key for a new request; repeat a request unchanged.",
    }
    BmcPasswordNeeded = "bmc_password_needed", UNPROCESSABLE_ENTITY, {
        title: "The change needs the password of the BMC",
        happened: "The request would send the stored password of a BMC to another address, over a connection that is \
                   verified less than before, or to the workers of another queue; or an operator would have its task images read \
                   from another host (`media_base_url`).",
        why: "The caller has not shown that it knows the password. With a changed address, an unpinned certificate or another \
              label `queue` the controller would hand the password to another machine, and with another `media_base_url` the secrets \
              of its jobs.",
        what_to_do: "Send `bmc_password` in the same request (`shoal server update SERIAL … --bmc-password-stdin`). A new \
                     address needs no password if the certificate is pinned and the new address shows it.",
    }
    ServerRecord = "server_record", UNPROCESSABLE_ENTITY, {
        title: "The record of the server cannot be used",
        happened: "The registered values of the server do not permit a connection to its BMC.",
        why: "The password cannot be decrypted with the current master key, or a value such as the \
              address is not usable.",
        what_to_do: "Correct the value that the message names with `shoal server update`.",
    }
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, {
        title: "Too many failed attempts or requests at once",
        happened: "The address of the client had too many failed logins or wrong report secrets, or it has too many \
                   requests in progress.",
        why: "Attempts are limited so that secrets cannot be guessed, and requests so that one client does not use what \
              all others need.",
        what_to_do: "Wait for the seconds in `Retry-After`, then use the right credentials or fewer connections.",
    }
    Internal = "internal", INTERNAL_SERVER_ERROR, {
        title: "The controller failed",
        happened: "The controller could not process the request.",
        why: "The cause is in the log of the controller, never in a response.",
        what_to_do: "Search the log for the `request_id` of the response. Repeat a job only with its \
                     idempotency key.",
    }
    BackupFailed = "backup.failed", INTERNAL_SERVER_ERROR, {
        title: "The target of backups cannot be read",
        happened: "The folder or registry of `BACKUP_TARGET` did not list its backups. The message says why.",
        why: "Its disk is not mounted, or the registry does not respond or refuses the login.",
        what_to_do: "Do what the message says; `shoal doctor` checks the target from the machine of the controller.",
    }
    RegistryFailed = "registry.failed", INTERNAL_SERVER_ERROR, {
        title: "A registry operation failed",
        happened: "The registry could not finish the operation.",
        why: "Usually its disk is full or not readable.",
        what_to_do: "Read the log of the controller and `/readyz`, then repeat the operation.",
    }
    Bmc = "bmc", BAD_GATEWAY, {
        title: "The BMC cannot be read",
        happened: "The BMC of the server did not respond as needed.",
        why: "The BMC or the network is down, the login is refused, the certificate has changed, or the \
              BMC violates its protocol. The message names the cause.",
        what_to_do: "Do what the message says, then run `shoal bmc probe SERIAL`.",
    }
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, {
        title: "The controller cannot serve the request now",
        happened: "The database or the media cannot be used at the moment, or too many requests are in progress.",
        why: "The database is locked, its disk is full or slow, or clients use all connections that the limit of open files \
              allows.",
        what_to_do: "Read `/readyz`, then repeat the request after `Retry-After`.",
    }
    Busy = "busy", SERVICE_UNAVAILABLE, {
        title: "The job changed during the request",
        happened: "The job changed several times while the request was processed.",
        why: "Another request or a step changed it at the same time.",
        what_to_do: "Repeat the request after `Retry-After`.",
    }
    TooManyStreams = "too_many_streams", SERVICE_UNAVAILABLE, {
        title: "Too many event streams are open",
        happened: "The maximum of open event streams is reached.",
        why: "Each stream occupies memory, so their number is limited.",
        what_to_do: "Close streams that are not needed, or read the events in pages.",
    }
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for ErrorCode {
    fn schema_name() -> Cow<'static, str> {
        "ErrorCode".into()
    }

    fn json_schema(_generator: &mut SchemaGenerator) -> Schema {
        let codes: Vec<&str> = Self::ALL.iter().map(|code| code.as_str()).collect();
        json_schema!({ "type": "string", "enum": codes, "description": "The stable code of an error." })
    }
}

/// Defines the enum of rules with all its tables from one list.
macro_rules! rules {
    ($($rule:ident = $name:literal, $means:literal;)*) => {
        /// The rule that a value of a request breaks, the field `code` of an entry of `details`. Errors in a recipe have
        /// the rules of the recipe schema besides.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rule {
            $(#[doc = $means] $rule,)*
        }

        impl Rule {
            /// Every rule, by name.
            pub const ALL: &[Self] = &[$(Self::$rule),*];

            /// The rule in a response.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$rule => $name,)* }
            }

            /// What a violation of the rule means.
            pub const fn means(self) -> &'static str {
                match self { $(Self::$rule => $means,)* }
            }
        }
    };
}

rules! {
    ActiveJob = "active_job", "another job is active; the message is its id";
    Const = "const", "the value cannot be changed";
    Enum = "enum", "the value is not one of a list";
    Flag = "flag", "the quirk does not exist or has another type";
    Format = "format", "the text has no valid form, such as a URL or an address";
    Json = "json", "the place in a body that is not JSON";
    Labels = "labels", "there are too many labels, or one is too long";
    Length = "length", "the text or list is too short or too long";
    Pattern = "pattern", "the text contains characters that are not allowed";
    Range = "range", "the number or time is outside of its range";
    Report = "report", "the report does not follow its contract";
    Required = "required", "the field is absent";
    Shape = "shape", "the body is JSON of another shape: a wrong type or an unknown field";
    Type = "type", "the value has another type";
    Unknown = "unknown", "the name does not exist";
    Value = "value", "the value of a query parameter cannot be used";
}
