//! Which sectors a symbol reads: a permutation of the cells and a place in each cell, both from the secret of the job.
//!
//! ```text
//! key   = HMAC-SHA256(secret, "shoal beacon 1" job)
//! cells = permutation of 0..96 by HMAC(key, "cell" n)       symbol s: cells[6 s .. 6 s + 6]
//! set   = three of them, the highest first
//! place = HMAC(key, "sector" cell) mod 256, in sectors from the start of the cell
//! ```

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::message::Symbol;

/// The size of a sector of the medium in bytes.
pub const SECTOR: u64 = 2048;
/// The name of the file.
pub const FILE_NAME: &str = "beacon";
/// The length of the file: 440 MiB.
pub const FILE_LEN: u64 = 2 * GUARD + CELLS as u64 * CELL;

/// No secret sector is in this part at both ends of the file: programs that look for file systems read there.
const GUARD: u64 = 4 << 20;
/// The length of a cell.
pub(crate) const CELL: u64 = (4 << 20) + PLACES * SECTOR;
/// The number of sectors of a cell that can be the secret one. The rest of the cell keeps two of them 4 MiB apart.
const PLACES: u64 = 256;
/// The reads of a set.
pub(crate) const READS: usize = 3;
/// The sets of a symbol.
pub(crate) const SETS: usize = 2;
const PER_SYMBOL: usize = READS * SETS;
/// The number of cells.
pub(crate) const CELLS: usize = Symbol::ALL.len() * PER_SYMBOL;

/// The use of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) symbol: Symbol,
    pub(crate) set: usize,
    /// The number of the read in its set, from 0.
    pub(crate) read: usize,
}

/// The sectors of all symbols of one job. `Debug` shows none of them.
#[derive(Clone)]
pub struct CodeBook {
    /// The use of each cell.
    uses: [Use; CELLS],
    /// The secret sector of each cell, as the offset of its first byte in the file.
    sectors: [u64; CELLS],
}

impl CodeBook {
    /// Makes the code book of a job from a secret that only the machine and the controller know.
    #[must_use]
    pub fn new(secret: &[u8], job: &str) -> Self {
        let key = mac(secret, &[b"shoal beacon 1 ", job.as_bytes()]);
        let number = |what: &[u8], n: usize| {
            let bytes = mac(&key, &[what, &(n as u64).to_le_bytes()]);
            let mut first = [0; 8];
            first.copy_from_slice(&bytes[..8]);
            u64::from_le_bytes(first)
        };
        let mut cells: [usize; CELLS] = std::array::from_fn(|cell| cell);
        // The bias of the remainder is below 2^-57.
        for last in (1..CELLS).rev() {
            let other = usize::try_from(number(b"cell", last) % (last as u64 + 1)).unwrap_or(0);
            cells.swap(last, other);
        }
        for set in cells.chunks_mut(READS) {
            set.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut uses = [Use { symbol: Symbol::Started, set: 0, read: 0 }; CELLS];
        for (at, cell) in cells.into_iter().enumerate() {
            let (symbol, set, read) = (Symbol::ALL[at / PER_SYMBOL], at % PER_SYMBOL / READS, at % READS);
            uses[cell] = Use { symbol, set, read };
        }
        let sectors = std::array::from_fn(|cell| {
            GUARD + cell as u64 * CELL + number(b"sector", cell) % PLACES * SECTOR
        });
        Self { uses, sectors }
    }

    /// Returns the reads of a symbol in the order in which they are made: two sets, each as offsets of sectors in the file.
    #[must_use]
    pub fn reads(&self, symbol: Symbol) -> [[u64; 3]; 2] {
        let mut reads = [[0; READS]; SETS];
        for (used, sector) in self.uses.iter().zip(&self.sectors) {
            if used.symbol == symbol {
                reads[used.set][used.read] = *sector;
            }
        }
        reads
    }

    /// Returns the cells whose secret sector begins in a range of the file.
    pub(crate) fn covered(&self, start: u64, end: u64) -> impl Iterator<Item = (usize, Use)> {
        let cell = |at: u64| usize::try_from(at.saturating_sub(GUARD) / CELL).unwrap_or(CELLS);
        let cells = cell(start).min(CELLS)..cell(end).saturating_add(1).min(CELLS);
        cells
            .filter(move |cell| (start..end).contains(&self.sectors[*cell]))
            .map(|cell| (cell, self.uses[cell]))
    }
}

impl std::fmt::Debug for CodeBook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CodeBook").finish_non_exhaustive()
    }
}

#[expect(clippy::expect_used, reason = "HMAC accepts a key of any length")]
fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}
