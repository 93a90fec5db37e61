//! The page of `shoal top`.
//!
//! ```text
//!   head            when, servers, readiness
//!   NEEDS A PERSON  failures by cause, holds          never cut before the other tables
//!   JOBS            by state; the last 24 hours
//!   WAITS           by reason: limits of BMCs and of power-ons are reasons too
//!   STORAGE         disk, registry
//!   EVENTS          the last ones, in the lines that are left
//! ```

use serde_json::{Value, json};

use crate::output::{Cut, Screen, Times, bold, faint, join, plain, shorten, state, text, time_of, width};
use crate::progress::bytes;
use crate::timeline;

/// The lines of a page without end: the groups of an overview are fewer.
const MOST_LINES: usize = 1000;

/// The content of the page.
#[derive(Debug, Default)]
pub(super) struct Page {
    /// The response to `GET /api/v1/overview`.
    pub(super) overview: Value,
    /// The response to `GET /readyz`.
    pub(super) readiness: Value,
    /// The response to `GET /api/v1/registry`; null without one.
    pub(super) registry: Value,
    /// The last events.
    pub(super) events: Value,
    /// The reason why the page is not new.
    pub(super) stale: Option<String>,
}

/// A line with the colour of its meaning.
enum Line {
    Plain(String),
    Head(String),
    Bad(String),
    Faint(String),
}

impl Page {
    /// The responses that were read, as one document.
    pub(super) fn document(&self) -> Value {
        json!({
            "overview": self.overview, "readiness": self.readiness, "registry": self.registry, "events": self.events,
        })
    }

    /// The lines for a screen.
    pub(super) fn lines(&self, screen: Screen, times: Times) -> Vec<String> {
        let person = self.needs_a_person(times);
        let waits = self.waits(times);
        let mut lines = vec![self.head(), Line::Plain(String::new())];
        let fixed = 2 + 2 + 3 + 3 + 3;
        let screen = Screen { height: screen.height.min(MOST_LINES), ..screen };
        let room = screen.height.saturating_sub(fixed);
        // At 80x24 the causes get half of what is left, the waits a third, the events the rest.
        let for_person = person.len().min((room / 2).max(3));
        let for_waits = waits.len().min((room.saturating_sub(for_person) * 2 / 3).max(2));
        section("NEEDS A PERSON", person, for_person, &mut lines);
        section("JOBS", self.jobs(times), 2, &mut lines);
        section("WAITS", waits, for_waits, &mut lines);
        section("STORAGE", self.storage(), 2, &mut lines);
        let events: Vec<Line> = self.events.as_array().into_iter().flatten().rev().map(event).collect();
        let left = screen.height.saturating_sub(lines.len() + 2);
        if left > 0 {
            section("EVENTS", events, left.min(10), &mut lines);
        }
        lines.pop();
        lines.truncate(screen.height.saturating_sub(1));
        if screen.live {
            lines.push(Line::Faint("q ends; shoal job explain JOB says why and what to do".to_owned()));
        }
        lines.into_iter().map(|line| line.painted(screen)).collect()
    }

    fn head(&self) -> Line {
        let ready = match (&self.stale, text(&self.readiness, "/status")) {
            (Some(why), _) => return Line::Bad(format!("not refreshed: {}", plain(why))),
            (None, status) => status,
        };
        let checks = self.readiness["checks"].as_object().into_iter().flatten();
        let failed: Vec<String> = checks
            .filter(|(_, check)| check["ok"] == false)
            .map(|(name, check)| join(&[plain(name), text(check, "/message")], ": "))
            .collect();
        let at = time_of(&text(&self.overview, "/at")).map(|at| at.strftime("%H:%M:%S UTC").to_string());
        let line = join(
            &[
                format!("shoal  {}", at.unwrap_or_default()),
                format!("{} servers", text(&self.overview, "/servers")),
                join(&[ready, failed.join("; ")], ": "),
            ],
            "  |  ",
        );
        if failed.is_empty() { Line::Head(line) } else { Line::Bad(line) }
    }

    /// Failures by cause and holds, the largest groups first.
    fn needs_a_person(&self, times: Times) -> Vec<Line> {
        let rows = |key: &str| self.overview[key].as_array().cloned().unwrap_or_default();
        let mut lines = Vec::new();
        for hold in rows("holds") {
            let since = since(&hold, "/since", times);
            // The others of the class are held for other reasons.
            let (jobs, alike) = (hold["jobs"].as_u64(), hold["alike"].as_u64());
            let of = match jobs.zip(alike) {
                Some((jobs, alike)) if alike < jobs => format!(" ({alike} of {jobs})"),
                _ => String::new(),
            };
            lines.push(Line::Bad(format!(
                "{:>5} held    {}  {since}: {}{of}",
                text(&hold, "/jobs"),
                text(&hold, "/class"),
                text(&hold, "/detail")
            )));
        }
        for batch in rows("stopped_batches") {
            let since = since(&batch, "/since", times);
            lines.push(Line::Bad(format!(
                "{:>5} queued  batch {} has stopped  {since}: shoal batch continue {}",
                text(&batch, "/queued"),
                text(&batch, "/batch_id"),
                text(&batch, "/batch_id")
            )));
        }
        let cleanup = &self.overview["cleanup"];
        if cleanup["servers"].as_u64().is_some_and(|servers| servers > 0) {
            let what = "to clean up: media or power are as a job left them".to_owned();
            let since = since(cleanup, "/since", times);
            lines.push(Line::Bad(format!(
                "{:>5} {}: shoal server list --state pending-cleanup",
                text(cleanup, "/servers"),
                join(&[what, since], "  ")
            )));
        }
        for failure in rows("failures") {
            let servers: Vec<String> =
                failure["servers"].as_array().into_iter().flatten().map(|serial| text(serial, "")).collect();
            let cause = join(&[text(&failure, "/class"), text(&failure, "/step")], " at ");
            lines.push(Line::Bad(format!(
                "{:>5} failed  {cause}: {} ({})",
                text(&failure, "/jobs"),
                text(&failure, "/summary"),
                servers.join(" ")
            )));
            lines.push(Line::Plain(format!("              {}", text(&failure, "/next_action"))));
        }
        if lines.is_empty() {
            lines.push(Line::Plain("      nothing: no job is held, and no failure is open".to_owned()));
        }
        lines
    }

