//! Imports from files and from faulty web servers.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body as HttpBody;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::Notify;

use super::super::outgoing::AddressPolicy;
use super::*;

const TAG: &str = "\"v1\"";

fn image() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..600_000u32).map(|at| (at * 7 % 251) as u8).collect();
    bytes[32769..32774].copy_from_slice(b"CD001");
    bytes
}

fn open(dir: &Path) -> Library {
    open_for(dir, crate::tests::everything())
}

fn open_for(dir: &Path, sources: SourcePolicy) -> Library {
    let options = LibraryOptions { tls: tls_config(b"").unwrap(), max_image_bytes: 1 << 20, sources };
    Library::open_with(dir, options, Duration::ZERO).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

async fn import(library: &Library, location: &str) -> Result<ImportedImage, ImportError> {
    library.import(location, &|_, _| ()).await
}

fn digest() -> ImageDigest {
    ImageDigest::of(&image()).unwrap()
}

/// Starts a web server that responds with `respond`, which gets the number of the request. Returns its URL and the count of
/// requests.
async fn web<F>(respond: F) -> (String, Arc<AtomicUsize>)
where
    F: Fn(usize, Request) -> Response + Clone + Send + Sync + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/maintenance.iso", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let app = axum::Router::new().fallback(move |request: Request| {
        let respond = respond.clone();
        let number = count.fetch_add(1, Ordering::SeqCst);
        async move { respond(number, request) }
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, requests)
}

fn status(status: u16) -> Response {
    Response::builder().status(status).body(HttpBody::empty()).unwrap()
}

/// A response that announces all of `bytes` and breaks the connection after `sent` of them.
fn broken(code: u16, bytes: Vec<u8>, sent: usize, headers: &[(&str, String)]) -> Response {
    let part = Bytes::from(bytes[..sent].to_vec());
    // The yield lets the server send the first bytes before the failure.
    let failure = futures_util::stream::once(async {
        tokio::task::yield_now().await;
        Err(io::Error::other("cable pulled"))
    });
    let parts = futures_util::stream::once(async { Ok(part) }).chain(failure);
    let mut response = Response::builder().status(code).header("content-length", bytes.len());
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(HttpBody::from_stream(parts)).unwrap()
}

fn tagged(bytes: Vec<u8>) -> Response {
    Response::builder().header("etag", TAG).body(HttpBody::from(bytes)).unwrap()
}

#[tokio::test]
async fn a_file_is_imported_once_and_served_by_digest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.iso");
    std::fs::write(&path, image()).unwrap();
    let library = open(&dir.path().join("library"));
    let seen = Mutex::new(Vec::new());
    let first = library
        .import(&format!("file://{}", path.display()), &|done, total| {
            seen.lock().push((done, total));
        })
        .await
        .unwrap();
    assert_eq!((first.digest, first.len), (digest(), 600_000));
    assert_eq!(seen.lock().last(), Some(&(600_000, Some(600_000))));
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let before = inode(&first.path);
    assert_eq!(import(&library, path.to_str().unwrap()).await.unwrap(), first);
    assert_eq!(inode(&first.path), before, "the second import copied nothing");

    let body = library.open_image(first.digest).await.unwrap();
    let mut bytes = vec![0; 600_000];
    body.read_exact_at(0, &mut bytes).unwrap();
    assert!(bytes == image());
    assert!(!body.in_memory());
}

#[tokio::test]
async fn a_changed_file_is_another_image_and_the_first_one_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.iso");
    std::fs::write(&path, image()).unwrap();
    let library = open(&dir.path().join("library"));
    let first = import(&library, path.to_str().unwrap()).await.unwrap();
    std::fs::write(&path, [image(), vec![0; 2048]].concat()).unwrap();
    let second = import(&library, path.to_str().unwrap()).await.unwrap();
    assert_ne!(first.digest, second.digest);
    assert!(library.open_image(first.digest).await.is_ok());
}

