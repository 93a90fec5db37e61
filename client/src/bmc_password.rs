//! The password of a BMC: from a file, from standard input or from the environment, never from an argument.

use std::path::PathBuf;

use clap::Args;
use secrecy::SecretString;

use super::error::CliError;
use super::input;

/// The environment variable with the BMC password.
const PASSWORD_VARIABLE: &str = "SHOAL_BMC_PASSWORD";

/// The source of a BMC password. Never an argument, because other users of the host can read arguments.
#[derive(Args, Debug)]
pub(super) struct PasswordArgs {
    /// A file with the password of the BMC [`add` also reads the variable SHOAL_BMC_PASSWORD]
    #[arg(long, value_name = "FILE", conflicts_with = "bmc_password_stdin")]
    bmc_password_file: Option<PathBuf>,
    /// Read the password of the BMC from standard input
    #[arg(long)]
    bmc_password_stdin: bool,
}

impl PasswordArgs {
    pub(super) fn read(&self) -> Result<Option<SecretString>, CliError> {
        match &self.bmc_password_file {
            Some(path) => input::password_file(path).map(Some),
            None if self.bmc_password_stdin => input::password_stdin().map(Some),
            None => Ok(None),
        }
    }
}

pub(super) fn password_from_variable() -> Result<SecretString, CliError> {
    match std::env::var(PASSWORD_VARIABLE) {
        Ok(password) if !password.is_empty() => Ok(SecretString::from(password)),
        _ => Err(CliError::Usage(format!(
            "the password of the BMC is missing; give --bmc-password-file, --bmc-password-stdin or {PASSWORD_VARIABLE}"
        ))),
    }
}

/// The password of the variable, if it is set.
pub(super) fn optional_password_from_variable() -> Option<SecretString> {
    std::env::var(PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty()).map(SecretString::from)
}
