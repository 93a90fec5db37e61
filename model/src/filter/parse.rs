//! The parser of filters: from a text to its terms. Every error names the place of the term and what is meant.

use std::fmt;
use std::time::Duration;

use strsim::osa_distance;

use super::{
    Filter, LabelTest, MAX_FILTER_BYTES, MAX_TERMS, MAX_VALUES, OPEN_FAILURE, ServerState, Subject, Term,
    Test,
};
use crate::{Condition, JobStatus, Outcome, Time};

/// The longest value, in characters, that is compared with known names or repeated in an error.
const SHOWN_CHARS: usize = 64;
/// The maximum of errors of one filter.
const MAX_ERRORS: usize = 8;

/// The reason why a term of a filter was refused, with its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FilterError {
    /// The number of characters of the filter before the refused term.
    pub at: usize,
    /// The refused term, cut to 64 characters.
    pub term: String,
    /// Whether a key or name is not known, as opposed to a value that cannot be read.
    pub unknown: bool,
    /// The problem, the possible values, and the one that was probably meant.
    pub message: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.term.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{} at character {}: {}", self.term, self.at + 1, self.message)
    }
}

impl FilterError {
    pub(super) fn too_many_terms() -> Self {
        let message = format!("a filter has at most {MAX_TERMS} terms");
        Self { at: 0, term: String::new(), unknown: false, message }
    }
}

/// The reason why a term was refused, without its place.
struct Refusal {
    unknown: bool,
    message: String,
}

impl Refusal {
    fn value(message: impl Into<String>) -> Self {
        Self { unknown: false, message: message.into() }
    }

    /// A name that is not known, with the nearest known one.
    fn unknown(what: &str, name: &str, known: &[&str]) -> Self {
        let meant = nearest(name, known).map_or(String::new(), |meant| format!("did you mean {meant}? "));
        Self { unknown: true, message: format!("{meant}{what} is one of {}", known.join(", ")) }
    }
}

impl Filter {
    /// Parses a filter. Ages such as `2h` count from `now`.
    ///
    /// # Errors
    /// Every refused term, at most eight.
    pub fn parse(subject: Subject, text: &str, now: Time) -> Result<Self, Vec<FilterError>> {
        if text.len() > MAX_FILTER_BYTES {
            let message = format!("a filter has at most {MAX_FILTER_BYTES} bytes");
            return Err(vec![FilterError { at: 0, term: String::new(), unknown: false, message }]);
        }
        let (mut terms, mut errors) = (Vec::new(), Vec::new());
        let mut rest = text;
        loop {
            rest = rest.trim_start();
            if rest.is_empty() || errors.len() >= MAX_ERRORS {
                break;
            }
            let at = text.chars().count() - rest.chars().count();
            let end = end_of_term(rest);
            let (word, after) = rest.split_at(end);
            rest = after;
            match term(subject, word, now) {
                Ok(_) if terms.len() >= MAX_TERMS => return Err(vec![FilterError::too_many_terms()]),
                Ok(term) => terms.push(term),
                Err(Refusal { unknown, message }) => {
                    errors.push(FilterError { at, term: shown(word), unknown, message });
                }
            }
        }
        if errors.is_empty() { Ok(Self { terms }) } else { Err(errors) }
    }

    /// The filter of one key with its value as a query parameter gives it: the value is taken whole, without quotation marks.
    /// `text` is the key of a text.
    ///
    /// # Errors
    /// When the subject has no such key or the value is refused.
    pub fn of_value(subject: Subject, key: &str, value: &str, now: Time) -> Result<Self, FilterError> {
        let refused = |Refusal { unknown, message }: Refusal| FilterError {
            at: 0,
            term: String::new(),
            unknown,
            message,
        };
        if value.len() > MAX_FILTER_BYTES {
            return Err(refused(Refusal::value(format!("a value has at most {MAX_FILTER_BYTES} bytes"))));
        }
        let labelled_value = value.split_once('=').filter(|_| key == "label");
        let negated_label = labelled_value.and_then(|(label, value)| Some((label.strip_suffix('!')?, value)));
        let term = match (key, negated_label) {
            ("text", _) => Ok(Term { negated: false, test: Test::Text(value.to_owned()) }),
            (_, Some((label, value))) => labelled(label, value).map(|test| Term { negated: true, test }),
            _ => test(subject, key, vec![value.to_owned()], now).map(|test| Term { negated: false, test }),
        };
        Ok(Self { terms: vec![term.map_err(refused)?] })
    }