#[tokio::test]
async fn a_location_without_an_image_is_a_typed_error_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(&dir.path().join("library"));
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let text = file("text.iso", &vec![b'x'; 100_000]);
    let short = file("short.iso", b"CD001");
    let large = file("large.iso", &[image(), vec![0; 1 << 20]].concat());
    assert!(matches!(import(&library, &text).await, Err(ImportError::NotAnImage)));
    assert!(matches!(import(&library, &short).await, Err(ImportError::NotAnImage)));
    assert!(matches!(import(&library, &large).await, Err(ImportError::TooLarge { limit: 1_048_576 })));
    assert!(matches!(import(&library, "/nonexistent.iso").await, Err(ImportError::ReadFile { .. })));
    assert!(matches!(
        import(&library, dir.path().to_str().unwrap()).await,
        Err(ImportError::NotAFile { .. })
    ));
    assert!(matches!(import(&library, "s3:a/b").await, Err(ImportError::Scheme { .. })));
    assert!(names(&dir.path().join("library")).is_empty());
}

#[tokio::test]
async fn incomplete_files_of_a_crash_are_removed_and_images_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["incoming-0123", "incoming-", "keep.iso"] {
        std::fs::write(dir.path().join(name), b"x").unwrap();
    }
    open(dir.path());
    assert_eq!(names(dir.path()), ["keep.iso"]);
}

#[tokio::test]
async fn an_image_changed_on_the_disk_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.iso");
    std::fs::write(&path, image()).unwrap();
    let at = dir.path().join("library");
    let imported = import(&open(&at), path.to_str().unwrap()).await.unwrap();
    // Equal bytes with another date are hashed again and accepted.
    std::fs::remove_file(&imported.path).unwrap();
    std::fs::write(&imported.path, image()).unwrap();
    assert!(open(&at).open_image(imported.digest).await.is_ok());
    let mut other = image();
    other[500_000] ^= 1;
    std::fs::write(&imported.path, other).unwrap();
    let refused = open(&at).open_image(imported.digest).await;
    assert!(matches!(refused, Err(LibraryError::Changed { expected, .. }) if expected == imported.digest));
    std::fs::remove_file(&imported.path).unwrap();
    assert!(matches!(open(&at).open_image(imported.digest).await, Err(LibraryError::Missing { .. })));
}

#[tokio::test]
async fn an_unmodified_web_source_is_not_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let (url, requests) = web(|_, request| {
        if request.headers().get("if-none-match").is_some_and(|tag| tag == TAG) {
            status(304)
        } else {
            tagged(image())
        }
    })
    .await;
    let first = import(&library, &url).await.unwrap();
    assert_eq!(first.digest, digest());
    assert_eq!(import(&library, &url).await.unwrap(), first);
    assert_eq!(requests.load(Ordering::SeqCst), 2);
    // An image that was removed from the library is fetched again although the tag is unchanged.
    std::fs::remove_file(&first.path).unwrap();
    assert_eq!(import(&library, &url).await.unwrap(), first);
    assert_eq!(names(dir.path()).len(), 1);
}

#[tokio::test]
async fn a_broken_transfer_is_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let (url, requests) = web(|number, request| match number {
        0 => broken(200, image(), 100_000, &[("etag", TAG.to_owned())]),
        1 => status(503),
        _ => {
            let range = request.headers().get("range").unwrap().to_str().unwrap().to_owned();
            assert_eq!(request.headers().get("if-range").unwrap(), TAG);
            let start: usize = range.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap();
            assert!(start > 0);
            let mut part = Response::new(HttpBody::from(image()[start..].to_vec()));
            *part.status_mut() = http::StatusCode::PARTIAL_CONTENT;
            let named = format!("bytes {start}-599999/600000");
            part.headers_mut().insert("content-range", named.parse().unwrap());
            part
        }
    })
    .await;
    assert_eq!(import(&library, &url).await.unwrap().digest, digest());
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_broken_transfer_is_logged_with_the_ids_of_the_job_that_asked_for_the_image() {
    let lines = crate::tests::log_lines::Written::new();
    let _collecting = lines.collect();
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let (url, _) = web(|number, _| if number == 0 { status(503) } else { tagged(image()) }).await;
    let span = tracing::error_span!("step", job_id = "job-1");
    import(&library, &url).instrument(span).await.unwrap();
    assert!(lines.line("image import interrupted").contains("job_id=\"job-1\""));
}

