//! What stands in `If-Match` of a PATCH, from the tag that was read down to none.
//!
//! ```text
//!   412: read again -> changed? the new one -> strong form of a weak one -> * -> none
//!   428: the same, but none is no answer to a BMC that demands one
//! ```
//!
//! Each is tried at most once, and each only after a new read. Specification: DSP0266 7.11.

use http::StatusCode;

use crate::profile::IfMatch;

/// The values tried in `If-Match`, each at most once: what was read, its strong form, `*`, nothing.
pub(crate) struct Tags {
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

impl Tags {
    pub(crate) fn new(rule: IfMatch, etag: Option<String>) -> Self {
        let (etag, attempt) = match rule {
            IfMatch::ETag => (etag, IfMatchAttempt::Read),
            IfMatch::Star => (etag, IfMatchAttempt::Star),
            // A BMC that demands one after all gets what the next read shows.
            IfMatch::Without => (None, IfMatchAttempt::Read),
        };
        Tags { etag, attempt, began_at_star: attempt == IfMatchAttempt::Star }
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

    /// Whether `*` is what the BMC took after it had refused real tags.
    pub(crate) fn was_refused_until_star(&self) -> bool {
        self.attempt == IfMatchAttempt::Star && !self.began_at_star
    }

    /// Moves on after a 412 or 428 and a new read; false when nothing is left to try.
    pub(crate) fn advance(&mut self, fresh: Option<String>, status: StatusCode) -> bool {
        let changed = fresh.is_some() && fresh != self.etag;
        let weak = fresh.as_deref().is_some_and(|etag| etag.starts_with("W/"));
        self.etag = fresh;
        self.attempt = match self.attempt {
            IfMatchAttempt::Read if changed => IfMatchAttempt::Fresh,
            IfMatchAttempt::Read | IfMatchAttempt::Fresh if weak => IfMatchAttempt::Strong,
            IfMatchAttempt::Read | IfMatchAttempt::Fresh | IfMatchAttempt::Strong => IfMatchAttempt::Star,
            // Without a tag is no answer to a BMC that demands one.
            IfMatchAttempt::Star if status == StatusCode::PRECONDITION_FAILED => IfMatchAttempt::Without,
            IfMatchAttempt::Star | IfMatchAttempt::Without => return false,
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(mut tags: Tags, fresh: Option<&str>) -> Vec<Option<String>> {
        let mut tried = vec![tags.current()];
        while tags.advance(fresh.map(str::to_owned), StatusCode::PRECONDITION_FAILED) {
            tried.push(tags.current());
        }
        tried
    }

    #[test]
    fn tags_go_from_read_to_strong_to_star_to_none() {
        let tried = ladder(Tags::new(IfMatch::ETag, Some("W/\"a\"".to_owned())), Some("W/\"a\""));
        let expected = [Some("W/\"a\""), Some("\"a\""), Some("*"), None];
        assert_eq!(tried, expected.map(|tag| tag.map(str::to_owned)));
    }

    #[test]
    fn a_tag_that_changed_meanwhile_is_tried_before_the_ladder_goes_on() {
        let tried = ladder(Tags::new(IfMatch::ETag, Some("\"a\"".to_owned())), Some("\"b\""));
        assert_eq!(tried, [Some("\"a\""), Some("\"b\""), Some("*"), None].map(|tag| tag.map(str::to_owned)));
    }

    #[test]
    fn a_profile_can_begin_with_the_star() {
        assert_eq!(ladder(Tags::new(IfMatch::Star, None), None), [Some("*".to_owned()), None]);
    }
}
