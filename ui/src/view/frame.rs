//! The frame of every page, around its content: navigation, account, theme, the palette.

use jiff::Timestamp;

use crate::assets;
use crate::words;

/// The entry of the navigation under which a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// The overview.
    Overview,
    /// Jobs and batches.
    Jobs,
    /// Servers.
    Servers,
    /// The registry.
    Registry,
    /// Events and webhooks.
    Events,
    /// Settings, users, tokens and the audit log.
    Settings,
    /// No entry: the page is below none of them.
    None,
}

/// The colours of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// The colours of the system of the browser.
    #[default]
    System,
    /// Light colours.
    Light,
    /// Dark colours.
    Dark,
}

impl Theme {
    /// The theme of a cookie or a form; anything unknown is that of the system.
    pub fn parse(text: &str) -> Self {
        match text {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::System,
        }
    }

    /// The name in the cookie.
    pub fn word(self) -> &'static str {
        match self {
            Self::System => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    /// The theme that follows when the button is pressed.
    pub(crate) fn next(self) -> &'static str {
        match self {
            Self::System => "light",
            Self::Light => "dark",
            Self::Dark => "auto",
        }
    }

    /// The value of `data-theme`, which overrides the system.
    pub(crate) fn name(self) -> Option<&'static str> {
        (self != Self::System).then(|| self.word())
    }
}

/// The rights of the caller, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallerRole {
    /// No page: tokens for reports or the registry.
    Nothing,
    /// The caller may read.
    Viewer,
    /// Change servers and jobs.
    Operator,
    /// The caller may do everything.
    Admin,
}

impl CallerRole {
    /// The role of that name.
    pub fn parse(name: Option<&str>) -> Self {
        match name {
            Some("admin") => Self::Admin,
            Some("operator") => Self::Operator,
            Some("viewer") => Self::Viewer,
            _ => Self::Nothing,
        }
    }
}

/// The frame of a page: what every page has around its content.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The title of the page.
    pub title: String,
    /// The current entry of the navigation.
    pub tab: Tab,
    /// The path of the page with its query, to come back to.
    pub path: String,
    /// The name of the caller.
    pub user: String,
    /// The rights of the caller.
    pub role: CallerRole,
    /// Whether the caller sees every server, and not only those with the labels of a token.
    pub sees_all: bool,
    /// The name of the role in the API.
    pub role_name: String,
    /// The number of jobs that failed and need a person.
    pub failed: u64,
    /// The theme of the page: light, dark, or as the system has it.
    pub theme: Theme,
    /// Whether times are shown by the clock.
    pub clock_times: bool,
    /// The proof that a form comes from a page of this session; empty without a session.
    pub csrf: String,
    /// The version of the program.
    pub version: &'static str,
    /// Whether a request of the path shows the page again: the response to a form has no such path.
    pub reads: bool,
    /// The stream of events that tells the script to read the page again.
    pub stream: Option<String>,
    /// The change that was just made, in words.
    pub notice: Option<String>,
    /// The time of the page.
    pub now: Timestamp,
}

/// An entry of the navigation.
pub(crate) struct Entry {
    pub(crate) path: &'static str,
    pub(crate) key: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) name: &'static str,
    pub(crate) count: u64,
    pub(crate) current: bool,
}

/// A place of the palette.
pub(crate) struct Place {
    pub(crate) path: &'static str,
    pub(crate) icon: &'static str,
    pub(crate) name: &'static str,
    pub(crate) hint: &'static str,
    pub(crate) keys: &'static str,
    least: CallerRole,
}

const ENTRIES: [(Tab, &str, &str, &str, &str, CallerRole); 6] = [
    (Tab::Overview, "/ui/", "o", "home", "Overview", CallerRole::Viewer),
    (Tab::Jobs, "/ui/jobs", "j", "jobs", "Jobs", CallerRole::Viewer),
    (Tab::Servers, "/ui/servers", "s", "servers", "Servers", CallerRole::Viewer),
    (Tab::Registry, "/ui/registry", "r", "registry", "Registry", CallerRole::Viewer),
    (Tab::Events, "/ui/events", "e", "events", "Events", CallerRole::Viewer),
    (Tab::Settings, "/ui/settings", "c", "settings", "Settings", CallerRole::Admin),
];

