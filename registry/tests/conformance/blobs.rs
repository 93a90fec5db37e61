//! Blobs: every way to push, read and delete one, with each algorithm.

use registry::{Algorithm, Digest};
use reqwest::Method;

use super::Suite;
use super::client::{Failure, FullResponse, PreparedRequest};
use super::{OTHER, REPOSITORY};
use crate::support::noise;

const OCTETS: &str = "application/octet-stream";

/// A way to push a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PushMethod {
    PostOnly,
    PostPut,
    /// The PUT has no length, even with an empty body.
    PostPutStreamed,
    /// The only PATCH has neither a length nor a range; then an empty PUT.
    Stream,
    /// All of it as one chunk, then an empty PUT.
    OneChunk,
    /// Three chunks, then an empty PUT.
    Chunks,
    /// Two chunks, and the third with the PUT.
    ChunksAndPut,
    /// Each chunk after a refused one.
    ChunksOutOfOrder,
    /// Each chunk after a refused one, which is a PUT whenever it would end the blob.
    ChunksOutOfOrderAndPut,
}

impl PushMethod {
    pub(super) const ALL: [PushMethod; 9] = [
        PushMethod::PostOnly,
        PushMethod::PostPut,
        PushMethod::PostPutStreamed,
        PushMethod::Stream,
        PushMethod::OneChunk,
        PushMethod::Chunks,
        PushMethod::ChunksAndPut,
        PushMethod::ChunksOutOfOrder,
        PushMethod::ChunksOutOfOrderAndPut,
    ];

    pub(super) fn group(self) -> &'static str {
        match self {
            PushMethod::PostOnly => "blob push: post only",
            PushMethod::PostPut | PushMethod::PostPutStreamed => "blob push: post put",
            PushMethod::Stream => "blob push: streaming",
            _ => "blob push: chunked",
        }
    }
}

impl Suite {
    pub(super) async fn blobs(&mut self, algorithm: Algorithm) {
        let group = match algorithm {
            Algorithm::Sha256 => "blobs: sha256",
            Algorithm::Sha512 => "blobs: sha512",
        };
        let missing = Digest::of(algorithm, b"never pushed");
        let outcome = self.get_missing(&missing).await;
        self.check(&["blob get", group], "a missing blob", outcome);
        let mut seed = 1000;
        for push_method in PushMethod::ALL {
            for length in [512, 3000, 0] {
                seed += 1;
                let content = noise(seed, length);
                let digest = Digest::of(algorithm, &content);
                let outcome = self.push_blob(REPOSITORY, push_method, &digest, &content).await;
                self.check(
                    &["blob push", push_method.group(), group],
                    &format!("{push_method:?} of {length}"),
                    outcome,
                );
                self.read_and_delete(REPOSITORY, group, &digest, &content).await;
            }
            seed += 1;
            let mut content = noise(seed, 3000);
            let digest = Digest::of(algorithm, &content);
            content.extend_from_slice(b"oh no");
            let outcome = self.push_wrong_digest(push_method, &digest, &content).await;
            self.check(&[push_method.group(), group], &format!("{push_method:?} of other bytes"), outcome);
        }
        let content = b"{}".to_vec();
        let digest = Digest::of(algorithm, &content);
        let outcome = self.push_blob(REPOSITORY, PushMethod::PostPut, &digest, &content).await;
        self.check(&["blob push", group], "the empty JSON document", outcome);
        self.read_and_delete(REPOSITORY, group, &digest, &content).await;
        self.mounts(algorithm, group).await;
        self.ranges(algorithm, group).await;
        let outcome = self.cancel(algorithm).await;
        self.check(&["blob upload cancel", group], "cancel", outcome);
    }

    async fn get_missing(&self, digest: &Digest) -> Result<(), Failure> {
        let path = format!("/v2/{REPOSITORY}/blobs/{digest}");
        self.request(Method::GET, &path).send().await?.refuses(&[404])?;
        self.request(Method::HEAD, &path).send().await?.is(&[404])?;
        Ok(())
    }

    async fn begin(&self, repository: &str) -> Result<String, Failure> {
        let begun = self.request(Method::POST, &format!("/v2/{repository}/blobs/uploads/")).send().await?;
        Ok(begun.is(&[202])?.header("location")?.to_owned())
    }

    /// Pushes a blob and reads it at the location in the response.
    pub(super) async fn push_blob(
        &self,
        repository: &str,
        push_method: PushMethod,
        digest: &Digest,
        content: &[u8],
    ) -> Result<(), Failure> {
        let closed = self.upload(repository, push_method, digest, content).await?;
        closed.is(&[201])?.has("docker-content-digest", &digest.to_string())?;
        self.request(Method::GET, closed.header("location")?).send().await?.is(&[200])?.holds(content)?;
        Ok(())
    }

    async fn push_wrong_digest(
        &self,
        push_method: PushMethod,
        digest: &Digest,
        content: &[u8],
    ) -> Result<(), Failure> {
        self.upload(REPOSITORY, push_method, digest, content).await?.refuses(&[400])?;
        self.get_missing(digest).await
    }

