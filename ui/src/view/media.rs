//! Boot images, task images and firmware images: which one is served to which server, whether it is read, when its URL ends.

use super::frame::Frame;
use super::registry::digest;
use super::section::{Cell, Section};
use super::table::{FilterField, TableView};
use crate::data::{Media, MediaPage};
use crate::parts::{Badge, Copy, Meter, short_id};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The filter of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaQuery {
    /// Only images for this server.
    pub server: String,
    /// Only images of this kind: `boot`, `task` or `firmware`.
    pub image: String,
    /// Whether the page begins behind the newest images.
    pub ended_only: bool,
}

impl MediaQuery {
    fn fields(&self) -> Vec<FilterField> {
        let field =
            |name, label, value: &String, example| FilterField { name, label, value: value.clone(), example };
        vec![
            field("server", "Server", &self.server, "9F86W24"),
            field("image", "Image", &self.image, "boot, task or firmware"),
        ]
    }

    /// The path of the page with this filter and other parameters.
    fn path(&self, others: &[(&str, &str)]) -> String {
        let own = [("server", self.server.as_str()), ("image", self.image.as_str())];
        let pairs = own.iter().chain(others).filter(|(_, value)| !value.is_empty());
        let query: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", words::encoded(value))).collect();
        if query.is_empty() { "/ui/media".to_owned() } else { format!("/ui/media?{}", query.join("&")) }
    }
}

/// The kind of an image in words.
fn name(image: &str) -> &str {
    match image {
        "boot" => "Boot image",
        "task" => "Task image",
        "firmware" => "Firmware image",
        other => other,
    }
}

/// The state of an image in one word, and what it means.
fn standing(media: &Media, now: jiff::Timestamp) -> (Badge, String) {
    let ago =
        |at: Option<jiff::Timestamp>| at.map(|at| When::of(at, now).words().to_owned()).unwrap_or_default();
    let last = ago(media.read.last_read_at);
    let (state, word, why) = match media.state.as_str() {
        "reading" => (State::Working, "Being read", format!("last read {last}")),
        "unread" => (State::Waiting, "Not read yet", "the BMC has requested no byte of it".to_owned()),
        "idle" => (State::Waiting, "Not being read", format!("last read {last}")),
        "withheld" => {
            (State::Held, "Not served", "it is of restored data; release the server first".to_owned())
        }
        "ended" if media.read.last_read_at.is_none() => {
            (State::Cancelled, "Ended", "was never read".to_owned())
        }
        "ended" => (State::Done, "Ended", format!("last read {last}")),
        other => (State::Queued, other, String::new()),
    };
    (state.badge_saying(word), why)
}

fn row(media: &Media, now: jiff::Timestamp) -> Vec<Cell> {
    let (badge, why) = standing(media, now);
    let read = &media.read;
    let sent = format!("{} of {} sent", words::bytes(read.bytes), words::bytes(read.size));
    let sent = match (read.image.as_str(), read.boot_read_at) {
        ("boot", Some(at)) => format!("{sent}; boot record read {}", When::of(at, now).words()),
        ("boot", None) => format!("{sent}; boot record not read"),
        _ => sent,
    };
    let server = match &media.server_serial {
        Some(serial) => Cell::Link(format!("/ui/servers/{}", words::encoded(serial)), serial.clone()),
        None => Cell::text("no server"),
    };
    let ends = match (read.ended_at, media.ends_by) {
        (Some(at), _) => Cell::Time(When::of(at, now)),
        (None, Some(at)) => {
            Cell::Two("after the cleanup".to_owned(), format!("job's deadline {}", When::of(at, now).words()))
        }
        (None, None) => Cell::Two("after the cleanup".to_owned(), "no deadline now".to_owned()),
    };
    let label = format!("{}: part that was sent", name(&read.image));
    vec![
        Cell::Two(name(&read.image).to_owned(), format!("served {}", When::of(media.since, now).words())),
        server,
        Cell::Said(badge, why),
        Cell::Bar(Meter::new(read.bytes, read.size, "working", &label), sent),
        ends,
        Cell::Copy(Copy { what: "digest", text: media.sha256.clone(), shown: digest(&media.sha256) }),
        // Under the job and not under the server, whose serial number is long: the table fits 1280 px.
        Cell::Named(
            format!("/ui/jobs/{}", words::encoded(&media.job_id)),
            format!("job {}", short_id(&media.job_id)),
            words::workflow(&media.workflow).to_owned(),
        ),
    ]
}

impl TableView {
    /// The images that are served, and those that were. `refused` says why the filter was not understood.
    pub fn media(
        f: Frame,
        query: &MediaQuery,
        served: &MediaPage,
        ended: &MediaPage,
        refused: Option<String>,
    ) -> Self {
        let now = f.now;
        let columns = ["Image", "Server", "State", "Read", "URL ends", "Digest", "Job"];
        let section = |id, title: &str, page: &MediaPage, show: &str| {
            let more =
                page.next.as_ref().map(|next| (query.path(&[("show", show), ("cursor", next)]), "Older"));
            let rows = page.media.iter().map(|media| row(media, now)).collect();
            Section::new(id, title, &columns, rows).more(more)
        };
        let filtered = !query.server.is_empty() || !query.image.is_empty();
        let none = if filtered {
            "No image that matches is served."
        } else {
            "No image is served: no job uses one."
        };
        let mut sections = Vec::new();
        if !query.ended_only {
            let reading = served.media.iter().filter(|media| media.state == "reading").count();
            // The page has some of the images only.
            let note = match served.media.len() {
                0 => String::new(),
                shown => format!("{reading} of these {shown} being read"),
            };
            sections.push(section("served", "Served now", served, "served").note(note).or(none));
        }
        sections.push(
            section("ended", "No longer served", ended, "ended")
                .note("the newest first")
                .or("No image whose URL has ended."),
        );
        let acts = match (query.ended_only, filtered) {
            (true, _) => vec![(query.path(&[]), "Served now")],
            (false, true) => vec![("/ui/media".to_owned(), "All images")],
            (false, false) => Vec::new(),
        };
        let sub = "Which image a server holds, whether its BMC reads it, and when its URL ends.";
        Self { filters: query.fields(), refused, ..Self::new(f, "Boot and task images", sub, sections) }
            .below("/ui/registry", "Registry")
            .acts(acts)
    }
}
