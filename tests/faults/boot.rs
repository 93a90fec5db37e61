//! Boot overrides that are refused, changed or ignored; systems that are not the host.

use lab_bmc::{BootDemands, Effect, ExtraSystem, Fault, OverrideEnabled, SettingsObject, When};
use serde_json::json;

use super::{SYSTEM, get, says, until_the_deadline};

fn beside(id: &str, first: bool, boot: bool, status_while_off: Option<u16>) -> ExtraSystem {
    ExtraSystem { id: id.to_owned(), first, boot, status_while_off }
}

gets_over! {
    a_bios_that_is_busy_for_a_while(twin) {
        let busy = says(400, "iLO.2.14.UnableToModifyDuringSystemPOST");
        twin.faults.push(Fault::once(When::PatchBoot, busy).times(3));
    }
    a_bios_that_is_busy_for_longer_than_tries_would_last(twin) {
        let busy = says(400, "iLO.2.14.UnableToModifyDuringSystemPOST");
        twin.faults.push(Fault::once(When::PatchBoot, busy).times(20));
    }
    a_bios_that_is_in_the_wrong_state_for_a_while(twin) {
        let busy = says(409, "iLO.2.14.InvalidOperationForSystemState");
        twin.faults.push(Fault::once(When::PatchBoot, busy).times(2));
    }
    an_override_that_stays_for_good(twin) {
        twin.boot.stored_as = Some(OverrideEnabled::Continuous);
    }
    an_override_that_is_forgotten_twice(twin) {
        twin.faults.push(Fault::once(When::PatchBoot, Effect::AcceptButIgnore).times(2));
    }
    an_override_that_wants_everything_at_once(twin) {
        twin.boot.demands = BootDemands::AllOrIgnored;
    }
    an_override_that_wants_to_be_enabled_each_time(twin) {
        twin.boot.demands = BootDemands::EnabledOrIgnored;
    }
    an_override_that_wants_its_target_each_time(twin) {
        twin.boot.demands = BootDemands::Target;
    }
    an_override_in_a_settings_resource(twin) {
        twin.boot.settings = Some(SettingsObject { id: "Settings".to_owned(), also_direct: false });
    }
    an_override_whose_values_are_not_listed(twin) {
        twin.boot.shows_allowable = false;
    }
    an_override_without_a_mode(twin) {
        twin.boot.modes = Vec::new();
    }
    an_override_whose_answer_is_lost(twin) {
        twin.faults.push(Fault::once(When::PatchBoot, Effect::ApplyButDrop));
    }
    a_mode_that_falls_back_to_legacy(twin) {
        twin.boot.mode_falls_to = Some("Legacy".to_owned());
    }
    a_boot_override_of_null_for_a_while(twin) {
        twin.faults.push(Fault::once(get(SYSTEM), Effect::Lie(json!({ "Boot": { "BootSourceOverrideTarget": null } }))));
    }
    a_second_system_that_fails_while_the_host_is_off(twin) {
        twin.service.extra_systems = vec![beside("HGX", true, false, Some(500))];
    }
    a_second_system_without_boot(twin) {
        twin.service.extra_systems = vec![beside("Baseboard", true, false, None)];
    }
    a_second_system_that_looks_like_a_host(twin) {
        twin.service.extra_systems = vec![beside("Tray", true, true, None), beside("Tray2", false, true, None)];
    }
}

fails! {
    an_override_that_is_always_forgotten(twin) {
        twin.faults.push(Fault::always(When::PatchBoot, Effect::AcceptButIgnore));
    } => "redfish.boot-override", "deadline", [];
    an_override_that_is_always_refused(twin) {
        twin.faults.push(Fault::always(When::PatchBoot, says(400, "Base.1.18.PropertyNotWritable")));
    } => "redfish.boot-override", "bmc_refused", ["PropertyNotWritable"];
    an_override_that_knows_no_medium(twin) {
        twin.boot.targets = vec!["None".to_owned(), "Pxe".to_owned(), "Hdd".to_owned()];
    } => "redfish.boot-override", "unsupported", ["none of the wanted boot targets"];
    a_bios_that_stays_busy(twin) {
        twin.faults.push(Fault::always(When::PatchBoot, says(400, "iLO.2.14.UnableToModifyDuringSystemPOST")));
    } => "redfish.boot-override", "deadline", ["UnableToModifyDuringSystemPOST"];
}

/// It is shown as asked for, and the firmware boots the disk all the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_override_the_firmware_ignores_ends_the_job_at_its_deadline() {
    let played = until_the_deadline(|twin| twin.boot.media_targets.clear()).await;
    assert!(played.machine.boots_from_disk > 0, "{:?}", played.machine);
    played.failed("webhook.wait", "deadline", &["no report"]).await;
}
