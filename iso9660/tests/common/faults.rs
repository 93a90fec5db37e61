//! A table of images with one fault each: the change, and the rules that it breaks, the intended one first.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "each test binary uses some of it")]

use iso9660::partition::{Gpt, GptPartition, Guid, Mbr, MbrPartition};
use iso9660::{BiosBoot, Boot, Hierarchy, ImageOptions, ImagePlan, Part, Profile, Rule, Tree, UefiBoot};

use super::{EPOCH, stream};

/// A fault: its name, the rules it breaks, and the change.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) rules: &'static [Rule],
    pub(crate) change: fn(&mut Bench),
}

/// An image to be changed. It has everything that the checker knows: two hierarchies on three levels, names that need a
/// continuation, both boot entries, a boot info table, an MBR and a GPT with its backup.
pub(crate) struct Bench {
    pub(crate) image: Vec<u8>,
    plan: ImagePlan,
}

pub(crate) fn both(value: u32) -> [u8; 8] {
    [value.to_le_bytes(), value.to_be_bytes()].concat().try_into().unwrap()
}

/// Returns the image without a fault.
pub(crate) fn bench() -> Bench {
    let mut tree = Tree::new();
    tree.add_file("a/inner/file", "inside\n").unwrap().add_file("a/other", "beside\n").unwrap();
    for index in 0..40 {
        tree.add_file(&format!("a/inner/empty-{index:02}"), "").unwrap();
    }
    tree.add_file("b.txt", vec![b'b'; 3000]).unwrap().add_file("c.txt", vec![b'c'; 5000]).unwrap();
    tree.add_file("empty", "").unwrap().add_file(&"é".repeat(100), "long\n").unwrap();
    tree.add_file(&"è".repeat(100), "long too\n").unwrap();
    tree.add_file("boot/bios.img", vec![0xB1; 3001]).unwrap();
    tree.add_file("boot/efi.img", vec![0xEF; 4096]).unwrap();
    let mut options = ImageOptions::new(Profile::Boot, "FAULTS", EPOCH);
    options.boot = Some(Boot::new(Some(BiosBoot::new("boot/bios.img")), Some(UefiBoot::new("boot/efi.img"))));
    let plan = ImagePlan::new(&tree, &options).unwrap();
    let mut bench = Bench { image: stream(&plan), plan };
    bench.add_info_table();
    bench.add_partitions();
    bench
}

impl Bench {
    pub(crate) fn start_of(&self, part: Part) -> usize {
        let segment = self.plan.segments().find(|segment| segment.part == part).unwrap();
        usize::try_from(segment.offset).unwrap()
    }

    pub(crate) fn put(&mut self, at: usize, value: &[u8]) {
        self.image[at..at + value.len()].copy_from_slice(value);
    }

    fn set(&mut self, at: usize, value: u8) {
        self.image[at] = value;
    }

    fn flip(&mut self, at: usize, bits: u8) {
        self.image[at] ^= bits;
    }

    fn or(&mut self, at: usize, bits: u8) {
        self.image[at] |= bits;
    }

    fn add(&mut self, at: usize, more: u8) {
        self.image[at] += more;
    }

    pub(crate) fn copy(&mut self, from: usize, to: usize, length: usize) {
        self.image.copy_within(from..from + length, to);
    }

    /// Returns the sector of a byte in both byte orders.
    fn sector_of(&self, at: usize) -> [u8; 8] {
        both(u32::try_from(at / 2048).unwrap())
    }

    /// Returns the offset of a directory of the primary hierarchy: 1 is the root, 2 is `A`, 3 is `BOOT`, 4 is
    /// `A/INNER`.
    pub(crate) fn directory(&self, number: u32) -> usize {
        self.start_of(Part::Directory(Hierarchy::Primary, number))
    }

    pub(crate) fn joliet(&self, number: u32) -> usize {
        self.start_of(Part::Directory(Hierarchy::Joliet, number))
    }

    /// Returns the offsets of the records of a directory.
    pub(crate) fn records(&self, directory: usize) -> Vec<usize> {
        let mut found = Vec::new();
        let mut at = directory;
        while self.image[at] != 0 {
            found.push(at);
            at += usize::from(self.image[at]);
        }
        found
    }

