//! Layers that try to leave the new root, to write devices or to exhaust the machine, through the whole installation: the step that
//! fails, its class and the words of the report.

use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use tar::{EntryType, Header};

use super::*;

/// A layer of raw headers, without the checks of the tar library.
#[derive(Default)]
struct Raw(Vec<u8>);

impl Raw {
    fn member(self, kind: EntryType, path: &str, target: &str) -> Self {
        self.with(kind, path, |header| {
            header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        })
    }

    fn device(self, path: &str, major: u32, minor: u32) -> Self {
        self.with(EntryType::Char, path, |header| {
            header.set_device_major(major).unwrap();
            header.set_device_minor(minor).unwrap();
        })
    }

    fn with(mut self, kind: EntryType, path: &str, change: impl FnOnce(&mut Header)) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o666);
        header.set_size(0);
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        change(&mut header);
        header.set_cksum();
        self.0.extend(header.as_bytes());
        self
    }
}

/// The last report that the controller received.
fn last_report(http: &FakeHttp) -> Value {
    let mut reports = http.requests().into_iter().filter(|request| request.url.contains("status-webhook"));
    serde_json::from_slice(&reports.next_back().unwrap().body).unwrap()
}

/// Installs a system with this last layer. Returns the outcome and the last report.
fn install_with(host: &FakeHost, last: Vec<u8>) -> (Outcome, Value) {
    let (_folder, disk) = sparse_disk();
    let http = controller(vec![layer(SYSTEM), layer(LOADER), last]);
    let outcome = install(host, &facts(), &disk, &http, &recipe());
    (outcome, last_report(&http))
}

/// Installs a system with a last layer that must be refused in these words, and that leaves nothing that a second run would keep.
fn assert_refused(host: &FakeHost, last: Vec<u8>, words: &str) {
    let (outcome, report) = install_with(host, last);
    assert_eq!(failure(outcome), ("image-linux.service".to_owned(), words.to_owned()));
    assert_eq!(
        [&report["status"], &report["failed_step"], &report["class"], &report["message"]],
        [&json!("failed"), &json!("image-linux.service"), &json!("installer"), &json!(words)]
    );
    assert!(report["log"].as_str().unwrap().contains(words), "{report}");
    assert!(!host.has("var/lib/shoal/installed.json"), "a second run would keep this system");
}

#[test]
fn a_layer_that_leaves_the_new_root_fails_its_step_in_words_and_changes_nothing_outside() {
    let host = FakeHost::new(true);
    let outside = host.folder.path().join("outside");
    let text = outside.to_str().unwrap().to_owned();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "untouched").unwrap();
    let (file, link, hard) = (EntryType::Regular, EntryType::Symlink, EntryType::Link);
    for (last, what) in [
        (
            Raw::default().member(file, "../outside/file", ""),
            "applying \"../outside/file\": the path climbs out by \"..\"",
        ),
        (
            Raw::default().member(link, "l", &text).member(file, "l/file", ""),
            "applying \"l/file\": the path leads through a link to what does not exist in the new system",
        ),
        (
            Raw::default().member(link, "l", "l").member(file, "l/file", ""),
            "applying \"l/file\": the path leads through links that never end, or through more than forty",
        ),
        (
            Raw::default().member(hard, "h", "../outside/file"),
            "applying \"h\": it is a hard link to \"../outside/file\": the path climbs out by \"..\"",
        ),
        (
            Raw::default().member(link, "l", &text).member(hard, "h", "l/file"),
            "applying \"h\": it is a hard link to \"l/file\": that does not exist",
        ),
        (Raw::default().member(file, "l/.wh...", ""), "applying \"l/.wh...\": a whiteout names no file"),
    ] {
        assert_refused(&host, last.0, &format!("{what}; build the image again without this member"));
        let (files, links) =
            (fs::read_dir(&outside).unwrap().count(), fs::metadata(outside.join("file")).unwrap().nlink());
        assert_eq!((files, links, host.read("../outside/file").as_str()), (1, 1, "untouched"), "{what}");
    }
}

#[test]
fn an_archive_that_claims_too_much_fails_its_step_in_words_before_it_is_read() {
    let bomb = Raw::default().with(EntryType::XHeader, "x", |header| header.set_size(8 << 30));
    let gnu = Raw::default().with(EntryType::GNULongName, "x", |header| header.set_size(8 << 30));
    // A number of more digits than its field is stored in binary.
    let number = Raw::default().with(EntryType::Block, "dev/sda", |header| {
        header.as_mut_bytes()[329..337].copy_from_slice(&[0x80, 0, 0, 1, 0, 0, 0, 0]);
    });
    let unknown = Raw::default().with(EntryType::new(b'Z'), "x", |_| ());
    for (last, what) in [
        (bomb, "the extensions of a member are longer than 1 MiB"),
        (gnu, "the extensions of a member are longer than 1 MiB"),
        (number, "a device is out of range"),
        (unknown, "members of type 'Z' are not supported"),
    ] {
        for packed in [last.0.clone(), gzip(&last.0[..])] {
            let words = format!("reading the layer: tar: {what}; build the image again");
            assert_refused(&FakeHost::new(true), packed, &words);
        }
    }
}

