//! `shoal maintenance build`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use maintenance::{ImageProfile, Inputs, KernelSource};
use serde_json::json;

use super::super::agent::agent_or_default;
use super::super::iso;
use super::failed;
use super::push::{TaggedName, push_file, push_plan, show, tagged};
use client::connection::{Client, ConnectionArgs};
use client::error::CliError;
use client::output::{Output, plain};

/// Arguments of `shoal maintenance build`.
#[derive(Args, Debug)]
pub(in crate::cli) struct BuildArgs {
    /// The folder of package files, as `shoal maintenance fetch` fills it
    #[arg(value_name = "FOLDER")]
    packages: PathBuf,
    /// The agent, a static program for Linux that becomes /init [default: shoal-agent beside this program, or in
    /// ../lib/shoal]
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// The image: a file that is renamed into place when it is complete
    #[arg(long, short, value_name = "FILE", required_unless_present = "push")]
    output: Option<PathBuf>,
    /// Push the image into the registry of the running controller (--url, --token); without -o no file is written
    #[arg(long)]
    push: bool,
    /// The repository and the tag, without a host
    #[arg(long, value_name = "REPOSITORY:TAG", value_parser = tagged, default_value = TaggedName::DEFAULT)]
    name: TaggedName,
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
    #[command(flatten)]
    connection: ConnectionArgs,
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
        // Before the work: a wrong URL or token costs no minute.
        let client = if self.push { Some(Client::new(&self.connection)?) } else { None };
        let agent = agent_or_default(self.agent, "--agent")?;
        let inputs = Inputs {
            packages: self.packages,
            kernel: self.kernel.zip(self.modules).map(|(image, modules)| KernelSource { image, modules }),
            agent,
            profile: match self.profile {
                ProfileArg::Full => ImageProfile::Full,
                ProfileArg::Small => ImageProfile::Small,
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
        let mut document = json!({
            "kernel": record.kernel, "profile": record.profile, "modules": record.modules.len(),
            "packages": record.packages.len(),
        });
        let written = match &self.output {
            Some(path) => {
                let written = iso::write_image(&medium.plan, path, output)?;
                let sha256 = written.sha256.unwrap_or_default();
                document["image"] = json!(path);
                document["bytes"] = json!(written.bytes);
                document["sha256"] = json!(sha256);
                if !output.json {
                    output.line(format!("{}: {} bytes, sha256:{sha256}", path.display(), written.bytes))?;
                }
                Some((path, sha256, written.bytes))
            }
            None => None,
        };
        let pushed = match (&client, &written) {
            (None, _) => None,
            (Some(client), Some((path, sha256, bytes))) => {
                Some(push_file(path, (sha256, *bytes), record, (&self.name, client), output)?)
            }
            (Some(client), None) => {
                Some(push_plan(medium.plan, &medium.record, (&self.name, client), output)?)
            }
        };
        if let Some(pushed) = pushed {
            if !output.json {
                show(&pushed, output)?;
            }
            document["bytes"] = pushed["bytes"].clone();
            document["sha256"] = pushed["sha256"].clone();
            document["pushed"] = pushed;
        }
        if output.json { output.document(&document) } else { Ok(()) }
    }
}