    /// A selector of labels, as `-l` has it: `site=a,rack!=7,gpu,!spare`. All of its parts must hold.
    ///
    /// # Errors
    /// When a part has no key, or the form of another language: `site==a`, `site in (a,b)`.
    pub fn selector(text: &str) -> Result<Self, FilterError> {
        let mut terms = Vec::new();
        let mut at = 0;
        for part in text.split(',') {
            let (bare, without) = part.strip_prefix('!').map_or((part, false), |bare| (bare, true));
            let (key, value) = match bare.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (bare, None),
            };
            let found = match (key.strip_suffix('!'), value) {
                // A value may have any of these characters.
                _ if key.contains([' ', '(', ')']) || value.is_some_and(|value| value.starts_with('=')) => {
                    Err(Refusal::value(
                        "a selector has KEY=VALUE, KEY!=VALUE, KEY and !KEY; one of several values is a term of a filter: \
                         label:site=a,site=b",
                    ))
                }
                (Some(key), Some(value)) => labelled(key, value).map(|test| Term { negated: !without, test }),
                (None, Some(value)) => labelled(key, value).map(|test| Term { negated: without, test }),
                (_, None) => {
                    label(bare).map(|label| Term { negated: without, test: Test::Label(vec![label]) })
                }
            };
            match found {
                Ok(term) => terms.push(term),
                Err(Refusal { unknown, message }) => {
                    return Err(FilterError { at, term: shown(part), unknown, message });
                }
            }
            at += part.chars().count() + 1;
        }
        if terms.len() > MAX_TERMS { Err(FilterError::too_many_terms()) } else { Ok(Self { terms }) }
    }
}

/// The length of the term at the start of a text: to the first blank outside of quotation marks.
fn end_of_term(text: &str) -> usize {
    let (mut quoted, mut escaped) = (false, false);
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if character.is_whitespace() && !quoted => return index,
            _ => {}
        }
    }
    text.len()
}

fn term(subject: Subject, word: &str, now: Time) -> Result<Term, Refusal> {
    let (bare, minus) = match word.strip_prefix('-') {
        Some("") => return Err(Refusal::value("a minus belongs in front of a term, without a blank")),
        Some(bare) => (bare, true),
        None => (word, false),
    };
    let plain = |test| Term { negated: minus, test };
    let end_of_key = bare.find([':', '=', '"']);
    let (key, rest) = match end_of_key {
        Some(end) => bare.split_at(end),
        None => return text(bare.to_owned()).map(plain),
    };
    match rest.chars().next() {
        Some(':') => {
            let values = values(rest.get(1..).unwrap_or_default())?;
            test(subject, key, values, now).map(plain)
        }
        Some('=') => {
            let value = one_value(rest.get(1..).unwrap_or_default())?;
            match key.strip_suffix('!') {
                Some(key) => labelled(key, &value).map(|test| Term { negated: !minus, test }),
                None => labelled(key, &value).map(plain),
            }
        }
        _ => text(one_value(bare)?).map(plain),
    }
}

/// The test of a text. An empty one is in everything, so that it would select all rows.
fn text(text: String) -> Result<Test, Refusal> {
    match text.trim().is_empty() {
        true => Err(Refusal::value("a text must not be empty: it would select everything")),
        false => Ok(Test::Text(text)),
    }
}

/// The values behind a key, without their quotation marks.
fn values(text: &str) -> Result<Vec<String>, Refusal> {
    let (mut values, mut value) = (Vec::new(), String::new());
    let (mut quoted, mut escaped) = (false, false);
    for character in text.chars() {
        match character {
            _ if escaped => {
                value.push(character);
                escaped = false;
            }
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => values.push(std::mem::take(&mut value)),
            _ => value.push(character),
        }
    }
    if quoted || escaped {
        return Err(Refusal::value("the quotation mark is not closed"));
    }
    values.push(value);
    if values.len() > MAX_VALUES {
        return Err(Refusal::value(format!("a term has at most {MAX_VALUES} values")));
    }
    Ok(values)
}

/// One value in which a comma has no meaning.
fn one_value(text: &str) -> Result<String, Refusal> {
    Ok(values(text)?.join(","))
}

