//! The names of steps, of failure classes and of hold classes.
//!
//! ```text
//!   in code   const VALIDATE: &StepName = &StepName::new("validate")   checked by the compiler
//!   stored    "validate", in JSON and in the database                  read as it is
//! ```
//!
//! The sets are open: a workflow brings its own steps and may bring its own classes, and a stored name may come from another
//! version of the program. The engine's own names are constants here and in [`class`](crate::class).
//!
//! Invariants: a name of one kind is not accepted as a name of another kind; a name is stored and shown as its text alone.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// The longest name in code, in characters.
const MAX: usize = 64;

/// Whether a text is a name: 1 to [`MAX`] characters of `a-z 0-9 . _ -`, beginning with a letter.
const fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > MAX || !bytes[0].is_ascii_lowercase() {
        return false;
    }
    let mut index = 0;
    while index < bytes.len() {
        let byte = bytes[index];
        if !byte.is_ascii_lowercase() && !byte.is_ascii_digit() && !matches!(byte, b'.' | b'_' | b'-') {
            return false;
        }
        index += 1;
    }
    true
}

/// Defines a name type over a text.
macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Cow<'static, str>);

        impl $name {
            /// The name that a program writes in its code: 1 to 64 characters of `a-z 0-9 . _ -`, beginning with a letter.
            ///
            /// # Panics
            /// When the text is not such a name. In a constant this is an error of the compiler.
            pub const fn new(name: &'static str) -> Self {
                assert!(is_name(name), "a name has 1 to 64 characters of a-z 0-9 . _ - and begins with a letter");
                Self(Cow::Borrowed(name))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(stored: String) -> Self {
                Self(Cow::Owned(stored))
            }
        }

        impl From<&str> for $name {
            fn from(stored: &str) -> Self {
                Self(Cow::Owned(stored.to_owned()))
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&*self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// The name of a step in its workflow. In a failure that the maintenance OS reported, the unit that failed there.
    StepName
);

name!(
    /// The class of a failure, for filters and statistics.
    FailureClass
);

name!(
    /// The class of a hold: what kind of decision an operator must make.
    HoldClass
);

impl StepName {
    /// Stands in a failure for the step of a run that had none yet.
    pub const QUEUED: Self = Self::new("queued");
    /// Stands in a failure for a step that cannot be read.
    pub const UNKNOWN: Self = Self::new("unknown");
}

impl HoldClass {
    /// An operator requested the hold.
    pub const OPERATOR: Self = Self::new("operator");
    /// This program cannot read the record of the run.
    pub const UNREADABLE: Self = Self::new("unreadable");
    /// This program does not know the next step of the run.
    pub const UNKNOWN_STEP: Self = Self::new("unknown_step");
    /// This program does not know the workflow of the run.
    pub const UNKNOWN_WORKFLOW: Self = Self::new("unknown_workflow");
    /// Another version of the workflow made the plan of the run.
    pub const WORKFLOW_VERSION: Self = Self::new("workflow_version");
}

/// A hold outside of the forward stage becomes a failure of its class.
impl From<HoldClass> for FailureClass {
    fn from(class: HoldClass) -> Self {
        Self(class.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stored_and_shown_as_its_text_alone() {
        let name = StepName::new("redfish.power-on");
        assert_eq!(serde_json::to_string(&name).unwrap(), "\"redfish.power-on\"");
        assert_eq!(serde_json::from_str::<StepName>("\"redfish.power-on\"").unwrap(), name);
        assert_eq!(
            (format!("{name}"), format!("{name:?}")),
            (name.to_string(), "\"redfish.power-on\"".to_owned())
        );
        assert_eq!(format!("{:>18}", name), "  redfish.power-on");
    }

    #[test]
    fn a_stored_name_of_another_program_is_read_as_it_is() {
        for stored in ["Install OS.service", "", "é"] {
            let read: FailureClass = serde_json::from_value(stored.into()).unwrap();
            assert_eq!(read, *stored);
        }
    }

    #[test]
    fn a_name_in_code_has_small_letters_digits_and_three_signs_only() {
        for good in ["a", "redfish.mount.task", "bmc_refused", "step-2"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "A", "2step", "a b", "a/b", "é", &"x".repeat(MAX + 1)] {
            assert!(!is_name(bad), "{bad}");
        }
    }
}
