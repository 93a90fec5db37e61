//! `shoal registry ls --online` and `shoal registry delete`: the content of the registry of a running controller.
//!
//! ```text
//!   delete REPOSITORY:TAG       the tag goes; its content stays until garbage is collected, if nothing else needs it
//!   delete REPOSITORY:GLOB      every tag like it goes that is not immutable
//!   delete REPOSITORY@DIGEST    the manifest goes, with every tag that names it
//!       without --yes           what would go; nothing is sent
//! ```
//!
//! Invariant: what the registry never deletes (an immutable tag, held content) is refused here with its reason, before a request.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::event::is_like;
use super::exit::Exit;
use super::many;
use super::output::{Column, Output, counted, join, plain, text};

/// The tags of one page.
const PAGE: usize = 100;
/// The maximum of images of one deletion.
const MOST_DELETED: usize = 1000;
/// The maximum of pages of tags.
const MAX_PAGES: usize = 10_000;

/// A repository with all of its tags.
pub(super) async fn repository(name: &str, client: &Client) -> Result<Value, CliError> {
    let path = ["registry", "repositories", name];
    let mut whole = Value::Null;
    let mut tags: Vec<Value> = Vec::new();
    let mut next = Value::Null;
    for _ in 0..MAX_PAGES {
        let mut query = vec![("limit", PAGE.to_string())];
        query.extend(next.as_str().map(|cursor| ("cursor", cursor.to_owned())));
        let mut page = client.get(&path, &query).await?.body;
        let Some(Value::Array(mut found)) = page.get_mut("tags").map(Value::take) else {
            return Err(client.unexpected_response(&path, "the list of tags is missing"));
        };
        next = page["next"].take();
        tags.append(&mut found);
        if whole.is_null() {
            whole = page;
        }
        if next.is_null() {
            break;
        }
    }
    whole["tags"] = Value::Array(tags);
    whole["next"] = next;
    Ok(whole)
}

/// Shows the repositories with their sizes.
pub(super) fn show_repositories(page: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.document(page);
    }
    const COLUMNS: [Column<'_>; 6] = [
        Column::new("REPOSITORY", 0),
        Column::new("BYTES", 1),
        Column::new("TAGS", 2),
        Column::new("NAMES", 3),
        Column::new("HELD BY", 5),
        Column::new("CHANGED", 4),
    ];
    let row = |repository: &Value| {
        let names: Vec<String> = list(repository, "names").map(|name| text(name, "")).collect();
        vec![
            text(repository, "/name"),
            text(repository, "/bytes"),
            text(repository, "/tags"),
            names.join(" "),
            match repository["pins"].as_u64() {
                Some(pins) if pins > 0 => counted(pins, "pin", "pins"),
                _ => String::new(),
            },
            text(repository, "/changed_at"),
        ]
    };
    let rows: Vec<Vec<String>> = list(page, "repositories").map(row).collect();
    output.columns(&COLUMNS, &rows)
}

/// Shows the tags of a repository, and the owners that hold its content.
pub(super) fn show_repository(repository: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    if output.json {
        return output.list_document(repository, "tags");
    }
    const COLUMNS: [Column<'_>; 8] = [
        Column::new("TAG", 0),
        Column::new("BYTES", 1),
        Column::new("KIND", 3),
        Column::new("PLATFORMS", 4),
        Column::new("PUSHED", 2),
        Column::new("KEPT", 5),
        Column::new("DIGEST", 6),
        Column::new("PROBLEM", 7),
    ];
    let row = |tag: &Value| {
        let platforms: Vec<String> = list(tag, "platforms").map(|platform| text(platform, "")).collect();
        vec![
            text(tag, "/tag"),
            text(tag, "/bytes"),
            text(tag, "/kind"),
            platforms.join(" "),
            text(tag, "/pushed_at"),
            join(&[immutable(tag).to_owned(), holders(tag).join(" ")], ", "),
            text(tag, "/digest"),
            text(tag, "/problem"),
        ]
    };
    let rows: Vec<Vec<String>> = list(repository, "tags").map(row).collect();
    output.columns(&COLUMNS, &rows)?;
    for held in list(repository, "held") {
        output.note(format!("{} is held by {}", text(held, "/digest"), text(held, "/owner")));
    }
    match repository["more_held"].as_u64() {
        Some(more) if more > 0 => output.note(format!("and {more} more")),
        _ => {}
    }
    Ok(())
}

