//! A boot medium of 350 bytes of code, made by hand: it installs the disk of a BIOS machine and switches the machine off.
//!
//! The CD prints [`CD_LINE`] on the serial port, writes one sector to the first disk, prints [`INSTALLED_LINE`], and powers
//! off through ACPI. The disk prints [`LOGIN_LINE`] and reads the serial port: `q` powers off, `r` restarts. The source is
//! `medium.s`; no foreign file is needed.

use iso9660::{BiosBoot, Boot, ImageOptions, ImagePlan, Profile, Tree};

/// What the CD prints first.
pub(crate) const CD_LINE: &str = "test medium: booted from CD";
/// What the CD prints after it wrote the disk.
pub(crate) const INSTALLED_LINE: &str = "test medium: disk written, powering off";
/// What the disk prints last.
pub(crate) const LOGIN_LINE: &str = "test login: ";

/// The code of the CD.
const CD: &[&str] = &[
    "fa31c08ed88ec08ed0bc007cfbfcbe5b7ce81f00be4b7cb80043b280cd13be797c7303bea37ce80a00ba0406b80020eff4eb",
    "fdac84c0741288c4bafd03eca82074fbbaf80388e0eeebe9c310000100007e0000000000000000000074657374206d656469",
    "756d3a20626f6f7465642066726f6d2043440d0a0074657374206d656469756d3a206469736b207772697474656e2c20706f",
    "776572696e67206f66660d0a0074657374206d656469756d3a20746865206469736b20776173206e6f74207772697474656e",
    "0d0a00",
];
/// The code of the disk.
const DISK: &[&str] = &[
    "fa31c08ed88ed0bc007cfcbe4f7ce82600bafd03eca80174fbbaf803ec3c72740e3c7175ecba0406b80020eff4ebfdbaf90c",
    "b006eeebf5ac84c0741288c4bafd03eca82074fbbaf80388e0eeebe9c374657374206469736b3a20626f6f7465640d0a7465",
    "7374206c6f67696e3a2000",
];

/// The boot image: the code of the CD, then the sector that it writes.
fn boot_image() -> Vec<u8> {
    let code = |pieces: &[&str]| {
        let digits = pieces.concat();
        let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
        (0..digits.len()).step_by(2).map(byte).collect::<Vec<u8>>()
    };
    let mut image = code(CD);
    image.resize(512, 0);
    image.extend(code(DISK));
    // The signature of a boot sector.
    image.resize(1022, 0);
    image.extend([0x55, 0xaa]);
    image.resize(2048, 0);
    image
}

/// The medium as bytes.
pub(crate) fn medium() -> Vec<u8> {
    let mut tree = Tree::new();
    tree.add_file("boot/test.bin", boot_image()).unwrap();
    let mut options = ImageOptions::new(Profile::Boot, "SHOAL_TEST", 1_735_689_600);
    options.boot = Some(Boot::new(Some(BiosBoot::new("boot/test.bin")), None));
    let mut bytes = Vec::new();
    ImagePlan::new(&tree, &options).unwrap().write_to(&mut bytes).unwrap();
    bytes
}
