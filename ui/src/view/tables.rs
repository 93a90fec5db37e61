//! The pages that are tables: events, batches, users and tokens, settings, the audit log, the registry, search results.

use crate::data::{
    AuditPage, Batch, BatchPage, EventPage, Registry, Repositories, ServerPage, SettingPage, TokenPage,
    UserPage,
};
use crate::parts::{Copy, Meter, short_id};
use crate::state::State;
use crate::time::When;
use crate::words;

use super::filter;
use super::frame::Frame;
use super::table::{Cell, Section, TableView};

/// The maximum of tags that the row of a repository names.
const TAGS: usize = 8;

fn text(text: &str) -> Cell {
    Cell::Text(words::cut(text))
}

impl TableView {
    fn new(f: Frame, title: &str, sub: &str, sections: Vec<Section>) -> Self {
        let (title, sub) = (title.to_owned(), sub.to_owned());
        Self { f, title, sub, crumb: None, acts: Vec::new(), sections, search: false }
    }

    /// The event log, the newest first. `older` is the position of the page before.
    pub fn events(f: Frame, page: &EventPage, older: Option<i64>) -> Self {
        let now = f.now;
        let row = |event: &crate::data::Event| {
            let about = match (&event.job_id, &event.server_serial) {
                (Some(job), server) => {
                    let name = server.clone().unwrap_or_else(|| short_id(job));
                    Cell::Link(format!("/ui/jobs/{job}"), name)
                }
                (None, Some(server)) => {
                    Cell::Link(format!("/ui/servers/{}", words::encoded(server)), server.clone())
                }
                (None, None) => Cell::Text(String::new()),
            };
            let level = match event.level.as_str() {
                "error" => State::Failed,
                "warn" => State::Waiting,
                _ => State::Queued,
            };
            vec![
                Cell::Two(words::cut(&event.message), format!("{} · {}", event.kind, event.seq)),
                Cell::State(level.badge_saying(&event.level)),
                about,
                text(&event.actor),
                Cell::Time(When::of(event.time, now)),
            ]
        };
        let section = Section {
            id: "log",
            title: "Newest first",
            note: String::new(),
            columns: vec!["What", "Level", "About", "Who", "When"],
            rows: page.events.iter().rev().map(row).collect(),
            empty: "Nothing has happened yet.",
            more: older.map(|before| (format!("/ui/events?before={before}"), "Older")),
        };
        Self::new(f, "Events", "Everything that happened, and who caused it.", vec![section])
    }

    /// The newest batches.
    pub fn batches(f: Frame, page: &BatchPage) -> Self {
        let now = f.now;
        let row = |batch: &Batch| {
            let done = batch.progress.succeeded + batch.progress.failed + batch.progress.cancelled;
            vec![
                Cell::Link(format!("/ui/batches/{}", batch.batch_id), short_id(&batch.batch_id)),
                Cell::State(state_of(batch).badge_saying(word_of(batch))),
                Cell::Bar(
                    Meter::new(
                        done,
                        batch.jobs,
                        if batch.progress.failed > 0 { "failed" } else { "done" },
                        "Ended jobs",
                    ),
                    format!("{done} of {} ended, {} failed", batch.jobs, batch.progress.failed),
                ),
                text(&batch.created_by),
                Cell::Time(When::of(batch.created_at, now)),
            ]
        };
        let section = Section {
            id: "batches",
            title: "Newest first",
            note: String::new(),
            columns: vec!["Batch", "State", "Progress", "By", "Created"],
            rows: page.batches.iter().map(row).collect(),
            empty: "No batch yet. `shoal batch create` makes many jobs in one request.",
            more: None,
        };
        let mut view = Self::new(f, "Batches", "Jobs that one request created together.", vec![section]);
        view.crumb = Some(("/ui/jobs", "Jobs"));
        view
    }

