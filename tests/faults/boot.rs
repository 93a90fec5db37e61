//! Boot overrides that are refused, changed or ignored; systems that are not the host.

use lab_bmc::{BootDemands, ExtraSystem, Fault, FaultEffect, FaultTrigger, OverrideEnabled, SettingsObject};
use serde_json::json;

use super::{SYSTEM, get, says, until_the_deadline};

fn beside(id: &str, first: bool, boot: bool, status_while_off: Option<u16>) -> ExtraSystem {
    ExtraSystem { id: id.to_owned(), first, boot, status_while_off }
}

recovers! {
    a_bios_that_is_busy_for_a_while(bmc) {
        let busy = says(400, "iLO.2.14.UnableToModifyDuringSystemPOST");
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, busy).times(3));
    }
    a_bios_that_is_busy_for_longer_than_the_attempts_last(bmc) {
        let busy = says(400, "iLO.2.14.UnableToModifyDuringSystemPOST");
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, busy).times(20));
    }
    a_bios_that_is_in_the_wrong_state_for_a_while(bmc) {
        let busy = says(409, "iLO.2.14.InvalidOperationForSystemState");
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, busy).times(2));
    }
    an_override_that_stays_for_good(bmc) {
        bmc.boot.stored_as = Some(OverrideEnabled::Continuous);
    }
    an_override_that_is_dropped_twice(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, FaultEffect::AcceptButIgnore).times(2));
    }
    an_override_that_wants_everything_at_once(bmc) {
        bmc.boot.demands = BootDemands::AllOrIgnored;
    }
    an_override_that_wants_to_be_enabled_each_time(bmc) {
        bmc.boot.demands = BootDemands::EnabledOrIgnored;
    }
    an_override_that_wants_its_target_each_time(bmc) {
        bmc.boot.demands = BootDemands::Target;
    }
    an_override_in_a_settings_resource(bmc) {
        bmc.boot.settings = Some(SettingsObject { id: "Settings".to_owned(), also_direct: false });
    }
    an_override_whose_values_are_not_listed(bmc) {
        bmc.boot.shows_allowable = false;
    }
    an_override_without_a_mode(bmc) {
        bmc.boot.modes = Vec::new();
    }
    an_override_whose_response_is_lost(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, FaultEffect::ApplyButDrop));
    }
    a_mode_that_falls_back_to_legacy(bmc) {
        bmc.boot.mode_falls_to = Some("Legacy".to_owned());
    }
    a_boot_override_of_null_for_a_while(bmc) {
        bmc.faults.push(Fault::once(get(SYSTEM), FaultEffect::Lie(json!({ "Boot": { "BootSourceOverrideTarget": null } }))));
    }
    a_second_system_that_fails_while_the_host_is_off(bmc) {
        bmc.service.extra_systems = vec![beside("HGX", true, false, Some(500))];
    }
    a_second_system_without_boot(bmc) {
        bmc.service.extra_systems = vec![beside("Baseboard", true, false, None)];
    }
    a_second_system_that_looks_like_a_host(bmc) {
        bmc.service.extra_systems = vec![beside("Tray", true, true, None), beside("Tray2", false, true, None)];
    }
}

fails! {
    an_override_that_is_always_dropped(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::PatchBoot, FaultEffect::AcceptButIgnore));
    } => "redfish.boot-override", "deadline", [];
    an_override_that_is_always_refused(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::PatchBoot, says(400, "Base.1.18.PropertyNotWritable")));
    } => "redfish.boot-override", "bmc_refused", ["PropertyNotWritable"];
    an_override_that_knows_no_medium(bmc) {
        bmc.boot.targets = vec!["None".to_owned(), "Pxe".to_owned(), "Hdd".to_owned()];
    } => "redfish.boot-override", "unsupported", ["none of the wanted boot targets"];
    a_bios_that_stays_busy(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::PatchBoot, says(400, "iLO.2.14.UnableToModifyDuringSystemPOST")));
    } => "redfish.boot-override", "deadline", ["UnableToModifyDuringSystemPOST"];
}

/// The BMC shows the override as set, and the firmware boots the disk.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_the_firmware_ignores_ends_the_job_at_its_deadline() {
    let ended = until_the_deadline(|bmc| bmc.boot.media_targets.clear()).await;
    assert!(ended.machine.boots_from_disk > 0, "{:?}", ended.machine);
    ended.assert_failed("webhook.wait", "deadline", &["no report"]).await;
}
