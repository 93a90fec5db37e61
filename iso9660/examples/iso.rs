//! Builds, lists, reads, checks and extracts images with the arguments of `shoal iso`: the process that `.ci/bench-iso`
//! measures.
//!
//! ```text
//! iso build DIRECTORY -o IMAGE      iso ls -R IMAGE      iso cat IMAGE PATH      iso check IMAGE
//! iso extract IMAGE -o DIRECTORY
//! ```
//!
//! The image depends only on the names, contents and executable bits of the directory, so two runs give equal images.

use std::error::Error;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use iso9660::{
    CheckOptions, ExtractEvent, ExtractOptions, FileSource, Image, ImageOptions, ImagePlan, Profile, ReadAt,
    Tree,
};

/// The number of bytes that are held at once.
const PIECE: u64 = 256 * 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["build", directory, "-o", image] => build(directory, image),
        ["ls", "-R", image] => list(image),
        ["cat", image, path] => cat(image, path),
        ["check", image] => check(image),
        ["extract", image, "-o", directory] => extract(image, directory),
        _ => Err("give `build DIRECTORY -o IMAGE`, `ls -R IMAGE`, `cat IMAGE PATH`, `check IMAGE` or \
             `extract IMAGE -o DIRECTORY`"
            .into()),
    }
}

fn build(directory: &str, image: &str) -> Result<(), Box<dyn Error>> {
    let plan =
        ImagePlan::new(&Tree::from_directory(directory)?, &ImageOptions::new(Profile::Tree, "SHOAL", 0))?;
    plan.write_durably(&File::create(image)?, |_| {})?;
    Ok(())
}

fn list(image: &str) -> Result<(), Box<dyn Error>> {
    let mut output = BufWriter::new(io::stdout().lock());
    let mut failed = Ok(());
    Image::open(FileSource::open(image)?)?.walk(|path, _| {
        failed = writeln!(output, "{path}");
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed?;
    Ok(output.flush()?)
}

fn cat(image: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let file = Image::open(FileSource::open(image)?)?.open_file(path)?;
    let mut output = io::stdout().lock();
    let mut offset = 0;
    while offset < file.len() {
        let mut piece = vec![0; usize::try_from((file.len() - offset).min(PIECE))?];
        file.read_exact_at(offset, &mut piece)?;
        output.write_all(&piece)?;
        offset += piece.len() as u64;
    }
    Ok(())
}

fn check(image: &str) -> Result<(), Box<dyn Error>> {
    let report = iso9660::check(&FileSource::open(image)?, &CheckOptions::default())?;
    Ok(writeln!(io::stdout(), "{report}")?)
}

fn extract(image: &str, directory: &str) -> Result<(), Box<dyn Error>> {
    let mut messages = io::stderr().lock();
    let image = Image::open(FileSource::open(image)?)?;
    let done = image.extract("/", directory, &ExtractOptions::default(), |event| {
        if let ExtractEvent::Skipped { path, reason } = event {
            // A closed standard error does not end the extraction.
            let _closed = writeln!(messages, "skipped {path}: {reason}");
        }
    })?;
    if done.missing > 0 {
        return Err(format!("{} entries were not extracted", done.missing).into());
    }
    Ok(())
}
