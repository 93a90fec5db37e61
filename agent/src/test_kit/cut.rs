//! A machine that loses power: after so many effects every write, program and mount fails, and a write that is cut is torn.
//!
//! ```text
//! run ──> Room::open ──> CutDisk ──┐
//!     └─> CutHost ─────────────────┴──> Cut: effect 0, 1, 2 … n-1 happen, n is torn, later ones are refused
//! ```

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use serde_json::Value;

use super::{FakeHttp, VirtualClock, disk_image, job_json, task_image};
use crate::device::{Disk, FileDisk};
use crate::discovery::{FoundTask, read_medium};
use crate::facts::DiskFacts;
use crate::linux::{Host, Program};
use crate::log::Log;
use crate::outcome::Outcome;
use crate::run::{Machine, OpenMedium, run};
use crate::stable_disks::DriverLoads;

/// When the power is lost. Clones are of the same power.
#[derive(Clone)]
pub(crate) struct Cut {
    left: Arc<AtomicUsize>,
    off: Arc<AtomicBool>,
}

impl Cut {
    pub(crate) fn never() -> Self {
        Self::after(usize::MAX)
    }

    /// Lets so many effects happen.
    pub(crate) fn after(effects: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(effects)), off: Arc::default() }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// Counts an effect. Returns `Some(true)` for the one that is torn, `None` when it happens.
    fn effect(&self) -> Option<bool> {
        if self.is_off() {
            return Some(false);
        }
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            self.off.store(true, Ordering::SeqCst);
            return Some(true);
        }
        if left != usize::MAX {
            self.left.store(left - 1, Ordering::SeqCst);
        }
        None
    }

    fn io(&self) -> io::Result<()> {
        self.effect().map_or(Ok(()), |_| Err(lost()))
    }
}

fn lost() -> io::Error {
    io::Error::other("power lost")
}

struct CutDisk {
    disk: FileDisk,
    cut: Cut,
}

impl Disk for CutDisk {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn sector(&self) -> u64 {
        self.disk.sector()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.cut.is_off() { Err(lost()) } else { self.disk.read_at(offset, buffer) }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.cut.effect() {
            None => self.disk.write_at(offset, bytes),
            Some(is_torn) => {
                let sector = self.sector() as usize;
                let half = if is_torn { bytes.len() / 2 / sector * sector } else { 0 };
                self.disk.write_at(offset, &bytes[..half])?;
                Err(lost())
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        if self.cut.is_off() { Err(lost()) } else { Ok(()) }
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        match self.cut.effect() {
            None => self.disk.zero(range),
            Some(is_torn) => {
                let half =
                    if is_torn { (range.end - range.start) / 2 / self.sector() * self.sector() } else { 0 };
                self.disk.zero(range.start..range.start + half)?;
                Err(lost())
            }
        }
    }

    fn discard_to_zeros(&self) -> io::Result<()> {
        self.cut.io()?;
        self.disk.discard_to_zeros()
    }

    fn forget_cache(&self) -> io::Result<()> {
        self.flush()
    }
}

/// A host whose programs and mounts end with the power.
pub(crate) struct CutHost<'cut> {
    pub(crate) inner: &'cut dyn Host,
    pub(crate) cut: &'cut Cut,
}

impl Host for CutHost<'_> {
    fn partitions(&self, disk: &str, expected: &[(u64, u64)]) -> Result<Vec<PathBuf>, String> {
        self.inner.partitions(disk, expected)
    }

    fn partition(&self, disk: &str, number: usize, expected: (u64, u64)) -> Result<PathBuf, String> {
        self.inner.partition(disk, number, expected)
    }

    fn run(&self, program: &Program) -> Result<(), String> {
        self.cut.io().map_err(|source| source.to_string())?;
        self.inner.run(program)
    }

    fn output(&self, program: &Program) -> Result<String, String> {
        self.cut.io().map_err(|source| source.to_string())?;
        self.inner.output(program)
    }

    fn has_program(&self, name: &str) -> bool {
        self.inner.has_program(name)
    }

    fn load_modules(&self, names: &[&str]) {
        self.inner.load_modules(names);
    }

    fn block_device(&self, device: &Path) -> Result<PathBuf, String> {
        self.inner.block_device(device)
    }

    fn members(&self, device: &Path) -> Vec<PathBuf> {
        self.inner.members(device)
    }

    fn mount(&self, device: &Path, kind: &str, data: &str, at: &Path) -> io::Result<()> {
        self.cut.io()?;
        self.inner.mount(device, kind, data, at)
    }

    fn bind_kernel(&self) -> io::Result<()> {
        self.cut.io()?;
        self.inner.bind_kernel()
    }

    fn unmount_all(&self) -> io::Result<()> {
        self.cut.io()?;
        self.inner.unmount_all()
    }

    fn root(&self) -> &Path {
        self.inner.root()
    }

    fn efi_variables(&self) -> Option<&Path> {
        self.inner.efi_variables()
    }

