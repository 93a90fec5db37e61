//! `shoal job media-url`: a signed URL of the task image of a job, or the image itself.
//!
//! Invariant: the URL is a secret, because it reads the image until it expires.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::connection::Client;
use super::error::CliError;
use super::ids;
use super::new_file::NewFile;
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

/// Reads an image into a new file, which has its name when it has the whole image.
async fn save(path: &Path, url: url::Url, client: &Client, output: &mut Output<'_>) -> Result<u64, CliError> {
    let refused = |error: io::Error| CliError::failed(format!("cannot write {}: {error}", path.display()));
    let mut file = NewFile::create(path).map_err(refused)?;
    let mut progress = Progress::new(format!("reading {}", path.display()), None);
    let mut done = 0;
    let read = client.read_to(url, |piece, total| {
        done += piece.len() as u64;
        progress.of(total).report(done, &mut *output.err);
        file.write_all(piece).map_err(refused)
    });
    let read = read.await;
    progress.end(&mut *output.err);
    let bytes = read?;
    file.keep().map_err(refused)?;
    Ok(bytes)
}
