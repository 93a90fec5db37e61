//! Measures the crate inside a process, on one core: `cargo bench -p iso9660`. Prints results and never fails on them.
//!
//! ```text
//! task         measured        aim    ratio        a ratio of 1 or less is within the aim
//! ```
//!
//! `.ci/bench-iso` measures whole processes and other programs. `BENCH_LONG=1` repeats more often; the median of all
//! repetitions is shown.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failure ends the measurement; its output is a table"
)]

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use iso9660::{
    Content, Entry, FileSource, Image, ImageOptions, ImagePlan, Namespace, Profile, ReadAt, ReadLimits,
    SegmentData, Splice, SpliceOptions, Tree,
};
use sha2::{Digest, Sha256};

const EPOCH: i64 = 1_700_000_000;
/// 1,000 directories of 100 files.
const DIRECTORIES: usize = 1_000;
const FILES: usize = 100;

/// The path of the last file of the large image.
const LAST: &str = "dir0999/file099.json";
const NAMESPACES: [Namespace; 3] = [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain];
/// The argument that makes this program a probe.
const PROBE: &str = "--probe-memory";

/// A sink that hashes.
struct Hash(Sha256);

impl Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the processor time of this thread, which excludes other work on the machine.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Returns the median processor time of some repetitions, and the last result.
fn median<T>(repetitions: usize, mut task: impl FnMut() -> T) -> (Duration, T) {
    let mut outcome = task();
    let mut times: Vec<Duration> = (0..repetitions)
        .map(|_| {
            let start = processor_time();
            outcome = black_box(task());
            processor_time() - start
        })
        .collect();
    times.sort_unstable();
    (times[times.len() / 2], outcome)
}

fn row(task: &str, measured: f64, unit: &str, aim: f64, ratio: f64) {
    println!("{task:<52} {measured:>10.2} {unit:<6} {aim:>9.1} {ratio:>7.2}");
}

fn milliseconds(task: &str, time: Duration, aim: f64) {
    let measured = time.as_secs_f64() * 1e3;
    row(task, measured, "ms", aim, measured / aim);
}

/// Returns the peak memory of this process in KiB, or 0 where the system does not provide it.
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Returns the memory in MiB that a probe takes above that of its process. It runs in a separate process, where no
/// freed memory can be reused.
fn memory(probe: &[&str]) -> f64 {
    let output = Command::new(std::env::current_exe().unwrap()).arg(PROBE).args(probe).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse::<f64>().unwrap() / 1024.0
}

/// The task of a probe process for [`memory`].
fn probe(arguments: &[String]) {
    let (before, kept);
    if let [image, namespace] = arguments {
        let namespace = NAMESPACES.into_iter().find(|known| known.to_string() == *namespace);
        before = peak();
        kept = open(image, namespace.unwrap()).read(LAST, 1 << 20).unwrap().len() as u64;
    } else {
        let tree = many_tree();
        before = peak();
        kept = ImagePlan::new(&tree, &many_options()).unwrap().len();
    }
    assert!(kept > 0);
    println!("{}", peak() - before);
}

/// Writes a sparse file with an image of one file of almost 4 GiB.
fn sparse_image(path: &Path) {
    /// Zeros that are never read.
    struct Zeros;
    impl ReadAt for Zeros {
        fn len(&self) -> u64 {
            (4 << 30) - (4 << 20)
        }

        fn read_exact_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
            unreachable!("only the metadata is written")
        }
    }
    let mut tree = Tree::new();
    tree.add_file("install.wim", Content::source(Zeros)).unwrap();
    let plan = ImagePlan::new(&tree, &ImageOptions::new(Profile::Tree, "SPARSE", EPOCH)).unwrap();
    let file = fs::File::create(path).unwrap();
    file.set_len(plan.len()).unwrap();
    for segment in plan.segments() {
        if let SegmentData::Bytes(bytes) = segment.data {
            file.write_all_at(bytes, segment.offset).unwrap();
        }
    }
}

fn open(image: impl AsRef<Path>, namespace: Namespace) -> Image<FileSource> {
    let source = FileSource::open(image).unwrap();
    Image::open_with(source, Some(namespace), ReadLimits::default()).unwrap()
}

