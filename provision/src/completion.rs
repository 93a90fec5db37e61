//! Decides when an installation without report is finished, from the host status the BMC shows and the reads of the media.
//!
//! ```text
//!  power-on ──── minimum install time ────────────────────────────────── window ends
//!     |  observations set the baseline    |  observations are compared       |
//!     |  (an installer may restart here)  |  host off                        |
//!     |                                   |  LastResetTime newer             |  none of them:
//!     |                                   |  BootProgress starts again       |  assumed
//!     |                                   |  media read, silent for 10 min   |  (while they were served)
//! ```
//!
//! Invariants: pure. A host that stays on proves nothing, because a warm reset keeps it on. Both compared observations are
//! later than the minimum time, so that a restart at the beginning does not count as the final one. Times of the BMC are only
//! compared with each other.
//!
//! See docs/architecture.md.

use std::time::Duration;

use jiff::Timestamp;
use redfish::{HostStatus, PowerState};
use serde::{Deserialize, Serialize};

use model::Time;

/// Media whose payload was read count as finished after this time without a read.
pub(super) const SILENCE: Duration = Duration::from_secs(600);
/// Tolerance for BMCs that compute their times in every response and are off by a second.
const JITTER: Duration = Duration::from_secs(2);
/// Fraction (1/4) of the boot image that proves a read of the payload: firmware, boot loader and BMC read less.
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

/// Returns whether a stage is before the boot of an operating system. Stages that are not known are not.
pub(super) fn is_in_self_test(stage: &str) -> bool {
    let boots = STAGES.iter().position(|known| *known == "OSBootStarted");
    STAGES.iter().position(|known| *known == stage).is_some_and(|at| Some(at) < boots)
}

/// The reads of the boot media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MediaReads {
    pub(super) boot_image: bool,
    pub(super) bytes: u64,
    /// The last read of the boot image, if it was read after the power-on: a BMC reads media itself when they are inserted.
    pub(super) last: Option<Time>,
    /// Since when this controller serves the media: before that nothing could be read.
    pub(super) served_since: Option<Time>,
    /// The length of the boot image in bytes.
    pub(super) of: u64,
}

/// One observation of a machine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Observation {
    pub(super) at: Time,
    /// `None` when the BMC did not respond.
    pub(super) host: Option<HostStatus>,
    pub(super) reads: MediaReads,
}

/// The state that is kept between observations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CompletionWatch {
    /// The time at which the host was powered on.
    pub(super) since: Time,
    /// The time after power-on in which no sign counts.
    pub(super) minimum: Duration,
    /// The last host status, with the time of its observation.
    pub(super) last: Option<(Time, HostStatus)>,
}

/// The observation that proves the end of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CompletionSign {
    /// The host is off, or its power state changed.
    PowerChange,
    /// `LastResetTime` is newer.
    Reset,
    /// `BootProgress` started again.
    BootProgress,
    /// The payload of the media was read, then nothing for ten minutes.
    MediaSilent,
}

impl CompletionSign {
    /// Describes the sign as the end of a sentence.
    pub(super) fn describe(&self) -> &'static str {
        match self {
            Self::PowerChange => "its power state changed",
            Self::Reset => "it was restarted: its LastResetTime is newer",
            Self::BootProgress => "it was restarted: its BootProgress started again",
            Self::MediaSilent => "the payload of the media was read, and then nothing for ten minutes",
        }
    }
}

impl CompletionWatch {
    /// Returns the sign that the installation is finished, if this observation holds one.
    pub(super) fn evaluate(&self, observation: &Observation) -> Option<CompletionSign> {
        let counts_from = self.since.plus(self.minimum);
        if observation.at < counts_from {
            return None;
        }
        let seen = observation.host.as_ref().and_then(|now| {
            if now.power == PowerState::Off {
                return Some(CompletionSign::PowerChange);
            }
            let before = self.last.as_ref().filter(|(at, _)| *at >= counts_from).map(|(_, host)| host)?;
            change(before, now)
        });
        seen.or_else(|| silent(observation).then_some(CompletionSign::MediaSilent))
    }

    /// Makes this observation the baseline of the next one.
    #[must_use]
    pub(super) fn with_baseline(self, observation: &Observation) -> Self {
        match &observation.host {
            Some(host) => Self { last: Some((observation.at, host.clone())), ..self },
            None => self,
        }
    }
}

fn change(before: &HostStatus, now: &HostStatus) -> Option<CompletionSign> {
    let known = |state: PowerState| !matches!(state, PowerState::Unknown);
    if known(before.power) && known(now.power) && before.power != now.power {
        return Some(CompletionSign::PowerChange);
    }
    if newer(before.last_reset.as_deref(), now.last_reset.as_deref()) {
        return Some(CompletionSign::Reset);
    }
    let stage = |host: &HostStatus| STAGES.iter().position(|name| Some(*name) == host.boot_state.as_deref());
    let (was, is) = (stage(before)?, stage(now)?);
    let again =
        is < was || (is == was && newer(before.boot_state_at.as_deref(), now.boot_state_at.as_deref()));
    again.then_some(CompletionSign::BootProgress)
}

/// Whether one time of the BMC is later than another by at least [`JITTER`]. A time that cannot be parsed proves nothing.
fn newer(before: Option<&str>, now: Option<&str>) -> bool {
    let parse = |text: Option<&str>| text.and_then(|text| text.parse::<Timestamp>().ok());
    match (parse(before), parse(now)) {
        (Some(before), Some(now)) => Time::from_timestamp(now).since(Time::from_timestamp(before)) >= JITTER,
        _ => false,
    }
}

