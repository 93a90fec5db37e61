//! An error with its causes on one line: `commit a transaction: database is locked`.
//!
//! Invariant: the text of each error names only its own operation, so that no text appears twice.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::fmt::Error);

    #[test]
    fn every_cause_is_shown_once_and_in_order() {
        let error = Outer(std::fmt::Error);
        assert_eq!(error_chain(&error).to_string(), format!("outer: {}", std::fmt::Error));
    }
}
