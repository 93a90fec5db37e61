//! `shoal maintenance fetch`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::pin::pin;

use clap::Args;
use maintenance::fetch::{self, Archive, Available, Fetched, Mirror, Step};
use serde_json::json;
use url::Url;

use super::failed;
use client::connection;
use client::error::CliError;
use client::input;
use client::output::{Output, plain};
use client::progress::{ProcessProgress, Progress};

const MOST_KEYRING_BYTES: usize = 4 << 20;
const MOST_CERTIFICATES_BYTES: usize = 4 << 20;

/// Arguments of `shoal maintenance fetch`.
#[derive(Args, Debug)]
pub(in crate::cli) struct FetchArgs {
    /// The folder for the packages
    #[arg(value_name = "FOLDER", required_unless_present = "list")]
    folder: Option<PathBuf>,
    /// Only print what would be downloaded: name, version, digest and URL path
    #[arg(long)]
    list: bool,
    /// The mirror of the distribution
    #[arg(long, value_name = "URL", default_value = "http://deb.debian.org/debian", value_parser = mirror)]
    mirror: Url,
    /// The mirror of its security updates
    #[arg(long, value_name = "URL", default_value = "http://deb.debian.org/debian-security", value_parser = mirror)]
    security: Url,
    /// The release of the distribution
    #[arg(long, value_name = "NAME", default_value = "bookworm", value_parser = suite)]
    suite: String,
    /// The distribution's keys, which signed its indexes; no other keys may be in it
    #[arg(long, value_name = "FILE", default_value = "/usr/share/keyrings/debian-archive-keyring.gpg")]
    keyring: PathBuf,
    /// Also fetch firmware (component non-free-firmware)
    #[arg(long)]
    firmware: bool,
    /// The certificate authorities of an https mirror, as PEM
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

fn mirror(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    let plain = matches!(url.scheme(), "http" | "https") && url.host().is_some() && url.query().is_none();
    if plain { Ok(url) } else { Err("give http(s)://HOST/PATH".to_owned()) }
}

fn suite(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let plain = !text.is_empty() && text.bytes().all(allowed);
    if plain { Ok(text.to_owned()) } else { Err("give a code name such as bookworm".to_owned()) }
}

/// What is shown of the file that is being downloaded.
struct Shown<'a, 'b> {
    output: &'a mut Output<'b>,
    file: Option<Progress>,
    done: u64,
}

impl Shown<'_, '_> {
    fn step(&mut self, step: Step<'_>) {
        match step {
            Step::Begins { file, bytes } => {
                self.end();
                self.output.note(plain(&format!("downloading {file}, {} kB", bytes.div_ceil(1000))));
                self.file = Some(Progress::new(plain(file), Some(bytes)));
                self.done = 0;
            }
            Step::Arrived { done } => self.done = done,
        }
    }

    fn report(&mut self) {
        if let Some(file) = &mut self.file {
            file.report(self.done, &mut *self.output.err);
        }
    }

    fn end(&mut self) {
        if let Some(mut file) = self.file.take() {
            file.end(&mut *self.output.err);
        }
    }
}

/// Downloads packages. A file that takes longer than two seconds is shown with its bytes and their rate, also while none arrive.
async fn download(
    mirror: &Mirror,
    packages: &[Available],
    folder: &Path,
    output: &mut Output<'_>,
) -> Result<Fetched, maintenance::Error> {
    let shown = RefCell::new(Shown { output, file: None, done: 0 });
    let mut note = |step: Step<'_>| shown.borrow_mut().step(step);
    let mut download = pin!(fetch::download(mirror, packages, folder, &mut note));
    let result = loop {
        tokio::select! {
            biased;
            result = &mut download => break result,
            () = tokio::time::sleep(ProcessProgress::PAUSE) => shown.borrow_mut().report(),
        }
    };
    shown.borrow_mut().end();
    result
}

impl FetchArgs {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        let pem = match &self.ca_file {
            Some(path) => input::read(path, MOST_CERTIFICATES_BYTES)?,
            None if [&self.mirror, &self.security].iter().any(|url| url.scheme() == "https") => {
                return Err(CliError::Usage(
                    "an https mirror needs --ca-file; http is as good here, because every file is verified by signed digests"
                        .to_owned(),
                ));
            }
            None => Vec::new(),
        };
        let keyring = input::read(&self.keyring, MOST_KEYRING_BYTES)?;
        let archives = vec![
            Archive { url: self.mirror.clone(), suite: self.suite.clone() },
            Archive { url: self.security.clone(), suite: format!("{}-security", self.suite) },
        ];
        let mirror = Mirror::new(connection::for_downloads(&pem)?, archives);
        let runtime = client::current_thread()?;
        let packages = runtime
            .block_on(fetch::choose(&mirror, &keyring, self.firmware, &mut |text| output.note(plain(text))))
            .map_err(failed)?;
        let Some(folder) = self.folder.filter(|_| !self.list) else {
            if output.json {
                let rows = packages.iter().map(|package| {
                    json!({
                        "package": package.name, "version": package.version, "path": package.path,
                        "bytes": package.bytes, "sha256": package.sha256,
                    })
                });
                return output.document(&rows.collect());
            }
            let rows: Vec<Vec<String>> = packages
                .iter()
                .map(|package| {
                    let bytes = package.bytes.to_string();
                    vec![
                        package.name.clone(),
                        plain(&package.version),
                        bytes,
                        package.sha256.clone(),
                        package.path.clone(),
                    ]
                })
                .collect();
            return output.table(&["PACKAGE", "VERSION", "BYTES", "SHA-256", "PATH"], &rows);
        };
        let fetched = runtime.block_on(download(&mirror, &packages, &folder, output)).map_err(failed)?;
        for other in &fetched.others {
            output.note(plain(&format!(
                "{other} is not of this list: remove it if it is an older version, a build refuses two"
            )));
        }
        if output.json {
            return output.document(&json!({
                "folder": folder, "downloaded": fetched.downloaded, "present": fetched.present, "others": fetched.others,
            }));
        }
        let (new, known) = (fetched.downloaded.len(), fetched.present.len());
        output.line(format!(
            "{}: {new} packages downloaded, {known} were there; all are verified",
            folder.display()
        ))
    }
}
