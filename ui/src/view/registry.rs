//! The registry: its health and its repositories, and one repository with its tags.

use super::form::FormView;
use super::frame::Frame;
use super::section::{Cell, Section};
use super::table::TableView;
use crate::data::{HeldContent, ImageTag, RegistryJson, Repositories, Repository, RepositoryDetail};
use crate::parts::{Copy, Meter, short_id};
use crate::state::State;
use crate::time::When;
use crate::words;

/// The maximum of tags that the row of a repository names.
const TAGS: usize = 4;

/// The folder in which a registry client looks for the certificate authority of the controller.
const CA_FOLDER: &str = "shoal-ca";
/// The login of a registry client, in words.
const LOGIN: &str = "any user name, your token as the password";

/// The place of the registry: how a browser reaches it, and so a client beside it.
#[derive(Clone, Copy, Debug)]
pub struct RegistryPlace<'a> {
    /// Host and port.
    pub host: &'a str,
    /// The end of the TLS connection, which decides what a client must trust.
    pub tls: RegistryTls,
}

/// The place where the TLS connection of a client ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistryTls {
    /// The TLS listener of the controller, whose authority clients are given.
    OwnListener,
    /// A proxy, or the host of `CONTROLLER_PUBLIC_URL`, with a certificate that clients trust.
    Elsewhere,
    /// Nowhere: the listener is plain HTTP, and no proxy has left its mark.
    None,
}

impl RegistryPlace<'_> {
    /// The option of skopeo without which it refuses the registry, with the blank after it. `side` is empty, `src-` or `dest-`.
    fn tls(self, side: &str) -> String {
        match self.tls {
            RegistryTls::OwnListener => format!("--{side}cert-dir {CA_FOLDER} "),
            RegistryTls::Elsewhere => String::new(),
            RegistryTls::None => format!("--{side}tls-verify=false "),
        }
    }

    /// The command that gives a client the authority of the controller. A failed export leaves no file that ends with `.crt`, which
    /// a client would read.
    fn trust(self) -> Option<String> {
        let host = self.host;
        let export = format!("shoal ca export --from https://{host} --fingerprint SHA256");
        (self.tls == RegistryTls::OwnListener).then(|| {
            format!(
                "mkdir -p {CA_FOLDER} && {export} > {CA_FOLDER}/new && mv {CA_FOLDER}/new {CA_FOLDER}/ca.crt"
            )
        })
    }

    /// The note beside the commands.
    fn note(self) -> String {
        match self.tls {
            RegistryTls::OwnListener => format!(
                "{LOGIN}; SHA256 is `authority_sha256` in the log of the controller's start; a certificate that clients trust already \
                 needs no `--cert-dir`"
            ),
            RegistryTls::Elsewhere => format!(
                "{LOGIN}; for a certificate that clients do not trust, give the folder of its authority with `--cert-dir`"
            ),
            RegistryTls::None => LOGIN.to_owned(),
        }
    }
}

fn health(name: &str, state: State, word: &str, hint: String) -> Vec<Cell> {
    vec![Cell::text(name), Cell::State(state.badge_saying(word)), Cell::Text(words::cut(&hint))]
}

fn health_rows(f: &Frame, registry: &RegistryJson) -> Vec<Vec<Cell>> {
    let pushes = match (&registry.read_only, registry.accepts_pushes) {
        (Some(why), _) => health("Pushes", State::Held, "Read-only", why.clone()),
        (None, true) => health("Pushes", State::Done, "Taken", String::new()),
        (None, false) => {
            health("Pushes", State::Failed, "Refused", "the disk of the registry is nearly full".to_owned())
        }
    };
    let scrub = match (&registry.scrub.last_verified, registry.scrub.quarantined.len()) {
        (_, quarantined) if quarantined > 0 => {
            health("Verified", State::Failed, "Corrupted", format!("{quarantined} blobs are quarantined"))
        }
        (Some(at), _) => {
            let all = format!(
                "{}, {}, {}",
                When::of(*at, f.now).words(),
                words::count(registry.scrub.blobs, "blob", "blobs"),
                words::bytes(registry.scrub.bytes)
            );
            health("Verified", State::Done, "Sound", all)
        }
        (None, _) => {
            health("Verified", State::Queued, "Not yet", "the first scrub comes by its schedule".to_owned())
        }
    };
    let free = words::bytes(registry.free_bytes);
    let room = match registry.accepts_pushes {
        true => health("Room", State::Done, "Free", format!("{free} on the disk of the registry")),
        false => {
            let hint = format!("{free} on the disk of the registry; `REGISTRY_RESERVE` keeps more than that");
            health("Room", State::Failed, "Full", hint)
        }
    };
    let pins = words::count(registry.pins, "pin", "pins");
    let mut rows = vec![pushes, room, scrub, health("Held for jobs and sets", State::Done, "Kept", pins)];
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
    rows
}

