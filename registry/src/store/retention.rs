//! Retention: the tags that stay.
//!
//! ```text
//!  tag ─> the first rule whose patterns match ─> none: stays
//!                                               among its `newest`: stays
//!                                               pushed within `younger_than`: stays
//!                                               names pinned content, or is immutable: stays
//!                                               otherwise: the tag is removed; garbage collection removes its content
//! ```
//!
//! Only tags are removed: a tag that is pushed again meanwhile stays, and a manifest that loses its last tag is
//! untagged, which garbage collection removes after the grace period if requested. Tags in which older clients keep
//! signatures and the like (`sha256-<hex>`) are removed when their subject is gone, never before.
//!
//! A push is as old as the wall clock says, which may have been wrong: by as much as the clock was set forward since the store
//! was opened, tags stay longer. A time in the future counts as now, and is set to now once, in the order of the pushes.
//! A repository with pinned content that cannot be read is skipped.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use super::locks::Key;
use super::manifests::read_record;
use super::tags::TIME_STEP;
use super::{Store, disk};
use crate::digest::Digest;
use crate::error::Error;
use crate::name::{RepositoryName, Tag};
use crate::pattern::{RepositoryPattern, TagPattern};

/// A rule about the tags of some repositories. The tags it does not keep are removed; of several rules the first that
/// matches a tag decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionRule {
    /// The repositories.
    pub repositories: RepositoryPattern,
    /// The tags the rule decides on.
    pub tags: TagPattern,
    /// The number of these tags, pushed last, that stay in each repository.
    pub newest: usize,
    /// Tags pushed within this time stay as well.
    pub younger_than: Duration,
}

/// A tag that was removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpiredTag {
    /// The repository.
    pub repository: RepositoryName,
    /// The tag.
    pub tag: Tag,
    /// The digest of the manifest that the tag named.
    pub digest: Digest,
}

/// A time that is later than now by less is that of a push under way.
const CLOCK_PRECISION: Duration = Duration::from_secs(60);

struct Candidate {
    tag: Tag,
    digest: Digest,
    pushed: SystemTime,
}

impl Store {
    /// Removes the tags that `rules` do not keep at the time `now`.
    pub(crate) fn retain(
        &self,
        rules: &[RetentionRule],
        now: SystemTime,
        dry_run: bool,
    ) -> Result<Vec<ExpiredTag>, Error> {
        self.expect_writable()?;
        let mut expired = Vec::new();
        for name in self.repositories() {
            let rules: Vec<&RetentionRule> =
                rules.iter().filter(|rule| rule.repositories.matches(&name)).collect();
            if rules.is_empty() {
                continue;
            }
            if !dry_run {
                self.correct_times(&name, now)?;
            }
            let gone = self.expired(&name, &rules, now).and_then(|gone| match dry_run {
                true => Ok(gone),
                false => self.remove_expired(&name, gone),
            });
            let gone = match gone {
                Err(error @ (Error::Corrupted(_) | Error::ManifestUnknown)) => {
                    tracing::warn!(
                        repository = %name, error = &error as &dyn std::error::Error,
                        "a repository with pinned content that cannot be read is skipped by retention; push its images again"
                    );
                    continue;
                }
                other => other?,
            };
            expired.extend(gone.into_iter().map(|candidate| ExpiredTag {
                repository: name.clone(),
                tag: candidate.tag,
                digest: candidate.digest,
            }));
        }
        expired.sort();
        Ok(expired)
    }