    /// One batch: its jobs by state, each number a link to its rows.
    pub fn batch(f: Frame, batch: &Batch) -> Self {
        let of_batch = filter::term("batch", &batch.batch_id);
        let row = |state: State, name: &str, number: u64, terms: &str| {
            let filter = format!("{terms} {of_batch}");
            vec![
                Cell::Link(filter::jobs(filter.trim()), name.to_owned()),
                Cell::State(state.badge()),
                Cell::Bar(
                    Meter::new(number, batch.jobs, state.class(), &format!("{name}: part of the batch")),
                    words::thousands(number),
                ),
            ]
        };
        let progress = &batch.progress;
        let rows = vec![
            row(State::Failed, "Jobs that failed", progress.failed, filter::FAILED),
            row(
                State::Working,
                "Jobs under way",
                progress.running,
                "status:provisioning,running,succeeded,failed",
            ),
            row(State::Queued, "Jobs not begun", progress.queued, "status:queued"),
            row(State::Done, "Jobs that succeeded", progress.succeeded, filter::DONE),
            row(State::Cancelled, "Jobs that were cancelled", progress.cancelled, "outcome:cancelled"),
        ];
        let limit = batch.max_parallel.map(|limit| format!("at most {limit} at once")).unwrap_or_default();
        let section = Section {
            id: "progress",
            title: "Jobs by state",
            note: limit,
            columns: vec!["Jobs", "State", "Number"],
            rows,
            empty: "",
            more: None,
        };
        let by = format!("{} by {}", words::count(batch.jobs, "job", "jobs"), batch.created_by);
        let acts = match f.may_operate() && !batch.complete {
            true => vec![(format!("/ui/batches/{}/cancel", batch.batch_id), "Cancel…")],
            false => Vec::new(),
        };
        let title = format!("Batch {}", short_id(&batch.batch_id));
        let mut view = Self::new(f, &title, &by, vec![section]);
        view.crumb = Some(("/ui/batches", "Batches"));
        view.acts = acts;
        view
    }

    /// Users and API tokens.
    pub fn accounts(f: Frame, users: &UserPage, tokens: &TokenPage) -> Self {
        let now = f.now;
        let user_rows = users.users.iter().map(|user| {
            let (state, word) = match (&user.disabled_at, user.unconfirmed) {
                (Some(_), _) => (State::Cancelled, "Disabled"),
                (None, true) => (State::Held, "Not confirmed"),
                (None, false) => (State::Done, "Active"),
            };
            vec![
                text(&user.name),
                text(words::role(&user.role)),
                Cell::State(state.badge_saying(word)),
                text(&user.created_by),
                Cell::Time(When::of(user.created_at, now)),
            ]
        });
        let token_rows = tokens.tokens.iter().map(|token| {
            let name = words::encoded(&token.name);
            vec![
                text(&token.name),
                text(words::role(&token.role)),
                Cell::time_or(token.last_used_at.map(|at| When::of(at, now)), "never"),
                Cell::time_or(token.expires_at.map(|at| When::of(at, now)), "never"),
                Cell::Time(When::of(token.created_at, now)),
                Cell::Ask(
                    format!("/ui/tokens/{name}/revoke"),
                    "Revoke…".to_owned(),
                    format!("Revoke the token {}", token.name),
                ),
            ]
        });
        let sections = vec![
            Section {
                id: "users",
                title: "Users",
                note: "shoal user create makes one".to_owned(),
                columns: vec!["Name", "May", "State", "Made by", "Made"],
                rows: user_rows.collect(),
                empty: "No users: logins are API tokens, or the user of the settings.",
                more: None,
            },
            Section {
                id: "tokens",
                title: "API tokens",
                note: "shoal token create makes one and shows it once".to_owned(),
                columns: vec!["Name", "May", "Last used", "Ends", "Made", "Revoke"],
                rows: token_rows.collect(),
                empty: "No tokens.",
                more: None,
            },
        ];
        let mut view = Self::new(f, "Users and tokens", "Who can log in, and what each may do.", sections);
        view.crumb = Some(("/ui/settings", "Settings"));
        view
    }

