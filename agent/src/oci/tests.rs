use std::{
    collections::BTreeMap,
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::clock::Clock as _;
use crate::job::PullAccess;
use crate::test_kit::{FakeHttp, VirtualClock};

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn access() -> PullAccess {
    PullAccess {
        url: "http://registry.test".to_owned(),
        username: Some("job".to_owned()),
        password: Some("pull-secret".to_owned()),
    }
}

fn reference() -> ImageReference {
    ImageReference::parse("controller.test:8080/os/linux:1").unwrap()
}

/// The documents and blobs of an image with one layer, by their path.
fn image(layer: &[u8], content: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let config =
        json!({"rootfs": {"type": "layers", "diff_ids": [digest(content)]}}).to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(&config), "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": digest(layer), "size": layer.len(),
        }],
    });
    let manifest = manifest.to_string().into_bytes();
    let index = json!({"schemaVersion": 2, "manifests": [
        {"digest": digest(b"other"), "size": 5, "platform": {"os": "linux", "architecture": "s390x"}},
        {"digest": digest(&manifest), "size": manifest.len(), "platform": {"os": "linux", "architecture": "amd64"}},
        {"digest": digest(&manifest), "size": manifest.len(), "platform": {"os": "linux", "architecture": "arm64"}},
    ]});
    [
        ("/v2/os/linux/manifests/1".to_owned(), index.to_string().into_bytes()),
        (format!("/v2/os/linux/manifests/{}", digest(&manifest)), manifest),
        (format!("/v2/os/linux/blobs/{}", digest(&config)), config),
        (format!("/v2/os/linux/blobs/{}", digest(layer)), layer.to_vec()),
    ]
    .into()
}

fn path(url: &str) -> String {
    url.strip_prefix("http://registry.test").unwrap_or(url).to_owned()
}

