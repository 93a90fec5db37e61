//! Manual pages and completions, which the program writes about itself.
//!
//! ```text
//!   program man FOLDER           ──> NAME.1 for each command     .deb: usr/share/man/man1/NAME.1.gz     archive: man/man1/NAME.1
//!   program completions SHELL    ──> a script for each shell     .deb: where the shell looks for it     archive: completions/
//! ```
//!
//! Invariant: the program gets an empty environment, so what it writes depends on nothing but itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::PackageError;

/// The shells: the name, the file in the Debian package, the file in the archive.
pub(crate) const SHELLS: [(&str, &str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/shoal", "completions/shoal.bash"),
    ("fish", "usr/share/fish/vendor_completions.d/shoal.fish", "completions/shoal.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_shoal", "completions/_shoal"),
];
/// The maximum number of manual pages. A program has one for each command.
const MAX_PAGES: usize = 2000;

/// The manual pages and completions that a program writes about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    /// The manual pages, by file name.
    pub(crate) manual: Vec<(String, Vec<u8>)>,
    /// The completions, in the order of [`SHELLS`]; empty for a package without them.
    pub(crate) completions: Vec<Vec<u8>>,
}

/// Lets a program write its pages into the folder `work`, which is removed afterwards.
///
/// # Errors
/// [`PackageError::Pages`] when the program does not run on this machine or fails.
pub(crate) fn of(program: &Path, work: &Path) -> Result<Pages, PackageError> {
    let written = written(program, work);
    // What cannot be removed is named by the next run, which finds it.
    let _removed = fs::remove_dir_all(work);
    written.map_err(|why| PackageError::Pages { path: program.to_owned(), why })
}

fn written(program: &Path, work: &Path) -> Result<Pages, String> {
    run(Command::new(program).arg("man").arg(work))?;
    let listed = fs::read_dir(work).map_err(|error| format!("wrote no pages: {error}"))?;
    let mut manual = Vec::new();
    for entry in listed.take(MAX_PAGES + 1) {
        let path = entry.map_err(|error| error.to_string())?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if name.strip_suffix(".1").is_some_and(|name| name.starts_with("shoal")) {
            manual.push((name, fs::read(&path).map_err(|error| error.to_string())?));
        }
    }
    if manual.is_empty() || manual.len() > MAX_PAGES {
        return Err(format!("wrote {} manual pages", manual.len()));
    }
    manual.sort();
    let script = |shell: &str| run(Command::new(program).args(["completions", shell]));
    let completions = SHELLS.iter().map(|(shell, ..)| script(shell)).collect::<Result<_, _>>()?;
    Ok(Pages { manual, completions })
}

/// Runs a command and returns what it printed.
fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let done = command.env_clear().output().map_err(|error| format!("does not run here: {error}"))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let reason = String::from_utf8_lossy(&done.stderr);
    let reason = reason.lines().last().unwrap_or_default();
    Err(format!("ended with {}: {reason}", done.status))
}
