//! Writes the FAT16 file system that UEFI firmware reads its boot loader from.
//!
//! ```text
//! boot sector | FAT | FAT | root directory (512 entries) | clusters: directories and files, each in one piece
//! ```
//!
//! Only what a boot partition needs: names of 8 and 3 characters, no free space, fixed dates. Invariant: the number of clusters
//! is one that every reader takes for FAT16, the FAT has an entry for each of them, and equal files give equal bytes.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

const SECTOR: usize = 512;
const ROOT_ENTRIES: usize = 512;
/// Fewer clusters are FAT12, more are FAT32. Some readers are wrong by some clusters.
const LEAST_CLUSTERS: usize = 4085 + 16;
const MOST_CLUSTERS: usize = 65_524 - 16;
/// 1980-01-01, the first date of FAT.
const DATE: u16 = 1 << 5 | 1;
const DIRECTORY: u8 = 0x10;
const FILE: u8 = 0x20;
const LABEL: u8 = 0x08;
const NAME: &[u8; 11] = b"SHOAL BOOT ";

/// A directory or a file.
enum Item<'a> {
    Directory(BTreeMap<String, Item<'a>>),
    File(&'a [u8]),
}

/// Returns a file system with these files. Paths have parts like `GRUB.CFG`.
///
/// # Errors
/// A sentence: a name is not possible, or the files do not fit.
pub(crate) fn image(files: &[(&str, &[u8])]) -> Result<Vec<u8>, String> {
    let mut root = BTreeMap::new();
    let mut digest = Sha256::new();
    for (path, content) in files {
        digest.update(Sha256::digest(path.as_bytes()));
        digest.update(Sha256::digest(content));
        insert(&mut root, path, content)?;
    }
    let mut bytes = 1 << 20;
    for (path, content) in files {
        bytes += content.len() + path.len() * 64;
    }
    // Twice the size that is used is never reached: the smallest cluster that is large enough is taken.
    let cluster = (0..7)
        .map(|power| SECTOR << power)
        .find(|cluster| bytes / cluster < MOST_CLUSTERS)
        .ok_or("the boot files do not fit into a FAT16 file system")?;
    let mut writer = Writer { cluster, data: Vec::new(), next: Vec::new() };
    let entries = writer.directory(&root, None)?;
    writer.finish(&entries, &digest.finalize())
}

fn insert<'a>(root: &mut BTreeMap<String, Item<'a>>, path: &str, content: &'a [u8]) -> Result<(), String> {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let mut directory = root;
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        let item = directory.entry(part.to_owned()).or_insert_with(|| Item::Directory(BTreeMap::new()));
        let Item::Directory(inner) = item else { return Err(format!("{path} lies below a file")) };
        directory = inner;
    }
    match directory.insert(name.to_owned(), Item::File(content)) {
        None => Ok(()),
        Some(_) => Err(format!("{path} is there twice")),
    }
}

/// The 11 bytes of a name.
fn short_name(name: &str) -> Result<[u8; 11], String> {
    let (stem, end) = name.split_once('.').unwrap_or((name, ""));
    let allowed = |text: &str| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    if stem.is_empty() || stem.len() > 8 || end.len() > 3 || !allowed(stem) || !allowed(end) {
        return Err(format!("{name:?} is no name for a boot partition"));
    }
    let mut bytes = [b' '; 11];
    bytes[..stem.len()].copy_from_slice(stem.as_bytes());
    bytes[8..8 + end.len()].copy_from_slice(end.as_bytes());
    Ok(bytes)
}

fn entry(name: &[u8; 11], kind: u8, cluster: usize, length: usize) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..11].copy_from_slice(name);
    bytes[11] = kind;
    for at in [16, 18, 24] {
        bytes[at..at + 2].copy_from_slice(&DATE.to_le_bytes());
    }
    // The number of clusters has 16 bits, and a length that fits them has 32.
    bytes[26..28].copy_from_slice(&(cluster as u16).to_le_bytes());
    bytes[28..].copy_from_slice(&(length as u32).to_le_bytes());
    bytes
}

struct Writer {
    cluster: usize,
    data: Vec<u8>,
    /// The number of the cluster that follows each cluster; the first two numbers are not used.
    next: Vec<u16>,
}

