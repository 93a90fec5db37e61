//! Everything that changes about a twin, and the picture of it that others may wait for.
//!
//! ```text
//!   State ─┬─ machine    power, the operating system that runs            (power.rs)
//!          ├─ boot       the override                                     (boot.rs)
//!          ├─ slots      empty ──insert──► busy (being read) ──► attaching ──► inserted ──eject──► empty
//!          ├─ sessions   tokens, lock-out                                 (auth.rs)
//!          ├─ faults     rules in force                                   (faults.rs)
//!          ├─ tasks      what goes on in the background                   (tasks.rs)
//!          └─ journal    what happened                                    (journal.rs)
//! ```
//!
//! Invariants: one mutex around all of it, never held across an await; `revision` of the system and of each slot
//! grows with every visible change, and the ETag is made of it.

use std::{collections::VecDeque, time::Duration};

use super::{
    auth::Sessions,
    boot::{BootOverride, Candidate},
    config::{BootPolicy, MediaKind, SimBmcConfig},
    etag,
    faults::Faults,
    host::{BootSource, InsertedMedia, MediaUrl},
    journal::{Change, Journal, JournalItem, Operation},
    media_reader::MediaFacts,
    power::{Machine, Power},
    tasks::Tasks,
};

/// A medium in a slot.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) url: MediaUrl,
    pub(super) facts: MediaFacts,
    /// From this moment on, counted from the start of the twin, the slot and the host have it.
    pub(super) from: Duration,
}

/// One slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) medium: Option<Medium>,
    /// An image is being read; nothing else may happen to the slot.
    pub(super) busy: bool,
    pub(super) revision: u64,
    /// What was in it last, and since when it is gone.
    pub(super) last: Option<(MediaUrl, Duration)>,
}

impl Slot {
    /// The medium, once the slot and the host have it.
    pub(super) fn attached(&self, at: Duration) -> Option<&Medium> {
        self.medium.as_ref().filter(|medium| medium.from <= at)
    }

    /// Whether an eject is still under way: the slot shows what it had.
    pub(super) fn ejecting(&self, config: &SimBmcConfig, at: Duration) -> bool {
        let recent = |(_, gone): &(MediaUrl, Duration)| at < *gone + config.media.eject_time;
        self.medium.is_none() && self.last.as_ref().is_some_and(recent)
    }
}

/// Numbers a test wants to be exact.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: u64,
    pub(super) boots_from_media: u64,
    pub(super) boots_from_disk: u64,
    pub(super) ejected_while_running: u64,
    pub(super) logins: u64,
    pub(super) in_flight: u32,
    pub(super) max_in_flight: u32,
    pub(super) mutating: u32,
    pub(super) max_mutating: u32,
}

/// All of it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) machine: Machine,
    pub(super) boot: BootOverride,
    pub(super) slots: Vec<Slot>,
    pub(super) sessions: Sessions,
    pub(super) faults: Faults,
    pub(super) journal: Journal,
    pub(super) counters: Counters,
    pub(super) reachable: bool,
    pub(super) system_revision: u64,
    /// When the host was last powered on or restarted, counted from the start of the twin.
    pub(super) last_reset: Option<Duration>,
    /// When the last reset was accepted.
    pub(super) last_command: Option<Duration>,
    /// The changes of the power, the newest last.
    pub(super) power_log: VecDeque<(Duration, Power)>,
    pub(super) tasks: Tasks,
    /// When slots that need it were enabled, and how many there are.
    pub(super) enabled: Option<Duration>,
    pub(super) instances: usize,
    /// Host and path of an image that is not mounted yet (`CfgCD`).
    pub(super) cfg_cd: (String, String),
    /// The boot device of a vendor's own way, for the next boot.
    pub(super) next_boot: Option<NextBoot>,
    /// Grows with every new certificate.
    pub(super) certificate: u64,
}

/// What the next boot is from, whatever the override says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextBoot {
    /// The first slot of a kind.
    First(MediaKind),
    /// This slot.
    Slot(usize),
}

impl State {
    pub(super) fn new(config: &SimBmcConfig) -> Self {
        let mode = config.boot.modes.first().map_or("UEFI", String::as_str);
        Self {
            machine: Machine::new(config.starts_on),
            boot: BootOverride::none(mode),
            slots: config.slots.iter().map(|_| Slot::default()).collect(),
            sessions: Sessions::default(),
            faults: Faults::new(config.faults.clone()),
            journal: Journal::new(config.journal_capacity),
            counters: Counters::default(),
            reachable: true,
            system_revision: 1,
            last_reset: None,
            last_command: None,
            power_log: VecDeque::new(),
            tasks: Tasks::default(),
            enabled: None,
            instances: config.media.enable.as_ref().map_or(config.slots.len(), |enable| enable.instances),
            cfg_cd: Default::default(),
            next_boot: None,
            certificate: 0,
        }
    }

    /// How many slots there are now.
    pub(super) fn slots_there(&self, config: &SimBmcConfig, at: Duration) -> usize {
        let there = match (&config.media.enable, self.enabled) {
            (None, _) => true,
            (Some(enable), Some(since)) => at >= since + enable.settle,
            (Some(_), None) => false,
        };
        if there { self.instances.min(config.slots.len()) } else { 0 }
    }

    /// The power as the BMC shows it: late, and without the states it does not know.
    pub(super) fn shown_power(&self, config: &SimBmcConfig, at: Duration) -> Power {
        let policy = &config.power;
        let known = |power: &Power| policy.shows_transitions || matches!(power, Power::On | Power::Off);
        let start = if config.starts_on { Power::On } else { Power::Off };
        let mut log = self.power_log.iter().rev();
        log.find(|(when, power)| *when + policy.state_lag <= at && known(power))
            .map_or(start, |(_, power)| *power)
    }

