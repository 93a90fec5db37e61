//! Every page in an empty and in a filled state, compared with `golden/ui/`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "pages/changes.rs"]
mod changes;
#[path = "pages/job.rs"]
mod job_pages;
#[path = "pages/reasons.rs"]
mod reasons;
#[path = "pages/webhooks.rs"]
mod webhooks;

use askama::Template;
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use ui::State;
use ui::data::{Drain, EventPage, JobPageJson, OverviewJson, Readiness, ServerPage};
use ui::view::{
    AccountView, Ask, AskEffect, AuditSearch, BatchForm, BatchPreview, BatchView, CallerRole, ErrorPage,
    EventsSearch, FormView, Frame, ImportForm, IssuedView, JobForm, JobParts, JobView, JobsQuery, JobsVerb,
    JobsView, LimitFields, LogView, LoginView, MediaQuery, NewJobView, NewServerView, OverviewView,
    RegistryPlace, RegistryTls, ServerPageView, ServerParts, ServersView, Tab, TableView, Theme,
};

const JOB: &str = "01a205f1-1b43-71f3-9bb7-46f5185387f1";
const BATCH: &str = "01a205f1-0000-7000-8000-46f5185387f1";
const CAUSE: &str = "3f9a1c2b7d60e581";
/// What a BMC or an installer may say.
const EVIL: &str = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(2)>";

fn frame(role: CallerRole) -> Frame {
    let role_name = match role {
        CallerRole::Admin => "admin",
        CallerRole::Operator => "operator",
        _ => "viewer",
    };
    Frame {
        title: "Page".to_owned(),
        tab: Tab::Jobs,
        path: "/ui/jobs".to_owned(),
        user: "mika".to_owned(),
        role,
        sees_all: true,
        role_name: role_name.to_owned(),
        failed: 2,
        theme: Theme::Dark,
        clock_times: false,
        csrf: "0123456789abcdef".to_owned(),
        version: "0.1.0",
        reads: true,
        stream: Some("/api/v1/events?after=7".to_owned()),
        notice: None,
        now: "2026-11-23T14:32:06Z".parse().unwrap(),
    }
}

fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn job(text: &str) -> Value {
    json!({
        "job_id": JOB, "workflow": "provision", "server_serial": "9F86W24", "status": "complete", "outcome": "failed",
        "failed_step": "webhook.wait", "step": null, "wait": null, "hold": null,
        "failure": { "class": "installer", "step": "webhook.wait", "summary": text, "next_action": "see the console" },
        "created_at": "2026-11-23T14:06:54.000Z", "last_update": "2026-11-23T14:20:40.000Z",
        "deadline_at": "2026-11-23T15:06:54.000Z", "maintenance_iso_url": "maintenance.iso", "task_iso_sha256": "4d7665236a2c00",
        "labels": { "wave": text }, "priority": 10, "retry_of": JOB, "batch": BATCH,
        "cleanup": { "state": "done", "remaining": [] },
    })
}

fn waiting() -> Value {
    let mut job = job("");
    job["status"] = json!("provisioning");
    job["outcome"] = Value::Null;
    job["failure"] = Value::Null;
    job["failed_step"] = Value::Null;
    job["step"] = json!("webhook.wait");
    job["cleanup"]["state"] = json!("pending");
    job["wait"] = json!({
        "reason": "report", "detail": "the image is pulled", "since": "2026-11-23T14:01:10.000Z",
        "deadline": "2026-11-23T14:33:06.000Z",
    });
    job
}

fn event(seq: i64, level: &str, text: &str) -> Value {
    json!({
        "seq": seq, "time": "2026-11-23T14:20:40.000Z", "level": level, "type": "step.failed", "step": "webhook.wait",
        "job_id": JOB, "server_serial": "9F86W24", "actor": "engine", "message": text,
    })
}

fn server(text: &str) -> Value {
    json!({
        "serial": "9F86W24", "bmc_address": "https://10.20.6.24", "bmc_username": "shoal", "vendor": null,
        "bmc_profile": null, "labels": { "site": "north", "rack": "n06", "role": text }, "tls": "pinned",
        "tls_fingerprint": "ab129c4000", "last_seen": "2026-11-23T14:20:58.000Z",
        "observed": { "manufacturer": "Contoso", "model": text, "bios_version": "2.4.1", "firmware": "7.10", "slot_plan": "dual", "profile": "generic" },
        "learned": { "slow_insert": true },
        "maintenance": { "since": "2026-11-23T11:20:00.000Z", "by": "ann", "reason": text },
        "restored": null, "revision": 3,
    })
}

