//! `bios.verify`: reads the values until all of them are in force three times. The word of the BMC is no proof.
//!
//! ```text
//!   all in force    three reads, one after the other            ─► done
//!   one is not      thirty minutes after the restart            ─► failure `settings_unchanged`: each value, as it is and as wanted
//!                   before                                      ─► wait
//!   no response     see `absent`
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::absent::{self, AWAY_LIMIT, Absence, Absent};
use super::super::look::Look;
use super::super::{UpkeepServices, names, waits};
use super::plan::{Planned, SettingItem, clipped, plain};
use super::target::Seen;
use bmc::{failure, output_of, wait_for_bmc};
use engine::{StepContext, StepError, StepReport};
use model::mutant::{self, Mutant};
use model::{NewEvent, StepName};

const STEP: &StepName = names::BIOS_VERIFY;
/// Reads with all values, one after the other, that prove them. A BMC that restarts shows old and new ones in turn.
const GOOD_READS: u32 = 3;
/// The delay between two reads.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// How long a BMC may show old values after the restart. A host may restart once more by itself to apply them.
const SHOWN_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The output of the step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Verified {
    /// Good reads so far.
    good: u32,
    absent: Absent,
}

pub(super) async fn run(services: &UpkeepServices, context: &StepContext) -> Result<StepReport, StepError> {
    let plan: Planned = output_of(STEP, context, names::BIOS_PLAN)?;
    if !plan.items.iter().any(SettingItem::is_open) {
        let summary = format!("nothing to change: {}", plan.summary);
        let output = json!({ "summary": summary, "items": plan.items });
        return Ok(StepReport::done().with_output(output).event(NewEvent::info("bios.current", summary)));
    }
    if mutant::active(Mutant::TrustsTask) {
        return Ok(StepReport::done());
    }
    let mut verified: Verified = context.own_output().unwrap_or_default();
    let seen = match absent::connect((STEP, names::BIOS_IDENTIFY), services, context).await? {
        Ok((bmc, found)) => {
            let seen = Seen::read(&bmc, &found.discovery, &plan).await;
            bmc.release_idle();
            match seen {
                Ok(seen) => Ok(seen),
                Err(error) => Err(Absence::of(STEP, Look::of(error))?),
            }
        }
        Err(absence) => Err(absence),
    };
    let seen = match seen {
        Ok(seen) => seen,
        Err(absence) => {
            verified.good = 0;
            let mut away = verified.absent.clone();
            let what = "the settings of the BIOS are verified";
            let parts = (STEP, services, context);
            return away
                .report(parts, absence, (what, AWAY_LIMIT), |absent| json!(Verified { absent, ..verified }))
                .await;
        }
    };
    verified.absent.over(context.now());
    if seen.is_in_force() {
        verified.good += 1;
        return Ok(good(&plan, verified));
    }
    verified.good = 0;
    not_yet(context, &seen, verified)
}

fn good(plan: &Planned, verified: Verified) -> StepReport {
    if verified.good < GOOD_READS {
        let detail = format!("every value is in force; they are read {GOOD_READS} times");
        let mut wait = wait_for_bmc(&waits::SETTINGS_VALUES, SHOWN_WITHIN * 2, detail);
        wait.poll = Some(READ_INTERVAL);
        return StepReport::wait(wait).with_output(json!(verified));
    }
    let open = plan.items.iter().filter(|item| item.is_open());
    let what: Vec<String> =
        open.map(|item| format!("{} {} (was {})", item.name, plain(&item.then), plain(&item.now))).collect();
    let summary = format!("in force: {}", clipped(&what));
    let output = json!({ "summary": summary, "items": plan.items });
    let event = NewEvent::info("bios.verified", format!("{summary}; read {GOOD_READS} times"));
    StepReport::done().with_output(output).event(event)
}

/// The report of a read with another value.
fn not_yet(context: &StepContext, seen: &Seen, verified: Verified) -> Result<StepReport, StepError> {
    let names: Vec<String> = seen
        .open
        .iter()
        .map(|(name, now, then)| format!("{name} is {}, not {}", plain(now), plain(then)))
        .collect();
    let names = clipped(&names);
    let restarted = context
        .snapshot
        .records_of(names::BIOS_HOST_ON)
        .max_by_key(|record| record.at)
        .and_then(|record| record.ended_at)
        .unwrap_or(context.record.started_at);
    if context.now().since(restarted) < SHOWN_WITHIN {
        let mut wait = wait_for_bmc(&waits::SETTINGS_VALUES, SHOWN_WITHIN * 2, names);
        wait.poll = Some(READ_INTERVAL);
        return Ok(StepReport::wait(wait).with_output(json!(verified)));
    }
    let minutes = SHOWN_WITHIN.as_secs() / 60;
    let summary = match seen.pending {
        0 => format!(
            "the BMC accepted the settings, and {minutes} minutes after the restart they are not in force: {names}"
        ),
        pending => format!(
            "{pending} settings still wait for a restart of the host {minutes} minutes after it was restarted: {names}"
        ),
    };
    let next = "look at the screen of the host: its setup may ask for something, or the value may depend on another setting; \
                `shoal server bios show SERIAL` shows what is in force";
    Err(StepError::fail(failure(names::class::SETTINGS_UNCHANGED, STEP, summary, next))
        .with_output(json!(verified)))
}
