//! `shoal job watch` on a terminal: the timeline of a job, drawn again with each event and each second.
//!
//! ```text
//!   job 0192f3a4-…  XF-2041  provisioning  1m12s of 2h00m
//!
//!   ✓ validate                0.1s
//!   ✓ redfish.mount.boot      4.2s   attempt 2
//!   ▸ install.wait             38s   webhook: the installer runs; until in 1h2m
//!       boot medium   412.0 MiB of 1.2 GiB (33 %), 48.1 MiB/s, 17s left
//!       installer     write-image, 43 %, 50s left
//!
//!   why         the summary of the explanation
//!   ends by     …
//!   what to do  …
//! ```
//!
//! Invariant: the bytes are those that the controller sent (docs/api.md, `MediaReads`); bytes that the BMC reads twice count
//! twice, so that more than the size promises no end.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::client::{Changes, Client};
use super::error::CliError;
use super::live::Canvas;
use super::output::{
    Cut, Output, Screen, Times, age, between, bold, duration, faint, join, remaining, shorten, state, text,
    time_of, width, wrap,
};
use super::progress::Rate;
use super::watch;

/// The pause between two reads without an event stream.
const PAUSE: Duration = Duration::from_secs(2);
/// How often durations are drawn again.
const TICK: Duration = Duration::from_secs(1);
/// After how many ticks the bytes of the images, which have no events, are read again.
const MEDIA_EVERY: u32 = 2;
/// How many consecutive failures end a watch: about five minutes.
const MAX_FAILURES: u32 = 150;
/// The width of the column of steps.
const STEP: usize = 24;

/// What is known of a watched job.
#[derive(Debug, Default)]
pub(super) struct JobScene {
    /// The response to `GET /api/v1/jobs/{id}`.
    pub(super) job: Value,
    /// The response to `…/explain`.
    pub(super) explanation: Value,
    /// The bytes of each image, by its name.
    media: BTreeMap<String, (Rate, u64)>,
    /// What the installer reported last: step, percent, and since when it is at this step with which percent.
    installer: Option<Installer>,
}

/// The progress that the installer reports.
#[derive(Debug)]
struct Installer {
    step: String,
    percent: Option<u64>,
    at: Timestamp,
    from: (Timestamp, u64),
}

impl JobScene {
    /// Takes the response to `GET /api/v1/jobs/{id}/media`. Of several uses of an image the last counts.
    pub(super) fn read_media(&mut self, response: &Value, now: Timestamp) {
        for row in response["media"].as_array().into_iter().flatten() {
            let name = match row["image"].as_str() {
                Some("boot") => "boot medium",
                Some("task") => "task image",
                _ => continue,
            };
            let (Some(size), Some(bytes)) = (row["size"].as_u64(), row["bytes"].as_u64()) else { continue };
            if row["first_read_at"].is_null() || !row["ended_at"].is_null() {
                self.media.remove(name);
                continue;
            }
            let (rate, known) = self.media.entry(name.to_owned()).or_default();
            if *known != size {
                *rate = Rate::default();
            }
            *known = size;
            let since_epoch = Duration::from_millis(u64::try_from(now.as_millisecond()).unwrap_or(0));
            rate.record(since_epoch, bytes);
        }
    }

    /// Takes an event.
    pub(super) fn read_event(&mut self, event: &Value) {
        if event["type"] != "report.progress" {
            return;
        }
        let Some(at) = time_of(&text(event, "/time")) else { return };
        let (step, percent) =
            (text(event, "/data/step"), event.pointer("/data/percent").and_then(Value::as_u64));
        let from = match &self.installer {
            Some(known) if known.step == step && percent >= Some(known.from.1) => known.from,
            _ => (at, percent.unwrap_or(0)),
        };
        self.installer = Some(Installer { step, percent, at, from });
    }