    /// The power changed.
    pub(super) fn log_power(&mut self, at: Duration) {
        const KEPT: usize = 32;
        if self.power_log.len() == KEPT {
            self.power_log.pop_front();
        }
        self.power_log.push_back((at, self.machine.power()));
    }

    pub(super) fn changed(&mut self, at: Duration, change: Change) {
        self.journal.add(at, JournalItem::Change(change));
    }

    pub(super) fn system_etag(&self) -> String {
        etag::opaque("", self.system_revision)
    }

    pub(super) fn settings_etag(&self) -> String {
        etag::opaque("s", self.system_revision)
    }

    pub(super) fn slot_etag(&self, index: usize) -> String {
        etag::opaque("", self.slots[index].revision + 1)
    }

    /// The slots as the firmware sees them.
    pub(super) fn candidates(&self, config: &SimBmcConfig, at: Duration) -> Vec<Candidate> {
        let bootable = |kind: MediaKind, medium: &Medium, policy: &BootPolicy| match kind {
            _ if !policy.require_boot_record => true,
            MediaKind::Cd => medium.facts.el_torito,
            MediaKind::Usb => medium.facts.boot_signature,
        };
        let slots = self.slots.iter().zip(&config.slots);
        slots
            .map(|(slot, about)| Candidate {
                kind: about.kind,
                bootable: slot.attached(at).map(|medium| bootable(about.kind, medium, &config.boot)),
            })
            .collect()
    }

    /// What is in the slots, in their order.
    pub(super) fn inserted(&self, config: &SimBmcConfig, at: Duration) -> Vec<InsertedMedia> {
        let slots = self.slots.iter().zip(&config.slots);
        slots
            .filter_map(|(slot, about)| {
                let url = slot.attached(at)?.url.clone();
                Some(InsertedMedia { slot: about.id.clone(), kind: about.kind, url })
            })
            .collect()
    }

    /// A request began.
    pub(super) fn begin(&mut self, operation: Operation) {
        let counters = &mut self.counters;
        counters.requests += 1;
        counters.in_flight += 1;
        counters.max_in_flight = counters.max_in_flight.max(counters.in_flight);
        if operation.is_mutation() {
            counters.mutating += 1;
            counters.max_mutating = counters.max_mutating.max(counters.mutating);
        }
    }

    /// A request ended.
    pub(super) fn end(&mut self, operation: Operation) {
        self.counters.in_flight = self.counters.in_flight.saturating_sub(1);
        if operation.is_mutation() {
            self.counters.mutating = self.counters.mutating.saturating_sub(1);
        }
    }

    pub(super) fn snapshot(&self, config: &SimBmcConfig) -> SimBmcSnapshot {
        let slots = self.slots.iter().zip(&config.slots);
        SimBmcSnapshot {
            power: self.machine.power(),
            boot: self.boot.clone(),
            slots: slots
                .map(|(slot, about)| SlotSnapshot {
                    id: about.id.clone(),
                    kind: about.kind,
                    image: slot.medium.as_ref().map(|medium| medium.url.clone()),
                    facts: slot.medium.as_ref().map(|medium| medium.facts.clone()),
                    busy: slot.busy,
                })
                .collect(),
            running: self.machine.running.as_ref().map(|running| running.source.clone()),
            generation: self.machine.generation,
            power_ons: self.machine.power_ons,
            boots_from_media: self.counters.boots_from_media,
            boots_from_disk: self.counters.boots_from_disk,
            ejected_while_running: self.counters.ejected_while_running,
            logins: self.counters.logins,
            open_sessions: self.sessions.count(),
            requests: self.counters.requests,
            in_flight: self.counters.in_flight,
            max_in_flight: self.counters.max_in_flight,
            max_mutating_in_flight: self.counters.max_mutating,
        }
    }
}

/// One slot at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SlotSnapshot {
    /// Its id.
    pub id: String,
    /// What it is for the host.
    pub kind: MediaKind,
    /// What it holds; `None` when empty.
    pub image: Option<MediaUrl>,
    /// What that turned out to be.
    pub facts: Option<MediaFacts>,
    /// Whether an image is being read for it now.
    pub busy: bool,
}

/// A twin at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SimBmcSnapshot {
    /// The power.
    pub power: Power,
    /// The boot override.
    pub boot: BootOverride,
    /// The slots in their order.
    pub slots: Vec<SlotSnapshot>,
    /// What the operating system that runs now was booted from.
    pub running: Option<BootSource>,
    /// How often an operating system was started.
    pub generation: u64,
    /// How often the power came on, restarts included.
    pub power_ons: u64,
    /// How many of the boots were from media.
    pub boots_from_media: u64,
    /// How many were from the disk.
    pub boots_from_disk: u64,
    /// How often a medium was taken from an operating system that was booted with it.
    pub ejected_while_running: u64,
    /// How many sessions were ever opened.
    pub logins: u64,
    /// Sessions open now.
    pub open_sessions: usize,
    /// Requests so far.
    pub requests: u64,
    /// Requests under way now.
    pub in_flight: u32,
    /// The most requests at a time so far.
    pub max_in_flight: u32,
    /// The most mutating requests at a time so far.
    pub max_mutating_in_flight: u32,
}

impl SimBmcSnapshot {
    /// The slot with this id.
    pub fn slot(&self, id: &str) -> Option<&SlotSnapshot> {
        self.slots.iter().find(|slot| slot.id == id)
    }
}