    /// The settings with their origins.
    pub fn settings(f: Frame, page: &SettingPage) -> Self {
        let row = |setting: &crate::data::Setting| {
            let value = match setting.value.as_str() {
                "" => Cell::Text("not set".to_owned()),
                value => Cell::Code(words::cut(value)),
            };
            vec![Cell::Code(setting.name.clone()), value, text(&setting.origin)]
        };
        let (set, usual): (Vec<_>, Vec<_>) =
            page.settings.iter().partition(|setting| setting.origin != "default");
        let section = |id, title, rows: Vec<&crate::data::Setting>, empty| Section {
            id,
            title,
            note: words::count(rows.len() as u64, "setting", "settings"),
            columns: vec!["Setting", "Value", "From"],
            rows: rows.into_iter().map(row).collect(),
            empty,
            more: None,
        };
        let sections = vec![
            section("set", "Set here", set, "Every setting has its default."),
            section("usual", "Defaults", usual, "No setting has its default."),
        ];
        let sub = "Read at the start from flags, environment and file; `shoal config show` prints the same.";
        let mut view = Self::new(f, "Settings", sub, sections);
        view.acts = vec![("/ui/users".to_owned(), "Users and tokens"), ("/ui/audit".to_owned(), "Audit log")];
        view
    }

    /// The audit log, the newest first.
    pub fn audit(f: Frame, page: &AuditPage) -> Self {
        let now = f.now;
        let row = |entry: &crate::data::AuditEntry| {
            let state = if entry.result == "ok" { State::Done } else { State::Failed };
            let times = if entry.count > 1 { format!(", {} times", entry.count) } else { String::new() };
            vec![
                Cell::Two(entry.action.clone(), words::cut(&entry.target)),
                Cell::State(state.badge_saying(&format!("{}{times}", entry.result))),
                Cell::Two(words::cut(&entry.actor), words::cut(&entry.source)),
                Cell::Time(When::of(entry.time, now)),
            ]
        };
        let section = Section {
            id: "audit",
            title: "Newest first",
            note: format!("head {}", short_id(&page.head)),
            columns: vec!["Action", "Result", "Who", "When"],
            rows: page.entries.iter().map(row).collect(),
            empty: "No entry yet.",
            more: page
                .next
                .as_ref()
                .map(|next| (format!("/ui/audit?cursor={}", words::encoded(next)), "Older")),
        };
        let sub = "Each change and each refusal, chained. `shoal audit verify` checks the chain, `shoal audit export` writes it out.";
        let mut view = Self::new(f, "Audit log", sub, vec![section]);
        view.crumb = Some(("/ui/settings", "Settings"));
        view
    }

