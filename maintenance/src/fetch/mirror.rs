//! Reads a mirror over HTTP.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};
use url::Url;

use super::index::{Available, Index, Listed, listed};
use super::openpgp::Keyring;
use super::{Fetched, Step};
use crate::error::Error;
use crate::unpack::unpack_all;

/// The largest signed index.
const MOST_RELEASE_BYTES: u64 = 4 << 20;
/// The largest packed list of packages.
const MOST_LIST_BYTES: u64 = 64 << 20;
/// The largest unpacked list of packages.
const MOST_UNPACKED_BYTES: u64 = 512 << 20;
/// The largest package.
const MOST_PACKAGE_BYTES: u64 = 1 << 30;

/// One archive of a distribution.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Archive {
    /// The URL of the folder that has `dists/` and `pool/`.
    pub url: Url,
    /// The name below `dists/`, such as `bookworm` or `bookworm-security`.
    pub suite: String,
}

/// The archives of a distribution, and the way to reach them.
#[derive(Clone, Debug)]
pub struct Mirror {
    client: reqwest::Client,
    archives: Vec<Archive>,
}

impl Mirror {
    /// Returns a mirror with these archives; of a package in several the newest version is taken.
    pub fn new(client: reqwest::Client, archives: Vec<Archive>) -> Self {
        Self { client, archives }
    }

    /// Reads the indexes of all archives.
    pub(super) async fn index(
        &self,
        keyring: &Keyring,
        firmware: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Index, Error> {
        let mut index = Index::default();
        for (number, archive) in self.archives.iter().enumerate() {
            let at = format!("dists/{}", archive.suite);
            let url = archive.file(&format!("{at}/InRelease"))?;
            progress(&format!("reading {url}"));
            let release = self.get(&url, MOST_RELEASE_BYTES, &mut |_| {}).await?;
            let release =
                String::from_utf8(release).map_err(|_| Error::index(url.as_str(), "it is not text"))?;
            let release = keyring.open(&release).map_err(|reason| Error::index(url.as_str(), reason))?;
            archive.is_of(&release).map_err(|reason| Error::index(url.as_str(), reason))?;
            for component in ["main", "non-free-firmware"].iter().take(if firmware { 2 } else { 1 }) {
                let path = format!("{component}/binary-amd64/Packages.xz");
                let Some(wanted) = listed(&release, &path) else {
                    // Distributions before Debian 12 have no component of their own for firmware.
                    if *component == "main" {
                        return Err(Error::index(url.as_str(), format!("it does not name {path}")));
                    }
                    continue;
                };
                let url = archive.file(&format!("{at}/{path}"))?;
                let packed = self.get(&url, MOST_LIST_BYTES.min(wanted.bytes), &mut |_| {}).await?;
                check(&packed, &wanted).map_err(|reason| Error::index(url.as_str(), reason))?;
                let text = unpack_all(&*packed, MOST_UNPACKED_BYTES)
                    .map_err(|error| Error::index(url.as_str(), error))?;
                let text =
                    String::from_utf8(text).map_err(|_| Error::index(url.as_str(), "it is not text"))?;
                index.add(&text, number).map_err(|reason| Error::index(url.as_str(), reason))?;
            }
        }
        Ok(index)
    }

    pub(super) async fn download(
        &self,
        packages: &[Available],
        folder: &Path,
        progress: &mut dyn FnMut(Step<'_>),
    ) -> Result<Fetched, Error> {
        fs::create_dir_all(folder).map_err(Error::file(folder))?;
        let mut fetched = Fetched::default();
        for package in packages {
            let name = package.path.rsplit('/').next().unwrap_or_default().to_owned();
            let path = folder.join(&name);
            let wanted = Listed { sha256: package.sha256.clone(), bytes: package.bytes };
            if is_present(&path, &wanted) {
                fetched.present.push(name);
                continue;
            }
            let archive = self.archives.get(package.archive);
            let archive =
                archive.ok_or_else(|| Error::index(&package.name, "its archive is not of this mirror"))?;
            let url = archive.file(&package.path)?;
            progress(Step::Begins { file: &name, bytes: package.bytes });
            let mut arrived = |done| progress(Step::Arrived { done });
            let bytes = self.get(&url, MOST_PACKAGE_BYTES.min(package.bytes), &mut arrived).await?;
            check(&bytes, &wanted).map_err(|reason| Error::index(url.as_str(), reason))?;
            store(folder, &path, &bytes)?;
            fetched.downloaded.push(name);
        }
        let known: BTreeSet<&String> = fetched.downloaded.iter().chain(&fetched.present).collect();
        for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
            let name = entry.map_err(Error::file(folder))?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".deb") && !known.contains(&name) {
                fetched.others.push(name);
            }
        }
        fetched.others.sort();
        Ok(fetched)
    }

