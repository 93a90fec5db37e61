//! `shoal maintenance build`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use maintenance::{Inputs, KernelSource, Profile};
use serde_json::json;

use super::super::error::CliError;
use super::super::iso;
use super::super::output::{Output, plain};
use super::failed;

/// Arguments of `shoal maintenance build`.
#[derive(Args, Debug)]
pub(in crate::cli) struct BuildArgs {
    /// The folder of package files, as `shoal maintenance fetch` fills it
    #[arg(value_name = "FOLDER")]
    packages: PathBuf,
    /// The agent: a static program for Linux, which becomes /init
    #[arg(long, value_name = "FILE")]
    agent: PathBuf,
    /// The image: a file that is renamed into place when it is complete
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Which drivers and programs it has
    #[arg(long, value_enum, default_value = "full")]
    profile: ProfileArg,
    /// A kernel image to use in place of a kernel package
    #[arg(long, value_name = "FILE", requires = "modules")]
    kernel: Option<PathBuf>,
    /// The modules of that kernel: its folder below /lib/modules
    #[arg(long, value_name = "FOLDER", requires = "kernel")]
    modules: Option<PathBuf>,
    /// More words for the kernel's command line, such as console=ttyS1,115200
    #[arg(long, value_name = "WORDS", default_value = "")]
    append: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProfileArg {
    /// Every driver and program
    Full,
    /// Virtual machines and common hardware: less to read over slow virtual media
    Small,
}

impl BuildArgs {
    pub(super) fn run(self, output: &mut Output<'_>) -> Result<(), CliError> {
        let inputs = Inputs {
            packages: self.packages,
            kernel: self.kernel.zip(self.modules).map(|(image, modules)| KernelSource { image, modules }),
            agent: self.agent,
            profile: match self.profile {
                ProfileArg::Full => Profile::Full,
                ProfileArg::Small => Profile::Small,
            },
            command_line: self.append,
        };
        let medium = maintenance::build(&inputs, &mut |text| output.note(plain(text))).map_err(failed)?;
        let record = &medium.record;
        for missing in &record.firmware_missing {
            let (file, module, without) = (&missing.file, &missing.module, &missing.without);
            output.note(plain(&format!(
                "no package has the firmware {file} of {module}: without it {without}"
            )));
        }
        if !record.drivers_missing.is_empty() {
            output.note(plain(&format!("this kernel has no {}", record.drivers_missing.join(", "))));
        }
        let written = iso::write_image(&medium.plan, &self.output, output)?;
        let sha256 = written.sha256.unwrap_or_default();
        if output.json {
            return output.document(&json!({
                "image": self.output, "bytes": written.bytes, "sha256": sha256, "kernel": record.kernel,
                "profile": record.profile, "modules": record.modules.len(), "packages": record.packages.len(),
            }));
        }
        output.line(format!("{}: {} bytes, sha256:{sha256}", self.output.display(), written.bytes))
    }
}
