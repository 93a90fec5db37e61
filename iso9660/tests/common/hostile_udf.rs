//! UDF images with one fault each, derived from the good ones.
#![allow(clippy::unwrap_used, dead_code, reason = "each test binary uses some of it")]

use super::hostile::{Hostile, Outcome};
use super::udf::{FLAVOURS, Flavour, UdfImage, image};

const OUTSIDE: &str = "a UDF address lies inside its partition";
const TWICE: &str = "a directory is in one place of the tree only";

/// A change of a good image, and the expected result of reading it.
type Fault = (&'static str, Flavour, Outcome, fn(&mut UdfImage));

/// Changes the descriptor in both descriptor sequences.
fn both(image: &mut UdfImage, name: &str, at: usize, value: &[u8]) {
    image.change(&format!("main {name}"), at, value);
    image.change(&format!("reserve {name}"), at, value);
}

/// Returns all images, the good ones first.
pub(crate) fn hostile_udf_images() -> Vec<Hostile> {
    let good = ["udf_physical", "udf_metadata", "udf_sparable", "udf_virtual"];
    let good = good.into_iter().zip(FLAVOURS).map(|(name, flavour)| Hostile {
        name,
        image: image(flavour).bytes,
        outcome: Outcome::Readable,
    });
    let faults = [VOLUME, PARTITIONS, FILES, DIRECTORIES].concat();
    let faulty = faults.into_iter().map(|(name, flavour, outcome, change)| {
        let mut image = image(flavour);
        change(&mut image);
        Hostile { name, image: image.bytes, outcome }
    });
    good.chain(faulty).collect()
}

const VOLUME: &[Fault] = &[
    (
        "udf_no_anchor",
        Flavour::Physical,
        Outcome::Invalid("a UDF volume has an anchor at block 256 or at its end"),
        |image| {
            image.change("anchor", 0, &[9]);
            image.change("last anchor", 0, &[9]);
        },
    ),
    ("udf_descriptors_without_end", Flavour::Physical, Outcome::Limit("UDF volume descriptors"), |image| {
        // A pointer to its own sequence.
        for (name, block) in [("main primary", 32_u32), ("reserve primary", 48)] {
            image.change(name, 0, &[3]);
            image.change(name, 20, &[2048_u32, block].map(u32::to_le_bytes).concat());
        }
    }),
    ("udf_file_set_outside", Flavour::Physical, Outcome::Invalid(OUTSIDE), |image| {
        both(image, "logical", 252, &u32::MAX.to_le_bytes())
    }),
    (
        "udf_file_set_in_no_partition",
        Flavour::Physical,
        Outcome::Invalid("a UDF address names a partition"),
        |image| both(image, "logical", 256, &[7]),
    ),
    (
        "udf_root_is_a_file",
        Flavour::Physical,
        Outcome::Invalid("the root of a UDF volume is a directory"),
        |image| image.change("root", 27, &[5]),
    ),
    (
        "udf_small_blocks",
        Flavour::Physical,
        Outcome::Unsupported("UDF blocks of another size than the medium's"),
        |image| both(image, "logical", 212, &512_u32.to_le_bytes()),
    ),
];

const PARTITIONS: &[Fault] = &[
    ("udf_partition_maps_without_number", Flavour::Physical, Outcome::Limit("UDF partition maps"), |image| {
        both(image, "logical", 268, &u32::MAX.to_le_bytes())
    }),
    (
        "udf_partition_maps_past_their_descriptor",
        Flavour::Physical,
        Outcome::Invalid("the partition maps of a Logical Volume Descriptor lie inside it"),
        |image| both(image, "logical", 264, &u32::MAX.to_le_bytes()),
    ),
    (
        "udf_partition_map_of_no_length",
        Flavour::Physical,
        Outcome::Invalid("the partition maps of a Logical Volume Descriptor lie inside it"),
        |image| both(image, "logical", 441, &[0]),
    ),
    (
        "udf_partition_of_no_descriptor",
        Flavour::Physical,
        Outcome::Invalid("a partition map names a Partition Descriptor"),
        |image| both(image, "logical", 444, &[9]),
    ),
    (
        "udf_partition_of_unknown_kind",
        Flavour::Metadata,
        Outcome::Unsupported("this kind of UDF partition"),
        |image| both(image, "logical", 446 + 6, b"X"),
    ),
    (
        "udf_metadata_file_with_a_hole",
        Flavour::Metadata,
        Outcome::Invalid("the metadata file of UDF has no holes"),
        |image| {
            for name in ["metadata file", "metadata mirror"] {
                image.change(name, 216 + 3, &[0x80]);
            }
        },
    ),
    (
        "udf_packets_without_blocks",
        Flavour::Sparable,
        Outcome::Invalid("the packets of a sparable partition have blocks"),
        |image| both(image, "logical", 440 + 40, &[0, 0]),
    ),
    (
        "udf_virtual_block_outside",
        Flavour::Virtual,
        Outcome::Invalid(OUTSIDE),
        // The entry of the first plain file.
        |image| image.change("allocation table", 176 + 152 + 8, &[0xFF; 4]),
    ),
];

const FILES: &[Fault] = &[
    (
        "udf_extents_that_lead_to_themselves",
        Flavour::Physical,
        Outcome::Limit("extents of allocation descriptors of one file"),
        |image| {
            // A single continuation descriptor, which points to its own block.
            let at = image.at("area 0");
            let block: [u8; 4] = image.bytes[at + 12..at + 16].try_into().unwrap();
            let again = [&(2048_u32 | 3 << 30).to_le_bytes()[..], &block, &[0; 8]].concat();
            image.change("area 0", 24, &again);
        },
    ),
    (
        "udf_extents_that_lead_to_a_file_entry",
        Flavour::Metadata,
        Outcome::Invalid("allocation descriptors continue in an allocation extent"),
        |image| {
            let at = image.at("chain.bin");
            let own: [u8; 4] = image.bytes[at + 12..at + 16].try_into().unwrap();
            image.change("chain.bin", 216 + 16 + 4, &own);
        },
    ),
    ("udf_crc_wrong", Flavour::Physical, Outcome::Invalid("the CRC of a UDF descriptor is right"), |image| {
        let at = image.at("readme.txt");
        image.bytes[at + 56] ^= 1;
    }),
    (
        "udf_checksum_wrong",
        Flavour::Physical,
        Outcome::Invalid("a UDF descriptor begins with a tag whose checksum is right"),
        |image| {
            let at = image.at("readme.txt");
            image.bytes[at + 4] ^= 1;
        },
    ),
    (
        "udf_entry_of_another_block",
        Flavour::Physical,
        Outcome::Invalid("a UDF descriptor says which block it is in"),
        |image| image.change("readme.txt", 12, &[99]),
    ),
    ("udf_file_past_its_partition", Flavour::Physical, Outcome::Invalid(OUTSIDE), |image| {
        image.change("readme.txt", 176 + 4, &u32::MAX.to_le_bytes())
    }),
    (
        "udf_file_past_the_image",
        Flavour::Physical,
        Outcome::Invalid("a file lies inside the image"),
        |image| {
            both(image, "partition", 192, &u32::MAX.to_le_bytes());
            image.change("readme.txt", 176 + 4, &0x7FFF_FFFF_u32.to_le_bytes());
        },
    ),
    (
        "udf_file_longer_than_its_extents",
        Flavour::Physical,
        Outcome::Invalid("the extents of a UDF file hold all of its bytes"),
        |image| image.change("readme.txt", 56, &u64::MAX.to_le_bytes()),
    ),
    (
        "udf_inline_file_longer_than_its_entry",
        Flavour::Physical,
        Outcome::Invalid("the extents of a UDF file hold all of its bytes"),
        |image| image.change("inline.txt", 56, &701_u64.to_le_bytes()),
    ),
    (
        "udf_extents_past_their_block",
        Flavour::Physical,
        Outcome::Invalid("the extents of a file entry end inside its block"),
        |image| image.change("readme.txt", 168, &[0xFF; 8]),
    ),
    (
        "udf_extents_of_unknown_form",
        Flavour::Physical,
        Outcome::Invalid("a file entry has a known form of extents"),
        |image| image.change("readme.txt", 34, &[7]),
    ),
    (
        "udf_another_strategy",
        Flavour::Physical,
        Outcome::Unsupported("UDF strategies other than 4"),
        |image| image.change("readme.txt", 20, &4096_u16.to_le_bytes()),
    ),
    (
        "udf_extents_recorded_otherwise",
        Flavour::Physical,
        Outcome::Unsupported("UDF extents that are recorded in another form"),
        |image| image.change("extended.bin", 176 + 4, &[1]),
    ),
    ("udf_link_to_itself", Flavour::Physical, Outcome::Limit("symbolic links in one path"), |image| {
        // `sources/inline.txt` becomes `././././link`.
        image.change("link", 176, &[b"\x04\0\0\0".repeat(4), b"\x05\x05\0\0\x08link".to_vec()].concat());
    }),
    (
        "udf_link_with_half_a_component",
        Flavour::Physical,
        Outcome::Invalid("a component of a symbolic link ends inside its file"),
        |image| image.change("link", 177, &[200]),
    ),
];

const DIRECTORIES: &[Fault] = &[
    ("udf_directory_that_contains_itself", Flavour::Physical, Outcome::Invalid(TWICE), |image| {
        let root = image.at("root");
        let block: [u8; 4] = image.bytes[root + 12..root + 16].try_into().unwrap();
        image.change_identifier("sources data", b"inline.txt", 24, &block);
    }),
    ("udf_directory_linked_twice", Flavour::Metadata, Outcome::Invalid(TWICE), |image| {
        let sources = image.at("sources");
        let block: [u8; 4] = image.bytes[sources + 12..sources + 16].try_into().unwrap();
        image.change_identifier("sources data", b"inline.txt", 24, &block);
    }),
    (
        "udf_name_past_its_directory",
        Flavour::Physical,
        Outcome::Invalid("a file identifier ends inside its directory"),
        |image| image.change_identifier("sources data", b"extended.bin", 36, &[0xFF, 0xFF]),
    ),
    (
        "udf_name_of_unknown_form",
        Flavour::Physical,
        Outcome::Invalid("a UDF name has a known form"),
        |image| image.change_identifier("sources data", b"inline.txt", 38, &[3]),
    ),
    (
        "udf_name_of_the_parent",
        Flavour::Physical,
        Outcome::Invalid("the name of an entry is not empty, `.` or `..`"),
        |image| {
            image.change_identifier("root", b"link", 19, &[3]);
            image.change_identifier("root", b"link", 38, b"\x08..\0\0");
            image.change("root", 0, &[]);
        },
    ),
    ("udf_empty_name", Flavour::Physical, Outcome::Invalid("a UDF name has a known form"), |image| {
        // The bytes of the name become implementation use.
        image.change_identifier("root", b"link", 36, &[4]);
        image.change_identifier("root", b"link", 19, &[0]);
        image.change("root", 0, &[]);
    }),
    ("udf_name_with_a_slash", Flavour::Physical, Outcome::Readable, |image| {
        image.change_identifier("sources data", b"extended.bin", 39, b"../..");
    }),
    (
        "udf_directory_with_holes",
        Flavour::Virtual,
        Outcome::Invalid("a UDF directory is recorded"),
        |image| image.change("sources", 176 + 3, &[0x80]),
    ),
    (
        "udf_directory_of_a_tebibyte",
        Flavour::Physical,
        Outcome::Invalid("the extents of a UDF file hold all of its bytes"),
        |image| image.change("sources", 56, &(1_u64 << 40).to_le_bytes()),
    ),
    (
        "udf_directory_of_a_gibibyte",
        Flavour::Physical,
        Outcome::Invalid("directories do not overlap"),
        |image| {
            both(image, "partition", 192, &u32::MAX.to_le_bytes());
            image.change("sources", 56, &(0x3FFF_F800_u64).to_le_bytes());
            image.change("sources", 176, &0x3FFF_F800_u32.to_le_bytes());
        },
    ),
];