    /// Reads a file of at most `limit` bytes, and reports the number of those that have arrived.
    async fn get(&self, url: &Url, limit: u64, arrived: &mut dyn FnMut(u64)) -> Result<Vec<u8>, Error> {
        let failed = |reason: String| Error::Download { url: url.to_string(), reason };
        let causes = |error: reqwest::Error| {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            text
        };
        let mut response =
            self.client.get(url.clone()).send().await.map_err(|error| failed(causes(error)))?;
        if !response.status().is_success() {
            return Err(failed(format!("the mirror returned {}", response.status())));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(causes(error)))? {
            if (bytes.len() + chunk.len()) as u64 > limit {
                return Err(failed(format!("the file is longer than the {limit} bytes that were expected")));
            }
            bytes.extend_from_slice(&chunk);
            arrived(bytes.len() as u64);
        }
        Ok(bytes)
    }
}

impl Archive {
    /// The URL of a file.
    fn file(&self, path: &str) -> Result<Url, Error> {
        let base = self.url.as_str().trim_end_matches('/');
        // A colon or plus in the name of a package stays as it is.
        Url::parse(&format!("{base}/{path}")).map_err(|error| Error::index(base, error))
    }

    /// Whether a release is of this archive: a mirror that serves another, older one in its place is noticed by its name.
    fn is_of(&self, release: &str) -> Result<(), String> {
        let stanza = crate::control::stanzas(release).next().ok_or("it is empty")?;
        let names: Vec<&str> = ["Suite", "Codename"].iter().filter_map(|field| stanza.get(field)).collect();
        if names.contains(&&*self.suite) {
            return Ok(());
        }
        Err(format!("it is the index of {}, not of {}", names.join(", "), self.suite))
    }
}

fn check(bytes: &[u8], wanted: &Listed) -> Result<(), String> {
    if bytes.len() as u64 != wanted.bytes {
        return Err(format!("it has {} bytes, and the signed index says {}", bytes.len(), wanted.bytes));
    }
    let sha256 = hex::encode(Sha256::digest(bytes));
    if sha256 != wanted.sha256 {
        return Err(format!("its SHA-256 is {sha256}, and the signed index says {}", wanted.sha256));
    }
    Ok(())
}

fn is_present(path: &Path, wanted: &Listed) -> bool {
    let mut bytes = Vec::new();
    let read = fs::File::open(path)
        .and_then(|file| file.take(wanted.bytes.saturating_add(1)).read_to_end(&mut bytes));
    read.is_ok() && check(&bytes, wanted).is_ok()
}

/// Stores a file: complete under its name, or not at all.
fn store(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file =
        tempfile::Builder::new().prefix(".fetch-").tempfile_in(folder).map_err(Error::file(folder))?;
    file.write_all(bytes).map_err(Error::file(path))?;
    file.as_file().sync_all().map_err(Error::file(path))?;
    file.persist(path).map_err(|error| Error::file(path)(error.error))?;
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::file(folder))
}
