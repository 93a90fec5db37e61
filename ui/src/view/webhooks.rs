//! Outgoing webhooks: whether their events arrive, what waits, what was given up, and the changes of one.

use super::form::{Field, FormView};
use super::frame::Frame;
use super::section::{Cell, Section};
use super::table::TableView;
use crate::data::{
    DeadLetterJson, DeadLetterPage, ErrorDetail, RetryStreamJson, WebhookJson, WebhookPage, WebhookTest,
};
use crate::parts::{Badge, Copy, short_id};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The maximum of waiting jobs that a page shows.
const SHOWN: usize = 100;

/// A webhook as its form has it. URL and secret are not shown again: the URL of many receivers has a token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookForm {
    /// The types of events, divided by blanks.
    pub types: String,
    /// The labels that the job of an event must have.
    pub labels: String,
}

fn path(id: &str) -> String {
    format!("/ui/webhooks/{}", words::encoded(id))
}

/// The state of a webhook in one word, and the reason.
fn standing(webhook: &WebhookJson, now: jiff::Timestamp) -> (Badge, String) {
    let error = webhook.last_error.as_deref().unwrap_or_default();
    let (state, word, why) = match (&webhook.disabled, webhook.failing_since) {
        (Some(why), _) => (State::Held, "Disabled", why.clone()),
        (None, Some(since)) => {
            (State::Failed, "Failing", format!("since {}: {error}", When::of(since, now).words()))
        }
        (None, None) if webhook.dead_letters > 0 => (
            State::Failed,
            "Dead letters",
            format!("{} given up", words::count(webhook.dead_letters, "event was", "events were")),
        ),
        (None, None) if webhook.retrying > 0 => (State::Waiting, "Retrying", error.to_owned()),
        (None, None) => (State::Done, "Delivering", String::new()),
    };
    (state.badge_saying(word), words::cut(&why))
}

fn selects(webhook: &WebhookJson) -> String {
    let labels = webhook.labels.iter().map(|(key, value)| format!("{key}={value}"));
    let all: Vec<String> = webhook.types.iter().cloned().chain(labels).collect();
    if all.is_empty() { "every event".to_owned() } else { words::cut(&all.join(", ")) }
}

fn job(id: &Option<String>) -> Cell {
    match id {
        Some(id) => Cell::Link(format!("/ui/jobs/{}", words::encoded(id)), format!("job {}", short_id(id))),
        None => Cell::text("no job"),
    }
}

/// The largest number of events behind that the controller counts.
const MAX_BEHIND: u64 = 10_000;

/// The number of events behind; of so many that they are not counted, that there are more.
fn behind(webhook: &WebhookJson) -> String {
    let more = if webhook.behind >= MAX_BEHIND { " or more" } else { "" };
    format!("{}{more}", words::thousands(webhook.behind))
}

fn events_behind(webhook: &WebhookJson, one: &str, many: &str) -> String {
    match webhook.behind {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", behind(webhook)),
    }
}

impl TableView {
    /// All webhooks.
    pub fn webhooks(f: Frame, page: &WebhookPage) -> Self {
        let now = f.now;
        let row = |webhook: &WebhookJson| {
            let (badge, why) = standing(webhook, now);
            vec![
                Cell::Named(path(&webhook.webhook_id), webhook.target.clone(), selects(webhook)),
                Cell::Said(badge, why),
                Cell::Text(behind(webhook)),
                Cell::Text(words::thousands(webhook.retrying)),
                Cell::Text(words::thousands(webhook.dead_letters)),
            ]
        };
        let columns = ["Receiver", "State", "Events behind", "Jobs that wait", "Dead letters"];
        let rows = page.webhooks.iter().map(row).collect();
        let section = Section::new("webhooks", "Webhooks", &columns, rows)
            .note(words::count(page.webhooks.len() as u64, "webhook", "webhooks"))
            .or("No webhook. One sends events, signed, to a program of yours.");
        let new = f.may_administer().then(|| ("/ui/webhooks/new".to_owned(), "New webhook"));
        Self::new(f, "Webhooks", "Where events are sent, and whether they arrive.", vec![section])
            .below("/ui/events", "Events")
            .acts(new.into_iter().collect())
    }

