//! The record of the content of an image: `/.shoal/build.json`.

use serde::{Deserialize, Serialize};

/// The path of the record in an image.
pub const RECORD_PATH: &str = ".shoal/build.json";
/// The form of the record.
pub const RECORD_FORMAT: u32 = 1;

/// The record of an image.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Record {
    /// The form of this document; 1.
    pub format: u32,
    /// `full` or `small`.
    pub profile: String,
    /// The release of the kernel.
    pub kernel: String,
    /// The date of the image in seconds since 1970: the last change of the newest package in it.
    pub epoch: u64,
    /// The command line of the kernel.
    pub command_line: String,
    /// The agent program.
    pub agent: FileRecord,
    /// The packages of which something is in the image.
    pub packages: Vec<PackageRecord>,
    /// The large files of the image.
    pub files: Vec<FileRecord>,
    /// The first file system of the kernel.
    pub initramfs: InitramfsRecord,
    /// The kernel modules.
    pub modules: Vec<String>,
    /// Drivers of the profile that this kernel does not have.
    pub drivers_missing: Vec<String>,
    /// The firmware files.
    pub firmware: Vec<String>,
    /// Firmware files that no package had.
    pub firmware_missing: Vec<FirmwareRecord>,
    /// The programs.
    pub programs: Vec<String>,
    /// Programs that are used when present and that no package had.
    pub programs_missing: Vec<ProgramRecord>,
}

/// A file.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FileRecord {
    /// The path of the file in the image.
    pub path: String,
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The SHA-256 of the file in hex.
    pub sha256: String,
}

/// A package.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PackageRecord {
    /// The name of the package.
    pub name: String,
    /// The version of the package.
    pub version: String,
    /// The architecture of the package.
    pub architecture: String,
    /// The source package of the package, with the version if that differs.
    pub source: String,
    /// The SHA-256 of the package file.
    pub sha256: String,
    /// The names of licences in the copyright file of the package. Empty when the file names none.
    pub licences: Vec<String>,
}

/// The first file system of the kernel.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct InitramfsRecord {
    /// The bytes of the files of the archive.
    pub bytes: u64,
    /// The bytes of the packed archive.
    pub packed_bytes: u64,
    /// The form in which the archive is packed.
    pub packing: String,
}

/// A firmware file that is missing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FirmwareRecord {
    /// The driver that asks for the firmware.
    pub module: String,
    /// The file, below `/lib/firmware`.
    pub file: String,
    /// The loss of the card without the firmware, in words.
    pub without: String,
}

/// A program that is missing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProgramRecord {
    /// The path of the program.
    pub path: String,
    /// The package that has the program.
    pub package: String,
}
