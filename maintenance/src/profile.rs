//! The two profiles of an image.

/// The profile of an image: the drivers and programs that it has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ImageProfile {
    /// The image has every driver of the list.
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