    /// One webhook: its deliveries, what waits for another attempt, what was given up.
    pub fn webhook(f: Frame, webhook: &WebhookJson, dead: &DeadLetterPage) -> Self {
        let now = f.now;
        let admin = f.may_administer();
        let path = path(&webhook.webhook_id);
        let (badge, why) = standing(webhook, now);
        let fact = |name: &str, cell: Cell| vec![Cell::text(name), cell];
        let state = vec![
            fact("State", Cell::Said(badge, why)),
            fact("Sends", Cell::Text(selects(webhook))),
            fact("Delivered", Cell::Text(words::count(webhook.delivered, "event", "events"))),
            fact("Behind", Cell::Text(events_behind(webhook, "event", "events"))),
            fact(
                "Made",
                Cell::Two(
                    format!("by {}", webhook.created_by),
                    When::of(webhook.created_at, now).words().to_owned(),
                ),
            ),
        ];
        let stream = |stream: &RetryStreamJson| {
            vec![
                job(&stream.job_id),
                Cell::Two(words::cut(&stream.error), format!("event {}", stream.seq)),
                Cell::Text(words::count(stream.attempts.into(), "attempt", "attempts")),
                Cell::Time(When::of(stream.next_at, now)),
            ]
        };
        let hidden = webhook.retry_streams.len().saturating_sub(SHOWN) as u64;
        let streams = webhook.retry_streams.iter().take(SHOWN).map(stream).collect();
        let columns = ["Job", "Last error", "Tried", "Next attempt"];
        let streams = Section::new("retrying", "Waiting for another attempt", &columns, streams)
            .note(if hidden > 0 { format!("and {} more", words::thousands(hidden)) } else { String::new() })
            .or("No event waits: each was delivered at its first attempt or since.");
        let letter = |letter: &DeadLetterJson| {
            let acts = match (admin, letter.redelivery_requested) {
                (_, true) => Cell::State(State::Queued.badge_saying("Requested")),
                (true, false) => Cell::Acts(vec![(
                    format!("{path}/redeliver?seq={}", letter.seq),
                    "Send again…",
                    format!("Send event {} again", letter.seq),
                )]),
                (false, false) => Cell::text(""),
            };
            vec![
                Cell::Two(words::cut(&letter.kind), format!("event {}", letter.seq)),
                job(&letter.job_id),
                Cell::Two(
                    words::cut(&letter.error),
                    words::count(letter.attempts.into(), "attempt", "attempts"),
                ),
                Cell::Time(When::of(letter.given_up_at, now)),
                acts,
            ]
        };
        let more = webhook.dead_letters.saturating_sub(dead.dead_letters.len() as u64);
        let columns = ["Event", "About", "Last error", "Dead since", "Delivery"];
        let letters =
            Section::new("dead", "Dead letters", &columns, dead.dead_letters.iter().map(letter).collect())
                .note(if more > 0 {
                    format!("the oldest; {}", words::count(more, "more follows", "more follow"))
                } else {
                    String::new()
                })
                .or("No event was given up.");
        let mut acts = Vec::new();
        if admin {
            if webhook.dead_letters > 0 {
                acts.push((format!("{path}/redeliver"), "Send all again…"));
            }
            acts.push(match webhook.disabled {
                Some(_) => (format!("{path}/enable"), "Enable…"),
                None => (format!("{path}/disable"), "Disable…"),
            });
            acts.push((format!("{path}/test"), "Test…"));
            acts.push((format!("{path}/delete"), "Delete…"));
        }
        let sections =
            vec![Section::new("deliveries", "Deliveries", &["What", "Is"], state), streams, letters];
        Self::new(f, &webhook.target, "Path and secret of the receiver are never shown.", sections)
            .below("/ui/webhooks", "Webhooks")
            .acts(acts)
    }
}