fn gzip(content: impl std::io::Read) -> Vec<u8> {
    let mut packed = Vec::new();
    flate2::read::GzEncoder::new(content, flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
    packed
}

/// A device of the image may be a disk of the machine.
#[test]
fn devices_in_the_places_of_files_are_replaced_by_what_the_agent_writes_and_never_written_or_read() {
    let places = [
        "etc/fstab",
        "etc/machine-id",
        "boot/efi/EFI/BOOT/BOOTX64.EFI",
        "boot/grub/grub.cfg",
        "var/lib/shoal/installed.json",
        "var/lib/cloud/seed/nocloud/user-data",
        "var/log/shoal-install/agent.log",
    ];
    // Every write to it fails: `/dev/full`.
    let full = places.into_iter().fold(Raw::default(), |layer, place| layer.device(place, 1, 7));
    let host = FakeHost::new(true);
    let (outcome, report) = install_with(&host, full.0);
    if !host.is_privileged() {
        // Only root makes devices.
        assert_eq!(report["failed_step"], "image-linux.service", "{report}");
        return;
    }
    assert_eq!(outcome, Outcome::Success);
    for place in places {
        assert!(fs::symlink_metadata(host.root().join(place)).unwrap().is_file(), "{place}");
    }
    // A device that returns zeros without end, in the places of shim and of GRUB: `/dev/zero`.
    for (place, step, words) in [
        ("usr/lib/shim/shimx64.efi.signed", "", ""),
        (
            "usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed",
            "bootloader-linux.service",
            "no boot loader for UEFI",
        ),
    ] {
        let host = FakeHost::new(true);
        let (outcome, report) = install_with(&host, Raw::default().device(place, 1, 5).0);
        assert!(fs::symlink_metadata(host.root().join(place)).unwrap().file_type().is_char_device());
        match step {
            "" => assert_eq!(outcome, Outcome::Success, "GRUB starts without shim"),
            _ => {
                assert_eq!((failure(outcome).0.as_str(), &report["class"]), (step, &json!("installer")));
                assert!(report["message"].as_str().unwrap().contains(words), "{report}");
            }
        }
    }
}

/// The new root as a file system of its own, with little room.
pub(super) struct SmallRoot(PathBuf);

impl SmallRoot {
    pub(super) fn mount(root: &Path) -> Self {
        let flags = rustix::mount::MountFlags::NODEV;
        rustix::mount::mount("none", root, "tmpfs", flags, c"size=4m,nr_inodes=200").unwrap();
        Self(root.to_owned())
    }
}

impl Drop for SmallRoot {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
#[ignore = "needs root; run by .ci/run"]
fn a_layer_that_unpacks_to_more_than_the_volume_takes_fails_its_step_in_words() {
    let zeros = Raw::default().with(EntryType::Regular, "zeros", |header| header.set_size(1 << 30));
    let zeros = gzip(std::io::Read::chain(&zeros.0[..], std::io::repeat(0).take(64 << 20)));
    let many: Vec<u8> = (0..1000)
        .fold(Raw::default(), |layer, number| layer.member(EntryType::Regular, &format!("d/{number}"), ""))
        .0;
    let many = gzip(&many[..]);
    assert!(zeros.len() < 1 << 20 && many.len() < 1 << 16, "each is small while it is packed");
    for (last, name) in [(zeros, "zeros"), (many, "d/")] {
        // The file systems are made before: they stay what is mounted here.
        let host = FakeHost { root_label: "none".to_owned(), ..FakeHost::new(true) };
        let _small = SmallRoot::mount(host.root());
        let (outcome, report) = install_with(&host, last);
        let (step, words) = failure(outcome);
        assert_eq!(
            (step.as_str(), &report["class"]),
            ("image-linux.service", &json!("installer")),
            "{words}"
        );
        assert!(words.starts_with(&format!("applying \"{name}")), "{words}");
        let end = ": No space left on device (os error 28); the file system is full: use a larger partition";
        assert!(words.ends_with(end), "{words}");
        assert!(!host.has("var/lib/shoal/installed.json"), "a second run would keep this system");
    }
}