    /// The response to the last request of the push.
    async fn upload(
        &self,
        repository: &str,
        push_method: PushMethod,
        digest: &Digest,
        content: &[u8],
    ) -> Result<FullResponse, Failure> {
        let named = digest.to_string();
        if push_method == PushMethod::PostOnly {
            let path = format!("/v2/{repository}/blobs/uploads/");
            return self.octets(Method::POST, &path).query("digest", &named).body(content).send().await;
        }
        let mut location = self.begin(repository).await?;
        match push_method {
            PushMethod::PostPut | PushMethod::PostPutStreamed => {
                let ask = self.octets(Method::PUT, &location).query("digest", &named).body(content);
                return if push_method == PushMethod::PostPut { ask } else { ask.streamed() }.send().await;
            }
            PushMethod::Stream => {
                let patch = self.octets(Method::PATCH, &location).body(content).streamed().send().await?;
                location = patch.is(&[202])?.header("location")?.to_owned();
            }
            _ => {
                let last_with_put =
                    matches!(push_method, PushMethod::ChunksAndPut | PushMethod::ChunksOutOfOrderAndPut);
                let size =
                    if push_method == PushMethod::OneChunk { content.len() } else { content.len() / 3 + 1 };
                let mut start = 0;
                while start < content.len() {
                    let end = (start + size).min(content.len());
                    let last = last_with_put && end == content.len();
                    if matches!(
                        push_method,
                        PushMethod::ChunksOutOfOrder | PushMethod::ChunksOutOfOrderAndPut
                    ) {
                        let place = (start, size);
                        location =
                            self.send_out_of_order(&location, digest, content, place, last_with_put).await?;
                    }
                    let method = if last { Method::PUT } else { Method::PATCH };
                    let mut ask = self.octets(method, &location);
                    if last {
                        ask = ask.query("digest", &named);
                    }
                    let place = format!("{start}-{}", end - 1);
                    let sent = ask.header("content-range", place).body(&content[start..end]).send().await?;
                    if last {
                        return Ok(sent);
                    }
                    sent.is(&[202])?.has("range", &format!("0-{}", end - 1))?;
                    location = sent.header("location")?.to_owned();
                    start = end;
                }
            }
        }
        self.octets(Method::PUT, &location).query("digest", &named).send().await
    }