    /// Returns the offset of the record with an identifier in a directory.
    pub(crate) fn record(&self, directory: usize, identifier: &[u8]) -> usize {
        let named = |at: &usize| {
            usize::from(self.image[at + 32]) == identifier.len()
                && self.image[at + 33..].starts_with(identifier)
        };
        self.records(directory).into_iter().find(named).unwrap()
    }

    /// Returns the offset of the record of `B.TXT;1`.
    fn file(&self) -> usize {
        self.record(self.directory(1), b"B.TXT;1")
    }

    /// Returns the offset of an entry in the system use area of a record.
    fn entry(&self, record: usize, signature: &[u8]) -> usize {
        let area = &self.image[record + 34..record + usize::from(self.image[record])];
        record + 34 + area.windows(2).position(|pair| pair == signature).unwrap()
    }

    /// Returns the offset of the content of a file.
    fn content(&self, path: &str) -> usize {
        let number = (0..).find(|number| self.plan.file_path(*number).as_deref() == Some(path)).unwrap();
        self.start_of(Part::File(number))
    }

    /// Adds the table of the option `-boot-info-table`.
    fn add_info_table(&mut self) {
        let start = self.content("boot/bios.img");
        let words = self.image[start + 64..start + 3004].chunks_exact(4);
        let sum =
            words.fold(0_u32, |sum, word| sum.wrapping_add(u32::from_le_bytes(word.try_into().unwrap())));
        let sector = u32::try_from(start / 2048).unwrap();
        let table: Vec<u8> = [16, sector, 3001, sum].into_iter().flat_map(u32::to_le_bytes).collect();
        self.put(start + 8, &[table.as_slice(), &[0; 40]].concat());
    }

    /// Adds an MBR and a GPT that has the UEFI image as a partition.
    fn add_partitions(&mut self) {
        let sectors = self.image.len() as u64 / 512;
        let efi = self.content("boot/efi.img") as u64 / 512;
        let partition = GptPartition::new(Guid::EFI_SYSTEM, Guid::custom([7; 16]), efi, efi + 7, "EFI");
        let gpt = Gpt::new(Guid::custom([9; 16]), sectors, 64, vec![partition]);
        for gpt in [&gpt, &gpt.backup()] {
            self.put(usize::try_from(gpt.sector * 512).unwrap(), &gpt.header());
            self.put(usize::try_from(gpt.entries_sector * 512).unwrap(), &gpt.table());
        }
        let mut mbr = Mbr { code: [0; 440], disk_id: 1, reserved: [0; 2], partitions: Default::default() };
        let all = u32::try_from(sectors - 1).unwrap();
        mbr.partitions[0] = MbrPartition::new(MbrPartition::PROTECTIVE, 1, all);
        self.put(0, &mbr.to_bytes());
    }
}

/// The offsets of the primary descriptor, and of the Joliet descriptor after the boot record.
const PRIMARY: usize = 16 * 2048;
const BOOT: usize = 17 * 2048;
const JOLIET: usize = 18 * 2048;
const TERMINATOR: usize = 19 * 2048;

macro_rules! faults {
    ($($name:literal [$($rule:ident)*] |$bench:ident| $change:expr;)*) => {
        [$(Fault { name: $name, rules: &[$(Rule::$rule),*], change: |$bench| { $change; } }),*]
    };
}

/// The faults that were also measured with other programs (nine rows, the first without a fault).
pub(crate) fn measured() -> [Fault; 9] {
    faults! {
        // The backup of the GPT is at the end and is lost too.
        "truncated" [ImageTruncated GptHeader GptBackup] |b| b.image.truncate(300 * 2048);
        "a directory that points to itself"
            [DirectoryLoop PathTableSize PathTableDirectory RockRidgeLinks HierarchiesDiffer UnusedNotZero] |b| {
            let root = b.directory(1);
            let sector = b.sector_of(root);
            b.put(b.record(root, b"A") + 2, &sector)
        };
        "an extent past the end" [ExtentOutside HierarchiesDiffer] |b| b.put(b.file() + 2, &both(1 << 20));
        "byte orders that differ" [RecordByteOrders] |b| b.flip(b.file() + 9, 1);
        "a directory out of order" [DirectoryOrder] |b| {
            let (first, second) = (b.file(), b.record(b.directory(1), b"C.TXT;1"));
            b.set(first + 33, b'C');
            b.set(second + 33, b'B')
        };
        "another escape sequence of Joliet, which is legal" [] |b| b.set(JOLIET + 90, b'@');
        "a path table with another address" [PathTableDirectory PathTableParent] |b| {
            b.flip(b.start_of(Part::PathTableL(Hierarchy::Primary)) + 12, 0x40)
        };
        "a volume space size too small" [ExtentOutside] |b| {
            let sectors = u32::try_from(b.content("c.txt") / 2048).unwrap();
            b.put(PRIMARY + 80, &both(sectors));
            b.put(JOLIET + 80, &both(sectors))
        };
        "a record with a wrong length" [RecordLength SuspPadding DirectoryPadding PathTableSize PathTableDirectory RockRidgeLinks HierarchiesDiffer UnusedNotZero] |b| b.add(b.file(), 1);
    }
}