    /// The registry: its health, and its repositories.
    pub fn registry(f: Frame, registry: &Registry, repositories: &Repositories, host: &str) -> Self {
        let now = f.now;
        let health = |name: &str, state: State, word: &str, hint: String| {
            vec![text(name), Cell::State(state.badge_saying(word)), Cell::Text(words::cut(&hint))]
        };
        let pushes = match (&registry.read_only, registry.accepts_pushes) {
            (Some(why), _) => health("Pushes", State::Held, "Read-only", why.clone()),
            (None, true) => health("Pushes", State::Done, "Taken", String::new()),
            (None, false) => health("Pushes", State::Failed, "Refused", "see the data disk".to_owned()),
        };
        let scrub = match (&registry.scrub.last_verified, registry.scrub.quarantined.len()) {
            (_, quarantined) if quarantined > 0 => {
                health("Verified", State::Failed, "Corrupted", format!("{quarantined} blobs are quarantined"))
            }
            (Some(at), _) => {
                let all = format!(
                    "{}, {}, {}",
                    When::of(*at, now).words(),
                    words::count(registry.scrub.blobs, "blob", "blobs"),
                    words::bytes(registry.scrub.bytes)
                );
                health("Verified", State::Done, "Sound", all)
            }
            (None, _) => health(
                "Verified",
                State::Queued,
                "Not yet",
                "the first scrub comes by its schedule".to_owned(),
            ),
        };
        let mut rows = vec![
            pushes,
            health(
                "Room",
                State::Done,
                "Free",
                format!("{} on the data disk", words::bytes(registry.free_bytes)),
            ),
            scrub,
            health("Pinned by jobs", State::Done, "Kept", words::count(registry.pins, "pin", "pins")),
        ];
        rows.extend(registry.quotas.iter().map(|quota| {
            vec![
                Cell::Code(quota.repositories.clone()),
                Cell::Text("Quota".to_owned()),
                Cell::Bar(
                    Meter::new(quota.used_bytes, quota.limit_bytes, "working", "Used part of the quota"),
                    format!("{} of {}", words::bytes(quota.used_bytes), words::bytes(quota.limit_bytes)),
                ),
            ]
        }));
        let repository_rows = repositories.repositories.iter().map(|repository| {
            let mut tags = repository.names.iter().take(TAGS).cloned().collect::<Vec<_>>().join(", ");
            if repository.tags > TAGS as u64 {
                tags.push_str(&format!(" and {} more", repository.tags - TAGS as u64));
            }
            let name = repository.names.first().map_or("TAG", String::as_str);
            let pull = format!("skopeo copy docker://{host}/{}:{name} oci:image:{name}", repository.name);
            vec![
                text(&repository.name),
                Cell::Text(tags),
                Cell::Copy(Copy { what: "pull command", text: pull, shown: "pull".to_owned() }),
            ]
        });
        let sections = vec![
            Section {
                id: "repositories",
                title: "Repositories",
                note: words::count(repositories.repositories.len() as u64, "repository", "repositories"),
                columns: vec!["Repository", "Tags", "Command"],
                rows: repository_rows.collect(),
                empty: "Nothing was pushed yet. The command below pushes an image; the password is your token.",
                more: None,
            },
            Section {
                id: "health",
                title: "Health",
                note: String::new(),
                columns: vec!["What", "State", "Detail"],
                rows,
                empty: "",
                more: None,
            },
            Section {
                id: "push",
                title: "Push",
                note: "any user name, your token as the password".to_owned(),
                columns: vec!["Step", "Command"],
                rows: [
                    "skopeo login HOST",
                    "skopeo copy oci:os-image:22.04 docker://HOST/os-images/NAME:TAG",
                ]
                .into_iter()
                .zip(["Log in", "Push an image"])
                .map(|(command, step)| {
                    vec![text(step), Cell::Copy(Copy::whole("command", &command.replace("HOST", host)))]
                })
                .collect(),
                empty: "",
                more: None,
            },
        ];
        Self::new(f, "Registry", "OS images for machines, and what jobs need of them.", sections)
    }

    /// What a search found.
    pub fn found(f: Frame, asked: &str, jobs: &crate::data::JobPage, servers: &ServerPage) -> Self {
        let now = f.now;
        let server_rows = servers.servers.iter().map(|server| {
            vec![
                Cell::Link(format!("/ui/servers/{}", words::encoded(&server.serial)), server.serial.clone()),
                text(&super::servers::model(server)),
            ]
        });
        let job_rows = jobs.jobs.iter().map(|job| {
            let (state, word) = words::state(job);
            vec![
                Cell::Link(
                    format!("/ui/jobs/{}", job.job_id),
                    job.server_serial.clone().unwrap_or_else(|| short_id(&job.job_id)),
                ),
                Cell::State(state.badge_saying(word)),
                text(&words::why(job)),
                Cell::Time(When::of(job.last_update, now)),
            ]
        });
        let sections = vec![
            Section {
                id: "servers",
                title: "Servers",
                note: String::new(),
                columns: vec!["Server", "Model"],
                rows: server_rows.collect(),
                empty: "No server has this in its texts.",
                more: None,
            },
            Section {
                id: "jobs",
                title: "Jobs",
                note: String::new(),
                columns: vec!["Job", "State", "Why", "Changed"],
                rows: job_rows.collect(),
                empty: "No job has this in its texts.",
                more: None,
            },
        ];
        let (title, sections) = match asked {
            "" => ("Find".to_owned(), Vec::new()),
            asked => (format!("Found for “{}”", words::cut(asked)), sections),
        };
        let mut view = Self::new(f, &title, "", sections);
        view.search = true;
        view
    }
}

fn state_of(batch: &Batch) -> State {
    match (batch.complete, batch.progress.failed) {
        (true, 0) => State::Done,
        (true, _) => State::Failed,
        (false, _) => State::Working,
    }
}

fn word_of(batch: &Batch) -> &'static str {
    match (batch.complete, batch.progress.failed) {
        (true, 0) => "Done",
        (true, _) => "With failures",
        (false, _) => "Under way",
    }
}
