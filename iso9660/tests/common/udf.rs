//! UDF images built in code, structure by structure, so that every form of other writers has an image here.
//!
//! ```text
//! block   16 BEA01 NSR TEA01   32 main sequence   48 reserve sequence   64 partition ... 250   256 anchor ... last
//! ```
//!
//! All flavours hold the files of [`files`], each in the forms it allows: short, long, extended and inline descriptors,
//! a chain of descriptors, holes, both kinds of names, a deleted name, links.
#![allow(clippy::unwrap_used, dead_code, reason = "each test binary uses some of it")]

use std::collections::BTreeMap;

/// The number of blocks of 2048 bytes in an image.
const BLOCKS: usize = 320;
const PARTITION: u32 = 64;
/// The number of blocks of a virtual partition, whose table is the last block of the image. Others end before the
/// anchor.
const VIRTUAL_BLOCKS: u32 = 256;
const PARTITION_BLOCKS: u32 = 186;
/// The first block of file data in the partition; metadata is before it.
const DATA: u32 = 80;
/// The number of metadata blocks before the metadata file continues elsewhere.
const FIRST_PIECE: u32 = 5;

/// The addressing of the partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Flavour {
    /// Revision 1.02, one physical partition: DVDs, Windows media, genisoimage.
    Physical,
    /// Revision 2.50, a metadata partition: Blu-ray, Windows.
    Metadata,
    /// Revision 2.01, a sparable partition: rewritable media.
    Sparable,
    /// Revision 2.01, a virtual partition: write-once media.
    Virtual,
}

pub(crate) const FLAVOURS: [Flavour; 4] =
    [Flavour::Physical, Flavour::Metadata, Flavour::Sparable, Flavour::Virtual];

/// Returns the files of every image.
pub(crate) fn files() -> BTreeMap<String, Vec<u8>> {
    let lines = |name: &str, size: usize| -> Vec<u8> {
        (0..).flat_map(|line| format!("{name} line {line}\n").into_bytes()).take(size).collect()
    };
    let mut sparse = vec![0; 3 * 2048 + 100];
    sparse[2048..4096].copy_from_slice(&lines("sparse", 2048));
    let files = [
        ("readme.txt", lines("readme", 5000)),
        ("empty", Vec::new()),
        ("n\u{e4}me", b"one byte per character".to_vec()),
        ("\u{540d}\u{524d}.txt", b"two bytes per character".to_vec()),
        ("sources/install.wim", lines("install", 9000)),
        ("sources/inline.txt", lines("inline", 700)),
        ("sources/sparse.bin", sparse),
        ("sources/chain.bin", lines("chain", 5 * 2048)),
        ("sources/extended.bin", lines("extended", 3000)),
    ];
    files.into_iter().map(|(name, content)| (name.to_owned(), content)).collect()
}

/// An image and the offsets of its structures.
pub(crate) struct UdfImage {
    pub(crate) bytes: Vec<u8>,
    /// The offsets from the start of the image in bytes, by name.
    pub(crate) places: BTreeMap<String, usize>,
}

impl UdfImage {
    pub(crate) fn at(&self, name: &str) -> usize {
        *self.places.get(name).unwrap_or_else(|| panic!("no place {name}"))
    }

    /// Changes bytes of the named descriptor and recomputes its tag.
    pub(crate) fn change(&mut self, name: &str, at: usize, value: &[u8]) {
        let place = self.at(name);
        self.bytes[place + at..place + at + value.len()].copy_from_slice(value);
        let covered = usize::from(u16::from_le_bytes(self.bytes[place + 10..place + 12].try_into().unwrap()));
        seal(&mut self.bytes[place..place + 16 + covered]);
    }
}

impl UdfImage {
    /// Changes bytes of an identifier in the directory whose data is at a named offset.
    pub(crate) fn change_identifier(&mut self, data: &str, name: &[u8], at: usize, value: &[u8]) {
        let start = self.at(data);
        let encoded = [b"\x08", name].concat();
        let found = self.bytes[start..].windows(encoded.len()).position(|bytes| bytes == encoded).unwrap();
        let identifier = start + found - 38;
        let length = (38 + encoded.len()).next_multiple_of(4);
        put(&mut self.bytes, identifier + at, value);
        seal(&mut self.bytes[identifier..identifier + length]);
    }

