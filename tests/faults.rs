//! Every fault that the Redfish client handles, each in a whole job over real sockets.
//!
//! A scenario is a BMC with a fault and the expected end of the job. *Recovers*: one boot from the boot image, empty slots, no
//! open session, at most two requests in flight and one change. *Fails*: the step, the class, words of the reason, a sentence
//! on what to do, the host not booted, the slots empty or their cleanup pending. A scenario also fails if its fault is not
//! used as often as it says.
//!
//! ```text
//!   fault                                                            held by
//!    1 no listener                                 transport: a_bmc_that_comes_back_while_a_job_waits_for_it; limits; bmc: an_unreachable_bmc_*
//!    2 reset before the response                   transport: a_connection_reset_*
//!    3 reset inside the body                       transport: a_response_cut_*
//!    4 slower than the deadline                    transport: a_read_whose_response_comes_after_its_deadline, a_power_on_carried_out_after_its_deadline; bmc: *_whose_response_is_lost_*
//!    5 failing handshakes                          transport: handshakes_that_fail_intermittently
//!    6 another certificate                         transport: another_certificate_gets_no_credentials
//!    7 legacy TLS                                  transport: a_bmc_that_supports_only_an_old_tls, a_bmc_that_offers_only_legacy_tls_*
//!    8 401 once, always                            sessions: a_session_that_ended_*, a_change_that_is_never_authorized
//!    9 no session free                             sessions: no_session_free_*, sessions_that_are_all_taken; limits: twenty_jobs_in_sequence_*
//!   10 login without its Oem part                  sessions: a_login_that_wants_a_domain
//!   11 password to be changed                      sessions: a_password_that_must_be_changed; probe: a_bmc_problem_*
//!   12 licence missing                             sessions: a_missing_licence_*
//!   13 404 for a resource that exists              bodies: a_resource_that_is_missing_for_a_while
//!   14 no members                                  bodies: a_collection_that_is_empty_*, a_collection_of_null_*
//!   15 busy                                        boot: a_bios_that_is_busy_*; power: a_reset_in_the_wrong_state, a_reset_of_a_bmc_that_says_busy_*; bmc: a_bmc_that_is_not_ready_*
//!   16 no On after off                             power: an_on_refused_*, *_in_conflict_*
//!   17 conflict, but already done                  power: an_off_refused_because_the_host_is_off
//!   18 412                                         sessions: a_weak_etag_*, an_etag_that_is_only_accepted_as_a_star, an_empty_etag, a_missing_etag_refused_with_412
//!   19 428                                         sessions: a_precondition_that_is_required
//!   20 429                                         bodies: retry_after_with_*; bmc: a_bmc_that_sends_retry_after_gets_the_pause
//!   21 500 on insert                               media: an_insert_that_fails_while_an_eject_runs
//!   22 web pages, redirects to them                bodies: a_web_page_*, a_login_page_*, a_redirect_to_a_login_page
//!   23 unusable bodies                             bodies: an_empty_response, no_content_for_a_resource, a_body_*, a_response_*; bmc: a_bmc_that_fails_intermittently_*
//!   24 odd errors                                  bodies: the_reason_is_shown_*, a_busy_bmc_is_understood_without_*
//!   25 tasks                                       bodies: a_task_*
//!   26 inserted and not shown                      media: a_bmc_that_takes_images_and_never_shows_them; bmc: an_insert_that_is_accepted_*; slots: a_slot_that_takes_*
//!   27 stale after an eject                        media: a_slot_that_shows_its_image_after_the_eject_*
//!   28 media lost                                  media: media_lost_*
//!   29 the BMC restarts                            power: a_bmc_that_restarts_*
//!   30 override ignored or changed                 boot: an_override_*, a_mode_*
//!   31 power shown late or not at all              power: a_power_state_*
//!   32 shutdown ignored                            power: a_host_that_is_on_and_ignores_the_shutdown; bmc: an_os_that_ignores_the_shutdown_*
//!   33 one image at a time                         media: a_bmc_that_holds_one_image_at_a_time; slots
//!   34 slots of which only the third works         media: only_the_third_slot_takes_images; slots
//!   35 strict bodies                               media: an_insert_that_*
//!   36 strict URLs                                 media: the_strictest_rules_for_urls, a_bmc_that_reads_*
//!   37 two systems                                 boot: a_second_system_*
//!   38 ways to read an image                       media: an_image_read_*
//!   39 redirects                                   transport: paths_that_need_a_slash, a_redirect_to_another_host_*
//!   40 the controller is killed                    crash: killed_*
//!   any of them, in any order                      scripts: any_script_of_faults_*
//!
//!   T1 T2 URLs        media: a_media_url_contains_nothing_*                T8  plain HTTP   media: a_media_url_contains_nothing_*
//!   T3 slots          slots; media: a_bmc_that_holds_one_image_at_a_time    T9  sessions     sessions; limits
//!   T4 waiting jobs   field: jobs_that_wait_hold_no_worker                  T10 sticky Image media: a_slot_whose_image_sticks
//!   T5 leases         crash: killed_*                                       T11 other trees  media: slots_below_the_system, images_inserted_by_patch*, an_image_by_host_and_path
//!   T6 outcome        field: the_outcome_stands_beside_the_status           T12 validity     media: a_media_url_is_valid_as_long_as_its_job
//!   T7 tokens         reports: the_token_of_an_old_job_*                    T13 silent loss  boot: an_override_*, a_mode_*
//!   T14 escalation    sessions: a_session_that_ended_*; transport: a_bmc_that_comes_back_*; every `fails`
//! ```

