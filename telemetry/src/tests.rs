//! The format of log lines: what a search for one job finds.

use std::fs::File;

use tempfile::NamedTempFile;
use tracing_subscriber::EnvFilter;

use super::log_filter::{REQUESTED, parse};
use super::logs::{Lines, dropped_notice, subscriber};
use super::request_span;
use media::grant_span;
use model::{Artifact, Grant, GrantReads, StepName, StoredGrant};
use store::JobFields;

fn writer(lines: &NamedTempFile) -> File {
    lines.as_file().try_clone().unwrap()
}

const JOB: &str = "0192f0c1-2345-7abc-8def-0123456789ab";

/// A grant of a job on server `XF-1`.
fn stored_grant() -> StoredGrant {
    let grant = Grant {
        token_hash: String::new(),
        run: JOB.parse().unwrap(),
        artifact: Artifact::Boot,
        inputs: None,
        sha256: String::new(),
        size: 0,
        created_at: "2026-01-02T03:04:05Z".parse().unwrap(),
    };
    StoredGrant { grant, server: Some("XF-1".parse().unwrap()), ended_at: None, reads: GrantReads::default() }
}

/// The text that a filter and a format write for the lines of a step, of a request to a job, of a report, of a media read, and
/// for one line of the controller.
fn written(filter: &str, format: Lines) -> String {
    let lines = NamedTempFile::new().unwrap();
    let now = || "2026-01-02T03:04:05.678Z".to_owned();
    let (subscriber, _) = subscriber(EnvFilter::new(filter), format, now, writer(&lines));
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!(target: "controller", "the disk is nearly full");
        let job = JobFields {
            job_id: "0197",
            server_serial: "XF-1",
            workflow: "provision",
            worker_id: "w1",
            epoch: 3,
        };
        job.span().in_scope(|| {
            let step = store::step_span(&StepName::new("redfish.mount.task"));
            let _in_step = step.enter();
            tracing::debug!(target: "redfish", operation = "insert", "request sent");
            tracing::error!(target: "engine", class = "media", next_action = "check \"the\" URL", "the job failed: {}", "no image");
        });
        let path = |name: &str, text: &str| [(name.to_owned(), text.to_owned())];
        let request = |method, route, path: &[_]| request_span::of_request("r-1", method, route, path, "w1");
        request("POST", "/api/v1/jobs/{id}/cancel", &path("id", JOB)).in_scope(|| {
            request_span::of_server(stored_grant().server.as_ref());
            request_span::in_step(Some("webhook.wait"));
            tracing::error!(target: "controller", error = "disk full", "a database operation of a request failed");
            tracing::debug!(target: "controller", status = 503, duration_ms = 2, "request");
        });
        request("POST", "/api/v1/status-webhook/{serial}", &path("serial", "XF-1")).in_scope(|| {
            request_span::of_job(stored_grant().grant.run, "w1");
            tracing::debug!(target: "controller", status = 200, duration_ms = 2, "request");
        });
        grant_span(&stored_grant(), "w1").in_scope(|| {
            tracing::warn!(target: "media", offset = 2048, "media response stopped early, connection broken");
        });
        grant_span(&stored_grant(), "w1").in_scope(|| {
            tracing::error!(target: "media", "the event of a refused medium could not be stored");
        });
    });
    std::fs::read_to_string(lines.path()).unwrap()
}

#[test]
fn every_line_of_a_job_carries_its_ids_in_text_and_in_json_at_every_level() {
    let mut shown = String::new();
    for (name, format) in [("text", Lines::Text { colour: false }), ("json", Lines::Json)] {
        for filter in ["debug", "error"] {
            shown += &format!("LOG_LEVEL={filter} LOG_FORMAT={name}\n{}\n", written(filter, format));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/log-lines.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &shown).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        golden == shown,
        "the format of log lines changed; look at it and run with UPDATE_GOLDEN=1\n{shown}"
    );
}

#[test]
fn a_json_line_is_one_flat_object() {
    let lines = written("error", Lines::Json);
    let line: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    for (field, value) in
        [("job_id", "0197"), ("server_serial", "XF-1"), ("step", "redfish.mount.task"), ("class", "media")]
    {
        assert_eq!(line[field], value, "{lines}");
    }
    assert_eq!(line["epoch"], 3);
    assert_eq!(line["next_action"], "check \"the\" URL");
}

#[test]
fn the_filter_can_be_replaced_and_requested_lines_pass_every_filter() {
    let lines = NamedTempFile::new().unwrap();
    let now = || "2026-01-02T03:04:05.678Z".to_owned();
    let filter = parse("error").unwrap();
    let (subscriber, set_filter) = subscriber(filter, Lines::Text { colour: false }, now, writer(&lines));
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!("first");
        tracing::info!(target: REQUESTED, "state");
        set_filter(parse("info").unwrap()).unwrap();
        tracing::info!("second");
        set_filter(parse("off").unwrap()).unwrap();
        tracing::error!("third");
        tracing::info!(target: REQUESTED, "state");
    });
    let text = std::fs::read_to_string(lines.path()).unwrap();
    let messages: Vec<&str> = text.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(messages, ["state", "second", "state"], "{text}");
}

#[test]
fn the_line_about_dropped_lines_has_the_format_of_the_others() {
    let now = "2026-01-02T03:04:05.678Z";
    let line: serde_json::Value = serde_json::from_str(&dropped_notice(Lines::Json, now, 7)).unwrap();
    assert_eq!(
        (&line["level"], &line["dropped"], &line["timestamp"]),
        (&"WARN".into(), &7.into(), &now.into())
    );
    let line = dropped_notice(Lines::Text { colour: true }, now, 7);
    assert!(line.starts_with(now) && line.ends_with(" dropped=7\n"), "{line}");
}

/// A search for one job or one server finds the lines of the engine, of the API and of the media server.
#[test]
fn every_line_about_a_job_has_the_same_fields_whichever_part_wrote_it() {
    for filter in ["debug", "info", "error"] {
        for line in written(filter, Lines::Json).lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["message"] != "the disk is nearly full" {
                assert!(line["job_id"] == "0197" || line["job_id"] == JOB, "{line}");
                assert_eq!(line["server_serial"], "XF-1", "{line}");
            }
        }
        for line in written(filter, Lines::Text { colour: false }).lines() {
            assert!(line.matches("job_id=").count() <= 1, "{line}");
        }
    }
}

/// A name in a path that is none is not copied into the log.
#[test]
fn a_path_that_names_no_job_and_no_server_adds_no_field() {
    let lines = NamedTempFile::new().unwrap();
    let now = || String::new();
    let (subscriber, _set_filter) = subscriber(EnvFilter::new("debug"), Lines::Json, now, writer(&lines));
    tracing::subscriber::with_default(subscriber, || {
        let path =
            |name: &str| [(name.to_owned(), if name == "id" { "canary" } else { "can\nary" }.to_owned())];
        for (route, name) in [
            ("/api/v1/jobs/{id}", "id"),
            ("/api/v1/servers/{serial}", "serial"),
            ("/api/v1/batches/{id}", "id"),
        ] {
            request_span::of_request("r-1", "GET", route, &path(name), "w1")
                .in_scope(|| tracing::info!("request"));
        }
    });
    let lines = std::fs::read_to_string(lines.path()).unwrap();
    assert_eq!(lines.lines().count(), 3);
    assert!(
        !lines.contains("canary") && !lines.contains("job_id") && !lines.contains("server_serial"),
        "{lines}"
    );
}
