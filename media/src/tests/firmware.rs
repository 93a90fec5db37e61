//! Firmware images: served from the file that was hashed, or hashed when they are opened, and by no other path.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use sha2::{Digest, Sha256};

use super::*;

const TOKEN: &str = "firmware0token0000000000000";

/// A content store with one file, which counts how often it is opened.
struct OneFile {
    file: Arc<File>,
    len: u64,
    digest: ImageDigest,
    opened: Arc<AtomicUsize>,
}

#[async_trait]
impl OsBlobs for OneFile {
    async fn open(&self, digest: &ImageDigest) -> Result<OpenBlob, OsBlobsUnavailable> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        match *digest == self.digest {
            true => Ok(OpenBlob { file: self.file.clone(), len: self.len }),
            false => Err(OsBlobsUnavailable { reason: "there is no such blob".to_owned(), gone: true }),
        }
    }
}

fn file_of(bytes: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

fn image() -> Vec<u8> {
    (0..700_000_u32).map(|at| (at % 251) as u8).collect()
}

fn grant(bytes: &[u8]) -> StoredGrant {
    let inputs = record_inputs(&task_input()).unwrap();
    let stored = task_grant(TOKEN, &inputs);
    let grant = Grant {
        artifact: Artifact::Firmware,
        inputs: None,
        sha256: hex::encode(Sha256::digest(bytes)),
        size: bytes.len() as u64,
        ..stored.grant
    };
    StoredGrant { grant, ..stored }
}

/// A media server with a grant of the image, and a content store that holds `stored`.
async fn world(stored: &[u8]) -> (World, Arc<AtomicUsize>) {
    let world = World::new().await;
    world.store.add(grant(&image()));
    let opened = Arc::new(AtomicUsize::new(0));
    let digest = ImageDigest::parse(&hex::encode(Sha256::digest(image()))).unwrap();
    let blobs = OneFile { file: file_of(stored), len: stored.len() as u64, digest, opened: opened.clone() };
    world.grants.set_os_blobs(Arc::new(blobs));
    (world, opened)
}

fn url(world: &World) -> String {
    let token = MediaToken::parse(TOKEN).unwrap();
    firmware_url(&format!("http://{}", world.address), &token, "BIOS_2.19.1.hpm").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firmware_image_is_served_whole_and_by_ranges_with_its_length() {
    let (world, opened) = world(&image()).await;
    let head = world.client.head(url(&world)).send().await.unwrap();
    assert_eq!((head.status().as_u16(), head.headers()["content-length"].as_bytes()), (200, &b"700000"[..]));
    assert_eq!(head.headers()["content-type"], "application/octet-stream");
    let whole = world.client.get(url(&world)).send().await.unwrap();
    assert_eq!((whole.status().as_u16(), whole.content_length()), (200, Some(700_000)));
    assert_eq!(whole.bytes().await.unwrap(), image());
    let part = world.client.get(url(&world)).header("range", "bytes=1000-1999").send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.bytes().await.unwrap(), image()[1000..2000]);
    assert_eq!(opened.load(Ordering::Relaxed), 1, "one open file for all requests of a grant");
    let other = url(&world).replace("BIOS_2.19.1.hpm", "other.bin");
    let other = world.client.get(other).send().await.unwrap();
    assert_eq!(other.status(), 200, "the token is the right to read");
    assert_eq!(other.bytes().await.unwrap().len(), 700_000);
    for path in
        [url(&world).replace("/f", "/t"), world.url(TOKEN, Artifact::Task), url(&world).replace("/f", "/fx")]
    {
        assert_eq!(world.client.get(&path).send().await.unwrap().status(), 404, "{path}");
    }
    let task = world.url(TASK_TOKEN, Artifact::Task).replace("/t", "/f");
    assert_eq!(world.client.get(task).send().await.unwrap().status(), 404, "a task image is no firmware");
    let hash = MediaToken::parse(TOKEN).unwrap().hash();
    assert_eq!(world.grants.reads_of(&hash).await.unwrap().bytes, 700_000 + 1000 + 700_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_hashed_before_is_neither_opened_nor_hashed_again() {
    let (world, opened) = world(b"").await;
    let kept = OpenBlob { file: file_of(&image()), len: 700_000 };
    world.grants.keep_verified(&grant(&image()).grant, kept);
    let whole = world.client.get(url(&world)).send().await.unwrap();
    assert_eq!(whole.bytes().await.unwrap(), image());
    assert_eq!(opened.load(Ordering::Relaxed), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firmware_file_whose_bytes_changed_is_not_served() {
    let mut changed = image();
    changed[5] ^= 1;
    for stored in [changed, image()[..1000].to_vec(), Vec::new()] {
        let (world, _) = world(&stored).await;
        assert_eq!(world.client.get(url(&world)).send().await.unwrap().status(), 410);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_firmware_image_is_gone_with_its_grant() {
    let (world, _) = world(&image()).await;
    assert_eq!(world.client.get(url(&world)).send().await.unwrap().status(), 200);
    world.store.end(TOKEN);
    world.grants.end(grant(&image()).grant.run);
    assert_eq!(world.client.get(url(&world)).send().await.unwrap().status(), 404);
}
