//! `shoal maintenance push`, and `--push` of `shoal maintenance build`: a boot image in the registry of a controller, named by digest.
//!
//! ```text
//!   a file   hash ──> push the file                    ──┐
//!   a plan   computed, hashed and sent piece by piece  ──┴──> manifest under a tag ──> oci:REPOSITORY:TAG, oci:REPOSITORY@DIGEST
//! ```
//!
//! Invariant: nothing is tagged before the registry has stored the image and compared its digest.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use clap::Args;
use iso9660::ImagePlan;
use maintenance::Record;
use maintenance::artifact::{EMPTY_CONFIG, EMPTY_DIGEST, MANIFEST_TYPE, manifest};
use recipe::{ImageReference, Selector};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use client::connection::{Client, ConnectionArgs};
use client::current_thread;
use client::error::CliError;
use client::output::Output;
use client::progress::Progress;

const PIECE: usize = 256 << 10;
/// The pieces that wait for the connection.
const PIECES: usize = 8;

/// Arguments of `shoal maintenance push`.
#[derive(Args, Debug)]
pub(in crate::cli) struct PushArgs {
    /// The image, of `shoal maintenance build` or of another maker
    image: PathBuf,
    /// The repository and the tag, without a host
    #[arg(long, value_name = "REPOSITORY:TAG", value_parser = tagged, default_value = TaggedName::DEFAULT)]
    name: TaggedName,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// A repository and a tag of the controller's registry.
#[derive(Clone, Debug)]
pub(in crate::cli) struct TaggedName {
    repository: String,
    tag: String,
}

impl TaggedName {
    /// The name in the settings of the packages.
    pub(super) const DEFAULT: &str = "maintenance/boot:latest";
}

pub(super) fn tagged(text: &str) -> Result<TaggedName, String> {
    let reference = ImageReference::parse(text).map_err(|why| why.to_string())?;
    match (reference.host, reference.selector) {
        (Some(host), _) => Err(format!("leave out {host}/: the registry is that of --url")),
        (None, Selector::Digest(_)) => Err("give a tag: the digest is that of what is pushed".to_owned()),
        (None, Selector::Tag(tag)) => Ok(TaggedName { repository: reference.repository, tag }),
    }
}

impl PushArgs {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        check(&self.image)?;
        let client = Client::new(&self.connection)?;
        let (sha256, bytes) = hashed(&self.image, output)?;
        // An image of another maker has no record.
        let record = maintenance::inspect(&self.image).ok();
        let pushed = current_thread()?.block_on(async {
            let blob = (format!("sha256:{sha256}"), bytes);
            client.push_blob(&self.name.repository, &self.image, (&blob.0, blob.1), output).await?;
            named(&self.name, (&sha256, bytes), record.as_ref(), &client).await
        })?;
        if output.json {
            return output.document(&pushed);
        }
        show(&pushed, output)
    }
}

/// Pushes a file whose digest is known.
pub(super) fn push_file(
    path: &Path,
    (sha256, bytes): (&str, u64),
    record: &Record,
    (name, client): (&TaggedName, &Client),
    output: &mut Output<'_>,
) -> Result<Value, CliError> {
    current_thread()?.block_on(async {
        let digest = format!("sha256:{sha256}");
        client.push_blob(&name.repository, path, (&digest, bytes), output).await?;
        named(name, (sha256, bytes), Some(record), client).await
    })
}

