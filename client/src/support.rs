//! `shoal support-bundle`: the state of a controller as a `.tar.gz` for a person who helps, without secrets.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::connection::Client;
use super::error::CliError;
use super::new_file::NewFile;
use super::output::{Output, text};

/// The folder in the archive.
const FOLDER: &str = "shoal-support";
/// The file that names those whose beginning is missing, for the reader of the archive.
const CUT: &str = "cut.txt";
/// The maximum of files that a controller may send.
const MAX_FILES: usize = 64;

/// Arguments of `shoal support-bundle`.
#[derive(Args, Debug)]
pub(super) struct SupportArgs {
    /// The archive to write; a new file [default: shoal-support-TIME.tar.gz]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Fetches a bundle and writes it.
pub(super) async fn run(
    arguments: SupportArgs,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<(), CliError> {
    let bundle = client.post_slow(&["support-bundle"], &[]).await?.body;
    let made_at = text(&bundle, "/made_at");
    let digits: String = made_at.chars().filter(char::is_ascii_digit).take(14).collect();
    let path = arguments.output.unwrap_or_else(|| PathBuf::from(format!("shoal-support-{digits}.tar.gz")));
    let mut files = named(&bundle)?;
    let cut = cut(&bundle);
    files.extend(cut.as_deref().map(|text| (CUT, text)));
    write(&path, &files, made_at.parse().map_or(0, seconds))
        .map_err(|error| CliError::failed(format!("cannot write {}: {error}", path.display())))?;
    if let Some(cut) = &cut {
        output.note(cut.trim_end());
    }
    if output.json {
        let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        return output.document(&json!({ "file": path.display().to_string(), "files": names }));
    }
    output.note("no password, token or key is in it; names, addresses, serial numbers and events are: read it before you send it");
    output.line(path.display().to_string())
}

fn seconds(time: model::Time) -> u64 {
    u64::try_from(time.timestamp().as_second()).unwrap_or(0)
}

/// The files of a bundle. A name that could leave the folder is refused: the response decides no path.
fn named(bundle: &Value) -> Result<Vec<(&str, &str)>, CliError> {
    let plain = |name: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(allowed)
    };
    let files: Option<Vec<(&str, &str)>> =
        bundle["files"].as_array().filter(|files| files.len() <= MAX_FILES).and_then(|files| {
            files.iter().map(|file| Some((file["name"].as_str()?, file["text"].as_str()?))).collect()
        });
    match files {
        Some(files) if files.iter().all(|(name, _)| plain(name)) => Ok(files),
        _ => Err(CliError::failed(
            "the response of the controller is no support bundle; are client and controller of one version?"
                .to_owned(),
        )),
    }
}

/// The text that names the files whose beginning the controller left out; `None` if all are whole.
fn cut(bundle: &Value) -> Option<String> {
    let files = bundle["files"].as_array().into_iter().flatten();
    let names: Vec<String> =
        files.filter(|file| file["cut"] == true).map(|file| text(file, "/name")).collect();
    let names = (!names.is_empty()).then(|| names.join(", "))?;
    Some(format!("the beginning of these files is missing, because they were too long: {names}\n"))
}

/// Writes the archive, readable by this user only.
fn write(path: &Path, files: &[(&str, &str)], time: u64) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(NewFile::create(path)?, Compression::default()));
    for (name, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(time);
        archive.append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.keep()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_leave_the_folder_is_refused() {
        for name in ["../x", "/x", "a/b", "", ".x", "a\u{e4}"] {
            let bundle = json!({ "files": [{ "name": name, "text": "x" }] });
            assert!(named(&bundle).is_err(), "{name}");
        }
        assert!(named(&json!({ "files": [{ "name": "a.json" }] })).is_err());
        assert!(named(&json!({ "files": vec![json!({ "name": "a", "text": "" }); 65] })).is_err());
        assert_eq!(
            named(&json!({ "files": [{ "name": "a.json", "text": "x" }] })).unwrap(),
            [("a.json", "x")]
        );
    }
}
