//! Images that this process planned and hashed recently and that no request has used yet.
//!
//! ```text
//!   iso.build: plan, hash ──> keep ──> [ oldest ... newest ] ──take──> the first request of the grant
//!                                         `── over the limit: dropped; the request plans and hashes the image again
//! ```
//!
//! Invariants: the number of images and their bytes are bounded; an image is found by its digest, which was computed over
//! its bytes, so the image is the one that the grant recorded; the list does not decide whether a grant exists or is open.

use std::collections::VecDeque;

use super::body::{ImageBody, ImageDigest};

/// The maximum number of images. The first request normally follows `iso.build` within seconds, unless the host must be
/// powered off first.
const IMAGES_MAX: usize = 256;
/// The approximate maximum of memory for all images.
const BYTES_MAX: usize = 8 << 20;

/// The recently planned images, oldest first.
#[derive(Default)]
pub(super) struct RecentImages {
    images: VecDeque<(ImageBody, usize)>,
    weight: usize,
}

impl RecentImages {
    /// Keeps an image of about `weight` bytes for its first request. Drops the oldest images when a limit is exceeded.
    pub(super) fn keep(&mut self, body: ImageBody, weight: usize) {
        let _replaced = self.take(body.digest());
        if weight > BYTES_MAX {
            return;
        }
        self.weight += weight;
        self.images.push_back((body, weight));
        while self.images.len() > IMAGES_MAX || self.weight > BYTES_MAX {
            let Some((_, dropped)) = self.images.pop_front() else { break };
            self.weight -= dropped;
        }
    }

    /// Removes the image with this digest and returns it with its weight in bytes.
    pub(super) fn take(&mut self, digest: ImageDigest) -> Option<(ImageBody, usize)> {
        let index = self.images.iter().position(|(body, _)| body.digest() == digest)?;
        let taken = self.images.remove(index)?;
        self.weight -= taken.1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(number: usize) -> ImageBody {
        ImageBody::from_bytes(number.to_le_bytes().to_vec())
    }

    #[test]
    fn an_image_is_taken_once_by_its_digest() {
        let mut recent = RecentImages::default();
        recent.keep(image(1), 10);
        recent.keep(image(2), 20);
        recent.keep(image(1), 11);
        let (body, weight) = recent.take(image(1).digest()).unwrap();
        assert_eq!((body.digest(), weight), (image(1).digest(), 11));
        assert!(recent.take(image(1).digest()).is_none());
        assert_eq!(recent.weight, 20);
    }

    #[test]
    fn the_oldest_images_are_dropped_when_the_count_or_the_bytes_exceed_the_limit() {
        let mut recent = RecentImages::default();
        (0..=IMAGES_MAX).for_each(|number| recent.keep(image(number), 1));
        assert!(recent.take(image(0).digest()).is_none());
        assert_eq!((recent.images.len(), recent.weight), (IMAGES_MAX, IMAGES_MAX));
        recent.keep(image(1000), BYTES_MAX);
        assert_eq!((recent.images.len(), recent.weight), (1, BYTES_MAX));
        recent.keep(image(1001), BYTES_MAX + 1);
        assert!(recent.take(image(1001).digest()).is_none());
        assert!(recent.take(image(1000).digest()).is_some());
        assert_eq!(recent.weight, 0);
    }
}