#[tokio::test]
async fn a_transfer_starts_over_when_the_source_changed() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let (url, _) = web(|number, _| match number {
        0 => broken(200, vec![0xEE; 700_000], 30_000, &[("etag", "\"v0\"".to_owned())]),
        _ => tagged(image()),
    })
    .await;
    assert_eq!(import(&library, &url).await.unwrap().digest, digest());
    assert_eq!(names(dir.path()).len(), 1);
}

#[tokio::test]
async fn a_refusal_is_final_and_shows_no_secret_of_the_url() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let (url, requests) = web(|_, _| status(404)).await;
    let error =
        import(&library, &format!("{}?sig=canary", url.replace("://", "://user:canary@"))).await.unwrap_err();
    assert!(matches!(&error, ImportError::Status { status: 404, .. }));
    assert!(!format!("{error} {error:?}").contains("canary"));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_web_source_that_is_too_large_or_no_image_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let (large, _) = web(|_, _| tagged(vec![0; (1 << 20) + 1])).await;
    assert!(matches!(import(&library, &large).await, Err(ImportError::TooLarge { .. })));
    let (page, _) = web(|_, _| tagged(b"<html>not found</html>".to_vec())).await;
    assert!(matches!(import(&library, &page).await, Err(ImportError::NotAnImage)));
    assert!(names(dir.path()).is_empty());
}

#[tokio::test]
async fn redirects_are_followed_three_times_and_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let hops = |limit: usize| {
        move |_, request: Request| {
            let at: usize = request.uri().query().map_or(0, |query| query.parse().unwrap());
            if at == limit {
                return tagged(image());
            }
            Response::builder()
                .status(302)
                .header("location", format!("/maintenance.iso?{}", at + 1))
                .body(HttpBody::empty())
                .unwrap()
        }
    };
    let (three, _) = web(hops(3)).await;
    assert_eq!(import(&library, &three).await.unwrap().digest, digest());
    let (four, _) = web(hops(4)).await;
    assert!(matches!(import(&library, &four).await, Err(ImportError::Fetch { .. })));
}

#[tokio::test]
async fn concurrent_imports_of_one_source_share_the_work() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let (url, requests) = web(move |_, _| {
        let gate = gate.clone();
        let body = futures_util::stream::once(async move {
            gate.notified().await;
            Ok::<_, io::Error>(Bytes::from(image()))
        });
        Response::new(HttpBody::from_stream(body))
    })
    .await;
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let (library, url) = (library.clone(), url.clone());
            tokio::spawn(async move { import(&library, &url).await })
        })
        .collect();
    // This runtime has one thread: when the first request arrives, all four imports have joined.
    while library.0.imports.lock().is_empty() || requests.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    opened.notify_one();
    for outcome in waiting {
        assert_eq!(outcome.await.unwrap().unwrap().digest, digest());
    }
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_import_continues_when_its_caller_stops_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let (started, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tell, hold) = (started.clone(), gate.clone());
    let (url, requests) = web(move |_, _| {
        tell.notify_one();
        let hold = hold.clone();
        let body = futures_util::stream::once(async move {
            hold.notified().await;
            Ok::<_, io::Error>(Bytes::from(image()))
        });
        Response::new(HttpBody::from_stream(body))
    })
    .await;
    let abandoned = tokio::spawn({
        let (library, url) = (library.clone(), url.clone());
        async move { import(&library, &url).await }
    });
    started.notified().await;
    abandoned.abort();
    let joined = import(&library, &url);
    gate.notify_one();
    assert_eq!(joined.await.unwrap().digest, digest());
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[test]
fn malformed_trusted_certificates_are_an_error() {
    assert!(tls_config(b"").is_ok());
    let broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(tls_config(broken), Err(LibraryError::Certificates { .. })));
}

#[tokio::test]
async fn a_refused_address_is_not_connected_to_and_not_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let none = SourcePolicy { addresses: AddressPolicy::default(), ..crate::tests::everything() };
    let library = open_for(dir.path(), none);
    let (url, requests) = web(|_, _| tagged(image())).await;
    for url in
        [url.clone(), url.replace("127.0.0.1", "localhost"), url.replace("127.0.0.1", "[::ffff:127.0.0.1]")]
    {
        let error = import(&library, &format!("{url}?sig=canary")).await.unwrap_err();
        let text = model::error_chain(&error).to_string();
        assert!(matches!(error, ImportError::Address { .. }), "{text}");
        assert!(text.contains("FETCH_ALLOW_CIDRS") && !text.contains("canary"), "{text}");
    }
    assert_eq!(requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_redirect_to_a_refused_address_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let (url, requests) = web(|_, _| {
        let there = "http://169.254.169.254/latest/meta-data/";
        Response::builder().status(302).header("location", there).body(HttpBody::empty()).unwrap()
    })
    .await;
    let error = import(&library, &url).await.unwrap_err();
    assert!(
        matches!(&error, ImportError::Address { source, .. } if source.address.to_string() == "169.254.169.254"),
        "{error}"
    );
    assert_eq!(requests.load(Ordering::SeqCst), 1, "the redirect is not tried again");
}

