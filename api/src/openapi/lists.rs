//! The query parameters of filtered lists, and those with one form everywhere.

use serde_json::{Value, json};

use super::operation::ApiOperation;
use model::Condition;
use model::filter::{MAX_FILTER_BYTES, ServerState};

/// The language of filters, for the parameter `filter`.
const LANGUAGE: &str = "A filter: terms with blanks between them, all of which must hold. A term is `KEY:VALUE{,VALUE}` (one of \
    the values), `LABEL=VALUE`, `LABEL!=VALUE`, or a text; a minus in front negates it. Values with a blank, a comma or a \
    quotation mark are in quotation marks. The keys are ";

/// The filter of a list of jobs.
pub(super) fn job_filters(operation: ApiOperation) -> ApiOperation {
    let keys = "`condition`, `status`, `outcome`, `failure`, `class`, `failed_step`, `step`, `wait`, `hold`, `serial`, `label`, `workflow`, \
        `batch`, `by`, `since`, `until`.";
    shared(operation, keys)
        .query(
            "failure",
            "`open`: only jobs that failed within the last day, and that no newer job of their server has followed.",
            json!({ "type": "string", "enum": ["open"] }),
        )
        .query("class", "Only jobs that failed for a reason of this class.", text())
        .query("failed_step", "Only jobs that failed at this step.", text())
        .query("hold", "Only jobs with a hold of this class.", text())
        .query("by", "Only jobs that this user created.", text())
        .query(
            "order",
            "`newest`, or `attention`: what needs a person first (held and restored jobs, then failures of the last day that no \
             newer job of the server replaced), then jobs that have not ended, then the rest; the newest first in each.",
            json!({ "type": "string", "enum": ["newest", "attention"], "default": "newest" }),
        )
}

/// The filter of a list of servers.
pub(super) fn server_filters(operation: ApiOperation) -> ApiOperation {
    let keys = "`state`, `serial`, `label`, `vendor`, `condition`, `step`, `wait`, `since`, `until`; the condition, step and wait \
        are those of a job of the server that has not ended.";
    let states = ServerState::ALL.map(ServerState::as_str);
    shared(operation, keys)
        .query(
            "state",
            "Only servers in this state: `free` (a new job starts at once), `busy` (a job has not ended), `maintenance`, \
             `restored`, `pending-cleanup` (a cleanup is left for the next job), `unseen` (the BMC has never responded).",
            json!({ "type": "string", "enum": states }),
        )
        .query("vendor", "Only servers of this vendor, as the operator gave it.", text())
}

fn shared(operation: ApiOperation, keys: &str) -> ApiOperation {
    let language = format!("{LANGUAGE}{keys}");
    let conditions = Condition::ALL.map(Condition::as_str);
    operation
        .query("filter", &language, json!({ "type": "string", "maxLength": MAX_FILTER_BYTES }))
        .query("q", "Only rows with this text in one of their texts, without regard to ASCII case.", text())
        .query(
            "condition",
            "Only jobs in this condition, as `explain` names it.",
            json!({ "type": "string", "enum": conditions }),
        )
        .query("step", "Only jobs that are at this step and have not ended.", text())
        .query("wait", "Only jobs that wait for this reason.", text())
        .query("serial", "Only this serial number; `*` stands for any characters, `?` for one.", text())
        .query(
            "label",
            "Only with this label, of the job or of its server: KEY=VALUE, KEY!=VALUE for without it, or KEY for any value. \
             May be repeated; all must hold.",
            text(),
        )
        .query("since", "Only created at this time or later: RFC 3339, a date, or an age such as `2h`.", text())
        .query("until", "Only created before this time: RFC 3339, a date, or an age such as `2h`.", text())
}

fn text() -> Value {
    json!({ "type": "string" })
}

/// A switch: `?dry_run` alone is true.
pub(super) fn flag() -> Value {
    json!({ "type": "string", "enum": ["true", "false", "1", "0", ""] })
}
