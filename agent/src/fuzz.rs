//! The bodies of the fuzz targets.
//!
//! ```text
//! documents  data = a job.json, a recipe.json, an index of modules, an os-release, a boot entry of the firmware
//! layer      data = a layer, compressed or not: read, then applied to an empty tree
//! network    data = a DHCP message or its packet, datagrams of netlink, an event of a device, the `network` of a job
//! disk       data = the first bytes of a disk of 1 MiB: its tables are read, grown and written
//! ```
//!
//! Each function panics when a promise of the crate is broken; a fuzz target only calls its function.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    ops::Range,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::device::Disk;
use crate::gpt::Table;
use crate::init::hotplug;
use crate::job::Job;
use crate::layer::{Archive, LayerTree, Ownership, apply};
use crate::linux::{OsRelease, partition_of};
use crate::modules::ModuleIndex;
use crate::net::record::Record;
use crate::net::{Mac, dhcp, netlink, plan};
use crate::task::Task;
use crate::wipe;

/// Bytes of a layer that are read.
const MAX_CONTENT: u64 = 4 << 20;

/// Parses the documents of a medium, of an image and of a firmware.
///
/// # Panics
/// When a text of an image is not safe for a configuration.
pub fn documents(data: &[u8]) {
    let _ = Job::parse(data);
    let _ = partition_of(data);
    let _ = Task::parse(&[("recipe.json".to_owned(), data.to_vec())].into());
    if let Ok(text) = std::str::from_utf8(data) {
        let system = OsRelease::parse(text);
        assert!(!system.id.contains('/') && !system.name.contains('"'));
        let _ = ModuleIndex::parse(text).map(|index| index.order(&[text.to_owned()].into(), &[].into()));
    }
}

/// Reads a layer and applies it. Nothing beside the tree may change.
///
/// # Panics
/// When something beside the tree changed.
pub fn layer(data: &[u8]) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let Ok(content) = disk_file::unpacked(data) else { return };
    let mut bytes = Vec::new();
    let _ = content.take(MAX_CONTENT).read_to_end(&mut bytes);
    let mut archive = Archive::new(&bytes[..]);
    while let Ok(Some(member)) = archive.next_member() {
        assert!(member.path.len() as u64 <= MAX_CONTENT);
    }
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("agent-layer-{}-{number}", std::process::id()));
    let root = folder.join("root");
    if fs::create_dir_all(&root).is_err() || fs::write(folder.join("beside"), "kept").is_err() {
        return;
    }
    if let Ok(tree) = LayerTree::open(&root, Ownership::Ignore) {
        let _ = apply(&bytes[..], &tree, &mut |_| ());
    }
    let kept = fs::read(folder.join("beside")).is_ok_and(|content| content == b"kept");
    let names = fs::read_dir(&folder).map_or(0, Iterator::count);
    // The root can be without permissions now; what cannot be removed stays in the temporary folder.
    let _ = fs::remove_dir_all(&folder);
    assert!(kept && names == 2, "a layer changed what is beside its tree");
}

/// Parses what comes from the network, from the kernel, and the network of a job. A client takes every reply as one to it.
pub fn network(data: &[u8]) {
    let _ = netlink::messages(data);
    let _ = hotplug::added(data);
    if let Ok(document) = serde_json::from_slice(data) {
        let _ = Record::parse(&document).map(|record| plan::next(&record, &[], &BTreeMap::new()));
    }
    let mut client = dhcp::Client::new(Mac([2, 0, 0, 0, 0, 1]), 7, Duration::ZERO);
    let message = dhcp::of_packet(data).unwrap_or(data);
    for second in 0..3 {
        let now = Duration::from_secs(second * 2);
        let sent = client.poll(now).unwrap_or_default();
        if let (Some(mut reply), Some(number)) = (dhcp::Reply::parse(message), sent.get(4..8)) {
            reply.transaction = number.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
            reply.mac = Mac([2, 0, 0, 0, 0, 1]);
            let _ = client.receive(&reply, now);
        }
    }
}

/// Reads the tables of a disk, and writes what was read.
///
/// # Panics
/// When a table that was written is not read back.
pub fn disk(data: &[u8]) {
    let mut bytes = vec![0; 1 << 20];
    let length = data.len().min(bytes.len());
    bytes[..length].copy_from_slice(&data[..length]);
    let disk = MemoryDisk(Mutex::new(bytes));
    if let Ok(old) = wipe::old_partitions(&disk) {
        assert!(wipe::ranges(disk.size(), &old).iter().all(|range| range.end <= disk.size()));
    }
    if let Ok(Some(mut table)) = Table::read(&disk) {
        table.grow_last();
        if table.write(&disk).is_ok() {
            assert!(matches!(Table::read(&disk), Ok(Some(read)) if read.entries == table.entries));
        }
    }
}

/// A disk in memory.
struct MemoryDisk(Mutex<Vec<u8>>);

impl MemoryDisk {
    fn range(&self, offset: u64, length: usize) -> io::Result<Range<usize>> {
        let start = usize::try_from(offset).ok().filter(|start| *start <= 1 << 20);
        let end = start.and_then(|start| start.checked_add(length)).filter(|end| *end <= 1 << 20);
        start.zip(end).map(|(start, end)| start..end).ok_or_else(|| io::Error::other("outside of the disk"))
    }
}

impl Disk for MemoryDisk {
    fn size(&self) -> u64 {
        1 << 20
    }

    fn sector(&self) -> u64 {
        512
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let range = self.range(offset, buffer.len())?;
        buffer.copy_from_slice(&self.0.lock().unwrap_or_else(PoisonError::into_inner)[range]);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = self.range(offset, bytes.len())?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[range].copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn zero(&self, range: Range<u64>) -> io::Result<()> {
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let range = self.range(range.start, length)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[range].fill(0);
        Ok(())
    }

    fn forget_cache(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// The seeds in `fuzz/corpus`, replayed without a fuzzer.
    #[test]
    fn the_seeds_of_the_fuzz_targets_break_no_promise() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        type FuzzBody = fn(&[u8]);
        let targets: [(&str, FuzzBody); 4] = [
            ("agent_documents", super::documents),
            ("agent_layer", super::layer),
            ("agent_disk", super::disk),
            ("agent_network", super::network),
        ];
        for (name, target) in targets {
            let mut seeds = 0;
            for seed in std::fs::read_dir(corpus.join(name)).unwrap().flatten() {
                target(&std::fs::read(seed.path()).unwrap());
                seeds += 1;
            }
            assert!(seeds > 0, "{name} has no seed");
        }
    }
}
