//! The body of the fuzz target `settings`.

use std::ffi::OsString;

use super::{Settings, Sources};

/// A secret in the environment that must not be in any output.
const CANARY: &str = "canary-of-the-fuzz-target-0123456789";
/// The maximum of variables that are taken from the input.
const MAX_VARIABLES: usize = 64;

/// Loads settings from a configuration file and an environment.
///
/// # Panics
/// When a secret is shown, or a refusal names no problem.
pub fn settings(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    if text.contains("canary") {
        return;
    }
    let (file, environment) = text.split_once('\0').unwrap_or((text, ""));
    let variables: Vec<(&str, &str)> =
        environment.lines().filter_map(|line| line.split_once('=')).take(MAX_VARIABLES).collect();
    let value = |name: &str| match name {
        "WEBHOOK_SECRET" => Some(OsString::from(CANARY)),
        _ => variables.iter().find(|(given, _)| *given == name).map(|(_, value)| OsString::from(value)),
    };
    let sources = Sources {
        flags: Vec::new(),
        environment: &value,
        variables: variables.iter().map(|(name, _)| (*name).to_owned()).collect(),
        file: None,
    };
    let said = match Settings::load_with_file_text(&sources, file) {
        Ok(settings) => format!("{:?} {settings:?}", settings.show()),
        Err(errors) => {
            assert!(!errors.0.is_empty(), "a refusal without a problem");
            errors.to_string()
        }
    };
    assert!(!said.contains(CANARY), "a secret is shown");
}
