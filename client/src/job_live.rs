//! `shoal job watch` on a terminal: the timeline of a job, drawn again with each event and each second.
//!
//! ```text
//!   job 0192f3a4-…  XF-2041  provisioning  1m12s of 2h00m
//!
//!   ✓ validate                0.1s
//!   ✓ redfish.mount.boot      4.2s   attempt 2
//!   ▸ install.wait             38s   webhook: the installer runs; until in 1h2m
//!       boot medium   412.0 MiB of 1.2 GiB (33 %), 48.1 MiB/s, 17s left
//!       OS image      412.0 MiB of 1.2 GiB (33 %), 48.1 MiB/s, 17s left
//!       installer     write-image, 43 %
//!
//!   why         the summary of the explanation
//!   ends by     …
//!   what to do  …
//! ```
//!
//! Invariants: the bytes of media are those that the controller sent (docs/api.md, `MediaReads`); bytes that the BMC reads twice
//! count twice, so that more than the size promises no end. The bytes of the OS image are those that the installer reported. Why
//! the job is where it is and what to do always fit the terminal: the steps that are done are shown as one line before.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::connection::{Changes, Client};
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
/// The interval in which durations are drawn again.
const TICK: Duration = Duration::from_secs(1);
/// The number of ticks after which the bytes of the images, which have no events, are read again.
const MEDIA_EVERY: u32 = 2;
/// The number of consecutive failures that end a watch: about five minutes.
const MAX_FAILURES: u32 = 150;
/// The width of the column of steps.
const STEP: usize = 24;
/// A record of the controller or a report of the installer that is older says nothing of the present rate. Both come more often.
const FRESH: Duration = Duration::from_secs(20);

/// The known state of a watched job.
#[derive(Debug, Default)]
pub(super) struct JobScene {
    /// The response to `GET /api/v1/jobs/{id}`.
    pub(super) job: Value,
    /// The response to `…/explain`.
    pub(super) explanation: Value,
    /// The bytes of each image that is read, by its name.
    media: BTreeMap<&'static str, Medium>,
    /// The last report of the installer.
    installer: Option<Installer>,
}

/// The reads of one image that is served.
#[derive(Debug)]
struct Medium {
    rate: Rate,
    size: u64,
    /// The time since which the image is served: an image that is served again begins with no bytes.
    since: String,
}

/// The progress that the installer reports.
#[derive(Debug)]
struct Installer {
    step: String,
    percent: Option<u64>,
    at: Timestamp,
    /// The time since which the installer is at this step, and the percentage at that time.
    from: (Timestamp, u64),
    /// The bytes of the OS image that the installer has read, and its size.
    image: Option<(Rate, u64)>,
}

impl JobScene {
    /// Reads the response to `GET /api/v1/jobs/{id}/media`. Of several uses of an image the last counts.
    pub(super) fn read_media(&mut self, response: &Value, now: Timestamp) {
        let mut last = BTreeMap::new();
        for row in response["media"].as_array().into_iter().flatten() {
            let name = match row["image"].as_str() {
                Some("boot") => "boot medium",
                Some("task") => "task image",
                Some("firmware") => "firmware",
                _ => continue,
            };
            last.insert(name, row);
        }
        last.retain(|_, row| !row["first_read_at"].is_null() && row["ended_at"].is_null());
        self.media.retain(|name, _| last.contains_key(name));
        for (name, row) in last {
            let (Some(size), Some(bytes)) = (row["size"].as_u64(), row["bytes"].as_u64()) else { continue };
            let since = text(row, "/since");
            let new = |since| Medium { rate: Rate::of_records(), size, since };
            let medium = self.media.entry(name).or_insert_with(|| new(since.clone()));
            if (medium.size, &medium.since) != (size, &since) {
                *medium = new(since);
            }
            // The bytes are those up to the last read that is recorded, unless the BMC reads no more.
            let read_at = time_of(&text(row, "/last_read_at")).filter(|at| between(*at, now) < FRESH);
            medium.rate.record(since_epoch(read_at.unwrap_or(now)), bytes);
        }
    }

    /// Reads an event into the state.
    pub(super) fn read_event(&mut self, event: &Value) {
        if event["type"] != "report.progress" {
            return;
        }
        let Some(at) = time_of(&text(event, "/time")) else { return };
        let (step, percent) =
            (text(event, "/data/step"), event.pointer("/data/percent").and_then(Value::as_u64));
        let known = self.installer.take().filter(|known| known.step == step);
        let from = match &known {
            Some(known) if percent >= Some(known.from.1) => known.from,
            _ => (at, percent.unwrap_or(0)),
        };
        let number = |pointer| event.pointer(pointer).and_then(Value::as_u64);
        let image = number("/data/bytes").zip(number("/data/total")).map(|(bytes, total)| {
            let known = known.and_then(|known| known.image).filter(|(_, size)| *size == total);
            let mut rate = known.map_or_else(Rate::of_records, |(rate, _)| rate);
            rate.record(since_epoch(at), bytes);
            (rate, total)
        });
        self.installer = Some(Installer { step, percent, at, from, image });
    }

    /// Whether the job has ended.
    pub(super) fn is_complete(&self) -> bool {
        self.job["status"] == "complete"
    }

