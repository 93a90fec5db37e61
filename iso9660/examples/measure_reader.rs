//! Measures the reader on images with 100,000 files. `cargo run --release -p iso9660 --example measure_reader`
//!
//! Two images, one with a thousand directories and one with a single directory, are written to temporary files. Then
//! every namespace is opened and timed. The processor time of the kernel excludes other work on the machine.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints, and ends when it cannot go on"
)]

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::time::Duration;

use iso9660::{Entry, FileSource, Image, ImageOptions, ImagePlan, Namespace, Profile, ReadLimits, Tree};

/// A layout: its name, and the path of a file in it.
type Layout = (&'static str, fn(usize) -> String);

const FILES: usize = 100_000;
const REPEATS: u32 = 200;

fn main() {
    let directory = std::env::temp_dir().join(format!("measure-reader-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let layouts: [Layout; 2] = [
        ("1,000 directories", |number| format!("d{:03}/file_{:05}.txt", number / 100, number)),
        ("one directory", |number| format!("file_{number:05}.txt")),
    ];
    for (name, path) in layouts {
        let image = directory.join("many.iso");
        let mut tree = Tree::new();
        for number in 0..FILES {
            tree.add_file(&path(number), vec![b'x'; number % 640]).unwrap();
        }
        let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "MANY", 0)).unwrap();
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
        Image::open_with(source, Some(namespace), ReadLimits::default()).unwrap()
    };
    // The kernel counts milliseconds, so one lookup is too short to be measured.
    let first = time(|| (0..REPEATS).for_each(|_| drop(open().lookup(wanted).unwrap()))) / REPEATS;
    let image = open();
    let again = time(|| (0..REPEATS).for_each(|_| drop(image.lookup(wanted).unwrap()))) / REPEATS;
    let mut count = 0;
    let walks = (0..5).map(|_| {
        count = 0;
        time(|| {
            let visit = |_: &str, _: &Entry| {
                count += 1;
                ControlFlow::Continue(())
            };
            image.walk(visit).unwrap();
        })
    });
    let best = walks.min().unwrap();
    println!("{name}: open and look up {first:.1?}; again {again:.1?}; walk of {count} entries {best:.1?}");
}

/// Returns the processor time of a task.
fn time(work: impl FnOnce()) -> Duration {
    let used = || {
        let counters = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        Duration::from_nanos(counters.split_whitespace().next().unwrap().parse().unwrap())
    };
    let start = used();
    work();
    used() - start
}
