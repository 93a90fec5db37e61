//! The library of maintenance images: imported once, named by digest, never changed.
//!
//! ```text
//! <dir>/<sha256, 64 hex digits>.iso   0400, complete and durable
//! <dir>/incoming-...                  incomplete; removed when the library is opened
//!
//! import(location) ── this location is being imported ──> wait for that import
//!                 ├── unchanged (length and date, or tag) ──> the known image, nothing is copied
//!                 └── otherwise ──> copy or fetch, hash, rename
//!
//! open_image(digest) ──> ImageBody over one open file, shared by all readers
//! ```
//!
//! Invariants: a file that may be mounted is never written to; a location has at most one import at a time, the library at
//! most two; an import continues when its caller stops waiting; the number of remembered sources and open files is bounded;
//! blocking work runs on threads that may block.

mod error;
mod fetch;
mod own;
mod partial_image;
mod source;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use iso9660::FileSource;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::{Notify, OnceCell, Semaphore};
use tracing::Instrument as _;

pub use self::error::{FetchFailure, ImportError, LibraryError};
use self::fetch::{Fetched, ImageFetcher};
pub use self::own::OwnImages;
use self::partial_image::{PartialImage, image_path, is_sealed};
use self::source::{ImageSource, Validator};
pub use self::source::{OwnName, shown_location};
use super::body::{Backing, ImageBody, ImageDigest};
use super::boot::BootExtents;
use super::offload::offload;
use super::outgoing::{FilePolicy, SourcePolicy};

/// Imports that run at the same time.
const IMPORTS_AT_WORK: usize = 2;
/// Imports that run or wait.
const IMPORTS_MAX: usize = 32;
/// Sources remembered.
const KNOWN_MAX: usize = 256;
/// Images kept open.
const OPEN_MAX: usize = 32;
/// Bytes of a local file that are copied at a time.
const COPY_CHUNK: usize = 1 << 20;

/// The options of a library.
#[derive(Debug, Clone)]
pub struct LibraryOptions {
    /// The TLS configuration for https sources; see [`tls_config`].
    pub tls: rustls::ClientConfig,
    /// The maximum size of an image in bytes.
    pub max_image_bytes: u64,
    /// The sources from which images may be imported.
    pub sources: SourcePolicy,
}

/// A TLS configuration that trusts the certificates in `roots_pem` and no others.
///
/// # Errors
/// [`LibraryError::Certificates`] when one of them is not a certificate.
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
    /// The digest of the image.
    pub digest: ImageDigest,
    /// The length of the image in bytes.
    pub len: u64,
    /// The file of the image.
    pub path: PathBuf,
}

/// An image opened for reading.
#[derive(Debug, Clone)]
pub struct MaintenanceImage {
    /// The bytes of the image.
    pub body: ImageBody,
    /// The byte ranges of the El Torito images of the image.
    pub boot: BootExtents,
}

/// The maintenance images of one data directory. Cheap to clone.
#[derive(Clone)]
pub struct Library(Arc<Inner>);

struct Inner {
    dir: PathBuf,
    limit: u64,
    files: FilePolicy,
    fetcher: ImageFetcher,
    own: OnceLock<Arc<dyn OwnImages>>,
    at_work: Semaphore,
    imports: Mutex<HashMap<ImageSource, Arc<ImportProgress>>>,
    known: Mutex<HashMap<ImageSource, Known>>,
    /// Most recently used last.
    open: Mutex<Vec<(ImageDigest, Arc<OnceCell<MaintenanceImage>>)>>,
}

/// The state of an import.
#[derive(Clone, Default)]
struct ImportState {
    done: u64,
    total: Option<u64>,
    outcome: Option<Result<ImportedImage, ImportError>>,
}

/// The image and the validator of a source at its last import.
#[derive(Clone)]
struct Known {
    validator: Validator,
    image: ImportedImage,
}

/// The progress of an import, for its callers. They are woken in the order of arrival; a `watch` channel wakes them in random
/// order, which would make a simulation irreproducible.
#[derive(Default)]
struct ImportProgress {
    state: Mutex<ImportState>,
    changed: Notify,
}

impl ImportProgress {
    fn change(&self, change: impl FnOnce(&mut ImportState)) {
        change(&mut self.state.lock());
        self.changed.notify_waiters();
    }

    fn has_ended(&self) -> bool {
        self.state.lock().outcome.is_some()
    }
}

/// Reports the progress of one import.
struct ProgressReporter(Arc<ImportProgress>);

impl ProgressReporter {
    fn report(&self, done: u64, total: Option<u64>) {
        self.0.change(|state| (state.done, state.total) = (done, total));
    }
}

/// Ends an import as interrupted when its task panics or is dropped.
struct ImportGuard(Arc<ImportProgress>);

impl Drop for ImportGuard {
    fn drop(&mut self) {
        let interrupted = Some(Err(ImportError::Interrupted));
        self.0.change(|state| state.outcome = state.outcome.take().or(interrupted));
    }
}

