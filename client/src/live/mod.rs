//! `--watch`: a list that follows what it lists.
//!
//! ```text
//!   show ──> record of tables and lines ──> terminal: drawn over the last one       every 5 s again, for the ages
//!    ^                                 └──> pipe: the new and changed rows are appended, messages to standard error
//!    └── an event of the controller, or a pause where there are no events
//! ```
//!
//! Invariants: a record is drawn on the lines that the terminal has, never more, so that the next one covers it; a pipe
//! receives no control character and times in UTC, because an age would change every row.

mod canvas;

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;

use super::connection::{Changes, Client};
use super::error::CliError;
use super::output::{Output, Piece, RecordedRow, Screen, Times, time_of, width};

pub(crate) use canvas::Canvas;

/// The pause between two reads of a list without events.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 2000 });
/// The interval in which ages are drawn again.
const TICK: Duration = Duration::from_secs(5);
/// The number of consecutive failures that end a watch: about five minutes.
const MAX_FAILURES: u32 = 150;

/// What every list has.
#[derive(Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchArgs {
    /// Continue, and show changes: in place on a terminal, otherwise one line each
    #[arg(long)]
    watch: bool,
}

/// The source of the notice that a list has changed.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// The events of jobs and servers of this controller.
    Events(&'a Client),
    /// Pauses: the list is read again after each.
    Pauses,
}

impl WatchArgs {
    /// Whether the list is followed.
    pub fn is_given(self) -> bool {
        self.watch
    }

    /// Shows a list, once or until the process is ended.
    ///
    /// # Errors
    /// When the list cannot be read, or the output cannot be written.
    pub async fn list(
        self,
        source: Source<'_>,
        output: &mut Output<'_>,
        mut show: impl AsyncFnMut(&mut Output<'_>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        if !self.watch {
            return show(output).await;
        }
        let changes = match source {
            Source::Events(client) => Changes::of(client, &["events"]),
            Source::Pauses => Changes::by_pauses(),
        };
        follow(changes, output, show).await
    }
}

/// Shows a list at each change until it cannot be read.
async fn follow(
    mut changes: Changes<'_>,
    output: &mut Output<'_>,
    mut show: impl AsyncFnMut(&mut Output<'_>) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let in_place = output.screen.live && !output.json;
    let mut canvas = Canvas::default();
    let mut appended = Appended::default();
    let (mut failures, mut record) = (0, Vec::new());
    loop {
        match recorded(output, &mut show).await {
            Ok(new) => {
                failures = 0;
                record = new;
                if !in_place {
                    appended.show(&record, output)?;
                }
            }
            Err(error) if error.is_transient() && failures < MAX_FAILURES => {
                if failures == 0 {
                    output.note(format!("{error}; trying again"));
                }
                failures += 1;
                changes.read_failed(PAUSE);
            }
            Err(error) => return Err(error),
        }
        loop {
            if in_place {
                output.screen = Screen::of_stdout();
                canvas.draw(&drawn(&record, output)?, output)?;
            }
            if changes.changed(PAUSE, TICK).await {
                break;
            }
        }
    }
}

/// The output that a command would show, as pieces.
async fn recorded(
    output: &Output<'_>,
    show: &mut impl AsyncFnMut(&mut Output<'_>) -> Result<(), CliError>,
) -> Result<Vec<Piece>, CliError> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut recorder = Output::new(&mut out, &mut err, output.format).on(output.screen, output.times);
    recorder.record = Some(Vec::new());
    show(&mut recorder).await?;
    Ok(recorder.record.unwrap_or_default())
}

/// The lines of a record on the present screen.
fn drawn(record: &[Piece], output: &Output<'_>) -> Result<Vec<String>, CliError> {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut page = Output::new(&mut out, &mut err, output.format).on(output.screen, output.times);
    record.iter().try_for_each(|piece| page.replay(piece))?;
    Ok(String::from_utf8_lossy(&out).lines().map(str::to_owned).collect())
}

/// The rows that were written to a pipe.
#[derive(Default)]
struct Appended {
    known: HashSet<RecordedRow>,
    /// The width of each column so far, so that later rows stand below the first ones.
    widths: Vec<usize>,
}

impl Appended {
    /// Writes the rows that are new or have changed.
    fn show(&mut self, record: &[Piece], output: &mut Output<'_>) -> Result<(), CliError> {
        let now: Vec<RecordedRow> = record.iter().flat_map(Piece::rows).collect();
        let times = Times { utc: true, ..output.times };
        let new: Vec<&RecordedRow> = now.iter().filter(|row| !self.known.contains(row)).collect();
        for row in &new {
            if let RecordedRow::Cells(cells) = row {
                self.widths.resize(self.widths.len().max(cells.len()), 0);
                for (known, cell) in self.widths.iter_mut().zip(cells) {
                    *known = (*known).max(width(&shown(cell, times)));
                }
            }
        }
        for row in new {
            match row {
                RecordedRow::Document(document) => output.row(document)?,
                RecordedRow::Note(note) => output.note(note),
                RecordedRow::Cells(cells) => {
                    let filled = cells.iter().zip(&self.widths).map(|(cell, room)| {
                        let cell = shown(cell, times);
                        let fill = " ".repeat(room - width(&cell).min(*room));
                        cell + &fill
                    });
                    output.line(filled.collect::<Vec<_>>().join("  ").trim_end())?;
                }
            }
        }
        self.known = now.into_iter().collect();
        Ok(())
    }
}

/// A cell with its time as a time.
fn shown(cell: &str, times: Times) -> String {
    time_of(cell).map_or_else(|| cell.to_owned(), |time| times.cell(time))
}

#[cfg(test)]
mod tests;