    /// Returns the image as a seed for `fuzz::read_udf`: every sector that is not file content, with a flag whether its
    /// tag is right.
    pub(crate) fn seed(bytes: &[u8]) -> Vec<u8> {
        let mut seed = u16::try_from(bytes.len() / 2048).unwrap().to_le_bytes().to_vec();
        for (number, sector) in (0_u16..).zip(bytes.chunks(2048)) {
            let Some(last) = sector.iter().rposition(|byte| *byte != 0) else { continue };
            let identifier = u16::from_le_bytes([sector[0], sector[1]]);
            if number > 18 && !matches!(identifier, 0..=9 | 256..=266) {
                continue;
            }
            let mut sealed = sector.to_vec();
            let covered = usize::from(u16::from_le_bytes([sector[10], sector[11]]));
            let descriptor = sector[0] != 0 && 16 + covered <= 2048;
            if descriptor {
                seal(&mut sealed[..16 + covered]);
            }
            let right = if descriptor && sealed == sector { 0x8000 } else { 0 };
            seed.extend((number | right).to_le_bytes());
            seed.extend(u16::try_from(last + 1).unwrap().to_le_bytes());
            seed.extend(&sector[..=last]);
        }
        seed
    }
}

/// Recomputes checksum and CRC of a descriptor.
fn seal(bytes: &mut [u8]) {
    let crc = bytes[16..].iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| crc << 1 ^ if crc >> 15 == 1 { 0x1021 } else { 0 })
    });
    bytes[8..10].copy_from_slice(&crc.to_le_bytes());
    bytes[4] = 0;
    bytes[4] = bytes[..16].iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Returns a descriptor of a length with these fields.
fn descriptor(identifier: u16, block: u32, length: usize, fields: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; length];
    put(&mut bytes, 0, &identifier.to_le_bytes());
    put(&mut bytes, 2, &2_u16.to_le_bytes());
    put(&mut bytes, 10, &u16::try_from(length - 16).unwrap().to_le_bytes());
    put(&mut bytes, 12, &block.to_le_bytes());
    for (at, value) in fields {
        put(&mut bytes, *at, value);
    }
    seal(&mut bytes);
    bytes
}

fn entity(identifier: &[u8], revision: u16) -> Vec<u8> {
    let mut bytes = vec![0; 32];
    put(&mut bytes, 1, identifier);
    put(&mut bytes, 24, &revision.to_le_bytes());
    bytes
}

fn dstring(text: &str, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    put(&mut bytes, 0, &[&[8], text.as_bytes()].concat());
    bytes[length - 1] = u8::try_from(text.len() + 1).unwrap();
    bytes
}

fn long_ad(length: u32, (partition, block): (u16, u32)) -> Vec<u8> {
    [&length.to_le_bytes()[..], &block.to_le_bytes(), &partition.to_le_bytes(), &[0; 6]].concat()
}

fn short_ad(length: u32, block: u32) -> Vec<u8> {
    [length.to_le_bytes(), block.to_le_bytes()].concat()
}

/// 2023-11-14 22:13:20 UTC.
const DATE: [u8; 12] = [0x00, 0x10, 0xe7, 0x07, 11, 14, 22, 13, 20, 0, 0, 0];

struct Builder {
    flavour: Flavour,
    absent: &'static [&'static str],
    image: UdfImage,
    next_meta: u32,
    next_data: u32,
}

/// The data of a file, as its entry stores it.
enum Data {
    Inline(Vec<u8>),
    Short(Vec<u8>),
    Long(Vec<u8>),
    Extended(Vec<u8>),
}

impl Builder {
    /// Returns the partition of the metadata.
    fn meta_partition(&self) -> u16 {
        u16::from(matches!(self.flavour, Flavour::Metadata | Flavour::Virtual))
    }

    fn meta(&mut self) -> u32 {
        self.next_meta += 1;
        self.next_meta - 1
    }

    /// Returns the block of the partition that holds a block of metadata.
    fn physical(&self, meta: u32) -> u32 {
        match self.flavour {
            Flavour::Physical | Flavour::Sparable => meta,
            Flavour::Metadata if meta < FIRST_PIECE => 4 + meta,
            Flavour::Metadata => 20 + meta,
            // In reverse order, so that a reader needs the table.
            Flavour::Virtual => DATA - 1 - meta,
        }
    }