fn overview(text: &str) -> OverviewJson {
    of(json!({
        "at": "2026-11-23T14:32:06.000Z", "servers": 444, "last_seq": 4812, "failed": 9, "succeeded": 346,
        "open": [
            { "state": "waiting", "jobs": 41, "since": "2026-11-23T14:01:10.000Z", "next_deadline": "2026-11-23T14:33:07.000Z" },
            { "state": "queued", "jobs": 126, "since": "2026-11-23T13:48:00.000Z", "next_deadline": "2026-11-23T20:00:00.000Z" },
        ],
        "failures": [{
            "class": "media", "step": "webhook.wait", "summary": text, "next_action": "check the network", "jobs": 6,
            "newest_job": JOB, "newest_at": "2026-11-23T13:54:12.000Z", "servers": ["9F86W24", "9F86W31"],
        }],
        "holds": [{ "class": "operator", "detail": text, "jobs": 2, "since": "2026-11-23T11:20:00.000Z" }],
        "waits": [{ "reason": "report", "jobs": 33, "since": "2026-11-23T14:01:10.000Z", "next_deadline": "2026-11-23T15:01:10.000Z" }],
        "steps": [{ "step": "webhook.wait", "waiting": 33, "working": 0 }, { "step": "redfish.eject", "waiting": 1, "working": 4 }],
        "ended": [{ "hour": "2026-11-23T13:00:00.000Z", "succeeded": 20, "failed": 7, "cancelled": 1 }],
        "racks": [
            { "site": "north", "rack": "n03", "failed": 6, "held": 1, "waiting": 9, "working": 4, "queued": 2, "done": 17, "idle": 3 },
            { "site": "", "rack": text, "failed": 0, "held": 0, "waiting": 0, "working": 0, "queued": 0, "done": 1, "idle": 0 },
        ],
    }))
}

fn nothing() -> OverviewJson {
    of(json!({
        "at": "2026-11-23T14:32:06.000Z", "servers": 0, "last_seq": 0, "failed": 0, "succeeded": 0, "open": [], "failures": [],
        "holds": [], "waits": [], "steps": [], "ended": [], "racks": [],
    }))
}

fn drain(drained: bool) -> Drain {
    let closure = json!({ "since": "2026-11-23T14:00:00.000Z", "by": "ann", "reason": "upgrade" });
    of(json!({ "drain": if drained { closure } else { Value::Null }, "pressure": null, "active_runs": 4 }))
}

fn ready(ok: bool) -> Readiness {
    let disk = json!({ "ok": ok, "free_bytes": 74_800_000_000_u64, "message": if ok { Value::Null } else { json!("full") } });
    of(json!({ "status": "ready", "checks": { "database": { "ok": true }, "disk": disk } }))
}

fn place(tls: RegistryTls) -> RegistryPlace<'static> {
    RegistryPlace { host: "10.20.0.5:8080", tls }
}

fn job_page(text: &str, role: CallerRole) -> String {
    let mut detail = job(text);
    detail["slot_plan"] = json!({ "name": "dual" });
    detail["verbs"] = json!(["retry"]);
    detail["steps"] = json!([
        { "step": "validate", "phase": "done", "attempt": 1, "started_at": "2026-11-23T14:06:54.000Z", "ended_at": "2026-11-23T14:06:54.040Z" },
        { "step": "redfish.power-on", "phase": "done", "attempt": 1, "started_at": "2026-11-23T14:07:38.000Z", "ended_at": "2026-11-23T14:07:50.000Z" },
        { "step": "webhook.wait", "phase": "failed", "attempt": 2, "started_at": "2026-11-23T14:07:50.000Z", "ended_at": "2026-11-23T14:20:40.000Z" },
        { "step": "cleanup.eject", "phase": "skipped", "attempt": 1, "started_at": "2026-11-23T14:20:40.000Z", "ended_at": "2026-11-23T14:20:40.000Z" },
    ]);
    detail["events"] = json!([event(4720, "info", "the boot record was read"), event(4795, "error", text)]);
    let why = json!({
        "condition": "ended", "reason": "installer", "summary": text, "since": "2026-11-23T14:20:40.000Z", "deadline": null,
        "ends_by": "nothing", "next_action": "set the boot mode", "evidence": [],
    });
    let media = json!([{
        "image": "boot", "size": 641_728_512, "bytes": 417_333_248, "first_read_at": "2026-11-23T14:07:46.000Z",
        "boot_read_at": null, "last_read_at": "2026-11-23T14:20:31.000Z", "ended_at": null,
    }]);
    let observed = server(text)["observed"].clone();
    let begun = |bios: &str, digest: &str| {
        let recipe = json!({
            "task_target": "install-linux.target", "oci_url": text, "disk_hints": { "serial": text }, "partitions": 2,
            "user_data": { "bytes": 2048 },
        });
        let found = json!({ "model": text, "bios_version": bios, "boot_mode": "UEFI" });
        let events = [
            ("job.created", recipe),
            ("validate.done", json!({ "os_image_digest": digest })),
            ("redfish.discovered", found),
        ];
        events
            .map(|(kind, data)| {
                let mut event = event(4700, "info", text);
                (event["type"], event["data"]) = (json!(kind), data);
                of(event)
            })
            .to_vec()
    };
    let parts = JobParts {
        media: of(media),
        observed: Some(observed),
        begun: begun("2.4.1", &format!("sha256:{}", "4018".repeat(16))),
        success: Some(ui::data::LastSuccess {
            job_id: "01a205f0-1b43-71f3-9bb7-46f5185387f1".to_owned(),
            ended_at: "2026-11-03T14:20:40Z".parse().unwrap(),
            begun: begun("2.3.5", &format!("sha256:{}", "e41b".repeat(16))),
        }),
    };
    JobView::of(frame(role), &of(detail), &of(why), &parts).render().unwrap()
}

