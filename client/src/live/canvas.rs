//! Lines that are drawn again over themselves.
//!
//! ```text
//!   cursor up by the lines of the last drawing, clear to the end of the screen, the new lines
//! ```
//!
//! Invariant: a drawing has one line less than the terminal, so that its first line is never scrolled away.
//!
//! Specification: ECMA-48, CUU and ED.

use crate::error::CliError;
use crate::output::Output;

/// The place of a drawing on the terminal.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    drawn: usize,
}

impl Canvas {
    /// Draws lines over the last ones.
    pub(crate) fn draw(&mut self, lines: &[String], output: &mut Output<'_>) -> Result<(), CliError> {
        let room = output.screen.height.saturating_sub(1).max(1);
        let shown = shown(lines, room);
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\u{1b}[{}A", self.drawn));
        }
        text.push_str("\r\u{1b}[J");
        for line in &shown {
            text.push_str(line);
            // Raw mode does not return the cursor.
            text.push_str("\r\n");
        }
        self.drawn = shown.len();
        output.out.write_all(text.as_bytes())?;
        Ok(output.out.flush()?)
    }
}

/// The lines that fit, with the number of those that do not.
fn shown(lines: &[String], room: usize) -> Vec<String> {
    if lines.len() <= room {
        return lines.to_vec();
    }
    let fitting = room - 1;
    let mut shown = lines[..fitting].to_vec();
    shown.push(format!("{} more lines", lines.len() - fitting));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Format, Screen, Times};

    #[test]
    fn a_drawing_covers_the_one_before_it_and_never_fills_the_terminal() {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let screen = Screen { height: 4, ..Screen::PIPE };
        let mut output = Output::new(&mut out, &mut err, Format::Text).on(screen, Times::AGES);
        let mut canvas = Canvas::default();
        let lines = |number: usize| (0..number).map(|line| line.to_string()).collect::<Vec<_>>();
        canvas.draw(&lines(5), &mut output).unwrap();
        canvas.draw(&lines(2), &mut output).unwrap();
        canvas.draw(&lines(1), &mut output).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "\r\u{1b}[J0\r\n1\r\n3 more lines\r\n\u{1b}[3A\r\u{1b}[J0\r\n1\r\n\u{1b}[2A\r\u{1b}[J0\r\n"
        );
    }
}
