//! The digest of a selection of jobs: a preview shows it, and the change that follows has it. The number alone does not say that the jobs
//! are the same, since one may have come for each that has gone.

use sha2::{Digest, Sha256};

use model::RunId;

/// The characters of the digest of a selection.
const SELECTION: usize = 16;

/// The digest of a selection of jobs, in whatever order.
pub(crate) fn digest(jobs: &[RunId]) -> String {
    let mut ids: Vec<String> = jobs.iter().map(RunId::to_string).collect();
    ids.sort_unstable();
    let mut digest = Sha256::new();
    for id in ids {
        digest.update(id);
        digest.update("\n");
    }
    hex::encode(digest.finalize()).chars().take(SELECTION).collect()
}

/// Whether these are other jobs than those of the preview. A request without a digest has its number only.
pub(crate) fn is_other(expected: Option<&str>, jobs: &[RunId]) -> bool {
    expected.is_some_and(|expected| expected != digest(jobs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_jobs_in_whatever_order_and_of_no_others() {
        let [one, two, three] = std::array::from_fn(|_| RunId::new());
        assert_eq!(digest(&[one, two]), digest(&[two, one]));
        assert_eq!(digest(&[one, two]).len(), SELECTION);
        assert!(is_other(Some(&digest(&[one, two])), &[one, three]));
        assert!(is_other(Some(""), &[one]));
        assert!(!is_other(Some(&digest(&[one])), &[one]));
        assert!(!is_other(None, &[one]));
    }
}
