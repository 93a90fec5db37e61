//! The output of the demo: one line per event, as text or as JSON lines.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use serde_json::{Value, json};

/// Writes the progress of the demo to standard output. If the output is closed, the demo continues; the exit code still
/// shows the result.
pub(super) struct Timeline {
    began: Instant,
    json: bool,
    colour: bool,
}

impl Timeline {
    pub(super) fn new(json: bool) -> Self {
        let colour = !json && std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { began: Instant::now(), json, colour }
    }

    pub(super) fn title(&mut self, text: &str) {
        if !self.json {
            self.write(&format!("{}\n", self.paint("1", text)));
        }
    }

    /// Prints an action of the demo.
    pub(super) fn note(&mut self, source: &str, text: &str) {
        if self.json {
            self.write(&json!({ "at": self.at(), "note": source, "message": text }).to_string());
        } else {
            self.line(source, "", text, None);
        }
    }

    /// Prints an event of a job.
    pub(super) fn event(&mut self, serial: &str, event: &Value) {
        if self.json {
            self.write(&json!({ "at": self.at(), "server_serial": serial, "event": event }).to_string());
            return;
        }
        let text = |key: &str| event[key].as_str().unwrap_or_default();
        let colour = match text("level") {
            "warn" => Some("33"),
            "error" => Some("31"),
            _ => None,
        };
        self.line(serial, text("step"), text("message"), colour);
    }

    /// Prints an unexpected result.
    pub(super) fn failed(&mut self, serial: &str, text: &str) {
        if !self.json {
            self.line(serial, "UNEXPECTED", text, Some("31"));
        }
    }

    /// Prints all events of a job with an unexpected result.
    pub(super) fn all_events(&mut self, events: &Value) {
        if self.json {
            return;
        }
        for event in events.as_array().into_iter().flatten() {
            self.write(&format!("      {} {} {}", event["time"], event["type"], event["message"]));
        }
    }

    /// Prints the results of all jobs.
    pub(super) fn summary(&mut self, results: &[Value], as_expected: bool) {
        if self.json {
            self.write(
                &json!({ "at": self.at(), "as_expected": as_expected, "results": results }).to_string(),
            );
            return;
        }
        self.write("");
        for result in results {
            let text = |key: &str| result[key].as_str().unwrap_or_default();
            let mark = if result["as_expected"] == json!(true) {
                self.paint("32", "ok")
            } else {
                self.paint("31", "!!")
            };
            self.write(&format!(
                "  {mark}  {:<10} {:<10} {}",
                text("server_serial"),
                text("outcome"),
                text("machine")
            ));
        }
        let expected = results.iter().filter(|result| result["as_expected"] == json!(true)).count();
        self.write(&format!(
            "\n{expected} of {} jobs ended as expected, in {:.1} s",
            results.len(),
            self.at()
        ));
    }

    fn at(&self) -> f64 {
        (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0
    }

    fn line(&mut self, source: &str, what: &str, text: &str, colour: Option<&str>) {
        let line = format!("{:>7.2} s  {source:<10} {what:<26} {text}", self.at());
        let line = colour.map_or(line.clone(), |colour| self.paint(colour, &line));
        self.write(line.trim_end());
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn write(&mut self, line: &str) {
        let mut out = std::io::stdout();
        let _closed = writeln!(out, "{line}");
    }
}
