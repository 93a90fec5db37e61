//! The operations of the registry beside `/v2/`: maintenance, its repositories, and the uploads of its clients.

use super::super::error_code::ErrorCode;
use super::super::jobs::verbs;
use super::super::registry::{
    RegistryStatus, RepositoryDetailView, RepositoryPage, StillRunning, UploadPage, scrub,
};
use super::lists::flag;
use super::operation::{ApiOperation, delete, get, post};
use super::types;
use serde_json::json;

/// The operations, in the order of the table of routes.
pub(super) fn registry() -> Vec<ApiOperation> {
    const READ_ONLY: (&str, &str) = ("registry", "/api/v1/registry/read-only");
    let dry_run = |operation: ApiOperation| {
        operation.query("dry_run", "Remove nothing and return what would be removed.", flag())
    };
    vec![
        get(("registry", "/api/v1/registry"), "getRegistry", "Show the status of the registry")
            .of_registry()
            .returns::<RegistryStatus>(200, "The status."),
        dry_run(post(
            ("registry", "/api/v1/registry/gc"),
            "collectGarbage",
            "Remove content that no image needs",
        ))
        .for_admins()
        .of_registry()
        .query("untagged", "Whether to remove untagged manifests as well.", flag())
        .query(
            "grace",
            "The age in seconds from which content without references is removed.",
            json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        )
        .returns::<types::GcReport>(200, "The report of the collection.")
        .returns::<StillRunning>(202, "The collection continues.")
        .errors(&[ErrorCode::RegistryReadOnly]),
        post(READ_ONLY, "beginRegistryReadOnly", "Refuse pushes and deletes")
            .for_admins()
            .of_registry()
            .body::<verbs::Request>()
            .returns::<RegistryStatus>(200, "The registry is read-only.")
            .errors(&[ErrorCode::RegistryFixed]),
        delete(READ_ONLY, "endRegistryReadOnly", "Accept pushes and deletes again")
            .for_admins()
            .of_registry()
            .returns::<RegistryStatus>(200, "The registry is not read-only.")
            .errors(&[ErrorCode::RegistryFixed]),
        get(
            ("registry", "/api/v1/registry/repositories"),
            "listRepositories",
            "List the repositories with some of their tags",
        )
        .of_registry()
        .returns::<RepositoryPage>(200, "All repositories."),
        get(
            ("registry", "/api/v1/registry/repositories/{name}"),
            "getRepository",
            "Show a repository with its tags, their sizes and platforms, and what holds its content",
        )
        .of_registry()
        .path_parameter("name", "The name, with its slashes written `%2F`.", json!({ "type": "string" }))
        .page_size(50, 100)
        .query("cursor", "The tag after which the page begins.", json!({ "type": "string" }))
        .returns::<RepositoryDetailView>(200, "The repository.")
        .errors(&[ErrorCode::UnknownRepository]),
        delete(
            ("registry", "/api/v1/registry/repositories/{name}/tags/{tag}"),
            "deleteTag",
            "Delete a tag; its manifest stays under its digest",
        )
        .for_admins()
        .of_registry()
        .path_parameter(
            "name",
            "The repository, with its slashes written `%2F`.",
            json!({ "type": "string" }),
        )
        .path_parameter("tag", "The tag.", json!({ "type": "string" }))
        .query(
            "digest",
            "The manifest that the tag must name; otherwise nothing is deleted.",
            json!({ "type": "string" }),
        )
        .returns_nothing(204, "The tag is deleted.")
        .errors(&[
            ErrorCode::UnknownTag,
            ErrorCode::RegistryReadOnly,
            ErrorCode::RegistryImmutable,
            ErrorCode::PreconditionFailed,
        ]),
        dry_run(post(
            ("registry", "/api/v1/registry/retention"),
            "retainTags",
            "Remove tags that no retention rule keeps",
        ))
        .for_admins()
        .of_registry()
        .returns::<types::RetentionReport>(200, "The report of the retention.")
        .returns::<StillRunning>(202, "The retention continues.")
        .errors(&[ErrorCode::RegistryReadOnly]),
        post(("registry", "/api/v1/registry/scrub"), "scrubRegistry", "Start to hash all content again")
            .for_admins()
            .of_registry()
            .returns::<scrub::ScrubView>(202, "A scrub is running."),
        get(
            ("registry", "/api/v1/registry/uploads"),
            "listUploads",
            "List the open upload sessions of all clients",
        )
        .of_registry()
        .returns::<UploadPage>(200, "The sessions; the one that waits longest for a write is first."),
        delete(("registry", "/api/v1/registry/uploads/{id}"), "cancelUpload", "Cancel an upload session")
            .for_admins()
            .of_registry()
            .path_parameter("id", "The id of the upload session.", json!({ "type": "string" }))
            .returns::<UploadPage>(200, "The session is cancelled; the sessions that are left.")
            .errors(&[ErrorCode::UnknownUpload]),
    ]
}