impl TableView {
    /// The response of the receiver to a test delivery.
    pub fn webhook_test(f: Frame, webhook: &WebhookJson, tested: &WebhookTest) -> Self {
        let fact = |name: &str, cell: Cell| vec![Cell::text(name), cell];
        let (state, word) = match tested.accepted {
            true => (State::Done, "Accepted"),
            false => (State::Failed, "Not accepted"),
        };
        let why = words::cut(tested.error.as_deref().unwrap_or_default());
        let status = tested.status.map_or_else(|| "no response".to_owned(), |status| status.to_string());
        let rows = vec![
            fact("Result", Cell::Said(state.badge_saying(word), why)),
            fact("HTTP status", Cell::Text(status)),
            fact("Took", Cell::Text(format!("{} ms", words::thousands(tested.took_ms)))),
            fact("Sent", Cell::Time(When::of(tested.sent_at, f.now))),
            fact("Delivery", Cell::Copy(Copy::id("delivery id", &tested.delivery_id))),
        ];
        let section = Section::new("test", "Test delivery", &["What", "Is"], rows)
            .note("it is not repeated, and changes nothing of the webhook");
        let path = path(&webhook.webhook_id);
        let sub = "A receiver that accepts it has found the signature right, if it checks signatures.";
        Self::new(f, &webhook.target, sub, vec![section])
            .below(&path, "Webhook")
            .acts(vec![(format!("{path}/test"), "Test again…"), (path.clone(), "Back")])
    }
}

impl FormView {
    /// The form of a new webhook.
    pub fn new_webhook(f: Frame, entered: &WebhookForm, refused: Vec<ErrorDetail>) -> Self {
        let view = match refused.is_empty() {
            true => Self::new(f, "New webhook", "/ui/webhooks/new", "/ui/webhooks"),
            false => Self::new(f, "New webhook", "/ui/webhooks/new", "/ui/webhooks")
                .note(State::Held, "URL and secret are not shown again: enter them once more."),
        };
        view.below("/ui/webhooks", "Webhooks")
            .intro("It receives every later event, signed, in the order of each job.")
            .refused(refused)
            .field(Field::text("url", "URL of the receiver", "").required().hint("http or https."))
            .field(
                Field::new_password("secret", "Secret of the signature")
                    .required()
                    .hint("At least 16 characters. The receiver checks each delivery with it."),
            )
            .field(
                Field::text("types", "Only these events", &entered.types)
                    .hint("Such as job.created report.* divided by blanks. Empty: all."),
            )
            .field(
                Field::text("labels", "Only of jobs with these labels", &entered.labels)
                    .hint("Such as wave=3. Empty: all."),
            )
            .yes("Make the webhook")
    }

    /// The question before a verb on a webhook; `seq` is the event of one dead letter. `None` for an unknown verb.
    pub fn webhook_verb(f: Frame, webhook: &WebhookJson, verb: &str, seq: Option<i64>) -> Option<Self> {
        let path = path(&webhook.webhook_id);
        let title = match (verb, seq) {
            ("test", _) => "Send a test delivery?".to_owned(),
            ("disable", _) => "Disable the webhook?".to_owned(),
            ("enable", _) => "Enable the webhook?".to_owned(),
            ("delete", _) => "Delete the webhook?".to_owned(),
            ("redeliver", Some(seq)) => format!("Send event {seq} again?"),
            ("redeliver", None) => {
                format!("Send {} again?", words::count(webhook.dead_letters, "dead letter", "dead letters"))
            }
            _ => return None,
        };
        let view = Self::new(f, title, format!("{path}/{verb}"), path.clone())
            .below(path, webhook.target.clone())
            .intro(format!("It sends {} to {}.", selects(webhook), webhook.target));
        Some(match verb {
            "disable" => view
                .effect(State::Held, "Nothing is sent until the webhook is enabled. Its events are kept.")
                .field(Field::text("reason", "Reason, for events and audit", ""))
                .yes("Disable the webhook"),
            "test" => view
                .effect(
                    State::Working,
                    "One delivery with the event webhook.test and \"test\": true, signed as any other. It is not repeated.",
                )
                .yes("Send a test"),
            "enable" => view
                .effect(
                    State::Working,
                    format!(
                        "It continues after the last delivered event: {} sent.",
                        events_behind(webhook, "event is", "events are")
                    ),
                )
                .yes("Enable the webhook"),
            "delete" => view
                .effect(
                    State::Failed,
                    format!(
                        "It receives nothing more; {} not delivered and {} forgotten.",
                        events_behind(webhook, "event is", "events are"),
                        words::count(webhook.dead_letters, "dead letter is", "dead letters are")
                    ),
                )
                .risky()
                .yes("Delete the webhook"),
            _ => view
                .hidden("seq", seq.map(|seq| seq.to_string()).unwrap_or_default())
                .effect(
                    State::Working,
                    "One more delivery under the same id; what is refused again stays here.",
                )
                .yes("Send again"),
        })
    }
}
