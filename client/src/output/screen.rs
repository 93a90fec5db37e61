//! The properties of the standard output: width, colour, rewriting.
//!
//! ```text
//!   a terminal         width of COLUMNS or of the terminal; colour unless NO_COLOR or TERM=dumb; rewriting unless TERM=dumb
//!   a pipe or a file   no width: nothing is cut; no colour; nothing is rewritten
//! ```
//!
//! Specification: <https://no-color.org>.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

/// The properties of the standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// The number of columns; `None` means that lines may have any length.
    pub(crate) width: Option<usize>,
    /// The number of lines of the terminal.
    pub(crate) height: usize,
    /// Whether colours are shown.
    pub(crate) colour: bool,
    /// Whether lines can be rewritten.
    pub(crate) live: bool,
    /// The text in place of an omitted part.
    pub(crate) ellipsis: &'static str,
}

impl Screen {
    /// A pipe or a file.
    pub const PIPE: Self = Self { width: None, height: 24, colour: false, live: false, ellipsis: "…" };

    /// The properties of the standard output of this process.
    pub fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::PIPE;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        Self::of_terminal(size, &|name| std::env::var_os(name))
    }

    /// A terminal of a size in columns and lines, if it tells one, with its environment.
    fn of_terminal(size: Option<(usize, usize)>, variable: &dyn Fn(&str) -> Option<OsString>) -> Self {
        let text =
            |name| variable(name).and_then(|value| value.into_string().ok()).filter(|text| !text.is_empty());
        let number = |name| text(name).and_then(|text| text.parse().ok()).filter(|number| *number > 0);
        let (columns, lines) = size.unwrap_or((0, 0));
        let dumb = text("TERM").is_none_or(|term| term == "dumb");
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(text).unwrap_or_default();
        let unicode = locale.to_ascii_lowercase().replace('-', "").ends_with("utf8");
        Self {
            width: Some(number("COLUMNS").or(Some(columns)).filter(|width| *width > 0).unwrap_or(80)),
            height: number("LINES").or(Some(lines)).filter(|height| *height > 0).unwrap_or(24),
            colour: !dumb && text("NO_COLOR").is_none(),
            live: !dumb,
            ellipsis: if unicode { "…" } else { ".." },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(variables: &'static [(&str, &str)]) -> Screen {
        Screen::of_terminal(Some((132, 43)), &|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_terminal_has_colour_unless_its_user_refuses_it() {
        let usual = terminal(&[("TERM", "xterm"), ("LANG", "en_GB.UTF-8")]);
        assert_eq!(usual, Screen { width: Some(132), height: 43, colour: true, live: true, ellipsis: "…" });
        assert!(!terminal(&[("TERM", "xterm"), ("NO_COLOR", "1")]).colour);
        assert!(terminal(&[("TERM", "xterm"), ("NO_COLOR", "")]).colour, "an empty NO_COLOR says nothing");
        let dumb = terminal(&[("TERM", "dumb")]);
        assert_eq!((dumb.colour, dumb.live), (false, false));
        assert_eq!(terminal(&[("TERM", "xterm"), ("LANG", "C")]).ellipsis, "..");
    }

    #[test]
    fn columns_come_from_the_environment_before_the_terminal() {
        assert_eq!(terminal(&[("TERM", "xterm"), ("COLUMNS", "40")]).width, Some(40));
        assert_eq!(terminal(&[("TERM", "xterm"), ("COLUMNS", "many")]).width, Some(132));
        assert_eq!(Screen::of_terminal(None, &|_| None).width, Some(80));
    }
}