    fn offset(&self, block: u32) -> usize {
        let moved = self.flavour == Flavour::Sparable && block / 32 == 2;
        // The third packet is stored at the end of the image.
        let absolute = if moved { 270 + block % 32 } else { PARTITION + block };
        absolute as usize * 2048
    }

    fn place(&mut self, name: &str, meta: u32, bytes: &[u8]) {
        let at = self.offset(self.physical(meta));
        put(&mut self.image.bytes, at, bytes);
        self.image.places.insert(name.to_owned(), at);
    }

    /// Writes file data. Returns its first block.
    fn data(&mut self, content: &[u8]) -> u32 {
        let first = self.next_data;
        for piece in content.chunks(2048) {
            let at = self.offset(self.next_data);
            put(&mut self.image.bytes, at, piece);
            self.next_data += 1;
        }
        first
    }

    /// Writes a file entry, extended if requested.
    fn entry(&mut self, name: &str, extended: bool, kind: u8, len: usize, data: Data) -> u32 {
        let meta = self.meta();
        self.entry_at(name, meta, extended, kind, len, data);
        meta
    }

    fn entry_at(&mut self, name: &str, meta: u32, extended: bool, kind: u8, len: usize, data: Data) {
        let bytes = entry_bytes(meta, extended, kind, len, data);
        self.place(name, meta, &bytes);
    }

    fn identifier(&self, name: &[u8], characteristics: u8, meta: u32) -> Vec<u8> {
        if self.absent.iter().any(|absent| name.ends_with(absent.as_bytes())) {
            return Vec::new();
        }
        let length = (38 + name.len()).next_multiple_of(4);
        let fields: [(usize, &[u8]); 5] = [
            (16, &1_u16.to_le_bytes()),
            (18, &[characteristics]),
            (19, &[u8::try_from(name.len()).unwrap()]),
            (20, &long_ad(2048, (self.meta_partition(), meta))),
            (38, name),
        ];
        descriptor(257, 0, length, &fields)
    }

    /// Returns a recorded extent. In a metadata or virtual partition data is in the other partition, so descriptors are
    /// long.
    fn recorded(&self, length: usize, block: u32) -> Data {
        let length = u32::try_from(length).unwrap();
        if self.meta_partition() == 1 {
            Data::Long(long_ad(length, (0, block)))
        } else {
            Data::Short(short_ad(length, block))
        }
    }
}

fn entry_bytes(block: u32, extended: bool, kind: u8, len: usize, data: Data) -> Vec<u8> {
    let (form, bytes) = match data {
        Data::Short(bytes) => (0_u16, bytes),
        Data::Long(bytes) => (1, bytes),
        Data::Extended(bytes) => (2, bytes),
        Data::Inline(bytes) => (3, bytes),
    };
    let (identifier, date, lengths) = if extended { (266, 92, 208) } else { (261, 84, 168) };
    let permissions: u32 = 0b00101 | 0b00101 << 5 | 0b00101 << 10;
    let fields: [(usize, &[u8]); 9] = [
        (20, &4_u16.to_le_bytes()),
        (27, &[kind]),
        (34, &form.to_le_bytes()),
        (44, &permissions.to_le_bytes()),
        (48, &1_u16.to_le_bytes()),
        (56, &(len as u64).to_le_bytes()),
        (date, &DATE),
        (lengths + 4, &u32::try_from(bytes.len()).unwrap().to_le_bytes()),
        (lengths + 8, &bytes),
    ];
    descriptor(identifier, block, lengths + 8 + bytes.len(), &fields)
}

/// Returns an image of a flavour.
pub(crate) fn image(flavour: Flavour) -> UdfImage {
    image_without(flavour, &[])
}