/// Computes an image and pushes it; no file is written.
pub(super) fn push_plan(
    plan: ImagePlan,
    record: &Record,
    (name, client): (&TaggedName, &Client),
    output: &mut Output<'_>,
) -> Result<Value, CliError> {
    let total = plan.len();
    let done = Arc::new(AtomicU64::new(0));
    let mut progress = Progress::new("pushing the image", Some(total));
    current_thread()?.block_on(async {
        let (sender, pieces) = mpsc::channel(PIECES);
        let counter = Arc::clone(&done);
        let worker = spawn_blocking(move || {
            let mut sender = Sender { pieces: sender, sha256: Sha256::new(), done: counter };
            let mut buffered = io::BufWriter::with_capacity(PIECE, &mut sender);
            plan.write_to(&mut buffered)?;
            buffered.flush()?;
            drop(buffered);
            Ok::<_, io::Error>(hex::encode(sender.sha256.finalize()))
        });
        let made = async {
            let failed = |why: String| CliError::failed(format!("cannot compute the image: {why}"));
            let sha256 = worker.await.map_err(|why| failed(why.to_string()))?;
            let sha256 = sha256.map_err(|why| failed(why.to_string()))?;
            Ok::<_, CliError>((format!("sha256:{sha256}"), sha256))
        };
        let show = || progress.report(done.load(Ordering::Relaxed), output.err);
        let sha256 = client.push_stream(&name.repository, pieces, total, made, show).await;
        progress.end(output.err);
        named(name, (&sha256?, total), Some(record), client).await
    })
}

/// Stores the manifest of a pushed image, and returns how the image is named.
async fn named(
    name: &TaggedName,
    (sha256, bytes): (&str, u64),
    record: Option<&Record>,
    client: &Client,
) -> Result<Value, CliError> {
    let TaggedName { repository, tag } = name;
    let document = manifest(sha256, bytes, record);
    let digest = hex::encode(Sha256::digest(&document));
    client.push_bytes(repository, EMPTY_DIGEST, EMPTY_CONFIG).await?;
    client.push_manifest(repository, tag, MANIFEST_TYPE, document).await?;
    Ok(json!({
        "location": format!("oci:{repository}:{tag}"),
        "maintenance_iso_url": format!("oci:{repository}@sha256:{digest}"),
        "sha256": sha256, "bytes": bytes,
    }))
}

/// Shows how a pushed image is named.
pub(super) fn show(pushed: &Value, output: &mut Output<'_>) -> Result<(), CliError> {
    let part = |name: &str| pushed[name].as_str().unwrap_or_default().to_owned();
    output.fields(&[
        ("pushed", part("location")),
        ("by digest", part("maintenance_iso_url")),
        ("sha256", part("sha256")),
        ("bytes", pushed["bytes"].to_string()),
    ])?;
    output.note(
        "all jobs boot it with MAINTENANCE_ISO_URL set to the first name, one job with --maintenance-iso and either",
    );
    Ok(())
}

/// Refuses what the controller would refuse later: a file without an ISO 9660 volume.
fn check(image: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::Input { path: image.to_owned(), source };
    let mut identifier = [0; 5];
    // Sector 16, after the type byte (ECMA-119, 8.1.2).
    match File::open(image).map_err(failed)?.read_exact_at(&mut identifier, 16 * 2048 + 1) {
        Ok(()) if identifier == *b"CD001" => Ok(()),
        Ok(()) => Err(no_image(image)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(no_image(image)),
        Err(error) => Err(failed(error)),
    }
}

fn no_image(image: &Path) -> CliError {
    CliError::failed(format!(
        "{}: it has no ISO 9660 volume, so no machine boots it from virtual media; nothing was pushed",
        image.display()
    ))
}

/// SHA-256 in hex and length of a file.
fn hashed(path: &Path, output: &mut Output<'_>) -> Result<(String, u64), CliError> {
    let failed = |source| CliError::Input { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(failed)?;
    let total = file.metadata().map_err(failed)?.len();
    let mut progress = Progress::new(format!("reading {}", path.display()), Some(total));
    let (mut sha256, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => {
                sha256.update(&piece[..read]);
                bytes += read as u64;
                progress.report(bytes, output.err);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    progress.end(output.err);
    Ok((hex::encode(sha256.finalize()), bytes))
}

/// Hashes and sends the bytes of an image.
struct Sender {
    pieces: mpsc::Sender<Bytes>,
    sha256: Sha256,
    done: Arc<AtomicU64>,
}

impl Write for Sender {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sha256.update(bytes);
        let piece = Bytes::copy_from_slice(bytes);
        let ended = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the push ended early");
        self.pieces.blocking_send(piece).map_err(ended)?;
        self.done.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
