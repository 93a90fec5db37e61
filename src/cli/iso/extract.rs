//! `shoal iso extract`.

use std::path::PathBuf;

use clap::Args;
use iso9660::{ExtractError, ExtractEvent, ExtractOptions};
use serde_json::json;

use super::TreeArgs;
use client::error::CliError;
use client::output::{Output, plain};
use client::progress::Progress;

/// The number of skipped entries that are shown; further ones are only counted.
const SHOWN: u64 = 50;

/// Arguments of `shoal iso extract`.
#[derive(Args, Debug)]
pub(in crate::cli) struct ExtractArgs {
    /// The image
    image: PathBuf,
    /// The directory or file in it
    #[arg(default_value = "/", value_parser = super::path_parser())]
    path: String,
    /// The directory to write to; it is created if needed, and existing files in it are never overwritten
    #[arg(long, short, value_name = "DIRECTORY")]
    output: PathBuf,
    #[command(flatten)]
    tree: TreeArgs,
}

impl ExtractArgs {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        let image = self.tree.open(&self.image, output)?;
        let mut progress = Progress::new(format!("extracting {}", self.image.display()), None);
        let mut shown = 0;
        let done = image.extract(&self.path, &self.output, &ExtractOptions::default(), |event| match event {
            ExtractEvent::Progress { done, total } => {
                progress.of(Some(total)).report(done, &mut *output.err);
            }
            ExtractEvent::Skipped { path, reason } => {
                shown += 1;
                if shown <= SHOWN {
                    output.note(format!("skipped {}: {}", plain(path), plain(&reason.to_string())));
                }
            }
            _ => {}
        });
        progress.end(&mut *output.err);
        let done = done.map_err(|error| match error {
            ExtractError::Read(error) => self.tree.failed(&image, &error),
            error => CliError::failed(plain(&error.to_string())),
        })?;
        if shown > SHOWN {
            output.note(format!("and {} more entries were skipped", shown - SHOWN));
        }
        if output.json {
            output.document(&json!({
                "directory": self.output, "files": done.files, "directories": done.directories, "links": done.links,
                "bytes": done.bytes, "skipped": done.skipped + done.missing, "missing": done.missing,
            }))?;
        } else {
            output.line(format!(
                "{}: {} files, {} directories, {} links, {} bytes",
                self.output.display(),
                done.files,
                done.directories,
                done.links,
                done.bytes
            ))?;
        }
        if done.missing == 0 {
            return Ok(());
        }
        Err(CliError::failed(format!(
            "{} entries of {} were not extracted, everything else was; the messages above give the reasons",
            done.missing,
            self.image.display()
        )))
    }
}
