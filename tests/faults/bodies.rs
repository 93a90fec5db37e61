//! Wrong responses: bodies, errors, tasks, Retry-After.

use std::time::Duration;

use lab_bmc::{
    ErrorShape, Fault, FaultEffect, FaultTrigger, MonitorAfter, SimBmcConfig, Success, TaskPolicy,
};
use serde_json::json;

use super::{SERIAL, SYSTEM, get, responds, run_another_job, says, scene};

fn page(status: u16) -> FaultEffect {
    let body = "<!DOCTYPE html><html><form action=\"/login\">Log in</form></html>".to_owned();
    FaultEffect::Raw { status, content_type: "text/html".to_owned(), body }
}

fn asked(effect: FaultEffect) -> Fault {
    Fault::once(get(SYSTEM), effect)
}

fn refused_in(bmc: &mut SimBmcConfig, shape: ErrorShape) {
    bmc.errors.shape = shape;
    bmc.faults.push(Fault::always(FaultTrigger::Insert, says(400, "Contoso.1.0.ImageRefused")));
}

fn busy_in(bmc: &mut SimBmcConfig, shape: ErrorShape) {
    bmc.errors.shape = shape;
    bmc.faults.push(Fault::once(FaultTrigger::Insert, says(400, "IDRAC.2.8.SYS518")));
}

/// Makes inserts tasks with this policy.
fn by_task(bmc: &mut SimBmcConfig, insert: Success, tasks: TaskPolicy) {
    bmc.responses.insert = insert;
    bmc.tasks = tasks;
}

recovers! {
    a_resource_that_is_missing_for_a_while(bmc) {
        bmc.faults.push(Fault::once(get("/CD2"), says(404, "Base.1.18.ResourceMissingAtURI")).after(1));
    }
    a_system_that_is_missing_for_a_while(bmc) {
        bmc.faults.push(asked(says(404, "Base.1.18.ResourceMissingAtURI")).times(2));
    }
    a_collection_that_is_empty_for_a_while(bmc) {
        bmc.faults.push(Fault::once(get("/Systems"), FaultEffect::Lie(json!({ "Members": [] }))));
    }
    a_collection_of_null_for_a_while(bmc) {
        bmc.faults.push(Fault::once(get("/Systems"), FaultEffect::Lie(json!({ "Members": null }))));
    }
    retry_after_with_a_date(bmc) {
        let (date, until) = ("Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:01 GMT");
        let wait = responds(429, &[("date", date), ("retry-after", until)], "");
        bmc.faults.push(asked(wait.clone()));
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, wait));
    }
    retry_after_with_an_invalid_value(bmc) {
        let wait = responds(429, &[("retry-after", "soon")], "");
        bmc.faults.push(asked(wait.clone()));
        bmc.faults.push(Fault::once(FaultTrigger::Insert, wait));
    }
    a_web_page_with_503(bmc) {
        bmc.faults.push(asked(page(503)));
    }
    a_web_page_with_503_for_a_change(bmc) {
        bmc.faults.push(Fault::once(FaultTrigger::PatchBoot, page(503)));
    }
    a_login_page_in_place_of_a_resource(bmc) {
        bmc.faults.push(asked(page(200)));
    }
    an_empty_response(bmc) {
        let body = String::new();
        bmc.faults.push(asked(FaultEffect::Raw { status: 200, content_type: "application/json".to_owned(), body }));
    }
    no_content_for_a_resource(bmc) {
        bmc.faults.push(asked(responds(204, &[], "")));
    }
    a_body_that_ends_too_soon(bmc) {
        bmc.faults.push(asked(FaultEffect::Truncate(100)));
    }
    a_body_of_another_type(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Read, FaultEffect::ContentType("text/plain".to_owned())));
    }
    a_body_with_a_byte_order_mark(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Read, FaultEffect::ByteOrderMark));
    }
    a_body_in_chunks(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Read, FaultEffect::Chunked));
    }
    a_body_with_duplicate_keys(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Read, FaultEffect::DuplicateKey));
    }
    a_body_that_nests_too_deep(bmc) {
        bmc.faults.push(asked(FaultEffect::Deep(1000)));
    }
    a_response_that_is_an_error_with_status_200(bmc) {
        let body = json!({ "error": { "code": "Base.1.18.GeneralError", "message": "not now" } }).to_string();
        bmc.faults.push(asked(FaultEffect::Raw { status: 200, content_type: "application/json".to_owned(), body }));
    }
    a_response_that_is_a_list(bmc) {
        let (content_type, body) = ("application/json".to_owned(), "[1]".to_owned());
        bmc.faults.push(asked(FaultEffect::Raw { status: 200, content_type, body }));
    }
    a_busy_bmc_is_understood_without_a_list_of_messages(bmc) {
        busy_in(bmc, ErrorShape::InfoIsObject);
    }
    a_busy_bmc_is_understood_without_a_code(bmc) {
        busy_in(bmc, ErrorShape::NoCode);
    }
    a_busy_bmc_is_understood_without_an_envelope(bmc) {
        busy_in(bmc, ErrorShape::NoEnvelope);
    }
    a_task_named_by_its_location(bmc) {
        by_task(bmc, Success::TaskLocation, TaskPolicy::default());
    }
    a_task_named_by_the_body_only(bmc) {
        by_task(bmc, Success::TaskBody, TaskPolicy::default());
    }
    a_task_without_location_or_body(bmc) {
        by_task(bmc, Success::Accepted, TaskPolicy::default());
    }
    a_task_whose_monitor_is_gone_when_it_is_over(bmc) {
        by_task(bmc, Success::TaskLocation, TaskPolicy { monitor: MonitorAfter::Gone, ..Default::default() });
    }
    a_task_that_is_completed_while_its_monitor_says_accepted(bmc) {
        let monitor = MonitorAfter::StillAccepted;
        by_task(bmc, Success::TaskLocation, TaskPolicy { monitor, ..Default::default() });
    }
    a_task_in_an_unknown_state(bmc) {
        let (running, time) = ("Pondering".to_owned(), Duration::from_millis(1200));
        by_task(bmc, Success::Task, TaskPolicy { running, time, ..Default::default() });
    }
}

