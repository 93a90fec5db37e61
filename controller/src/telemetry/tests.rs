//! The format of log lines: what a search for one job finds.

use std::io;
use std::sync::{Arc, Mutex};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::logs::{Lines, subscriber};

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Written {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// What a filter and a format write for one line of a step and one of the controller.
fn written(filter: &str, format: Lines) -> String {
    let lines = Written::default();
    let now = || "2026-01-02T03:04:05.678Z".to_owned();
    let subscriber = subscriber(EnvFilter::new(filter), format, now, lines.clone());
    tracing::subscriber::with_default(subscriber, || {
        tracing::warn!(target: "controller", "the disk is nearly full");
        let job =
            tracing::error_span!("job", job_id = "0197", server_serial = "XF-1", worker_id = "w1", epoch = 3);
        let _in_job = job.enter();
        let step = tracing::error_span!("step", step = "redfish.mount.task");
        let _in_step = step.enter();
        tracing::debug!(target: "redfish", operation = "insert", "request sent");
        tracing::error!(target: "engine", class = "media", next_action = "check \"the\" URL", "the job failed: {}", "no image");
    });
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
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
    let line: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
    for (field, value) in
        [("job_id", "0197"), ("server_serial", "XF-1"), ("step", "redfish.mount.task"), ("class", "media")]
    {
        assert_eq!(line[field], value, "{lines}");
    }
    assert_eq!(line["epoch"], 3);
    assert_eq!(line["next_action"], "check \"the\" URL");
}