fn server_page(text: &str, role: CallerRole) -> String {
    let card = json!({
        "probed_at": "2026-11-23T14:00:42.000Z",
        "card": {
            "identity": { "manufacturer": "Contoso", "model": text, "bmc_firmware": "7.10" }, "host": { "power": "On", "serial": "9F86W24" },
            "boot": { "mode": "UEFI" }, "clock": { "skew_seconds": -412 }, "profile": { "name": "generic", "rule": "by default" },
            "slot_plan": { "plan": "dual", "reason": "2 CD slots take media" },
            "slots": [{ "id": text, "media_types": ["CD", "DVD"], "empty": true, "insert": "action" }, { "id": "2", "media_types": ["CD"], "empty": false, "insert": "action" }],
        },
    });
    let jobs: JobPageJson = of(json!({ "jobs": [waiting(), job(text)], "next": null }));
    let condition = json!({
        "id": JOB, "kind": "firmwareInstall", "state": "failed", "status": { "message": text, "next_action": "look" },
        "created_at": "2026-11-23T14:00:00Z", "updated_at": "2026-11-23T14:20:00Z",
    });
    let parts = ServerParts {
        inventory: of(json!({
            "out_of_band_read_at": "2026-11-23T14:00:00Z",
            "out_of_band": { "firmware": [{ "id": "BIOS-1.2", "name": text, "version": "1.2" }, { "id": "BMC", "name": null, "version": "7.10" }] },
        })),
        conditions: of(json!({ "conditions": [condition] })),
        diagnostics: of(json!({
            "diagnostics_id": JOB, "ended_at": "2026-11-23T14:00:00Z", "verdict": "fail",
            "checks": [{ "name": "media", "status": "pass", "found": "it was read", "next_action": "" }, { "name": "login", "status": "fail", "found": text, "next_action": "correct it" }],
        })),
        fitting: Some(Err(text.to_owned())),
        open: jobs.jobs.first().cloned(),
        begins: None,
        refused: Some(text.to_owned()),
    };
    ServerPageView::of(frame(role), &of(server(text)), &jobs, &of(card), &parts).render().unwrap()
}

fn issued_page(token: &str) -> String {
    let issued = json!({ "token": token, "name": "ci", "role": "operator", "last_used_at": null, "expires_at": null, "created_at": "2026-11-23T14:00:00Z" });
    IssuedView::of(frame(CallerRole::Admin), &of(issued)).render().unwrap()
}

fn batch(text: &str) -> Value {
    json!({
        "batch_id": BATCH, "created_at": "2026-11-23T13:48:00.000Z", "created_by": text, "max_parallel": 20, "jobs": 240,
        "complete": false, "progress": { "queued": 112, "running": 20, "succeeded": 100, "failed": 6, "cancelled": 2 },
        "canary": 2, "stop_after": 5, "retry_of": JOB,
        "stop": { "reason": "stopped", "since": "2026-11-23T14:10:00.000Z", "failures": 6, "next_action": text },
        "causes": [{
            "cause": CAUSE, "class": "installer", "step": "webhook.wait", "summary": text, "next_action": text, "jobs": 6,
            "superseded": 2, "selection": "0a", "first": [{ "job_id": JOB, "server_serial": text }, { "job_id": JOB, "server_serial": null }],
        }],
        "more_failed": 3, "retriable": 5, "selection": "44556677aabbccdd",
    })
}

