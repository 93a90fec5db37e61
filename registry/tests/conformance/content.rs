//! Manifests with all their content: pushed, listed, read, found as referrers, deleted; one kind of content at a time.

use registry::Digest;
use reqwest::Method;
use serde_json::Value;

use super::blobs::PushMethod;
use super::client::Failure;
use super::data::{ContentSet, Manifest};
use super::{REPOSITORY, Suite};
use crate::support::{IMAGE, INDEX};

impl Suite {
    pub(super) async fn content(&mut self, set: &ContentSet) {
        self.push(set).await;
        let outcome = self.tags_listed(set).await;
        self.check(&["tag listing", set.group], "tags", outcome);
        for manifest in set.manifests.iter().filter(|manifest| !manifest.spoiled) {
            self.read_manifest(set.group, manifest).await;
        }
        for (digest, content) in &set.blobs {
            let outcome = self.read_blob(Method::HEAD, REPOSITORY, digest, content).await;
            self.check(&["blob head", set.group], "head", outcome);
            let outcome = self.read_blob(Method::GET, REPOSITORY, digest, content).await;
            self.check(&["blob get", set.group], "get", outcome);
        }
        self.referrers(set).await;
        self.delete(set).await;
    }

    async fn push(&mut self, set: &ContentSet) {
        for (number, (digest, content)) in set.blobs.iter().enumerate() {
            let push_method = PushMethod::ALL[number % PushMethod::ALL.len()];
            let outcome = self.push_blob(REPOSITORY, push_method, digest, content).await;
            let failed = outcome.is_err();
            self.check(&["blob push", push_method.group(), set.group], &format!("{push_method:?}"), outcome);
            if failed {
                // The following checks are about something else and should not fail because of this.
                let _ = self.push_blob(REPOSITORY, PushMethod::PostPut, digest, content).await;
            }
        }
        for manifest in &set.manifests {
            let digest = manifest.digest.to_string();
            let mut groups = vec!["manifest put by digest", set.group];
            groups.extend(manifest.subject.is_some().then_some("manifest put with subject"));
            groups.extend(manifest.tags_beside.then_some("manifest put with tags"));
            let outcome = self.put_manifest(&digest, manifest).await;
            self.check(&groups, "put", outcome);
            if !manifest.tags_beside {
                for tag in &manifest.tags {
                    let outcome = self.put_manifest(tag, manifest).await;
                    self.check(&["manifest put by tag", set.group], tag, outcome);
                }
            }
        }
    }

    pub(super) async fn put_manifest(&self, reference: &str, manifest: &Manifest) -> Result<(), Failure> {
        let mut ask = self.request(Method::PUT, &format!("/v2/{REPOSITORY}/manifests/{reference}"));
        if manifest.tags_beside {
            for tag in &manifest.tags {
                ask = ask.query("tag", tag);
            }
        }
        let put =
            ask.header("content-type", manifest.kind).body(&manifest.document).streamed().send().await?;
        if manifest.spoiled {
            put.refuses(&[400])?;
            return Ok(());
        }
        put.is(&[201])?.has("docker-content-digest", &manifest.digest.to_string())?;
        if let Some(subject) = &manifest.subject {
            put.has("oci-subject", &subject.to_string())?;
        }
        if manifest.tags_beside {
            let named = put.all("oci-tag");
            for tag in &manifest.tags {
                if !named.iter().any(|named| named.split(',').any(|named| named.trim() == tag)) {
                    return Err(format!("OCI-Tag does not name {tag}: {named:?}"));
                }
            }
        }
        self.get_manifest(Method::GET, put.header("location")?, manifest).await
    }

    async fn get_manifest(&self, method: Method, path: &str, manifest: &Manifest) -> Result<(), Failure> {
        let body = if method == Method::HEAD { &[] } else { manifest.document.as_slice() };
        let response =
            self.request(method, path).header("accept", INDEX).header("accept", IMAGE).send().await?;
        response
            .is(&[200])?
            .has("content-type", manifest.kind)?
            .has("content-length", &manifest.document.len().to_string())?
            .has("docker-content-digest", &manifest.digest.to_string())?
            .holds(body)?;
        Ok(())
    }

    async fn read_manifest(&mut self, group: &'static str, manifest: &Manifest) {
        let path = |reference: &str| format!("/v2/{REPOSITORY}/manifests/{reference}");
        let by_digest = path(&manifest.digest.to_string());
        for (method, group_by_digest, group_by_tag) in [
            (Method::HEAD, "manifest head by digest", "manifest head by tag"),
            (Method::GET, "manifest get by digest", "manifest get by tag"),
        ] {
            let outcome = self.get_manifest(method.clone(), &by_digest, manifest).await;
            self.check(&[group_by_digest, group], "by digest", outcome);
            for tag in &manifest.tags {
                let outcome = self.get_manifest(method.clone(), &path(tag), manifest).await;
                self.check(&[group_by_tag, group], tag, outcome);
            }
        }
    }

    async fn list(&self, query: &str) -> Result<(Vec<String>, Option<String>), Failure> {
        let response =
            self.request(Method::GET, &format!("/v2/{REPOSITORY}/tags/list{query}")).send().await?;
        let link = response.all("link").first().map(ToString::to_string);
        let listed = response.is(&[200])?.json()?;
        if listed["name"] != REPOSITORY {
            return Err(format!("the list is of {}", listed["name"]));
        }
        let tags = listed["tags"].as_array().ok_or("no tags in the list")?;
        Ok((tags.iter().filter_map(Value::as_str).map(str::to_owned).collect(), link))
    }

