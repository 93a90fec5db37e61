//! The image that the registry holds for a job with `delivery: media`.

use media::OsImage;

/// The content of the registry of the controller under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumImage {
    /// The registry has no such name.
    Missing,
    /// The name stands for something that cannot be installed from a medium; the reason is a sentence.
    Refused(String),
    /// The name stands for an image that a medium can hold.
    Found {
        /// The digest that the name stands for: of the manifest, or of the index around it.
        digest: String,
        /// The OS image for the medium.
        image: OsImage,
    },
}