const PLACES: [Place; 20] = [
    place("/ui/", "home", "Overview", "", "g o", CallerRole::Viewer),
    place("/ui/jobs", "jobs", "Jobs", "", "g j", CallerRole::Viewer),
    place(
        "/ui/jobs?q=outcome%3Afailed",
        "failed",
        "Jobs that failed",
        "outcome:failed",
        "",
        CallerRole::Viewer,
    ),
    place(
        "/ui/jobs?q=condition%3Awaiting%2Cretrying",
        "waiting",
        "Jobs that wait",
        "condition:waiting,retrying",
        "",
        CallerRole::Viewer,
    ),
    place("/ui/jobs/new", "plus", "New job…", "", "n", CallerRole::Operator),
    place("/ui/batches", "jobs", "Batches", "", "", CallerRole::Viewer),
    place("/ui/servers", "servers", "Servers", "", "g s", CallerRole::Viewer),
    place("/ui/servers/new", "plus", "Add a server…", "", "", CallerRole::Operator),
    place("/ui/servers/import", "plus", "Import servers…", "", "", CallerRole::Operator),
    place(
        "/ui/batches/new",
        "plus",
        "New batch…",
        "one job for each of many servers",
        "",
        CallerRole::Operator,
    ),
    place("/ui/registry", "registry", "Registry", "", "g r", CallerRole::Viewer),
    place("/ui/media", "registry", "Boot and task images", "served, and being read", "", CallerRole::Viewer),
    place("/ui/firmware", "registry", "Firmware", "files and sets", "", CallerRole::Viewer),
    place("/ui/events", "events", "Events", "", "g e", CallerRole::Viewer),
    place("/ui/webhooks", "events", "Webhooks", "where events are sent", "", CallerRole::Viewer),
    place("/ui/settings", "settings", "Settings", "", "g c", CallerRole::Admin),
    place("/ui/users", "user", "Users and tokens", "", "", CallerRole::Admin),
    place("/ui/audit", "shield", "Audit log", "who did what", "", CallerRole::Admin),
    place("/ui/drain", "gate", "Drain: let no job begin…", "", "", CallerRole::Operator),
    place("/ui/account", "user", "Your account and its logins", "", "", CallerRole::Viewer),
];

const fn place(
    path: &'static str,
    icon: &'static str,
    name: &'static str,
    hint: &'static str,
    keys: &'static str,
    least: CallerRole,
) -> Place {
    Place { path, icon, name, hint, keys, least }
}

impl Frame {
    /// Whether the caller may change servers and jobs.
    pub fn may_operate(&self) -> bool {
        self.role >= CallerRole::Operator
    }

    /// Whether the caller may change many servers and jobs at once: a token with labels may not.
    pub fn may_operate_many(&self) -> bool {
        self.may_operate() && self.sees_all
    }

    /// Whether the caller may administer.
    pub fn may_administer(&self) -> bool {
        self.role >= CallerRole::Admin
    }

    pub(crate) fn role_words(&self) -> &str {
        words::role(&self.role_name)
    }

    pub(crate) fn style(&self) -> &'static str {
        &assets::STYLE.path
    }

    pub(crate) fn script(&self) -> &'static str {
        &assets::SCRIPT.path
    }

    /// The time of the page as the script reads it.
    pub(crate) fn iso(&self) -> String {
        crate::time::iso(self.now)
    }

    pub(crate) fn clock(&self) -> String {
        self.now.strftime("%H:%M").to_string()
    }

    /// Whether the caller may see a page. Events name every server, so a caller who sees some servers only has none of them, and
    /// no webhook.
    fn leads_to(&self, path: &str, least: CallerRole) -> bool {
        least <= self.role && (self.sees_all || !["/ui/events", "/ui/webhooks"].contains(&path))
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let permitted = ENTRIES.into_iter().filter(|(_, path, .., least)| self.leads_to(path, *least));
        permitted.map(|(tab, path, key, icon, name, _)| Entry {
            path,
            key,
            icon,
            name,
            count: if tab == Tab::Jobs { self.failed } else { 0 },
            current: tab == self.tab,
        })
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = &'static Place> + '_ {
        PLACES.iter().filter(|place| self.leads_to(place.path, place.least))
    }
}
