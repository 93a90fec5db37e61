//! The rules of claims and leases as a small state machine: one run of two steps, two controllers.

/// How long a lease lasts, in ticks.
pub(super) const TTL: u8 = 3;
/// How long after the expiry of a lease no other worker may take the run over.
pub(super) const GRACE: u8 = 1;
/// How long a parked run sleeps.
pub(super) const PAUSE: u8 = 1;
/// How long a worker waits for the response to a request.
const DEADLINE: u8 = 1;
/// How long a request may take until it has its effect, with or without a response.
const IN_FLIGHT: u8 = DEADLINE + GRACE;
/// The bounds of the search: the number of claims and of crashes.
pub(super) const EPOCHS: u8 = 3;
const CRASHES: u8 = 1;
/// The number of the finish step, after the forward step 0, and the number of the end.
pub(super) const FINISH: u8 = 1;
pub(super) const ENDED: u8 = 2;

/// An omitted rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mutant {
    None,
    /// A run is taken over at the expiry of its lease, without a grace period.
    NoGrace,
    /// A claim does not increment the epoch.
    SameEpoch,
    /// A commit compares neither epoch nor revision.
    CommitsAnyway,
    /// A request is sent however soon the lease ends.
    SendsAnyway,
    /// A worker that parks the run sets no due time.
    NeverDue,
    /// A step that timed out is repeated without giving the lease back.
    RepeatsUnobserved,
    /// A worker does not read a cancel.
    IgnoresCancel,
}

/// The row of the run in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) step: u8,
    /// Whether the intent of the step is durable.
    pub(super) intent: bool,
    pub(super) owner: Option<u8>,
    pub(super) epoch: u8,
    /// The ticks until the run is due.
    pub(super) next: Option<u8>,
    pub(super) cancel: bool,
}

/// The progress of a worker in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The worker has read the row.
    Fresh,
    /// The worker waits this many ticks for the response, then observes until the request can no longer have its effect.
    Sent(u8),
    /// The worker has observed the effect.
    Acted,
    /// The worker has observed that the request was lost.
    Refuted,
}

/// A worker's claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) epoch: u8,
    /// The step and intent that the worker has read.
    pub(super) step: u8,
    pub(super) intent: bool,
    cancel: bool,
    /// Whether another writer has changed the row since the worker read it.
    moved: bool,
    /// How long the lease lasts by the clock of the worker.
    ends: u8,
    pub(super) stage: Stage,
    /// Whether a cancel was requested before the claim.
    warned: bool,
}

