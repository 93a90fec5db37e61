//! pycdlib, in a Python process that lives as long as the test, because starting one costs more than reading an image.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use iso9660::Namespace;

use super::normal;
use crate::listing::{Item, Kind, Listing};
use crate::program;

/// The Python process.
pub(crate) struct Worker {
    child: Child,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts the Python of the environment variable `PYTHON`, or `python3`; it must have pycdlib.
    pub(crate) fn start() -> Worker {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential/worker.py");
        let mut child = program::command(&python)
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{python} must be installed: {error}"));
        let (requests, responses) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Worker { child, requests, responses }
    }

    /// Returns every tree of an image.
    pub(crate) fn read(&mut self, image: &Path) -> Result<Vec<(Namespace, Listing)>, String> {
        let response = self.ask(&format!("read {}", image.display()))?;
        let trees = [Namespace::RockRidge, Namespace::Joliet, Namespace::Plain].map(|namespace| {
            let tree = match namespace {
                Namespace::RockRidge => "rr_path ",
                Namespace::Joliet => "joliet_path ",
                Namespace::Plain | Namespace::Udf => "iso_path ",
            };
            let lines = response.iter().filter_map(|line| line.strip_prefix(tree));
            (namespace, normal(namespace, Listing(lines.map(item).collect())))
        });
        // An empty tree and a missing tree have the same output here; other programs distinguish them.
        Ok(trees.into_iter().filter(|(_, listing)| !listing.0.is_empty()).collect())
    }

    /// Makes an image of a directory.
    pub(crate) fn write(&mut self, variant: &str, directory: &Path, image: &Path) -> Result<(), String> {
        self.ask(&format!("write {variant} {} {}", directory.display(), image.display())).map(|_| ())
    }

    fn ask(&mut self, request: &str) -> Result<Vec<String>, String> {
        writeln!(self.requests, "{request}").expect("pycdlib must be installed for the Python in use");
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let length = self.responses.read_line(&mut line).unwrap();
            assert!(length > 0, "pycdlib must be installed for the Python in use (PYTHON, or python3)");
            match line.trim_end() {
                "." => return Ok(lines),
                line => match line.strip_prefix("! ") {
                    Some(error) => {
                        self.ask_end();
                        return Err(error.to_owned());
                    }
                    None => lines.push(line.to_owned()),
                },
            }
        }
    }

    /// Reads the rest of a failed response.
    fn ask_end(&mut self) {
        let mut line = String::new();
        while self.responses.read_line(&mut line).unwrap() > 0 && line.trim_end() != "." {
            line.clear();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process waits for a request, so this ends it at once. If it has ended already, the error is ignored.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses `<kind> <size> <digest> <names in hex>`.
fn item(line: &str) -> Item {
    let words: Vec<&str> = line.split(' ').collect();
    let [kind, size, digest, path] = words[..] else { panic!("the worker printed {line:?}") };
    let text = |hex: &str| String::from_utf8(hex::decode(hex).unwrap()).unwrap();
    let path = path.split('/').map(text).collect::<Vec<_>>().join("/");
    let kind = match kind {
        "d" => Kind::Directory,
        "l" => Kind::Symlink(text(digest)),
        _ => {
            Kind::File { len: size.parse().unwrap(), hash: hex::decode(digest).unwrap().try_into().unwrap() }
        }
    };
    Item::new(path, kind)
}