    async fn tags_listed(&self, set: &ContentSet) -> Result<(), Failure> {
        let (all, _) = self.list("").await?;
        for tag in set.manifests.iter().flat_map(|manifest| &manifest.tags) {
            if !all.contains(tag) {
                return Err(format!("{tag} is not listed"));
            }
        }
        if !all.is_sorted() {
            return Err(format!("not in order: {all:?}"));
        }
        let Some(middle) = all.get(all.len() / 2) else { return Ok(()) };
        let (rest, _) = self.list(&format!("?last={middle}")).await?;
        if rest != all[all.len() / 2 + 1..] {
            return Err(format!("after {middle} came {rest:?}"));
        }
        let (first, link) = self.list("?n=1").await?;
        if first != all[..1] || link.is_some() != (all.len() > 1) {
            return Err(format!("a page of one was {first:?} with {link:?}"));
        }
        let (none, link) = self.list("?n=0").await?;
        if !none.is_empty() || link.is_some() {
            return Err(format!("a page of none was {none:?} with {link:?}"));
        }
        Ok(())
    }

    async fn referrers(&mut self, set: &ContentSet) {
        let mut subjects: Vec<&Digest> = set.referrers.iter().map(|(subject, _)| subject).collect();
        subjects.sort();
        subjects.dedup();
        for subject in subjects {
            let goals = set.referrers.iter().filter(|(about, _)| about == subject).map(|(_, goal)| goal);
            let goals: Vec<&Value> = goals.collect();
            let outcome = self.referrers_of(subject, None, &goals).await;
            self.check(&["referrers", set.group], "all", outcome);
            let mut kinds: Vec<&str> =
                goals.iter().filter_map(|goal| goal["artifactType"].as_str()).collect();
            kinds.sort_unstable();
            kinds.dedup();
            for kind in kinds {
                let of_kind: Vec<&Value> =
                    goals.iter().copied().filter(|goal| goal["artifactType"] == kind).collect();
                let outcome = self.referrers_of(subject, Some(kind), &of_kind).await;
                self.check(&["referrers", set.group], kind, outcome);
            }
        }
    }

    /// Lists the referrers and compares them with the expected ones, in any order.
    pub(super) async fn referrers_of(
        &self,
        subject: &Digest,
        kind: Option<&str>,
        goals: &[&Value],
    ) -> Result<(), Failure> {
        let mut ask = self.request(Method::GET, &format!("/v2/{REPOSITORY}/referrers/{subject}"));
        if let Some(kind) = kind {
            ask = ask.query("artifactType", kind);
        }
        let response = ask.send().await?;
        response.is(&[200])?.has("content-type", INDEX)?;
        if kind.is_some() {
            response.has("oci-filters-applied", "artifactType")?;
        }
        let index = response.json()?;
        if index["schemaVersion"] != 2 || index["mediaType"] != INDEX {
            return Err(format!("not an index: {index}"));
        }
        let listed = index["manifests"].as_array().ok_or("an index without manifests")?;
        if let Some(missing) = goals.iter().find(|goal| !listed.contains(goal)) {
            return Err(format!("{missing} is not listed in {index}"));
        }
        if listed.len() != goals.len() {
            return Err(format!("{} are listed and not {}", listed.len(), goals.len()));
        }
        Ok(())
    }

    async fn delete(&mut self, set: &ContentSet) {
        for manifest in set.manifests.iter().rev() {
            // One tag is deleted alone, the others with the manifest.
            if let Some(tag) = manifest.tags.first() {
                self.delete_manifest(tag, "tag delete", "tag delete, at once", set.group).await;
            }
            let digest = manifest.digest.to_string();
            if manifest.spoiled {
                let outcome = self.delete_nothing(&format!("/v2/{REPOSITORY}/manifests/{digest}")).await;
                self.check(&["manifest delete", set.group], "a refused manifest", outcome);
                continue;
            }
            self.delete_manifest(&digest, "manifest delete", "manifest delete, at once", set.group).await;
            for tag in manifest.tags.iter().skip(1) {
                let path = format!("/v2/{REPOSITORY}/manifests/{tag}");
                let outcome =
                    self.request(Method::HEAD, &path).send().await.and_then(|gone| gone.is(&[404]).map(drop));
                self.check(&["manifest delete, at once", set.group], tag, outcome);
            }
        }
        for (subject, _) in &set.referrers {
            let outcome = self.referrers_of(subject, None, &[]).await;
            self.check(&["referrers", set.group], "after delete", outcome);
        }
        for (digest, _) in &set.blobs {
            self.delete_blob(REPOSITORY, set.group, digest).await;
        }
    }

    async fn delete_manifest(
        &mut self,
        reference: &str,
        group: &'static str,
        at_once: &'static str,
        data: &'static str,
    ) {
        let path = format!("/v2/{REPOSITORY}/manifests/{reference}");
        let outcome =
            self.request(Method::DELETE, &path).send().await.and_then(|gone| gone.is(&[202]).map(drop));
        self.check(&[group, data], reference, outcome);
        let outcome =
            self.request(Method::HEAD, &path).send().await.and_then(|gone| gone.is(&[404]).map(drop));
        self.check(&[at_once, data], reference, outcome);
    }
}
