//! The two profiles of an image.

/// Which drivers and programs an image has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ImageProfile {
    /// Every driver of the list.
    #[default]
    Full,
    /// Virtual machines and common hardware, for slow virtual media.
    Small,
}

impl ImageProfile {
    /// The name in the record and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Small => "small",
        }
    }
}
