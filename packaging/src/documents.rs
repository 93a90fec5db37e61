//! The documents of a package: all that an operator reads, with the pages, pictures and files that they lead to.
//!
//! ```text
//!   docs/operating.md   -> operating.md          a link between shipped files leads to the shipped one
//!   docs/errors/busy.md -> errors/busy.md
//!   docs/ui/server.png  -> ui/server.png
//!   golden/roles.txt    -> reference/roles.txt
//!   a link to a source  -> its text alone        a package has no sources
//! ```
//!
//! Invariant: every relative link of a shipped document leads to a shipped file.

use std::borrow::Cow;

/// A shipped file: its name in the folder of documents, its path in the repository, its bytes.
type Document = (&'static str, &'static str, &'static [u8]);

/// Everything but the pages of error codes.
const DOCUMENTS: &[Document] = &[
    ("LICENSE-APACHE", "LICENSE-APACHE", include_bytes!("../../LICENSE-APACHE")),
    ("LICENSE-MIT", "LICENSE-MIT", include_bytes!("../../LICENSE-MIT")),
    ("CHANGELOG.md", "CHANGELOG.md", include_bytes!("../../CHANGELOG.md")),
    ("SECURITY.md", "SECURITY.md", include_bytes!("../../SECURITY.md")),
    ("air-gap.md", "docs/air-gap.md", include_bytes!("../../docs/air-gap.md")),
    ("api.md", "docs/api.md", include_bytes!("../../docs/api.md")),
    ("backup.md", "docs/backup.md", include_bytes!("../../docs/backup.md")),
    ("cli.md", "docs/cli.md", include_bytes!("../../docs/cli.md")),
    ("errors.md", "docs/errors.md", include_bytes!("../../docs/errors.md")),
    ("events.md", "docs/events.md", include_bytes!("../../docs/events.md")),
    ("fleet.md", "docs/fleet.md", include_bytes!("../../docs/fleet.md")),
    ("glossary.md", "docs/glossary.md", include_bytes!("../../docs/glossary.md")),
    ("hardening.md", "docs/hardening.md", include_bytes!("../../docs/hardening.md")),
    ("hardware.md", "docs/hardware.md", include_bytes!("../../docs/hardware.md")),
    ("install.md", "docs/install.md", include_bytes!("../../docs/install.md")),
    ("maintenance-os.md", "docs/maintenance-os.md", include_bytes!("../../docs/maintenance-os.md")),
    ("metrics.md", "docs/metrics.md", include_bytes!("../../docs/metrics.md")),
    ("operating.md", "docs/operating.md", include_bytes!("../../docs/operating.md")),
    ("recipes.md", "docs/recipes.md", include_bytes!("../../docs/recipes.md")),
    ("settings.md", "docs/settings.md", include_bytes!("../../docs/settings.md")),
    ("troubleshooting.md", "docs/troubleshooting.md", include_bytes!("../../docs/troubleshooting.md")),
    ("ui.md", "docs/ui.md", include_bytes!("../../docs/ui.md")),
    ("upgrade.md", "docs/upgrade.md", include_bytes!("../../docs/upgrade.md")),
    ("components.cdx.json", "golden/components.cdx.json", include_bytes!("../../golden/components.cdx.json")),
    ("openapi.json", "golden/openapi.json", include_bytes!("../../golden/openapi.json")),
    (
        "reference/audit-actions.txt",
        "golden/audit-actions.txt",
        include_bytes!("../../golden/audit-actions.txt"),
    ),
    ("reference/file-modes.txt", "golden/file-modes.txt", include_bytes!("../../golden/file-modes.txt")),
    (
        "reference/registry-roles.txt",
        "golden/registry-roles.txt",
        include_bytes!("../../golden/registry-roles.txt"),
    ),
    (
        "reference/response-headers.txt",
        "golden/response-headers.txt",
        include_bytes!("../../golden/response-headers.txt"),
    ),
    ("reference/roles.txt", "golden/roles.txt", include_bytes!("../../golden/roles.txt")),
    ("reference/route-roles.txt", "golden/route-roles.txt", include_bytes!("../../golden/route-roles.txt")),
    (
        "reference/secrets-and-doors.txt",
        "golden/secrets-and-doors.txt",
        include_bytes!("../../golden/secrets-and-doors.txt"),
    ),
    (
        "schemas/recipe-linux-v2.example.json",
        "schemas/recipe-linux-v2.example.json",
        include_bytes!("../../schemas/recipe-linux-v2.example.json"),
    ),
    (
        "schemas/recipe-linux.example.json",
        "schemas/recipe-linux.example.json",
        include_bytes!("../../schemas/recipe-linux.example.json"),
    ),
    (
        "schemas/recipe-v2.schema.json",
        "schemas/recipe-v2.schema.json",
        include_bytes!("../../schemas/recipe-v2.schema.json"),
    ),
    (
        "schemas/recipe.schema.json",
        "schemas/recipe.schema.json",
        include_bytes!("../../schemas/recipe.schema.json"),
    ),
    ("ui/batch-light.png", "docs/ui/batch-light.png", include_bytes!("../../docs/ui/batch-light.png")),
    (
        "ui/firmware-plan-light.png",
        "docs/ui/firmware-plan-light.png",
        include_bytes!("../../docs/ui/firmware-plan-light.png"),
    ),
    (
        "ui/job-failed-dark.png",
        "docs/ui/job-failed-dark.png",
        include_bytes!("../../docs/ui/job-failed-dark.png"),
    ),
    ("ui/new-job-light.png", "docs/ui/new-job-light.png", include_bytes!("../../docs/ui/new-job-light.png")),
    (
        "ui/overview-light.png",
        "docs/ui/overview-light.png",
        include_bytes!("../../docs/ui/overview-light.png"),
    ),
    (
        "ui/phone-jobs-dark.png",
        "docs/ui/phone-jobs-dark.png",
        include_bytes!("../../docs/ui/phone-jobs-dark.png"),
    ),
    ("ui/server-dark.png", "docs/ui/server-dark.png", include_bytes!("../../docs/ui/server-dark.png")),
];

macro_rules! error_pages {
    ($($code:literal,)*) => {
        /// The page of each error code.
        const ERROR_PAGES: &[Document] = &[$((
            concat!("errors/", $code, ".md"),
            concat!("docs/errors/", $code, ".md"),
            include_bytes!(concat!("../../docs/errors/", $code, ".md")),
        ),)*];
    };
}

error_pages! {
    "backup.failed",
    "bad_body",
    "bad_json",
    "bmc",
    "bmc_password_needed",
    "body_timeout",
    "body_too_large",
    "busy",
    "config.no_maintenance_iso",
    "conflict.accounts",
    "conflict.active_job",
    "conflict.backup",
    "conflict.condition",
    "conflict.firmware",
    "conflict.firmware_in_use",
    "conflict.firmware_set",
    "conflict.input",
    "conflict.job_id",
    "conflict.jobs",
    "conflict.last_admin",
    "conflict.name",
    "conflict.no_password",
    "conflict.no_session",
    "conflict.phase",
    "conflict.report",
    "conflict.restored",
    "conflict.revision",
    "conflict.secret",
    "conflict.server",
    "conflict.verb",
    "conflict.webhooks",
    "conflict.worker_hello",
    "conflict.worker_version",
    "csrf",
    "firmware.no_set",
    "firmware.several_sets",
    "forbidden",
    "https_required",
    "idempotency_key_reused",
    "internal",
    "media.changed",
    "media.url_expired",
    "media.url_invalid",
    "method_not_allowed",
    "no_active_job",
    "no_backup_target",
    "no_registry",
    "no_task_image",
    "not_found",
    "precondition_failed",
    "rate_limited",
    "registry.failed",
    "registry.fixed",
    "registry.immutable",
    "registry.read_only",
    "report_certificate",
    "server_record",
    "too_many_streams",
    "unauthorized",
    "unavailable",
    "unknown_backup",
    "unknown_batch",
    "unknown_condition",
    "unknown_dead_letter",
    "unknown_firmware",
    "unknown_firmware_set",
    "unknown_job",
    "unknown_repository",
    "unknown_secret",
    "unknown_server",
    "unknown_session",
    "unknown_token",
    "unknown_tag",
    "unknown_upload",
    "unknown_user",
    "unknown_webhook",
    "unknown_worker_token",
    "unknown_workflow",
    "unsupported_media_type",
    "validation_error",
}

/// All documents by their names, with links that lead to each other.
pub(crate) fn all() -> Vec<(&'static str, Cow<'static, [u8]>)> {
    shipped()
        .map(|&(name, path, bytes)| match std::str::from_utf8(bytes) {
            Ok(text) if name.ends_with(".md") => (name, Cow::Owned(linked(name, path, text).into_bytes())),
            _ => (name, Cow::Borrowed(bytes)),
        })
        .collect()
}

fn shipped() -> impl Iterator<Item = &'static Document> {
    DOCUMENTS.iter().chain(ERROR_PAGES)
}