/// Further faults, one at a time.
pub(crate) fn further() -> Vec<Fault> {
    let mut all = Vec::new();
    all.extend(in_descriptors());
    all.extend(in_records());
    all.extend(in_hierarchies());
    all.extend(in_system_use());
    all.extend(in_boot());
    all
}

fn in_descriptors() -> Vec<Fault> {
    faults! {
        "no primary descriptor" [PrimaryMissing DescriptorUnknown UnusedNotZero] |b| b.put(PRIMARY, &[0]);
        "a descriptor of an unknown type" [DescriptorType TerminatorMissing] |b| b.set(TERMINATOR, 7);
        "a descriptor of another version" [DescriptorVersion] |b| b.set(PRIMARY + 6, 3);
        "a byte in the terminator" [DescriptorReserved] |b| b.set(TERMINATOR + 9, 1);
        "a reserved byte of the primary descriptor" [DescriptorReserved] |b| b.set(PRIMARY + 75, 1);
        "a byte after the application use field" [DescriptorReserved] |b| b.set(JOLIET + 2047, 1);
        "a byte of the boot record" [DescriptorReserved] |b| b.set(BOOT + 50, 1);
        "a volume space size in two versions" [DescriptorByteOrders] |b| b.flip(PRIMARY + 84, 1);
        "a larger Joliet volume" [DescriptorsDiffer] |b| b.put(JOLIET + 80, &both(50_000));
        "a smaller Joliet volume" [DescriptorsShorter] |b| b.put(JOLIET + 80, &both(500));
        "a second volume" [VolumeSet] |b| b.put(PRIMARY + 120, &[2, 0, 0, 2]);
        "small blocks" [BlockSize] |b| b.put(JOLIET + 128, &[0, 4, 4, 0]);
        "a label with a control character" [DescriptorText] |b| b.set(PRIMARY + 41, 7);
        "a Joliet publisher with a control character" [DescriptorText] |b| b.set(JOLIET + 319, 7);
        "a thirteenth month" [DescriptorDate] |b| b.put(PRIMARY + 817, b"13");
        "a date without its zone" [DescriptorDate] |b| b.set(PRIMARY + 863, 1);
        "a file structure version" [FileStructureVersion] |b| b.set(PRIMARY + 881, 2);
        "an unknown escape sequence of Joliet" [EscapeSequences UnusedNotZero] |b| b.set(JOLIET + 90, b'F');
        "volume flags" [VolumeFlags] |b| b.set(JOLIET + 7, 1);
        "a root that is a file" [RootRecord] |b| b.set(PRIMARY + 156 + 25, 0);
        "a byte in the application use field" [ApplicationUse] |b| b.set(PRIMARY + 900, b'x');
        "a checksum of implantisomd5" [ImplantedDigest] |b| b.put(PRIMARY + 883, b"ISO MD5SUM = 0123");
        "a supplementary descriptor of an unknown kind" [DescriptorUnknown UnusedNotZero] |b| b.put(JOLIET + 88, b"$)C");
        "the boot record in another sector" [BootRecordPlace] |b| {
            let boot = b.image[BOOT..BOOT + 2048].to_vec();
            b.copy(JOLIET, BOOT, 2048);
            b.put(JOLIET, &boot)
        };
        "bytes after the volume" [BytesAfterVolume] |b| {
            b.image[..32768].fill(0);
            let end = b.image.len();
            b.image[end - 40 * 512..].fill(0);
            b.image.resize(end + 4096, 0)
        };
        "half a sector more" [ImageLength] |b| b.image.resize(b.image.len() + 100, 0);
        "a mark in unused bytes" [UnusedNotZero] |b| b.set(900_000, 1);
        "bytes after the end of a file" [UnusedNotZero] |b| {
            let at = b.content("b.txt") + 3000;
            b.set(at, 1)
        };
        "a UDF file system" [UdfNotChecked] |b| {
            // The first path table is overwritten.
            let table = b.start_of(Part::PathTableL(Hierarchy::Primary));
            b.copy(table, 400 * 2048, 2048);
            b.put(PRIMARY + 140, &400_u32.to_le_bytes());
            b.image[table..table + 2048].fill(0);
            b.put(table, b"\0NSR02\x01")
        };
    }
    .into()
}

