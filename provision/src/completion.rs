//! When an installation that nobody reports is taken as finished: from what a BMC shows and what was read of the media.
//!
//! ```text
//!  power-on ──── minimum install time ────────────────────────────────── window ends
//!     |  looks only move the baseline     |  looks are compared              |
//!     |  (an installer may restart here)  |  host off                        |
//!     |                                   |  LastResetTime newer             |  none of them:
//!     |                                   |  BootProgress begins anew        |  assumed
//!     |                                   |  media read, silent for 10 min   |
//! ```
//!
//! Invariants: pure; a host that is on for a while proves nothing, a warm reset keeps it on all the time; what is compared
//! was seen in two looks after the minimum time, so that a restart of the beginning is not taken for that of the end. The
//! BMC's times are only compared with each other.
//!
//! DESIGN section 5.

use std::time::Duration;

use jiff::Timestamp;
use redfish::{HostStatus, PowerState};
use serde::{Deserialize, Serialize};

use engine::model::Time;

/// For so long nothing may have been read of media that were read to the payload.
pub(super) const SILENCE: Duration = Duration::from_secs(600);
/// A BMC that computes its times anew in every answer is off by a second now and then.
const JITTER: Duration = Duration::from_secs(2);
/// This part of the boot medium is more than firmware, boot loader and the BMC's own look at it: the payload was read.
const PAYLOAD: u64 = 4;

/// The stages of `BootProgress.LastState`, in the order a boot goes through them (DSP0268).
const STAGES: [&str; 9] = [
    "PrimaryProcessorInitializationStarted",
    "BusInitializationStarted",
    "MemoryInitializationStarted",
    "SecondaryProcessorInitializationStarted",
    "PCIResourceConfigStarted",
    "SystemHardwareInitializationComplete",
    "SetupEntered",
    "OSBootStarted",
    "OSRunning",
];

/// What was read of the boot medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MediaReads {
    pub(super) boot_image: bool,
    pub(super) bytes: u64,
    pub(super) last: Option<Timestamp>,
    /// The length of the medium.
    pub(super) of: u64,
}

/// One look at a machine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) at: Time,
    /// `None` when the BMC did not answer.
    pub(super) signs: Option<HostStatus>,
    pub(super) reads: MediaReads,
}

/// What is kept between looks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Watch {
    /// When the host was powered on.
    pub(super) since: Time,
    /// How long no sign counts.
    pub(super) minimum: Duration,
    /// The last signs, and when they were seen.
    pub(super) last: Option<(Time, HostStatus)>,
}

/// Why an installation is taken as finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Sign {
    /// The host is off, or was.
    PowerChange,
    /// `LastResetTime` is newer.
    Reset,
    /// `BootProgress` began anew.
    BootProgress,
    /// Media were read to the payload, then no more.
    MediaSilent,
}

impl Sign {
    /// What was seen, as the end of a sentence.
    pub(super) fn told(&self) -> &'static str {
        match self {
            Self::PowerChange => "its power state changed",
            Self::Reset => "it was restarted: its LastResetTime is newer",
            Self::BootProgress => "it was restarted: its BootProgress began anew",
            Self::MediaSilent => "the media were read to the payload and not at all for ten minutes",
        }
    }
}

impl Watch {
    /// What a look says: a sign that the installation is finished, or none as yet.
    pub(super) fn judge(&self, look: &Look) -> Option<Sign> {
        let counts_from = self.since.plus(self.minimum);
        if look.at < counts_from {
            return None;
        }
        let seen = look.signs.as_ref().and_then(|now| {
            if now.power == PowerState::Off {
                return Some(Sign::PowerChange);
            }
            let before = self.last.as_ref().filter(|(at, _)| *at >= counts_from).map(|(_, signs)| signs)?;
            change(before, now)
        });
        seen.or_else(|| silent(self.since, look).then_some(Sign::MediaSilent))
    }

    /// The baseline of the next look.
    #[must_use]
    pub(super) fn after(self, look: &Look) -> Self {
        match &look.signs {
            Some(signs) => Self { last: Some((look.at, signs.clone())), ..self },
            None => self,
        }
    }
}

fn change(before: &HostStatus, now: &HostStatus) -> Option<Sign> {
    let known = |state: PowerState| !matches!(state, PowerState::Unknown);
    if known(before.power) && known(now.power) && before.power != now.power {
        return Some(Sign::PowerChange);
    }
    if newer(before.last_reset.as_deref(), now.last_reset.as_deref()) {
        return Some(Sign::Reset);
    }
    let stage =
        |signs: &HostStatus| STAGES.iter().position(|name| Some(*name) == signs.boot_state.as_deref());
    let (was, is) = (stage(before)?, stage(now)?);
    let again =
        is < was || (is == was && newer(before.boot_state_at.as_deref(), now.boot_state_at.as_deref()));
    again.then_some(Sign::BootProgress)
}

/// Whether a time of the BMC is later than another by more than jitter. One that cannot be read proves nothing.
fn newer(before: Option<&str>, now: Option<&str>) -> bool {
    let parse = |text: Option<&str>| text.and_then(|text| text.parse::<Timestamp>().ok());
    match (parse(before), parse(now)) {
        (Some(before), Some(now)) => Time::from_timestamp(now).since(Time::from_timestamp(before)) >= JITTER,
        _ => false,
    }
}

