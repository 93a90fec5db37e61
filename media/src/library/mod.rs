//! The maintenance images: imported once, named by digest, never changed.
//!
//! ```text
//! <dir>/<sha256, 64 hex digits>.iso   0444, complete and durable
//! <dir>/incoming-...                  being filled; swept when the library is opened
//!
//! import(location) ── the same location already under way ──> wait for that one
//!                 ├── as imported before (length and date, or tag) ──> the same image, nothing is copied
//!                 └── otherwise ──> copy or fetch, hash, rename
//!
//! open_image(digest) ──> Body over one open file, shared by all who read it
//! ```
//!
//! Invariants: a file under a mounted medium is never written to; one import per location at a time, two altogether;
//! an import goes on when whoever asked for it stops waiting; what is remembered of sources and what is kept open is
//! bounded; blocking work is done on threads that may block.

mod error;
mod fetch;
mod partial_image;
mod source;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iso9660::FileSource;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::{Notify, OnceCell, Semaphore};

pub use self::error::{FetchFailure, ImportError, LibraryError};
use self::fetch::{Fetched, Web};
use self::partial_image::{Incoming, image_path, is_sealed};
use self::source::{Source, Validator};
use super::body::{Backing, Body, ImageDigest};
use super::boot::BootExtents;
use super::offload::offload;

/// Imports at work at once.
const IMPORTS_AT_WORK: usize = 2;
/// Imports at work or waiting.
const IMPORTS_MAX: usize = 32;
/// Sources remembered.
const KNOWN_MAX: usize = 256;
/// Images kept open.
const OPEN_MAX: usize = 32;
/// How much of a local file is copied at once.
const COPY_CHUNK: usize = 1 << 20;

/// What a library is opened with.
#[derive(Debug, Clone)]
pub struct LibraryOptions {
    /// How https sources are trusted; see [`tls_config`].
    pub tls: rustls::ClientConfig,
    /// The longest image taken.
    pub max_image_bytes: u64,
}

