//! `shoal iso splice`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use iso9660::{Content, ExistingDirectory, FileSource, SpliceOptions};
use serde_json::{Value, json};

use super::write;
use client::error::CliError;
use client::output::{Output, plain};

/// Arguments of `shoal iso splice`.
#[derive(Args, Debug)]
pub(in crate::cli) struct SpliceArgs {
    /// The original image; it is not changed
    image: PathBuf,
    /// The files to add, each as FILE or NAME=FILE
    #[arg(required_unless_present = "replace", value_name = "[NAME=]FILE")]
    files: Vec<String>,
    /// The new image: a file that is renamed into place when it is complete, or - for standard output
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// The directory of the image for the added files
    #[arg(long, default_value = "task")]
    directory: String,
    /// The date of added files, in seconds since 1970 [default: the date of the image]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    epoch: Option<i64>,
    /// Replace an existing directory of that name; without it the command fails
    #[arg(long)]
    replace_directory: bool,
    /// Replace the content of a file of the image; may be given more than once
    #[arg(long, value_name = "PATH=FILE")]
    replace: Vec<String>,
    /// Show the SHA-256 of the new image
    #[arg(long)]
    digest: bool,
}

impl SpliceArgs {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        let image = super::open(&self.image)?;
        let mut options = SpliceOptions::new(self.epoch.or(image.volume().created).unwrap_or(0));
        options.directory.clone_from(&self.directory);
        options.existing =
            if self.replace_directory { ExistingDirectory::Replace } else { ExistingDirectory::Refuse };
        for replacement in &self.replace {
            let Some((path, file)) = replacement.split_once('=') else {
                return Err(CliError::Usage(format!("--replace {replacement}: give PATH=FILE")));
            };
            options.replace.push((path.to_owned(), content(Path::new(file))?));
        }
        let files = self.files.iter().map(|file| added(file)).collect::<Result<Vec<_>, _>>()?;
        let source = Arc::new(super::source(&self.image)?);
        let spliced = iso9660::Splice::plan(source, &files, &options)
            .map_err(|error| CliError::failed(plain(&model::error_chain(&error).to_string())))?;
        let written = write::image(&spliced.plan, &self.output, self.digest, output)?;
        let notes: Vec<String> = spliced.notes.iter().map(|note| plain(&note.to_string())).collect();
        if self.output.as_os_str() == "-" || !output.json {
            notes.iter().for_each(|note| output.note(format!("note: {note}")));
        }
        if self.output.as_os_str() == "-" {
            return Ok(());
        }
        if output.json {
            let notes: Vec<Value> = notes.into_iter().map(Value::String).collect();
            return output.document(&json!({
                "image": self.output, "bytes": written.bytes, "sha256": written.sha256,
                "bytes_read_to_plan": spliced.bytes_read, "notes": notes,
            }));
        }
        let digest = written.sha256.map_or(String::new(), |sha256| format!(", sha256:{sha256}"));
        output.line(format!("{}: {} bytes{digest}", self.output.display(), written.bytes))
    }
}

/// `FILE` under its own name, or `NAME=FILE`.
fn added(argument: &str) -> Result<(String, Content), CliError> {
    let (name, file) = match argument.split_once('=') {
        Some((name, file)) => (name.to_owned(), Path::new(file)),
        None => {
            let file = Path::new(argument);
            let name = file.file_name().and_then(|name| name.to_str());
            let name = name.ok_or_else(|| CliError::Usage(format!("{argument}: give NAME=FILE")))?;
            (name.to_owned(), file)
        }
    };
    Ok((name, content(file)?))
}

fn content(file: &Path) -> Result<Content, CliError> {
    let source: FileSource = super::source(file)?;
    Ok(Content::source(source))
}
