//! The operations that only show what the controller knows: overview, settings, reads of media, kept cards.

use super::super::jobs::media::MediaReadsView;
use super::super::media_list::MediaPage;
use super::super::overview::OverviewView;
use super::super::servers::card::KeptCard;
use super::super::servers::diagnostics::LastReport;
use super::super::settings::SettingsView;
use super::operation::{ApiOperation, get};
use serde_json::json;

/// The operations, in the order of the table of routes.
pub(super) fn insight() -> Vec<ApiOperation> {
    vec![
        get(("jobs", "/api/v1/jobs/{id}/media"), "getJobMedia", "Show what was read of the images of a job")
            .of_job()
            .returns::<MediaReadsView>(200, "The reads of each image."),
        get(
            ("jobs", "/api/v1/media"),
            "listMedia",
            "List the boot, task and firmware images that are and were served, the newest first",
        )
        .query(
            "served",
            "`true`: only images whose URL is open; `false`: only those whose URL has ended.",
            json!({ "type": "string", "enum": ["true", "false"] }),
        )
        .query(
            "image",
            "Only images of this kind.",
            json!({ "type": "string", "enum": ["boot", "task", "firmware"] }),
        )
        .query(
            "server_serial",
            "Only images for this server.",
            json!({ "$ref": "#/components/schemas/SerialNumber" }),
        )
        .query("cursor", "The field `next` of the previous page.", json!({ "type": "string" }))
        .page_size(50, 500)
        .returns::<MediaPage>(200, "One page of the uses of images."),
        get(
            ("controller", "/api/v1/overview"),
            "getOverview",
            "Count jobs by state, step and reason, and servers by rack",
        )
        .returns::<OverviewView>(200, "The numbers, at most a second old."),
        get(
            ("servers", "/api/v1/servers/{serial}/card"),
            "getCard",
            "Show the card of the last probe of a BMC",
        )
        .of_server()
        .returns::<KeptCard>(200, "The card; null before the first probe."),
        get(
            ("servers", "/api/v1/servers/{serial}/diagnostics"),
            "getDiagnostics",
            "Show the result of the last diagnostics of a BMC",
        )
        .of_server()
        .returns::<LastReport>(200, "The result; without checks before the first."),
        get(("controller", "/api/v1/settings"), "listSettings", "Show the settings and where they come from")
            .for_admins()
            .returns::<SettingsView>(200, "All settings, without secrets."),
    ]
}