/// Deletes tags or manifests, or shows what would go. All are looked at before the first one is deleted.
pub(super) async fn delete(
    images: &[String],
    yes: bool,
    expect: Option<usize>,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let found = find(images, client).await?;
    if let Some(expected) = expect.filter(|expected| *expected != found.len()) {
        let message = format!(
            "the images are {} now and {expected} were expected; nothing was deleted: preview it again",
            found.len()
        );
        return Err(CliError::Local { message, exit: Exit::Conflict });
    }
    // By the arguments, so that the form of the output does not depend on what a glob finds.
    let several = images.len() > 1 || images.iter().any(|image| is_glob(image));
    let (found, all) = match (yes, several) {
        (false, _) => (found, Ok(())),
        (true, true) => delete_each(found, client, output).await,
        (true, false) => {
            for (name, gone) in &found {
                client.delete_manifest(name, &gone.reference).await?;
            }
            (found, Ok(()))
        }
    };
    show_deletion(&found, several, yes, output)?;
    all
}

/// Deletes several images. Returns those that were deleted, and whether all were: a refusal is shown, and the others go on.
async fn delete_each(
    found: Vec<(String, Gone)>,
    client: &Client,
    output: &mut Output<'_>,
) -> (Vec<(String, Gone)>, Result<(), CliError>) {
    let images: Vec<String> = found.iter().map(|(name, gone)| gone.image(name)).collect();
    let (left, deleted) = (RefCell::new(VecDeque::from(found)), RefCell::new(Vec::new()));
    let all = many::each_of(("image", "images"), &images, output, async |_, _| {
        // One for each name, in their order.
        let Some((name, gone)) = left.borrow_mut().pop_front() else { return Ok(()) };
        client.delete_manifest(&name, &gone.reference).await?;
        deleted.borrow_mut().push((name, gone));
        Ok(())
    })
    .await;
    (deleted.into_inner(), all)
}

/// Shows the images that are gone, or would go.
fn show_deletion(
    found: &[(String, Gone)],
    several: bool,
    yes: bool,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    if output.json {
        let mut documents = found.iter().map(|(name, gone)| gone.document(name, !yes));
        return match documents.next() {
            Some(only) if !several => output.document(&only),
            first => {
                let images: Vec<Value> = first.into_iter().chain(documents).collect();
                output.document(&json!({ "dry_run": !yes, "images": images }))
            }
        };
    }
    if let (false, [(name, gone)]) = (several, found) {
        gone.show(name, yes, output)?;
    } else {
        let rows: Vec<Vec<String>> = found.iter().map(|(name, gone)| gone.row(name)).collect();
        output.table(&["IMAGE", "DIGEST", "BYTES", "OTHER TAGS", "HELD BY"], &rows)?;
        output.line(format!("{} {} images", if yes { "deleted" } else { "would delete" }, found.len()))?;
    }
    output.note(match yes {
        true => {
            "garbage collection removes content that nothing needs: shoal registry gc --online".to_owned()
        }
        false if several => format!("nothing was changed; add --yes --expect {}", found.len()),
        false => "nothing was changed; add --yes".to_owned(),
    });
    Ok(())
}

/// The images that the arguments name, each once, in their order. Each repository is read once. A tag of a manifest that is named itself
/// goes with it and is left out.
async fn find(images: &[String], client: &Client) -> Result<Vec<(String, Gone)>, CliError> {
    let mut repositories: BTreeMap<&str, Value> = BTreeMap::new();
    let mut found: Vec<(String, Gone)> = Vec::new();
    let mut known: BTreeSet<(String, String)> = BTreeSet::new();
    for image in images {
        let (name, reference) = parts(image)?;
        if !repositories.contains_key(name) {
            repositories.insert(name, repository(name, client).await?);
        }
        let Some(shown) = repositories.get(name) else { continue };
        for reference in like(shown, name, reference)? {
            if !known.insert((name.to_owned(), reference.clone())) {
                continue;
            }
            if known.len() > MOST_DELETED {
                return Err(CliError::failed(format!(
                    "more than {MOST_DELETED} images are named; narrow the glob"
                )));
            }
            let gone = Gone::of(shown, name, &reference)?;
            // A manifest with a tag exists.
            if gone.tags.is_empty() && !client.has_manifest(name, &reference).await? {
                return Err(CliError::Local {
                    message: format!("{} has no manifest {}", plain(name), plain(&reference)),
                    exit: Exit::NotFound,
                });
            }
            found.push((name.to_owned(), gone));
        }
    }
    found.retain(|(name, gone)| !gone.is_tag || !known.contains(&(name.clone(), gone.digest.clone())));
    Ok(found)
}

/// Whether a reference, or an image with it, stands for all tags that are like it.
fn is_glob(reference: &str) -> bool {
    reference.contains(['*', '?'])
}