    fn is_privileged(&self) -> bool {
        self.inner.is_privileged()
    }
}

/// A machine with disks that are sparse files; each has bytes of its own at places that an installation could write by mistake.
pub(crate) struct Room {
    folders: Vec<tempfile::TempDir>,
    paths: Vec<PathBuf>,
    facts: Vec<DiskFacts>,
}

impl Room {
    /// Creates disks `sda`, `sdb` … of these sizes with the serial numbers `SER-sda` and so on.
    pub(crate) fn new(sizes: &[u64]) -> Self {
        let mut room = Self { folders: Vec::new(), paths: Vec::new(), facts: Vec::new() };
        for (index, bytes) in sizes.iter().enumerate() {
            let name = format!("sd{}", char::from(b'a' + index as u8));
            let (folder, path) = disk_image(*bytes, 0);
            let disk = FileDisk::open(&path, 512).unwrap();
            for (place, mark) in Self::marks(index, *bytes) {
                disk.write_at(place, &mark).unwrap();
            }
            room.folders.push(folder);
            room.paths.push(path);
            let serial = Some(format!("SER-{name}"));
            room.facts.push(DiskFacts { name, bytes: *bytes, sector: 512, serial, ..DiskFacts::default() });
        }
        room
    }

    fn marks(index: usize, bytes: u64) -> Vec<(u64, Vec<u8>)> {
        let mark = vec![0xd0 + index as u8; 4096];
        [0, 1 << 20, bytes / 2, bytes - 4096].map(|place| (place / 4096 * 4096, mark.clone())).into()
    }

    pub(crate) fn path(&self, index: usize) -> &Path {
        &self.paths[index]
    }

    /// Compares a disk and all after it byte for byte with what they were.
    pub(crate) fn assert_untouched(&self, from: usize) {
        for (index, path) in self.paths.iter().enumerate().skip(from) {
            let bytes = self.facts[index].bytes;
            let (_folder, fresh) = disk_image(bytes, 0);
            let marks = FileDisk::open(&fresh, 512).unwrap();
            for (place, mark) in Self::marks(index, bytes) {
                marks.write_at(place, &mark).unwrap();
            }
            assert_eq!(sum(path), sum(&fresh), "{} was written", self.facts[index].name);
        }
    }

    /// Carries out a recipe; the power is lost as `cut` says.
    pub(crate) fn run(&self, http: &FakeHttp, host: &dyn Host, recipe: &Value, cut: &Cut) -> Outcome {
        let recipe = serde_json::to_vec(recipe).unwrap();
        let job = job_json("SN1", "2026-01-02T03:04:05Z");
        let found = read_medium("sr0", task_image(&job, "", &[("recipe.json", &recipe)])).unwrap().remove(0);
        self.run_found(http, host, (&found, &crate::medium::open_medium), cut)
    }

    /// Carries out a task that was found, whose medium is opened by the given function; the power is lost as `cut` says.
    pub(crate) fn run_found(
        &self,
        http: &FakeHttp,
        host: &dyn Host,
        (found, medium): (&FoundTask, &OpenMedium<'_>),
        cut: &Cut,
    ) -> Outcome {
        let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
        let machine = Machine {
            http,
            foreign_http: http,
            clock: &clock,
            log: &log,
            disks: &|| self.facts.clone(),
            media: vec!["sr0".to_owned()],
            open: &|facts| {
                let index = self.facts.iter().position(|known| known.name == facts.name).unwrap();
                let disk = FileDisk::open(&self.paths[index], facts.sector)?;
                Ok(Box::new(CutDisk { disk, cut: cut.clone() }) as Box<dyn Disk>)
            },
            peek: &|facts| {
                let index = self.facts.iter().position(|known| known.name == facts.name).unwrap();
                Ok(Box::new(FileDisk::open_to_read(&self.paths[index], facts.sector)?) as Box<dyn Disk>)
            },
            drivers: &DriverLoads::default,
            linux: host,
            inventory: &|| crate::inventory::read(Path::new("/nowhere"), Path::new("/nowhere")),
            medium,
            rescue: &crate::rescue::NoRescue,
            report_limit: None,
        };
        run(&machine, found).0
    }
}

/// The stretches of a sparse file that hold data, and their bytes without zeros: comparing gigabytes of holes takes no time.
fn sum(path: &Path) -> Vec<(u64, Vec<u8>)> {
    use std::os::unix::fs::FileExt as _;

    let file = std::fs::File::open(path).unwrap();
    let end = file.metadata().unwrap().len();
    let (mut found, mut at, mut block) = (Vec::new(), 0, vec![0; 4096]);
    while at < end {
        let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) else { break };
        let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).unwrap_or(end);
        at = start / 4096 * 4096;
        while at < hole {
            let length = (end - at).min(4096) as usize;
            file.read_exact_at(&mut block[..length], at).unwrap();
            if block[..length].iter().any(|byte| *byte != 0) {
                found.push((at, block[..length].to_vec()));
            }
            at += 4096;
        }
    }
    found
}
