//! Settings of the registry that are more than one word: lists of patterns, and the file of rules.
//!
//! ```text
//! REGISTRY_IMMUTABLE_TAGS  os-images/**:v*, tools/*:release-*
//! REGISTRY_SPARSE_IMAGES   mirror/**, tools/thin
//! REGISTRY_QUOTAS          os-images/**=500GiB, tools/**=20GiB
//! REGISTRY_RETENTION       nightly/**:* newest=5 younger=14d, tools/*:dev-* newest=3
//! REGISTRY_ACCESS_FILE     # repositories  subjects            rights          a line; what # begins is a remark
//!                          os-images/**    group:admin,user:ci read,create
//!                          os-images/**    authenticated       read
//! ```

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use registry::{ImmutableTags, Quota, RepositoryPattern, RetentionRule, Rule, TagPattern};

use super::definition::Kind;
use super::values::{self, MAX_VALUE_BYTES, Unusable};

/// No file of rules is longer.
const MAX_RULES_BYTES: u64 = 1 << 20;
/// No more of its problems are told.
const MAX_PROBLEMS: usize = 20;

pub(super) fn immutable_tags(_: Kind, text: &str) -> Result<Vec<ImmutableTags>, Unusable> {
    let form = "repositories:tags, such as os-images/**:v*, separated by commas";
    entries(text, form, |entry| entry.parse().ok())
}

pub(super) fn repositories(_: Kind, text: &str) -> Result<Vec<RepositoryPattern>, Unusable> {
    let form = "repositories, such as mirror/**, separated by commas";
    entries(text, form, |entry| entry.parse().ok())
}

pub(super) fn quotas(_: Kind, text: &str) -> Result<Vec<Quota>, Unusable> {
    let form = "repositories=SIZE, such as os-images/**=500GiB, separated by commas";
    entries(text, form, |entry| {
        let (repositories, size) = entry.split_once('=')?;
        let bytes = values::size(Kind::Size { min: 0, max: u64::MAX }, size.trim()).ok()?;
        Some(Quota { repositories: repositories.trim().parse().ok()?, bytes })
    })
}

pub(super) fn retention(_: Kind, text: &str) -> Result<Vec<RetentionRule>, Unusable> {
    let form = "repositories:tags with newest=N, younger=DURATION or both, such as nightly/**:* newest=5 younger=14d, \
                separated by commas";
    entries(text, form, retention_rule)
}

/// What keeps nothing has to say so (`newest=0`): a rule without a word about it would remove every tag that fits.
fn retention_rule(entry: &str) -> Option<RetentionRule> {
    let mut words = entry.split_ascii_whitespace();
    let (repositories, tags) = words.next()?.split_once(':')?;
    let repositories: RepositoryPattern = repositories.parse().ok()?;
    let tags: TagPattern = tags.parse().ok()?;
    let (mut newest, mut younger) = (None, None);
    for word in words {
        match word.split_once('=')? {
            ("newest", number) if newest.is_none() => {
                newest = Some(usize::try_from(values::digits(number)?).ok()?);
            }
            ("younger", time) if younger.is_none() => younger = Some(values::length(time)?),
            _ => return None,
        }
    }
    if newest.is_none() && younger.is_none() {
        return None;
    }
    let younger_than = younger.unwrap_or(Duration::ZERO);
    Some(RetentionRule { repositories, tags, newest: newest.unwrap_or(0), younger_than })
}

fn entries<T>(text: &str, form: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Unusable> {
    let refusal = || Unusable::give(format!("entries of the form {form}"));
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal());
    }
    text.split(',').map(|entry| read(entry.trim()).ok_or_else(refusal)).collect()
}

/// Reads the rules of `REGISTRY_ACCESS_FILE`.
///
/// # Errors
/// Every line that is none, by its number, or why the file cannot be read.
pub fn read_rules(path: &Path) -> Result<Vec<Rule>, Vec<String>> {
    let failed = |why: String| vec![format!("{}: {why}; name a file with a rule a line", path.display())];
    let metadata = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if !metadata.is_file() || metadata.len() > MAX_RULES_BYTES {
        return Err(failed("not a file of at most 1 MiB".to_owned()));
    }
    let mut text = String::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    file.take(MAX_RULES_BYTES).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    let (mut rules, mut problems) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        match line.parse::<Rule>() {
            Ok(rule) => rules.push(rule),
            Err(error) if problems.len() < MAX_PROBLEMS => {
                problems.push(format!("{}:{}: {error}", path.display(), number + 1));
            }
            Err(_) => {}
        }
    }
    if problems.is_empty() { Ok(rules) } else { Err(problems) }
}