fn in_records() -> Vec<Fault> {
    faults! {
        "a record across a sector" [RecordCrossesSector] |b| {
            // The last record of the first sector, made longer.
            let end = b.directory(4) + 2048;
            let last = b.records(b.directory(4)).into_iter().rfind(|record| *record < end).unwrap();
            b.set(last, 254)
        };
        "an identifier longer than its record" [RecordIdentifier HierarchiesDiffer] |b| b.set(b.file() + 32, 250);
        "an empty identifier" [RecordIdentifier HierarchiesDiffer] |b| b.set(b.file() + 32, 0);
        "a padding byte" [RecordPadding] |b| {
            let at = b.record(b.directory(1), b"BOOT") + 37;
            b.set(at, 1)
        };
        "a length in two versions" [RecordByteOrders] |b| b.flip(b.file() + 14, 1);
        "a volume number in two versions" [RecordByteOrders] |b| b.set(b.file() + 28, 2);
        "the 31st of November" [RecordDate] |b| b.set(b.file() + 20, 31);
        "an undefined flag" [RecordFlags] |b| b.or(b.file() + 25, 0x20);
        "protection without attributes" [RecordFlags] |b| b.or(b.file() + 25, 0x10);
        "an interleaved file" [RecordInterleaved] |b| b.set(b.file() + 26, 1);
        "a file on another volume" [RecordVolume] |b| b.put(b.file() + 28, &[2, 0, 0, 2]);
        "an extended attribute record" [ExtendedAttributes ExtentsOverlap HierarchiesDiffer] |b| {
            b.set(b.file() + 1, 1)
        };
        "a file that is not finished" [FileSections] |b| b.or(b.file() + 25, 0x80);
        "an identifier twice" [IdentifierDuplicate DirectoryOrder] |b| b.set(b.record(b.directory(1), b"C.TXT;1") + 33, b'B');
        "a slash in an identifier" [IdentifierUnsafe] |b| b.set(b.file() + 34, b'/');
        "a lower-case identifier" [IdentifierCharacters] |b| b.set(b.file() + 37, b't');
        "an identifier without its version" [IdentifierForm] |b| b.put(b.file() + 38, b"_1");
        "version 0" [IdentifierForm] |b| b.set(b.file() + 39, b'0');
        "a control character in Joliet" [JolietIdentifier] |b| {
            let at = b.record(b.joliet(1), b"\0b\0.\0t\0x\0t");
            b.set(at + 36, 1)
        };
        "a colon in Joliet" [JolietCharacters] |b| {
            let at = b.record(b.joliet(1), b"\0b\0.\0t\0x\0t");
            b.set(at + 40, b':')
        };
        "a system use area in Joliet" [SystemUseUnknown RecordLength] |b| {
            let at = *b.records(b.joliet(4)).last().unwrap();
            b.add(at, 1);
            let end = at + usize::from(b.image[at]) - 1;
            b.set(end, 9)
        };
    }
    .into()
}

