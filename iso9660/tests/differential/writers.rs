//! Programs that write images, with options that result in different images.
//!
//! ```text
//! xorriso      Rock Ridge with and without Joliet, levels 1 to 4, neither
//! genisoimage  Rock Ridge and Joliet as above, relocated and deep directories, a UDF bridge
//! bsdtar       Rock Ridge strict and useful, Joliet short and long
//! pycdlib      Rock Ridge 1.09 and 1.12, Joliet, levels 1 to 4
//! ```

use std::path::Path;

use crate::generate::Rules;
use crate::program;
use crate::readers::pycdlib::Worker;

/// The modes and dates in Rock Ridge.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Attributes {
    /// Modes and dates of the disk.
    Kept,
    /// Modes 0444 and 0555, dates of the disk.
    Readable,
    /// Modes and dates that the program chooses.
    Own,
}

/// A program with options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub(crate) program: &'static str,
    pub(crate) arguments: &'static [&'static str],
    pub(crate) rock_ridge: Option<Attributes>,
    pub(crate) joliet: bool,
    /// The names and depths that this writer represents without change.
    pub(crate) rules: Rules,
}

/// Names for both trees.
const BOTH: Rules = Rules { name: 64, path: 600, any_character: false, links: true, depth: 7 };
/// Names for both trees with paths within the Joliet limit, beyond which xorriso omits files by default.
const SHORT: Rules = Rules { path: 118, ..BOTH };
/// Names for Joliet beyond the limit of its specification.
const LONG: Rules = Rules { name: 103, ..BOTH };
/// Names for Rock Ridge only.
const ROCK: Rules = Rules { name: 200, path: 600, any_character: true, links: true, depth: 10 };
/// Names for Joliet only, which has no links.
const JOLIET: Rules = Rules { links: false, depth: 6, ..LONG };
/// Names without continuation areas: bsdtar 3.6.2 crashes while it writes some of those.
const INLINE: Rules = Rules { name: 100, ..ROCK };
/// Names for a tree without extensions.
const PLAIN: Rules = Rules { name: 60, path: 600, any_character: false, links: false, depth: 6 };

const fn writer(
    program: &'static str,
    arguments: &'static [&'static str],
    rock_ridge: Option<Attributes>,
    joliet: bool,
    rules: Rules,
) -> Writer {
    Writer { program, arguments, rock_ridge, joliet, rules }
}

/// Every program with every set of options.
pub(crate) const WRITERS: [&[Writer]; 4] = [
    &[
        writer("xorriso", &["-R", "-J", "-joliet-long"], Some(Attributes::Kept), true, LONG),
        writer("xorriso", &["-r", "-J"], Some(Attributes::Readable), true, SHORT),
        writer("xorriso", &["-R"], Some(Attributes::Kept), false, ROCK),
        writer("xorriso", &["-R", "-iso-level", "1"], Some(Attributes::Kept), false, ROCK),
        writer("xorriso", &["-R", "-iso-level", "4"], Some(Attributes::Kept), false, ROCK),
        writer("xorriso", &["-R", "-untranslated-filenames"], Some(Attributes::Kept), false, ROCK),
        writer("xorriso", &["--norock", "-J", "-joliet-long", "-iso-level", "2"], None, true, JOLIET),
        writer("xorriso", &["--norock", "-iso-level", "3"], None, false, PLAIN),
        writer("xorriso", &["-R", "-J", "-joliet-long", "-no-pad"], Some(Attributes::Kept), true, LONG),
    ],
    &[
        writer("genisoimage", &["-R", "-J", "-joliet-long"], Some(Attributes::Kept), true, LONG),
        writer("genisoimage", &["-r", "-J"], Some(Attributes::Readable), true, BOTH),
        writer("genisoimage", &["-R"], Some(Attributes::Kept), false, ROCK),
        writer("genisoimage", &["-R", "-D", "-iso-level", "3"], Some(Attributes::Kept), false, ROCK),
        writer("genisoimage", &["-R", "-U"], Some(Attributes::Kept), false, ROCK),
        writer("genisoimage", &["-R", "-udf"], Some(Attributes::Kept), false, BOTH),
        writer("genisoimage", &["-J", "-joliet-long", "-l"], None, true, JOLIET),
        writer("genisoimage", &["-iso-level", "4"], None, false, PLAIN),
        writer("genisoimage", &["-iso-level", "1"], None, false, PLAIN),
    ],
    &[
        writer("bsdtar", &["iso9660:joliet=long"], Some(Attributes::Readable), true, LONG),
        writer("bsdtar", &["iso9660:rockridge=strict"], Some(Attributes::Kept), true, BOTH),
        writer("bsdtar", &["iso9660:!joliet"], Some(Attributes::Readable), false, ROCK),
        writer(
            "bsdtar",
            &["iso9660:!joliet,iso9660:rockridge=strict"],
            Some(Attributes::Kept),
            false,
            INLINE,
        ),
        writer("bsdtar", &["iso9660:!joliet,iso9660:iso-level=3"], Some(Attributes::Readable), false, ROCK),
        writer("bsdtar", &["iso9660:!rockridge,iso9660:joliet=long"], None, true, JOLIET),
        writer("bsdtar", &["iso9660:!rockridge,iso9660:!joliet"], None, false, PLAIN),
    ],
    &[
        writer("pycdlib", &["both"], Some(Attributes::Own), true, BOTH),
        writer("pycdlib", &["rock"], Some(Attributes::Own), false, ROCK),
        writer("pycdlib", &["rock112"], Some(Attributes::Own), false, ROCK),
        writer("pycdlib", &["joliet"], None, true, Rules { name: 64, ..JOLIET }),
        writer("pycdlib", &["plain1"], None, false, PLAIN),
        writer("pycdlib", &["plain4"], None, false, PLAIN),
    ],
];

impl Writer {
    /// Makes an image of a directory.
    pub(crate) fn make(&self, worker: &mut Worker, directory: &Path, image: &Path) -> Result<(), String> {
        let (root, target) = (directory.to_str().unwrap(), image.to_str().unwrap());
        let common = ["-quiet", "-V", "FOREIGN", "-o", target];
        // These programs warn about every name that they change in the plain tree, so warnings are ignored here.
        let arguments: Vec<&str> = match self.program {
            "pycdlib" => return worker.write(self.arguments[0], directory, image),
            "xorriso" => [&["-as", "mkisofs"], self.arguments, &common, &[root]].concat(),
            "genisoimage" => [self.arguments, &common, &[root]].concat(),
            _ => [&["--format", "iso9660", "--options"], self.arguments, &["-cf", target, "-C", root, "."]]
                .concat(),
        };
        let output = program::output(self.program, arguments);
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}