    /// Sets the times of tags that are in the future to `now`, in the order of the pushes.
    fn correct_times(&self, name: &RepositoryName, now: SystemTime) -> Result<(), Error> {
        let limit = now + CLOCK_PRECISION;
        let Some(references) = self.references(name) else { return Ok(()) };
        if self.newest_tag(name)?.is_none_or(|newest| newest <= limit) {
            return Ok(());
        }
        let _exclusive = references.exclusive();
        let directory = self.tags_directory(name);
        let mut ahead = Vec::new();
        for file in disk::names(&directory)? {
            let path = directory.join(file?);
            let time = path.metadata().and_then(|found| found.modified());
            ahead.push((time.map_err(Error::io("read the age of", &path))?, path));
        }
        ahead.retain(|(time, _)| *time > now);
        // Like retention itself: the newest first.
        ahead.sort_by(|one, other| other.cmp(one));
        tracing::warn!(
            repository = %name, tags = ahead.len(),
            "tags were pushed at times that are in the future; they count as pushed now: check the clock of this machine"
        );
        let mut time = now;
        for (_, path) in &ahead {
            self.disk.set_time(path, time)?;
            time -= TIME_STEP;
        }
        *references.newest_tag.lock() = Some(now);
        Ok(())
    }

    fn expired(
        &self,
        name: &RepositoryName,
        rules: &[&RetentionRule],
        now: SystemTime,
    ) -> Result<Vec<Candidate>, Error> {
        let mut by_rule: HashMap<usize, Vec<Candidate>> = HashMap::new();
        for file in disk::names(&self.tags_directory(name))? {
            let Ok(tag) = file?.parse::<Tag>() else { continue };
            if self.has_subject(name, &tag)? {
                continue;
            }
            if let Some(rule) = rules.iter().position(|rule| rule.tags.matches(&tag))
                && let Some(candidate) = self.candidate(name, tag)?
            {
                by_rule.entry(rule).or_default().push(candidate);
            }
        }
        let pinned = self.pinned(name)?;
        let mut expired = Vec::new();
        for (rule, mut candidates) in by_rule {
            let rule = rules[rule];
            // Without a time in the rule the age does not matter.
            let jump = if rule.younger_than.is_zero() { Duration::ZERO } else { self.touches.clock_jump() };
            // The youngest first; of tags pushed at the same time the one later in the alphabet.
            candidates.sort_by(|one, other| (other.pushed, &other.tag).cmp(&(one.pushed, &one.tag)));
            expired.extend(candidates.into_iter().skip(rule.newest).filter(|candidate| {
                let age = now.duration_since(candidate.pushed).unwrap_or_default();
                age >= rule.younger_than.saturating_add(jump)
                    && !pinned.contains(&Key::of(&candidate.digest))
                    && !self.is_immutable(name, &candidate.tag)
            }));
        }
        Ok(expired)
    }

    fn remove_expired(
        &self,
        name: &RepositoryName,
        candidates: Vec<Candidate>,
    ) -> Result<Vec<Candidate>, Error> {
        let Some(references) = self.references(name) else { return Ok(Vec::new()) };
        let mut removed = Vec::new();
        {
            let _exclusive = references.exclusive();
            let pinned = self.pinned(name)?;
            for candidate in candidates {
                let again = self.candidate(name, candidate.tag.clone())?;
                let same = again.is_some_and(|again| {
                    again.pushed == candidate.pushed && again.digest == candidate.digest
                });
                if same && !pinned.contains(&Key::of(&candidate.digest)) {
                    let _changing = references.changes.begin();
                    self.disk.remove(&self.tag_record(name, &candidate.tag))?;
                    removed.push(candidate);
                }
            }
            self.changed(name);
        }
        self.disk.sync_directory(&self.tags_directory(name))?;
        Ok(removed)
    }

    fn candidate(&self, name: &RepositoryName, tag: Tag) -> Result<Option<Candidate>, Error> {
        let path = self.tag_record(name, &tag);
        let (Some(record), Ok(metadata)) = (read_record(&path)?, path.metadata()) else { return Ok(None) };
        let pushed = metadata.modified().map_err(Error::io("read the age of", &path))?;
        Ok(Some(Candidate { tag, digest: record.digest, pushed }))
    }

