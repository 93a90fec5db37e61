//! Tables that fit the terminal.
//!
//! ```text
//!   1. every column gets the width of its longest cell                        if they fit, done
//!   2. columns with the lowest rank leave until the least widths fit          the first of rank 0 stays
//!   3. the remaining columns share what is left, the important ones first     a cell that is longer is cut
//! ```
//!
//! Invariants: no line is longer than the terminal, and no cell is wrapped. Without a width (a pipe, `-o wide`) every column
//! is shown and nothing is cut.

use super::age::{Times, time_of};
use super::paint;
use super::plain::{Cut, shorten, width};
use super::screen::Screen;

/// The spaces between two columns.
const GAP: usize = 2;
/// A column that has this width or less is not made narrower.
const NARROW: usize = 12;
/// The least width of a wider column.
const LEAST: usize = 10;
/// Heads of columns whose texts differ at their ends.
const IDS: [&str; 16] = [
    "JOB",
    "BATCH",
    "ID",
    "WEBHOOK",
    "SESSION",
    "TOKEN ID",
    "DIGEST",
    "SHA-256",
    "KEY",
    "PATH",
    "BY PATH",
    "FILE",
    "REPOSITORY",
    "TARGET",
    "SERIAL",
    "SERVER",
];
/// Heads of columns with states.
const STATES: [&str; 5] = ["STATUS", "STATE", "OUTCOME", "PHASE", "RESULT"];

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    pub(super) head: &'a str,
    /// The rank of the column: on a narrow terminal, columns with rank 0 stay longest.
    pub(super) rank: usize,
    /// Shown only with `-o wide`.
    pub(super) wide: bool,
}

impl<'a> Column<'a> {
    /// A column with its rank: on a narrow terminal the columns with the greatest rank are left out first.
    pub const fn new(head: &'a str, rank: usize) -> Self {
        Self { head, rank, wide: false }
    }

    /// A column of `-o wide`.
    pub const fn wide(head: &'a str) -> Self {
        Self { head, rank: usize::MAX, wide: true }
    }

    fn cut(&self) -> Cut {
        if IDS.contains(&self.head) { Cut::Middle } else { Cut::End }
    }
}

/// The style of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableStyle {
    pub(super) screen: Screen,
    pub(super) times: Times,
    /// All columns, nothing cut.
    pub(super) wide: bool,
}

/// The lines of a table with its heads.
pub(super) fn lines(columns: &[Column<'_>], rows: &[Vec<String>], style: TableStyle) -> Vec<String> {
    let shown: Vec<usize> = (0..columns.len()).filter(|&index| style.wide || !columns[index].wide).collect();
    let head: Vec<String> = shown.iter().map(|&index| columns[index].head.to_owned()).collect();
    let cell = |row: &Vec<String>, index: usize| {
        let text = row.get(index).map(String::as_str).unwrap_or_default();
        time_of(text).map_or_else(|| text.to_owned(), |time| style.times.cell(time))
    };
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| shown.iter().map(|&index| cell(row, index)).collect()).collect();
    let columns: Vec<Column<'_>> = shown.iter().map(|&index| columns[index]).collect();
    let needs: Vec<Need> = columns
        .iter()
        .enumerate()
        .map(|(place, column)| {
            let longest = cells.iter().map(|row| width(&row[place])).max().unwrap_or(0);
            Need::new(width(column.head), longest, column.rank)
        })
        .collect();
    let room = style.screen.width.filter(|_| !style.wide);
    let widths = fit(&needs, room);
    let line = |cells: &[String], is_head: bool| {
        let parts = cells.iter().zip(&widths).zip(&columns).filter_map(|((cell, width), column)| {
            (*width).map(|room| one(cell, room, column, is_head, style.screen))
        });
        parts.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(line(&head, true)).chain(cells.iter().map(|row| line(row, false))).collect()
}

/// One cell, cut or filled to its width, and painted.
fn one(cell: &str, room: usize, column: &Column<'_>, is_head: bool, screen: Screen) -> String {
    let cut = shorten(cell, room, column.cut(), screen.ellipsis);
    let fill = " ".repeat(room - width(&cut).min(room));
    if !screen.colour {
        cut + &fill
    } else if is_head {
        paint::bold(&cut) + &fill
    } else if STATES.contains(&column.head) {
        paint::state(&cut) + &fill
    } else {
        cut + &fill
    }
}

/// The room that a column needs.
#[derive(Clone, Copy, Debug)]
struct Need {
    natural: usize,
    least: usize,
    rank: usize,
}

impl Need {
    fn new(head: usize, longest: usize, rank: usize) -> Self {
        let natural = head.max(longest);
        // The most important column is what an operator copies: an id, a serial number. It is cut only by a terminal without
        // room for it.
        let whole = if rank == 0 { usize::MAX } else { NARROW };
        Self { natural, least: if natural <= whole { natural } else { head.max(LEAST) }, rank }
    }
}

/// The widths of the columns; `None` for a column that is left out.
fn fit(needs: &[Need], room: Option<usize>) -> Vec<Option<usize>> {
    let all = || needs.iter().map(|need| Some(need.natural)).collect();
    let Some(room) = room else { return all() };
    if total(needs.iter().map(|need| need.natural)) <= room {
        return all();
    }
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|&index| (needs[index].rank, index));
    let mut widths = vec![None; needs.len()];
    let mut used = 0;
    for (place, &index) in order.iter().enumerate() {
        let least = needs[index].least;
        if place == 0 {
            used = least.min(room);
            widths[index] = Some(used);
        } else if used + GAP + least <= room {
            used += GAP + least;
            widths[index] = Some(least);
        } else {
            // A column of less rank would stand where a more important one is missing.
            break;
        }
    }
    for &index in &order {
        if let Some(width) = &mut widths[index] {
            let more = needs[index].natural.saturating_sub(*width).min(room - used);
            *width += more;
            used += more;
        }
    }
    widths
}