impl Claim {
    /// Whether the worker has read a cancel that ends its next step.
    fn cancelled(self) -> bool {
        self.cancel && self.step < FINISH
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Worker {
    Down,
    Idle,
    Busy(Claim),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Request {
    epoch: u8,
    step: u8,
    /// The ticks within which the request has its effect or is lost.
    left: u8,
    /// Whether the sender was killed and its successor knows that.
    orphan: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) row: Row,
    pub(super) workers: [Worker; 2],
    air: Vec<Request>,
    outside: [bool; 2],
    /// For each step, one bit for each epoch that sent its effect.
    sent: [u8; 2],
    /// The latest epoch that has observed the outside world.
    looked: u8,
    crashes: u8,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Action {
    Tick,
    Claim(usize),
    /// Writes the intent, or the change of a cancel instead.
    RecordIntent(usize),
    /// Observes that the effect exists already.
    Find(usize),
    Send(usize),
    /// Stops, because the lease ends too soon for a request.
    Stop(usize),
    Land(usize),
    Lose(usize),
    Respond(usize),
    TimeOut(usize),
    Finish(usize),
    Park(usize),
    Checkpoint(usize),
    Crash(usize),
    Start(usize),
    Cancel,
}

impl State {
    pub(super) fn start() -> Self {
        Self {
            row: Row { step: 0, intent: false, owner: None, epoch: 0, next: Some(0), cancel: false },
            workers: [Worker::Idle; 2],
            air: Vec::new(),
            outside: [false; 2],
            sent: [0; 2],
            looked: 0,
            crashes: 0,
        }
    }

    pub(super) fn claim_of(&self, who: usize) -> Option<Claim> {
        match self.workers[who] {
            Worker::Busy(claim) => Some(claim),
            Worker::Down | Worker::Idle => None,
        }
    }

    /// The candidates for the next action. [`State::after`] excludes those that are not possible.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.row.step == ENDED {
            return actions;
        }
        if self.air.iter().all(|request| request.left > 0) {
            actions.push(Action::Tick);
        }
        for index in 0..self.air.len() {
            actions.extend([Action::Land(index), Action::Lose(index)]);
        }
        if !self.row.cancel && self.row.step < FINISH {
            actions.push(Action::Cancel);
        }
        for who in 0..2 {
            match self.workers[who] {
                Worker::Down => actions.push(Action::Start(who)),
                Worker::Idle => actions.push(Action::Claim(who)),
                Worker::Busy(claim) => {
                    match claim.stage {
                        Stage::Fresh if !claim.intent || claim.cancelled() => {
                            actions.push(Action::RecordIntent(who));
                        }
                        Stage::Fresh => {
                            actions.extend([Action::Find(who), Action::Send(who), Action::Stop(who)]);
                            actions.extend([Action::Park(who), Action::Checkpoint(who)]);
                        }
                        Stage::Sent(_) => actions.extend([Action::Respond(who), Action::TimeOut(who)]),
                        Stage::Acted => actions.push(Action::Finish(who)),
                        Stage::Refuted => actions.push(Action::Park(who)),
                    }
                    if self.crashes < CRASHES {
                        actions.push(Action::Crash(who));
                    }
                }
            }
        }
        actions
    }

    /// The state after an action; `None` when it is not possible here.
    pub(super) fn after(&self, action: Action, mutant: Mutant) -> Option<Self> {
        let mut next = self.clone();
        match action {
            Action::Tick => next.tick(),
            Action::Claim(who) => next.claim(who, mutant)?,
            Action::RecordIntent(who) => next.record_intent(who, mutant),
            Action::Cancel => next.cancel(),
            Action::Checkpoint(who) => next.checkpoint(who),
            Action::Park(who) => next.commit(who, mutant, |row| {
                row.owner = None;
                row.next = (mutant != Mutant::NeverDue).then_some(PAUSE);
            }),
            Action::Finish(who) => next.commit(who, mutant, |row| {
                row.step += 1;
                // The commit that ends this step writes the next intent.
                row.intent = row.step < ENDED;
                if row.step == ENDED {
                    row.owner = None;
                    row.next = None;
                }
            }),
            Action::Land(index) => next.outside[next.air.remove(index).step as usize] = true,
            Action::Lose(index) => drop(next.air.remove(index)),
            Action::Crash(who) => {
                next.crashes += 1;
                next.workers[who] = Worker::Down;
            }
            Action::Start(who) => next.begin(who),
            Action::Find(who)
            | Action::Send(who)
            | Action::Stop(who)
            | Action::Respond(who)
            | Action::TimeOut(who) => next.act(who, action, mutant)?,
        }
        Some(next)
    }

    fn tick(&mut self) {
        let less = |ticks: &mut u8| *ticks = ticks.saturating_sub(1);
        self.row.next.iter_mut().for_each(less);
        for worker in &mut self.workers {
            if let Worker::Busy(claim) = worker {
                less(&mut claim.ends);
                if let Stage::Sent(left) = &mut claim.stage {
                    less(left);
                }
            }
        }
        self.air.iter_mut().for_each(|request| less(&mut request.left));
    }

    fn moved(&mut self, by: Option<usize>) {
        for (who, worker) in self.workers.iter_mut().enumerate() {
            if let Worker::Busy(claim) = worker
                && Some(who) != by
            {
                claim.moved = true;
            }
        }
    }

    fn claim(&mut self, who: usize, mutant: Mutant) -> Option<()> {
        if self.row.next != Some(0) || self.row.epoch == EPOCHS {
            return None;
        }
        if mutant != Mutant::SameEpoch || self.row.epoch == 0 {
            self.row.epoch += 1;
        }
        self.row.owner = Some(who as u8);
        self.row.next = Some(TTL + if mutant == Mutant::NoGrace { 0 } else { GRACE });
        let Row { step, intent, cancel, epoch, .. } = self.row;
        let (stage, warned) = (Stage::Fresh, cancel);
        let cancel = cancel && mutant != Mutant::IgnoresCancel;
        self.workers[who] =
            Worker::Busy(Claim { epoch, step, intent, cancel, moved: false, ends: TTL, stage, warned });
        self.moved(Some(who));
        Some(())
    }

    /// Commits a change of a worker completely or not at all.
    fn commit(&mut self, who: usize, mutant: Mutant, change: impl FnOnce(&mut Row)) {
        let Worker::Busy(claim) = self.workers[who] else { return };
        let anyway = mutant == Mutant::CommitsAnyway;
        if self.row.epoch != claim.epoch && !anyway {
            self.workers[who] = Worker::Idle;
            return;
        }
        if !claim.moved || anyway {
            change(&mut self.row);
            self.moved(Some(who));
            if self.row.owner.is_none() {
                self.workers[who] = Worker::Idle;
                return;
            }
            self.row.next = Some(TTL + GRACE);
        }
        let Row { step, intent, cancel, .. } = self.row;
        let ends = if claim.moved && !anyway { claim.ends } else { TTL };
        self.workers[who] =
            Worker::Busy(Claim { step, intent, cancel, moved: false, ends, stage: Stage::Fresh, ..claim });
    }

    fn record_intent(&mut self, who: usize, mutant: Mutant) {
        let Worker::Busy(claim) = self.workers[who] else { return };
        let cancelled = claim.cancelled();
        self.commit(who, mutant, |row| {
            if cancelled {
                row.step = FINISH;
            }
            row.intent = true;
        });
    }

    /// A cancel ends the forward stage of a parked run at once. A worker reads it at its next commit.
    fn cancel(&mut self) {
        self.row.cancel = true;
        if self.row.owner.is_none() {
            self.row.step = FINISH;
            self.row.intent = false;
            self.row.next = Some(0);
        }
        self.moved(None);
    }

    /// A checkpoint: it compares epoch and owner only.
    fn checkpoint(&mut self, who: usize) {
        let Worker::Busy(claim) = &mut self.workers[who] else { return };
        if self.row.epoch == claim.epoch && self.row.owner == Some(who as u8) {
            self.row.next = Some(TTL + GRACE);
            claim.ends = TTL;
        } else {
            self.workers[who] = Worker::Idle;
        }
    }

    /// A controller starts. When it gains the file lock, its predecessor is dead and the predecessor's runs are due at once.
    fn begin(&mut self, who: usize) {
        self.workers[who] = Worker::Idle;
        if self.workers[1 - who] == Worker::Down {
            // A run parked in a step is due too: its step observes once after a start.
            if self.row.owner.is_some() || self.row.intent {
                self.row.next = Some(0);
            }
            self.air.iter_mut().for_each(|request| request.orphan = true);
        }
    }

    /// The actions of a worker on the outside world; the row does not change.
    fn act(&mut self, who: usize, action: Action, mutant: Mutant) -> Option<()> {
        let Worker::Busy(claim) = self.workers[who] else { return None };
        let holds = self.outside[claim.step as usize];
        let allowed = claim.ends > DEADLINE || mutant == Mutant::SendsAnyway;
        let in_flight =
            self.air.iter().any(|request| (request.epoch, request.step) == (claim.epoch, claim.step));
        let stage = match (action, claim.stage) {
            (Action::Find(_), _) if holds => Stage::Acted,
            (Action::Send(_), _) if !holds && allowed => {
                self.air.push(Request {
                    epoch: claim.epoch,
                    step: claim.step,
                    left: IN_FLIGHT,
                    orphan: false,
                });
                self.sent[claim.step as usize] |= 1 << claim.epoch;
                Stage::Sent(DEADLINE)
            }
            (Action::Stop(_), _) if !holds && !allowed => {
                self.workers[who] = Worker::Idle;
                return Some(());
            }
            (Action::Respond(_), Stage::Sent(_)) if holds && !in_flight => Stage::Acted,
            (Action::TimeOut(_), Stage::Sent(0)) if !in_flight => match holds {
                true => Stage::Acted,
                false if mutant == Mutant::RepeatsUnobserved => Stage::Fresh,
                false => Stage::Refuted,
            },
            _ => return None,
        };
        self.looked = self.looked.max(claim.epoch);
        self.workers[who] = Worker::Busy(Claim { stage, ..claim });
        Some(())
    }

    /// The invariant that an action breaks.
    pub(super) fn broken(&self, action: Action, next: &Self) -> Option<&'static str> {
        if next.row.step != ENDED && next.row.next.is_none() {
            return Some("a run that has not ended has no due time");
        }
        if next.row.step < self.row.step || next.row.step > self.row.step + 1 {
            return Some("a step was skipped or taken back");
        }
        match action {
            Action::Send(who) => {
                let claim = self.claim_of(who)?;
                if self.sent[claim.step as usize] & (1 << claim.epoch) != 0 {
                    return Some("two effects under one epoch");
                }
                (claim.warned && claim.step < FINISH)
                    .then_some("a forward effect by a claim made after a cancel")
            }
            Action::Land(index) => {
                let request = self.air[index];
                (request.epoch < self.looked && !request.orphan)
                    .then_some("an effect landed after a later owner had observed")
            }
            _ => None,
        }
    }
}
