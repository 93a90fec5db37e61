//! The referrers of a manifest: one small record per referrer, found by its subject.
//!
//! ```text
//!  repos/<name>/_referrers/<algorithm>/<hex of the subject>/<algorithm>-<hex of the referrer>    descriptor (JSON)
//!
//!  put     content -> referrer record -> manifest record -> tags
//!  delete  tags -> manifest record, durably -> referrer record
//!  list    records + entries of the tag <algorithm>-<hex of the subject>, in the order of digests, in pages
//! ```
//!
//! A record counts only while the repository has the manifest: what a crash leaves behind is either complete or not
//! visible. The subject need not exist, not even the repository.
//!
//! Clients of registries without this API maintained the list themselves, as an index under a tag made of the subject's
//! digest. The entries of such an index are listed as well, if they exist.
//!
//! Specification: distribution-spec "Listing Referrers" (end-12), "Enabling the Referrers API".

use std::collections::BTreeMap;
use std::path::PathBuf;

use oci_spec::image::Descriptor;
use serde::{Deserialize, Serialize};

use super::disk::exists;
use super::manifests::{Record, read_bounded};
use super::{REFERRERS, Store, content_path, disk};
use crate::digest::Digest;
use crate::error::Error;
use crate::links::Links;
use crate::manifest::SubjectReference;
use crate::name::{Reference, RepositoryName};

/// Records read for one page.
const PAGE: usize = 1000;
/// A page ends with the descriptor that exceeds this size, which is the size of a manifest that clients must accept.
const PAGE_BYTES: usize = 4 << 20;
/// The encoded part of a digest in the tag of an older client.
const TAG_ENCODED_MAX: usize = 64;

/// A manifest with a subject, as the list shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Referrer {
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

/// One page of a subject's referrers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReferrersPage {
    pub(crate) referrers: Vec<Referrer>,
    /// The digest after which the next page begins, if there is one. The next page may be empty.
    pub(crate) next: Option<Digest>,
}

/// An index of referrers that a client maintained.
#[derive(Deserialize)]
struct ClientIndex {
    manifests: Vec<Referrer>,
}