/// The page of a repository. A name has slashes, which stay.
pub fn path(name: &str) -> String {
    let parts: Vec<String> = name.split('/').map(words::encoded).collect();
    format!("/ui/registry/{}", parts.join("/"))
}

/// The link to the question before a tag is deleted; none for an immutable tag.
fn deletion(repository: &str, tag: &ImageTag) -> Option<(String, &'static str, String)> {
    let (name, of) = (words::encoded(repository), words::encoded(&tag.tag));
    let path = format!("/ui/tags/delete?repository={name}&tag={of}");
    (!tag.immutable).then(|| (path, "Delete…", format!("Delete the tag {}", tag.tag)))
}

impl FormView {
    /// Asks before a tag is deleted. What is deleted is the tag of the manifest that the question names.
    pub fn delete_tag(f: Frame, repository: &str, tag: &ImageTag) -> Self {
        let view = Self::new(f, format!("Delete {}?", tag.tag), "/ui/tags/delete", path(repository))
            .below(path(repository), repository)
            .intro(format!("The tag names {} in {repository}.", digest(&tag.digest)));
        if tag.immutable {
            let why = "The tag is immutable, so it is not deleted: `REGISTRY_IMMUTABLE_TAGS` names it.";
            return view.note(State::Held, why);
        }
        let content = match tag.held_by.as_slice() {
            [] => {
                "Its content stays under its digest. A collection of garbage removes it only with `REGISTRY_GC_UNTAGGED`, and when \
                 nothing else needs it."
                    .to_owned()
            }
            [one] => format!("Its content stays as long as {one} holds it."),
            [first, others @ ..] => {
                let others = words::count(others.len() as u64, "other", "others");
                format!("Its content stays as long as {first} and {others} hold it.")
            }
        };
        view.effect(
            State::Failed,
            "A recipe that names this tag fails from now on; one that names the digest finds it as long as the content is there.",
        )
        .effect(State::Queued, content)
        .hidden("repository", repository)
        .hidden("tag", &tag.tag)
        .hidden("digest", &tag.digest)
        .risky()
        .yes("Delete the tag")
    }
}

fn repository_row(repository: &Repository, now: jiff::Timestamp) -> Vec<Cell> {
    let mut tags = repository.names.iter().take(TAGS).cloned().collect::<Vec<_>>().join(", ");
    if repository.tags > TAGS as u64 {
        tags.push_str(&format!(" and {} more", repository.tags - TAGS as u64));
    }
    let held = match repository.pins {
        0 => String::new(),
        pins => words::count(pins, "pin", "pins"),
    };
    vec![
        Cell::Named(path(&repository.name), repository.name.clone(), words::cut(&tags)),
        Cell::Text(words::count(repository.tags, "tag", "tags")),
        Cell::Text(words::bytes(repository.bytes)),
        Cell::Text(held),
        Cell::time_or(repository.changed_at.map(|at| When::of(at, now)), ""),
    ]
}

impl TableView {
    /// The registry: its repositories, its health, and how to push.
    pub fn registry(
        f: Frame,
        registry: &RegistryJson,
        repositories: &Repositories,
        place: RegistryPlace<'_>,
    ) -> Self {
        let rows =
            repositories.repositories.iter().map(|repository| repository_row(repository, f.now)).collect();
        let number = repositories.repositories.len() as u64;
        let columns = ["Repository", "Tags", "Size", "Held", "Changed"];
        let host = place.host;
        let steps = [
            ("Log in", format!("skopeo login {}{host}", place.tls(""))),
            (
                "Push an image",
                format!(
                    "skopeo copy {}oci:os-image:22.04 docker://{host}/os-images/NAME:TAG",
                    place.tls("dest-")
                ),
            ),
        ];
        let steps = place.trust().map(|command| ("Trust the controller", command)).into_iter().chain(steps);
        let push = steps
            .map(|(step, command)| vec![Cell::text(step), Cell::Copy(Copy::whole("command", &command))])
            .collect();
        let sections = vec![
            Section::new("repositories", "Repositories", &columns, rows)
                .note(words::count(number, "repository", "repositories"))
                .or("Nothing was pushed yet. The command below pushes an image; the password is your token."),
            Section::new("health", "Health", &["What", "State", "Detail"], health_rows(&f, registry)),
            Section::new("push", "Push", &["Step", "Command"], push).note(place.note()),
        ];
        Self::new(f, "Registry", "OS images for machines, and what jobs need of them.", sections).acts(vec![
            ("/ui/media".to_owned(), "Boot and task images"),
            ("/ui/firmware".to_owned(), "Firmware"),
        ])
    }