    /// A request that carries bytes of a blob, or could.
    fn octets(&self, method: Method, location: &str) -> PreparedRequest<'_> {
        self.request(method, location).header("content-type", OCTETS)
    }

    /// Sends a chunk with a wrong offset, which must be refused and change nothing: the next but one, or the first
    /// where there is none. It is sent with a PUT where it or the right one would end the blob, for that method; then
    /// the status is requested at the URL of the PUT.
    async fn send_out_of_order(
        &self,
        location: &str,
        digest: &Digest,
        content: &[u8],
        (start, size): (usize, usize),
        closing: bool,
    ) -> Result<String, Failure> {
        let wrong = if start + size < content.len() { start + size } else { 0 };
        let end = (wrong + size).min(content.len());
        let closing = closing && (wrong == 0 || end == content.len());
        let digest = digest.to_string();
        let ask = |method| {
            let ask = self.request(method, location);
            if closing { ask.query("digest", &digest) } else { ask }
        };
        let sent = ask(if closing { Method::PUT } else { Method::PATCH }).header("content-type", OCTETS);
        let sent = sent.header("content-range", format!("{wrong}-{}", end - 1)).body(&content[wrong..end]);
        let sent = sent.send().await?;
        sent.refuses(&[416])?;
        let status = ask(Method::GET).send().await?;
        status.is(&[204])?.has("range", &format!("0-{}", start.saturating_sub(1)))?;
        Ok(status.header("location")?.to_owned())
    }

    /// HEAD, GET and DELETE of an existing blob.
    pub(super) async fn read_and_delete(
        &mut self,
        repository: &str,
        group: &'static str,
        digest: &Digest,
        content: &[u8],
    ) {
        let outcome = self.read_blob(Method::HEAD, repository, digest, content).await;
        self.check(&["blob head", group], "head", outcome);
        let outcome = self.read_blob(Method::GET, repository, digest, content).await;
        self.check(&["blob get", group], "get", outcome);
        self.delete_blob(repository, group, digest).await;
    }

    pub(super) async fn read_blob(
        &self,
        method: Method,
        repository: &str,
        digest: &Digest,
        content: &[u8],
    ) -> Result<(), Failure> {
        let body = if method == Method::HEAD { &[] } else { content };
        let response = self.request(method, &format!("/v2/{repository}/blobs/{digest}")).send().await?;
        response
            .is(&[200])?
            .has("docker-content-digest", &digest.to_string())?
            .has("content-length", &content.len().to_string())?
            .holds(body)?;
        Ok(())
    }

    pub(super) async fn delete_blob(&mut self, repository: &str, group: &'static str, digest: &Digest) {
        let path = format!("/v2/{repository}/blobs/{digest}");
        let outcome =
            self.request(Method::DELETE, &path).send().await.and_then(|gone| gone.is(&[202]).map(drop));
        self.check(&["blob delete", group], "delete", outcome);
        let outcome =
            self.request(Method::HEAD, &path).send().await.and_then(|gone| gone.is(&[404]).map(drop));
        self.check(&["blob delete, at once", group], "head after delete", outcome);
    }

    async fn mounts(&mut self, algorithm: Algorithm, group: &'static str) {
        for (number, (api, from, there)) in [
            ("blob mount", Some(OTHER), true),
            ("blob mount", Some(OTHER), false),
            ("blob mount, without source", None, true),
            ("blob mount, without source", None, false),
        ]
        .into_iter()
        .enumerate()
        {
            let content = noise(2000 + number as u64, 512);
            let digest = Digest::of(algorithm, &content);
            let outcome = self.mount(from, there, &digest, &content).await;
            self.check(&[api, group], &format!("from {from:?}, there: {there}"), outcome);
            self.read_and_delete(REPOSITORY, group, &digest, &content).await;
            if there {
                self.read_and_delete(OTHER, group, &digest, &content).await;
            }
        }
    }

    async fn mount(
        &self,
        from: Option<&str>,
        there: bool,
        digest: &Digest,
        content: &[u8],
    ) -> Result<(), Failure> {
        if there {
            self.push_blob(OTHER, PushMethod::PostPut, digest, content).await?;
        }
        let mut ask = self.request(Method::POST, &format!("/v2/{REPOSITORY}/blobs/uploads/"));
        ask = ask.query("mount", &digest.to_string());
        if let Some(from) = from {
            ask = ask.query("from", from);
        }
        let mut response = ask.send().await?;
        if !there {
            // A failed mount starts an upload, which accepts the blob.
            let session = response.is(&[202])?.header("location")?;
            let put = self.octets(Method::PUT, session).query("digest", &digest.to_string());
            response = put.body(content).send().await?;
        }
        response.is(&[201])?.has("docker-content-digest", &digest.to_string())?;
        self.request(Method::GET, response.header("location")?).send().await?.is(&[200])?.holds(content)?;
        Ok(())
    }

    async fn ranges(&mut self, algorithm: Algorithm, group: &'static str) {
        let content = noise(3000, 2048);
        let digest = Digest::of(algorithm, &content);
        let outcome = self.push_blob(REPOSITORY, PushMethod::PostPut, &digest, &content).await;
        self.check(&["blob push", group], "for ranges", outcome);
        for (range, part) in [
            ("500-1499", Some((500, 1500))),
            ("500-", Some((500, 2048))),
            ("-500", Some((1548, 2048))),
            ("2000-5000", Some((2000, 2048))),
            ("500-0", None),
            ("5000-10000", None),
        ] {
            let outcome = self.range(&digest, &content, range, part).await;
            self.check(&["blob get range", group], range, outcome);
        }
        self.read_and_delete(REPOSITORY, group, &digest, &content).await;
    }

    async fn range(
        &self,
        digest: &Digest,
        content: &[u8],
        range: &str,
        part: Option<(usize, usize)>,
    ) -> Result<(), Failure> {
        let ask = self.request(Method::GET, &format!("/v2/{REPOSITORY}/blobs/{digest}"));
        let response = ask.header("range", format!("bytes={range}")).send().await?;
        match part {
            Some((start, end)) => response
                .is(&[206])?
                .has("content-range", &format!("bytes {start}-{}/{}", end - 1, content.len()))?
                .has("content-length", &(end - start).to_string())?
                .holds(&content[start..end])?,
            None => response.is(&[416])?,
        };
        Ok(())
    }

    async fn cancel(&self, algorithm: Algorithm) -> Result<(), Failure> {
        let location = self.begin(REPOSITORY).await?;
        self.octets(Method::PATCH, &location).body(b"some bytes").send().await?.is(&[202])?;
        self.request(Method::DELETE, &location).send().await?.is(&[204])?;
        self.request(Method::GET, &location).send().await?.refuses(&[404])?;
        let digest = Digest::of(algorithm, b"some bytes");
        let put = self.octets(Method::PUT, &location).query("digest", &digest.to_string());
        put.send().await?.refuses(&[404])?;
        self.delete_nothing(&format!("/v2/{REPOSITORY}/blobs/{digest}")).await
    }

    /// A DELETE of missing content may succeed or not; the content is missing before and afterwards.
    pub(super) async fn delete_nothing(&self, path: &str) -> Result<(), Failure> {
        self.request(Method::HEAD, path).send().await?.is(&[404])?;
        let deleted = self.request(Method::DELETE, path).send().await?;
        if deleted.status != 202 {
            deleted.refuses(&[404])?;
        }
        self.request(Method::HEAD, path).send().await?.is(&[404])?;
        Ok(())
    }
}