/// Returns an image whose directories lack some names.
pub(crate) fn image_without(flavour: Flavour, absent: &'static [&'static str]) -> UdfImage {
    let image = UdfImage { bytes: vec![0; BLOCKS * 2048], places: BTreeMap::new() };
    let mut builder = Builder { flavour, image, absent, next_meta: 0, next_data: DATA };
    let set = builder.meta();
    let root = builder.meta();
    let files = files();
    let meta = builder.meta_partition();

    // The plain files of the root.
    let mut identifiers = builder.identifier(b"", 0x0A, root);
    identifiers.extend(builder.identifier(b"\x08deleted.txt", 0x04, 0));
    for (name, encoded) in [
        ("readme.txt", b"\x08readme.txt".to_vec()),
        ("empty", b"\x08empty".to_vec()),
        ("n\u{e4}me", b"\x08n\xe4me".to_vec()),
        ("\u{540d}\u{524d}.txt", b"\x10\x54\x0d\x52\x4d\0.\0t\0x\0t".to_vec()),
    ] {
        let content = &files[name];
        let data = if content.is_empty() {
            Data::Short(Vec::new())
        } else {
            let block = builder.data(content);
            builder.recorded(content.len(), block)
        };
        let entry = builder.entry(name, false, 5, content.len(), data);
        identifiers.extend(builder.identifier(&encoded, 0, entry));
    }
    // The links: sources/inline.txt, and /../README in another case than the file has.
    let target = [b"\x05\x08\0\0\x08sources".as_slice(), b"\x05\x0b\0\0\x08inline.txt"].concat();
    let link = builder.entry("link", false, 12, target.len(), Data::Inline(target));
    identifiers.extend(builder.identifier(b"\x08link", 0, link));
    let climb = b"\x01\0\0\0\x03\0\0\0\x05\x0b\0\0\x08README.TXT".to_vec();
    let climb_entry = builder.entry("climb", true, 12, climb.len(), Data::Inline(climb));
    identifiers.extend(builder.identifier(b"\x08climb", 0, climb_entry));

    let sources = builder.meta();
    identifiers.extend(builder.identifier(b"\x08sources", 0x02, sources));
    // The root is inline; the other directory has a separate block.
    builder.entry_at("root", root, true, 4, identifiers.len(), Data::Inline(identifiers));
    sources_directory(&mut builder, sources, root, &files);

    let set_fields: [(usize, &[u8]); 4] = [
        (16, &DATE),
        (112, &dstring("SET", 128)),
        (400, &long_ad(2048, (meta, root))),
        (416, &entity(b"*OSTA UDF Compliant", 0x0102)),
    ];
    builder.place("file set", set, &descriptor(256, set, 512, &set_fields));
    volume(&mut builder, set);
    builder.image
}

/// Writes `sources` with every form of extents.
fn sources_directory(builder: &mut Builder, own: u32, root: u32, files: &BTreeMap<String, Vec<u8>>) {
    let content = |name: &str| files[&format!("sources/{name}")].as_slice();
    let mut identifiers = builder.identifier(b"", 0x0A, root);

    // Two extents that are not adjacent.
    let install = content("install.wim");
    let first = builder.data(&install[..4096]);
    builder.next_data += 1;
    let second = builder.data(&install[4096..]);
    let extents = [long_ad(4096, (0, first)), long_ad(install.len() as u32 - 4096, (0, second))].concat();
    let entry = builder.entry("install.wim", true, 5, install.len(), Data::Long(extents));
    identifiers.extend(builder.identifier(b"\x08install.wim", 0, entry));

    let inline = content("inline.txt").to_vec();
    let entry = builder.entry("inline.txt", false, 5, inline.len(), Data::Inline(inline));
    identifiers.extend(builder.identifier(b"\x08inline.txt", 0, entry));

    // Zeros before and after recorded bytes: one extent is allocated, the other is not.
    let sparse = content("sparse.bin");
    let block = builder.data(&sparse[2048..4096]);
    let (reserved, absent) = (1 << 30, 2 << 30);
    let tail = sparse.len() as u32 - 4096;
    let extents =
        [long_ad(2048 | absent, (0, 0)), long_ad(2048, (0, block)), long_ad(tail | reserved, (0, block + 1))];
    let entry = builder.entry("sparse.bin", false, 5, sparse.len(), Data::Long(extents.concat()));
    identifiers.extend(builder.identifier(b"\x08sparse.bin", 0, entry));

    // The last extent of one area points to the next area, twice.
    let chain = content("chain.bin");
    let block = builder.data(chain);
    let (meta, areas) = (builder.meta_partition(), [builder.meta(), builder.meta()]);
    let more = |area: u32| long_ad(2048 | 3 << 30, (meta, area));
    let piece = |index: u32| long_ad(2048, (0, block + index));
    let entry =
        builder.entry("chain.bin", true, 5, chain.len(), Data::Long([piece(0), more(areas[0])].concat()));
    for (index, descriptors) in
        [[piece(1), piece(2), more(areas[1])].concat(), [piece(3), piece(4)].concat()].iter().enumerate()
    {
        let length = u32::try_from(descriptors.len()).unwrap().to_le_bytes();
        let area = descriptor(258, areas[index], 24 + descriptors.len(), &[(20, &length), (24, descriptors)]);
        builder.place(&format!("area {index}"), areas[index], &area);
    }
    identifiers.extend(builder.identifier(b"\x08chain.bin", 0, entry));

    let extended = content("extended.bin");
    let block = builder.data(extended);
    let length = u32::try_from(extended.len()).unwrap().to_le_bytes();
    let extent = [&length[..], &length, &length, &block.to_le_bytes(), &[0; 4]].concat();
    let entry = builder.entry("extended.bin", false, 5, extended.len(), Data::Extended(extent));
    identifiers.extend(builder.identifier(b"\x08extended.bin", 0, entry));

    let block = builder.data(&identifiers);
    let place = builder.offset(block);
    builder.image.places.insert("sources data".to_owned(), place);
    let data = builder.recorded(identifiers.len(), block);
    builder.entry_at("sources", own, false, 4, identifiers.len(), data);
}