/// The payloads of a task image, in shared memory as the renderer provides them.
fn task_files() -> Vec<(&'static str, Arc<[u8]>)> {
    [("recipe.json", 4096), ("schema.json", 10_240), ("user-data", 65_536), ("meta-data", 200)]
        .map(|(name, size)| (name, name.bytes().cycle().take(size).collect()))
        .into()
}

fn task_plan(files: &[(&str, Arc<[u8]>)]) -> ImagePlan {
    let mut tree = Tree::new();
    for (name, content) in files {
        tree.add_file(name, content.clone()).unwrap();
    }
    ImagePlan::new(&tree, &ImageOptions::new(Profile::Task, "TASK_0123456789A", EPOCH)).unwrap()
}

fn many_tree() -> Tree {
    let mut tree = Tree::new();
    for directory in 0..DIRECTORIES {
        for file in 0..FILES {
            let content = vec![b'x'; 64 + (directory * 31 + file * 17) % 512];
            tree.add_file(&format!("dir{directory:04}/file{file:03}.json"), content).unwrap();
        }
    }
    tree
}

fn many_options() -> ImageOptions {
    ImageOptions::new(Profile::Tree, "MANY", EPOCH)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == PROBE) {
        return probe(&arguments[1..]);
    }
    let long = std::env::var_os("BENCH_LONG").is_some();
    let (often, seldom) = if long { (2_000, 15) } else { (300, 5) };
    println!("{:<52} {:>10} {:<6} {:>9} {:>7}", "task", "measured", "", "aim", "ratio");

    let files = task_files();
    let (time, _) = median(often, || task_plan(&files).len());
    milliseconds("task image: tree built and planned", time, 1.0);
    let (time, _) = median(often, || {
        let mut hash = Hash(Sha256::new());
        task_plan(&files).write_to(&mut hash).unwrap();
        hash.0.finalize()
    });
    let rate = 1.0 / time.as_secs_f64();
    row("task image: tree built, planned, hashed (1 MiB)", rate, "/s", 1_500.0, 1_500.0 / rate);
    let zeros = vec![0_u8; 1 << 20];
    let (time, _) = median(often, || Sha256::digest(black_box(&zeros)));
    let rate = 1.0 / time.as_secs_f64();
    row("  SHA-256 of 1 MiB only, for comparison", rate, "/s", 1_500.0, 1_500.0 / rate);

    let tree = many_tree();
    let (time, _) = median(seldom, || ImagePlan::new(&tree, &many_options()).unwrap().len());
    milliseconds("100,000 files in memory: planned", time, 3_000.0);
    let peak = memory(&[]);
    row("100,000 files in memory: memory for the plan", peak, "MiB", 64.0, peak / 64.0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("many.iso");
    let plan = ImagePlan::new(&tree, &many_options()).unwrap();
    plan.write_to_file(&fs::File::create(&path).unwrap()).unwrap();
    drop((plan, tree));

    for namespace in NAMESPACES {
        let (time, count) = median(seldom, || {
            let mut count = 0_usize;
            let count_one = |_: &str, _: &Entry| {
                count += 1;
                ControlFlow::Continue(())
            };
            open(&path, namespace).walk(count_one).unwrap();
            count
        });
        assert_eq!(count, DIRECTORIES * (FILES + 1));
        milliseconds(&format!("100,000 files: everything listed, {namespace}"), time, 50.0);
        let (time, _) = median(often, || open(&path, namespace).read(LAST, 1 << 20).unwrap().len());
        milliseconds(&format!("100,000 files: opened, last one read, {namespace}"), time, 5.0);
        let peak = memory(&[path.to_str().unwrap(), &namespace.to_string()]);
        row(&format!("100,000 files: memory of this, {namespace}"), peak, "MiB", 2.0, peak / 2.0);
    }

    let path = directory.path().join("sparse.iso");
    sparse_image(&path);
    let added = [("recipe.json", Content::from("{}")), ("user-data", Content::from("#cloud-config\n"))];
    let (time, read) = median(often, || {
        let source = Arc::new(FileSource::open(&path).unwrap());
        Splice::plan(source, &added, &SpliceOptions::new(EPOCH)).unwrap().bytes_read
    });
    milliseconds("4 GiB image: opened, splice planned", time, 5.0);
    row(
        "4 GiB image: bytes read for this",
        read as f64 / 1024.0,
        "KiB",
        1_024.0,
        read as f64 / 1024.0 / 1_024.0,
    );
}
