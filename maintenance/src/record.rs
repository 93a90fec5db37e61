//! What is in an image: `/.shoal/build.json`.

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
    /// Its path in the image.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256 in hex.
    pub sha256: String,
}

/// A package.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct PackageRecord {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture.
    pub architecture: String,
    /// Its source package, with the version if that differs.
    pub source: String,
    /// The SHA-256 of the package file.
    pub sha256: String,
    /// The names of licences in its copyright file. Empty when the file names none.
    pub licences: Vec<String>,
}

/// The first file system of the kernel.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct InitramfsRecord {
    /// The bytes of its files.
    pub bytes: u64,
    /// The bytes of the packed archive.
    pub packed_bytes: u64,
    /// How it is packed.
    pub packing: String,
}

/// A firmware file that is missing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FirmwareRecord {
    /// The driver that asks for it.
    pub module: String,
    /// The file, below `/lib/firmware`.
    pub file: String,
    /// What the card does without it.
    pub without: String,
}

/// A program that is missing.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ProgramRecord {
    /// Its path.
    pub path: String,
    /// The package that has it.
    pub package: String,
}