use std::time::Duration;

use lab_bmc::{Fault, FaultEffect, FaultTrigger, Power, SimBmcConfig, SimBmcSnapshot};
use serde_json::Value;
use settings::Settings;

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, healthy, soon, with_bmc};

/// Scenarios in which the job succeeds: `name(bmc) { the fault }`.
macro_rules! recovers {
    ($($name:ident($bmc:ident) $change:block)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            crate::faults::run_job(|$bmc| $change).await.assert_succeeded().await;
        }
    )*};
}

/// Scenarios in which the job fails: `name(bmc) { the fault } => step, class, [words of the reason]`.
macro_rules! fails {
    ($($name:ident($bmc:ident) $change:block => $step:literal, $class:literal, [$($word:literal),*];)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            crate::faults::run_job(|$bmc| $change).await.assert_failed($step, $class, &[$($word),*]).await;
        }
    )*};
}

mod bodies;
mod boot;
mod field;
mod media;
mod power;
mod scripts;
mod sessions;
mod transport;

/// The server of a scenario. Each scenario starts its controller and its server.
const SERIAL: &str = "FAULT-1";
/// The last segment of the system's path.
const SYSTEM: &str = "437XR1138R2";

/// Matches a GET of a path with this end.
fn get(end: &str) -> FaultTrigger {
    FaultTrigger::Request { method: "GET".to_owned(), path_ends_with: end.to_owned() }
}

/// Responds with an error in the BMC's words.
fn says(status: u16, message_id: &str) -> FaultEffect {
    let message = "A reason in the words of the service.".to_owned();
    FaultEffect::Status { status, message_id: message_id.to_owned(), message }
}

/// Responds with this status, these headers and this body.
fn responds(status: u16, headers: &[(&str, &str)], body: &str) -> FaultEffect {
    let headers = headers.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
    FaultEffect::Answer { status, headers, body: body.to_owned() }
}

/// Configures a vendor's BMC without its delays.
fn vendor(name: &str) -> SimBmcConfig {
    SimBmcConfig::vendor(name, SERIAL, BMC_USER, BMC_PASSWORD).unwrap().in_time(0.0)
}

/// Raises the limits that are about load and not about faults.
fn unhurried(settings: &mut Settings) {
    settings.redfish_rate = 1000;
    settings.redfish_breaker_open_time = Duration::from_millis(200);
}

/// Starts a controller and a server with this BMC.
async fn scene(change: impl FnOnce(&mut SimBmcConfig)) -> Scene {
    scene_with(change, |_| {}).await
}

async fn scene_with(change: impl FnOnce(&mut SimBmcConfig), settings: impl FnOnce(&mut Settings)) -> Scene {
    let spec = with_bmc(healthy(SERIAL), |bmc| {
        change(bmc);
        bmc.hang_limit = Duration::from_millis(200);
    });
    Scene::start_with(vec![spec], |all, _| {
        unhurried(all);
        settings(all);
    })
    .await
}

/// A job that has ended.
struct EndedJob {
    scene: Scene,
    job: Value,
    events: Vec<Value>,
    event_log: String,
    machine: SimBmcSnapshot,
}

/// Runs a whole job, skipping pauses.
async fn run_job(change: impl FnOnce(&mut SimBmcConfig)) -> EndedJob {
    run_another_job(scene(change).await).await
}

/// Runs one more job.
async fn run_another_job(scene: Scene) -> EndedJob {
    let id = scene.admin.create_job(SERIAL).await;
    finished(scene, &id).await
}

