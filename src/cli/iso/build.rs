//! `shoal iso build`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use iso9660::{
    BiosBoot, Boot, Hybrid, JolietNames, Level, Options, Plan, Profile, Tree, UefiBoot, check_names,
};
use serde_json::json;

use super::super::error::CliError;
use super::super::input;
use super::super::output::{Output, plain};
use super::write;

/// 2000-01-01 00:00:00 UTC: no clock decides about the bytes of an image.
const EPOCH: i64 = 946_684_800;
/// The most boot code an MBR holds beside an ISO 9660 image.
const MBR_CODE: usize = 432;

/// A new image.
#[derive(Args, Debug)]
pub(in crate::cli) struct Build {
    /// The directory
    directory: PathBuf,
    /// The image: a file that appears when it is whole, or - for standard output
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// What the image is for
    #[arg(long, value_enum, default_value = "tree")]
    profile: ProfileArg,
    /// The label: 1 to 32 of A-Z a-z 0-9 _ - .
    #[arg(long, default_value = "SHOAL")]
    label: String,
    /// The date of everything in it, in seconds since 1970 [default: that of the year 2000]
    #[arg(long, value_name = "SECONDS", default_value_t = EPOCH, hide_default_value = true, allow_negative_numbers = true)]
    epoch: i64,
    /// The file in the directory that BIOS firmware boots
    #[arg(long, value_name = "PATH")]
    bios: Option<String>,
    /// How many units of 512 bytes of it are loaded
    #[arg(long, value_name = "N", default_value_t = 4, requires = "bios")]
    load_units: u16,
    /// Patch the boot info table of the BIOS boot file: isolinux and GRUB need it
    #[arg(long, requires = "bios")]
    boot_info_table: bool,
    /// The FAT image in the directory that UEFI firmware boots
    #[arg(long, value_name = "PATH")]
    uefi: Option<String>,
    /// Make it bootable from a USB stick as well
    #[arg(long)]
    hybrid: bool,
    /// The boot code of the MBR, such as isohdpfx.bin: up to 432 bytes
    #[arg(long, value_name = "FILE", requires = "hybrid")]
    mbr: Option<PathBuf>,
    /// The interchange level of the plain names
    #[arg(long, value_name = "1-3", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=3))]
    level: u8,
    /// Without Joliet names
    #[arg(long)]
    no_joliet: bool,
    /// Joliet names by the letter of its specification: 64 characters, paths of 240
    #[arg(long, conflicts_with = "no_joliet")]
    strict_joliet: bool,
    /// Without Rock Ridge
    #[arg(long)]
    no_rock_ridge: bool,
    /// With an enhanced volume descriptor (ISO 9660:1999)
    #[arg(long)]
    enhanced: bool,
    /// Pad with zeros to at least this many bytes
    #[arg(long, value_name = "BYTES", default_value_t = Options::MIN_SIZE)]
    min_size: u64,
    /// Who publishes it
    #[arg(long, value_name = "TEXT", default_value = "")]
    publisher: String,
    /// Say the SHA-256 of the image
    #[arg(long)]
    digest: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProfileArg {
    /// Data files of one job; never bootable
    Task,
    /// Bootable: needs --bios or --uefi
    Boot,
    /// Whatever the directory holds
    Tree,
}

impl Build {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        let said = |error: &dyn std::error::Error| {
            CliError::failed(plain(&engine::model::error_chain(error).to_string()))
        };
        let options = self.options()?;
        let tree = Tree::from_directory(&self.directory).map_err(|error| said(&error))?;
        for finding in check_names(&tree) {
            output.note(plain(&finding.to_string()));
        }
        let plan = Plan::new(&tree, &options).map_err(|error| said(&error))?;
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

    fn options(&self) -> Result<Options, CliError> {
        let profile = match self.profile {
            ProfileArg::Task => Profile::Task,
            ProfileArg::Boot => Profile::Boot,
            ProfileArg::Tree => Profile::Tree,
        };
        let mut options = Options::new(profile, &*self.label, self.epoch);
        options.joliet = !self.no_joliet;
        options.joliet_names = if self.strict_joliet { JolietNames::Strict } else { JolietNames::Long };
        options.rock_ridge = !self.no_rock_ridge;
        options.enhanced = self.enhanced;
        options.level = match self.level {
            1 => Level::One,
            2 => Level::Two,
            _ => Level::Three,
        };
        options.min_size = self.min_size;
        options.publisher.clone_from(&self.publisher);
        if self.bios.is_some() || self.uefi.is_some() {
            options.boot = Some(Boot {
                bios: self.bios.clone().map(|path| BiosBoot {
                    path,
                    load_units: self.load_units,
                    boot_info_table: self.boot_info_table,
                }),
                uefi: self.uefi.clone().map(|path| UefiBoot { path }),
            });
        }
        if self.hybrid {
            let code = self.mbr.as_ref().map(|path| input::read(path, MBR_CODE)).transpose()?;
            options.hybrid = Some(Hybrid { code: code.unwrap_or_default() });
        }
        Ok(options)
    }
}