/// A TLS configuration that trusts the certificates in `roots_pem` and no others.
///
/// # Errors
/// When one of them is not a certificate.
pub fn tls_config(roots_pem: &[u8]) -> Result<rustls::ClientConfig, LibraryError> {
    let certificates = |reason: String| LibraryError::Certificates { reason };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(roots_pem) {
        let certificate = certificate.map_err(|error| certificates(error.to_string()))?;
        roots.add(certificate).map_err(|error| certificates(error.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| certificates(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// An image in the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedImage {
    /// Its digest.
    pub digest: ImageDigest,
    /// Its length.
    pub len: u64,
    /// Its file.
    pub path: PathBuf,
}

/// An image opened for reading.
#[derive(Debug, Clone)]
pub struct MaintenanceImage {
    /// Its bytes.
    pub body: Body,
    /// Where in them the boot images are.
    pub boot: BootExtents,
}

/// The maintenance images of one data directory. Cheap to clone.
#[derive(Clone)]
pub struct Library(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    limit: u64,
    web: Web,
    at_work: Semaphore,
    imports: Mutex<HashMap<Source, Arc<Board>>>,
    known: Mutex<HashMap<Source, Known>>,
    /// Most recently used last.
    open: Mutex<Vec<(ImageDigest, Arc<OnceCell<MaintenanceImage>>)>>,
}

/// How far an import is.
#[derive(Clone, Default)]
struct State {
    done: u64,
    total: Option<u64>,
    outcome: Option<Result<ImportedImage, ImportError>>,
}

/// What a source held when it was imported last.
#[derive(Clone)]
struct Known {
    validator: Validator,
    image: ImportedImage,
}

/// Where an import says how far it is. Who waits is woken in the order of arrival: a `watch` would leave that to chance, and
/// a simulation could not be played twice.
#[derive(Default)]
struct Board {
    state: Mutex<State>,
    moved: Notify,
}

impl Board {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut lock(&self.state));
        self.moved.notify_waiters();
    }

    fn is_over(&self) -> bool {
        lock(&self.state).outcome.is_some()
    }
}

/// The import's own hand on its board.
struct Progress(Arc<Board>);

impl Progress {
    fn report(&self, done: u64, total: Option<u64>) {
        self.0.change(|state| (state.done, state.total) = (done, total));
    }
}

/// Ends an import that does not end itself.
struct Ends(Arc<Board>);

impl Drop for Ends {
    fn drop(&mut self) {
        let interrupted = Some(Err(ImportError::Interrupted));
        self.0.change(|state| state.outcome = state.outcome.take().or(interrupted));
    }
}

impl Library {
    /// Opens the library in `dir`, makes the directory where needed and removes what crashed imports left. Blocks for a
    /// moment; meant for the start of the program.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub fn open(dir: &Path, options: LibraryOptions) -> Result<Self, LibraryError> {
        Self::open_with(dir, options, fetch::PAUSE_FIRST)
    }

    fn open_with(dir: &Path, options: LibraryOptions, pause: Duration) -> Result<Self, LibraryError> {
        let failed = |operation: &'static str, path: &Path| {
            let path = path.to_path_buf();
            move |source: io::Error| LibraryError::Directory { operation, path, source: Arc::new(source) }
        };
        std::fs::create_dir_all(dir).map_err(failed("create", dir))?;
        for entry in std::fs::read_dir(dir).map_err(failed("list", dir))? {
            let path = entry.map_err(failed("list", dir))?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(partial_image::PREFIX))
            {
                std::fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(Self(Arc::new(Inner {
            dir: dir.to_path_buf(),
            web: Web {
                client: fetch::client(options.tls).map_err(|error| LibraryError::Client(Arc::new(error)))?,
                dir: dir.to_path_buf(),
                limit: options.max_image_bytes,
                pause,
            },
            limit: options.max_image_bytes,
            at_work: Semaphore::new(IMPORTS_AT_WORK),
            imports: Mutex::default(),
            known: Mutex::default(),
            open: Mutex::default(),
        })))
    }

    /// Brings the image at `location` (an absolute path, a `file:` or an `http(s):` URL) into the library, and tells
    /// `progress` of bytes done and, where known, expected. Must be called on a Tokio runtime.
    ///
    /// # Errors
    /// When there is no image there, or it cannot be read or stored.
    pub async fn import(
        &self,
        location: &str,
        progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
    ) -> Result<ImportedImage, ImportError> {
        let board = self.join(Source::parse(location)?)?;
        loop {
            let mut moved = std::pin::pin!(board.moved.notified());
            // In line before the look: nothing that moves between the two is missed.
            moved.as_mut().enable();
            let state = lock(&board.state).clone();
            progress(state.done, state.total);
            if let Some(outcome) = state.outcome {
                return outcome;
            }
            moved.await;
        }
    }

    /// The image last imported from `location`, as far as this process knows; nothing is read or fetched.
    pub fn known(&self, location: &str) -> Option<ImportedImage> {
        let source = Source::parse(location).ok()?;
        lock(&self.0.known).get(&source).map(|known| known.image.clone())
    }

    /// The import of `source`, begun unless it is under way.
    fn join(&self, source: Source) -> Result<Arc<Board>, ImportError> {
        let mut imports = lock(&self.0.imports);
        // One that panicked did not take itself off the list.
        imports.retain(|_, board| !board.is_over());
        if let Some(board) = imports.get(&source) {
            return Ok(Arc::clone(board));
        }
        if imports.len() >= IMPORTS_MAX {
            return Err(ImportError::Busy { waiting: imports.len() });
        }
        let board = Arc::new(Board::default());
        imports.insert(source.clone(), Arc::clone(&board));
        let (library, ends) = (self.clone(), Ends(Arc::clone(&board)));
        tokio::spawn(async move {
            let progress = Progress(Arc::clone(&ends.0));
            let outcome = library.perform(&source, &progress).await;
            lock(&library.0.imports).remove(&source);
            progress.0.change(|state| state.outcome = Some(outcome));
        });
        Ok(board)
    }

    async fn perform(&self, source: &Source, progress: &Progress) -> Result<ImportedImage, ImportError> {
        let _permit = self.0.at_work.acquire().await.map_err(|_| ImportError::Interrupted)?;
        let known = lock(&self.0.known).get(source).cloned();
        let known = match known {
            Some(known) if is_there(&known.image).await => Some(known),
            _ => None,
        };
        let (image, validator) = match source {
            Source::File(path) => {
                let (path, dir, limit) = (path.clone(), self.0.dir.clone(), self.0.limit);
                let progress = Progress(Arc::clone(&progress.0));
                let copied = offload(move || copy_file(&path, known, &dir, limit, &progress));
                let (image, validator) = copied.await.unwrap_or(Err(ImportError::Interrupted))?;
                (image, Some(validator))
            }
            Source::Web(url) => {
                let tag = known.as_ref().and_then(|known| match &known.validator {
                    Validator::Tag(tag) => Some(tag.clone()),
                    Validator::File { .. } => None,
                });
                match self.0.web.fetch(url, tag, progress).await? {
                    Fetched::Image(image, tag) => (image, tag.map(Validator::Tag)),
                    Fetched::NotModified => match known {
                        Some(known) => (known.image, Some(known.validator)),
                        None => return Err(ImportError::Interrupted),
                    },
                }
            }
        };
        let mut remembered = lock(&self.0.known);
        if remembered.len() >= KNOWN_MAX {
            remembered.clear();
        }
        match validator {
            Some(validator) => remembered.insert(source.clone(), Known { validator, image: image.clone() }),
            None => remembered.remove(source),
        };
        drop(remembered);
        progress.report(image.len, Some(image.len));
        Ok(image)
    }

    /// The bytes of an image.
    ///
    /// # Errors
    /// When it is not there or no longer what its name says.
    pub async fn open_image(&self, digest: ImageDigest) -> Result<Body, LibraryError> {
        self.image(digest).await.map(|image| image.body)
    }

    /// An image with what is known of it. The first call opens the file; later ones share it.
    ///
    /// # Errors
    /// As [`Library::open_image`].
    pub async fn image(&self, digest: ImageDigest) -> Result<MaintenanceImage, LibraryError> {
        let cell = self.slot(digest);
        let path = image_path(&self.0.dir, digest);
        let opened = cell
            .get_or_try_init(|| async move {
                let opening = offload(move || open_verified(&path, digest));
                opening.await.unwrap_or_else(|stopped| Err(read_error(digest)(io::Error::other(stopped))))
            })
            .await;
        if opened.is_err() {
            lock(&self.0.open).retain(|(kept, _)| *kept != digest);
        }
        opened.cloned()
    }

    fn slot(&self, digest: ImageDigest) -> Arc<OnceCell<MaintenanceImage>> {
        let mut open = lock(&self.0.open);
        let entry = match open.iter().position(|(kept, _)| *kept == digest) {
            Some(at) => open.remove(at),
            None => (digest, Arc::default()),
        };
        let cell = entry.1.clone();
        open.push(entry);
        if open.len() > OPEN_MAX {
            open.remove(0);
        }
        cell
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").field("dir", &self.0.dir).finish_non_exhaustive()
    }
}

/// Nothing that is done under these locks leaves a value half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn is_there(image: &ImportedImage) -> bool {
    let ImportedImage { path, len, .. } = image.clone();
    offload(move || std::fs::metadata(path).is_ok_and(|metadata| metadata.len() == len))
        .await
        .unwrap_or(false)
}

