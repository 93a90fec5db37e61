//! `delivery: media`: the image comes from the medium, the result goes by reads of it, and no request is sent.

use std::{
    io,
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use beacon::{BeaconStep, Class, CodeBook, Decoder, Message, News, SECTOR};
use iso9660::{Content, Image, ImageOptions, ImagePlan, Profile, ReadAt, Tree, Window};
use serde_json::json;

use super::tests::{Room, digest};
use super::*;
use crate::discovery::read_medium;
use crate::test_kit::{FakeHttp, VirtualClock, bootable_image, job_json};

const MIB: u64 = 1 << 20;

struct Zeros(u64);

impl ReadAt for Zeros {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, _offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        Ok(())
    }
}

/// A medium that notes the sectors that are read for messages, and fails as configured.
#[derive(Clone)]
pub(super) struct FakeMedium {
    pub(super) image: Arc<ImagePlan>,
    touched: Arc<Mutex<Vec<u64>>>,
    /// The reads for messages so far, and the numbers of those that fail.
    asked: Arc<AtomicU32>,
    unheard: Arc<Mutex<Range<u32>>>,
    /// How many times opening it again fails.
    away: Arc<AtomicU32>,
    /// How many reads there were, and the number of the first of two that fail: the reader of ISO 9660 tries some again itself.
    reads: Arc<AtomicU32>,
    broken: Arc<AtomicU32>,
}

impl ReadAt for FakeMedium {
    fn len(&self) -> u64 {
        self.image.len()
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let read = self.reads.fetch_add(1, Ordering::SeqCst);
        if read.checked_sub(self.broken.load(Ordering::SeqCst)).is_some_and(|after| after < 2) {
            return Err(io::Error::other("input/output error"));
        }
        self.image.read_exact_at(offset, buffer)
    }
}

impl Medium for FakeMedium {
    fn touch(&self, offset: u64) -> io::Result<()> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        if self.unheard.lock().unwrap().contains(&number) {
            return Err(io::Error::other("input/output error"));
        }
        self.touched.lock().unwrap().push(offset);
        Ok(())
    }

    fn reopen(&self) -> io::Result<Arc<dyn Medium>> {
        let away = self.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if away.is_ok() {
            return Err(io::Error::other("no medium found"));
        }
        Ok(Arc::new(self.clone()))
    }
}

/// The volume with a disk image of one layer; `stored` is what the blob holds.
pub(super) fn volume(layer: &[u8], stored: &[u8]) -> ImagePlan {
    let config = b"{}";
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(config), "size": 2},
        "layers": [{"mediaType": "application/octet-stream", "digest": digest(layer), "size": layer.len()}],
    });
    let manifest = manifest.to_string().into_bytes();
    let index = json!({"schemaVersion": 2, "manifests": [
        {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(&manifest), "size": manifest.len()},
    ]});
    let blob = |bytes: &[u8]| format!("blobs/sha256/{}", &digest(bytes)[7..]);
    let mut tree = Tree::new();
    tree.add_file("index.json", index.to_string()).unwrap();
    tree.add_file(&blob(&manifest), manifest.clone()).unwrap();
    tree.add_file(&blob(config), config.to_vec()).unwrap();
    tree.add_file(&blob(layer), stored.to_vec()).unwrap();
    tree.add_file("beacon", Content::source(Zeros(beacon::FILE_LEN))).unwrap();
    ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "OS_IMAGE", 1_700_000_000)).unwrap()
}

/// A medium with the task in `place`; the volume is divided into two parts.
pub(super) fn medium(place: &str, volume: ImagePlan) -> FakeMedium {
    let recipe = json!({
        "task_target": "install-image.target", "oci_url": "c.test:1/os/disk:1", "delivery": "media",
        "disk_hints": {"serial": "SER-sda"},
    });
    let volume = Arc::new(volume);
    let mut tree = Tree::new();
    let job = job_json("SN1", "2026-01-02T03:04:05Z");
    tree.add_file(&format!("{place}job.json"), job.to_string()).unwrap();
    tree.add_file(&format!("{place}recipe.json"), recipe.to_string()).unwrap();
    let half = 2 * MIB;
    for (number, (offset, len)) in [(0, half), (half, volume.len() - half)].into_iter().enumerate() {
        let part = Window::new(Arc::clone(&volume), offset, len).unwrap();
        tree.add_file(&format!("{place}os-image.{number:03}"), Content::source(part)).unwrap();
    }
    let image = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "TASK_1", 1_700_000_000)).unwrap();
    FakeMedium {
        image: Arc::new(image),
        touched: Arc::default(),
        asked: Arc::default(),
        unheard: Arc::new(Mutex::new(0..0)),
        away: Arc::default(),
        reads: Arc::default(),
        broken: Arc::new(AtomicU32::new(u32::MAX)),
    }
}

