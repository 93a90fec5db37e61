//! Whether the jobs of a change are those of its preview ([`model::selection_digest`]).

use model::{RunId, selection_digest};

/// The digest of a selection of jobs, in whatever order.
pub(crate) fn digest(jobs: &[RunId]) -> String {
    selection_digest(jobs.iter().map(RunId::to_string))
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
        assert!(is_other(Some(&digest(&[one, two])), &[one, three]));
        assert!(is_other(Some(""), &[one]));
        assert!(!is_other(Some(&digest(&[one])), &[one]));
        assert!(!is_other(None, &[one]));
    }
}
