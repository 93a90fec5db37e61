//! Tools of the tests of this crate: packed bytes, qcow2 images, golden files.

use std::io::Write as _;
use std::path::Path;

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Compares a text with a golden file, which `UPDATE_GOLDEN=1` rewrites.
pub(crate) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "UPDATE_GOLDEN=1 rewrites {}", path.display());
}

/// A cluster of an image.
#[derive(Clone, Debug)]
pub(crate) enum Cluster {
    /// The cluster is not stored.
    Nothing,
    /// The cluster is stored and has the zero flag.
    Zero,
    /// The cluster is stored; the rest of it is the last byte again.
    Stored(Vec<u8>),
    /// The cluster is packed.
    Packed(Vec<u8>),
}

/// How an image is made.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) version: u32,
    pub(crate) cluster_bits: u32,
    pub(crate) zstd: bool,
    pub(crate) clusters: Vec<Cluster>,
    /// The bytes of the disk that its last cluster does not have.
    pub(crate) less: u64,
}

impl Image {
    fn size(&self) -> usize {
        1 << self.cluster_bits
    }

    fn filled(&self, bytes: &[u8]) -> Vec<u8> {
        let mut cluster = bytes.to_vec();
        cluster.resize(self.size(), bytes.last().copied().unwrap_or(0));
        cluster
    }

    pub(crate) fn disk_bytes(&self) -> u64 {
        (self.clusters.len() as u64 * self.size() as u64).saturating_sub(self.less)
    }

    /// The content of the disk.
    pub(crate) fn disk(&self) -> Vec<u8> {
        let mut disk = Vec::new();
        for cluster in &self.clusters {
            match cluster {
                Cluster::Nothing | Cluster::Zero => disk.resize(disk.len() + self.size(), 0),
                Cluster::Stored(bytes) | Cluster::Packed(bytes) => disk.extend(self.filled(bytes)),
            }
        }
        disk.truncate(usize::try_from(self.disk_bytes()).unwrap());
        disk
    }

    /// The file: header, L1 table, L2 tables, then clusters and packed bytes.
    pub(crate) fn file(&self) -> Vec<u8> {
        let size = self.size();
        let per_table = size / 8;
        let tables = self.clusters.len().div_ceil(per_table);
        let l1_clusters = (tables * 8).div_ceil(size).max(1);
        let header_clusters = 112_usize.div_ceil(size);
        let mut file = vec![0; (header_clusters + l1_clusters + tables) * size];
        let put =
            |file: &mut Vec<u8>, at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(&mut file, 0, b"QFI\xfb");
        put(&mut file, 4, &self.version.to_be_bytes());
        put(&mut file, 20, &self.cluster_bits.to_be_bytes());
        put(&mut file, 24, &self.disk_bytes().to_be_bytes());
        put(&mut file, 36, &u32::try_from(tables).unwrap().to_be_bytes());
        let l1 = header_clusters * size;
        put(&mut file, 40, &(l1 as u64).to_be_bytes());
        if self.version == 3 {
            put(&mut file, 72, &(u64::from(self.zstd) << 3).to_be_bytes());
            put(&mut file, 96, &4_u32.to_be_bytes());
            put(&mut file, 100, &112_u32.to_be_bytes());
            put(&mut file, 104, &[u8::from(self.zstd)]);
        }
        for (number, clusters) in self.clusters.chunks(per_table).enumerate() {
            let table = (header_clusters + l1_clusters + number) * size;
            if clusters.iter().all(|cluster| matches!(cluster, Cluster::Nothing)) {
                continue;
            }
            put(&mut file, l1 + number * 8, &(table as u64 | 1 << 63).to_be_bytes());
            for (index, cluster) in clusters.iter().enumerate() {
                let entry = self.append(&mut file, cluster);
                put(&mut file, table + index * 8, &entry.to_be_bytes());
            }
        }
        file
    }

    /// Appends a cluster and returns its entry.
    fn append(&self, file: &mut Vec<u8>, cluster: &Cluster) -> u64 {
        if let Cluster::Packed(bytes) = cluster {
            let (at, content) = (file.len() as u64, self.filled(bytes));
            let packed = if self.zstd { zstd(&content) } else { deflate(&content) };
            if packed.len() >= self.size() {
                // The entry has no room for more sectors; QEMU stores such a cluster as it is.
                return self.append(file, &Cluster::Stored(bytes.clone()));
            }
            file.extend(packed);
            let sectors = (file.len() as u64 - 1) / 512 - at / 512;
            return at | sectors << (62 - (self.cluster_bits - 8)) | 1 << 62;
        }
        if let Cluster::Nothing = cluster {
            return 0;
        }
        file.resize(file.len().next_multiple_of(self.size()), 0);
        let at = file.len() as u64;
        let (content, flag) = match cluster {
            Cluster::Stored(bytes) => (self.filled(bytes), 0),
            _ => (vec![0xee; self.size()], 1),
        };
        file.extend(content);
        at | flag | 1 << 63
    }
}

/// An image of each kind, small.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let image = |version, zstd| Image {
        version,
        cluster_bits: 9,
        zstd,
        clusters: vec![
            Cluster::Stored(b"first".to_vec()),
            Cluster::Nothing,
            Cluster::Packed(b"packed".to_vec()),
            if version == 3 { Cluster::Zero } else { Cluster::Nothing },
            Cluster::Packed(b"again".to_vec()),
            Cluster::Stored(b"last".to_vec()),
        ],
        less: 100,
    };
    let mut many = image(3, false);
    many.clusters.extend(vec![Cluster::Nothing; 200]);
    many.clusters.push(Cluster::Stored(b"far".to_vec()));
    vec![
        ("version-2", image(2, false).file()),
        ("version-3", image(3, false).file()),
        ("zstd", image(3, true).file()),
        ("tables", many.file()),
    ]
}
