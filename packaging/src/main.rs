//! `packager`: makes the packages of a static program and prints their digests.
//!
//! ```text
//!   packager --program target/release/shoal --agent target/release/shoal-agent --out packages
//!     shoal_VERSION_ARCH.deb   shoal-VERSION-linux-ARCH.tar.gz   shoal-VERSION-linux-ARCH.oci.tar   SHA256SUMS
//! ```

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use packaging::{Order, make};

/// Packages a static build of Shoal.
#[derive(Parser)]
#[command(name = "packager")]
struct Arguments {
    /// The static program (`cargo static`)
    #[arg(long, value_name = "FILE")]
    program: PathBuf,
    /// The static agent of boot media (`cargo static-agent`)
    #[arg(long, value_name = "FILE")]
    agent: PathBuf,
    /// The directory for the packages
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The version of the packages
    #[arg(long, value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    version: String,
    /// The time of all files, in seconds since 1970 [default: 2026-01-01]
    #[arg(long, env = "SOURCE_DATE_EPOCH", value_name = "SECONDS", default_value_t = packaging::DATE)]
    date: u64,
    /// The program that writes manual pages and completions, if the static program does not run on this machine
    #[arg(long, value_name = "FILE")]
    pages_of: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Arguments { program, agent, out, version, date, pages_of } = Arguments::parse();
    let pages_of = Some(pages_of.unwrap_or_else(|| program.clone()));
    match make(&Order { program, agent, out, version, date, pages_of }) {
        Ok(sums) => {
            // A closed output is no failure: the packages are written.
            let _ = std::io::stdout().write_all(sums.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "packager: {error}");
            ExitCode::FAILURE
        }
    }
}
