use std::io::{Cursor, Read};

use proptest::prelude::*;

use super::*;
use crate::test_kit::{Cluster, Image, golden, seeds};

fn read(file: &[u8]) -> Result<Vec<u8>, String> {
    let mut disk = Qcow2::open(Cursor::new(file)).map_err(|why| why.to_string())?;
    let mut content = Vec::new();
    disk.read_to_end(&mut content).map_err(|why| why.to_string())?;
    Ok(content)
}

fn small() -> Image {
    Image {
        version: 3,
        cluster_bits: 9,
        zstd: false,
        clusters: vec![
            Cluster::Stored(vec![1]),
            Cluster::Nothing,
            Cluster::Packed(vec![2, 3]),
            Cluster::Zero,
            Cluster::Stored(vec![4]),
        ],
        less: 0,
    }
}

/// The small image with other bytes at a place.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = small().file();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}

#[test]
fn the_disk_is_read_in_its_own_order_and_what_is_not_stored_is_zeros() {
    let image = small();
    let content = read(&image.file()).unwrap();
    assert!(content == image.disk());
    assert_eq!(content.len(), 5 * 512);
    assert!(content[512..1024].iter().all(|byte| *byte == 0), "not stored");
    assert!(content[1536..2048].iter().all(|byte| *byte == 0), "the zero flag hides what is stored");
}

#[test]
fn a_disk_of_no_bytes_is_empty() {
    let image = Image { clusters: Vec::new(), ..small() };
    assert_eq!(read(&image.file()).unwrap(), b"");
}

#[test]
fn every_refusal_says_what_is_the_matter_and_what_to_do() {
    let l1 = 512;
    let l2 = 1024;
    let mut version_2 = Image { version: 2, ..small() }.file();
    let mut cut = small().file();
    cut.truncate(cut.len() - 512);
    let mut short = small().file();
    short.truncate(90);
    let (mut packed, mut beyond) = (small().file(), small().file());
    let entry = u64::from_be_bytes(packed[l2 + 16..l2 + 24].try_into().unwrap());
    let at = usize::try_from(entry & 0x00ff_ffff).unwrap();
    packed[at..at + 4].fill(0xff);
    beyond[l2 + 16..l2 + 24].copy_from_slice(&(entry | 0x0fff_ff00).to_be_bytes());
    let zstd_window = {
        let mut file = Image { zstd: true, ..small() }.file();
        let entry = u64::from_be_bytes(file[l2 + 16..l2 + 24].try_into().unwrap());
        // The window descriptor of the frame: 1 GiB.
        file[usize::try_from(entry & 0x00ff_ffff).unwrap() + 5] = 20 << 3;
        file
    };
    version_2[l2 + 7] |= 1;
    let cases: [(&str, Vec<u8>); 24] = [
        ("another file", b"<html>not found</html>".to_vec()),
        ("an empty file", Vec::new()),
        ("version 1", changed(4, &1_u32.to_be_bytes())),
        ("version 4", changed(4, &4_u32.to_be_bytes())),
        ("a short header", short),
        ("a header length of 96", changed(100, &96_u32.to_be_bytes())),
        ("a backing file", changed(8, &600_u64.to_be_bytes())),
        ("encryption", changed(32, &2_u32.to_be_bytes())),
        ("dirty", changed(79, &[1])),
        ("corrupt", changed(79, &[2])),
        ("an external data file", changed(79, &[4])),
        ("extended L2 entries", changed(79, &[16])),
        ("an unknown feature", changed(72, &(1_u64 << 40).to_be_bytes())),
        (
            "an unknown packing",
            changed(79, &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 112, 7]),
        ),
        ("clusters of 4 MiB", changed(20, &22_u32.to_be_bytes())),
        ("a disk of 4 EiB", changed(24, &(1_u64 << 62).to_be_bytes())),
        ("an L1 table that is too small", changed(24, &(1_u64 << 30).to_be_bytes())),
        ("an L1 table behind the end", changed(40, &(1_u64 << 40).to_be_bytes())),
        ("an L1 table between clusters", changed(40, &520_u64.to_be_bytes())),
        ("an L1 entry with reserved bits", changed(l1, &[0x40])),
        ("an L2 entry between clusters", changed(l2 + 6, &[0x02, 0x10])),
        ("a zero flag in version 2", version_2),
        ("a file without its last cluster", cut),
        ("a packed cluster that is damaged", packed),
    ];
    let mut text = String::new();
    for (name, file) in cases.into_iter().chain([
        ("a packed cluster behind the end", beyond),
        ("a window of zstd that is too large", zstd_window),
    ]) {
        let refused = read(&file).expect_err(name);
        text.push_str(&format!("{name}\n    {refused}\n"));
    }
    golden("qcow2-refusals.txt", &text);
}

#[test]
fn a_table_that_is_not_stored_costs_no_read_of_it() {
    // 64 TiB of nothing in 64 KiB clusters: the start is read without the rest.
    let mut file = vec![0; 3 << 20];
    file[..4].copy_from_slice(b"QFI\xfb");
    file[7] = 3;
    file[23] = 16;
    file[24..32].copy_from_slice(&crate::MAX_DISK.to_be_bytes());
    file[36..40].copy_from_slice(&(1_u32 << 17).to_be_bytes());
    file[40..48].copy_from_slice(&(1_u64 << 16).to_be_bytes());
    file[100..104].copy_from_slice(&104_u32.to_be_bytes());
    let mut disk = Qcow2::open(Cursor::new(file)).unwrap();
    assert_eq!(disk.disk_bytes(), crate::MAX_DISK);
    let mut start = vec![1; 1 << 20];
    disk.read_exact(&mut start).unwrap();
    assert!(start.iter().all(|byte| *byte == 0));
    assert!(disk.l2.is_empty() && disk.cluster.len() == 1 << 16);
}

#[test]
fn a_reader_of_few_bytes_gets_the_same_disk() {
    for (name, file) in seeds() {
        let whole = read(&file).unwrap();
        let mut disk = Qcow2::open(Cursor::new(&file)).unwrap();
        let (mut pieces, mut piece) = (Vec::<u8>::new(), [0; 7]);
        while let length @ 1.. = disk.read(&mut piece).unwrap() {
            pieces.extend(&piece[..length]);
        }
        assert!(pieces == whole, "{name}");
    }
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let bytes = proptest::collection::vec(any::<u8>(), 1..600);
    (0..4, bytes).prop_map(|(kind, bytes)| match kind {
        0 => Cluster::Nothing,
        1 => Cluster::Zero,
        2 => Cluster::Stored(bytes[..bytes.len().min(512)].to_vec()),
        _ => Cluster::Packed(bytes[..bytes.len().min(512)].to_vec()),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn any_image_gives_the_disk_that_it_was_made_of(
        (version, zstd) in prop_oneof![Just((2, false)), Just((3, false)), Just((3, true))],
        cluster_bits in 9_u32..13,
        clusters in proptest::collection::vec(cluster(), 0..150),
        less in 0_u64..512,
    ) {
        let mut image = Image { version, cluster_bits, zstd, clusters, less };
        if version == 2 {
            image.clusters.retain(|cluster| !matches!(cluster, Cluster::Zero));
        }
        prop_assert!(read(&image.file()).unwrap() == image.disk());
    }
}
