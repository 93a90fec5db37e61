//! Filters of lists on the command line: terms as arguments, selectors of labels, states and serial numbers as options.
//!
//! ```text
//!  shoal job list condition:waiting site=a --not step:webhook.wait      shoal server list -l site=a,rack!=7 --state free
//!       every part is one term of `model::filter`; they are sent as one text, which the controller reads by its clock
//! ```
//!
//! Invariant: a mistyped filter is refused here, with the place and what was meant, and nothing is sent.

use clap::Args;

use super::error::CliError;
use model::{Clock, Filter, FilterError, Subject, SystemClock};

/// The filter of a list or of a command for many.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct FilterArgs {
    /// What must hold: KEY:VALUE (such as condition:waiting or since:2h), LABEL=VALUE, LABEL!=VALUE, or a text
    #[arg(value_name = "FILTER")]
    terms: Vec<String>,
    #[command(flatten)]
    options: FilterOptions,
}

/// The filter of a command that has other arguments: options only.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct FilterOptions {
    /// What must not hold, in the form of FILTER; may be repeated
    #[arg(long = "not", value_name = "FILTER")]
    negated: Vec<String>,
    /// Labels of the server, or of the job: KEY=VALUE, KEY!=VALUE, KEY or !KEY, with commas between; all must hold
    #[arg(long = "label", short = 'l', value_name = "SELECTOR")]
    labels: Vec<String>,
    /// The condition of a job (waiting, held, …), or the state of a server (free, busy, maintenance, restored, pending-cleanup, unseen)
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// The serial number of the server; * stands for any characters, ? for one
    #[arg(long, value_name = "GLOB")]
    serial_glob: Option<String>,
}

impl FilterArgs {
    /// The text of the filter; empty without one.
    pub(super) fn text(&self, subject: Subject) -> Result<String, CliError> {
        self.options.text_with(subject, &self.terms)
    }
}

impl FilterOptions {
    /// Whether there is a filter.
    pub(super) fn is_given(&self) -> bool {
        !self.negated.is_empty()
            || !self.labels.is_empty()
            || self.state.is_some()
            || self.serial_glob.is_some()
    }

    /// The text of the filter; empty without one.
    pub(super) fn text(&self, subject: Subject) -> Result<String, CliError> {
        self.text_with(subject, &[])
    }

    /// The options of a command whose `--label` and `--not` mean something else.
    pub(super) fn of_servers(state: Option<String>, serial_glob: Option<String>) -> Self {
        Self { state, serial_glob, ..Self::default() }
    }

    /// The text of a filter of these terms and the options; empty without one.
    pub(super) fn text_with(&self, subject: Subject, terms: &[String]) -> Result<String, CliError> {
        let now = SystemClock.now();
        let mut parts = Vec::new();
        for term in &self.negated {
            let terms = Filter::parse(subject, term, now).map_err(|errors| refused(&errors))?;
            // A minus before several negates the first only, and would select what was to be left out.
            if terms.terms().len() > 1 || term.trim_start().starts_with('-') {
                let why = format!(
                    "--not takes one term without a minus, and {term:?} is another filter; give --not for each term"
                );
                return Err(CliError::Usage(why));
            }
        }
        let negated = self.negated.iter().map(|term| format!("-{}", term.trim()));
        for term in terms.iter().cloned().chain(negated) {
            if term.trim().is_empty() {
                let why =
                    "an empty filter would select everything; leave it out, or give a term such as site=a";
                return Err(CliError::Usage(why.to_owned()));
            }
            Filter::parse(subject, &term, now).map_err(|errors| refused(&errors))?;
            parts.push(term);
        }
        for selector in &self.labels {
            let filter = Filter::selector(selector).map_err(|error| refused(&[error]))?;
            parts.push(filter.to_string());
        }
        let state = if subject == Subject::Jobs { "condition" } else { "state" };
        for (key, value) in [(state, &self.state), ("serial", &self.serial_glob)] {
            let Some(value) = value else { continue };
            let term = format!("{key}:{value}");
            let filter = Filter::parse(subject, &term, now).map_err(|errors| refused(&errors))?;
            parts.push(filter.to_string());
        }
        let text = parts.join(" ");
        // Each part alone was read; together they may be too many.
        Filter::parse(subject, &text, now).map_err(|errors| refused(&errors))?;
        Ok(text)
    }
}

fn refused(errors: &[FilterError]) -> CliError {
    let lines: Vec<String> = errors.iter().map(FilterError::to_string).collect();
    CliError::Usage(lines.join("\n"))
}

/// Parses a label that a command gives.
///
/// # Errors
/// When the text is not `KEY=VALUE`.
pub fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("give KEY=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(terms: &[&str], labels: &[&str]) -> FilterArgs {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        let options = FilterOptions { labels: texts(labels), ..FilterOptions::default() };
        FilterArgs { terms: texts(terms), options }
    }

    #[test]
    fn every_part_is_a_term_of_one_filter() {
        let mut all = args(&["condition:waiting", "since:2h"], &["site=a,rack!=7"]);
        all.options.negated.push("step:a".to_owned());
        all.options.serial_glob = Some("SH-*".to_owned());
        all.options.state = Some("held".to_owned());
        assert_eq!(
            all.text(Subject::Jobs).unwrap(),
            "condition:waiting since:2h -step:a label:site=a -label:rack=7 condition:held serial:SH-*"
        );
        assert_eq!(args(&[], &[]).text(Subject::Servers).unwrap(), "");
        assert!(all.text(Subject::Servers).is_err(), "a server is in no condition `held`");
    }

    #[test]
    fn not_takes_one_term_because_a_minus_negates_the_first_only() {
        for wrong in ["site=a site=b", "-site=a", "site=a,b -rack=7"] {
            let mut all = args(&["state:held"], &[]);
            all.terms.clear();
            all.options.negated.push(wrong.to_owned());
            let refused = all.text(Subject::Jobs).unwrap_err().to_string();
            assert!(refused.contains("--not"), "{wrong}: {refused}");
        }
        let mut each = args(&[], &[]);
        each.options.negated.extend(["site=a".to_owned(), " site=b ".to_owned()]);
        assert_eq!(each.text(Subject::Jobs).unwrap(), "-site=a -site=b");
    }

    #[test]
    fn a_mistyped_filter_says_what_was_meant() {
        let Err(CliError::Usage(text)) = args(&["conditon:held"], &[]).text(Subject::Jobs) else { panic!() };
        assert!(text.contains("did you mean condition?"), "{text}");
        assert!(args(&[], &["=x"]).text(Subject::Jobs).is_err());
    }

    #[test]
    fn an_empty_filter_is_refused_in_every_form() {
        for term in ["", " ", "\"\"", "-\"\"", "\" \""] {
            let Err(CliError::Usage(_)) = args(&[term], &[]).text(Subject::Servers) else {
                panic!("{term:?}")
            };
        }
        let mut options = FilterOptions { negated: vec![String::new()], ..FilterOptions::default() };
        assert!(options.text(Subject::Servers).is_err());
        options = FilterOptions::of_servers(Some(String::new()), None);
        assert!(options.text(Subject::Servers).is_err());
        options = FilterOptions::of_servers(None, Some(String::new()));
        assert!(options.text(Subject::Servers).is_err());
        assert!(args(&[], &[""]).text(Subject::Servers).is_err());
    }
}
