//! `shoal iso build`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use iso9660::{
    BiosBoot, Boot, Hybrid, ImageOptions, ImagePlan, InterchangeLevel, JolietNames, Profile, Tree, UefiBoot,
    check_names,
};
use serde_json::json;

use super::write;
use client::error::CliError;
use client::input;
use client::output::{Output, plain};

/// 2000-01-01 00:00:00 UTC. A constant, so that the bytes of an image do not depend on a clock.
const EPOCH: i64 = 946_684_800;
/// The maximum of boot code bytes in the MBR of a hybrid image.
const MBR_CODE: usize = 432;

/// Arguments of `shoal iso build`.
#[derive(Args, Debug)]
pub(in crate::cli) struct BuildArgs {
    /// The directory with the files of the image
    directory: PathBuf,
    /// The image: a file that is renamed into place when it is complete, or - for standard output
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// What the image is for
    #[arg(long, value_enum, default_value = "tree")]
    profile: ProfileArg,
    /// The volume label: 1 to 32 characters of A-Z a-z 0-9 _ - .
    #[arg(long, default_value = "SHOAL")]
    label: String,
    /// The date of all files in it, in seconds since 1970 [default: 2000-01-01]
    #[arg(long, value_name = "SECONDS", default_value_t = EPOCH, hide_default_value = true, allow_negative_numbers = true)]
    epoch: i64,
    /// The file in the directory that BIOS firmware boots
    #[arg(long, value_name = "PATH")]
    bios: Option<String>,
    /// How many sectors of 512 bytes of the BIOS boot file the firmware loads
    #[arg(long, value_name = "N", default_value_t = 4, requires = "bios")]
    load_units: u16,
    /// Patch the boot info table of the BIOS boot file: isolinux and GRUB need it
    #[arg(long, requires = "bios")]
    boot_info_table: bool,
    /// The FAT image in the directory that UEFI firmware boots
    #[arg(long, value_name = "PATH")]
    uefi: Option<String>,
    /// Add an MBR, so that the image also boots from a USB stick
    #[arg(long)]
    hybrid: bool,
    /// The boot code of the MBR, such as isohdpfx.bin: up to 432 bytes
    #[arg(long, value_name = "FILE", requires = "hybrid")]
    mbr: Option<PathBuf>,
    /// The interchange level of the primary names
    #[arg(long, value_name = "1-3", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    level: u8,
    /// Write no Joliet names
    #[arg(long)]
    no_joliet: bool,
    /// Limit Joliet names to the specification: 64 characters, paths of 240 bytes
    #[arg(long, conflicts_with = "no_joliet")]
    strict_joliet: bool,
    /// Write no Rock Ridge entries
    #[arg(long)]
    no_rock_ridge: bool,
    /// Write an enhanced volume descriptor (ISO 9660:1999)
    #[arg(long)]
    enhanced: bool,
    /// Pad with zeros to at least this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = ImageOptions::MIN_SIZE)]
    min_size: u64,
    /// The publisher identifier of the volume
    #[arg(long, value_name = "TEXT", default_value = "")]
    publisher: String,
    /// Show the SHA-256 of the image
    #[arg(long)]
    digest: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProfileArg {
    /// Data files of one job; never bootable
    Task,
    /// Bootable: needs --bios or --uefi
    Boot,
    /// Any directory
    Tree,
}

impl BuildArgs {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        let failed =
            |error: &dyn std::error::Error| CliError::failed(plain(&model::error_chain(error).to_string()));
        let options = self.options()?;
        input::exists(&self.directory)?;
        let tree = Tree::from_directory(&self.directory).map_err(|error| failed(&error))?;
        for finding in check_names(&tree) {
            output.note(plain(&finding.to_string()));
        }
        let plan = ImagePlan::new(&tree, &options).map_err(|error| failed(&error))?;
        let written = write::image(&plan, &self.output, self.digest, output)?;
        if self.output.as_os_str() == "-" {
            return Ok(());
        }
        if output.json {
            return output.document(&json!({
                "image": self.output, "bytes": written.bytes, "label": self.label, "sha256": written.sha256,
            }));
        }
        let digest = written.sha256.map_or(String::new(), |sha256| format!(", sha256:{sha256}"));
        output.line(format!("{}: {} bytes{digest}", self.output.display(), written.bytes))
    }

    fn options(&self) -> Result<ImageOptions, CliError> {
        let profile = match self.profile {
            ProfileArg::Task => Profile::Task,
            ProfileArg::Boot => Profile::Boot,
            ProfileArg::Tree => Profile::Tree,
        };
        let mut options = ImageOptions::new(profile, &*self.label, self.epoch);
        options.joliet = !self.no_joliet;
        options.joliet_names = if self.strict_joliet { JolietNames::Strict } else { JolietNames::Long };
        options.rock_ridge = !self.no_rock_ridge;
        options.enhanced = self.enhanced;
        options.level = match self.level {
            1 => InterchangeLevel::One,
            2 => InterchangeLevel::Two,
            _ => InterchangeLevel::Three,
        };
        options.min_size = self.min_size;
        options.publisher.clone_from(&self.publisher);
        if self.bios.is_some() || self.uefi.is_some() {
            let bios = self.bios.clone().map(|path| {
                BiosBoot::new(path)
                    .with_load_units(self.load_units)
                    .with_boot_info_table(self.boot_info_table)
            });
            options.boot = Some(Boot::new(bios, self.uefi.clone().map(UefiBoot::new)));
        }
        if self.hybrid {
            let code = self.mbr.as_ref().map(|path| input::read(path, MBR_CODE)).transpose()?;
            options.hybrid = Some(Hybrid::new(code.unwrap_or_default()));
        }
        Ok(options)
    }
}
