//! The questions about one server: its change, its deletion, its release.

use askama::Template;
use serde_json::json;
use ui::data::{ErrorDetail, JobPageJson, ServerJson};
use ui::view::{CallerRole, FormView, ServerForm, TableView};

use super::{JOB, frame, job, of, server};

fn changed(text: &str) -> ServerJson {
    let mut after = server(text);
    after["labels"] = json!({ "site": text, "unit": "7" });
    after["quirks"] = json!({ "slow_insert": true });
    after["tls"] = json!("insecure");
    after["tls_fingerprint"] = json!(null);
    of(after)
}

/// The pages with a text of a machine or a person in them.
pub(crate) fn pages(text: &str, role: CallerRole) -> Vec<(&'static str, String)> {
    let entered = ServerForm {
        bmc_address: text.to_owned(),
        bmc_username: "shoal".to_owned(),
        labels: text.to_owned(),
        tls: "pinned".to_owned(),
        revision: "3".to_owned(),
        hidden_labels: 1,
        ..ServerForm::default()
    };
    let wrong: Vec<ErrorDetail> = of(json!([{ "path": "/bmc_address", "message": text }]));
    let none: JobPageJson = of(json!({ "jobs": [], "next": null }));
    let some: JobPageJson = of(json!({ "jobs": [job(text)], "next": null }));
    let restored = json!({
        "serial": "9F86W24",
        "restored": { "since": "2026-11-23T14:00:00Z", "as_of": "2026-11-23T02:00:00Z", "reason": text },
        "believed": {
            "jobs": [{ "job_id": JOB, "workflow": "provision", "phase": "waiting", "step": "webhook.wait", "completed": "redfish.power-on", "waiting": text, "updated_at": "2026-11-23T01:00:00Z" }],
            "last_seen": "2026-11-23T01:00:00Z", "observed": null,
        },
        "observed": { "at": "2026-11-23T14:32:00Z", "power": "On", "serial_check": "match", "boot": { "target": "Cd", "enabled": "Once" }, "media": [{ "id": text, "empty": false }] },
        "problem": null,
    });
    let mut unread = restored.clone();
    (unread["observed"], unread["problem"]) = (json!(null), json!(text));
    unread["believed"]["jobs"] = json!([]);
    vec![
        ("server-edit", FormView::server(frame(role), "9F86W24", &entered, wrong.clone()).render().unwrap()),
        (
            "server-change",
            FormView::server_change(frame(role), &of(server(text)), &changed(text), true, "sealed:v1:00")
                .render()
                .unwrap(),
        ),
        ("server-release", FormView::release_server(frame(role), &of(restored), "", wrong).render().unwrap()),
        (
            "server-release-unread",
            FormView::release_server(frame(role), &of(unread), "", Vec::new()).render().unwrap(),
        ),
        ("server-delete", FormView::delete_server(frame(role), &of(server(text)), &none).render().unwrap()),
        (
            "server-delete-jobs",
            FormView::delete_server(frame(role), &of(server(text)), &some).render().unwrap(),
        ),
    ]
}

#[test]
fn a_token_whose_end_has_passed_is_not_active() {
    let page = |expires_at: &str, unconfirmed: bool| {
        let token = json!({
            "name": "ci", "role": "viewer", "last_used_at": null, "expires_at": expires_at, "unconfirmed": unconfirmed,
            "created_at": "2026-10-13T00:00:00Z",
        });
        let (users, tokens) = (of(json!({ "users": [] })), of(json!({ "tokens": [token] })));
        TableView::accounts(frame(CallerRole::Admin), &users, &tokens).render().unwrap()
    };
    for (expires_at, unconfirmed, word) in [
        ("2026-10-14T00:00:00Z", false, "Expired"),
        // A confirmation does not move its end.
        ("2026-10-14T00:00:00Z", true, "Expired"),
        ("2999-01-01T00:00:00Z", false, "Active"),
        ("2999-01-01T00:00:00Z", true, "Not confirmed"),
    ] {
        let page = page(expires_at, unconfirmed);
        for badge in ["Active", "Expired", "Not confirmed"] {
            assert_eq!(
                page.contains(&format!("</svg>{badge}</span>")),
                badge == word,
                "{expires_at} {badge}"
            );
        }
    }
}
