//! `shoal openapi`: the OpenAPI document of the API, without a controller.

use super::error::CliError;
use super::output::Output;

/// Prints the bytes that a controller of this version serves at `/openapi.json`.
pub(super) fn run(output: &mut Output<'_>) -> Result<(), CliError> {
    output.out.write_all(api::openapi().as_bytes())?;
    Ok(output.out.flush()?)
}
