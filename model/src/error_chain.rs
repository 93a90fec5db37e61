//! An error with its causes on one line: `commit a transaction: database is locked`.
//!
//! Invariant: the text of each error of the workspace names only its own operation, so that no text appears twice. Errors of foreign
//! crates may repeat the text of their cause: [`distinct_causes`].

use std::error::Error;
use std::fmt;

/// An error with its causes on one line, each once.
pub fn error_chain(error: &dyn Error) -> impl fmt::Display + '_ {
    struct Chain<'a>(&'a dyn Error);
    impl fmt::Display for Chain<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Display::fmt(self.0, f)?;
            let mut cause = self.0.source();
            while let Some(error) = cause {
                write!(f, ": {error}")?;
                cause = error.source();
            }
            Ok(())
        }
    }
    Chain(error)
}

/// An error of a foreign crate with its causes on one line, without repeated texts: some of them contain the text of their cause, and
/// the first text of an HTTP client only says that sending failed.
pub fn distinct_causes(error: &dyn Error) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
        next = error.source();
    }
    texts.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error(transparent)]
    struct Repeats(#[from] Same);

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Same(#[source] std::fmt::Error);

    #[test]
    fn a_text_that_an_error_repeats_is_shown_once() {
        let error = Repeats(Same(std::fmt::Error));
        assert_eq!(distinct_causes(&error), std::fmt::Error.to_string());
        assert_eq!(distinct_causes(&Outer(std::fmt::Error)), format!("outer: {}", std::fmt::Error));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::fmt::Error);

    #[test]
    fn every_cause_is_shown_once_and_in_order() {
        let error = Outer(std::fmt::Error);
        assert_eq!(error_chain(&error).to_string(), format!("outer: {}", std::fmt::Error));
    }
}
