//! Single requests as BMC firmware sends them.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::*;

fn header<'r>(response: &'r reqwest::Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

#[tokio::test]
async fn head_and_get_describe_the_same_image() {
    let world = World::new().await;
    for (token, artifact, bytes) in
        [(TASK_TOKEN, Artifact::Task, &world.task), (BOOT_TOKEN, Artifact::Boot, &world.boot)]
    {
        let head = world.client.head(world.url(token, artifact)).send().await.unwrap();
        let get = world.get(token, artifact, None).await;
        for response in [&head, &get] {
            assert_eq!(response.status(), 200);
            assert_eq!(header(response, "content-length"), bytes.len().to_string());
            assert_eq!(header(response, "accept-ranges"), "bytes");
            assert_eq!(header(response, "content-type"), "application/x-iso9660-image");
            assert_eq!(header(response, "cache-control"), "private, max-age=60");
            assert_eq!(header(response, "etag"), format!("\"{}\"", ImageDigest::of(bytes).unwrap()));
            assert_eq!(header(response, "last-modified"), "Fri, 02 Jan 2026 03:04:05 GMT");
            for never in ["transfer-encoding", "content-encoding", "location"] {
                assert!(!response.headers().contains_key(never), "{never}");
            }
        }
        assert!(get.bytes().await.unwrap() == bytes[..]);
        assert!(head.bytes().await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn both_suffixes_serve_the_same_bytes() {
    let world = World::new().await;
    let url = world.url(TASK_TOKEN, Artifact::Task).replace(".iso", ".img");
    assert!(world.client.get(url).send().await.unwrap().bytes().await.unwrap() == world.task[..]);
}

#[tokio::test]
async fn a_range_request_receives_exactly_its_bytes() {
    let world = World::new().await;
    let len = world.boot.len();
    for (range, start, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=32768-34815", 32768, 34816),
        ("bytes=262143-262145", 262_143, 262_146),
        ("bytes=-2048", len - 2048, len),
        ("bytes=1048576-99999999999", 1_048_576, len),
        ("bytes=5-", 5, len),
    ] {
        let response = world.get(BOOT_TOKEN, Artifact::Boot, Some(range)).await;
        assert_eq!(response.status(), 206, "{range}");
        assert_eq!(header(&response, "content-range"), format!("bytes {start}-{}/{len}", end - 1));
        assert_eq!(header(&response, "content-length"), (end - start).to_string());
        assert!(response.bytes().await.unwrap() == world.boot[start..end], "{range}");
    }
}

#[tokio::test]
async fn beyond_the_end_is_416_with_the_length() {
    let world = World::new().await;
    let response = world.get(TASK_TOKEN, Artifact::Task, Some("bytes=99999999-")).await;
    assert_eq!(response.status(), 416);
    assert_eq!(header(&response, "content-range"), format!("bytes */{}", world.task.len()));
    assert_eq!(header(&response, "content-length"), "0");
}

#[tokio::test]
async fn several_or_unknown_ranges_receive_the_whole_image() {
    let world = World::new().await;
    for range in ["bytes=0-1,4-5", "sectors=0-1", "bytes=9-1"] {
        let response = world.get(TASK_TOKEN, Artifact::Task, Some(range)).await;
        assert_eq!(response.status(), 200, "{range}");
        assert_eq!(response.bytes().await.unwrap().len(), world.task.len());
    }
}

#[tokio::test]
async fn if_range_accepts_only_our_tag_and_date() {
    let world = World::new().await;
    let etag = format!("\"{}\"", ImageDigest::of(&world.task).unwrap());
    for (condition, status) in [
        (etag.as_str(), 206),
        ("Fri, 02 Jan 2026 03:04:05 GMT", 206),
        ("Fri, 02 Jan 2026 03:04:06 GMT", 200),
        ("\"sha256:00\"", 200),
        (&format!("W/{etag}"), 200),
    ] {
        let request = world.client.get(world.url(TASK_TOKEN, Artifact::Task));
        let response =
            request.header("range", "bytes=0-9").header("if-range", condition).send().await.unwrap();
        assert_eq!(response.status(), status, "{condition}");
    }
    let request = world.client.get(world.url(TASK_TOKEN, Artifact::Task)).header("range", "bytes=0-9");
    let twice = request.header("if-range", "\"a\"").header("if-range", etag).send().await.unwrap();
    assert_eq!(twice.status(), 200);
}

#[tokio::test]
async fn a_client_that_has_the_image_receives_304() {
    let world = World::new().await;
    let etag = format!("\"{}\"", ImageDigest::of(&world.task).unwrap());
    for (known, status) in
        [(etag.clone(), 304), (format!("\"x\", W/{etag}"), 304), ("*".into(), 304), ("\"x\"".into(), 200)]
    {
        let request = world.client.get(world.url(TASK_TOKEN, Artifact::Task));
        let response = request.header("if-none-match", &known).send().await.unwrap();
        assert_eq!(response.status(), status, "{known}");
        assert_eq!(header(&response, "etag"), etag);
    }
}

#[tokio::test]
async fn other_methods_are_refused() {
    let world = World::new().await;
    let response = world.client.put(world.url(TASK_TOKEN, Artifact::Task)).body("x").send().await.unwrap();
    assert_eq!(response.status(), 405);
    assert_eq!(header(&response, "allow"), "GET, HEAD");
}

#[tokio::test]
async fn other_paths_and_other_images_of_a_grant_are_not_found() {
    let world = World::new().await;
    let known = world.url(TASK_TOKEN, Artifact::Task);
    for url in [
        world.url(TASK_TOKEN, Artifact::Boot),
        world.url("unknown0000000000000000000", Artifact::Task),
        format!("http://{}/", world.address),
        format!("{known}/x"),
        known.replace("/ttask", "/TTASK"),
    ] {
        let response = world.client.get(&url).send().await.unwrap();
        assert_eq!(response.status(), 404, "{url}");
        assert_eq!(response.bytes().await.unwrap().len(), 0);
    }
}

/// Sends `request` with `PATH` replaced and returns the head of the response in lower case.
async fn raw(stream: &mut TcpStream, request: &str, token: &str, artifact: Artifact) -> String {
    let path = media_path(&MediaToken::parse(token).unwrap(), artifact, Suffix::Iso);
    stream.write_all(request.replace("PATH", &path).as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

#[tokio::test]
async fn http_1_0_receives_a_length_and_a_closed_connection() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head =
        raw(&mut stream, "GET PATH HTTP/1.0\r\nRange: bytes=0-40959\r\n\r\n", TASK_TOKEN, Artifact::Task)
            .await;
    assert!(head.starts_with("http/1.0 206 "), "{head}");
    assert!(head.contains("content-length: 40960\r\n"), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest == world.task[..40960]);
}

#[tokio::test]
async fn http_1_0_keep_alive_serves_the_next_request() {
    let world = World::new().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    for start in [0, 32768] {
        let end = start + 2047;
        let request =
            format!("GET PATH HTTP/1.0\r\nConnection: keep-alive\r\nRange: bytes={start}-{end}\r\n\r\n");
        let head = raw(&mut stream, &request, TASK_TOKEN, Artifact::Task).await;
        assert!(head.contains("connection: keep-alive\r\n"), "{head}");
        let mut sector = [0; 2048];
        stream.read_exact(&mut sector).await.unwrap();
        assert!(sector == world.task[start..=end]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_range_reads_equal_the_bytes_of_the_plan() {
    let world = Arc::new(World::new().await);
    let mut readers = JoinSet::new();
    for reader in 0..8usize {
        let world = world.clone();
        readers.spawn(async move {
            let (token, artifact) =
                if reader % 2 == 0 { (TASK_TOKEN, Artifact::Task) } else { (BOOT_TOKEN, Artifact::Boot) };
            let bytes = if reader % 2 == 0 { &world.task } else { &world.boot };
            for step in 0..40usize {
                let start = (reader * 7919 + step * 104_729) % bytes.len();
                let end = (start + 1 + step * 16_001).min(bytes.len());
                let range = format!("bytes={start}-{}", end - 1);
                let got = world.get(token, artifact, Some(&range)).await.bytes().await.unwrap();
                assert!(got == bytes[start..end], "{range}");
            }
        });
    }
    while let Some(reader) = readers.join_next().await {
        reader.unwrap();
    }
}

/// A disk whose third chunk cannot be read.
struct FailingDisk;

impl ReadAt for FailingDisk {
    fn len(&self) -> u64 {
        4 << 20
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        if offset >= 2 << 18 {
            return Err(std::io::Error::other("bad sector"));
        }
        buffer.fill(7);
        Ok(())
    }
}

struct NoopObserver;

impl ReadObserver for NoopObserver {
    fn read(&self, _offset: u64, _len: u64) {}
}

#[tokio::test]
async fn a_failed_read_breaks_the_connection_instead_of_ending_the_image() {
    for backing in [Backing::Disk, Backing::Memory] {
        let body = ImageBody::new(FailingDisk, ImageDigest::new([0; 32]), backing);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = axum::Router::new().fallback(move |request: Request| {
            let body = body.clone();
            async move { respond(&body, &request.into_parts().0, Arc::new(NoopObserver)) }
        });
        tokio::spawn(async move { axum::serve(listener, app).await });
        let client = client();
        let start = client.get(&url).header("range", "bytes=0-524287").send().await.unwrap();
        assert_eq!(start.bytes().await.unwrap().len(), 512 << 10);
        // If the server has sent nothing yet, it breaks the connection before the head of the response.
        if let Ok(response) = client.get(&url).send().await {
            assert_eq!(header(&response, "content-length"), "4194304");
            assert!(response.bytes().await.is_err());
        }
    }
}

/// An image that contains a file on the disk, and that file.
fn image_on_disk() -> (ImageBody, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..1_500_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect();
    std::fs::write(file.path(), bytes).unwrap();
    let mut tree = Tree::new();
    tree.add_file("few", vec![7; 5000]).unwrap();
    let content = iso9660::Content::source(iso9660::FileSource::open(file.path()).unwrap());
    tree.add_file("many", content).unwrap();
    let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "TASK_1", 0)).unwrap();
    (ImageBody::new(plan, ImageDigest::new([1; 32]), Backing::Disk), file)
}

async fn next(body: &mut axum::body::Body) -> Option<Result<Bytes, axum::Error>> {
    let frame =
        std::future::poll_fn(|context| http_body::Body::poll_frame(std::pin::Pin::new(&mut *body), context));
    frame.await.map(|frame| frame.map(|frame| frame.into_data().unwrap()))
}

fn direct(body: &ImageBody, range: &str, reading: &ReadingSender) -> axum::body::Body {
    let mut request = ::http::Request::get("/").header("range", range).body(()).unwrap().into_parts().0;
    request.extensions.insert(FileSending::new(reading.clone()));
    respond(body, &request, Arc::new(NoopObserver)).into_body()
}

#[tokio::test]
async fn parts_of_files_are_sent_with_sendfile_and_the_last_chunk_is_read() {
    let (image, _file) = image_on_disk();
    let mut whole = vec![0; usize::try_from(image.len()).unwrap()];
    image.read_exact_at(0, &mut whole).unwrap();
    for (first, last, promised) in [
        (0, whole.len() - 1, true),
        (200_000, 1_400_000, true),
        (900_001, 900_001 + (256 << 10) + (64 << 10) - 1, true),
        (300_000, 300_000 + (256 << 10) - 1, false),
        (0, 40_000, false),
    ] {
        let reading = ReadingSender::default();
        let mut body = direct(&image, &format!("bytes={first}-{last}"), &reading);
        let mut got = Vec::new();
        while let Some(bytes) = next(&mut body).await {
            got.extend_from_slice(&bytes.unwrap());
        }
        assert!(got == whole[first..=last], "{first}-{last}");
        let count = reading.0.load(Ordering::Relaxed);
        assert_eq!(count > 0, promised, "{first}-{last}: {count}");
        assert!(count <= got.len().saturating_sub(256 << 10), "{first}-{last}: {count}");
    }
}

#[tokio::test]
async fn a_file_that_changes_during_sendfile_breaks_the_response() {
    let (image, file) = image_on_disk();
    let mut body = direct(&image, "bytes=0-", &ReadingSender::default());
    for _ in 0..4 {
        next(&mut body).await.unwrap().unwrap();
    }
    file.as_file().set_len(1_400_000).unwrap();
    let mut broken = false;
    while let Some(bytes) = next(&mut body).await {
        broken |= bytes.is_err();
    }
    assert!(broken);
}
