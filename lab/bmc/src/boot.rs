//! The boot override and the firmware's choice of the boot source.
//!
//! ```text
//!   Enabled    Target          medium in the slots              boots        afterwards
//!   Disabled   any             any                              Disk         unchanged
//!   Once       Cd, Usb, UsbCd  bootable, found by the search    Media        Disabled / None
//!   Once       Cd, Usb, UsbCd  none or not bootable             Disk         Disabled / None
//!   Once       others          any                              Disk         Disabled / None
//!   Continuous as Once                                          as Once      unchanged
//! ```
//!
//! With `mode_falls_to` a consumed override also shows that mode. A host with `uefi_only` boots no medium in another mode.
//!
//! Reference: DSP0268 ComputerSystem `Boot`.

use super::{
    config::{BootPolicy, BootSearch},
    types::{MediaKind, OverrideEnabled},
};

/// The override as the BMC holds it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OverrideState {
    /// `BootSourceOverrideTarget`.
    pub target: String,
    /// `BootSourceOverrideEnabled`.
    pub enabled: OverrideEnabled,
    /// `BootSourceOverrideMode`.
    pub mode: String,
}

impl OverrideState {
    pub(super) fn none(mode: &str) -> Self {
        Self { target: "None".to_owned(), enabled: OverrideEnabled::Disabled, mode: mode.to_owned() }
    }

    /// Applies a boot to the override: `Once` becomes `Disabled`.
    pub(super) fn consume(&mut self, policy: &BootPolicy) {
        if self.enabled == OverrideEnabled::Once {
            self.enabled = OverrideEnabled::Disabled;
            "None".clone_into(&mut self.target);
            if let Some(mode) = &policy.mode_falls_to {
                self.mode.clone_from(mode);
            }
        }
    }
}

/// One slot as the firmware sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) kind: MediaKind,
    /// Whether the medium is bootable; `None` when the slot is empty.
    pub(super) bootable: Option<bool>,
}

/// The index of the slot that the host boots from; `None` for the disk.
pub(super) fn choose(boot: &OverrideState, slots: &[Candidate], policy: &BootPolicy) -> Option<usize> {
    if boot.enabled == OverrideEnabled::Disabled || (policy.uefi_only && boot.mode != "UEFI") {
        return None;
    }
    let kinds = policy.media_targets.get(&boot.target);
    let wanted = |kind: MediaKind| kinds.is_some_and(|kinds| kinds.contains(&kind));
    first(slots, wanted, policy)
}

/// The slot that the firmware finds among those of the wanted kinds; `None` if it is not bootable.
pub(super) fn first(
    slots: &[Candidate],
    wanted: impl Fn(MediaKind) -> bool,
    policy: &BootPolicy,
) -> Option<usize> {
    let mut inserted = slots
        .iter()
        .enumerate()
        .filter(|(_, slot)| wanted(slot.kind))
        .filter_map(|(index, slot)| Some((index, slot.bootable?)));
    match policy.search {
        BootSearch::FirstBootable => inserted.find(|(_, bootable)| *bootable).map(|(index, _)| index),
        BootSearch::FirstInserted => {
            inserted.next().filter(|(_, bootable)| *bootable).map(|(index, _)| index)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Option<bool> = None;

    fn slots(states: [(MediaKind, Option<bool>); 3]) -> Vec<Candidate> {
        states.into_iter().map(|(kind, bootable)| Candidate { kind, bootable }).collect()
    }

    fn boot(target: &str, enabled: OverrideEnabled) -> OverrideState {
        OverrideState { target: target.to_owned(), enabled, mode: "UEFI".to_owned() }
    }

    #[test]
    fn the_first_cd_is_used_even_if_only_a_later_one_is_bootable() {
        let policy = BootPolicy::default();
        let task_first =
            slots([(MediaKind::Cd, Some(false)), (MediaKind::Cd, Some(true)), (MediaKind::Usb, EMPTY)]);
        let once = boot("Cd", OverrideEnabled::Once);
        assert_eq!(choose(&once, &task_first, &policy), None);
        let lenient = BootPolicy { search: BootSearch::FirstBootable, ..policy };
        assert_eq!(choose(&once, &task_first, &lenient), Some(1));
    }

    #[test]
    fn an_empty_slot_is_passed_over_and_other_kinds_do_not_count() {
        let policy = BootPolicy::default();
        let state =
            slots([(MediaKind::Cd, EMPTY), (MediaKind::Cd, Some(true)), (MediaKind::Usb, Some(true))]);
        assert_eq!(choose(&boot("Cd", OverrideEnabled::Once), &state, &policy), Some(1));
        assert_eq!(choose(&boot("Usb", OverrideEnabled::Continuous), &state, &policy), Some(2));
        assert_eq!(choose(&boot("Hdd", OverrideEnabled::Once), &state, &policy), None);
        assert_eq!(choose(&boot("Cd", OverrideEnabled::Disabled), &state, &policy), None);
    }

    #[test]
    fn once_is_consumed_and_continuous_stays() {
        let mut once = boot("Cd", OverrideEnabled::Once);
        let policy = BootPolicy::default();
        once.consume(&policy);
        assert_eq!(once, OverrideState::none("UEFI"));
        let mut continuous = boot("Cd", OverrideEnabled::Continuous);
        continuous.consume(&policy);
        assert_eq!(continuous, boot("Cd", OverrideEnabled::Continuous));
    }
}