/// The pages that change many things at once, and those of accounts and firmware.
fn many(text: &str, role: CallerRole) -> Vec<(&'static str, String)> {
    let f = || frame(role);
    let wrong: Vec<ui::data::ErrorDetail> = of(json!([{ "path": "/recipe", "message": text }]));
    let selection: ui::data::SelectionJson = of(
        json!({ "count": 30, "selection": "01234567aabbccdd", "superseded": 4, "first": [{ "job_id": JOB, "server_serial": text }] }),
    );
    let limits = LimitFields { max_parallel: "5".to_owned(), ..LimitFields::default() };
    let refused =
        json!({ "error": "invalid", "message": text, "details": [{ "path": "/labels", "message": text }] });
    let import: ui::data::ServerImport = of(json!({ "created": 2, "exists": 1, "refused": 1, "rows": [
        { "index": 0, "serial": "A", "result": "created", "error": null }, { "index": 1, "serial": text, "result": "refused", "error": refused },
        { "index": 2, "serial": null, "result": "exists", "error": null },
    ] }));
    let entered = BatchForm { filter: text.to_owned(), recipe: text.to_owned(), ..BatchForm::default() };
    let preview = BatchPreview {
        servers: 240,
        selection: "8899aabbccddeeff".to_owned(),
        tried: of(json!([
            { "server_serial": "A", "result": "accept", "error": null }, { "server_serial": text, "result": "refuse", "error": refused },
        ])),
    };
    let table = ImportForm { text: text.to_owned(), ..ImportForm::default() };
    let results = [("A".to_owned(), None), ("B".to_owned(), Some(text.to_owned()))];
    let plan: ui::data::ConditionPreview = of(json!({
        "would": "accept", "refused": null, "parameters": { "firmware_set": text }, "does": "installs firmware", "steps": [],
        "plan": [
            { "component": "bmc", "id": null, "now": "1", "then": "2", "decision": "install", "reason": text, "size": 7_000_000, "restart": "none" },
            { "component": "bios", "id": "BIOS", "now": "2", "then": "2", "decision": "skip", "reason": "the same version", "size": null, "restart": null },
        ],
        "plan_missing": null, "waits_for": JOB, "gates": ["drain"],
    }));
    let sets = [text.to_owned()];
    let user: ui::data::User = of(
        json!({ "name": "olga", "role": "operator", "disabled_at": null, "unconfirmed": true, "created_by": text, "created_at": "2026-10-13T00:00:00Z" }),
    );
    let form = |view: FormView| view.render().unwrap();
    vec![
        ("batch", BatchView::of(f(), &of(batch(text))).render().unwrap()),
        ("batch-retry", form(FormView::retry_batch(f(), &of(batch(text)), CAUSE, "k"))),
        ("batch-cancel", form(FormView::cancel_batch(f(), &of(batch(text))))),
        ("batch-new", form(FormView::new_batch(f(), &entered, wrong.clone(), Some(&preview)))),
        ("jobs-retry", form(FormView::jobs_selection(f(), JobsVerb::Retry, text, &selection, &limits, "k"))),
        (
            "jobs-cancel",
            form(FormView::jobs_selection(f(), JobsVerb::Cancel, text, &selection, &limits, "k")),
        ),
        (
            "jobs-resume",
            form(FormView::jobs_selection(f(), JobsVerb::Resume, text, &selection, &limits, "k")),
        ),
        ("import", form(FormView::import(f(), &table, wrong.clone()))),
        ("import-preview", form(FormView::import_preview(f(), &import, "sealed:v1:x"))),
        ("imported", TableView::imported(f(), &import).render().unwrap()),
        ("probed", TableView::probed(f(), "rack=n03", &results).render().unwrap()),
        (
            "condition",
            form(FormView::condition(f(), "9F86W24", "firmwareInstall", (text, &sets), Some(&plan), "k")),
        ),
        ("condition-choose", form(FormView::condition(f(), "9F86W24", "bmcReset", (text, &sets), None, ""))),
        ("user", form(FormView::user(f(), &user, wrong.clone()))),
        ("user-new", form(FormView::new_user(f(), text, "admin", wrong.clone()))),
        ("token-new", form(FormView::new_token(f(), [text, "viewer", text, text, "90"], wrong.clone()))),
        ("password", form(FormView::own_password(f(), wrong))),
    ]
}