    /// Whether the job has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.job["status"] == "complete"
    }

    /// The lines of the timeline.
    pub(super) fn lines(&self, screen: Screen, times: Times) -> Vec<String> {
        let now = (times.now)();
        let mut lines = vec![self.head(screen, now), String::new()];
        for step in self.job["steps"].as_array().into_iter().flatten() {
            lines.push(step_line(step, &self.job, screen, now));
            let is_current = step["ended_at"].is_null() && !self.is_complete();
            if is_current {
                lines.extend(self.transfers(now));
            }
        }
        lines.push(String::new());
        lines.extend(self.why(screen));
        let cut = |line: String| match screen.width {
            // A painted line has invisible characters; its parts fit already.
            Some(room) if !line.contains('\u{1b}') => shorten(&line, room, Cut::End, screen.ellipsis),
            _ => line,
        };
        lines.into_iter().map(cut).collect()
    }

    fn head(&self, screen: Screen, now: Timestamp) -> String {
        let part = |pointer| text(&self.job, pointer);
        let time = |pointer| time_of(&text(&self.job, pointer));
        let end = if self.is_complete() { time("/last_update").unwrap_or(now) } else { now };
        let took = time("/created_at").map(|created| duration(between(created, end))).unwrap_or_default();
        let of = match (time("/created_at"), time("/deadline_at")) {
            (Some(created), Some(deadline)) if !self.is_complete() => {
                format!(" of {}", duration(between(created, deadline)))
            }
            _ => String::new(),
        };
        let word = match part("/outcome") {
            outcome if outcome.is_empty() => part("/status"),
            outcome => outcome,
        };
        let id = part("/job_id");
        let rest = join(&[part("/server_serial"), word.clone(), format!("{took}{of}")], "  ");
        let room = screen.width.unwrap_or(usize::MAX).saturating_sub(width(&rest) + 6);
        let id = shorten(&id, room.max(8), Cut::Middle, screen.ellipsis);
        let line = format!("job {id}  {rest}");
        let line = shorten(&line, screen.width.unwrap_or(usize::MAX), Cut::End, screen.ellipsis);
        if screen.colour { bold(&line).replace(&word, &format!("{}\u{1b}[1m", state(&word))) } else { line }
    }

    /// What is read and written during the current step.
    fn transfers(&self, now: Timestamp) -> Vec<String> {
        let mut lines: Vec<String> = self
            .media
            .iter()
            .map(|(name, (rate, size))| format!("    {name:<13} {}", rate.text(Some(*size))))
            .collect();
        if let Some(installer) = &self.installer {
            lines.push(format!("    {:<13} {}", "installer", installer.text(now)));
        }
        lines
    }

    /// Why the job is where it is, or how it ended.
    fn why(&self, screen: Screen) -> Vec<String> {
        let part = |pointer| text(&self.explanation, pointer);
        let fields = [
            ("why", part("/summary")),
            ("ends by", if self.is_complete() { String::new() } else { part("/ends_by") }),
            ("what to do", part("/next_action")),
        ];
        let room = screen.width.unwrap_or(usize::MAX).saturating_sub(12).max(20);
        let mut lines = Vec::new();
        for (label, value) in fields.iter().filter(|(_, value)| !value.is_empty()) {
            for (place, line) in wrap(value, room).into_iter().enumerate() {
                let label = format!("{:<10}", if place == 0 { label } else { "" });
                let label = if screen.colour { faint(&label) } else { label };
                lines.push(format!("{label}  {line}"));
            }
        }
        lines
    }
}

impl Installer {
    fn text(&self, now: Timestamp) -> String {
        let Some(percent) = self.percent else { return self.step.clone() };
        let mut text = format!("{}, {percent} %", self.step);
        let (began, from) = self.from;
        let gained = percent.saturating_sub(from);
        let took = between(began, self.at).as_secs_f64();
        if gained > 0 && percent < 100 && took > 0.0 {
            let whole = took / gained as f64 * (100 - percent) as f64;
            let left = whole - between(self.at, now).as_secs_f64();
            text.push_str(&format!(", {} left", remaining(Duration::from_secs_f64(left.clamp(1.0, 1e9)))));
        }
        text
    }
}