    /// One repository: its tags, and what holds its content.
    pub fn repository(f: Frame, repository: &RepositoryDetail, place: RegistryPlace<'_>) -> Self {
        let now = f.now;
        let may_delete = f.may_administer();
        let (host, tls) = (place.host, place.tls("src-"));
        let tag_row = |tag: &ImageTag| {
            let (name, tag_name) = (&repository.name, &tag.tag);
            let pull = format!("skopeo copy {tls}docker://{host}/{name}:{tag_name} oci:image:{tag_name}");
            let mut words_of = vec![tag.kind.clone()];
            words_of.extend(tag.immutable.then(|| "never moves".to_owned()));
            words_of.extend(tag.problem.clone());
            let held = match tag.held_by.as_slice() {
                [] => String::new(),
                [one] => words::cut(one),
                several => format!("{} and {} more", words::cut(&several[0]), several.len() - 1),
            };
            let mut row = vec![
                Cell::Two(tag.tag.clone(), words::cut(&words_of.join(" · "))),
                Cell::Copy(Copy { what: "digest", text: tag.digest.clone(), shown: digest(&tag.digest) }),
                Cell::Two(
                    tag.bytes.map_or_else(|| "not known".to_owned(), words::bytes),
                    words::cut(&tag.platforms.join(", ")),
                ),
                Cell::time_or(tag.pushed_at.map(|at| When::of(at, now)), ""),
                Cell::text(&held),
                Cell::Copy(Copy { what: "pull command", text: pull, shown: "pull".to_owned() }),
            ];
            row.extend(may_delete.then(|| Cell::Acts(deletion(name, tag).into_iter().collect())));
            row
        };
        let held_row = |held: &HeldContent| {
            let owner = match &held.job_id {
                Some(job) => {
                    Cell::Link(format!("/ui/jobs/{}", words::encoded(job)), format!("job {}", short_id(job)))
                }
                None => Cell::text(&held.owner),
            };
            let copy = Copy { what: "digest", text: held.digest.clone(), shown: digest(&held.digest) };
            vec![owner, Cell::Copy(copy), Cell::time_or(held.since.map(|at| When::of(at, now)), "")]
        };
        let next =
            |next: &String| (format!("{}?after={}", path(&repository.name), words::encoded(next)), "More");
        let more = match repository.more_held {
            0 => "neither deleted nor collected".to_owned(),
            more => format!("neither deleted nor collected; {more} more are not shown"),
        };
        let mut columns = vec!["Tag", "Digest", "Size", "Pushed", "Held by", "Command"];
        columns.extend(may_delete.then_some("Changes"));
        let sections = vec![
            Section::new("tags", "Tags", &columns, repository.tags.iter().map(tag_row).collect())
                .note("by name")
                .or("No tag. Content without a tag is collected as garbage after a while.")
                .more(repository.next.as_ref().map(next)),
            Section::new(
                "held",
                "What holds its content",
                &["Holder", "Digest", "Since"],
                repository.held.iter().map(held_row).collect(),
            )
            .note(more)
            .or("No job and no firmware set needs content of this repository."),
        ];
        let sub = format!("{} in this repository.", words::bytes(repository.bytes));
        Self::new(f, &repository.name, &sub, sections).below("/ui/registry", "Registry")
    }
}

/// The beginning of a digest.
pub(crate) fn digest(digest: &str) -> String {
    let (algorithm, hex) = digest.split_once(':').unwrap_or(("", digest));
    let short: String = hex.chars().take(12).collect();
    if algorithm.is_empty() { short } else { format!("{algorithm}:{short}…") }
}