/// The test of a key with its values.
fn test(subject: Subject, key: &str, values: Vec<String>, now: Time) -> Result<Test, Refusal> {
    if !subject.keys().contains(&key) {
        let mut refusal = Refusal::unknown("the key", key, subject.keys());
        refusal.message.push_str("; put a text with a colon into quotation marks");
        return Err(refusal);
    }
    if values.iter().any(String::is_empty) {
        return Err(Refusal::value(format!("{key} needs a value, such as {key}:{}", example(key))));
    }
    Ok(match key {
        "condition" => {
            Test::Condition(named(key, &values, &Condition::ALL.map(Condition::as_str), Condition::parse)?)
        }
        "status" => {
            Test::Status(named(key, &values, &JobStatus::ALL.map(JobStatus::as_str), JobStatus::parse)?)
        }
        "outcome" => {
            Test::Outcome(named(key, &values, &["succeeded", "failed", "cancelled"], Outcome::parse)?)
        }
        "state" => {
            Test::State(named(key, &values, &ServerState::ALL.map(ServerState::as_str), ServerState::parse)?)
        }
        "failure" => {
            named(key, &values, &[OPEN_FAILURE], |name| (name == OPEN_FAILURE).then_some(()))?;
            Test::OpenFailure
        }
        "class" => Test::Class(values),
        "failed_step" => Test::FailedStep(values),
        "step" => Test::Step(values),
        "wait" => Test::Wait(values),
        "hold" => Test::Hold(values),
        "workflow" => Test::Workflow(values),
        "by" => Test::By(values),
        "vendor" => Test::Vendor(values),
        "serial" => Test::Serial(each(&values, |value| {
            value.parse().map_err(|why| Refusal::value(format!("{why}")))
        })?),
        "batch" => Test::Batch(each(&values, |value| {
            value.parse().map_err(|_| Refusal::value("not the id of a batch"))
        })?),
        "label" => Test::Label(each(&values, label)?),
        "since" => Test::Since(time(&values, now)?),
        _ => Test::Until(time(&values, now)?),
    })
}

fn each<T>(values: &[String], read: impl Fn(&str) -> Result<T, Refusal>) -> Result<Vec<T>, Refusal> {
    values.iter().map(|value| read(value)).collect()
}

fn named<T>(
    key: &str,
    values: &[String],
    known: &[&str],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, Refusal> {
    each(values, |value| parse(value).ok_or_else(|| Refusal::unknown(key, value, known)))
}

fn labelled(key: &str, value: &str) -> Result<Test, Refusal> {
    if key.is_empty() || key.ends_with('!') || value.starts_with('=') {
        return Err(Refusal::value("a label has a key and one `=`, such as site=north or site!=north"));
    }
    Ok(Test::Label(vec![LabelTest { key: key.to_owned(), value: Some(value.to_owned()) }]))
}

fn label(text: &str) -> Result<LabelTest, Refusal> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (text, None),
    };
    if key.is_empty() || key.ends_with('!') {
        let why = "a label is KEY=VALUE, or KEY for any value; a minus in front of the term negates it";
        return Err(Refusal::value(why));
    }
    Ok(LabelTest { key: key.to_owned(), value })
}

/// A time: RFC 3339, a date, or an age such as `90s`, `30m`, `2h`, `7d`, `4w`.
fn time(values: &[String], now: Time) -> Result<Time, Refusal> {
    let refused = || {
        Refusal::value(
            "a time is an age such as 30m, 2h or 7d, a date such as 2026-11-20, or RFC 3339 such as 2026-11-20T08:00:00Z",
        )
    };
    let [text] = values else { return Err(refused()) };
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    if let Ok(time) = format!("{text}T00:00:00Z").parse() {
        return Ok(time);
    }
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(refused)?;
    let seconds: u64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return Err(refused()),
    };
    let number: u32 = number.parse().map_err(|_| refused())?;
    Ok(now.minus(Duration::from_secs(seconds.saturating_mul(u64::from(number)))))
}

fn example(key: &str) -> &'static str {
    match key {
        "condition" => "waiting",
        "status" => "queued",
        "outcome" => "failed",
        "failure" => OPEN_FAILURE,
        "class" => "media",
        "step" | "failed_step" => "redfish.power-on",
        "wait" => "report",
        "hold" => "operator",
        "serial" => "SH-*",
        "label" => "site=north",
        "workflow" => "provision",
        "by" => "ann",
        "vendor" => "acme",
        "state" => "free",
        "since" | "until" => "2h",
        _ => "ID",
    }
}

/// The known name with the fewest differences, if they are few.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    if name.is_empty() || name.chars().count() > SHOWN_CHARS {
        return None;
    }
    let name = name.to_ascii_lowercase().replace('-', "_");
    known
        .iter()
        .map(|candidate| (osa_distance(&name, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3))
        .min()
        .map(|(_, candidate)| candidate)
}

fn shown(word: &str) -> String {
    word.chars().filter(|character| !character.is_control()).take(SHOWN_CHARS).collect()
}
