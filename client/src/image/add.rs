//! `shoal image add`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use disk_file::{Artifact, EMPTY_CONFIG, EMPTY_DIGEST, Form, MANIFEST_TYPE};
use recipe::{ImageReference, Selector};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::super::connection::Client;
use super::super::error::CliError;
use super::super::input;
use super::super::output::{Output, plain};
use super::super::progress::Progress;
use super::content::{Blob, ImageFile, PIECES};

/// The pause between two reports of the bytes that are done.
const REPORTS: Duration = Duration::from_millis(250);

/// Arguments of `shoal image add`.
#[derive(Args, Debug)]
pub(crate) struct AddImage {
    /// The image: raw or qcow2, which are packed with zstd, or raw packed with gzip or zstd, which stays as it is
    file: PathBuf,
    /// The repository and the tag, without a host, such as os-images/appliance:3
    #[arg(long, value_name = "REPOSITORY:TAG", value_parser = name)]
    name: Name,
}

#[derive(Clone, Debug)]
struct Name {
    repository: String,
    tag: String,
}

fn name(text: &str) -> Result<Name, String> {
    let reference =
        ImageReference::parse(text).map_err(|why| format!("{}; give REPOSITORY:TAG", why.rule))?;
    match (reference.host, reference.selector) {
        (Some(host), _) => Err(format!("leave out {host}/: the registry is that of --url")),
        (None, Selector::Digest(_)) => Err("give a tag: the digest is that of what is pushed".to_owned()),
        (None, Selector::Tag(tag)) => Ok(Name { repository: reference.repository, tag }),
    }
}

impl AddImage {
    pub(super) async fn run(self, client: &Client, output: &mut Output<'_>) -> Result<(), CliError> {
        let Name { repository, tag } = &self.name;
        input::exists(&self.file)?;
        let opened = File::open(&self.file).and_then(ImageFile::open);
        let image = opened.map_err(|why| refused(&self.file, &why))?;
        let form = image.form;
        let (packing, blob) = match form {
            Form::Raw | Form::Qcow2 => (Form::Zstd, self.packed(image, client, output).await?),
            Form::Gzip | Form::Zstd => (form, self.as_it_is(image, client, output).await?),
        };
        let artifact = Artifact {
            name: self
                .file
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .trim_end_matches(".raw")
                .to_owned(),
            packing,
            blob: blob.digest,
            blob_bytes: blob.bytes,
            disk_sha256: blob.disk_sha256,
            disk_bytes: blob.disk_bytes,
            sector: blob.sector,
        };
        let manifest = artifact.manifest();
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&manifest)));
        client.push_bytes(repository, EMPTY_DIGEST, EMPTY_CONFIG).await?;
        client.push_manifest(repository, tag, MANIFEST_TYPE, manifest).await?;
        let host = client.registry_host();
        let oci_url = format!("{host}/{repository}@{digest}");
        if output.json {
            return output.document(&json!({
                "reference": format!("{host}/{repository}:{tag}"), "digest": digest, "oci_url": oci_url,
                "repository": repository, "tag": tag, "form": form.as_str(), "blob": artifact.blob,
                "blob_bytes": artifact.blob_bytes, "disk_bytes": artifact.disk_bytes,
                "disk_sha256": artifact.disk_sha256, "sector": artifact.sector,
            }));
        }
        output.fields(&[
            ("image", format!("{host}/{repository}:{tag}")),
            ("oci_url", oci_url),
            ("form", form.to_string()),
            ("disk bytes", artifact.disk_bytes.to_string()),
            ("disk sha256", artifact.disk_sha256),
            ("sector", artifact.sector.map(|sector| sector.to_string()).unwrap_or_default()),
            ("blob bytes", artifact.blob_bytes.to_string()),
        ])?;
        if is_loopback(&host) {
            output.note(
                "a machine does not reach this host by that name: write the address of the controller into oci_url, as in CONTROLLER_PUBLIC_URL",
            );
        }
        Ok(())
    }

    /// Packs the content while it is sent.
    async fn packed(
        &self,
        image: ImageFile,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<Blob, CliError> {
        let total = image.total;
        let done = Arc::new(AtomicU64::new(0));
        let (sender, pieces) = mpsc::channel(PIECES);
        let verb = if image.form == Form::Qcow2 { "converting and pushing" } else { "pushing" };
        let mut progress = Progress::new(format!("{verb} {}", self.file.display()), Some(total));
        let worker = spawn_blocking({
            let done = Arc::clone(&done);
            move || image.pack(sender, &done)
        });
        let made = async {
            let blob = worker.await.map_err(|why| CliError::failed(format!("packing ended early: {why}")))?;
            let blob = blob.map_err(|why| refused(&self.file, &why))?;
            Ok::<_, CliError>((blob.digest.clone(), blob))
        };
        let show = || progress.report(done.load(Ordering::Relaxed), output.err);
        let pushed = client.push_stream(&self.name.repository, pieces, total, made, show).await;
        progress.end(output.err);
        pushed
    }

    /// Checks a packed image and pushes it as it is.
    async fn as_it_is(
        &self,
        image: ImageFile,
        client: &Client,
        output: &mut Output<'_>,
    ) -> Result<Blob, CliError> {
        let done = Arc::new(AtomicU64::new(0));
        let mut progress = Progress::new(format!("checking {}", self.file.display()), Some(image.total));
        let mut worker = spawn_blocking({
            let done = Arc::clone(&done);
            move || image.examine(&done)
        });
        let examined = loop {
            tokio::select! {
                biased;
                examined = &mut worker => break examined,
                () = tokio::time::sleep(REPORTS) => progress.report(done.load(Ordering::Relaxed), output.err),
            }
        };
        progress.end(output.err);
        let examined = examined.map_err(|why| CliError::failed(format!("checking ended early: {why}")))?;
        let blob = examined.map_err(|why| refused(&self.file, &why))?;
        client.push_blob(&self.name.repository, &self.file, (&blob.digest, blob.bytes), output).await?;
        Ok(blob)
    }
}

/// The error of an image file that cannot be added.
fn refused(file: &Path, why: &std::io::Error) -> CliError {
    CliError::failed(plain(&format!("{}: {why}; nothing was added to the registry", file.display())))
}

fn is_loopback(host: &str) -> bool {
    ["127.", "localhost:", "[::1]"].iter().any(|beginning| host.starts_with(beginning))
}
