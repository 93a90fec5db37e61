//! `shoal job media-url`: a signed URL of the task image of a job, or the image itself.
//!
//! Invariant: the URL is a secret, because it reads the image until it expires; a file with the image is readable by its user only.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::client::Client;
use super::error::CliError;
use super::ids;
use super::output::{Output, text};
use super::progress::Progress;

/// Arguments of `shoal job media-url`.
#[derive(Args, Debug)]
pub(super) struct MediaUrl {
    /// The id of the job, or its beginning
    job: String,
    /// Read the image into this new file instead of printing the URL
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl MediaUrl {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let job = ids::job(client, &self.job).await?;
        let path = ["jobs", &job, "media-url"];
        let issued = client.post_empty(&path, &[]).await?.body;
        let url = issued["url"].as_str().and_then(|url| client.at(url));
        let Some(url) = url else {
            return Err(client.unexpected_response(&path, "url is missing"));
        };
        if let Some(file) = self.output {
            let bytes = save(&file, url, client, output).await?;
            if output.json {
                return output.document(&json!({ "file": file, "bytes": bytes }));
            }
            return output.line(format!("{}: {bytes} bytes", file.display()));
        }
        if output.json {
            return output.document(&issued);
        }
        output.note(format!(
            "the URL is a secret: it reads the image without a login until {}",
            text(&issued, "/expires_at")
        ));
        output.line(url.as_str())
    }
}

/// Reads an image into a new file: into `FILE.part` first, so that an interrupted command leaves no file that looks like the image.
async fn save(file: &Path, url: url::Url, client: &Client, output: &mut Output<'_>) -> Result<u64, CliError> {
    let refused = |error: &io::Error| CliError::failed(format!("cannot write {}: {error}", file.display()));
    if file.symlink_metadata().is_ok() {
        return Err(CliError::failed(format!("{} exists; give the name of a new file", file.display())));
    }
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    // Of an interrupted command.
    let _none = fs::remove_file(&part);
    let mut new = OpenOptions::new();
    let mut target =
        new.write(true).create_new(true).mode(0o600).open(&part).map_err(|error| refused(&error))?;
    let mut progress = Progress::new(format!("reading {}", file.display()), None);
    let mut done = 0;
    let read = client.read_to(url, |piece, total| {
        done += piece.len() as u64;
        progress.of(total).report(done, &mut *output.err);
        target.write_all(piece).map_err(|error| refused(&error))
    });
    let read = read.await;
    progress.end(&mut *output.err);
    let kept = || target.sync_all().and_then(|()| fs::rename(&part, file)).map_err(|error| refused(&error));
    let read = read.and_then(|bytes| kept().map(|()| bytes));
    if read.is_err() {
        // A part of an image is no image.
        let _left = fs::remove_file(&part);
    }
    read
}