/// The tags of a repository that are like a glob, but for immutable ones, which are never deleted; a reference without a star or a
/// question mark is itself.
fn like(repository: &Value, name: &str, reference: &str) -> Result<Vec<String>, CliError> {
    if !is_glob(reference) {
        return Ok(vec![reference.to_owned()]);
    }
    let mutable = list(repository, "tags").filter(|tag| immutable(tag).is_empty());
    let tags = mutable.filter_map(|tag| tag["tag"].as_str()).filter(|tag| is_like(reference, tag));
    let tags: Vec<String> = tags.map(str::to_owned).collect();
    if tags.is_empty() {
        return Err(CliError::Local {
            message: format!(
                "{} has no tag like {} that can be deleted; `shoal registry ls {} --online` lists its tags",
                plain(name),
                plain(reference),
                plain(name)
            ),
            exit: Exit::NotFound,
        });
    }
    Ok(tags)
}

/// The content that a deletion removes.
#[derive(Debug)]
struct Gone {
    /// The tag or digest.
    reference: String,
    is_tag: bool,
    digest: String,
    /// The tags that go.
    tags: Vec<String>,
    /// Other tags of the same content, which stay.
    others: Vec<String>,
    bytes: Option<u64>,
    held_by: Vec<String>,
}

impl Gone {
    /// The content that a tag or a digest of a repository removes.
    ///
    /// # Errors
    ///
    /// There is no such tag, or the registry does not delete it.
    fn of(repository: &Value, name: &str, reference: &str) -> Result<Self, CliError> {
        let is_tag = !reference.contains(':');
        let same = |tag: &&Value| tag["digest"].as_str() == Some(reference);
        let named: Vec<&Value> = match is_tag {
            true => list(repository, "tags").filter(|tag| tag["tag"].as_str() == Some(reference)).collect(),
            false => list(repository, "tags").filter(same).collect(),
        };
        if is_tag && named.is_empty() {
            return Err(CliError::Local {
                message: format!(
                    "{} has no tag {}; `shoal registry ls {} --online` lists them",
                    plain(name),
                    plain(reference),
                    plain(name)
                ),
                exit: Exit::NotFound,
            });
        }
        let tags: Vec<String> = named.iter().map(|tag| text(tag, "/tag")).collect();
        if let Some(kept) = named.iter().find(|tag| tag["immutable"] == json!(true)) {
            return Err(CliError::failed(format!(
                "the tag {} of {} is immutable and is never deleted (REGISTRY_IMMUTABLE_TAGS)",
                text(kept, "/tag"),
                plain(name)
            )));
        }
        let digest = named.first().map_or_else(|| reference.to_owned(), |tag| text(tag, "/digest"));
        let mut held_by: Vec<String> = named.iter().flat_map(|tag| holders(tag)).collect();
        let held = list(repository, "held").filter(|held| held["digest"].as_str() == Some(digest.as_str()));
        held_by.extend(held.map(|held| text(held, "/owner")));
        held_by.sort();
        held_by.dedup();
        if !is_tag && !held_by.is_empty() {
            return Err(CliError::failed(format!(
                "{digest} of {} is held by {} and is not deleted; a hold of a job ends with the job",
                plain(name),
                held_by.join(", ")
            )));
        }
        let others = list(repository, "tags")
            .filter(|tag| is_tag && tag["digest"].as_str() == Some(digest.as_str()))
            .map(|tag| text(tag, "/tag"))
            .filter(|tag| !tags.contains(tag));
        Ok(Self {
            reference: reference.to_owned(),
            is_tag,
            others: others.collect(),
            bytes: named.first().and_then(|tag| tag["bytes"].as_u64()),
            digest,
            tags,
            held_by,
        })
    }

    fn document(&self, name: &str, dry_run: bool) -> Value {
        json!({
            "dry_run": dry_run, "repository": name, "reference": self.reference, "digest": self.digest, "tags": self.tags,
            "bytes": self.bytes, "held_by": self.held_by,
        })
    }

    fn image(&self, name: &str) -> String {
        plain(&format!("{name}{}{}", if self.is_tag { ':' } else { '@' }, self.reference))
    }

    fn row(&self, name: &str) -> Vec<String> {
        vec![
            self.image(name),
            plain(&self.digest),
            self.bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
            plain(&self.others.join(" ")),
            plain(&self.held_by.join(", ")),
        ]
    }

