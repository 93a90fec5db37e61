//! Every kind of condition changes nothing on a machine that is not the one of its server.

use lab_bmc::{Fault, FaultEffect, FaultTrigger};
use serde_json::json;

use firmware::Component;
use model::Outcome;
use upkeep::{ConditionKind, UpkeepAction};

use crate::firmware::{order, vendor};
use crate::kit::Bench;

#[tokio::test(flavor = "multi_thread")]
async fn no_kind_of_condition_changes_another_machine() {
    let of = |kind, parameters| UpkeepAction::of(kind, parameters).unwrap();
    let actions = [
        of(ConditionKind::PowerCycleHard, json!({})),
        of(ConditionKind::PowerCycleSoft, json!({})),
        of(ConditionKind::BmcReset, json!({})),
        of(ConditionKind::InventoryOob, json!({})),
        of(ConditionKind::BiosApply, json!({ "attributes": { "BootMode": "Uefi" } })),
        order(&vendor("generic"), &[Component::Bios]).1,
    ];
    assert_eq!(actions.len(), ConditionKind::all().len(), "a new kind belongs into this test");
    for action in actions {
        let kind = action.kind();
        let files = order(&vendor("generic"), &[Component::Bios]).0;
        let bench = Bench::with_files(vendor("generic"), files).await;
        let other = FaultEffect::WrongSerial("ANOTHER-1".to_owned());
        bench.sim_bmc.inject(Fault::always(FaultTrigger::Anything, other));
        let run = bench.order(action).await;
        let ended = bench.run_to_end(&bench.worker("w1"), run).await;
        let stored = bench.stored(run).await;
        assert_eq!(ended.outcome, Some(Outcome::Failed), "{kind}: {stored}");
        let summary = ended.failure.unwrap().summary;
        assert!(summary.contains("ANOTHER-1"), "{kind}: {summary}");
        assert_eq!(bench.sim_bmc.mutations(), [], "{kind}: {stored}");
    }
}
