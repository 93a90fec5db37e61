//! The OS image of a job with `delivery: media`: checked when the job is accepted, and again, for good, by `validate`.
//!
//! ```text
//! oci_url --own registry?--> manifest --[index: linux/amd64]--> blobs, all stored? --> OsImage, which the medium holds
//!    `- refused with a sentence: not held, another platform, too large, a blob is missing
//! ```

use bmc::Unavailable;
use media::OsImage;
use recipe::{Delivery, Recipe};

use super::medium_image::MediumImage;
use super::order::OrderError;
use super::services::Services;
use super::steps::ImageName;

impl Services {
    /// Checks the OS image of a recipe with `delivery: media`. A registry that does not respond refuses nothing here: the job
    /// waits for it.
    ///
    /// # Errors
    /// [`OrderError::OsImage`] when the image cannot be put onto a medium.
    pub async fn check_medium(&self, recipe: &Recipe) -> Result<(), OrderError> {
        if recipe.delivery != Delivery::Media {
            return Ok(());
        }
        match self.medium_image(recipe).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(reason)) => Err(OrderError::OsImage(reason)),
            // The job checks it again, and waits.
            Err(_unavailable) => Ok(()),
        }
    }

    /// Reads the OS image of a recipe with `delivery: media` in the registry. Returns the name's digest and the image, or the
    /// reason why the image is refused.
    pub(super) async fn medium_image(
        &self,
        recipe: &Recipe,
    ) -> Result<Result<(ImageName, OsImage), String>, Unavailable> {
        if !self.settings.registry {
            return Ok(Err(
                "delivery media needs the registry of this controller: set ENABLE_REGISTRY".to_owned()
            ));
        }
        let Some(url) = recipe.oci_url.as_deref() else {
            return Ok(Err("delivery media needs an oci_url".to_owned()));
        };
        let Some(name) = ImageName::parse(url) else {
            return Ok(Err(format!(
                "oci_url {url} has no host or no repository; write it as HOST[:PORT]/REPOSITORY:TAG"
            )));
        };
        Ok(match self.images.for_medium(&name.repository, &name.reference).await? {
            MediumImage::Found { digest, image } => Ok((ImageName { reference: digest, ..name }, image)),
            MediumImage::Refused(reason) => Err(reason),
            MediumImage::Missing => Err(format!(
                "the registry of this controller does not hold {}:{}, and delivery media takes the OS image from it; push it: \
                 skopeo copy … docker://{url}",
                name.repository, name.reference
            )),
        })
    }
}