/// A document whose links lead to shipped files; a link to any other file of the repository becomes its text.
fn linked(name: &str, path: &str, text: &str) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(Link { start, label, target, end }) = Link::first(rest) {
        out.push_str(&rest[..start]);
        match place(name, path, target) {
            Some(place) => out.push_str(&format!("[{label}]({place})")),
            None => out.push_str(label),
        }
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Where a link of a shipped document leads; `None` if that is not shipped.
fn place(name: &str, path: &str, target: &str) -> Option<String> {
    if target.starts_with('#') || target.contains("://") {
        return Some(target.to_owned());
    }
    let (file, anchor) = target.split_at(target.find('#').unwrap_or(target.len()));
    let wanted = joined(path, file)?;
    let (found, ..) = shipped().find(|(_, path, _)| *path == wanted)?;
    let up = "../".repeat(name.matches('/').count());
    Some(format!("{up}{found}{anchor}"))
}

/// The path that a relative path leads to from a file.
fn joined(from: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A link of Markdown: `[label](target)`.
struct Link<'a> {
    start: usize,
    label: &'a str,
    target: &'a str,
    end: usize,
}

impl<'a> Link<'a> {
    /// The first link of a text, which may go over lines.
    fn first(text: &'a str) -> Option<Self> {
        let mut from = 0;
        loop {
            let middle = from + text[from..].find("](")?;
            let end = middle + text[middle..].find(')')?;
            let (target, start) = (&text[middle + 2..end], opening(&text[..middle]));
            match start {
                Some(start) if !target.contains(char::is_whitespace) => {
                    return Some(Self { start, label: &text[start + 1..middle], target, end: end + 1 });
                }
                _ => from = middle + 2,
            }
        }
    }
}

/// The bracket that opens the label at the end of a text.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, character) in text.char_indices().rev() {
        match character {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(place),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The names of the files of a folder of the repository.
    fn files(folder: &str) -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
        let files = std::fs::read_dir(path).unwrap().map(|file| file.unwrap().file_name());
        files.map(|name| format!("{folder}/{}", name.into_string().unwrap())).collect()
    }

    #[test]
    fn every_relative_link_of_a_shipped_document_leads_to_a_shipped_file() {
        let names: BTreeSet<&str> = all().iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), all().len(), "two documents have one name");
        let mut links = 0;
        for (name, bytes) in all() {
            let Some(text) = std::str::from_utf8(&bytes).ok().filter(|_| name.ends_with(".md")) else {
                continue;
            };
            let mut rest = text;
            while let Some(link) = Link::first(rest) {
                let file = link.target.split('#').next().unwrap_or_default();
                if !link.target.contains("://") && !file.is_empty() {
                    let found = joined(name, file);
                    let found = found.as_deref().is_some_and(|found| names.contains(found));
                    assert!(found, "{name}: {}", link.target);
                    links += 1;
                }
                rest = &rest[link.end..];
            }
        }
        assert!(links > 200, "{links} links were looked at");
    }

    #[test]
    fn every_page_of_an_error_and_every_picture_is_shipped() {
        let paths: BTreeSet<String> = shipped().map(|(_, path, _)| (*path).to_owned()).collect();
        for folder in ["docs/errors", "docs/ui", "schemas"] {
            let missing: Vec<String> = files(folder).difference(&paths).cloned().collect();
            assert!(missing.is_empty(), "packaging/src/documents.rs: {missing:?}");
        }
    }

    #[test]
    fn a_link_leads_to_the_shipped_file_or_is_its_text() {
        let of = |text| linked("errors/busy.md", "docs/errors/busy.md", text);
        for (text, wanted) in [
            ("[All](../errors.md)", "[All](../errors.md)"),
            ("[changes](../../CHANGELOG.md#a) [x](#b)", "[changes](../CHANGELOG.md#a) [x](#b)"),
            ("a [source](../../redfish/x.toml), b", "a source, b"),
            ("[a[0]](../errors.md) a[0](b c)", "[a[0]](../errors.md) a[0](b c)"),
            ("[w](https://example.org/x)", "[w](https://example.org/x)"),
            ("no ](link", "no ](link"),
        ] {
            assert_eq!(of(text), wanted);
        }
        let picture = linked("ui.md", "docs/ui.md", "![o](ui/overview-light.png)");
        assert_eq!(picture, "![o](ui/overview-light.png)");
    }
}
