//! A disk hook that records which changes are durable, and fails on demand.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::store::disk::{DiskHook, DiskOp, HookAction};

/// The failure at the chosen operation.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) enum Failure {
    /// The operation fails.
    Once(ErrorKind),
    /// The operation and all later ones fail and do nothing.
    Power,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Directory,
    File(u64),
    Link(PathBuf),
}

type Entries = BTreeMap<OsString, Node>;

pub(in crate::store) struct Recorder {
    root: PathBuf,
    failure: Option<(usize, Failure)>,
    skip: Option<fn(DiskOp<'_>) -> bool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: Vec<String>,
    failing: bool,
    failed: bool,
    stopped: bool,
    full: bool,
    /// The entries of each directory as of its last fsync.
    entries: HashMap<PathBuf, Entries>,
    /// The bytes of each file as of its last fsync.
    bytes: HashMap<u64, Vec<u8>>,
    /// The open files, each under its inode number, so that no number is used twice.
    held: HashMap<u64, File>,
}

/// Random decisions; the first sequence always decides for the durable state.
pub(in crate::store) struct DurabilityChoice(u64);

impl DurabilityChoice {
    pub(in crate::store) fn new(seed: u64) -> Self {
        DurabilityChoice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn later_state(&mut self) -> bool {
        if self.0 == 0 {
            return false;
        }
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 & 1 == 1
    }
}

impl Recorder {
    pub(in crate::store) fn new(
        root: &Path,
        failure: Option<(usize, Failure)>,
        skip: Option<fn(DiskOp<'_>) -> bool>,
    ) -> Self {
        Recorder { root: root.to_owned(), failure, skip, state: Mutex::default() }
    }

    pub(in crate::store) fn failed(&self) -> bool {
        self.state.lock().failed
    }

    pub(in crate::store) fn power_is_lost(&self) -> bool {
        self.state.lock().failing
    }

    pub(in crate::store) fn stop_failing(&self) {
        self.state.lock().stopped = true;
    }

    /// Makes every later operation that needs space fail: no file, no directory, not even a new name or time.
    pub(in crate::store) fn fill_the_disk(&self) {
        self.state.lock().full = true;
    }

    pub(in crate::store) fn last(&self, count: usize) -> Vec<String> {
        let state = self.state.lock();
        state.steps[state.steps.len().saturating_sub(count)..].to_vec()
    }

    /// Builds in `remains` what a power cut at this moment may leave.
    pub(in crate::store) fn cut_power(&self, remains: &Path, choice: &mut DurabilityChoice) {
        self.rebuild(&self.root, remains, choice);
    }

    fn rebuild(&self, from: &Path, to: &Path, choice: &mut DurabilityChoice) {
        let durable = self.state.lock().entries.get(from).cloned().unwrap_or_default();
        let live = entries(from);
        let names: BTreeSet<&OsString> = durable.keys().chain(live.keys()).collect();
        for name in names {
            let (old, new) = (durable.get(name), live.get(name));
            let node = if old != new && choice.later_state() { new } else { old };
            let (from, to) = (from.join(name), to.join(name));
            match node {
                None => {}
                Some(Node::Directory) => {
                    fs::create_dir(&to).unwrap();
                    self.rebuild(&from, &to, choice);
                }
                Some(Node::Link(target)) => std::os::unix::fs::symlink(target, &to).unwrap(),
                Some(Node::File(number)) => fs::write(&to, self.remaining(*number, choice)).unwrap(),
            }
        }
    }

    /// The bytes of a file after the cut: those of its last fsync, or zeros where later ones were not written yet.
    fn remaining(&self, number: u64, choice: &mut DurabilityChoice) -> Vec<u8> {
        let state = self.state.lock();
        let mut bytes = state.bytes.get(&number).cloned().unwrap_or_default();
        let length = state.held.get(&number).map_or(0, |file| file.metadata().unwrap().len() as usize);
        if length != bytes.len() && choice.later_state() {
            bytes.resize(length, 0);
        }
        bytes
    }
}

impl DiskHook for Recorder {
    fn before(&self, op: DiskOp<'_>) -> HookAction {
        // An operation that cannot fail.
        if matches!(op, DiskOp::Observe(_)) {
            return HookAction::Go;
        }
        let mut state = self.state.lock();
        let number = state.steps.len();
        state.steps.push(format!("{op:?}"));
        if state.failing {
            return HookAction::Fail(ErrorKind::Other);
        }
        if let Some((at, failure)) = self.failure
            && at == number
            && !state.stopped
        {
            state.failed = true;
            state.failing = matches!(failure, Failure::Power);
            return HookAction::Fail(match failure {
                Failure::Once(kind) => kind,
                Failure::Power => ErrorKind::Other,
            });
        }
        let full = state.full;
        drop(state);
        match op {
            DiskOp::Remove(_) | DiskOp::RemoveDirectory(_) => HookAction::Go,
            DiskOp::SyncDirectory(_) if full => HookAction::Believe,
            _ if full => HookAction::Fail(ErrorKind::StorageFull),
            op if self.skip.is_some_and(|skip| skip(op)) => HookAction::Skip,
            DiskOp::SyncFile(_) | DiskOp::SyncDirectory(_) => HookAction::Believe,
            _ => HookAction::Go,
        }
    }

    fn after(&self, op: DiskOp<'_>) {
        match op {
            DiskOp::CreateFile(path) => {
                let file = File::open(path).unwrap();
                let number = file.metadata().unwrap().ino();
                let mut state = self.state.lock();
                state.bytes.insert(number, Vec::new());
                state.held.insert(number, file);
            }
            DiskOp::SyncFile(path) => {
                let number = path.metadata().unwrap().ino();
                let bytes = fs::read(path).unwrap();
                self.state.lock().bytes.insert(number, bytes);
            }
            DiskOp::SyncDirectory(path) => {
                let entries = entries(path);
                self.state.lock().entries.insert(path.to_owned(), entries);
            }
            _ => {}
        }
    }
}

fn entries(directory: &Path) -> Entries {
    let Ok(listed) = fs::read_dir(directory) else { return Entries::new() };
    listed
        .map(|entry| {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            let node = if kind.is_dir() {
                Node::Directory
            } else if kind.is_symlink() {
                Node::Link(fs::read_link(entry.path()).unwrap())
            } else {
                Node::File(entry.metadata().unwrap().ino())
            };
            (entry.file_name(), node)
        })
        .collect()
}
