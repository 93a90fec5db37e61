//! Firmware files that were hashed and opened by the step that issued their grants, until the first request of each grant.
//!
//! ```text
//!   firmware.upload: open, hash ──> keep ──> [ oldest ... newest ] ──take──> the first request of the grant
//!                                               `── over the limit, restart of the program: the request opens and hashes the file
//! ```
//!
//! Invariants: the number of open files is bounded; a kept file was hashed by its caller and is never written, because the
//! files of the registry are replaced; the list does not decide whether a grant exists or is open.

use std::collections::VecDeque;

use model::RunId;

use super::os_medium::OpenBlob;

/// The maximum number of kept files, which are open. A BMC asks for its image within seconds as a rule.
const FILES_MAX: usize = 256;

/// The kept files, oldest first.
#[derive(Default)]
pub(super) struct VerifiedFiles(VecDeque<(String, RunId, OpenBlob)>);

impl VerifiedFiles {
    /// Keeps the file of a grant for its first request. Closes the oldest file when there are too many.
    pub(super) fn keep(&mut self, token_hash: String, run: RunId, file: OpenBlob) {
        self.0.push_back((token_hash, run, file));
        while self.0.len() > FILES_MAX {
            self.0.pop_front();
        }
    }

    /// Removes the file of a grant and returns it.
    pub(super) fn take(&mut self, token_hash: &str) -> Option<OpenBlob> {
        let at = self.0.iter().position(|(hash, _, _)| hash == token_hash)?;
        self.0.remove(at).map(|(_, _, file)| file)
    }

    /// Closes the files of a run whose grants ended.
    pub(super) fn end(&mut self, run: RunId) {
        self.0.retain(|(_, of, _)| *of != run);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn file(len: u64) -> OpenBlob {
        OpenBlob { file: Arc::new(tempfile::tempfile().unwrap()), len }
    }

    #[test]
    fn a_file_is_taken_once_and_closed_with_its_run_or_when_there_are_too_many() {
        let mut files = VerifiedFiles::default();
        let (one, two) = (RunId::new(), RunId::new());
        files.keep("a".to_owned(), one, file(1));
        files.keep("b".to_owned(), two, file(2));
        assert_eq!(files.take("a").unwrap().len, 1);
        assert!(files.take("a").is_none());
        files.end(two);
        assert!(files.take("b").is_none());
        (0..=FILES_MAX).for_each(|at| files.keep(at.to_string(), one, file(3)));
        assert!(files.take("0").is_none() && files.take("1").is_some());
    }
}
