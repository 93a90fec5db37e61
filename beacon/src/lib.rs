//! The beacon: messages of a machine without a network, sent as reads of its boot medium.
//!
//! ```text
//! machine: message -> symbols -> CodeBook -> 2 sets of 3 sectors, read one second apart
//!             |  BMC: one HTTP range for each read, which begins earlier, ends later, or does not occur
//!             v
//! controller: ranges -> Decoder -> message | the channel is unusable
//!
//! the file `beacon` in the image, all zeros (no byte of it is stored):
//!   | guard 4 MiB | cell 0: 4.5 MiB | cell 1 | ...                 | cell 95 | guard 4 MiB |
//!                   ^ one secret sector in its first 512 KiB
//! ```
//!
//! Machine and controller derive the sectors from the secret of the job, so a reader without it cannot send a message except by
//! chance, and the chances are counted. Each symbol has six cells of its own: a BMC that caches what it read still shows the
//! first read of every cell.
//!
//! Invariants: the crate reads nothing and waits for nothing. The sectors of a set descend, so an ascending copy of the image
//! sends no message. Two secret sectors are at least 4 MiB apart, so read-ahead below that covers one of them. A wrong message
//! is never returned for lost, repeated or widened reads; it is lost at worst. State and work of a read are bounded.

mod code_book;
mod decoder;
mod message;

#[cfg(test)]
mod tests;

pub use code_book::{CodeBook, FILE_LEN, FILE_NAME, SECTOR};
pub use decoder::{Decoder, News, Unusable};
pub use message::{BeaconStep, Class, ImageKind, Message, Symbol};