fn silent(since: Time, look: &Look) -> bool {
    let reads = &look.reads;
    let payload = reads.boot_image && reads.bytes >= (reads.of / PAYLOAD).max(1);
    let last = reads.last.map(Time::from_timestamp).filter(|last| *last > since);
    payload && last.is_some_and(|last| look.at.since(last) >= SILENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMUM: Duration = Duration::from_secs(600);

    fn time(seconds: u64) -> Time {
        "2026-11-20T08:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(seconds))
    }

    /// `"On 100 OSRunning@7"`: power, LastResetTime in seconds, stage and its time; `-` where the BMC shows none.
    fn signs(text: &str) -> Option<HostStatus> {
        let mut words = text.split_whitespace();
        let power = match words.next()? {
            "On" => PowerState::On,
            "Off" => PowerState::Off,
            "PoweringOn" => PowerState::PoweringOn,
            _ => PowerState::Unknown,
        };
        let stamp = |word: &str| word.parse().ok().map(|seconds| time(seconds).to_string());
        let last_reset = words.next().and_then(stamp);
        let progress = words.next().filter(|word| *word != "-");
        let (boot_state, boot_state_at) =
            match progress.map(|word| word.split_once('@').unwrap_or((word, "-"))) {
                Some((state, at)) => (Some(state.to_owned()), stamp(at)),
                None => (None, None),
            };
        Some(HostStatus { power, last_reset, boot_state, boot_state_at })
    }

    /// Looks one after another as (seconds since power-on, signs); what is said at which of them first.
    fn watched(looks: &[(u64, &str)], reads: MediaReads) -> Option<(u64, Sign)> {
        let mut watch = Watch { since: time(0), minimum: MINIMUM, last: None };
        for (at, text) in looks {
            let look = Look { at: time(*at), signs: signs(text), reads };
            if let Some(sign) = watch.judge(&look) {
                return Some((*at, sign));
            }
            watch = watch.after(&look);
        }
        None
    }

    #[test]
    fn signs_count_after_the_minimum_time_and_being_on_is_none() {
        type Row<'a> = (&'a str, &'a [(u64, &'a str)], Option<(u64, Sign)>);
        let rows: &[Row<'_>] = &[
            (
                "on for ever",
                &[(60, "On 1 OSRunning"), (700, "On 1 OSRunning"), (90_000, "On 1 OSRunning")],
                None,
            ),
            (
                "a restart too early",
                &[(60, "On 1 -"), (300, "On 250 -"), (620, "On 250 -"), (700, "On 250 -")],
                None,
            ),
            (
                "two warm resets, one early, one late",
                &[(60, "On 1 -"), (300, "On 250 -"), (620, "On 250 -"), (900, "On 880 -")],
                Some((900, Sign::Reset)),
            ),
            ("a restart around the minimum", &[(580, "On 1 -"), (620, "On 610 -"), (660, "On 610 -")], None),
            (
                "seen before and after a BMC that was away",
                &[(620, "On 1 -"), (660, ""), (1500, ""), (1530, "On 700 -")],
                Some((1530, Sign::Reset)),
            ),
            ("an older time after a reset of the BMC", &[(620, "On 500 -"), (650, "On 10 -")], None),
            (
                "a time computed anew each time",
                &[(620, "On 500 -"), (650, "On 501 -"), (680, "On 500 -")],
                None,
            ),
            ("a time where there was none", &[(620, "On - -"), (650, "On 640 -")], None),
            ("off", &[(60, "On 1 -"), (700, "Off 1 -")], Some((700, Sign::PowerChange))),
            ("off too early", &[(60, "Off 1 -"), (300, "On 1 -"), (700, "On 1 -"), (730, "On 1 -")], None),
            ("on its way up", &[(620, "On 1 -"), (650, "PoweringOn 1 -")], Some((650, Sign::PowerChange))),
            ("a state that is not told", &[(620, "On 1 -"), (650, "? 1 -"), (680, "On 1 -")], None),
            ("progress goes on", &[(620, "On 1 OSBootStarted@5"), (650, "On 1 OSRunning@640")], None),
            (
                "progress begins anew",
                &[(620, "On - OSRunning"), (650, "On - PCIResourceConfigStarted")],
                Some((650, Sign::BootProgress)),
            ),
            (
                "the same stage again",
                &[(620, "On - OSBootStarted@5"), (650, "On - OSBootStarted@645")],
                Some((650, Sign::BootProgress)),
            ),
            ("a stage of nobody's list", &[(620, "On - OSRunning"), (650, "On - OEM")], None),
            ("progress of none", &[(620, "On - OSRunning"), (650, "On - None")], None),
            ("a silent BMC", &[(620, ""), (90_000, "")], None),
        ];
        for (name, looks, expected) in rows {
            assert_eq!(&watched(looks, MediaReads::default()), expected, "{name}");
        }
    }

    #[test]
    fn media_count_when_read_to_the_payload_and_then_silent() {
        let read = |boot_image, bytes, last: u64| MediaReads {
            boot_image,
            bytes,
            last: Some(time(last).timestamp()),
            of: 1000,
        };
        let looks: &[(u64, &str)] = &[(599, "On 1 -"), (620, "On 1 -"), (900, ""), (1100, "On 1 -")];
        assert_eq!(watched(looks, read(true, 800, 400)), Some((1100, Sign::MediaSilent)));
        assert_eq!(watched(&[(900, ""), (1000, "")], read(true, 800, 400)), Some((1000, Sign::MediaSilent)));
        assert_eq!(watched(looks, read(true, 800, 501)), None, "not silent for ten minutes yet");
        assert_eq!(watched(looks, read(true, 200, 400)), None, "only what a boot loader reads");
        assert_eq!(watched(looks, read(false, 800, 400)), None, "a BMC that copied the image");
        let before = MediaReads { last: Some(time(0).timestamp()), ..read(true, 800, 0) };
        assert_eq!(watched(looks, before), None, "nothing since power-on");
        let early = &[(300, "On 1 -"), (599, "On 1 -")];
        assert_eq!(watched(early, read(true, 1000, 1)), None, "the minimum time holds for media too");
    }
}