impl Store {
    /// Up to `limit` referrers of `subject` in the order of their digests, beginning after `after`.
    pub(crate) fn referrers(
        &self,
        name: &RepositoryName,
        subject: &Digest,
        artifact_type: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<ReferrersPage, Error> {
        let limit = limit.min(PAGE);
        let candidates = self.candidates(name, subject, after, limit)?;
        let more = candidates.len() > limit;
        let mut page = ReferrersPage::default();
        let mut bytes = 0;
        let mut last = None;
        for (digest, kept) in candidates.into_iter().take(limit) {
            if let Some(referrer) = self.referrer(name, subject, &digest, kept)?
                && artifact_type.is_none_or(|wanted| referrer.artifact_type.as_deref() == Some(wanted))
            {
                bytes += referrer.weight();
                if bytes > PAGE_BYTES && !page.referrers.is_empty() {
                    page.next = last;
                    return Ok(page);
                }
                page.referrers.push(referrer);
            }
            last = Some(digest);
        }
        page.next = last.filter(|_| more);
        Ok(page)
    }

    /// The first digests after `after`, at most `limit + 1`. Each comes with the descriptor of an older client's index;
    /// a record of this registry takes precedence. What is no digest of this registry is left out.
    fn candidates(
        &self,
        name: &RepositoryName,
        subject: &Digest,
        after: Option<&str>,
        limit: usize,
    ) -> Result<BTreeMap<Digest, Option<Referrer>>, Error> {
        let mut found = BTreeMap::new();
        let mut add = |text: &str, kept: Option<Referrer>| {
            let Ok(digest) = text.parse::<Digest>() else { return };
            if after.is_none_or(|after| text > after) {
                found.insert(digest, kept);
                if found.len() > limit.saturating_add(1) {
                    found.pop_last();
                }
            }
        };
        for kept in self.client_index(name, subject)? {
            add(&kept.digest.clone(), Some(kept));
        }
        for file in disk::names(&self.referrers_directory(name, subject))? {
            add(&file?.replacen('-', ":", 1), None);
        }
        Ok(found)
    }

    fn referrer(
        &self,
        name: &RepositoryName,
        subject: &Digest,
        digest: &Digest,
        kept: Option<Referrer>,
    ) -> Result<Option<Referrer>, Error> {
        if !exists(&self.manifest_record(name, digest))? {
            return Ok(None);
        }
        if kept.is_some() {
            return Ok(kept);
        }
        let path = self.referrer_record(name, subject, digest);
        let limit = self.config.max_manifest_size.saturating_mul(2) as u64;
        let Some(bytes) = read_bounded(&path, limit)? else { return Ok(None) };
        let spoiled = |error: serde_json::Error| Error::io("parse", &path)(error.into());
        serde_json::from_slice(&bytes).map(Some).map_err(spoiled)
    }

    fn client_index(&self, name: &RepositoryName, subject: &Digest) -> Result<Vec<Referrer>, Error> {
        let encoded = &subject.hex()[..subject.hex().len().min(TAG_ENCODED_MAX)];
        let Ok(tag) = format!("{}-{encoded}", subject.algorithm().as_str()).parse() else {
            return Ok(Vec::new());
        };
        match self.resolve(name, &Reference::Tag(tag)) {
            Ok(index) => Ok(serde_json::from_slice(&index.bytes)
                .map_or_else(|_| Vec::new(), |kept: ClientIndex| kept.manifests)),
            // The list is best effort here: an index of a client must not make it unreadable.
            Err(Error::ManifestUnknown | Error::Corrupted(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Records that the manifest `descriptor` has the subject `referral.subject`. Durable when this returns.
    pub(super) fn put_referrer(
        &self,
        name: &RepositoryName,
        referral: &SubjectReference,
        descriptor: &Descriptor,
    ) -> Result<(), Error> {
        let directory = self.referrers_directory(name, &referral.subject);
        let path = directory.join(file_name(descriptor.digest().as_ref()));
        let referrer = Referrer {
            media_type: descriptor.media_type().to_string(),
            digest: descriptor.digest().to_string(),
            size: descriptor.size(),
            artifact_type: referral.artifact_type.clone(),
            annotations: referral.annotations.clone(),
        };
        let record = serde_json::to_vec(&referrer)
            .map_err(|error| Error::io("encode the record", &path)(error.into()))?;
        self.disk.create_directory(&directory)?;
        self.disk.put(&self.temporary(), &path, &record)?;
        self.disk.sync_directory(&directory)
    }

    /// The subject of a manifest that is about to be removed; `None` also when it cannot be read.
    pub(super) fn subject_of(&self, digest: &Digest, record: &Record) -> Option<Digest> {
        let document = read_bounded(&self.content(digest), record.size as u64).ok()??;
        Links::read_stored(&document).ok()?.subject
    }

    /// Removes the record that [`Store::put_referrer`] made of a manifest whose removal is durable. The caller holds the
    /// exclusive lock of the references. A record that stays behind is not listed, so a failure here does not fail the delete.
    pub(super) fn remove_referrer(&self, name: &RepositoryName, digest: &Digest, subject: &Digest) {
        self.disk.discard(&self.referrer_record(name, subject, digest));
    }

    fn referrers_directory(&self, name: &RepositoryName, subject: &Digest) -> PathBuf {
        content_path(&self.repository(name).join(REFERRERS), subject)
    }

    fn referrer_record(&self, name: &RepositoryName, subject: &Digest, digest: &Digest) -> PathBuf {
        self.referrers_directory(name, subject).join(file_name(&digest.to_string()))
    }
}

impl Referrer {
    #[cfg(test)]
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// The approximate size in a response.
    fn weight(&self) -> usize {
        let annotations: usize =
            self.annotations.iter().map(|(key, value)| key.len() + value.len() + 6).sum();
        256 + self.media_type.len() + self.digest.len() + annotations
    }
}

/// File names contain no `:`.
fn file_name(digest: &str) -> String {
    digest.replacen(':', "-", 1)
}
