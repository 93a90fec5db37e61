//! What a machine reads of a medium that the controller computes is byte for byte the image that `shoal iso` makes of the same files.
//!
//! ```text
//!   job ─► medium, read over HTTP by Range in odd pieces ─► bytes ─┬─ equal ─┬─ bytes of `shoal iso build` or `splice`
//!                                                                  └─ files ─► folder ─────┘
//! ```

use std::path::Path;
use std::process::Command;

use reqwest::Method;

use crate::kit::{Client, Scene, silent, with_bmc};

/// The lengths of reads: a sector, what QEMU and kernels read, and lengths that end in no sector.
const PIECES: [usize; 6] = [2048, 65_536, 1, 131_072, 5000, 32_769];

/// Reads a medium from its begin to its end by Range, in pieces of several lengths.
async fn in_ranges(client: &Client, url: &str) -> Vec<u8> {
    let head = client.send(client.request(Method::HEAD, url)).await;
    let length: usize = head.header("content-length").unwrap().parse().unwrap();
    let (mut bytes, mut pieces) = (Vec::with_capacity(length), PIECES.into_iter().cycle());
    while bytes.len() < length {
        let last = (bytes.len() + pieces.next().unwrap()).min(length) - 1;
        let range = format!("bytes={}-{last}", bytes.len());
        let part = client.send(client.request(Method::GET, url).header("Range", range)).await;
        assert_eq!((part.status, part.body.len()), (206, last + 1 - bytes.len()));
        bytes.extend(part.body);
    }
    bytes
}

fn shoal(arguments: &[&str]) {
    let made = Command::new(env!("CARGO_BIN_EXE_shoal")).env_clear().args(arguments).output().unwrap();
    assert!(made.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
}

/// A job that waits for its report, the URL of the medium with this name, and a folder for images.
async fn medium(scene: &Scene, serial: &str, name: &str) -> String {
    let id = scene.admin.create_job(serial).await;
    scene.admin.awaits_report(&id).await;
    let slots = scene.bmc(serial).snapshot().slots;
    let mut urls = slots.iter().filter_map(|slot| slot.image.as_ref().map(|url| url.as_str().to_owned()));
    urls.find(|url| url.contains(name)).unwrap()
}

#[track_caller]
fn equal(read: &[u8], made: &Path) {
    let made = std::fs::read(made).unwrap();
    let differs = read.iter().zip(&made).position(|(one, other)| one != other);
    assert_eq!((read.len(), differs), (made.len(), None), "length, first byte that differs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_medium_read_in_ranges_is_what_iso_build_makes_of_its_files() {
    let scene = Scene::start(vec![silent("BYTES-1")]).await;
    let url = medium(&scene, "BYTES-1", "/task.").await;
    let read = in_ranges(&scene.anonymous(), &url).await;
    let folder = scene.folder.path().join("bytes");
    std::fs::create_dir(&folder).unwrap();
    let place = |name: &str| folder.join(name).display().to_string();
    std::fs::write(place("read.iso"), &read).unwrap();
    shoal(&["iso", "extract", &place("read.iso"), "--output", &place("files")]);
    let image = iso9660::Image::open(read.clone()).unwrap();
    let (label, epoch) = (image.volume().volume_id.clone(), image.volume().created.unwrap().to_string());
    let made = place("made.iso");
    let of = ["--profile", "task", "--label", &label, "--epoch", &epoch, "--output", &made];
    shoal(&[&["iso", "build", &place("files")], &of[..]].concat());
    equal(&read, Path::new(&made));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spliced_medium_read_in_ranges_is_what_iso_splice_makes_of_its_files() {
    let single = with_bmc(silent("BYTES-2"), |bmc| *bmc = bmc.clone().with_single_cd());
    let scene = Scene::start(vec![single]).await;
    let url = medium(&scene, "BYTES-2", "/boot.").await;
    let read = in_ranges(&scene.anonymous(), &url).await;
    let folder = scene.folder.path().join("bytes");
    std::fs::create_dir(&folder).unwrap();
    let place = |name: &str| folder.join(name).display().to_string();
    std::fs::write(place("read.iso"), &read).unwrap();
    shoal(&["iso", "extract", &place("read.iso"), "/task", "--output", &place("files")]);
    let image = iso9660::Image::open(read.clone()).unwrap();
    let epoch = image.lookup("task/job.json").unwrap().modified.unwrap().to_string();
    let files = Path::new(&place("files")).join("task");
    let from = if files.is_dir() { files } else { place("files").into() };
    let mut added: Vec<String> =
        std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path().display().to_string()).collect();
    added.sort();
    let maintenance = scene.folder.path().join("maintenance.iso").display().to_string();
    let made = place("made.iso");
    let mut arguments = vec!["iso", "splice", &maintenance, "--epoch", &epoch, "--output", &made];
    arguments.extend(added.iter().map(String::as_str));
    shoal(&arguments);
    equal(&read, Path::new(&made));
    scene.end().await;
}