fn in_hierarchies() -> Vec<Fault> {
    faults! {
        "a byte after the records" [DirectoryPadding] |b| b.set(b.directory(1) + 2047, 1);
        "a directory of half a sector" [DirectoryLength SelfRecord ParentRecord] |b| {
            b.put(b.record(b.directory(1), b"A") + 10, &both(1024))
        };
        "a directory past the end" [DirectoryOutside PathTableSize PathTableDirectory RockRidgeLinks HierarchiesDiffer UnusedNotZero] |b| {
            b.put(b.record(b.directory(1), b"A") + 10, &both(1 << 24))
        };
        "a self record that points elsewhere" [SelfRecord] |b| {
            let other = b.sector_of(b.directory(1));
            b.put(b.directory(4) + 2, &other)
        };
        "a parent record that points elsewhere" [ParentRecord] |b| {
            let other = b.sector_of(b.directory(3));
            let parent = b.records(b.directory(4))[1];
            b.put(parent + 2, &other)
        };
        "a parent record with another length" [ParentRecord] |b| {
            let parent = b.records(b.directory(4))[1];
            b.put(parent + 10, &both(4096))
        };
        "a Joliet parent record that points elsewhere" [ParentRecord] |b| {
            let other = b.sector_of(b.joliet(3));
            let parent = b.records(b.joliet(4))[1];
            b.put(parent + 2, &other)
        };
        "a parent record that points to its directory" [ParentRecordItself] |b| {
            let other = b.sector_of(b.joliet(4));
            let parent = b.records(b.joliet(4))[1];
            b.put(parent + 2, &other)
        };
        "Joliet out of order" [DirectoryOrder] |b| {
            let (first, second) = (b.record(b.joliet(1), b"\0b\0.\0t\0x\0t"), b.record(b.joliet(1), b"\0c\0.\0t\0x\0t"));
            b.set(first + 34, b'c');
            b.set(second + 34, b'b')
        };
        "a file that reaches into the next one" [ExtentsOverlap HierarchiesDiffer] |b| {
            b.put(b.file() + 10, &both(5000))
        };
        "another extent in Joliet" [HierarchiesDiffer] |b| {
            let other = b.sector_of(b.content("c.txt"));
            let at = b.record(b.joliet(1), b"\0b\0.\0t\0x\0t");
            b.put(at + 2, &other);
            b.put(at + 10, &both(5000))
        };
        "a file in the place of a directory" [ExtentsOverlap HierarchiesDiffer] |b| {
            let other = b.sector_of(b.directory(1));
            b.put(b.file() + 2, &other)
        };
        "a path table past the end" [PathTableOutside UnusedNotZero] |b| b.put(PRIMARY + 140, &[0, 0, 1, 0]);
        "an optional path table of something else" [PathTableDirectory PathTableRecord ExtentsOverlap] |b| {
            let sector = b.directory(1) / 2048;
            b.put(JOLIET + 144, &u32::try_from(sector).unwrap().to_le_bytes())
        };
        "a path table too long" [PathTableSize PathTableRecord] |b| {
            let size = b.image[PRIMARY + 132];
            b.put(PRIMARY + 132, &both(u32::from(size) + 10))
        };
        "a path table with an empty identifier" [PathTableRecord PathTableDirectory] |b| {
            b.set(b.start_of(Part::PathTableM(Hierarchy::Primary)) + 10, 0)
        };
        "a path table with a byte as padding" [PathTableRecord] |b| {
            b.set(b.start_of(Part::PathTableM(Hierarchy::Joliet)) + 9, 1)
        };
        "a path table with another name" [PathTableDirectory] |b| {
            b.flip(b.start_of(Part::PathTableM(Hierarchy::Primary)) + 18, 1)
        };
        "a path table with another parent" [PathTableParent] |b| {
            let table = b.start_of(Part::PathTableL(Hierarchy::Primary));
            b.set(table + 10 + 10 + 12 + 6, 3)
        };
        "a path table out of order" [PathTableOrder PathTableParent] |b| {
            // A and BOOT are exchanged, so the parent's number is wrong too.
            let table = b.start_of(Part::PathTableL(Hierarchy::Primary));
            let (a, boot) = (b.image[table + 10..table + 20].to_vec(), b.image[table + 20..table + 32].to_vec());
            b.put(table + 10, &[boot, a].concat())
        };
    }
    .into()
}

