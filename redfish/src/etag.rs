//! The values of `If-Match` tried for a PATCH, from the ETag that was read down to no header.
//!
//! ```text
//!   412: read again -> the new ETag if it changed -> strong form of a weak ETag -> * -> no header
//!   428: likewise, without the last one: the BMC demands a header
//! ```
//!
//! Each value is tried at most once, and only after a new read. Specification: DSP0266 7.11.

use http::StatusCode;

use crate::profile::IfMatch;

/// The values tried in `If-Match`, each at most once: the ETag that was read, its strong form, `*`, no header.
pub(crate) struct IfMatchFallback {
    etag: Option<String>,
    attempt: IfMatchAttempt,
    began_at_star: bool,
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum IfMatchAttempt {
    Read,
    Fresh,
    Strong,
    Star,
    Without,
}

impl IfMatchFallback {
    pub(crate) fn new(rule: IfMatch, etag: Option<String>) -> Self {
        let (etag, attempt) = match rule {
            IfMatch::ETag => (etag, IfMatchAttempt::Read),
            IfMatch::Star => (etag, IfMatchAttempt::Star),
            // If the BMC demands the header nevertheless, the ETag of the next read is sent.
            IfMatch::Without => (None, IfMatchAttempt::Read),
        };
        IfMatchFallback { etag, attempt, began_at_star: attempt == IfMatchAttempt::Star }
    }

    pub(crate) fn current(&self) -> Option<String> {
        match self.attempt {
            IfMatchAttempt::Read | IfMatchAttempt::Fresh => self.etag.clone(),
            IfMatchAttempt::Strong => {
                self.etag.as_deref().map(|etag| etag.trim_start_matches("W/").to_owned())
            }
            IfMatchAttempt::Star => Some("*".to_owned()),
            IfMatchAttempt::Without => None,
        }
    }

    /// Whether the BMC accepted `*` after it had refused ETags.
    pub(crate) fn was_refused_until_star(&self) -> bool {
        self.attempt == IfMatchAttempt::Star && !self.began_at_star
    }

    /// Selects the next value after a 412 or 428 and a new read; false when none is left.
    pub(crate) fn advance(&mut self, fresh: Option<String>, status: StatusCode) -> bool {
        let changed = fresh.is_some() && fresh != self.etag;
        let weak = fresh.as_deref().is_some_and(|etag| etag.starts_with("W/"));
        self.etag = fresh;
        self.attempt = match self.attempt {
            IfMatchAttempt::Read if changed => IfMatchAttempt::Fresh,
            IfMatchAttempt::Read | IfMatchAttempt::Fresh if weak => IfMatchAttempt::Strong,
            IfMatchAttempt::Read | IfMatchAttempt::Fresh | IfMatchAttempt::Strong => IfMatchAttempt::Star,
            // After 428 the BMC demands the header, so leaving it out cannot succeed.
            IfMatchAttempt::Star if status == StatusCode::PRECONDITION_FAILED => IfMatchAttempt::Without,
            IfMatchAttempt::Star | IfMatchAttempt::Without => return false,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried_values(mut fallback: IfMatchFallback, fresh: Option<&str>) -> Vec<Option<String>> {
        let mut tried = vec![fallback.current()];
        while fallback.advance(fresh.map(str::to_owned), StatusCode::PRECONDITION_FAILED) {
            tried.push(fallback.current());
        }
        tried
    }

    #[test]
    fn etags_fall_back_from_read_to_strong_to_star_to_none() {
        let tried =
            tried_values(IfMatchFallback::new(IfMatch::ETag, Some("W/\"a\"".to_owned())), Some("W/\"a\""));
        let expected = [Some("W/\"a\""), Some("\"a\""), Some("*"), None];
        assert_eq!(tried, expected.map(|tag| tag.map(str::to_owned)));
    }

    #[test]
    fn a_changed_etag_is_tried_before_the_star() {
        let tried =
            tried_values(IfMatchFallback::new(IfMatch::ETag, Some("\"a\"".to_owned())), Some("\"b\""));
        assert_eq!(tried, [Some("\"a\""), Some("\"b\""), Some("*"), None].map(|tag| tag.map(str::to_owned)));
    }

    #[test]
    fn a_profile_can_start_with_the_star() {
        assert_eq!(
            tried_values(IfMatchFallback::new(IfMatch::Star, None), None),
            [Some("*".to_owned()), None]
        );
    }
}