fn stores(text: &str) -> Vec<(&'static str, String)> {
    let admin = || frame(CallerRole::Admin);
    let file = json!({
        "digest": "sha256:0123456789abcdef0123456789abcdef", "vendor": "Contoso", "models": ["R1", text], "component": "bios", "version": "2.1",
        "filename": text, "size": 30_000_000, "restart": "host",
    });
    let set = json!({ "name": text, "labels": { "vendor": text }, "created_by": "ann", "created_at": "2026-11-23T14:00:00Z", "files": [file] });
    let files = json!({ "firmware": [file], "unusable": [{ "digest": "sha256:00", "repository": "firmware/x", "reason": text }] });
    let repository = json!({
        "name": "os-images/ubuntu-rootfs", "bytes": 1_800_000_000_u64, "next": "22.04", "more_held": 2,
        "tags": [
            { "tag": "22.04", "digest": "sha256:0123456789abcdef", "kind": "index", "bytes": 900_000_000, "platforms": ["linux/amd64", text],
              "pushed_at": "2026-11-20T14:00:00Z", "immutable": true, "held_by": [text, "job 2"], "problem": null },
            { "tag": "old", "digest": "sha256:aa", "kind": "unknown", "bytes": null, "platforms": [], "pushed_at": null, "immutable": false,
              "held_by": [], "problem": "the manifest is gone" },
        ],
        "held": [{ "digest": "sha256:0123456789abcdef", "owner": text, "job_id": null, "since": "2026-11-23T14:00:00Z" }, { "digest": "sha256:aa", "owner": "job x", "job_id": JOB, "since": null }],
    });
    let medium = |image: &str, state: &str, ended: Option<&str>, read: Option<&str>| {
        json!({
            "job_id": JOB, "workflow": "provision", "server_serial": text, "state": state, "image": image, "sha256": "0123456789abcdef",
            "size": 400_000_000, "bytes": if read.is_some() { 120_000_000 } else { 0 }, "since": "2026-11-23T14:00:00Z",
            "first_read_at": read, "boot_read_at": read, "last_read_at": read, "ended_at": ended,
            "ends_by": if ended.is_none() { json!("2026-11-23T15:00:00Z") } else { json!(null) },
        })
    };
    let (at, later) = (Some("2026-11-23T14:20:00Z"), Some("2026-11-23T14:25:00Z"));
    let served = json!({ "media": [medium("boot", "reading", None, at), medium("task", "unread", None, None), medium("boot", "idle", None, at)], "next": "7" });
    let mut without_server = medium("firmware", "ended", later, at);
    without_server["server_serial"] = json!(null);
    let ended = json!({ "media": [medium("boot", "ended", later, at), without_server, medium("task", "withheld", None, None)], "next": null });
    let query = MediaQuery { server: text.to_owned(), image: "boot".to_owned(), ended_only: false };
    vec![
        (
            "media",
            TableView::media(admin(), &query, &of(served), &of(ended), Some(text.to_owned()))
                .render()
                .unwrap(),
        ),
        (
            "repository",
            TableView::repository(admin(), &of(repository.clone()), place(RegistryTls::None))
                .render()
                .unwrap(),
        ),
        (
            "delete_tag",
            FormView::delete_tag(admin(), text, &of(repository["tags"][1].clone())).render().unwrap(),
        ),
        (
            "firmware",
            TableView::firmware(admin(), &of(files), &of(json!({ "sets": [set] }))).render().unwrap(),
        ),
        ("firmware-set", TableView::firmware_set(admin(), &of(set)).render().unwrap()),
    ]
}

fn overview_page(text: &str, role: CallerRole) -> String {
    let events: EventPage = of(
        json!({ "events": [event(1, "info", text), event(2, "error", text)], "next": 2, "previous": null }),
    );
    OverviewView::of(frame(role), &overview(text), &drain(true), &ready(false), &events.events, "")
        .render()
        .unwrap()
}

fn jobs_page(text: &str, role: CallerRole) -> String {
    let page: JobPageJson = of(json!({ "jobs": [job(text), waiting()], "next": "2026_x" }));
    let query = JobsQuery::parse("outcome:failed class:media rack=7");
    JobsView::of(frame(role), &query, &page, Some(&overview(text)), None, None).render().unwrap()
}

fn servers_page(text: &str, role: CallerRole) -> String {
    let page: ServerPage = of(json!({ "servers": [server(text)], "next": "9F86W24" }));
    ServersView::of(frame(role), text, &page, true, Some(text.to_owned())).render().unwrap()
}

