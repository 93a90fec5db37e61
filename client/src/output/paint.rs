//! Colours of a terminal: few, by meaning, and never the only bearer of it.
//!
//! Specification: ECMA-48, select graphic rendition.

const RESET: &str = "\u{1b}[0m";

/// The colour of a state: red needs a person, yellow waits, green is done, blue is in progress.
pub(crate) fn state(word: &str) -> String {
    let code = match word.trim() {
        "succeeded" | "done" | "ok" | "active" | "ready" | "confirmed" => "32",
        "failed" | "error" | "stuck" | "refused" | "denied" | "expired" | "dead" => "31",
        "held" | "waiting" | "retrying" | "warning" | "unconfirmed" | "disabled" | "incomplete" => "33",
        "provisioning" | "running" | "working" => "36",
        "cancelled" | "queued" | "pending" => "2",
        _ => return word.to_owned(),
    };
    painted(code, word)
}

/// Heads and what matters most.
pub(crate) fn bold(text: &str) -> String {
    painted("1", text)
}

/// A text of the least importance.
pub(crate) fn faint(text: &str) -> String {
    painted("2", text)
}

fn painted(code: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("\u{1b}[{code}m{text}{RESET}") }
}

/// A text without its colours.
#[cfg(test)]
pub(crate) fn bare(text: &str) -> String {
    let mut bare = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('\u{1b}') {
        bare.push_str(before);
        rest = behind.split_once('m').map_or("", |(_, rest)| rest);
    }
    bare + rest
}