    fn jobs(&self, times: Times) -> Vec<Line> {
        let open = self.overview["open"].as_array().into_iter().flatten();
        let states: Vec<String> = open
            .map(|group| {
                // How long a job waits for a worker is the first sign of too few of them.
                let is_queued = group["state"] == "queued";
                let since = if is_queued { since(group, "/since", times) } else { String::new() };
                join(&[text(group, "/jobs"), text(group, "/state"), since], " ")
            })
            .collect();
        let now = if states.is_empty() { "no job is open".to_owned() } else { states.join(", ") };
        let day = format!(
            "{} succeeded, {} failed in the last 24 hours",
            text(&self.overview, "/succeeded"),
            text(&self.overview, "/failed")
        );
        vec![Line::Plain(format!("      {now}")), Line::Plain(format!("      {day}"))]
    }

    fn waits(&self, times: Times) -> Vec<Line> {
        let waits = self.overview["waits"].as_array().into_iter().flatten();
        // Queued jobs wait too: their line has what keeps them from their start.
        let blocked = self.overview["blocked"].as_array().into_iter().flatten();
        let lines: Vec<Line> = waits
            .chain(blocked)
            .map(|wait| {
                let deadline = time_of(&text(wait, "/next_deadline"));
                let until = deadline.map(|deadline| format!("next deadline {}", times.cell(deadline)));
                Line::Plain(format!(
                    "{:>5} {:<24} {:<12} {}",
                    text(wait, "/jobs"),
                    join(&[text(wait, "/reason"), queued_by(wait)], ""),
                    since(wait, "/since", times),
                    until.unwrap_or_default()
                ))
            })
            .collect();
        if lines.is_empty() { vec![Line::Plain("      no job waits".to_owned())] } else { lines }
    }

    fn storage(&self) -> Vec<Line> {
        let free = |value: &Value| value.as_u64().map(|free| format!("{} free", bytes(free)));
        let disk =
            free(&self.readiness["checks"]["disk"]["free_bytes"]).unwrap_or_else(|| "not known".to_owned());
        let mut lines = vec![Line::Plain(format!("      disk      {disk}"))];
        if self.registry.is_null() {
            lines.push(Line::Plain("      registry  not enabled, or not visible with this token".to_owned()));
            return lines;
        }
        let pushes = match (text(&self.registry, "/read_only"), &self.registry["accepts_pushes"]) {
            (reason, _) if !reason.is_empty() => format!("read-only: {reason}"),
            (_, Value::Bool(false)) => "refuses pushes: the disk is nearly full".to_owned(),
            _ => "accepts pushes".to_owned(),
        };
        let quarantined =
            self.registry.pointer("/scrub/quarantined").and_then(Value::as_array).map_or(0, Vec::len);
        let damaged = if quarantined == 0 {
            String::new()
        } else {
            format!("{quarantined} damaged: shoal registry scrub --online")
        };
        let line = join(&[pushes, free(&self.registry["free_bytes"]).unwrap_or_default(), damaged], ", ");
        let line = format!("      registry  {line}");
        lines.push(if quarantined == 0 { Line::Plain(line) } else { Line::Bad(line) });
        lines
    }
}

/// The blocker of queued jobs; empty for jobs that wait.
fn queued_by(group: &Value) -> String {
    match text(group, "/blocker") {
        blocker if blocker.is_empty() => blocker,
        blocker => format!("queued: {blocker}"),
    }
}

/// A heading with the first lines of a section, and an empty line.
fn section(name: &str, section: Vec<Line>, room: usize, lines: &mut Vec<Line>) {
    let more = section.len().saturating_sub(room);
    let head = if more == 0 { name.to_owned() } else { format!("{name}  ({more} more lines)") };
    lines.push(Line::Head(head));
    lines.extend(section.into_iter().take(room));
    lines.push(Line::Plain(String::new()));
}

fn event(event: &Value) -> Line {
    let line = timeline::line(event);
    let server = text(event, "/server_serial");
    let line = if server.is_empty() { line } else { format!("{line}  ({server})") };
    match event["level"].as_str() {
        Some("error") => Line::Bad(line),
        _ => Line::Plain(line),
    }
}

fn since(group: &Value, pointer: &str, times: Times) -> String {
    time_of(&text(group, pointer)).map(|since| format!("since {}", times.cell(since))).unwrap_or_default()
}

impl Line {
    fn painted(self, screen: Screen) -> String {
        let cut = |line: &str| {
            let room = screen.width.unwrap_or_else(|| width(line));
            shorten(line, room, Cut::End, screen.ellipsis)
        };
        match self {
            Self::Plain(line) => cut(&line),
            Self::Head(line) if screen.colour => bold(&cut(&line)),
            Self::Faint(line) if screen.colour => faint(&cut(&line)),
            // Red, as the state `failed`.
            Self::Bad(line) if screen.colour => state("failed").replace("failed", &cut(&line)),
            Self::Head(line) | Self::Bad(line) | Self::Faint(line) => cut(&line),
        }
    }
}

#[cfg(test)]
mod tests;