fn read_error(digest: ImageDigest) -> impl FnOnce(io::Error) -> LibraryError {
    move |source| match source.kind() {
        io::ErrorKind::NotFound => LibraryError::Missing { digest },
        _ => LibraryError::Read { digest, source: Arc::new(source) },
    }
}

fn open_verified(path: &Path, digest: ImageDigest) -> Result<MaintenanceImage, LibraryError> {
    let modified =
        std::fs::metadata(path).and_then(|metadata| metadata.modified()).map_err(read_error(digest))?;
    let source = FileSource::open(path).map_err(read_error(digest))?;
    if !is_sealed(modified, digest) {
        let found = ImageDigest::of(&source).map_err(read_error(digest))?;
        if found != digest {
            return Err(LibraryError::Changed { expected: digest, found });
        }
    }
    let body = Body::new(source, digest, Backing::Disk);
    let boot = BootExtents::of(&body);
    Ok(MaintenanceImage { body, boot })
}

fn copy_file(
    path: &Path,
    known: Option<Known>,
    dir: &Path,
    limit: u64,
    progress: &Progress,
) -> Result<(ImportedImage, Validator), ImportError> {
    let failed =
        |source: io::Error| ImportError::ReadFile { path: path.to_path_buf(), source: Arc::new(source) };
    let look = |metadata: std::fs::Metadata| -> io::Result<Validator> {
        Ok(Validator::File { len: metadata.len(), modified: metadata.modified()? })
    };
    // Asked before opening, which on a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ImportError::NotAFile { path: path.to_path_buf() });
    }
    let total = metadata.len();
    let validator = look(metadata).map_err(failed)?;
    if let Some(known) = known.filter(|known| known.validator == validator) {
        return Ok((known.image, validator));
    }
    let mut file = File::open(path).map_err(failed)?;
    let mut incoming = Incoming::create(dir, limit)?;
    let mut buffer = vec![0; COPY_CHUNK];
    let mut done = 0;
    loop {
        let length = file.read(&mut buffer).map_err(failed)?;
        if length == 0 {
            break;
        }
        incoming.write(&buffer[..length])?;
        done += length as u64;
        progress.report(done, Some(total));
    }
    if look(file.metadata().map_err(failed)?).map_err(failed)? != validator {
        return Err(ImportError::ChangedFile { path: path.to_path_buf() });
    }
    Ok((incoming.finish(dir)?, validator))
}