/// Writes the structures from the anchor to the file set.
fn volume(builder: &mut Builder, set: u32) {
    let flavour = builder.flavour;
    let revision: u16 = match flavour {
        Flavour::Physical => 0x0102,
        Flavour::Metadata => 0x0250,
        Flavour::Sparable | Flavour::Virtual => 0x0201,
    };
    let version = if revision < 0x0200 { b"NSR02" } else { b"NSR03" };
    for (sector, identifier) in [(16, b"BEA01"), (17, version), (18, b"TEA01")] {
        put(&mut builder.image.bytes, sector * 2048 + 1, identifier);
        builder.image.bytes[sector * 2048 + 6] = 1;
    }
    let type_2 = |name: &[u8], fields: &[(usize, &[u8])]| {
        let mut map = vec![0; 64];
        (map[0], map[1], map[36]) = (2, 64, 1);
        put(&mut map, 4, &entity(name, revision));
        fields.iter().for_each(|(at, value)| put(&mut map, *at, value));
        map
    };
    let physical = vec![1, 6, 1, 0, 0, 0];
    let (block, size) = (u32::to_le_bytes, u32::to_le_bytes);
    let maps = match flavour {
        Flavour::Physical => vec![physical],
        Flavour::Metadata => {
            let files = [(40, block(0)), (44, block(1)), (48, block(u32::MAX)), (52, size(32))];
            let files: Vec<(usize, &[u8])> = files.iter().map(|(at, value)| (*at, &value[..])).collect();
            vec![physical, type_2(b"*UDF Metadata Partition", &files)]
        }
        Flavour::Sparable => {
            let fields: [(usize, &[u8]); 4] =
                [(40, &32_u16.to_le_bytes()), (42, &[1]), (44, &size(72)), (48, &block(260))];
            vec![type_2(b"*UDF Sparable Partition", &fields)]
        }
        Flavour::Virtual => vec![physical, type_2(b"*UDF Virtual Partition", &[])],
    };
    partition_structures(builder);
    let blocks = if flavour == Flavour::Virtual { VIRTUAL_BLOCKS } else { PARTITION_BLOCKS };
    let (count, maps) = (maps.len() as u32, maps.concat());
    let meta = builder.meta_partition();
    for (copy, first) in [("main", 32_u32), ("reserve", 48)] {
        let primary = descriptor(1, first, 512, &[(24, &dstring("VOLUME", 32)), (376, &DATE)]);
        let logical_fields: [(usize, &[u8]); 8] = [
            (16, &3_u32.to_le_bytes()),
            (84, &dstring("UDF_LABEL", 128)),
            (212, &2048_u32.to_le_bytes()),
            (216, &entity(b"*OSTA UDF Compliant", revision)),
            (248, &long_ad(4096, (meta, set))),
            (264, &(maps.len() as u32).to_le_bytes()),
            (268, &count.to_le_bytes()),
            (440, &maps),
        ];
        let logical = descriptor(6, first + 1, 440 + maps.len(), &logical_fields);
        // An older descriptor with wrong values must be ignored. 7-Zip, for which names are omitted, uses the last
        // descriptor in any case.
        let identifier = if builder.absent.is_empty() { 6 } else { 4 };
        let older = descriptor(identifier, first + 2, 440, &[(16, &1_u32.to_le_bytes())]);
        let partition_fields: [(usize, &[u8]); 4] = [
            (24, &entity(if revision < 0x0200 { b"+NSR02" } else { b"+NSR03" }, 0)),
            (184, &1_u32.to_le_bytes()),
            (188, &PARTITION.to_le_bytes()),
            (192, &blocks.to_le_bytes()),
        ];
        let partition = descriptor(5, first + 3, 512, &partition_fields);
        let end = descriptor(8, first + 4, 512, &[]);
        for (index, (name, bytes)) in [
            ("primary", primary),
            ("logical", logical),
            ("older", older),
            ("partition", partition),
            ("end", end),
        ]
        .into_iter()
        .enumerate()
        {
            let at = (first as usize + index) * 2048;
            put(&mut builder.image.bytes, at, &bytes);
            builder.image.places.insert(format!("{copy} {name}"), at);
        }
    }
    let extents = [16 * 2048, 32, 16 * 2048, 48_u32].map(u32::to_le_bytes).concat();
    let anchor = descriptor(2, 256, 512, &[(16, &extents)]);
    put(&mut builder.image.bytes, 256 * 2048, &anchor);
    builder.image.places.insert("anchor".to_owned(), 256 * 2048);
    if flavour != Flavour::Virtual {
        let last = BLOCKS as u32 - 1;
        put(&mut builder.image.bytes, last as usize * 2048, &descriptor(2, last, 512, &[(16, &extents)]));
        builder.image.places.insert("last anchor".to_owned(), last as usize * 2048);
    }
}

