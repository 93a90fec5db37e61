//! Applying the layers of an OCI root file system to a directory tree.
//!
//! ```text
//! LayerReader (tar, verified) --archive--> members --apply--> Tree: files, links, devices, xattrs, whiteouts
//!                                                       every path resolved inside of the root by the kernel
//! ```
//!
//! Invariants: a layer is hostile input. No member changes anything outside of the root, whatever its names and links; no
//! existing file is written through; memory does not grow with the size of a file or of a header. OCI image specification
//! 1.1, layer.md; POSIX pax; the GNU tar manual for sparse files.

mod apply;
mod archive;
mod files;
mod refusal;
mod tree;

pub use apply::{Applied, LayerError, MAX_MEMBERS, apply};
pub use archive::{Archive, Member, MemberKind};
pub use tree::{LayerTree, Ownership};

#[cfg(test)]
mod tests;
