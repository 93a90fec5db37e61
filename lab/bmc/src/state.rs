//! The state of a simulated BMC, and the snapshot of it that tests wait for.
//!
//! ```text
//!   State ─┬─ machine    power, the operating system that runs            (power.rs)
//!          ├─ boot       the override                                     (boot.rs)
//!          ├─ bios       settings of the BIOS, the boot order             (bios.rs)
//!          ├─ slots      empty ──insert──► busy (being read) ──► attaching ──► inserted ──eject──► empty
//!          ├─ sessions   tokens, lock-out                                 (auth.rs)
//!          ├─ faults     faults in force                                  (fault_list.rs)
//!          ├─ tasks      asynchronous operations                          (tasks.rs)
//!          ├─ updates    installed firmware, the running update           (update/)
//!          └─ journal    requests and changes                             (journal.rs)
//! ```
//!
//! Invariants: one mutex guards the state and is never held across an await; `revision` of the system and of each slot
//! grows with every visible change, and the ETag is made of it.

use std::{collections::VecDeque, time::Duration};

use super::{
    auth::Sessions,
    bios::Bios,
    boot::{Candidate, OverrideState},
    config::{BootPolicy, SimBmcConfig},
    etag,
    fault_list::Faults,
    host::{BootSource, InsertedMedia, MediaUrl},
    journal::{Journal, JournalItem, RequestKind, StateChange},
    media_reader::MediaFacts,
    power::PowerMachine,
    tasks::Tasks,
    types::{MediaKind, Power},
    update::Updates,
};

/// A medium in a slot.
#[derive(Debug)]
pub(super) struct Medium {
    pub(super) url: MediaUrl,
    pub(super) facts: MediaFacts,
    /// The time since the start of the simulated BMC at which slot and host have the medium.
    pub(super) from: Duration,
}

/// One slot.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) medium: Option<Medium>,
    /// An image is being read; the slot takes neither insert nor eject.
    pub(super) busy: bool,
    pub(super) revision: u64,
    /// The last medium and the time of its eject.
    pub(super) last: Option<(MediaUrl, Duration)>,
}

impl Slot {
    /// The medium, if the slot and the host have it.
    pub(super) fn attached(&self, at: Duration) -> Option<&Medium> {
        self.medium.as_ref().filter(|medium| medium.from <= at)
    }

    /// Whether an eject is still in progress: the slot shows the ejected medium.
    pub(super) fn ejecting(&self, config: &SimBmcConfig, at: Duration) -> bool {
        let recent = |(_, gone): &(MediaUrl, Duration)| at < *gone + config.media.eject_time;
        self.medium.is_none() && self.last.as_ref().is_some_and(recent)
    }
}

/// The least time between the beginnings of a BMC, as it shows them.
const RESTART: Duration = Duration::from_secs(120);

/// Counters that tests compare exactly.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: u64,
    pub(super) boots_from_media: u64,
    pub(super) boots_from_disk: u64,
    pub(super) ejected_while_running: u64,
    pub(super) logins: u64,
    pub(super) manager_resets: u64,
    /// Restarts of the BMC, with those after its own update.
    pub(super) bmc_restarts: u64,
    pub(super) in_flight: u32,
    pub(super) max_in_flight: u32,
    pub(super) mutating: u32,
    pub(super) max_mutating: u32,
}

/// The state of a simulated BMC.
#[derive(Debug)]
pub(super) struct State {
    pub(super) machine: PowerMachine,
    pub(super) boot: OverrideState,
    pub(super) bios: Bios,
    pub(super) slots: Vec<Slot>,
    pub(super) sessions: Sessions,
    pub(super) faults: Faults,
    pub(super) journal: Journal,
    pub(super) counters: Counters,
    pub(super) reachable: bool,
    pub(super) system_revision: u64,
    /// The last power-on or restart of the host, as time since the start of the simulated BMC.
    pub(super) last_reset: Option<Duration>,
    /// The time of the last accepted reset.
    pub(super) last_command: Option<Duration>,
    /// The power changes, newest last.
    pub(super) power_log: VecDeque<(Duration, Power)>,
    pub(super) tasks: Tasks,
    /// Installed firmware and the running update.
    pub(super) updates: Updates,
    /// The time at which the slots were enabled, for vendors that need it.
    pub(super) enabled: Option<Duration>,
    pub(super) instances: usize,
    /// Host and path of an image that is not mounted yet (`CfgCD`).
    pub(super) cfg_cd: (String, String),
    /// The boot device for the next boot, set by an OEM request.
    pub(super) next_boot: Option<NextBoot>,
    /// Revision of the certificate; grows with every new one.
    pub(super) certificate: u64,
    /// The last restart of the BMC, as time since the start of the simulated BMC; `None` when it was an hour before.
    pub(super) manager_reset: Option<Duration>,
}

/// The source of the next boot; it takes precedence over the boot override.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextBoot {
    /// The first slot of a kind.
    First(MediaKind),
    /// The next boot starts from this slot.
    Slot(usize),
}

impl State {
    /// Notes a restart of the BMC. It is later than the one before by the minutes that a restart takes, which tests leave out.
    pub(super) fn restart_manager(&mut self, at: Duration) {
        let earliest = self.manager_reset.map(|before| before + RESTART);
        self.manager_reset = Some(earliest.map_or(at, |earliest| at.max(earliest)));
    }