#[tokio::test]
async fn a_local_file_outside_of_the_folder_is_refused_whether_it_exists_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("images");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(dir.path().join("a.iso"), image()).unwrap();
    std::fs::write(folder.join("b.iso"), image()).unwrap();
    std::os::unix::fs::symlink(dir.path().join("a.iso"), folder.join("link.iso")).unwrap();
    let files = FilePolicy::below(folder.clone(), Vec::new());
    let library = open_for(&dir.path().join("library"), SourcePolicy { files, ..crate::tests::everything() });
    for refused in ["a.iso", "absent.iso", "images/link.iso", "images/../a.iso"] {
        let path = dir.path().join(refused);
        let error = import(&library, path.to_str().unwrap()).await.unwrap_err();
        assert!(matches!(error, ImportError::File { .. }), "{refused}: {error}");
    }
    let inside = folder.join("b.iso");
    assert_eq!(import(&library, inside.to_str().unwrap()).await.unwrap().digest, digest());
    assert!(library.check(dir.path().join("a.iso").to_str().unwrap()).is_err());
    library.check(&format!("file://{}", inside.display())).unwrap();
}

/// A registry with one image, whose blob can change or be damaged.
struct Own(Mutex<(ImageDigest, Vec<u8>)>);

#[async_trait::async_trait]
impl OwnImages for Own {
    async fn open(&self, name: &OwnName) -> Result<(ImageDigest, crate::OpenBlob), String> {
        if name.repository != "maintenance/boot" {
            return Err("the registry does not have it".to_owned());
        }
        let (digest, bytes) = self.0.lock().clone();
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &bytes).unwrap();
        Ok((digest, crate::OpenBlob { file: Arc::new(file), len: bytes.len() as u64 }))
    }
}

#[tokio::test]
async fn an_image_of_the_own_registry_is_copied_once_and_again_when_its_tag_moves() {
    let dir = tempfile::tempdir().unwrap();
    let library = open(dir.path());
    let location = "oci:maintenance/boot:latest";
    let refused = import(&library, location).await.unwrap_err().to_string();
    assert!(refused.contains("ENABLE_REGISTRY"), "{refused}");
    assert!(library.check(location).is_err());
    let own = Arc::new(Own(Mutex::new((digest(), image()))));
    library.set_own(Arc::clone(&own) as Arc<dyn OwnImages>);
    library.check(location).unwrap();
    let first = import(&library, location).await.unwrap();
    assert_eq!((first.digest, library.known(location)), (digest(), Some(first.clone())));
    let written = std::fs::metadata(&first.path).unwrap().modified().unwrap();
    assert_eq!(import(&library, location).await.unwrap(), first);
    assert_eq!(
        std::fs::metadata(&first.path).unwrap().modified().unwrap(),
        written,
        "nothing is copied again"
    );

    let mut moved = image();
    moved.extend([1; 2048]);
    let digest_moved = ImageDigest::of(&moved).unwrap();
    *own.0.lock() = (digest_moved, moved);
    assert_eq!(import(&library, location).await.unwrap().digest, digest_moved);
    assert_eq!(names(dir.path()).len(), 2, "the image of older jobs stays");

    let mut damaged = image();
    damaged[100_000] ^= 1;
    *own.0.lock() = (digest(), damaged);
    let refused = import(&library, location).await.unwrap_err().to_string();
    assert!(refused.contains("damaged") && refused.contains("scrub"), "{refused}");
    let missing = import(&library, "oci:other:1").await.unwrap_err().to_string();
    assert!(missing.contains("oci:other:1: the registry does not have it"), "{missing}");
}
