//! What `qemu-img` writes is read as `qemu-img` reads it. Debian: qemu-utils.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use disk_file::{Form, Qcow2, pack, unpacked};

/// Runs a program of QEMU. A program that is missing is a failure.
fn qemu(program: &str, arguments: &[&str]) {
    let ran = Command::new(program).args(arguments).output().expect("qemu-utils is installed");
    assert!(ran.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A disk with text, with noise, with zeros in between, and with `odd` sectors more than whole clusters.
fn disk(folder: &Path, odd: u64) -> PathBuf {
    let path = folder.join("disk.raw");
    let mut file = File::create(&path).unwrap();
    let mut state = 7_u64;
    for part in 0..40_u64 {
        let block: Vec<u8> = (0..100_000_u64)
            .map(|at| match part % 4 {
                0 => 0,
                1 => b"The quick brown fox "[usize::try_from(at % 20).unwrap()],
                2 => (at >> 9) as u8,
                _ => {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                }
            })
            .collect();
        file.write_all(&block).unwrap();
    }
    file.set_len((16 << 20) + odd * 512).unwrap();
    path
}

fn content(image: &Path) -> Vec<u8> {
    let mut disk = Qcow2::open(File::open(image).unwrap()).unwrap();
    let mut content = Vec::new();
    disk.read_to_end(&mut content).unwrap();
    assert_eq!(content.len() as u64, disk.disk_bytes());
    content
}

#[test]
#[ignore = "runs qemu-img"]
fn what_qemu_img_converts_is_the_disk_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk.qcow2");
    for odd in [0, 3] {
        let raw = disk(folder.path(), odd);
        let expected = fs::read(&raw).unwrap();
        for options in [
            &[][..],
            &["-c"],
            &["-o", "compat=0.10"],
            &["-c", "-o", "compat=0.10"],
            &["-c", "-o", "compression_type=zstd"],
            &["-o", "cluster_size=512"],
            &["-c", "-o", "cluster_size=4k"],
            &["-o", "cluster_size=2M"],
            &["-c", "-o", "cluster_size=2M,compression_type=zstd"],
            &["-o", "preallocation=metadata"],
            &["-o", "preallocation=full"],
            &["-o", "lazy_refcounts=on"],
            &["-o", "refcount_bits=1"],
        ] {
            let places = ["-f", "raw", "-O", "qcow2", text(&raw), text(&image)];
            qemu("qemu-img", &[&["convert"], options, &places].concat());
            assert_eq!(Form::of(&fs::read(&image).unwrap()[..512]), Ok(Form::Qcow2));
            assert!(content(&image) == expected, "{odd} odd sectors, {options:?}");
        }
    }
}

#[test]
#[ignore = "runs qemu-img"]
fn a_disk_that_was_written_zeroed_grown_and_saved_in_between_is_read_as_it_is_now() {
    let folder = tempfile::tempdir().unwrap();
    let (image, raw) = (folder.path().join("disk.qcow2"), folder.path().join("disk.raw"));
    for compat in ["compat=0.10", "compat=1.1"] {
        qemu("qemu-img", &["create", "-q", "-f", "qcow2", "-o", compat, text(&image), "700M"]);
        let commands = [
            "write -P 7 1M 5M",
            "write -P 9 3000 70000",
            "write -z 2M 1M",
            "discard 4M 1M",
            "write -P 1 699M 1M",
        ];
        for command in commands {
            qemu("qemu-io", &["-f", "qcow2", "-c", command, text(&image)]);
        }
        qemu("qemu-img", &["snapshot", "-c", "before", text(&image)]);
        qemu("qemu-io", &["-f", "qcow2", "-c", "write -P 5 1M 64k", text(&image)]);
        if compat == "compat=1.1" {
            // QEMU does not grow a version 2 that has snapshots.
            qemu("qemu-img", &["resize", "-q", text(&image), "+3M"]);
        }
        qemu("qemu-img", &["convert", "-O", "raw", text(&image), text(&raw)]);
        assert!(content(&image) == fs::read(&raw).unwrap(), "{compat}");
    }
    let mut packed = Vec::new();
    let packing = pack(Qcow2::open(File::open(&image).unwrap()).unwrap(), &mut packed, &mut |_| ()).unwrap();
    assert_eq!(packing.bytes, 703 << 20);
    assert!(packed.len() < 200_000, "{} bytes", packed.len());
    let mut back = Vec::new();
    unpacked(&packed[..]).unwrap().read_to_end(&mut back).unwrap();
    assert!(back == fs::read(&raw).unwrap());
}

#[test]
#[ignore = "runs qemu-img"]
fn an_image_whose_content_is_elsewhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (image, base) = (folder.path().join("disk.qcow2"), folder.path().join("base.qcow2"));
    qemu("qemu-img", &["create", "-q", "-f", "qcow2", text(&base), "4M"]);
    let data = format!("data_file={}", text(&folder.path().join("data.raw")));
    for (options, word) in [
        (&["-b", text(&base), "-F", "qcow2"][..], "backing file"),
        (&["-o", &data], "external data file"),
        (&["-o", "extended_l2=on"], "extended L2"),
        (
            &["--object", "secret,id=s,data=word", "-o", "encrypt.format=aes,encrypt.key-secret=s"],
            "encrypted",
        ),
    ] {
        qemu("qemu-img", &[&["create", "-q", "-f", "qcow2"], options, &[text(&image), "4M"]].concat());
        let refused = Qcow2::open(File::open(&image).unwrap()).err().expect(word).to_string();
        assert!(refused.contains(word), "{refused}");
    }
}
