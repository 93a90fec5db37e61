//! Answers that are not what they should be: bodies, errors, tasks, patience.

use std::time::Duration;

use lab_bmc::{Effect, ErrorShape, Fault, MonitorAfter, SimBmcConfig, Success, TaskPolicy, When};
use serde_json::json;

use super::{SERIAL, SYSTEM, again, answers, get, says, scene};

fn page(status: u16) -> Effect {
    let body = "<!DOCTYPE html><html><form action=\"/login\">Log in</form></html>".to_owned();
    Effect::Raw { status, content_type: "text/html".to_owned(), body }
}

fn asked(effect: Effect) -> Fault {
    Fault::once(get(SYSTEM), effect)
}

fn refused_in(twin: &mut SimBmcConfig, shape: ErrorShape) {
    twin.errors.shape = shape;
    twin.faults.push(Fault::always(When::Insert, says(400, "Contoso.1.0.ImageRefused")));
}

fn busy_in(twin: &mut SimBmcConfig, shape: ErrorShape) {
    twin.errors.shape = shape;
    twin.faults.push(Fault::once(When::Insert, says(400, "IDRAC.2.8.SYS518")));
}

/// Inserts are tasks of this kind.
fn by_task(twin: &mut SimBmcConfig, insert: Success, tasks: TaskPolicy) {
    twin.answers.insert = insert;
    twin.tasks = tasks;
}

gets_over! {
    a_resource_that_is_missing_for_a_while(twin) {
        twin.faults.push(Fault::once(get("/CD2"), says(404, "Base.1.18.ResourceMissingAtURI")).after(1));
    }
    a_system_that_is_missing_for_a_while(twin) {
        twin.faults.push(asked(says(404, "Base.1.18.ResourceMissingAtURI")).times(2));
    }
    a_collection_that_is_empty_for_a_while(twin) {
        twin.faults.push(Fault::once(get("/Systems"), Effect::Lie(json!({ "Members": [] }))));
    }
    a_collection_of_null_for_a_while(twin) {
        twin.faults.push(Fault::once(get("/Systems"), Effect::Lie(json!({ "Members": null }))));
    }
    patience_until_a_date(twin) {
        let (date, until) = ("Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:01 GMT");
        let wait = answers(429, &[("date", date), ("retry-after", until)], "");
        twin.faults.push(asked(wait.clone()));
        twin.faults.push(Fault::once(When::PatchBoot, wait));
    }
    patience_in_words_nobody_understands(twin) {
        let wait = answers(429, &[("retry-after", "soon")], "");
        twin.faults.push(asked(wait.clone()));
        twin.faults.push(Fault::once(When::Insert, wait));
    }
    a_web_page_with_503(twin) {
        twin.faults.push(asked(page(503)));
    }
    a_web_page_with_503_for_a_change(twin) {
        twin.faults.push(Fault::once(When::PatchBoot, page(503)));
    }
    a_login_page_in_place_of_a_resource(twin) {
        twin.faults.push(asked(page(200)));
    }
    an_empty_answer(twin) {
        let body = String::new();
        twin.faults.push(asked(Effect::Raw { status: 200, content_type: "application/json".to_owned(), body }));
    }
    no_content_for_a_resource(twin) {
        twin.faults.push(asked(answers(204, &[], "")));
    }
    a_body_that_ends_too_soon(twin) {
        twin.faults.push(asked(Effect::Truncate(100)));
    }
    a_body_of_another_type(twin) {
        twin.faults.push(Fault::always(When::Read, Effect::ContentType("text/plain".to_owned())));
    }
    a_body_with_a_byte_order_mark(twin) {
        twin.faults.push(Fault::always(When::Read, Effect::ByteOrderMark));
    }
    a_body_in_chunks(twin) {
        twin.faults.push(Fault::always(When::Read, Effect::Chunked));
    }
    a_body_with_keys_told_twice(twin) {
        twin.faults.push(Fault::always(When::Read, Effect::DuplicateKey));
    }
    a_body_that_nests_too_deep(twin) {
        twin.faults.push(asked(Effect::Deep(1000)));
    }
    an_answer_that_is_an_error_with_status_200(twin) {
        let body = json!({ "error": { "code": "Base.1.18.GeneralError", "message": "not now" } }).to_string();
        twin.faults.push(asked(Effect::Raw { status: 200, content_type: "application/json".to_owned(), body }));
    }
    an_answer_that_is_a_list(twin) {
        let (content_type, body) = ("application/json".to_owned(), "[1]".to_owned());
        twin.faults.push(asked(Effect::Raw { status: 200, content_type, body }));
    }
    a_busy_bmc_is_understood_without_a_list_of_messages(twin) {
        busy_in(twin, ErrorShape::InfoIsObject);
    }
    a_busy_bmc_is_understood_without_a_code(twin) {
        busy_in(twin, ErrorShape::NoCode);
    }
    a_busy_bmc_is_understood_without_an_envelope(twin) {
        busy_in(twin, ErrorShape::NoEnvelope);
    }
    a_task_named_by_its_location(twin) {
        by_task(twin, Success::TaskLocation, TaskPolicy::default());
    }
    a_task_named_by_the_body_only(twin) {
        by_task(twin, Success::TaskBody, TaskPolicy::default());
    }
    a_task_that_nobody_names(twin) {
        by_task(twin, Success::Accepted, TaskPolicy::default());
    }
    a_task_whose_monitor_is_gone_when_it_is_over(twin) {
        by_task(twin, Success::TaskLocation, TaskPolicy { monitor: MonitorAfter::Gone, ..Default::default() });
    }
    a_task_that_is_completed_while_its_monitor_says_accepted(twin) {
        let monitor = MonitorAfter::StillAccepted;
        by_task(twin, Success::TaskLocation, TaskPolicy { monitor, ..Default::default() });
    }
    a_task_in_a_state_nobody_knows(twin) {
        let (running, time) = ("Pondering".to_owned(), Duration::from_millis(1200));
        by_task(twin, Success::Task, TaskPolicy { running, time, ..Default::default() });
    }
}

