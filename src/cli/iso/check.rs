//! `shoal iso check`.

use std::path::PathBuf;

use clap::Args;
use iso9660::{CheckOptions, Severity};
use serde_json::{Value, json};

use client::error::CliError;
use client::output::{Output, counted, plain};
use client::progress::{Direction, ProcessProgress};

/// Arguments of `shoal iso check`.
#[derive(Args, Debug)]
pub(in crate::cli) struct CheckArgs {
    /// The image
    image: PathBuf,
    /// Also end with 1 on warnings
    #[arg(long)]
    strict: bool,
}

impl CheckArgs {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        let source = super::source(&self.image)?;
        let progress =
            ProcessProgress::new(format!("checking {}", self.image.display()), Direction::Read, None);
        let checked = progress.during(&mut *output.err, || iso9660::check(&source, &CheckOptions::default()));
        let report = checked.map_err(|error| super::failed(&error))?;
        let (errors, warnings) = (report.count(Severity::Error), report.count(Severity::Warning));
        if output.json {
            let findings: Vec<Value> = report
                .findings()
                .iter()
                .map(|finding| {
                    json!({
                        "offset": finding.offset, "severity": finding.severity().to_string(),
                        "rule": finding.rule.code(), "section": finding.rule.section(), "message": finding.message,
                    })
                })
                .collect();
            output.document(&json!({
                "image": self.image, "errors": errors, "warnings": warnings,
                "notes": report.count(Severity::Note), "omitted": report.omitted(), "findings": findings,
            }))?;
        } else {
            for line in report.to_string().lines() {
                output.line(plain(line))?;
            }
        }
        if errors > 0 || (self.strict && warnings > 0) {
            return Err(CliError::failed(format!(
                "{} breaks rules: {}, {}",
                self.image.display(),
                counted(errors, "error", "errors"),
                counted(warnings, "warning", "warnings")
            )));
        }
        Ok(())
    }
}
