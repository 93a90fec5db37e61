//! Signs that the machine has booted from the media: its reports, and the reads of the images.

use super::super::former_disk::WRITTEN;
use super::super::media_report;
use super::super::outputs::{Built, Discovered, Validated};
use super::super::reachable::REACHABLE;
use super::super::report::{PROGRESS, SIGNAL};
use super::super::second_way::PoweredOn;
use super::super::services::Services;
use super::{class, names};
use bmc::{failure, output_of};
use engine::{StepContext, StepError};
use media::GrantStoreUnavailable;
use model::{GrantReads, ReadMark, StepName};

/// Fraction (1/4) of the boot image that a BMC may have read ahead before the power-on. After more of it the host may boot
/// from the copy in the BMC, and a boot shows no read.
const READ_AHEAD: u64 = 4;

/// Returns whether the machine has sent a report.
pub(super) fn has_reported(context: &StepContext) -> bool {
    let names = [SIGNAL, PROGRESS, WRITTEN, REACHABLE, media_report::STEP];
    context.snapshot.signals.iter().any(|signal| names.contains(&signal.name.as_str()))
}

/// Returns the mark of the reads of all images of the job until now. The BMC itself reads images when they are inserted.
pub(super) async fn mark_media(
    step: &StepName,
    services: &Services,
    context: &StepContext,
    found: &Discovered,
) -> Result<ReadMark, StepError> {
    let built: Built = output_of(step, context, names::ISO_BUILD)?;
    let grants = &services.grants;
    let boot = grants.recorded_bytes(boot_images(&built, found)).await.map_err(|why| unread(step, why))?;
    let task = grants.recorded_bytes(task_image(&built)).await.map_err(|why| unread(step, why))?;
    Ok(ReadMark { boot, task, counting_since: grants.counting_since() })
}

/// Returns whether an image of the job was read after `mark`.
pub(super) async fn media_read_since(
    step: &StepName,
    services: &Services,
    context: &StepContext,
    found: &Discovered,
    mark: ReadMark,
) -> Result<bool, StepError> {
    if boot_image_read_since(step, services, context, found, mark).await? {
        return Ok(true);
    }
    let built: Built = output_of(step, context, names::ISO_BUILD)?;
    let task = services.grants.bytes_read(task_image(&built)).await.map_err(|why| unread(step, why))?;
    Ok(task > mark.task)
}

/// Returns whether the boot image of the job was read after `mark`.
pub(super) async fn boot_image_read_since(
    step: &StepName,
    services: &Services,
    context: &StepContext,
    found: &Discovered,
    mark: ReadMark,
) -> Result<bool, StepError> {
    let built: Built = output_of(step, context, names::ISO_BUILD)?;
    let boot =
        services.grants.bytes_read(boot_images(&built, found)).await.map_err(|why| unread(step, why))?;
    Ok(boot > mark.boot)
}

/// Returns whether the machine may have booted from the media after a power-on, as far as a decision needs it that powers the
/// host off: also when the controller was restarted in between, in whatever way.
pub(super) async fn may_have_booted(
    step: &StepName,
    services: &Services,
    context: &StepContext,
    found: &Discovered,
    powered_on: PoweredOn,
) -> Result<bool, StepError> {
    let counted = |mark: ReadMark| mark.counting_since == services.grants.counting_since();
    if !powered_on.media_before.is_some_and(counted) {
        return Ok(true);
    }
    booted_or_unknown(step, services, context, found, powered_on).await
}

/// Returns whether the machine has booted from the media after a power-on, or may have done so unseen: it has reported, an image
/// was read, the BMC holds a copy, the reads of a killed controller are missing, or the reads before the power-on are unknown.
pub(super) async fn booted_or_unknown(
    step: &StepName,
    services: &Services,
    context: &StepContext,
    found: &Discovered,
    powered_on: PoweredOn,
) -> Result<bool, StepError> {
    if has_reported(context) || services.grants.misses_reads_after(powered_on.at) {
        return Ok(true);
    }
    let Some(mark) = powered_on.media_before else { return Ok(true) };
    Ok(is_copied(step, services, context, found).await?
        || media_read_since(step, services, context, found, mark).await?)
}

/// Returns whether the BMC has read so much of the boot image that the host may boot from a copy of it.
pub(super) async fn is_copied(
    step: &StepName,
    services: &Services,
    context: &StepContext,
    found: &Discovered,
) -> Result<bool, StepError> {
    let validated: Validated = output_of(step, context, names::VALIDATE)?;
    let built: Built = output_of(step, context, names::ISO_BUILD)?;
    for grant in boot_grants(&built, found) {
        if reads_of(step, services, grant).await?.bytes >= (validated.boot_len / READ_AHEAD).max(1) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the grants under which the boot image of a job was or is inserted, with those of the task image of later plans.
pub(super) fn boot_grants<'a>(built: &'a Built, found: &'a Discovered) -> impl Iterator<Item = &'a String> {
    let spliced = found.spliced.as_ref().map(|spliced| &spliced.grant);
    std::iter::once(&built.boot_grant).chain(spliced).chain(&found.grants)
}

fn boot_images<'a>(built: &'a Built, found: &'a Discovered) -> impl Iterator<Item = &'a str> {
    boot_grants(built, found).map(String::as_str)
}

fn task_image(built: &Built) -> impl Iterator<Item = &str> {
    std::iter::once(built.task_grant.as_str())
}

async fn reads_of(step: &StepName, services: &Services, grant: &str) -> Result<GrantReads, StepError> {
    services.grants.reads_of(grant).await.map_err(|why| unread(step, why))
}

fn unread(step: &StepName, why: GrantStoreUnavailable) -> StepError {
    let next = "see /readyz for what is wrong with the controller";
    StepError::retry(failure(class::TRANSIENT, step, why.reason, next))
}
