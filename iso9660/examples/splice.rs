//! Adds files to an image, under `/task`: `cargo run --release -p iso9660 --example splice -- IMAGE NEW FILE...`.
//!
//! Prints the other changes, the time of planning and the number of bytes that it read from the original. Without
//! arguments it measures planning over a synthetic image of more than four gibibytes with thousands of directories.
#![allow(clippy::print_stdout, reason = "a program prints its results")]

use std::error::Error;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iso9660::{
    Content, FileSource, ImageOptions, ImagePlan, Profile, ReadAt, Splice, SpliceOptions, Spliced, Tree,
};

/// Zeros of any length.
struct Zeros(u64);

impl ReadAt for Zeros {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, _: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() {
        return measure();
    }
    let [image, new, files @ ..] = arguments.as_slice() else {
        return Err("pass an image, the path of the new image, and files".into());
    };
    let mut added: Vec<(&str, Content)> = Vec::new();
    for path in files {
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).ok_or("a file has a name")?;
        added.push((name, Content::source(FileSource::open(path)?)));
    }
    let (spliced, took) = plan(Arc::new(FileSource::open(image)?), &added)?;
    println!("planned in {took:?}, {} bytes of the original read", spliced.bytes_read);
    for note in &spliced.notes {
        println!("{note}");
    }
    spliced.plan.write_to(&mut File::create(new)?)?;
    Ok(())
}

fn plan(source: Arc<dyn ReadAt>, files: &[(&str, Content)]) -> Result<(Spliced, Duration), Box<dyn Error>> {
    let begin = Instant::now();
    let spliced = Splice::plan(source, files, &SpliceOptions::new(0))?;
    Ok((spliced, begin.elapsed()))
}

fn measure() -> Result<(), Box<dyn Error>> {
    let mut tree = Tree::new();
    tree.add_file("install.wim", Content::source(Zeros(4_400_000_000)))?;
    for index in 0..3000 {
        tree.add_file(&format!("pool/{}/package-{index}/file", index % 26), "x")?;
    }
    let original: Arc<dyn ReadAt> =
        Arc::new(ImagePlan::new(&tree, &ImageOptions::new(Profile::Tree, "LARGE", 0))?);
    let files: Vec<(&str, Content)> =
        ["job.json", "recipe.json", "recipe.schema.json", "user-data"].map(|name| (name, name.into())).into();
    let mut runs = (0..101).map(|_| plan(Arc::clone(&original), &files)).collect::<Result<Vec<_>, _>>()?;
    runs.sort_by_key(|(_, took)| *took);
    let (spliced, median) = &runs[50];
    println!(
        "original of {} bytes: planned in {median:?} (median of 101), {} bytes of it read; aim 5 ms",
        original.len(),
        spliced.bytes_read
    );
    Ok(())
}