type Reply = Result<(u16, Vec<(&'static str, String)>, Vec<u8>), String>;

/// Serves `files`, with ranges, at most `cut` bytes for each blob request.
fn serve(files: &BTreeMap<String, Vec<u8>>, request: &crate::http::Request, cut: usize) -> Reply {
    let Some(bytes) = files.get(&path(&request.url)) else { return Ok((404, Vec::new(), Vec::new())) };
    let range = request.headers.iter().find(|(name, _)| *name == "range");
    let start = range.map_or(0, |(_, value)| {
        value.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse::<usize>().unwrap()
    });
    let end = if request.url.contains("/blobs/") { bytes.len().min(start + cut) } else { bytes.len() };
    let body = bytes[start..end].to_vec();
    match range {
        None => Ok((200, Vec::new(), body)),
        Some(_) => {
            let value = format!("bytes {start}-{}/{}", bytes.len() - 1, bytes.len());
            Ok((206, vec![("content-range", value)], body))
        }
    }
}

fn pull(http: &FakeHttp, clock: &VirtualClock) -> Result<Vec<u8>, String> {
    let access = access();
    let registry = Registry::new(http, clock, Some(&access), &reference()).unwrap();
    let image = registry.resolve(&reference()).map_err(|error| error.to_string())?;
    let layer = &image.layers[0];
    let blob = BlobReader::new(&registry, layer).with_stall(Duration::from_secs(60));
    let mut reader = LayerReader::new(blob, layer.diff_id.as_deref()).map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    reader.read_to_end(&mut content).map_err(|error| error.to_string())?;
    reader.finish().map_err(|error| error.to_string())?;
    Ok(content)
}

#[test]
fn an_image_is_pulled_through_its_index_with_all_digests_verified() {
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    for layer in [gzip(&content), zstd(&content), content.clone()] {
        let files = image(&layer, &content);
        let http = FakeHttp::new(move |request| serve(&files, request, usize::MAX));
        assert!(pull(&http, &VirtualClock::default()).unwrap() == content);
    }
}

#[test]
fn a_broken_connection_is_resumed_at_the_same_byte() {
    let content: Vec<u8> = (0..250_000_u32).flat_map(u32::to_le_bytes).collect();
    let files = image(&content, &content);
    let calls = AtomicUsize::new(0);
    let http = FakeHttp::new(move |request| match calls.fetch_add(1, Ordering::SeqCst) % 3 {
        1 if request.url.contains("/blobs/") => Err("the connection was reset".to_owned()),
        _ => serve(&files, request, 99_999),
    });
    assert!(pull(&http, &VirtualClock::default()).unwrap() == content);
    let ranges = http
        .requests()
        .iter()
        .filter(|request| request.headers.iter().any(|(name, _)| *name == "range"))
        .count();
    assert!(ranges > 9, "{ranges} requests asked for a range");
}

/// Returns 404 to every request for the rest of a blob, from the second one to `until`.
fn behind_a_proxy(content: &[u8], until: usize) -> FakeHttp {
    let (files, calls) = (image(content, content), AtomicUsize::new(0));
    FakeHttp::new(move |request| {
        let rest = request.headers.iter().any(|(name, _)| *name == "range");
        let refused = rest && calls.fetch_add(1, Ordering::SeqCst) < until;
        if refused { Ok((404, Vec::new(), Vec::new())) } else { serve(&files, request, 200_000) }
    })
}

#[test]
fn a_proxy_that_responds_for_a_registry_that_is_away_ends_no_pull_that_has_begun() {
    let content = vec![7_u8; 400_000];
    assert!(pull(&behind_a_proxy(&content, 3), &VirtualClock::default()).unwrap() == content);
    let clock = VirtualClock::default();
    let refused = pull(&behind_a_proxy(&content, usize::MAX), &clock).unwrap_err();
    assert!(refused.contains("404"), "{refused}");
    assert!(
        clock.elapsed() < Duration::from_secs(90),
        "a right that has ended is not waited for: {:?}",
        clock.elapsed()
    );
}

#[test]
fn layers_whose_sizes_cannot_be_counted_are_refused_before_the_first_write() {
    let layer = json!({"mediaType": "", "digest": digest(b"content"), "size": u64::MAX});
    let manifest = json!({"schemaVersion": 2, "layers": [layer, layer]}).to_string().into_bytes();
    let files = [("/v2/os/linux/manifests/1".to_owned(), manifest)].into();
    let http = FakeHttp::new(move |request| serve(&files, request, usize::MAX));
    let refused = pull(&http, &VirtualClock::default()).unwrap_err();
    assert!(refused.contains("more bytes than can be counted"), "{refused}");
}

#[test]
fn a_registry_that_ignores_ranges_is_read_again_from_its_start() {
    let content = vec![7_u8; 400_000];
    let files = image(&content, &content);
    let calls = AtomicUsize::new(0);
    let http = FakeHttp::new(move |request| {
        let mut plain = request.clone();
        plain.headers.clear();
        let first =
            request.url.ends_with(&digest(&vec![7_u8; 400_000])) && calls.fetch_add(1, Ordering::SeqCst) == 0;
        serve(&files, &plain, if first { 250_000 } else { usize::MAX })
    });
    assert!(pull(&http, &VirtualClock::default()).unwrap() == content);
}

#[test]
fn a_registry_away_for_a_minute_is_waited_for_and_one_away_for_good_is_an_error() {
    let content = b"content".to_vec();
    let files = image(&content, &content);
    let clock = Arc::new(VirtualClock::default());
    let shared = Arc::clone(&clock);
    let http = FakeHttp::new(move |request| {
        let away = shared.elapsed() < Duration::from_secs(60);
        if away { Err("the connection was refused".to_owned()) } else { serve(&files, request, usize::MAX) }
    });
    assert_eq!(pull(&http, &clock).unwrap(), content);
    let dead = FakeHttp::new(|_| Ok((503, Vec::new(), Vec::new())));
    let clock = VirtualClock::default();
    assert!(pull(&dead, &clock).unwrap_err().contains("503"));
    assert!(clock.elapsed() > Duration::from_secs(500));
}

#[test]
fn wrong_bytes_are_an_error_wherever_they_are() {
    let content = vec![1_u8; 100_000];
    let layer = gzip(&content);
    for kind in ["manifests/sha256", "blobs"] {
        let files = image(&layer, &content);
        let http = FakeHttp::new(move |request| {
            let (status, headers, mut body) = serve(&files, request, usize::MAX)?;
            if request.url.contains(kind) {
                let last = body.len() - 1;
                body[last] ^= 1;
            }
            Ok((status, headers, body))
        });
        let refused = pull(&http, &VirtualClock::default()).unwrap_err();
        assert!(refused.contains("hashes to") || refused.contains("corrupt"), "{kind}: {refused}");
    }
    let files = image(&layer, b"another content");
    let http = FakeHttp::new(move |request| serve(&files, request, usize::MAX));
    assert!(pull(&http, &VirtualClock::default()).unwrap_err().contains("diff_id"));
}

#[test]
fn the_token_flow_and_basic_authentication_are_followed_and_secrets_stay_with_the_registry() {
    for challenge in ["Basic realm=\"r\"", "Bearer realm=\"http://auth.test/token\",service=\"r\""] {
        let content = b"content".to_vec();
        let mut files = image(&content, &content);
        let blob = format!("/v2/os/linux/blobs/{}", digest(&content));
        files.insert("http://storage.test/b".to_owned(), content.clone());
        let http = FakeHttp::new(move |request| {
            let authorization = request.headers.iter().find(|(name, _)| *name == "authorization");
            let authorization = authorization.map(|(_, value)| value.as_str());
            if request.url.starts_with("http://storage.test") {
                assert_eq!(authorization, None, "a secret left the registry");
                return serve(&files, request, usize::MAX);
            }
            if request.url.starts_with("http://auth.test/token") {
                assert_eq!(authorization, Some("Basic am9iOnB1bGwtc2VjcmV0"));
                assert!(request.url.contains("scope=repository%3Aos%2Flinux%3Apull"), "{}", request.url);
                return Ok((200, Vec::new(), br#"{"token":"T"}"#.to_vec()));
            }
            match authorization {
                Some("Bearer T" | "Basic am9iOnB1bGwtc2VjcmV0") if path(&request.url) == blob => {
                    Ok((307, vec![("location", "http://storage.test/b".to_owned())], Vec::new()))
                }
                Some("Bearer T" | "Basic am9iOnB1bGwtc2VjcmV0") => serve(&files, request, usize::MAX),
                _ => Ok((401, vec![("www-authenticate", challenge.to_owned())], Vec::new())),
            }
        });
        assert_eq!(pull(&http, &VirtualClock::default()).unwrap(), content);
    }
}

#[test]
fn a_pull_without_the_right_ends_at_once_and_names_no_secret() {
    let http =
        FakeHttp::new(|_| Ok((401, vec![("www-authenticate", "Basic realm=\"r\"".to_owned())], Vec::new())));
    let clock = VirtualClock::default();
    let refused = pull(&http, &clock).unwrap_err();
    assert!(refused.contains("401") && refused.contains("no right"), "{refused}");
    assert!(!refused.contains("secret") && clock.pauses().is_empty());
    assert_eq!(http.requests().len(), 2);
}
