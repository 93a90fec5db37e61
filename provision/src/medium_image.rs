//! What the registry holds for a job with `delivery: media`.

use media::OsImage;

/// What the registry of the controller holds under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumImage {
    /// Nothing.
    Missing,
    /// Something that cannot be installed from a medium; the reason is a sentence.
    Refused(String),
    /// An image.
    Found {
        /// The digest that the name stands for: of the manifest, or of the index around it.
        digest: String,
        /// What the medium holds.
        image: OsImage,
    },
}
