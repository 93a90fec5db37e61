//! Images that were planned and hashed in this process a moment ago, and not asked for yet.
//!
//! ```text
//!   iso.build: plan, hash ──> keep ──> [ oldest ... newest ] ──take──> the first reading of the grant
//!                                         `── too many: forgotten; the reading plans and hashes again
//! ```
//!
//! Invariants: bounded in images and bytes; an image is found by its digest alone, and its digest was computed over its
//! bytes, so that what is taken is what a grant was given for; nothing here says that a grant is given or still holds.

use std::collections::VecDeque;

use super::body::{Body, ImageDigest};

/// Images kept. A worker carries its job from `iso.build` to the reading without a pause, unless the host must go off first.
const IMAGES_MAX: usize = 256;
/// Memory they take together, roughly.
const BYTES_MAX: usize = 8 << 20;

/// The images, oldest first.
#[derive(Default)]
pub(super) struct Fresh {
    images: VecDeque<(Body, usize)>,
    weight: usize,
}

impl Fresh {
    /// Keeps an image of about `weight` bytes for the first who asks for it; the oldest make room.
    pub(super) fn keep(&mut self, body: Body, weight: usize) {
        let _instead = self.take(body.digest());
        if weight > BYTES_MAX {
            return;
        }
        self.weight += weight;
        self.images.push_back((body, weight));
        while self.images.len() > IMAGES_MAX || self.weight > BYTES_MAX {
            let Some((_, forgotten)) = self.images.pop_front() else { break };
            self.weight -= forgotten;
        }
    }

    /// The image with this digest, which is then no longer kept, and what it weighs.
    pub(super) fn take(&mut self, digest: ImageDigest) -> Option<(Body, usize)> {
        let place = self.images.iter().position(|(body, _)| body.digest() == digest)?;
        let taken = self.images.remove(place)?;
        self.weight -= taken.1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(number: usize) -> Body {
        Body::from_bytes(number.to_le_bytes().to_vec())
    }

    #[test]
    fn an_image_is_taken_once_by_its_digest() {
        let mut fresh = Fresh::default();
        fresh.keep(image(1), 10);
        fresh.keep(image(2), 20);
        fresh.keep(image(1), 11);
        let (body, weight) = fresh.take(image(1).digest()).unwrap();
        assert_eq!((body.digest(), weight), (image(1).digest(), 11));
        assert!(fresh.take(image(1).digest()).is_none());
        assert_eq!(fresh.weight, 20);
    }

    #[test]
    fn the_oldest_make_room_for_too_many_and_for_too_large_ones() {
        let mut fresh = Fresh::default();
        (0..=IMAGES_MAX).for_each(|number| fresh.keep(image(number), 1));
        assert!(fresh.take(image(0).digest()).is_none());
        assert_eq!((fresh.images.len(), fresh.weight), (IMAGES_MAX, IMAGES_MAX));
        fresh.keep(image(1000), BYTES_MAX);
        assert_eq!((fresh.images.len(), fresh.weight), (1, BYTES_MAX));
        fresh.keep(image(1001), BYTES_MAX + 1);
        assert!(fresh.take(image(1001).digest()).is_none());
        assert!(fresh.take(image(1000).digest()).is_some());
        assert_eq!(fresh.weight, 0);
    }
}