fn in_system_use() -> Vec<Fault> {
    faults! {
        "no SP entry" [SuspStart UnusedNotZero] |b| {
            let at = b.entry(b.directory(1), b"SP");
            b.set(at + 4, 0)
        };
        "an SP entry elsewhere" [SuspStart] |b| {
            let at = b.entry(b.file(), b"TF");
            b.put(at, b"SP\x07\x01\xBE\xEF\0PD\x05\x01\0")
        };
        "an entry past its area" [SuspEntry] |b| {
            let at = b.entry(b.file(), b"TF");
            b.set(at + 2, 200)
        };
        "an entry of another version" [SuspEntry] |b| {
            let at = b.entry(b.file(), b"TF");
            b.set(at + 3, 2)
        };
        "bytes after the entries" [SuspPadding] |b| {
            let boot = b.record(b.directory(1), b"BOOT");
            let end = boot + usize::from(b.image[boot]) - 1;
            b.set(end, 5)
        };
        "an entry of an unknown kind" [SuspUnknown] |b| {
            let at = b.entry(b.file(), b"TF");
            b.put(at, b"QQ")
        };
        "an owner in two versions" [SuspByteOrders] |b| {
            let at = b.entry(b.file(), b"PX");
            b.set(at + 20, 1)
        };
        "a continuation past the end" [ContinuationOutside UnusedNotZero] |b| {
            let at = b.entry(b.records(b.directory(1)).pop().unwrap(), b"CE");
            b.put(at + 4, &both(u32::MAX))
        };
        "a continuation across blocks" [ContinuationOutside UnusedNotZero] |b| {
            let at = b.entry(b.records(b.directory(1)).pop().unwrap(), b"CE");
            b.put(at + 12, &both(2000))
        };
        "a continuation that points to itself" [ContinuationLoop RockRidgeUnannounced] |b| {
            let at = b.start_of(Part::Continuation);
            let (block, length) = (b.sector_of(at), b.entry(b.directory(1), b"CE") + 20);
            let length = b.image[length..length + 8].to_vec();
            let loops = [b"CE\x1c\x01".as_slice(), &block, &both(0), &length, b"PD"].concat();
            let rest = u8::try_from(u32::from_le_bytes(length[..4].try_into().unwrap()) - 28).unwrap();
            b.put(at, &loops);
            b.put(at + 28, b"PD\0\x01");
            b.set(at + 30, rest)
        };
        "a continuation used twice" [ExtentsOverlap RockRidgeDuplicate UnusedNotZero] |b| {
            let records = b.records(b.directory(1));
            let (first, second) = (records[records.len() - 2], records[records.len() - 1]);
            let (first, second) = (b.entry(first, b"CE"), b.entry(second, b"CE"));
            b.copy(first + 4, second + 4, 24)
        };
        "an ER entry with a wrong text" [ExtensionReference RockRidgeUnannounced] |b| {
            b.set(b.start_of(Part::Continuation) + 4, 11)
        };
        "an ER entry for something else" [RockRidgeUnannounced] |b| {
            b.set(b.start_of(Part::Continuation) + 8, b'X')
        };
        "an entry with the wrong flags for its length" [RockRidgeEntry] |b| {
            let at = b.entry(b.file(), b"TF");
            b.set(at + 4, 0x06)
        };
        "a record without a mode" [RockRidgeMissing] |b| {
            let at = b.entry(b.file(), b"PX");
            b.put(at, b"PD")
        };
        "a file with the mode of a directory" [RockRidgeMode] |b| {
            let at = b.entry(b.file(), b"PX");
            b.put(at + 4, &both(0o040_555))
        };
        "a link without a target" [RockRidgeMode] |b| {
            let at = b.entry(b.file(), b"PX");
            b.put(at + 4, &both(0o120_777))
        };
        "a directory with a wrong number of links" [RockRidgeLinks] |b| {
            let at = b.entry(b.directory(2), b"PX");
            b.put(at + 12, &both(9))
        };
        "an invalid Rock Ridge date" [RockRidgeDate] |b| {
            let at = b.entry(b.file(), b"TF");
            b.set(at + 6, 13)
        };
        "a name that leaves its directory" [RockRidgeName] |b| {
            let at = b.entry(b.file(), b"NM");
            b.set(at + 6, b'/')
        };
        "a Rock Ridge name twice" [RockRidgeDuplicate] |b| {
            let at = b.entry(b.file(), b"NM");
            b.set(at + 5, b'c')
        };
        "a component past the end of a link" [RockRidgeLink RockRidgeMode] |b| {
            let at = b.entry(b.file(), b"TF");
            b.put(at, b"SL\x0c\x01\x00\x00\x09b.txt")
        };
        "a relocated directory that is none" [RockRidgeRelocation RockRidgeMode HierarchiesDiffer] |b| {
            let at = b.entry(b.file(), b"TF");
            b.put(at, &[b"CL\x0c\x01".as_slice(), &both(0)].concat())
        };
        "a parent link without its child link" [RockRidgeRelocation] |b| {
            let parent = b.records(b.directory(4))[1];
            let at = b.entry(parent, b"TF");
            b.put(at, &[b"PL\x0c\x01".as_slice(), &both(20)].concat())
        };
        "zisofs with small blocks" [CompressedFile] |b| {
            let at = b.entry(b.record(b.directory(1), b"C.TXT;1"), b"TF");
            // TF, with its 12 bytes, becomes the start of an entry of 16 bytes that replaces the NM entry too.
            b.put(at, &[b"ZF\x10\x01pz\x04\x02".as_slice(), &both(9), b"PD\x06\x01\0\0"].concat())
        };
    }
    .into()
}

