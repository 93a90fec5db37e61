//! The names of the steps. A step reads the output of an earlier one by its name, so each name is written once.

use model::StepName;

/// Checks what can be checked before the machine is changed.
pub(super) const VALIDATE: &StepName = &StepName::new("validate");
/// Plans the task image and issues the grants.
pub(super) const ISO_BUILD: &StepName = &StepName::new("iso.build");
/// Verifies the machine and chooses the slot plan.
pub(super) const DISCOVER: &StepName = &StepName::new("redfish.discover");
/// Forces the host off.
pub(super) const POWER_OFF: &StepName = &StepName::new("redfish.power-off");
/// Empties the slots of the plan.
pub(super) const EJECT: &StepName = &StepName::new("redfish.eject");
/// Inserts the boot image.
pub(super) const MOUNT_MAINTENANCE: &StepName = &StepName::new("redfish.mount.maintenance");
/// Inserts the task image.
pub(super) const MOUNT_TASK: &StepName = &StepName::new("redfish.mount.task");
/// Sets the one-time boot.
pub(super) const BOOT_OVERRIDE: &StepName = &StepName::new("redfish.boot-override");
/// Powers the host on.
pub(super) const POWER_ON: &StepName = &StepName::new("redfish.power-on");
/// Waits for the installation report.
pub(super) const AWAIT_REPORT: &StepName = &StepName::new("webhook.wait");
/// Waits for a completion sign.
pub(super) const AWAIT_COMPLETION: &StepName = &StepName::new("redfish.poll");
/// Waits for the end of a rescue session.
pub(super) const AWAIT_SESSION: &StepName = &StepName::new("rescue.wait");
/// Powers the host off at the end of the job.
pub(super) const CLEANUP_POWER_OFF: &StepName = &StepName::new("cleanup.power-off");
/// Empties the slots that the job filled.
pub(super) const CLEANUP_EJECT: &StepName = &StepName::new("cleanup.eject");
/// Clears a one-time boot that was not consumed.
pub(super) const CLEANUP_BOOT_OVERRIDE: &StepName = &StepName::new("cleanup.boot-override");
/// Powers the host on at the end of the job.
pub(super) const CLEANUP_POWER_ON: &StepName = &StepName::new("cleanup.power-on");
/// Ends the grants and records pending cleanup.
pub(super) const CLEANUP_GRANT: &StepName = &StepName::new("cleanup.grant");

/// The steps that insert media.
pub(super) const MOUNTS: [&StepName; 2] = [MOUNT_MAINTENANCE, MOUNT_TASK];

/// The steps that wait while the machine installs; a job has one of them.
pub(super) const INSTALLING: [&StepName; 2] = [AWAIT_REPORT, AWAIT_COMPLETION];