impl Library {
    /// Opens the library in `dir`, creates the directory if needed and removes the files of crashed imports. Blocks on the
    /// disk; call it when the program starts.
    ///
    /// # Errors
    /// [`LibraryError`] when the directory cannot be used or the HTTP client cannot be created.
    pub fn open(dir: &Path, options: LibraryOptions) -> Result<Self, LibraryError> {
        Self::open_with(dir, options, fetch::PAUSE_FIRST)
    }

    fn open_with(dir: &Path, options: LibraryOptions, pause: Duration) -> Result<Self, LibraryError> {
        let failed = |operation: &'static str, path: &Path| {
            let path = path.to_path_buf();
            move |source: io::Error| LibraryError::Directory { operation, path, source: Arc::new(source) }
        };
        super::file::create_private_directory(dir).map_err(failed("create", dir))?;
        for entry in std::fs::read_dir(dir).map_err(failed("list", dir))? {
            let path = entry.map_err(failed("list", dir))?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(partial_image::PREFIX))
            {
                std::fs::remove_file(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(Self(Arc::new(Inner {
            dir: dir.to_path_buf(),
            fetcher: ImageFetcher {
                client: fetch::client(options.tls, &options.sources.addresses)
                    .map_err(|error| LibraryError::Client(Arc::new(error)))?,
                addresses: options.sources.addresses,
                dir: dir.to_path_buf(),
                limit: options.max_image_bytes,
                pause,
            },
            limit: options.max_image_bytes,
            own: OnceLock::new(),
            files: options.sources.files,
            at_work: Semaphore::new(IMPORTS_AT_WORK),
            imports: Mutex::default(),
            known: Mutex::default(),
            open: Mutex::default(),
        })))
    }

    /// Sets the images of the controller's registry, once. Without them, names of such images are refused.
    pub fn set_own(&self, own: Arc<dyn OwnImages>) {
        // The first one stays.
        let _second = self.0.own.set(own);
    }

    /// Imports the image at `location` (an absolute path, a `file:` or an `http(s):` URL, `oci:` and a name) and returns it. Calls `progress`
    /// with the number of bytes done and, if known, expected. Must be called on a Tokio runtime.
    ///
    /// # Errors
    /// [`ImportError`] when the location has no image, or the image cannot be read or stored.
    pub async fn import(
        &self,
        location: &str,
        progress: &(dyn Fn(u64, Option<u64>) + Send + Sync),
    ) -> Result<ImportedImage, ImportError> {
        let import = self.join(ImageSource::parse(location)?)?;
        loop {
            let mut changed = std::pin::pin!(import.changed.notified());
            // Registered before the state is read, so that no change in between is missed.
            changed.as_mut().enable();
            let state = import.state.lock().clone();
            progress(state.done, state.total);
            if let Some(outcome) = state.outcome {
                return outcome;
            }
            changed.await;
        }
    }

    /// Checks that the policy allows an import from `location`, as far as that is known without a lookup.
    ///
    /// # Errors
    /// [`ImportError`] when the location is malformed or refused.
    pub fn check(&self, location: &str) -> Result<(), ImportError> {
        match ImageSource::parse(location)? {
            ImageSource::File(path) => {
                let checked = self.0.files.check(&path);
                checked.map_err(|source| ImportError::File { path, source })
            }
            ImageSource::Web(url) => self.0.fetcher.check(&url),
            ImageSource::Own(name) => self.own(&name).map(|_| ()),
        }
    }

    fn own(&self, name: &OwnName) -> Result<&Arc<dyn OwnImages>, ImportError> {
        self.0.own.get().ok_or_else(|| ImportError::Own {
            name: name.to_string(),
            reason: "this controller has no registry; set ENABLE_REGISTRY, or give a path or a URL"
                .to_owned(),
        })
    }

    /// The image that this process last imported from `location`. Reads and fetches nothing.
    pub fn known(&self, location: &str) -> Option<ImportedImage> {
        let source = ImageSource::parse(location).ok()?;
        self.0.known.lock().get(&source).map(|known| known.image.clone())
    }

    /// Returns the running import of `source`, or starts one.
    fn join(&self, source: ImageSource) -> Result<Arc<ImportProgress>, ImportError> {
        let mut imports = self.0.imports.lock();
        // An import that panicked did not remove itself from the list.
        imports.retain(|_, import| !import.has_ended());
        if let Some(import) = imports.get(&source) {
            return Ok(Arc::clone(import));
        }
        if imports.len() >= IMPORTS_MAX {
            return Err(ImportError::Busy { waiting: imports.len() });
        }
        let import = Arc::new(ImportProgress::default());
        imports.insert(source.clone(), Arc::clone(&import));
        let (library, guard) = (self.clone(), ImportGuard(Arc::clone(&import)));
        let import_task = async move {
            let progress = ProgressReporter(Arc::clone(&guard.0));
            let outcome = library.perform(&source, &progress).await;
            library.0.imports.lock().remove(&source);
            progress.0.change(|state| state.outcome = Some(outcome));
        };
        // Its log lines carry the ids of the job that asked for the image first.
        tokio::spawn(import_task.in_current_span());
        Ok(import)
    }

    async fn perform(
        &self,
        source: &ImageSource,
        progress: &ProgressReporter,
    ) -> Result<ImportedImage, ImportError> {
        let _permit = self.0.at_work.acquire().await.map_err(|_| ImportError::Interrupted)?;
        let known = self.0.known.lock().get(source).cloned();
        let known = match known {
            Some(known) if exists_unchanged(&known.image).await => Some(known),
            _ => None,
        };
        let (image, validator) = match source {
            ImageSource::File(path) => {
                let (path, dir, limit) = (path.clone(), self.0.dir.clone(), self.0.limit);
                let (progress, files) = (ProgressReporter(Arc::clone(&progress.0)), self.0.files.clone());
                let copied = offload(move || {
                    let refused = |source| ImportError::File { path: path.clone(), source };
                    let path = files.resolve(&path).map_err(refused)?;
                    copy_file(&path, known, &dir, limit, &progress)
                });
                let (image, validator) = copied.await.unwrap_or(Err(ImportError::Interrupted))?;
                (image, Some(validator))
            }
            ImageSource::Own(name) => {
                let opened = self.own(name)?.open(name).await;
                let opened = opened.map_err(|reason| ImportError::Own { name: name.to_string(), reason })?;
                let (name, dir, limit) = (name.clone(), self.0.dir.clone(), self.0.limit);
                let progress = ProgressReporter(Arc::clone(&progress.0));
                let copied = offload(move || own::copy(&name, opened, known, &dir, limit, &progress));
                let (image, validator) = copied.await.unwrap_or(Err(ImportError::Interrupted))?;
                (image, Some(validator))
            }
            ImageSource::Web(url) => {
                let tag = known.as_ref().and_then(|known| match &known.validator {
                    Validator::Tag(tag) => Some(tag.clone()),
                    Validator::File { .. } | Validator::Digest(_) => None,
                });
                match self.0.fetcher.fetch(url, tag, progress).await? {
                    Fetched::Image(image, tag) => (image, tag.map(Validator::Tag)),
                    Fetched::NotModified => match known {
                        Some(known) => (known.image, Some(known.validator)),
                        None => return Err(ImportError::Interrupted),
                    },
                }
            }
        };
        let mut remembered = self.0.known.lock();
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
    /// [`LibraryError`] when the image is missing, unreadable, or does not have its digest.
    pub async fn open_image(&self, digest: ImageDigest) -> Result<ImageBody, LibraryError> {
        self.image(digest).await.map(|image| image.body)
    }

    /// The bytes of an image with its boot extents. The first call opens the file; later calls share it.
    ///
    /// # Errors
    /// [`LibraryError`] when the image is missing, unreadable, or does not have its digest.
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
            self.0.open.lock().retain(|(kept, _)| *kept != digest);
        }
        opened.cloned()
    }