/// Decodes the reads of a medium as a controller does: in their order, each with read-ahead.
pub(super) fn heard(medium: &FakeMedium, place: &str) -> Vec<Message> {
    let outer = Image::open(Arc::clone(&medium.image)).unwrap();
    let start = outer.extents(&format!("{place}os-image.000")).unwrap()[0].offset;
    let window = Window::new(Arc::clone(&medium.image), start, medium.image.len() - start).unwrap();
    let base = start + Image::open(window).unwrap().extents("beacon").unwrap()[0].offset;
    let book = CodeBook::new(b"report-secret", "01890a5d-ac96-774b-bcce-b302099a8057");
    let mut decoder = Decoder::new(book);
    let mut messages = Vec::new();
    for offset in medium.touched.lock().unwrap().iter() {
        match decoder.read(offset - base, SECTOR + (256 << 10)) {
            Some(News::Message(message)) if messages.last() != Some(&message) => messages.push(message),
            Some(News::Unusable(reason)) => panic!("{reason:?}"),
            _ => {}
        }
    }
    messages
}

fn install(room: &Room, place: &str, medium: FakeMedium, clock: &VirtualClock) -> (Outcome, Vec<Message>) {
    let found = read_medium("sr0", Arc::clone(&medium.image)).unwrap().remove(0);
    let (medium, http, log) = (Arc::new(medium), FakeHttp::statuses([]), Log::new(Vec::new()));
    let given = Arc::clone(&medium);
    let open = move |_: &FoundTask| Ok(Arc::clone(&given) as Arc<dyn Medium>);
    let (outcome, delivery) = room.run_with(&http, &found, &open, clock, &log);
    assert_eq!(delivery, ReportDelivery::Said);
    assert!(http.requests().is_empty(), "a machine without a network sent a request");
    let messages = heard(&medium, place);
    (outcome, messages)
}

#[test]
fn a_machine_without_a_network_installs_the_image_of_its_medium_and_says_each_step() {
    let image = bootable_image(4 * MIB, 512);
    for place in ["", "task/"] {
        let (room, clock) = (Room::new(&[14, 14]), VirtualClock::default());
        let (outcome, messages) = install(&room, place, medium(place, volume(&image, &image)), &clock);
        assert_eq!(outcome, Outcome::Success);
        let done = |step| Message::Done(step);
        let expected = [
            Message::Started,
            done(BeaconStep::Partition),
            done(BeaconStep::Image),
            done(BeaconStep::Loader),
            Message::Success,
        ];
        assert_eq!(messages, expected);
        assert!(room.bytes("sda")[MIB as usize..3 * MIB as usize] == image[MIB as usize..3 * MIB as usize]);
        assert!(room.is_untouched("sdb"));
        let second = clock.pauses().iter().filter(|pause| **pause == Duration::from_secs(1)).count();
        assert!(second >= 6 * 5, "reads are a second apart: {second}");
    }
}

/// The controller serves the medium: while it is away, a message is read by nothing.
#[test]
fn a_success_that_could_not_be_said_is_said_again_until_the_medium_is_read_for_half_an_hour() {
    let image = bootable_image(4 * MIB, 512);
    let plain = medium("", volume(&image, &image));
    install(&Room::new(&[14]), "", plain.clone(), &VirtualClock::default());
    // Started, three steps, and the success twice.
    let each = plain.asked.load(Ordering::SeqCst) / 6;
    for (unheard, said, minutes) in [(0, 6, 0..2), (20, 6 + 20, 5..30), (u32::MAX / each / 2, 6, 29..32)] {
        let cut = medium("", volume(&image, &image));
        *cut.unheard.lock().unwrap() = 4 * each..(4 + unheard) * each;
        let clock = VirtualClock::default();
        let (outcome, messages) = install(&Room::new(&[14]), "", cut.clone(), &clock);
        assert_eq!(outcome, Outcome::Success);
        assert_eq!(messages.contains(&Message::Success), minutes.start < 29, "{unheard}: {messages:?}");
        assert!(minutes.contains(&(clock.elapsed().as_secs() / 60)), "{unheard}: {:?}", clock.elapsed());
        assert!(cut.asked.load(Ordering::SeqCst) >= said * each, "{unheard}");
    }
}