    /// The lines of the timeline.
    pub(super) fn lines(&self, screen: Screen, times: Times) -> Vec<String> {
        let now = (times.now)();
        let mut lines = vec![self.head(screen, now), String::new()];
        let mut end = vec![String::new()];
        end.extend(self.why(screen));
        // One line less than the terminal has, as it is drawn.
        let room = screen.height.saturating_sub(1 + lines.len() + end.len()).max(1);
        lines.extend(self.steps(room, screen, now));
        lines.extend(end);
        let cut = |line: String| match screen.width {
            // A painted line has invisible characters; its parts fit already.
            Some(room) if !line.contains('\u{1b}') => shorten(&line, room, Cut::End, screen.ellipsis),
            _ => line,
        };
        lines.into_iter().map(cut).collect()
    }

    /// The lines of the steps, at most `room`: the first of those that are done are one line if not all fit.
    fn steps(&self, room: usize, screen: Screen, now: Timestamp) -> Vec<String> {
        let (mut lines, mut done, mut current) = (Vec::new(), Vec::new(), 0);
        for step in self.job["steps"].as_array().into_iter().flatten() {
            if matches!(step["phase"].as_str(), Some("done" | "skipped")) && !step["ended_at"].is_null() {
                done.push(lines.len());
            }
            lines.push(step_line(step, &self.job, screen, now));
            let is_current = step["ended_at"].is_null() && !self.is_complete();
            if is_current {
                let transfers = self.transfers(now);
                current = transfers.len() + 1;
                lines.extend(transfers);
            }
        }
        if !screen.live || lines.len() <= room {
            return lines;
        }
        done.truncate(lines.len() - room + 1);
        if let [first, _, ..] = done[..] {
            for place in done[1..].iter().rev() {
                lines.remove(*place);
            }
            lines[first] = format!("{} {} steps done", mark("done", screen), done.len());
        }
        // What is not done is at the end; of the present step its wait comes before its bytes.
        let mut last = lines.split_off(lines.len().saturating_sub(room.max(current)));
        last.truncate(room);
        last
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

    /// The lines about the reads and writes of the current step.
    fn transfers(&self, now: Timestamp) -> Vec<String> {
        let mut lines: Vec<String> = self
            .media
            .iter()
            .map(|(name, medium)| format!("    {name:<13} {}", medium.rate.text(Some(medium.size))))
            .collect();
        if let Some(installer) = &self.installer {
            lines.extend(installer.image_text(now).map(|text| format!("    {:<13} {text}", "OS image")));
            lines.push(format!("    {:<13} {}", "installer", installer.text(now)));
        }
        lines
    }

    /// The lines that say why the job is in its state, or how it ended.
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
        // The bytes of the image say it better.
        if self.image.is_none() && gained > 0 && percent < 100 && took > 0.0 {
            let whole = took / gained as f64 * (100 - percent) as f64;
            let left = whole - between(self.at, now).as_secs_f64();
            text.push_str(&format!(", {} left", remaining(Duration::from_secs_f64(left.clamp(1.0, 1e9)))));
        }
        text
    }

    /// The text about the reads of the OS image. After a pause of the reports it has no rate, but the time since the last report.
    fn image_text(&self, now: Timestamp) -> Option<String> {
        let (rate, total) = self.image.as_ref()?;
        let silent = between(self.at, now);
        Some(match silent < FRESH {
            true => rate.text(Some(*total)),
            false => format!("{}, last report {} ago", rate.part(Some(*total)), duration(silent)),
        })
    }
}

/// A time as one since a fixed point.
fn since_epoch(at: Timestamp) -> Duration {
    Duration::from_millis(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

/// The mark of a step in a phase.
fn mark(phase: &str, screen: Screen) -> String {
    let unicode = screen.ellipsis == "…";
    let (mark, word) = match phase {
        "done" => (if unicode { "✓" } else { "+" }, "done"),
        "failed" | "stuck" => (if unicode { "✗" } else { "x" }, "failed"),
        "undone" => (if unicode { "↺" } else { "u" }, "cancelled"),
        "skipped" => ("-", "cancelled"),
        _ => (if unicode { "▸" } else { ">" }, "provisioning"),
    };
    if screen.colour { state(word).replace(word, mark) } else { mark.to_owned() }
}

/// The name of a step, with the thing that it works on where several steps have the name.
pub(super) fn step_name(step: &Value) -> String {
    join(&[text(step, "/step"), text(step, "/of")], " ")
}

fn step_line(step: &Value, job: &Value, screen: Screen, now: Timestamp) -> String {
    let time = |pointer| time_of(&text(step, pointer));
    let phase = text(step, "/phase");
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
    let name = shorten(&step_name(step), STEP, Cut::Middle, screen.ellipsis);
    let fill = " ".repeat(STEP - width(&name));
    let start = format!("{name}{fill} {:>7}", took.unwrap_or_default());
    let room = screen.width.unwrap_or(usize::MAX).saturating_sub(width(&start) + 5).max(1);
    let notes = shorten(&notes, room, Cut::End, screen.ellipsis);
    let mark = mark(&phase, screen);
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
                changes.read_failed(PAUSE);
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
