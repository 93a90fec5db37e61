//! Adds files to an image: `splice IN.iso OUT.iso FILE...`, the files under `/task`.
//!
//! Prints what was changed besides, how long planning took and how much of the original it read.
#![allow(clippy::print_stdout, reason = "it is a program")]

use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use iso9660::{Content, FileSource, ReadAt, Splice, SpliceOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, files @ ..] = arguments.as_slice() else {
        return Err("give the original image, the new one, and files".into());
    };
    let mut added: Vec<(String, Content)> = Vec::new();
    for path in files {
        let name = Path::new(path).file_name().and_then(|name| name.to_str()).ok_or("a file has a name")?;
        added.push((name.to_owned(), Content::source(FileSource::open(path)?)));
    }
    let source: Arc<dyn ReadAt> = Arc::new(FileSource::open(from)?);
    let begin = Instant::now();
    let spliced = Splice::plan(source, &added, &SpliceOptions::new(0))?;
    let took = begin.elapsed();
    println!("planned in {took:?}, {} bytes of the original read", spliced.bytes_read);
    for note in &spliced.notes {
        println!("{note}");
    }
    let mut output = BufWriter::new(std::fs::File::create(to)?);
    spliced.plan.write_to(&mut output)?;
    output.flush()?;
    Ok(())
}