fn tables(text: &str) -> Vec<(&'static str, String)> {
    let admin = || frame(CallerRole::Admin);
    let registry = json!({
        "accepts_pushes": true, "free_bytes": 74_800_000_000_u64, "read_only": null, "pins": 62,
        "quotas": [{ "repositories": "os-images/**", "limit_bytes": 500, "used_bytes": 187 }],
        "scrub": { "last_verified": "2026-11-23T02:10:44Z", "blobs": 4118, "bytes": 222_000_000_000_u64, "quarantined": [] },
    });
    let repositories = json!({ "repositories": [{ "name": "os-images/ubuntu-rootfs", "tags": 14, "names": ["22.04", text] }] });
    let users = json!({ "users": [{ "name": text, "role": "operator", "disabled_at": null, "unconfirmed": false, "created_by": "ann", "created_at": "2026-10-13T00:00:00Z" }] });
    let tokens = json!({ "tokens": [{ "name": text, "role": "admin", "last_used_at": null, "expires_at": null, "created_at": "2026-10-13T00:00:00Z" }] });
    let settings = json!({ "settings": [{ "name": "MEDIA_HTTP_ADDR", "value": text, "origin": "file" }, { "name": "SITE_LIMIT", "value": "", "origin": "default" }] });
    let audit = json!({ "entries": [{ "time": "2026-11-23T14:00:00Z", "action": "job.cancel", "target": text, "actor": text, "source": "10.0.0.1", "result": "ok", "count": 3 }], "head": "12:abcdef", "next": "11" });
    let filter = AuditSearch { action: "job.*".to_owned(), actor: text.to_owned(), ..AuditSearch::default() };
    let events = json!({ "events": [event(7, "warn", text)], "next": 7, "previous": 3 });
    let search =
        EventsSearch { types: "job.*".to_owned(), since: text.to_owned(), ..EventsSearch::default() };
    let found =
        (json!({ "jobs": [job(text)], "next": null }), json!({ "servers": [server(text)], "next": null }));
    let pages = [
        ("events", TableView::events(admin(), &of(events), &search, None)),
        ("batches", TableView::batches(admin(), &of(json!({ "batches": [batch(text)], "next": "2026_x" })))),
        ("accounts", TableView::accounts(admin(), &of(users), &of(tokens))),
        ("settings", TableView::settings(admin(), &of(settings))),
        ("audit", TableView::audit(admin(), &of(audit), &filter, None)),
        (
            "registry",
            TableView::registry(admin(), &of(registry), &of(repositories), place(RegistryTls::OwnListener)),
        ),
        ("found", TableView::found(admin(), text, &of(found.0), &of(found.1))),
    ];
    pages.into_iter().map(|(name, page)| (name, page.render().unwrap())).collect()
}

fn forms(text: &str, role: CallerRole) -> Vec<(&'static str, String)> {
    let mut wrong: Vec<ui::data::ErrorDetail> =
        of(json!([{ "path": "/recipe/target_disk", "message": text, "repair": { "set": text } }]));
    (wrong[0].line, wrong[0].choice) = (Some(12), Some(text.to_owned()));
    let fields = JobForm { server: text.to_owned(), recipe: text.to_owned(), ..JobForm::default() };
    let plan = json!({
        "would": "accept", "refused": null, "steps": [{ "step": "validate", "budget_s": 60, "wait_s": null }], "slot_plan": "dual",
        "os_image_held": false, "gates": [{ "name": "drain", "since": "2026-11-23T14:00:00Z" }], "blocked_by": [text],
        "warnings": [{ "path": "/recipe", "message": text }], "deadline_at": "2026-11-23T15:00:00Z",
    });
    let sessions = json!({ "sessions": [{
        "session_id": "1", "name": "mika", "address": "10.0.0.9", "agent": text, "created_at": "2026-11-23T14:00:00Z",
        "last_used_at": "2026-11-23T14:00:00Z", "expires_at": "2026-11-24T14:00:00Z", "current": false,
    }] });
    let mut new_server = NewServerView::empty(frame(role));
    new_server.serial = text.to_owned();
    new_server.refused = wrong.clone();
    new_server.registered = true;
    let ask = Ask {
        f: frame(role),
        question: "Cancel the job of 9F86W24?".to_owned(),
        intro: text.to_owned(),
        effects: vec![AskEffect { state: State::Waiting, text: text.to_owned() }],
        action: format!("/ui/jobs/{JOB}/cancel"),
        key: "k".to_owned(),
        revision: "7".to_owned(),
        reason: true,
        yes: "Cancel the job".to_owned(),
        no: "Let it go on",
        back: format!("/ui/jobs/{JOB}"),
        risk: true,
    };
    let login = LoginView {
        refused: Some(text.to_owned()),
        ended: false,
        user: text.to_owned(),
        next: "/ui/".to_owned(),
        plain_http: true,
    };
    let error = of(
        json!({ "error": "conflict.phase", "message": text, "details": [{ "path": "/a", "message": text }], "request_id": "r" }),
    );
    vec![
        ("new-job", NewJobView::of(frame(role), fields, wrong, Some(&of(plan))).render().unwrap()),
        ("new-server", new_server.render().unwrap()),
        ("account", AccountView::of(frame(role), &of(sessions)).render().unwrap()),
        ("ask", ask.render().unwrap()),
        ("login", login.render().unwrap()),
        ("error", ErrorPage::of(frame(role), 409, error).render().unwrap()),
        ("log", LogView { f: frame(role), back: "/ui/".to_owned(), log: text.to_owned() }.render().unwrap()),
    ]
}