/// Writes the metadata file, the sparing table or the virtual allocation table.
fn partition_structures(builder: &mut Builder) {
    let count = builder.next_meta;
    match builder.flavour {
        Flavour::Physical => {}
        Flavour::Metadata => {
            let rest = count - FIRST_PIECE;
            let extents = [
                short_ad(FIRST_PIECE * 2048, builder.physical(0)),
                short_ad(rest * 2048, builder.physical(FIRST_PIECE)),
            ]
            .concat();
            for (name, block, kind) in [("metadata file", 0, 250), ("metadata mirror", 1, 251)] {
                let length = count as usize * 2048;
                let bytes = entry_bytes(block, true, kind, length, Data::Short(extents.clone()));
                let at = builder.offset(block);
                put(&mut builder.image.bytes, at, &bytes);
                builder.image.places.insert(name.to_owned(), at);
            }
        }
        Flavour::Sparable => {
            let moved = [64_u32, 270].map(u32::to_le_bytes).concat();
            let unused = [u32::MAX; 2].map(u32::to_le_bytes).concat();
            let fields: [(usize, &[u8]); 4] = [
                (16, &entity(b"*UDF Sparing Table", 0x0201)),
                (48, &2_u16.to_le_bytes()),
                (56, &moved),
                (64, &unused),
            ];
            put(&mut builder.image.bytes, 260 * 2048, &descriptor(0, 260, 72, &fields));
            builder.image.places.insert("sparing table".to_owned(), 260 * 2048);
        }
        Flavour::Virtual => {
            let mut table = vec![0; 152];
            put(&mut table, 0, &152_u16.to_le_bytes());
            table.extend((0..count).flat_map(|meta| builder.physical(meta).to_le_bytes()));
            let block = BLOCKS as u32 - 1 - PARTITION;
            let bytes = entry_bytes(block, false, 248, table.len(), Data::Inline(table));
            let at = (BLOCKS - 1) * 2048;
            put(&mut builder.image.bytes, at, &bytes);
            builder.image.places.insert("allocation table".to_owned(), at);
        }
    }
}