    /// Whether a tag is made of the digest of a manifest that exists.
    fn has_subject(&self, name: &RepositoryName, tag: &Tag) -> Result<bool, Error> {
        let parts = tag.as_str().split_once('-');
        let Some((algorithm, rest)) = parts else { return Ok(false) };
        // Signatures are kept under `sha256-<hex>.sig` and the like.
        let hex = rest.split('.').next().unwrap_or_default();
        match format!("{algorithm}:{hex}").parse::<Digest>() {
            Ok(digest) => self.has_manifest(name, &digest),
            Err(_) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::faults::script::{IMAGE, image, push, put};
    use super::super::faults::{directory, open};
    use super::*;
    use crate::digest::Algorithm;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Tags and how many days ago each was pushed.
    fn filled(store: &Arc<Store>, name: &RepositoryName, tags: &[(&str, u32)], now: SystemTime) {
        let config = Digest::of(Algorithm::Sha256, b"{}");
        push(store, name, &config, &[b"{}"]).unwrap();
        for (tag, days) in tags {
            let tag: Tag = tag.parse().unwrap();
            put(store, name, std::slice::from_ref(&tag), &image(b"{}", &[], tag.as_str()), IMAGE).unwrap();
            let file = std::fs::File::open(store.tag_record(name, &tag)).unwrap();
            file.set_modified(now - *days * DAY).unwrap();
        }
    }

    fn rule(tags: &str, newest: usize, days: u32) -> RetentionRule {
        RetentionRule {
            repositories: RepositoryPattern::all(),
            tags: tags.parse().unwrap(),
            newest,
            younger_than: days * DAY,
        }
    }

    #[test]
    fn the_first_matching_rule_decides_and_unmatched_tags_stay() {
        let root = directory();
        let store = open(root.path(), None).unwrap();
        let name: RepositoryName = "a".parse().unwrap();
        let now = SystemTime::now();
        let tags = [
            ("nightly-1", 30),
            ("nightly-2", 20),
            ("nightly-3", 2),
            ("nightly-4", 1),
            ("v1", 400),
            ("test", 9),
            ("nightly-keep", 500),
        ];
        filled(&store, &name, &tags, now);
        let pinned = Digest::of(Algorithm::Sha256, &image(b"{}", &[], "nightly-1"));
        store.pin(&name, &pinned, &"job".parse().unwrap(), now).unwrap();
        let signature = format!("sha256-{}.sig", pinned.hex());
        filled(&store, &name, &[(signature.as_str(), 300)], now);

        let rules =
            [rule("*-keep", 10, 0), rule("nightly-*", 1, 2), rule("t*t", 0, 0), rule("sha256-*", 0, 0)];
        let expected = ["nightly-2", "nightly-3", "test"];
        let dry: Vec<ExpiredTag> = store.retain(&rules, now, true).unwrap();
        assert_eq!(dry.iter().map(|expired| expired.tag.as_str()).collect::<Vec<_>>(), expected);
        assert_eq!(store.retain(&rules, now, false).unwrap(), dry);
        let left = store.tags(&name, None, 100).unwrap().tags;
        let left: Vec<&str> = left.iter().map(Tag::as_str).collect();
        assert_eq!(left, ["nightly-1", "nightly-4", "nightly-keep", &signature, "v1"]);
        assert_eq!(store.retain(&rules, now, false).unwrap(), []);
    }

    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

    /// Sets the time of each tag.
    fn set_times(store: &Store, name: &RepositoryName, tags: &[&str], time: SystemTime) {
        for (number, tag) in (0..).zip(tags) {
            let record = store.tag_record(name, &tag.parse().unwrap());
            std::fs::File::open(record).unwrap().set_modified(time + number * TIME_STEP).unwrap();
        }
    }

    fn names(expired: &[ExpiredTag]) -> Vec<&str> {
        expired.iter().map(|expired| expired.tag.as_str()).collect()
    }

    #[test]
    fn tags_of_a_clock_that_was_ahead_do_not_displace_later_pushes() {
        let root = directory();
        let name: RepositoryName = "a".parse().unwrap();
        let five = ["v1", "v5", "v3", "v2", "v4"];
        let now = SystemTime::now();
        {
            let store = open(root.path(), None).unwrap();
            filled(&store, &name, &five.map(|tag| (tag, 0)), now);
            set_times(&store, &name, &five, now + YEAR);
        }
        let store = open(root.path(), None).unwrap();
        let push_one = |tag: &str| {
            let tag: Tag = tag.parse().unwrap();
            put(&store, &name, std::slice::from_ref(&tag), &image(b"{}", &[], tag.as_str()), IMAGE).unwrap();
        };
        push_one("a-sixth");
        let rules = [rule("*", 5, 0)];
        assert_eq!(names(&store.retain(&rules, now, true).unwrap()), ["v1"]);
        assert_eq!(names(&store.retain(&rules, now, false).unwrap()), ["v1"]);
        assert_eq!(store.newest_tag(&name).unwrap(), Some(now), "the times are corrected");
        push_one("a-seventh");
        assert!(store.newest_tag(&name).unwrap().unwrap() < now + CLOCK_PRECISION);
        assert_eq!(names(&store.retain(&rules, SystemTime::now(), false).unwrap()), ["v5"]);
        // A corrected tag ages from now on.
        let rules = [rule("*", 0, 14)];
        assert_eq!(store.retain(&rules, now + 13 * DAY, false).unwrap(), []);
        assert_eq!(store.retain(&rules, now + 15 * DAY, false).unwrap().len(), 5);
    }

    #[test]
    fn tags_of_a_clock_that_was_behind_stay_after_it_was_set_forward() {
        let root = directory();
        let mut store = open(root.path(), None).unwrap();
        let name: RepositoryName = "a".parse().unwrap();
        let now = SystemTime::now();
        filled(&store, &name, &[("older", 0), ("last", 0)], now);
        set_times(&store, &name, &["older", "last"], now - 2 * YEAR);
        let rules = [rule("*", 0, 14)];
        assert_eq!(store.retain(&rules, now, true).unwrap().len(), 2);
        Arc::get_mut(&mut store).unwrap().touches.set_clock_forward(2 * YEAR);
        assert_eq!(store.retain(&rules, now, false).unwrap(), []);
        // A number of tags stays a number.
        assert_eq!(names(&store.retain(&[rule("*", 1, 0)], now, false).unwrap()), ["older"]);
    }

    #[test]
    fn a_repository_with_damaged_pinned_content_is_skipped_and_the_others_are_not() {
        let root = directory();
        let store = open(root.path(), None).unwrap();
        let repositories = ["a", "b", "c"].map(|name| name.parse::<RepositoryName>().unwrap());
        let now = SystemTime::now();
        for name in &repositories {
            filled(&store, name, &[("old", 30), ("new", 0)], now);
        }
        let (old, owner) = (image(b"{}", &[], "old"), "job".parse().unwrap());
        let pinned = Digest::of(Algorithm::Sha256, &old);
        let own = image(b"{}", &[], "pinned");
        put(&store, &repositories[1], &["pinned".parse().unwrap()], &own, IMAGE).unwrap();
        let own = Digest::of(Algorithm::Sha256, &own);
        store.pin(&repositories[1], &own, &owner, now).unwrap();
        store.pin(&repositories[2], &pinned, &owner, now).unwrap();
        for damage in [true, false] {
            let path = store.content(&own);
            std::fs::remove_file(&path).unwrap();
            if damage {
                std::fs::write(&path, b"damaged").unwrap();
            }
            let expired = store.retain(&[rule("old", 0, 7)], now, true).unwrap();
            assert_eq!(expired.len(), 1);
            assert_eq!(expired[0].repository, repositories[0]);
            std::fs::write(&path, b"damaged").unwrap();
        }
        let expired = store.retain(&[rule("*", 0, 7)], now, false).unwrap();
        assert_eq!((names(&expired), expired[0].repository.as_str()), (vec!["old"], "a"));
        assert_eq!(store.tags(&repositories[1], None, 10).unwrap().tags.len(), 3);
    }
}
