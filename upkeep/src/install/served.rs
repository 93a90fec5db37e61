//! An image as the media server serves it for a BMC, and how much of it was read.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::urls::ImageReads;
use model::Time;

/// How long a BMC may take until it asks for an image, and between two reads of it.
const SILENCE_LIMIT: Duration = Duration::from_secs(10 * 60);

/// An image that is served for a BMC; a part of the output of the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fetch {
    /// The SHA-256 of the token in the URL, by which reads are counted.
    pub(super) grant: String,
    /// When the grant was issued.
    pub(super) issued_at: Time,
    /// The number of bytes of the image.
    pub(super) size: u64,
    /// Where the image is served: scheme, host and port.
    pub(super) base: String,
}

impl Fetch {
    /// How much was read, for operators.
    pub(super) fn sentence(&self, what: &str, reads: &ImageReads, now: Time) -> String {
        let since = |time: Time| now.since(time).as_secs() / 60;
        match reads.last_at {
            None => format!(
                "the BMC has not asked for the image of {what} for {} min: is {} reachable from its network?",
                since(self.issued_at),
                self.base
            ),
            Some(last) if since(last) > 0 => {
                format!(
                    "the BMC has read {} of {what}, and nothing for {} min",
                    self.amount(reads),
                    since(last)
                )
            }
            Some(_) => format!("the BMC has read {} of {what}", self.amount(reads)),
        }
    }

    /// "41 of 64 MB"; more than the whole image was read by a BMC that reads it twice.
    pub(super) fn amount(&self, reads: &ImageReads) -> String {
        let (unit, name) = if self.size >= 10_000_000 { (1_000_000, "MB") } else { (1000, "kB") };
        format!("{} of {} {name}", reads.bytes / unit, self.size.div_ceil(unit))
    }

    /// Whether every byte was sent.
    pub(super) fn is_whole(&self, reads: &ImageReads) -> bool {
        reads.bytes >= self.size
    }

    /// Whether reads may be missing from the count.
    pub(super) fn has_gap(&self, reads: &ImageReads) -> bool {
        reads.counted_since.is_none_or(|since| since > self.issued_at)
    }

    /// Whether the BMC has read nothing for so long that it is not waited for any more.
    pub(super) fn is_silent(&self, reads: &ImageReads, now: Time) -> bool {
        now.since(reads.last_at.unwrap_or(self.issued_at)) >= SILENCE_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        "2026-11-20T08:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(second))
    }

    fn fetch() -> Fetch {
        Fetch {
            grant: "h".to_owned(),
            issued_at: at(100),
            size: 64_000_000,
            base: "http://192.0.2.7".to_owned(),
        }
    }

    fn reads(bytes: u64, last: Option<u64>) -> ImageReads {
        ImageReads { bytes, last_at: last.map(at), counted_since: Some(at(0)) }
    }

    #[test]
    fn what_the_bmc_has_read_is_said_in_megabytes_and_a_missing_read_asks_for_the_network() {
        let said = |reads: &ImageReads, now| fetch().sentence("bios 2.19", reads, at(now));
        assert_eq!(
            said(&reads(0, None), 220),
            "the BMC has not asked for the image of bios 2.19 for 2 min: is http://192.0.2.7 reachable from its network?"
        );
        assert_eq!(said(&reads(41_200_000, Some(210)), 220), "the BMC has read 41 of 64 MB of bios 2.19");
        assert_eq!(
            said(&reads(41_200_000, Some(210)), 400),
            "the BMC has read 41 of 64 MB of bios 2.19, and nothing for 3 min"
        );
        let small = Fetch { size: 150_000, ..fetch() };
        assert_eq!(small.amount(&reads(1500, Some(1))), "1 of 150 kB");
    }
}