impl Writer {
    /// The entries of a directory, whose own and whose parent's first clusters are given; none for the root.
    fn directory(
        &mut self,
        items: &BTreeMap<String, Item<'_>>,
        place: Option<(usize, usize)>,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        if let Some((own, parent)) = place {
            bytes.extend(entry(b".          ", DIRECTORY, own, 0));
            bytes.extend(entry(b"..         ", DIRECTORY, parent, 0));
        }
        for (name, item) in items {
            let short = short_name(name)?;
            match item {
                Item::File(content) => {
                    let first = if content.is_empty() { 0 } else { self.store(content) };
                    bytes.extend(entry(&short, FILE, first, content.len()));
                }
                Item::Directory(inner) => {
                    let own = self.store(&vec![0; (inner.len() + 2) * 32]);
                    let content = self.directory(inner, Some((own, place.map_or(0, |(own, _)| own))))?;
                    let at = (own - 2) * self.cluster;
                    self.data[at..at + content.len()].copy_from_slice(&content);
                    bytes.extend(entry(&short, DIRECTORY, own, 0));
                }
            }
        }
        Ok(bytes)
    }

    /// Stores content and returns its first cluster.
    fn store(&mut self, content: &[u8]) -> usize {
        let first = self.next.len() + 2;
        let count = content.len().div_ceil(self.cluster);
        for number in 1..=count {
            // Too many clusters are refused at the end.
            self.next.push(if number == count { 0xffff } else { (first + number) as u16 });
        }
        self.data.extend(content);
        self.data.resize(self.next.len() * self.cluster, 0);
        first
    }

    fn finish(self, root: &[u8], digest: &[u8]) -> Result<Vec<u8>, String> {
        let clusters = self.next.len().max(LEAST_CLUSTERS);
        if clusters > MOST_CLUSTERS || root.len() + 32 > ROOT_ENTRIES * 32 {
            return Err("the boot files do not fit into a FAT16 file system".to_owned());
        }
        let per_cluster = self.cluster / SECTOR;
        let (fat_sectors, total) = extent(clusters, per_cluster);
        let mut image = b"\xeb\x3c\x90SHOAL   ".to_vec();
        image.extend((SECTOR as u16).to_le_bytes());
        image.push(per_cluster as u8);
        image.extend([1, 0, 2]);
        image.extend((ROOT_ENTRIES as u16).to_le_bytes());
        let small = u16::try_from(total).unwrap_or(0);
        image.extend(small.to_le_bytes());
        image.push(0xf8);
        image.extend((fat_sectors as u16).to_le_bytes());
        image.extend([32, 0, 64, 0, 0, 0, 0, 0]);
        image.extend((if small == 0 { total as u32 } else { 0 }).to_le_bytes());
        image.extend([0x80, 0, 0x29]);
        image.extend(&digest[..4]);
        image.extend(NAME);
        image.extend(b"FAT16   ");
        image.resize(SECTOR - 2, 0);
        image.extend([0x55, 0xaa]);
        let mut fat: Vec<u8> =
            [0xfff8, 0xffff].iter().chain(&self.next).flat_map(|next| next.to_le_bytes()).collect();
        fat.resize(fat_sectors * SECTOR, 0);
        image.extend(&fat);
        image.extend(&fat);
        let mut label = entry(NAME, LABEL, 0, 0);
        label[16..20].fill(0);
        image.extend(label);
        image.extend(root);
        image.resize((1 + 2 * fat_sectors + ROOT_ENTRIES * 32 / SECTOR) * SECTOR, 0);
        image.extend(&self.data);
        image.resize(total * SECTOR, 0);
        Ok(image)
    }
}

