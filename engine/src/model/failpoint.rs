//! The points between the durable effects of this program, named for whoever watches: a test that wants to know what a
//! death right there would leave.
//!
//! ```text
//!   statements -> "commit" -> COMMIT -> "committed" -> answers
//!   write -> "write FILE" -> fsync -> "synced FILE" -> rename -> "renamed FILE" -> fsync of the folder -> "kept FILE"
//! ```
//!
//! One witness for the process, because a process dies as a whole. Nobody watches unless a program says so at its start;
//! then a point costs one load.

use std::sync::OnceLock;

static WITNESS: OnceLock<FailpointHook> = OnceLock::new();

/// Hears of every point the program passes, on the thread that passes it, which goes on when the witness returns.
pub type FailpointHook = Box<dyn Fn(&str) + Send + Sync>;

/// Lets a witness watch this process from now on; `false` when there is one already.
pub fn install(witness: FailpointHook) -> bool {
    WITNESS.set(witness).is_ok()
}

/// A point is passed.
pub fn hit(point: &str) {
    if let Some(witness) = WITNESS.get() {
        witness(point);
    }
}

/// The same for a file, of which only the kind is told: the end of its name.
pub fn hit_file(point: &str, name: &str) {
    if let Some(witness) = WITNESS.get() {
        let kind = name.rsplit_once('.').map_or("file", |(_, extension)| extension);
        witness(&format!("{point} {kind}"));
    }
}