fn total(widths: impl Iterator<Item = usize>) -> usize {
    let widths: Vec<usize> = widths.collect();
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_least_important_column_leaves_first_and_the_first_column_never() {
        let needs = [Need::new(3, 36, 0), Need::new(6, 10, 2), Need::new(6, 11, 1)];
        assert_eq!(fit(&needs, None), [Some(36), Some(10), Some(11)]);
        assert_eq!(fit(&needs, Some(61)), [Some(36), Some(10), Some(11)]);
        assert_eq!(fit(&needs, Some(50)), [Some(36), None, Some(11)]);
        assert_eq!(fit(&needs, Some(40)), [Some(36), None, None]);
        assert_eq!(fit(&needs, Some(30)), [Some(30), None, None]);
        assert_eq!(fit(&needs, Some(12)), [Some(12), None, None]);
        let copied = [Need::new(3, 20, 0), Need::new(6, 30, 1)];
        assert_eq!(fit(&copied, Some(40)), [Some(20), Some(18)]);
        assert_eq!(fit(&copied, Some(25)), [Some(20), None]);
        assert_eq!(fit(&needs, Some(5)), [Some(5), None, None]);
    }

    proptest! {
        #[test]
        fn no_line_is_longer_than_the_terminal(
            cells in prop::collection::vec(prop::collection::vec("[a-z 東é]{0,40}", 4), 0..6),
            ranks in prop::collection::vec(0_usize..4, 4),
            room in 1_usize..120,
            colour in any::<bool>(),
        ) {
            let heads = ["JOB", "SERVER", "STATUS", "LABELS"];
            let columns: Vec<Column<'_>> =
                heads.iter().zip(&ranks).map(|(head, &rank)| Column::new(head, rank)).collect();
            let screen = Screen { width: Some(room), ..Screen::PIPE };
            let style = TableStyle { screen, times: Times::AGES, wide: false };
            let lines_of = |style| lines(&columns, &cells, style);
            for line in lines_of(style) {
                prop_assert!(width(&line) <= room, "{line:?} in {room}");
            }
            // Colours change no letter and no place.
            let painted = lines_of(TableStyle { screen: Screen { colour, ..screen }, ..style });
            let bare: Vec<String> = painted.iter().map(|line| paint::bare(line).trim_end().to_owned()).collect();
            prop_assert_eq!(bare, lines_of(style));
        }

        #[test]
        fn what_fits_is_shown_whole(longest in prop::collection::vec(1_usize..50, 1..8)) {
            let needs: Vec<Need> =
                longest.iter().enumerate().map(|(rank, &longest)| Need::new(3, longest, rank)).collect();
            let natural = total(needs.iter().map(|need| need.natural));
            prop_assert!(fit(&needs, Some(natural)).iter().zip(&needs).all(|(width, need)| *width == Some(need.natural)));
            let narrower = fit(&needs, Some(natural - 1));
            prop_assert!(total(narrower.iter().flatten().copied()) < natural);
        }
    }
}