fails! {
    a_login_page_wherever_one_looks(twin) {
        twin.faults.push(Fault::always(When::Anything, page(200)));
    } => "redfish.discover", "bmc_refused", ["a web page instead of a resource"];
    a_redirect_to_a_login_page(twin) {
        twin.faults.push(Fault::always(get(SYSTEM), answers(302, &[("location", "/login")], "")));
    } => "redfish.discover", "bmc_refused", ["a redirect to another page of its own"];
    an_answer_of_fifty_megabytes(twin) {
        twin.faults.push(Fault::once(get(SYSTEM), Effect::Huge(50 << 20)));
    } => "redfish.discover", "bmc_refused", ["more than"];
    an_answer_of_too_many_values(twin) {
        twin.faults.push(asked(Effect::Deep(100_000)));
    } => "redfish.discover", "bmc_refused", ["too many values"];
    an_answer_that_always_nests_too_deep(twin) {
        twin.faults.push(Fault::always(get(SYSTEM), Effect::Deep(1000)));
    } => "redfish.discover", "bmc_refused", ["instead of a resource"];
    an_answer_compressed_against_our_will(twin) {
        twin.faults.push(Fault::always(get(SYSTEM), Effect::Gzip));
    } => "redfish.discover", "bmc_refused", ["text that is not JSON"];
    a_collection_that_stays_empty(twin) {
        twin.faults.push(Fault::always(get("/Systems"), Effect::Lie(json!({ "Members": [] }))));
    } => "redfish.discover", "bmc_refused", ["the collection of systems is empty"];
    a_system_that_stays_missing(twin) {
        twin.faults.push(Fault::always(get(SYSTEM), says(404, "Base.1.18.ResourceMissingAtURI")));
    } => "redfish.discover", "bmc_refused", ["not found"];
    the_reason_is_told_without_a_list_of_messages(twin) {
        refused_in(twin, ErrorShape::InfoIsObject);
    } => "redfish.mount.maintenance", "bmc_refused", ["ImageRefused", "says no in words of its own"];
    the_reason_is_told_without_a_code(twin) {
        refused_in(twin, ErrorShape::NoCode);
    } => "redfish.mount.maintenance", "bmc_refused", ["ImageRefused", "says no in words of its own"];
    the_reason_is_told_without_an_envelope(twin) {
        refused_in(twin, ErrorShape::NoEnvelope);
    } => "redfish.mount.maintenance", "bmc_refused", ["ImageRefused", "says no in words of its own"];
    the_reason_is_told_from_plain_text(twin) {
        refused_in(twin, ErrorShape::Text);
    } => "redfish.mount.maintenance", "bmc_refused", ["says no in words of its own"];
    a_task_that_fails(twin) {
        let completed = "Exception".to_owned();
        by_task(twin, Success::Task, TaskPolicy { completed, monitor: MonitorAfter::StillAccepted, ..Default::default() });
    } => "redfish.mount.maintenance", "bmc_refused", ["task ended as Exception"];
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_never_ends_is_not_believed_to_have_failed() {
    let scene = scene(|twin| {
        let monitor = MonitorAfter::Result;
        by_task(twin, Success::Task, TaskPolicy { monitor, ..Default::default() });
        let running = json!({ "TaskState": "Running" });
        let glob = "*/TaskService/*".to_owned();
        let answer = answers(202, &[("content-type", "application/json")], &running.to_string());
        twin.faults.push(Fault::always(When::Path { method: "GET".to_owned(), glob }, answer));
    })
    .await;
    let quirks = json!({ "quirks": { "task_timeout_s": 1 } });
    scene.admin.patch(&format!("/api/v1/servers/{SERIAL}"), &quirks).await.expect(200);
    again(scene).await.ended_well().await;
}
