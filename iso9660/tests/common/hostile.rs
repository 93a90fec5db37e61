//! Images with one fault each, derived from good ones in code, so that no binary file has an unknown origin.
#![allow(clippy::unwrap_used, clippy::expect_used, dead_code, reason = "each test binary uses some of it")]

use iso9660::{Hierarchy, ImageOptions, ImagePlan, Part, Profile, Tree};

use super::{EPOCH, boot_plan, stream};

/// An image and the expected result of reading it.
pub(crate) struct Hostile {
    pub(crate) name: &'static str,
    pub(crate) image: Vec<u8>,
    pub(crate) outcome: Outcome,
}

/// The result of opening an image, walking it and reading all of its files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Outcome {
    /// Everything is readable.
    Readable,
    /// The image breaks a rule.
    Invalid(&'static str),
    /// A budget is exhausted.
    Limit(&'static str),
    /// The image needs an unsupported feature.
    Unsupported(&'static str),
}

/// A small image with a directory `a`, the files `a/file` and `b.txt`, and a name that needs a continuation.
fn small() -> (ImagePlan, Vec<u8>) {
    let mut tree = Tree::new();
    tree.add_file("a/file", "inside\n").unwrap().add_file("b.txt", "beside\n").unwrap();
    tree.add_file(&"long".repeat(50), "long\n").unwrap();
    let options = ImageOptions::new(Profile::Task, "SMALL", EPOCH).with_min_size(0).with_joliet(false);
    let plan = ImagePlan::new(&tree, &options).unwrap();
    let bytes = stream(&plan);
    (plan, bytes)
}

pub(crate) fn start_of(plan: &ImagePlan, part: Part) -> usize {
    usize::try_from(plan.segments().find(|segment| segment.part == part).unwrap().offset).unwrap()
}

/// Returns the offset of the record with this identifier in a directory.
pub(crate) fn record(image: &[u8], directory: usize, identifier: &[u8]) -> usize {
    let mut at = directory;
    while image[at] != 0 {
        if image[at + 33..].starts_with(identifier) && usize::from(image[at + 32]) == identifier.len() {
            return at;
        }
        at += usize::from(image[at]);
    }
    panic!("no record of {identifier:?}")
}

pub(crate) fn both(value: u32) -> [u8; 8] {
    [value.to_le_bytes(), value.to_be_bytes()].concat().try_into().unwrap()
}

pub(crate) fn put(image: &mut [u8], at: usize, value: &[u8]) {
    image[at..at + value.len()].copy_from_slice(value);
}

/// Returns the offset of an entry in the system use area of a record.
fn entry(image: &[u8], record: usize, signature: &[u8]) -> usize {
    let area = record..record + usize::from(image[record]);
    record + image[area].windows(2).position(|pair| pair == signature).unwrap()
}

/// Returns the offset of the data of a record.
fn data_of(image: &[u8], record: usize) -> usize {
    u32::from_le_bytes(image[record + 2..record + 6].try_into().unwrap()) as usize * 2048
}

/// Returns all images, the good ones first.
pub(crate) fn hostile_images() -> Vec<Hostile> {
    let (plan, good) = small();
    let root = start_of(&plan, Part::Directory(Hierarchy::Primary, 1));
    let continuation = start_of(&plan, Part::Continuation);
    let (a, b) = (record(&good, root, b"A"), record(&good, root, b"B.TXT;1"));
    let root_sector = u32::try_from(root / 2048).unwrap();
    let boot = boot_plan();
    let mut all = vec![
        Hostile { name: "good_small", image: good.clone(), outcome: Outcome::Readable },
        Hostile { name: "good_boot", image: stream(&boot), outcome: Outcome::Readable },
    ];
    let mut add = |name, outcome, change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = good.clone();
        change(&mut image);
        all.push(Hostile { name, image, outcome });
    };

    add("self_directory", Outcome::Invalid("a directory is in one place of the tree only"), &|image| {
        put(image, a + 2, &both(root_sector));
    });
    add("root_of_four_gibibytes", Outcome::Invalid("a directory lies inside the image"), &|image| {
        put(image, 16 * 2048 + 156 + 10, &both(0xFFFF_F800));
    });
    add("continuation_loop", Outcome::Invalid("a continuation area is used once per record"), &|image| {
        let sector = u32::try_from(continuation / 2048).unwrap();
        let area = [b"CE\x1c\x01".as_slice(), &both(sector), &both(0), &both(32), b"ST\x04\x01"].concat();
        put(image, continuation, &area);
    });
    add("continuation_outside", Outcome::Invalid("a continuation area lies inside the image"), &|image| {
        let at = entry(image, root, b"CE");
        put(image, at + 4, &both(u32::MAX));
    });
    add("byte_orders_differ", Outcome::Invalid("both byte orders of a directory record agree"), &|image| {
        image[b + 3] ^= 1
    });
    add("record_past_its_sector", Outcome::Invalid("a directory record ends inside its sector"), &|image| {
        let last = root + 2048 - 40;
        put(image, last, &[200]);
        // The records before it lead up to the end of the sector.
        let at = b + usize::from(image[b]);
        let long = at + usize::from(image[at]);
        let mut from = long;
        while from < last {
            let length = if last - from > 254 { (last - from - 34).min(200) & !1 } else { last - from };
            let mut filler = vec![0; length];
            filler[0] = u8::try_from(length).unwrap();
            (filler[32], filler[33]) = (1, b'X');
            put(image, from, &filler);
            from += length;
        }
    });
    add(
        "identifier_past_its_record",
        Outcome::Invalid("an identifier ends inside its directory record"),
        &|image| image[b + 32] = 250,
    );
    add("empty_identifier", Outcome::Invalid("an identifier has at least one byte"), &|image| {
        image[b + 32] = 0
    });
    add("interleaved", Outcome::Unsupported("interleaved files"), &|image| image[b + 26] = 1);
    add(
        "unfinished_file",
        Outcome::Invalid("a record that is not the last of its file is followed by the next one"),
        &|image| {
            image[b + 25] |= 0x80;
        },
    );
    add("unfinished_directory", Outcome::Invalid("only the records of files continue"), &|image| {
        image[a + 25] |= 0x80
    });
    add("file_past_the_end", Outcome::Invalid("a file lies inside the image"), &|image| {
        put(image, b + 10, &both(u32::MAX));
    });
    add("name_of_the_parent", Outcome::Invalid("the name of an entry is not empty, `.` or `..`"), &|image| {
        let at = entry(image, b, b"NM");
        put(image, at, b"NM\x07\x01\x00..\0\0\0");
    });
    add("name_with_a_slash", Outcome::Readable, &|image| {
        let at = entry(image, b, b"NM");
        put(image, at + 5, b"../et");
    });
    add("symbolic_link_to_itself", Outcome::Limit("symbolic links in one path"), &|image| {
        let at = entry(image, b, b"TF");
        put(image, at, b"SL\x0c\x01\x00\x00\x05b.txt");
    });
    add(
        "relocated_to_the_root",
        Outcome::Invalid("a directory is in one place of the tree only"),
        &|image| {
            let at = entry(image, b, b"TF");
            put(image, at, &[b"CL\x0c\x01".as_slice(), &both(root_sector)].concat());
        },
    );
    add("relocated_to_nothing", Outcome::Invalid("a directory begins with the record of itself"), &|image| {
        let at = entry(image, b, b"TF");
        put(image, at, &[b"CL\x0c\x01".as_slice(), &both(0)].concat());
    });
    add("name_with_a_nul", Outcome::Readable, &|image| {
        let at = entry(image, b, b"NM");
        image[at + 6] = 0;
    });
    add("path_tables_of_four_gibibytes", Outcome::Readable, &|image| {
        // The reader does not read path tables.
        put(image, 16 * 2048 + 132, &[0xFF; 16]);
    });
    let zisofs = |log2: u8, pointers: [u32; 3]| {
        // The entry replaces date and name; the file has two blocks of zeros.
        let len = 40_000_u32.to_le_bytes();
        let field = [b"ZF\x10\x01pz\x04".as_slice(), &[log2], &both(40_000), &[0; 6]].concat();
        let magic = [0x37, 0xE4, 0x53, 0x96, 0xC9, 0xDB, 0xD6, 0x07];
        let stored = [&magic[..], &len, &[4, log2, 0, 0], &pointers.map(u32::to_le_bytes).concat()].concat();
        move |image: &mut Vec<u8>| {
            let (at, data) = (entry(image, b, b"TF"), data_of(image, b));
            put(image, at, &field);
            put(image, b + 10, &both(u32::try_from(stored.len()).unwrap()));
            put(image, data, &stored);
        }
    };
    add("zisofs_of_zeros", Outcome::Readable, &zisofs(15, [28; 3]));
    let blocks = "the blocks of a zisofs file have 32, 64 or 128 KiB";
    add("zisofs_with_tiny_blocks", Outcome::Invalid(blocks), &zisofs(2, [28; 3]));
    let pointers = "the pointers of a zisofs file grow and are inside the file";
    add(
        "zisofs_with_pointers_past_the_end",
        Outcome::Invalid(pointers),
        &zisofs(15, [28, u32::MAX, u32::MAX]),
    );
    add("zisofs_with_pointers_that_shrink", Outcome::Invalid(pointers), &zisofs(15, [28, 27, 28]));
    let whole = "a ZF entry has its length, and its byte orders agree";
    add("zisofs_entry_too_short", Outcome::Invalid(whole), &|image| {
        let at = entry(image, b, b"TF");
        put(image, at, b"ZF\x08\x01pz\x04\x0f\0\0\0\0");
    });
    add("entry_past_its_area", Outcome::Invalid("a system use entry ends inside its area"), &|image| {
        let at = entry(image, b, b"PX");
        image[at + 2] = 255;
    });
    add(
        "no_primary_descriptor",
        Outcome::Invalid("an ISO 9660 image has a Primary Volume Descriptor"),
        &|image| {
            image[16 * 2048] = 3;
        },
    );
    add("small_blocks", Outcome::Unsupported("logical blocks of other than 2048 bytes"), &|image| {
        put(image, 16 * 2048 + 128, &[0, 2, 2, 0]);
    });
    let catalog = start_of(&boot, Part::BootCatalog);
    let mut image = stream(&boot);
    image[catalog + 4] ^= 1;
    let outcome = Outcome::Invalid("the boot catalog begins with a valid validation entry");
    all.push(Hostile { name: "catalog_checksum", image, outcome });
    all
}