#[test]
fn a_blob_with_another_digest_on_the_medium_is_said_as_a_damaged_image() {
    let image = bootable_image(4 * MIB, 512);
    let mut other = image.clone();
    let last = other.len() - 1;
    other[last] ^= 1;
    let room = Room::new(&[14]);
    let (outcome, messages) =
        install(&room, "", medium("", volume(&image, &other)), &VirtualClock::default());
    assert!(
        matches!(outcome, Outcome::Failed { ref message, .. } if message.contains("hashes to")),
        "{outcome:?}"
    );
    assert_eq!(
        messages.last(),
        Some(&Message::Failed { step: BeaconStep::Image, class: Some(Class::Image) })
    );
}

#[test]
fn a_medium_that_vanishes_is_waited_for_and_after_ten_minutes_it_is_the_reason() {
    let image = bootable_image(4 * MIB, 512);
    let (room, clock) = (Room::new(&[14]), VirtualClock::default());
    let short = medium("", volume(&image, &image));
    short.away.store(5, Ordering::SeqCst);
    assert_eq!(install(&room, "", short, &clock).0, Outcome::Success);
    let gone = medium("", volume(&image, &image));
    gone.away.store(u32::MAX, Ordering::SeqCst);
    let (outcome, messages) = install(&room, "", gone, &VirtualClock::default());
    assert!(
        matches!(outcome, Outcome::Failed { ref message, .. } if message.contains("no medium found")),
        "{outcome:?}"
    );
    assert_eq!(
        messages.last(),
        Some(&Message::Failed { step: BeaconStep::Image, class: Some(Class::Medium) })
    );
}

/// Opens the volume of a medium. Returns where its beacon is or why there is none, and the pauses.
fn opened(medium: &FakeMedium) -> (Result<u64, String>, Vec<Duration>) {
    let found = read_medium("sr0", Arc::clone(&medium.image)).unwrap().remove(0);
    let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
    let open = |_: &FoundTask| medium.reopen();
    let volume = super::volume(&open, &found, &clock, &log);
    (volume.and_then(|volume| volume.unwrap().beacon()), clock.pauses())
}

#[test]
fn reads_that_fail_while_the_volume_is_opened_are_tried_again_whichever_they_are() {
    let image = bootable_image(4 * MIB, 512);
    let medium = medium("task/", volume(&image, &image));
    let (whole, pauses) = opened(&medium);
    assert!(whole.is_ok() && pauses.is_empty());
    let reads = medium.reads.load(Ordering::SeqCst);
    for broken in 0..reads {
        medium.reads.store(0, Ordering::SeqCst);
        medium.broken.store(broken, Ordering::SeqCst);
        let (beacon, pauses) = opened(&medium);
        assert_eq!(beacon, whole, "read {broken} of {reads}");
        assert!((1..=2).contains(&pauses.len()), "read {broken}: {pauses:?}");
    }
}

#[test]
fn a_medium_that_cannot_be_opened_is_given_up_after_ten_minutes_and_one_without_an_os_image_at_once() {
    let recipe =
        json!({"task_target": "install-image.target", "oci_url": "c.test:1/a:1", "delivery": "media"});
    let job = job_json("SN1", "2026-01-02T03:04:05Z");
    let image = crate::test_kit::task_image(&job, "", &[("recipe.json", recipe.to_string().as_bytes())]);
    let empty = FakeMedium { image: Arc::new(image), ..medium("", volume(b"", b"")) };
    let (refused, pauses) = opened(&empty);
    assert!(refused.is_err_and(|reason| reason.contains("os-image.000")) && pauses.is_empty());
    empty.away.store(u32::MAX, Ordering::SeqCst);
    let (refused, pauses) = opened(&empty);
    assert!(refused.is_err_and(|reason| reason.contains("no medium found")));
    assert!(pauses.iter().sum::<Duration>() > Duration::from_secs(500), "{pauses:?}");
}
