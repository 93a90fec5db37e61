//! Failpoints: named points between two durable effects. A test stops the process at one of them to see what a crash leaves.
//!
//! ```text
//!   statements -> "commit" -> COMMIT -> "committed" -> response
//!   write -> "write FILE" -> fsync -> "synced FILE" -> rename -> "renamed FILE" -> fsync of the folder -> "kept FILE"
//! ```
//!
//! The process has one hook, because a crash ends the whole process. Without a hook a failpoint costs one atomic load.

use std::sync::OnceLock;

static HOOK: OnceLock<FailpointHook> = OnceLock::new();

/// Called with the name of every failpoint that the program reaches, on the thread that reaches it.
pub type FailpointHook = Box<dyn Fn(&str) + Send + Sync>;

/// Installs the hook of this process; `false` when one is installed already.
pub fn install(hook: FailpointHook) -> bool {
    HOOK.set(hook).is_ok()
}

/// Calls the hook with the name of a failpoint.
pub fn hit(point: &str) {
    if let Some(hook) = HOOK.get() {
        hook(point);
    }
}

/// Calls the hook with the name of a failpoint and the extension of a file.
pub fn hit_file(point: &str, name: &str) {
    if let Some(hook) = HOOK.get() {
        let kind = name.rsplit_once('.').map_or("file", |(_, extension)| extension);
        hook(&format!("{point} {kind}"));
    }
}