fails! {
    a_login_page_for_every_request(bmc) {
        bmc.faults.push(Fault::always(FaultTrigger::Anything, page(200)));
    } => "redfish.discover", "bmc_refused", ["a web page instead of a resource"];
    a_redirect_to_a_login_page(bmc) {
        bmc.faults.push(Fault::always(get(SYSTEM), responds(302, &[("location", "/login")], "")));
    } => "redfish.discover", "bmc_refused", ["a redirect to another page of this BMC"];
    a_response_of_fifty_megabytes(bmc) {
        bmc.faults.push(Fault::once(get(SYSTEM), FaultEffect::Huge(50 << 20)));
    } => "redfish.discover", "bmc_refused", ["more than"];
    a_response_of_too_many_values(bmc) {
        bmc.faults.push(asked(FaultEffect::Deep(100_000)));
    } => "redfish.discover", "bmc_refused", ["too many values"];
    a_response_that_always_nests_too_deep(bmc) {
        bmc.faults.push(Fault::always(get(SYSTEM), FaultEffect::Deep(1000)));
    } => "redfish.discover", "bmc_refused", ["instead of a resource"];
    a_response_compressed_without_being_requested(bmc) {
        bmc.faults.push(Fault::always(get(SYSTEM), FaultEffect::Gzip));
    } => "redfish.discover", "bmc_refused", ["text that is not JSON"];
    a_collection_that_stays_empty(bmc) {
        bmc.faults.push(Fault::always(get("/Systems"), FaultEffect::Lie(json!({ "Members": [] }))));
    } => "redfish.discover", "bmc_refused", ["the collection of systems is empty"];
    a_system_that_stays_missing(bmc) {
        bmc.faults.push(Fault::always(get(SYSTEM), says(404, "Base.1.18.ResourceMissingAtURI")));
    } => "redfish.discover", "bmc_refused", ["not found"];
    the_reason_is_shown_without_a_list_of_messages(bmc) {
        refused_in(bmc, ErrorShape::InfoIsObject);
    } => "redfish.mount.maintenance", "bmc_refused", ["ImageRefused", "reason in the words of the service"];
    the_reason_is_shown_without_a_code(bmc) {
        refused_in(bmc, ErrorShape::NoCode);
    } => "redfish.mount.maintenance", "bmc_refused", ["ImageRefused", "reason in the words of the service"];
    the_reason_is_shown_without_an_envelope(bmc) {
        refused_in(bmc, ErrorShape::NoEnvelope);
    } => "redfish.mount.maintenance", "bmc_refused", ["ImageRefused", "reason in the words of the service"];
    the_reason_is_shown_from_plain_text(bmc) {
        refused_in(bmc, ErrorShape::Text);
    } => "redfish.mount.maintenance", "bmc_refused", ["reason in the words of the service"];
    a_task_that_fails(bmc) {
        let completed = "Exception".to_owned();
        by_task(bmc, Success::Task, TaskPolicy { completed, monitor: MonitorAfter::StillAccepted, ..Default::default() });
    } => "redfish.mount.maintenance", "bmc_refused", ["task ended as Exception"];
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_never_ends_is_not_taken_for_a_failure() {
    let scene = scene(|bmc| {
        let monitor = MonitorAfter::Result;
        by_task(bmc, Success::Task, TaskPolicy { monitor, ..Default::default() });
        let running = json!({ "TaskState": "Running" });
        let glob = "*/TaskService/*".to_owned();
        let response = responds(202, &[("content-type", "application/json")], &running.to_string());
        bmc.faults.push(Fault::always(FaultTrigger::Path { method: "GET".to_owned(), glob }, response));
    })
    .await;
    let quirks = json!({ "quirks": { "task_timeout_s": 1 } });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &quirks).await.expect(200);
    run_another_job(scene).await.assert_succeeded().await;
}
