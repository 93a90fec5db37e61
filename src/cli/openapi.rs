//! `shoal openapi`: the OpenAPI document of the API, without a controller.

use client::error::CliError;
use client::output::{Format, Output};

/// Prints the bytes that a controller of this version serves at `/openapi.json`.
pub(super) fn run(output: &mut Output<'_>) -> Result<(), CliError> {
    print(api::openapi(), output)
}

/// Prints a document byte by byte as it is, or with `-o yaml` as YAML. It has no name.
pub(super) fn print(json: &str, output: &mut Output<'_>) -> Result<(), CliError> {
    match output.format {
        Format::Yaml => {
            let document: serde_json::Value = serde_json::from_str(json)
                .map_err(|error| CliError::failed(format!("the document is not JSON: {error}")))?;
            output.document(&document)
        }
        Format::Name => {
            Err(CliError::Usage("this document has no names: give -o json or -o yaml".to_owned()))
        }
        _ => {
            output.out.write_all(json.as_bytes())?;
            Ok(output.out.flush()?)
        }
    }
}
