//! `bios.settle`: the first step of every end. Settings that were sent and are not in force cannot be taken back, so the end
//! says what the next restart of the host changes. It needs no BMC to succeed.

use super::super::absent;
use super::super::{UpkeepServices, names};
use super::plan::{Planned, clipped, plain};
use super::restart::{has_sent, is_done};
use super::target::Seen;
use engine::{StepContext, StepError, StepReport};
use model::{NewEvent, StepName};

const STEP: &StepName = names::BIOS_SETTLE;

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let Some(plan) = context.find_output::<Planned>(names::BIOS_PLAN) else {
        return Ok(StepReport::skipped());
    };
    if is_done(context, names::BIOS_VERIFY) || !has_sent(context) {
        return Ok(StepReport::skipped());
    }
    let seen = match absent::connect((STEP, names::BIOS_IDENTIFY), services, context).await? {
        Ok((bmc, found)) => Seen::read(&bmc, &found.discovery, &plan).await.ok(),
        Err(_) => None,
    };
    let message = match seen {
        Some(seen) if seen.pending + seen.unseen == 0 => {
            return Ok(StepReport::done());
        }
        Some(seen) => {
            let open: Vec<String> =
                seen.open.iter().map(|(name, _, then)| format!("{name} {}", plain(then))).collect();
            let open = clipped(&open);
            match seen.pending {
                0 => format!(
                    "the BMC does not show what it stored; the next restart of the host may put into force: {open}"
                ),
                _ => format!("the next restart of the host puts into force what was stored: {open}"),
            }
        }
        None => "the BMC does not respond; the next restart of the host may change settings of the BIOS"
            .to_owned(),
    };
    Ok(StepReport::done().event(NewEvent::warn("bios.left-pending", message)))
}
