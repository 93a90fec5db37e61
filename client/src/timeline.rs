//! Events as lines of text, in the order of the log.
//!
//! ```text
//! 07:49:08.123    redfish.mount     inserted the boot medium
//! 07:49:09.004  ! redfish.mount     the BMC refused the medium; next try in 2s
//! ```

use serde_json::Value;

use super::output::{plain, text};

/// The width of the column of steps.
const STEP_WIDTH: usize = 18;

/// One event as one line.
pub(super) fn line(event: &Value) -> String {
    let time = text(event, "/time");
    // RFC 3339 in UTC, without the date.
    let clock = time.get(11..23).unwrap_or(&time);
    let mark = match event["level"].as_str() {
        Some("error") => "x",
        Some("warn" | "warning") => "!",
        _ => " ",
    };
    let step = text(event, "/step");
    let message = match event["message"].as_str() {
        Some(message) if !message.is_empty() => plain(message),
        _ => text(event, "/type"),
    };
    format!("{clock}  {mark} {step:<STEP_WIDTH$} {message}").trim_end().to_owned()
}
