//! `shoal firmware add`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::connection::Client;
use super::super::error::CliError;
use super::super::output::Output;
use super::show;
use firmware::{Component, FileName, FirmwareFile, Model, Restart, Sha256Digest, Vendor, repository};

const PIECE: usize = 1 << 20;

/// Arguments of `shoal firmware add`.
#[derive(Args, Debug)]
pub(crate) struct AddFirmware {
    /// The file as the vendor gives it, in the form that the BMC takes
    file: PathBuf,
    /// The vendor
    #[arg(long)]
    vendor: Vendor,
    /// A model that the file is for; may be given more than once
    #[arg(long = "model", value_name = "MODEL", required = true)]
    models: Vec<Model>,
    /// The component, such as bmc or bios
    #[arg(long)]
    component: Component,
    /// The version that is installed afterwards
    #[arg(long)]
    version: String,
    /// Whether the host must restart: none or host [default: what the component needs]
    #[arg(long)]
    restart: Option<Restart>,
    /// The SHA-256 that the file must have, as the vendor states it
    #[arg(long, value_name = "DIGEST")]
    sha256: Option<Sha256Digest>,
}

impl AddFirmware {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let (sha256, size) = digest(&self.file)?;
        if let Some(wanted) = self.sha256.filter(|wanted| *wanted != sha256) {
            return Err(CliError::failed(format!(
                "{} has the SHA-256 {}, not {}: nothing was pushed; download the file again",
                self.file.display(),
                sha256.hex(),
                wanted.hex()
            )));
        }
        let usage = |why: firmware::InvalidIdentity| CliError::Usage(why.to_string());
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        let name: FileName = name.parse().map_err(usage)?;
        let of = (self.vendor, self.models.into_iter().collect(), self.component);
        let mut file = FirmwareFile::new(of, &self.version, (name, sha256, size)).map_err(usage)?;
        file.restart = self.restart.unwrap_or(file.restart);
        let added = push(&self.file, &file, client, output).await?;
        show(&added, output)
    }
}

/// Pushes the bytes of a file and makes it a firmware file; returns the response of the controller.
pub(super) async fn push(
    path: &Path,
    file: &FirmwareFile,
    client: &Client,
    output: &mut Output<'_>,
) -> Result<Value, CliError> {
    let repository = repository(&file.vendor, file.component);
    client.push_blob(&repository, path, (&file.sha256.to_string(), file.size), output).await?;
    let body = json!({
        "vendor": file.vendor,
        "models": file.models(),
        "component": file.component,
        "version": file.version(),
        "filename": file.filename,
        "sha256": file.sha256.hex(),
        "size": file.size,
        "restart": file.restart,
    });
    Ok(client.post(&["firmware"], &body, HeaderMap::new()).await?.body)
}

/// SHA-256 and length of a file, read piece by piece.
fn digest(path: &Path) -> Result<(Sha256Digest, u64), CliError> {
    let failed = |source| CliError::Input { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let (mut hasher, mut size, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&piece[..read]);
                size += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok((Sha256Digest::new(hasher.finalize().into()), size))
}
