//! Writes a directory as an image: `cargo run --release -p iso9660 --example build -- DIRECTORY IMAGE [LABEL]`.
//!
//! The image depends on nothing but the names, contents and executable bits of the directory, so that two runs agree.

use std::error::Error;
use std::fs::File;

use iso9660::{Options, Plan, Profile, Tree};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(image)) = (arguments.next(), arguments.next()) else {
        return Err("give a directory, an image and perhaps a label".into());
    };
    let label = arguments.next().unwrap_or_else(|| "SHOAL".to_owned());
    let plan = Plan::new(&Tree::from_directory(directory)?, &Options::new(Profile::Tree, label, 0))?;
    let file = File::create(image)?;
    plan.write_to_file(&file)?;
    Ok(())
}
