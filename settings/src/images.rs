//! Structured settings of the registry: lists of patterns, and the file of access rules.
//!
//! ```text
//! FETCH_ALLOW_CIDRS        127.0.0.0/8, ::1/128
//! REGISTRY_IMMUTABLE_TAGS  os-images/**:v*, tools/*:release-*
//! REGISTRY_SPARSE_IMAGES   mirror/**, tools/thin
//! REGISTRY_QUOTAS          os-images/**=500GiB, tools/**=20GiB
//! REGISTRY_RETENTION       nightly/**:* newest=5 younger=14d, tools/*:dev-* newest=3
//! REGISTRY_ACCESS_FILE     # repositories  subjects            rights          one rule per line; # starts a comment
//!                          os-images/**    group:admin,user:ci read,create
//!                          os-images/**    authenticated       read
//! ```

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use registry::{ImmutableTags, PolicyRule, Quota, RepositoryPattern, RetentionRule, TagPattern};

use super::definition::SettingKind;
use super::values::{self, InvalidValue, MAX_VALUE_BYTES};

/// The maximum size of the file of access rules.
const MAX_RULES_BYTES: u64 = 1 << 20;
/// The maximum number of reported problems of this file.
const MAX_PROBLEMS: usize = 20;

pub(super) fn immutable_tags(_: SettingKind, text: &str) -> Result<Vec<ImmutableTags>, InvalidValue> {
    let form = "repositories:tags, such as os-images/**:v*, separated by commas";
    entries(text, form, |entry| entry.parse().ok())
}

pub(super) fn repositories(_: SettingKind, text: &str) -> Result<Vec<RepositoryPattern>, InvalidValue> {
    let form = "repositories, such as mirror/**, separated by commas";
    entries(text, form, |entry| entry.parse().ok())
}

pub(super) fn cidrs(_: SettingKind, text: &str) -> Result<Vec<IpNet>, InvalidValue> {
    let form = "ADDRESS/BITS, such as 127.0.0.0/8, separated by commas";
    entries(text, form, |entry| entry.parse().ok())
}

pub(super) fn quotas(_: SettingKind, text: &str) -> Result<Vec<Quota>, InvalidValue> {
    let form = "repositories=SIZE, such as os-images/**=500GiB, separated by commas";
    entries(text, form, |entry| {
        let (repositories, size) = entry.split_once('=')?;
        let bytes = values::size(SettingKind::Size { min: 0, max: u64::MAX }, size.trim()).ok()?;
        Some(Quota { repositories: repositories.trim().parse().ok()?, bytes })
    })
}

pub(super) fn retention(_: SettingKind, text: &str) -> Result<Vec<RetentionRule>, InvalidValue> {
    let form = "repositories:tags with newest=N, younger=DURATION or both, such as nightly/**:* newest=5 younger=14d, \
                separated by commas";
    entries(text, form, retention_rule)
}

/// Parses a retention rule. A rule must have `newest` or `younger`, because a rule without both would remove every matching
/// tag; `newest=0` says that explicitly.
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
            ("younger", time) if younger.is_none() => younger = Some(values::parse_duration(time)?),
            _ => return None,
        }
    }
    if newest.is_none() && younger.is_none() {
        return None;
    }
    let younger_than = younger.unwrap_or(Duration::ZERO);
    Some(RetentionRule { repositories, tags, newest: newest.unwrap_or(0), younger_than })
}

fn entries<T>(text: &str, form: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, InvalidValue> {
    let refusal = || InvalidValue::give(format!("entries of the form {form}"));
    if text.len() > MAX_VALUE_BYTES {
        return Err(refusal());
    }
    text.split(',').map(|entry| read(entry.trim()).ok_or_else(refusal)).collect()
}

/// Reads the rules of `REGISTRY_ACCESS_FILE`.
///
/// # Errors
/// A message with the line number for each line that is not a rule, or a message that the file cannot be read.
pub fn read_rules(path: &Path) -> Result<Vec<PolicyRule>, Vec<String>> {
    let failed = |why: String| vec![format!("{}: {why}; give a file with one rule per line", path.display())];
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
        match line.parse::<PolicyRule>() {
            Ok(rule) => rules.push(rule),
            Err(error) if problems.len() < MAX_PROBLEMS => {
                problems.push(format!("{}:{}: {error}", path.display(), number + 1));
            }
            Err(_) => {}
        }
    }
    if problems.is_empty() { Ok(rules) } else { Err(problems) }
}