    fn show(&self, name: &str, yes: bool, output: &mut Output<'_>) -> Result<(), CliError> {
        let verb = if yes { "deleted" } else { "would delete" };
        let what = if self.is_tag { "the tag" } else { "the manifest" };
        output.line(format!("{verb} {what} {}", self.image(name)))?;
        output.fields(&[
            ("digest", plain(&self.digest)),
            ("tags", self.tags.iter().map(|tag| plain(tag)).collect::<Vec<String>>().join(" ")),
            ("bytes", self.bytes.map(|bytes| bytes.to_string()).unwrap_or_default()),
        ])?;
        if self.is_tag {
            let others = match self.others.is_empty() {
                true => String::new(),
                false => format!("; it has other tags: {}", plain(&self.others.join(" "))),
            };
            output.note(format!("the content stays and has its digest{others}"));
        }
        for owner in &self.held_by {
            output.note(format!("{} holds the content", plain(owner)));
        }
        Ok(())
    }
}

/// The repository and the tag or digest of an image.
fn parts(image: &str) -> Result<(&str, &str), CliError> {
    let parts = match image.split_once('@') {
        Some((name, digest)) => Some((name, digest)).filter(|(_, digest)| digest.contains(':')),
        None => image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')),
    };
    parts
        .filter(|(name, reference)| !name.is_empty() && !reference.is_empty())
        .ok_or_else(|| CliError::Usage("give REPOSITORY:TAG or REPOSITORY@DIGEST".to_owned()))
}

fn immutable(tag: &Value) -> &'static str {
    if tag["immutable"] == json!(true) { "immutable" } else { "" }
}

fn holders(tag: &Value) -> Vec<String> {
    list(tag, "held_by").map(|owner| text(owner, "")).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_repository_with_a_tag_or_a_digest() {
        for (image, wanted) in [
            ("os/debian:13", ("os/debian", "13")),
            ("os/debian@sha256:ab", ("os/debian", "sha256:ab")),
            ("debian:v1.2", ("debian", "v1.2")),
        ] {
            assert_eq!(parts(image).unwrap(), wanted);
        }
        for wrong in ["os/debian", "os:5000/debian", "os/debian:", "os/debian@13", "@sha256:ab", ":1", ""] {
            assert!(matches!(parts(wrong), Err(CliError::Usage(_))), "{wrong}");
        }
    }

    fn debian() -> Value {
        json!({
            "tags": [
                { "tag": "13", "digest": "sha256:aa", "bytes": 7, "immutable": false, "held_by": [] },
                { "tag": "latest", "digest": "sha256:aa", "bytes": 7, "immutable": false, "held_by": [] },
                { "tag": "v1", "digest": "sha256:bb", "bytes": 8, "immutable": true, "held_by": [] },
                { "tag": "used", "digest": "sha256:cc", "bytes": 9, "immutable": false, "held_by": ["job J"] },
            ],
            "held": [{ "digest": "sha256:dd", "owner": "job K" }],
        })
    }

    fn of(reference: &str) -> Result<Gone, CliError> {
        Gone::of(&debian(), "os/debian", reference)
    }

    #[test]
    fn a_glob_names_the_tags_like_it_that_can_be_deleted() {
        let like = |glob: &str| like(&debian(), "os/debian", glob);
        assert_eq!(like("*").unwrap(), ["13", "latest", "used"], "never the immutable one");
        assert_eq!(like("1?").unwrap(), ["13"]);
        assert_eq!(like("13").unwrap(), ["13"]);
        assert_eq!(like("sha256:aa").unwrap(), ["sha256:aa"]);
        let none = like("v*").unwrap_err();
        assert!(none.to_string().contains("no tag like v* that can be deleted"), "{none}");
    }

    #[test]
    fn a_tag_goes_alone_and_a_manifest_with_its_tags() {
        let tag = of("13").unwrap();
        assert_eq!((tag.tags, tag.others), (vec!["13".to_owned()], vec!["latest".to_owned()]));
        let manifest = of("sha256:aa").unwrap();
        assert_eq!(manifest.tags, ["13", "latest"]);
        // Its content stays, and its holders too.
        assert_eq!(of("used").unwrap().held_by, ["job J"]);
        assert!(of("sha256:ee").unwrap().tags.is_empty(), "a manifest without a tag");
    }

    #[test]
    fn what_is_kept_is_refused_with_its_reason() {
        for (reference, reason) in [
            ("v1", "immutable"),
            ("sha256:bb", "immutable"),
            ("sha256:cc", "held by job J"),
            ("sha256:dd", "held by job K"),
            ("none", "has no tag none"),
        ] {
            let error = of(reference).unwrap_err().to_string();
            assert!(error.contains(reason), "{reference}: {error}");
        }
    }
}