/// The sectors of one FAT, and of the whole file system, which is whole sectors of a CD.
fn extent(clusters: usize, per_cluster: usize) -> (usize, usize) {
    let table = |clusters: usize| ((clusters + 2) * 2).div_ceil(SECTOR);
    let before = |fat_sectors: usize| 1 + 2 * fat_sectors + ROOT_ENTRIES * 32 / SECTOR;
    let total = |fat_sectors: usize| (before(fat_sectors) + clusters * per_cluster).next_multiple_of(4);
    let fat_sectors = table(clusters);
    // A reader counts the sectors at the end as clusters too: up to three more, and each has an entry. A table that is one
    // sector longer has entries for far more than these.
    let counted = (total(fat_sectors) - before(fat_sectors)) / per_cluster;
    let fat_sectors = table(counted);
    (fat_sectors, total(fat_sectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file back by the tables alone.
    fn read(image: &[u8], path: &str) -> Option<Vec<u8>> {
        let u16_at = |at: usize| usize::from(u16::from_le_bytes([image[at], image[at + 1]]));
        let (cluster, fat) = (usize::from(image[13]) * SECTOR, u16_at(22) * SECTOR);
        let root = SECTOR + 2 * fat;
        let data = root + ROOT_ENTRIES * 32;
        let chain = |first: usize| {
            let mut bytes = Vec::new();
            let mut at = first;
            while (2..0xfff8).contains(&at) {
                bytes.extend(&image[data + (at - 2) * cluster..data + (at - 1) * cluster]);
                at = u16_at(SECTOR + at * 2);
            }
            bytes
        };
        let mut content = image[root..data].to_vec();
        for part in path.split('/') {
            let name = short_name(part).unwrap();
            let entry = content.chunks(32).find(|entry| entry[..11] == name)?.to_vec();
            let length = u32::from_le_bytes(entry[28..].try_into().unwrap()) as usize;
            content = chain(usize::from(u16::from_le_bytes([entry[26], entry[27]])));
            if entry[11] == FILE {
                content.truncate(length);
            }
        }
        Some(content)
    }

    #[test]
    fn files_are_read_back_by_the_tables() {
        let large: Vec<u8> = (0..5_000_000_u32).map(|n| (n / 3) as u8).collect();
        let files = [
            ("EFI/BOOT/BOOTX64.EFI", &large[..]),
            ("EFI/BOOT/GRUBX64.EFI", b"grub"),
            ("BOOT/GRUB/GRUB.CFG", b""),
        ];
        let image = image(&files).unwrap();
        for (path, content) in files {
            assert_eq!(read(&image, path).as_deref(), Some(content), "{path}");
        }
        assert_eq!(read(&image, "NONE"), None);
        assert_eq!(image.len() % 2048, 0);
        assert_eq!(image[510..512], [0x55, 0xaa]);
    }

    #[test]
    fn the_number_of_clusters_is_that_of_fat16() {
        for length in [0, 1 << 20, 40 << 20] {
            let content = vec![1; length];
            let image = image(&[("A", &content)]).unwrap();
            let sectors =
                image.len() / SECTOR - 1 - 2 * usize::from(image[22]) - 256 * 2 * usize::from(image[23]) - 32;
            let clusters = sectors / usize::from(image[13]);
            assert!((4085..65_525).contains(&clusters), "{length}: {clusters}");
            assert_eq!(read(&image, "A").unwrap(), content);
        }
    }

    #[test]
    fn the_table_has_an_entry_for_every_cluster_that_a_reader_counts() {
        for per_cluster in [1, 2, 4, 8, 16, 32, 64] {
            for clusters in (LEAST_CLUSTERS..LEAST_CLUSTERS + 520).chain(MOST_CLUSTERS - 260..=MOST_CLUSTERS)
            {
                let (fat_sectors, total) = extent(clusters, per_cluster);
                let counted = (total - 1 - 2 * fat_sectors - ROOT_ENTRIES * 32 / SECTOR) / per_cluster;
                let case = format!("{clusters} clusters of {per_cluster} sectors: {fat_sectors}, {counted}");
                assert!(fat_sectors * SECTOR / 2 >= counted + 2, "{case}");
                assert!((clusters..clusters + 4).contains(&counted) && counted < 65_525, "{case}");
                assert_eq!(total % 4, 0, "{case}");
                // The shortest table is taken wherever it is long enough.
                let least = (clusters + 2).div_ceil(SECTOR / 2);
                let before = 1 + 2 * least + ROOT_ENTRIES * 32 / SECTOR;
                let counted = ((before + clusters * per_cluster).next_multiple_of(4) - before) / per_cluster;
                let enough = least * SECTOR / 2 >= counted + 2;
                assert_eq!(fat_sectors, least + usize::from(!enough), "{case}");
            }
        }
    }

    #[test]
    fn names_that_need_more_than_a_short_entry_are_refused() {
        for name in ["grub.cfg", "LONGERNAME.EFI", "A.LONG", ".disk", "A B", ""] {
            assert!(image(&[(name, b"")]).is_err(), "{name}");
        }
        assert!(image(&[("A", b""), ("A", b"")]).is_err());
        assert!(image(&[("A", b""), ("A/B", b"")]).is_err());
    }
}