fn in_boot() -> Vec<Fault> {
    faults! {
        "a boot catalog past the end" [BootCatalogOutside UnusedNotZero] |b| b.put(BOOT + 71, &[0, 0, 1, 0]);
        "a boot catalog with a wrong sum" [BootCatalogValidation] |b| {
            b.flip(b.start_of(Part::BootCatalog) + 4, 1)
        };
        "a boot catalog without its key" [BootCatalogValidation] |b| {
            b.set(b.start_of(Part::BootCatalog) + 31, 0)
        };
        "a boot entry of an unknown type" [BootCatalogEntry] |b| {
            b.set(b.start_of(Part::BootCatalog) + 64, 0x77)
        };
        "a boot entry with unknown media" [BootCatalogEntry] |b| {
            b.set(b.start_of(Part::BootCatalog) + 33, 9)
        };
        "a boot section without entries" [BootCatalogEntry] |b| {
            b.set(b.start_of(Part::BootCatalog) + 66, 0)
        };
        "a boot section for an unknown platform" [BootCatalogEntry] |b| {
            b.set(b.start_of(Part::BootCatalog) + 65, 0x33)
        };
        "a last boot section that is not the last" [BootCatalogEntry] |b| {
            b.set(b.start_of(Part::BootCatalog) + 64, 0x90)
        };
        "bytes after the boot entries" [BootCatalogEntry] |b| {
            b.set(b.start_of(Part::BootCatalog) + 2000, 1)
        };
        "a boot image past the end" [BootImageOutside] |b| {
            b.put(b.start_of(Part::BootCatalog) + 32 + 8, &[0, 0, 1, 0])
        };
        "a boot image longer than the rest of the image" [BootImageOutside] |b| {
            b.put(b.start_of(Part::BootCatalog) + 96 + 6, &[0xFF, 0xFF])
        };
        "a boot image in the middle of a file" [BootImageOutside] |b| {
            let at = b.start_of(Part::BootCatalog) + 96 + 8;
            b.add(at, 1)
        };
        "a boot info table with another sector" [BootInfoTable] |b| {
            let at = b.content("boot/bios.img") + 12;
            b.flip(at, 1)
        };
        "a boot info table with another sum" [BootInfoTable] |b| {
            let at = b.content("boot/bios.img") + 20;
            b.flip(at, 1)
        };
        "a boot image that changed" [BootInfoTable] |b| {
            let at = b.content("boot/bios.img") + 3000;
            b.flip(at, 1)
        };
        "no MBR" [SystemAreaUnknown] |b| b.set(510, 0);
        "a partition with a strange status" [MbrPartition] |b| b.set(446, 1);
        "a partition that begins past the end" [MbrPartition] |b| b.put(446 + 8, &[0, 0, 1, 0]);
        "a GPT header with a wrong sum" [GptHeader UnusedNotZero] |b| b.flip(512 + 57, 1);
        "a protective MBR without a GPT" [GptHeader UnusedNotZero] |b| b.set(512, b'e');
        "GPT entries with a wrong sum" [GptEntries UnusedNotZero] |b| b.flip(1024 + 57, 1);
        "a backup GPT with a wrong sum" [GptBackup UnusedNotZero] |b| {
            let at = b.image.len() - 512 + 57;
            b.flip(at, 1)
        };
        "no backup GPT" [GptBackup] |b| {
            let end = b.image.len();
            b.image[end - 33 * 512..].fill(0)
        };
    }
    .into()
}
