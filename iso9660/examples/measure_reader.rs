//! What the reader costs on images with 100,000 files. `cargo run --release -p iso9660 --example measure_reader`
//!
//! Two images, in a thousand directories and in one, are written to temporary files; then every namespace is opened and
//! timed. Memory is the growth of the process' peak, which the kernel counts.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints, and ends when it cannot go on"
)]

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::time::Instant;

use iso9660::{FileSource, Image, Limits, Namespace, Options, Plan, Profile, Tree};

const FILES: usize = 100_000;
const REPEATS: u32 = 20;

fn main() {
    let directory = std::env::temp_dir().join(format!("measure-reader-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let layouts: [(&str, fn(usize) -> String); 2] = [
        ("1,000 directories", |number| format!("d{:03}/file-{:05}.txt", number / 100, number)),
        ("one directory", |number| format!("file-{number:05}.txt")),
    ];
    for (name, path) in layouts {
        let image = directory.join("many.iso");
        let mut tree = Tree::new();
        (0..FILES).for_each(|number| drop(tree.add_file(&path(number), vec![b'x'; number % 640]).unwrap()));
        let plan = Plan::new(&tree, &Options::new(Profile::Task, "MANY", 0)).unwrap();
        plan.write_to(&mut File::create(&image).unwrap()).unwrap();
        drop((plan, tree));
        for namespace in [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain] {
            measure(&format!("{name}, {namespace}"), &image, namespace, &path(FILES * 2 / 3));
        }
    }
    fs::remove_dir_all(&directory).unwrap();
}

fn measure(name: &str, path: &std::path::Path, namespace: Namespace, wanted: &str) {
    let open = || {
        let source = FileSource::open(path).unwrap();
        Image::open_with(source, Some(namespace), Limits::default()).unwrap()
    };
    reset_peak();
    let before = status("VmRSS:");
    let start = Instant::now();
    open().lookup(wanted).unwrap();
    let first = start.elapsed();
    let memory = status("VmHWM:").saturating_sub(before);
    let image = open();
    image.lookup(wanted).unwrap();
    let start = Instant::now();
    (0..REPEATS).for_each(|_| drop(image.lookup(wanted).unwrap()));
    let again = start.elapsed() / REPEATS;
    let (mut best, mut count) = (u128::MAX, 0);
    for _ in 0..5 {
        let start = Instant::now();
        count = 0;
        image
            .walk(|_, _| {
                count += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        best = best.min(start.elapsed().as_micros());
    }
    println!(
        "{name}: open and look up {} us, {memory} KiB; again {} us; walk of {count} entries {}.{:03} ms",
        first.as_micros(),
        again.as_micros(),
        best / 1000,
        best % 1000,
    );
}

/// A line of the kernel's status of this process, in KiB.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Lets the peak begin again at what is in use now.
fn reset_peak() {
    fs::write("/proc/self/clear_refs", "5").unwrap();
}