fn filled(text: &str, role: CallerRole) -> Vec<(&'static str, String)> {
    let mut pages = vec![
        ("overview", overview_page(text, role)),
        ("jobs", jobs_page(text, role)),
        ("job", job_page(text, role)),
        ("servers", servers_page(text, role)),
        ("server", server_page(text, role)),
    ];
    pages.extend(tables(text));
    pages.extend(forms(text, role));
    pages.extend(many(text, role));
    pages.extend(stores(text));
    pages.extend(changes::pages(text, role));
    pages.extend(webhooks::pages(text));
    pages
}

fn empty() -> Vec<(&'static str, String)> {
    let f = || frame(CallerRole::Operator);
    let jobs: JobPageJson = of(json!({ "jobs": [], "next": null }));
    let servers: ServerPage = of(json!({ "servers": [], "next": null }));
    let events: EventPage = of(json!({ "events": [], "next": 0, "previous": null }));
    let overview =
        OverviewView::of(f(), &nothing(), &drain(false), &ready(true), &[], "http://10.20.0.5:8081");
    let query = JobsQuery::default();
    vec![
        ("overview-empty", overview.render().unwrap()),
        ("jobs-empty", JobsView::of(f(), &query, &jobs, Some(&nothing()), None, None).render().unwrap()),
        ("servers-empty", ServersView::of(f(), "", &servers, true, None).render().unwrap()),
        ("events-empty", TableView::events(f(), &events, &EventsSearch::default(), None).render().unwrap()),
        ("batches-empty", TableView::batches(f(), &of(json!({ "batches": [] }))).render().unwrap()),
        ("new-server-empty", NewServerView::empty(f()).render().unwrap()),
        ("new-job-empty", NewJobView::of(f(), JobForm::default(), Vec::new(), None).render().unwrap()),
    ]
}

#[test]
fn every_page_is_the_golden_one() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/ui");
    let mut different = Vec::new();
    for (name, page) in
        filled("bootloader-linux.service failed", CallerRole::Operator).into_iter().chain(empty())
    {
        // The names of the assets change with their content, and the icons are in every page.
        let assets = [(&ui::assets::STYLE.path, "STYLE"), (&ui::assets::SCRIPT.path, "SCRIPT")];
        let page = assets.into_iter().fold(page, |page, (path, word)| page.replace(path.as_str(), word));
        let icons = page.split_once("<svg width=\"0\"").and_then(|(_, rest)| rest.split_once("</svg>"));
        let page = icons.map_or(page.clone(), |(icons, _)| page.replace(icons, ">ICONS"));
        let path = format!("{folder}/{name}.html");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != page {
            different.push(path);
        }
    }
    assert!(different.is_empty(), "UPDATE_GOLDEN=1 rewrites {different:?}");
}

#[test]
fn a_text_of_a_machine_is_data_on_every_page() {
    for (name, page) in filled(EVIL, CallerRole::Admin) {
        for part in ["<script>alert", "<img", "onerror=alert(2)>"] {
            assert!(!page.contains(part), "{name} has {part}");
        }
        // These questions have numbers, serial numbers and names of this program only.
        let plain = ["batch-cancel", "server-delete", "server-delete-jobs"].contains(&name);
        assert!(page.contains("&#60;script") || plain, "{name} does not show the text");
    }
}

#[test]
fn no_page_has_inline_script_or_style() {
    for (name, page) in filled("text", CallerRole::Admin).into_iter().chain(empty()) {
        for part in [" style=", "<style", "javascript:", " onclick=", " onload="] {
            assert!(!page.contains(part), "{name} has {part}");
        }
        let scripts = page.matches("<script").count();
        assert_eq!(scripts, page.matches("<script src=\"/ui/assets/").count(), "{name}");
        assert!(page.len() < 64 << 10, "{name} has {} bytes", page.len());
        let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
        assert_eq!(ids.len(), unique.len(), "{name} has an id twice: {ids:?}");
    }
}

#[test]
fn a_viewer_is_offered_no_change() {
    for (name, page) in filled("text", CallerRole::Viewer) {
        if !["overview", "jobs", "job", "servers", "server", "batch"].contains(&name) {
            continue;
        }
        let forms = page.matches("method=\"post\"").count();
        assert_eq!(forms, 1, "{name}: only the form of the theme");
        for link in [
            "/retry\"",
            "/maintenance",
            "/jobs/new",
            "/servers/new",
            "/ui/drain\"",
            "/log\"",
            "/selection/",
            "/import",
            "/condition\"",
            "/continue\"",
        ] {
            assert!(!page.contains(link), "{name} offers {link}");
        }
    }
    assert!(job_page("text", CallerRole::Operator).contains("/retry\""));
}

