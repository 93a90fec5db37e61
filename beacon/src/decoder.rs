//! From the reads that arrive at the media server to messages.
//!
//! ```text
//! read --in the file?--> run of adjacent reads --beyond 4 MiB--> a stream: no touch; 55 MiB of streams = copied
//!                          |
//!                          `--covers a secret sector--> touch --next of its set--> 3rd of the set: symbol -> message
//!                                                         |  `--first of a set--> a new set begins
//!                                                         `--other--> stray; 64 strays = strange
//!                             8 touches within 12 neighbouring cells, or 57 different cells = copied
//! ```
//!
//! Whether a read covers a sector decides; where it begins and ends does not, because BMCs read ahead and align.
//!
//! Invariants: an unusable channel stays unusable, because later reads of a copy do not arrive. Reads of the same cell
//! in a row count once. The state has a fixed size.

use crate::code_book::{CELLS, CodeBook, FILE_LEN, READS};
use crate::message::{Class, Message, Symbol};

/// The longest run of adjacent reads that can be one read of the machine with read-ahead.
const LONGEST_RUN: u64 = 4 << 20;
/// The bytes of longer runs after which the image counts as copied.
const STREAMED_MAX: u64 = FILE_LEN / 8;
/// The number of touches within [`NEIGHBOURS`] cells that counts as a copy: by chance this happens once in 10^7 messages.
const LAST_TOUCHES: usize = 8;
const NEIGHBOURS: usize = 12;
/// A run says seven symbols at most, with 42 cells. More than this number of different cells are a copy.
const CELLS_MAX: u32 = 56;
/// The reads that belong to no message after which the channel is not believed any more: a reader that guesses.
const STRAYS_MAX: u32 = 64;

/// Why the channel is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The BMC copies the image, so later reads of the machine do not arrive.
    Copied,
    /// Many reads belong to no message: a cache swallows some reads of each message, or a stranger guesses.
    Strange,
}

impl Unusable {
    /// Returns the sentence for the operator.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Copied => {
                "the BMC copies the whole medium, so reads of the machine do not reach the controller; the job ends by the power \
                 state: a machine that powers off is installed, one that stays on is not"
            }
            Self::Strange => {
                "many reads of the medium belong to no message (a cache in the BMC, or another reader), so messages are not \
                 believed any more; the job ends by the power state: a machine that powers off is installed, one that stays on is not"
            }
        }
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// The read completes a message. The same message can come more than once.
    Message(Message),
    /// The read shows that the channel is unusable. Returned once.
    Unusable(Unusable),
}

/// The set that is being read.
#[derive(Clone, Copy, Debug)]
struct Current {
    symbol: Symbol,
    set: usize,
    /// The reads of the set that arrived.
    reads: usize,
}

/// Decodes the reads of one medium.
#[derive(Clone, Debug)]
pub struct Decoder {
    book: CodeBook,
    /// The end of the last read, and the length of its run.
    run: (u64, u64),
    streamed: u64,
    current: Option<Current>,
    touches: [usize; LAST_TOUCHES],
    touched: usize,
    /// The cells that were touched, as bits.
    seen: u128,
    strays: u32,
    class: Option<Class>,
    unusable: Option<Unusable>,
}

impl Decoder {
    /// Creates the decoder of a job's medium.
    #[must_use]
    pub fn new(book: CodeBook) -> Self {
        Self {
            book,
            run: (u64::MAX, 0),
            streamed: 0,
            current: None,
            touches: [CELLS; LAST_TOUCHES],
            touched: 0,
            seen: 0,
            strays: 0,
            class: None,
            unusable: None,
        }
    }

    /// Returns why the channel is unusable, if it is.
    #[must_use]
    pub fn unusable(&self) -> Option<Unusable> {
        self.unusable
    }

    /// Takes a read of `len` bytes at `offset` of the file. A read outside of it has no effect.
    pub fn read(&mut self, offset: u64, len: u64) -> Option<News> {
        let end = offset.saturating_add(len).min(FILE_LEN);
        if self.unusable.is_some() || offset >= end {
            return None;
        }
        let len = end - offset;
        let run = if self.run.0 == offset { self.run.1.saturating_add(len) } else { len };
        self.run = (end, run);
        if run > LONGEST_RUN {
            // A BMC that requests to the end of the image and closes the connection leaves such a tail behind.
            self.streamed = self.streamed.saturating_add(len);
            return (self.streamed > STREAMED_MAX).then(|| self.fail(Unusable::Copied));
        }
        // A run this short covers one secret sector at most.
        let (cell, used) = self.book.covered(offset, end).next()?;
        let last = self.touched.checked_sub(1).map(|last| self.touches[last % LAST_TOUCHES]);
        if last != Some(cell) {
            self.touches[self.touched % LAST_TOUCHES] = cell;
            self.touched += 1;
            self.seen |= 1 << cell;
            if self.is_copied() {
                return Some(self.fail(Unusable::Copied));
            }
        }
        let same = self.current.filter(|now| (now.symbol, now.set) == (used.symbol, used.set));
        match same {
            // Repeated.
            Some(now) if used.read < now.reads => None,
            Some(now) if used.read == now.reads => {
                self.current = Some(Current { reads: now.reads + 1, ..now });
                if used.read + 1 < READS {
                    return None;
                }
                self.complete(used.symbol)
            }
            _ if used.read == 0 => {
                self.current = Some(Current { symbol: used.symbol, set: used.set, reads: 1 });
                None
            }
            _ => {
                self.current = None;
                self.strays += 1;
                (self.strays > STRAYS_MAX).then(|| self.fail(Unusable::Strange))
            }
        }
    }

    fn complete(&mut self, symbol: Symbol) -> Option<News> {
        // A copy completes no set, and who completes one has the secret.
        (self.streamed, self.strays) = (0, 0);
        let message = match symbol {
            Symbol::Class(class) => {
                self.class = Some(class);
                return None;
            }
            Symbol::Started => Message::Started,
            Symbol::Done(step) => Message::Done(step),
            Symbol::Failed(step) => Message::Failed { step, class: self.class },
            Symbol::Success => Message::Success,
        };
        Some(News::Message(message))
    }

    fn is_copied(&self) -> bool {
        if self.seen.count_ones() > CELLS_MAX {
            return true;
        }
        let (least, most) = (self.touches.iter().min(), self.touches.iter().max());
        self.touched >= LAST_TOUCHES
            && least.zip(most).is_some_and(|(least, most)| most - least < NEIGHBOURS)
            && (1..LAST_TOUCHES).all(|at| !self.touches[..at].contains(&self.touches[at]))
    }

    fn fail(&mut self, reason: Unusable) -> News {
        self.unusable = Some(reason);
        News::Unusable(reason)
    }
}