    pub(super) fn new(config: &SimBmcConfig) -> Self {
        let mode = config.boot.modes.first().map_or("UEFI", String::as_str);
        Self {
            machine: PowerMachine::new(config.starts_on),
            boot: OverrideState::none(mode),
            bios: Bios::new(&config.bios),
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
            updates: Updates::new(config),
            enabled: None,
            instances: config.media.enable.as_ref().map_or(config.slots.len(), |enable| enable.instances),
            cfg_cd: Default::default(),
            next_boot: None,
            certificate: 0,
            manager_reset: None,
        }
    }

    /// The number of slots that exist now.
    pub(super) fn slots_there(&self, config: &SimBmcConfig, at: Duration) -> usize {
        let there = match (&config.media.enable, self.enabled) {
            (None, _) => true,
            (Some(enable), Some(since)) => at >= since + enable.settle,
            (Some(_), None) => false,
        };
        if there { self.instances.min(config.slots.len()) } else { 0 }
    }

    /// The power state as the BMC shows it: with its delay, and without the states it does not have.
    pub(super) fn shown_power(&self, config: &SimBmcConfig, at: Duration) -> Power {
        let policy = &config.power;
        let known = |power: &Power| policy.shows_transitions || matches!(power, Power::On | Power::Off);
        let start = if config.starts_on { Power::On } else { Power::Off };
        let mut log = self.power_log.iter().rev();
        log.find(|(when, power)| *when + policy.state_lag <= at && known(power))
            .map_or(start, |(_, power)| *power)
    }

    /// Records a change of the power state.
    pub(super) fn log_power(&mut self, at: Duration) {
        const KEPT: usize = 32;
        if self.power_log.len() == KEPT {
            self.power_log.pop_front();
        }
        self.power_log.push_back((at, self.machine.power()));
    }

    pub(super) fn changed(&mut self, at: Duration, change: StateChange) {
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
                bootable: slot
                    .attached(at)
                    .filter(|_| !config.media.is_detached())
                    .map(|medium| bootable(about.kind, medium, &config.boot)),
            })
            .collect()
    }

    /// The attached media in the order of the slots.
    pub(super) fn inserted(&self, config: &SimBmcConfig, at: Duration) -> Vec<InsertedMedia> {
        let slots = self.slots.iter().zip(&config.slots);
        slots
            .filter_map(|(slot, about)| {
                let url = slot.attached(at).filter(|_| !config.media.is_detached())?.url.clone();
                Some(InsertedMedia { slot: about.id.clone(), kind: about.kind, url })
            })
            .collect()
    }

    /// Counts the start of a request.
    pub(super) fn begin(&mut self, operation: RequestKind) {
        let counters = &mut self.counters;
        counters.requests += 1;
        counters.in_flight += 1;
        counters.max_in_flight = counters.max_in_flight.max(counters.in_flight);
        if operation.is_mutation() {
            counters.mutating += 1;
            counters.max_mutating = counters.max_mutating.max(counters.mutating);
        }
    }

    /// Counts the end of a request.
    pub(super) fn end(&mut self, operation: RequestKind) {
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
            images: self.updates.images,
            updates_started: self.updates.started,
            bios_writes: self.bios.writes,
            uploads_cut: self.updates.cut,
            logins: self.counters.logins,
            open_sessions: self.sessions.count(),
            requests: self.counters.requests,
            in_flight: self.counters.in_flight,
            max_in_flight: self.counters.max_in_flight,
            max_mutating_in_flight: self.counters.max_mutating,
        }
    }
}

/// A slot at one point in time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SlotSnapshot {
    /// The id of the slot.
    pub id: String,
    /// The kind of drive that the host sees.
    pub kind: MediaKind,
    /// The URL of the image in the slot; `None` when the slot is empty.
    pub image: Option<MediaUrl>,
    /// The facts that the BMC found in the image.
    pub facts: Option<MediaFacts>,
    /// Whether the image is being read now.
    pub busy: bool,
}

/// A simulated BMC at one point in time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SimBmcSnapshot {
    /// The power state of the host.
    pub power: Power,
    /// The boot override.
    pub boot: OverrideState,
    /// The slots in their order.
    pub slots: Vec<SlotSnapshot>,
    /// The boot source of the running operating system.
    pub running: Option<BootSource>,
    /// The number of operating systems that were started.
    pub generation: u64,
    /// The number of power-ons of the host, restarts included.
    pub power_ons: u64,
    /// The number of boots from virtual media.
    pub boots_from_media: u64,
    /// The number of boots from the disk.
    pub boots_from_disk: u64,
    /// The number of media that were removed while an operating system booted with them was running.
    pub ejected_while_running: u64,
    /// The number of complete firmware images that arrived, accepted or not.
    pub images: u64,
    /// The number of updates that were started.
    pub updates_started: u64,
    /// The number of accepted writes of BIOS settings or of the boot order.
    pub bios_writes: u64,
    /// The number of uploads that broke off before their end.
    pub uploads_cut: u64,
    /// The number of sessions that were opened.
    pub logins: u64,
    /// Sessions open now.
    pub open_sessions: usize,
    /// Requests so far.
    pub requests: u64,
    /// Requests in flight now.
    pub in_flight: u32,
    /// The highest number of requests in flight so far.
    pub max_in_flight: u32,
    /// The highest number of mutations in flight so far.
    pub max_mutating_in_flight: u32,
}

impl SimBmcSnapshot {
    /// The slot with this id.
    pub fn slot(&self, id: &str) -> Option<&SlotSnapshot> {
        self.slots.iter().find(|slot| slot.id == id)
    }
}