#[test]
fn a_token_with_labels_is_offered_no_change_of_many() {
    let page: JobPageJson = of(json!({ "jobs": [job("text")], "next": null }));
    let query = JobsQuery::parse("outcome:failed");
    for (sees_all, offered) in [(true, 2), (false, 0)] {
        let frame = Frame { sees_all, ..frame(CallerRole::Operator) };
        let page = JobsView::of(frame, &query, &page, None, None, None).render().unwrap();
        assert_eq!(page.matches("/ui/jobs/selection/").count(), offered);
    }
}

#[test]
fn the_navigation_leads_to_no_page_that_is_refused() {
    let page: JobPageJson = of(json!({ "jobs": [], "next": null }));
    for (role, sees_all, events, settings) in [
        (CallerRole::Admin, true, true, true),
        (CallerRole::Operator, true, true, false),
        (CallerRole::Viewer, true, true, false),
        (CallerRole::Viewer, false, false, false),
    ] {
        let frame = Frame { sees_all, ..frame(role) };
        let page = JobsView::of(frame, &JobsQuery::default(), &page, None, None, None).render().unwrap();
        let leads_to = |path: &str| page.contains(&format!("href=\"{path}\""));
        assert_eq!(
            (leads_to("/ui/events"), leads_to("/ui/webhooks"), leads_to("/ui/settings")),
            (events, events, settings),
            "{role:?} {sees_all}"
        );
        assert!(leads_to("/ui/servers"));
    }
}

#[test]
fn causes_that_the_overview_does_not_show_have_a_link() {
    let shown = |causes: usize| {
        let mut overview = overview("text");
        let group = overview.failures[0].clone();
        overview.failures = vec![group; causes];
        overview.holds.clear();
        OverviewView::of(frame(CallerRole::Viewer), &overview, &drain(false), &ready(true), &[], "")
            .render()
            .unwrap()
    };
    assert!(!shown(8).contains("more cause"));
    let page = shown(11);
    assert!(page.contains("3 more causes: <a href=\"/ui/jobs?q=failure%3Aopen\">"), "{page}");
    assert!(
        page.contains("/ui/jobs?q=failure%3Aopen%20class%3Amedia%20failed_step%3Awebhook.wait"),
        "{page}"
    );
}

#[test]
fn the_tile_of_servers_without_a_label_leads_to_those_servers() {
    let mut overview = overview("text");
    for (at, (site, rack)) in [("north", ""), ("", "")].into_iter().enumerate() {
        (overview.racks[at].site, overview.racks[at].rack) = (site.to_owned(), rack.to_owned());
    }
    let page = OverviewView::of(frame(CallerRole::Viewer), &overview, &drain(false), &ready(true), &[], "")
        .render()
        .unwrap();
    for path in ["/ui/servers?q=site%3Dnorth%20-label%3Arack", "/ui/servers?q=-label%3Asite%20-label%3Arack"]
    {
        assert!(page.contains(&format!("\"{path}\"")), "{path}: {page}");
    }
}

#[test]
fn the_overview_shows_the_age_of_the_last_backup() {
    let checks =
        json!({ "backup": { "ok": true, "age_seconds": 93_600, "message": "the last backup is old" } });
    let ready: Readiness = of(json!({ "status": "ready", "checks": checks }));
    let page = OverviewView::of(frame(CallerRole::Viewer), &overview("text"), &drain(false), &ready, &[], "")
        .render()
        .unwrap();
    assert!(page.contains("last 1 day ago") && page.contains("the last backup is old"), "{page}");
}

#[test]
fn the_page_of_a_new_token_shows_its_text_and_says_that_it_is_the_only_one() {
    let page = issued_page("shoal_0123456789");
    assert_eq!(
        page.matches("shoal_0123456789").count(),
        3,
        "what is copied, what is shown, and what a screen reader says"
    );
    assert!(page.contains("never shown again"));
}

proptest! {
    #[test]
    fn a_filter_is_kept_whatever_it_is(text in "\\PC{0,200}") {
        let words: Vec<&str> = text.split_whitespace().collect();
        let kept = JobsQuery::parse(&text).text();
        let kept: Vec<&str> = kept.split_whitespace().collect();
        prop_assert_eq!(kept, words);
    }

    #[test]
    fn any_text_is_escaped(text in "[<>\"'&a-z]{0,40}") {
        let page = jobs_page(&text, CallerRole::Admin);
        prop_assert_eq!(page.matches("<script").count(), 1);
    }
}
