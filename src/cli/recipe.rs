//! `shoal recipe`: validation of recipes without a controller.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::json;

use recipe::{MAX_RECIPE_BYTES, RecipeSchemas};

use client::error::CliError;
use client::input;
use client::output::{Output, plain};

/// Commands for recipes.
#[derive(Debug, Subcommand)]
pub(super) enum RecipeCommand {
    /// Validate a recipe by the rules of the controller; ends with 1 if it is invalid
    Validate {
        /// The recipe: a file, or - for standard input
        file: PathBuf,
    },
}

/// Runs a command.
pub(super) fn run(command: RecipeCommand, output: &mut Output<'_>) -> Result<(), CliError> {
    let RecipeCommand::Validate { file } = command;
    let bytes = input::read(&file, MAX_RECIPE_BYTES)?;
    let name = plain(&file.display().to_string());
    match RecipeSchemas::builtin().validate_bytes(&bytes) {
        Ok(recipe) => {
            let lints = recipe.lints();
            if output.json {
                return output.document(&json!({
                    "valid": true,
                    "recipe_schema_id": recipe.schema_id,
                    "task_target": recipe.task_target,
                    "errors": [],
                    "warnings": lints,
                }));
            }
            output.line(format!("{name} is valid: {} by {}", recipe.task_target, recipe.schema_id))?;
            for lint in lints {
                output.note(format!("warning: {} {}", plain(&lint.path), plain(&lint.message)));
            }
            Ok(())
        }
        Err(errors) => {
            let number = errors.len();
            if output.json {
                output.document(&json!({"valid": false, "errors": errors, "warnings": []}))?;
            } else {
                for error in errors {
                    let path = if error.path.is_empty() { "(recipe)".to_owned() } else { plain(&error.path) };
                    output.line(format!("{path} [{}] {}", plain(&error.code), plain(&error.message)))?;
                }
            }
            let problems = if number == 1 { "1 problem".to_owned() } else { format!("{number} problems") };
            Err(CliError::failed(format!("{name} is not valid: {problems}")))
        }
    }
}