fn step_line(step: &Value, job: &Value, screen: Screen, now: Timestamp) -> String {
    let time = |pointer| time_of(&text(step, pointer));
    let phase = text(step, "/phase");
    let unicode = screen.ellipsis == "…";
    let (mark, word) = match phase.as_str() {
        "done" => (if unicode { "✓" } else { "+" }, "done"),
        "failed" | "stuck" => (if unicode { "✗" } else { "x" }, "failed"),
        "undone" => (if unicode { "↺" } else { "u" }, "cancelled"),
        "skipped" => ("-", "cancelled"),
        _ => (if unicode { "▸" } else { ">" }, "provisioning"),
    };
    let is_current = step["ended_at"].is_null();
    let took = time("/started_at").map(|began| duration(between(began, time("/ended_at").unwrap_or(now))));
    let mut notes = Vec::new();
    if let Some(attempt) = step["attempt"].as_u64().filter(|attempt| *attempt > 1) {
        notes.push(format!("attempt {attempt}"));
    }
    match phase.as_str() {
        "undone" => notes.push("undone".to_owned()),
        "stuck" => notes.push("its undo failed".to_owned()),
        "skipped" => notes.push("nothing to do".to_owned()),
        _ => {}
    }
    if is_current && step["step"] == job["step"] {
        let wait = |pointer| text(job, pointer);
        let deadline = time_of(&wait("/wait/deadline"));
        let until = deadline.map(|deadline| format!("until {}", age(deadline, now))).unwrap_or_default();
        notes.push(join(&[join(&[wait("/wait/reason"), wait("/wait/detail")], ": "), until], "; "));
        notes.push(wait("/hold/detail"));
    }
    let notes = join(&notes, "; ");
    let name = shorten(&text(step, "/step"), STEP, Cut::Middle, screen.ellipsis);
    let fill = " ".repeat(STEP - width(&name));
    let start = format!("{name}{fill} {:>7}", took.unwrap_or_default());
    let room = screen.width.unwrap_or(usize::MAX).saturating_sub(width(&start) + 5).max(1);
    let notes = shorten(&notes, room, Cut::End, screen.ellipsis);
    let mark = if screen.colour { state(word).replace(word, mark) } else { mark.to_owned() };
    format!("{mark} {start}   {notes}").trim_end().to_owned()
}

/// Follows a job on a terminal until it is complete, and returns it.
pub(super) async fn follow(client: &Client, job: &str, output: &mut Output<'_>) -> Result<Value, CliError> {
    let mut changes = Changes::of(client, &["jobs", job, "events"]);
    let (mut scene, mut canvas, mut seq, mut failures) = (JobScene::default(), Canvas::default(), 0, 0);
    loop {
        match scene.read(client, job, &mut seq, (output.times.now)()).await {
            Ok(()) => failures = 0,
            Err(error) if error.is_transient() && failures < MAX_FAILURES => {
                if failures == 0 {
                    output.note(format!("{error}; trying again"));
                    canvas = Canvas::default();
                }
                failures += 1;
            }
            Err(error) => return Err(error),
        }
        for seconds in 1.. {
            output.screen = Screen::of_stdout();
            let lines = scene.lines(output.screen, output.times);
            canvas.draw(&lines, output)?;
            if scene.is_complete() {
                return Ok(scene.job);
            }
            if changes.changed(PAUSE, TICK).await || seconds % MEDIA_EVERY == 0 {
                break;
            }
        }
    }
}

impl JobScene {
    /// Reads the job, its explanation, its new events and what was read of its images.
    async fn read(
        &mut self,
        client: &Client,
        job: &str,
        seq: &mut u64,
        now: Timestamp,
    ) -> Result<(), CliError> {
        self.job = client.get(&["jobs", job], &[]).await?.body;
        self.explanation = client.get(&["jobs", job, "explain"], &[]).await?.body;
        let (events, next) = watch::events(client, &["jobs", job, "events"], *seq).await?;
        *seq = next;
        events.iter().for_each(|event| self.read_event(event));
        match client.get(&["jobs", job, "media"], &[]).await {
            Ok(media) => self.read_media(&media.body, now),
            // A controller of another version, or a job whose images are gone.
            Err(CliError::Refused { status: 404, .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