/// Waits for the end of a job, skipping pauses.
async fn finished(scene: Scene, id: &str) -> EndedJob {
    let job = scene.complete_skipping(id).await;
    let events = scene.admin.events(id).await;
    let event_log = scene.admin.event_log(id).await;
    let left = scene.bmc(SERIAL).wait_for(|machine| machine.open_sessions == 0 && machine.in_flight == 0);
    let machine = soon("the end of the session", left).await;
    EndedJob { scene, job, events, event_log, machine }
}

/// Runs a job whose machine never reports, up to its deadline.
async fn until_the_deadline(change: impl FnOnce(&mut SimBmcConfig)) -> EndedJob {
    let scene = scene(change).await;
    let id = scene.admin.create_job(SERIAL).await;
    let waits = |job: &Value| job["wait"]["reason"] == "report";
    scene.wait_skipping(&id, "the wait for the report", waits).await;
    let is_over = |job: &Value| {
        if waits(job) {
            scene.skip_deadline(job);
        }
        !waits(job)
    };
    scene.wait_skipping(&id, "the end of the wait for the report", is_over).await;
    finished(scene, &id).await
}

impl EndedJob {
    fn assert_all_faults_used(&self) {
        let left = self.scene.bmc(SERIAL).faults();
        assert!(left.iter().all(|fault| fault.times.is_none()), "unused: {left:?}\n{}", self.event_log);
    }

    fn assert_within_limits(&self) {
        let machine = &self.machine;
        assert!(machine.max_in_flight <= 2 && machine.max_mutating_in_flight <= 1, "{machine:?}");
        assert_eq!(machine.ejected_while_running, 0, "{}", self.event_log);
    }

    fn empty(&self) -> bool {
        self.machine.slots.iter().all(|slot| slot.image.is_none())
    }

    /// Asserts that the host was installed, booted once from the boot image, and that slots and sessions are empty.
    async fn assert_succeeded(self) {
        self.check_succeeded().end().await;
    }

    fn check_succeeded(self) -> Scene {
        let (job, event_log) = (&self.job, &self.event_log);
        assert_eq!(job["outcome"], "succeeded", "{job:#}\n{event_log}");
        assert_eq!(job["cleanup"]["state"], "done", "{event_log}");
        assert_eq!((self.machine.boots_from_media, self.machine.power), (1, Power::On), "{event_log}");
        assert!(self.empty(), "{:?}\n{event_log}", self.machine);
        self.assert_within_limits();
        self.assert_all_faults_used();
        self.scene
    }

    /// Asserts that the job failed with this step, class and reason, and that the host did not boot.
    async fn assert_failed(self, step: &str, class: &str, words: &[&str]) {
        self.check_failed(step, class, words).end().await;
    }

    fn check_failed(self, step: &str, class: &str, words: &[&str]) -> Scene {
        let (job, event_log) = (&self.job, &self.event_log);
        assert_eq!(job["outcome"], "failed", "{event_log}");
        let failure = &job["failure"];
        let ending = (job["failed_step"].as_str().unwrap(), failure["class"].as_str().unwrap());
        assert_eq!(ending, (step, class), "{failure:#}\n{event_log}");
        let summary = failure["summary"].as_str().unwrap();
        for word in words {
            assert!(summary.contains(word), "{word:?} is not in {summary:?}");
        }
        let next = failure["next_action"].as_str().unwrap();
        assert!(next.split_whitespace().count() >= 3, "no sentence: {next:?}");
        let pending = job["cleanup"]["state"] == "incomplete"
            && job["cleanup"]["remaining"].as_array().is_some_and(|left| !left.is_empty());
        assert!(self.empty() || pending, "{:?}\n{event_log}", self.machine);
        assert_eq!(self.machine.boots_from_media, 0, "{event_log}");
        self.assert_within_limits();
        self.assert_all_faults_used();
        self.scene
    }
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "unused: ")]
async fn a_scenario_whose_fault_is_never_used_fails() {
    run_job(|bmc| bmc.faults.push(Fault::once(get("/nowhere"), FaultEffect::Drop)))
        .await
        .assert_succeeded()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[should_panic(expected = "is not in")]
async fn a_scenario_that_ends_with_another_reason_fails() {
    run_job(|bmc| {
        bmc.faults.push(Fault::always(FaultTrigger::Login, says(403, "Base.1.18.PasswordChangeRequired")))
    })
    .await
    .assert_failed("redfish.discover", "input", &["licence"])
    .await;
}