    fn slot(&self, digest: ImageDigest) -> Arc<OnceCell<MaintenanceImage>> {
        let mut open = self.0.open.lock();
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

async fn exists_unchanged(image: &ImportedImage) -> bool {
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
    let body = ImageBody::new(source, digest, Backing::Disk);
    let boot = BootExtents::of(&body);
    Ok(MaintenanceImage { body, boot })
}

fn copy_file(
    path: &Path,
    known: Option<Known>,
    dir: &Path,
    limit: u64,
    progress: &ProgressReporter,
) -> Result<(ImportedImage, Validator), ImportError> {
    let failed =
        |source: io::Error| ImportError::ReadFile { path: path.to_path_buf(), source: Arc::new(source) };
    let validator_of = |metadata: std::fs::Metadata| -> io::Result<Validator> {
        Ok(Validator::File { len: metadata.len(), modified: metadata.modified()? })
    };
    // Checked before the open, because opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(ImportError::NotAFile { path: path.to_path_buf() });
    }
    let total = metadata.len();
    let validator = validator_of(metadata).map_err(failed)?;
    if let Some(known) = known.filter(|known| known.validator == validator) {
        return Ok((known.image, validator));
    }
    let mut file = File::open(path).map_err(failed)?;
    let mut partial = PartialImage::create(dir, limit)?;
    let mut buffer = vec![0; COPY_CHUNK];
    let mut done = 0;
    loop {
        let length = file.read(&mut buffer).map_err(failed)?;
        if length == 0 {
            break;
        }
        partial.write(&buffer[..length])?;
        done += length as u64;
        progress.report(done, Some(total));
    }
    if validator_of(file.metadata().map_err(failed)?).map_err(failed)? != validator {
        return Err(ImportError::ChangedFile { path: path.to_path_buf() });
    }
    Ok((partial.finish(dir)?, validator))
}