fn silent(observation: &Observation) -> bool {
    let reads = &observation.reads;
    let payload = reads.boot_image && reads.bytes >= (reads.of / PAYLOAD).max(1);
    // A machine whose medium was away for a while is not silent: it could not read.
    let since = reads.last.map(|last| reads.served_since.map_or(last, |served| last.max(served)));
    payload && since.is_some_and(|since| observation.at.since(since) >= SILENCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMUM: Duration = Duration::from_secs(600);

    fn time(seconds: u64) -> Time {
        "2026-11-20T08:00:00Z".parse::<Time>().unwrap().plus(Duration::from_secs(seconds))
    }

    /// `"On 100 OSRunning@7"`: power, LastResetTime in seconds, stage and its time; `-` where the BMC shows none.
    fn host(text: &str) -> Option<HostStatus> {
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

    /// Evaluates observations (seconds since power-on, status) in order; returns the first sign and its time.
    fn watched(observations: &[(u64, &str)], reads: MediaReads) -> Option<(u64, CompletionSign)> {
        let mut watch = CompletionWatch { since: time(0), minimum: MINIMUM, last: None };
        for (at, text) in observations {
            let observation = Observation { at: time(*at), host: host(text), reads };
            if let Some(sign) = watch.evaluate(&observation) {
                return Some((*at, sign));
            }
            watch = watch.with_baseline(&observation);
        }
        None
    }

    #[test]
    fn signs_count_after_the_minimum_time_and_a_host_that_stays_on_is_no_sign() {
        type Row<'a> = (&'a str, &'a [(u64, &'a str)], Option<(u64, CompletionSign)>);
        let rows: &[Row<'_>] = &[
            (
                "on all the time",
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
                Some((900, CompletionSign::Reset)),
            ),
            ("a restart around the minimum", &[(580, "On 1 -"), (620, "On 610 -"), (660, "On 610 -")], None),
            (
                "observed before and after the BMC was unreachable",
                &[(620, "On 1 -"), (660, ""), (1500, ""), (1530, "On 700 -")],
                Some((1530, CompletionSign::Reset)),
            ),
            ("an older time after a reset of the BMC", &[(620, "On 500 -"), (650, "On 10 -")], None),
            (
                "a time computed in every response",
                &[(620, "On 500 -"), (650, "On 501 -"), (680, "On 500 -")],
                None,
            ),
            ("a time where there was none", &[(620, "On - -"), (650, "On 640 -")], None),
            ("off", &[(60, "On 1 -"), (700, "Off 1 -")], Some((700, CompletionSign::PowerChange))),
            ("off too early", &[(60, "Off 1 -"), (300, "On 1 -"), (700, "On 1 -"), (730, "On 1 -")], None),
            (
                "on its way up",
                &[(620, "On 1 -"), (650, "PoweringOn 1 -")],
                Some((650, CompletionSign::PowerChange)),
            ),
            ("an unknown power state", &[(620, "On 1 -"), (650, "? 1 -"), (680, "On 1 -")], None),
            ("progress goes on", &[(620, "On 1 OSBootStarted@5"), (650, "On 1 OSRunning@640")], None),
            (
                "progress starts again",
                &[(620, "On - OSRunning"), (650, "On - PCIResourceConfigStarted")],
                Some((650, CompletionSign::BootProgress)),
            ),
            (
                "the same stage again",
                &[(620, "On - OSBootStarted@5"), (650, "On - OSBootStarted@645")],
                Some((650, CompletionSign::BootProgress)),
            ),
            ("an OEM stage", &[(620, "On - OSRunning"), (650, "On - OEM")], None),
            ("stage None", &[(620, "On - OSRunning"), (650, "On - None")], None),
            ("a silent BMC", &[(620, ""), (90_000, "")], None),
        ];
        for (name, observations, expected) in rows {
            assert_eq!(&watched(observations, MediaReads::default()), expected, "{name}");
        }
    }

    #[test]
    fn media_count_when_the_payload_was_read_and_then_nothing() {
        let read = |boot_image, bytes, last: u64| MediaReads {
            boot_image,
            bytes,
            last: Some(time(last)),
            of: 1000,
            ..MediaReads::default()
        };
        let observations: &[(u64, &str)] = &[(599, "On 1 -"), (620, "On 1 -"), (900, ""), (1100, "On 1 -")];
        assert_eq!(watched(observations, read(true, 800, 400)), Some((1100, CompletionSign::MediaSilent)));
        assert_eq!(
            watched(&[(900, ""), (1000, "")], read(true, 800, 400)),
            Some((1000, CompletionSign::MediaSilent))
        );
        assert_eq!(watched(observations, read(true, 800, 501)), None, "not silent for ten minutes yet");
        assert_eq!(watched(observations, read(true, 200, 400)), None, "no more than a boot loader reads");
        assert_eq!(watched(observations, read(false, 800, 400)), None, "a BMC that copied the image");
        let before = MediaReads { last: None, ..read(true, 800, 0) };
        assert_eq!(watched(observations, before), None, "nothing since power-on");
        let restarted = MediaReads { served_since: Some(time(501)), ..read(true, 800, 400) };
        assert_eq!(watched(observations, restarted), None, "until then no controller served the media");
        let early = &[(300, "On 1 -"), (599, "On 1 -")];
        assert_eq!(watched(early, read(true, 1000, 1)), None, "the minimum time holds for media too");
    }
}
