//! Everything that changes about a twin, and the picture of it that others may wait for.
//!
//! ```text
//!   State ─┬─ machine    power, the operating system that runs            (power.rs)
//!          ├─ boot       the override                                     (boot.rs)
//!          ├─ slots      empty ──insert──► busy (being read) ──► inserted ──eject──► empty
//!          ├─ sessions   tokens, lock-out                                 (auth.rs)
//!          ├─ faults     rules in force                                   (faults.rs)
//!          └─ journal    what happened                                    (journal.rs)
//! ```
//!
//! Invariants: one mutex around all of it, never held across an await; `revision` of the system and of each slot
//! grows with every visible change, and the ETag is made of it.

use std::{collections::VecDeque, time::Duration};

use super::{
    auth::Sessions,
    boot::{BootOverride, Candidate},
    config::{BootPolicy, MediaKind, TwinConfig},
    faults::Faults,
    host::{BootSource, InsertedMedia, MediaUrl},
    journal::{Change, Happening, Journal, Operation},
    media_reader::MediaFacts,
    power::{Machine, Power},
};

/// A medium in a slot.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) url: MediaUrl,
    pub(super) facts: MediaFacts,
}

/// One slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) medium: Option<Medium>,
    /// An image is being read; nothing else may happen to the slot.
    pub(super) busy: bool,
    pub(super) revision: u64,
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
    /// The power states that are shown or not yet, with the times since which they are true, oldest first.
    powers: VecDeque<(Duration, Power)>,
}

impl State {
    pub(super) fn new(config: &TwinConfig) -> Self {
        let machine = Machine::new(config.starts_on);
        let mode = config.boot.modes.first().map_or("UEFI", String::as_str);
        Self {
            powers: VecDeque::from([(Duration::ZERO, machine.power())]),
            machine,
            boot: BootOverride::none(mode),
            slots: config.slots.iter().map(|_| Slot::default()).collect(),
            sessions: Sessions::default(),
            faults: Faults::new(config.faults.clone()),
            journal: Journal::new(config.journal_capacity),
            counters: Counters::default(),
            reachable: true,
            system_revision: 1,
            last_reset: None,
        }
    }

    pub(super) fn changed(&mut self, at: Duration, change: Change) {
        self.journal.add(at, Happening::Change(change));
    }

    /// The power has changed; forgets what a BMC that is late by `late` does not show any more.
    pub(super) fn power_changed(&mut self, at: Duration, power: Power, late: Duration) {
        self.changed(at, Change::Power(power));
        self.powers.push_back((at, power));
        while self.powers.get(1).is_some_and(|(since, _)| *since + late <= at) {
            self.powers.pop_front();
        }
    }

    /// The power as a BMC shows it that is late by `late`.
    pub(super) fn shown_power(&self, at: Duration, late: Duration) -> Power {
        let shown = self.powers.iter().rfind(|(since, _)| *since + late <= at).or(self.powers.front());
        shown.map_or(self.machine.power(), |(_, power)| *power)
    }

    pub(super) fn system_etag(&self) -> String {
        format!("\"{:x}\"", self.system_revision)
    }

    pub(super) fn slot_etag(&self, index: usize) -> String {
        format!("\"{:x}\"", self.slots[index].revision + 1)
    }

    /// The slots as the firmware sees them.
    pub(super) fn candidates(&self, config: &TwinConfig) -> Vec<Candidate> {
        let bootable = |kind: MediaKind, medium: &Medium, policy: &BootPolicy| match kind {
            _ if !policy.require_boot_record => true,
            MediaKind::Cd => medium.facts.el_torito,
            MediaKind::Usb => medium.facts.boot_signature,
        };
        let slots = self.slots.iter().zip(&config.slots);
        slots
            .map(|(slot, about)| Candidate {
                kind: about.kind,
                bootable: slot.medium.as_ref().map(|medium| bootable(about.kind, medium, &config.boot)),
            })
            .collect()
    }

    /// What is in the slots, in their order.
    pub(super) fn inserted(&self, config: &TwinConfig) -> Vec<InsertedMedia> {
        let slots = self.slots.iter().zip(&config.slots);
        slots
            .filter_map(|(slot, about)| {
                let url = slot.medium.as_ref()?.url.clone();
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

    pub(super) fn snapshot(&self, config: &TwinConfig) -> TwinSnapshot {
        let slots = self.slots.iter().zip(&config.slots);
        TwinSnapshot {
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
pub struct TwinSnapshot {
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

impl TwinSnapshot {
    /// The slot with this id.
    pub fn slot(&self, id: &str) -> Option<&SlotSnapshot> {
        self.slots.iter().find(|slot| slot.id == id)
    }
}
