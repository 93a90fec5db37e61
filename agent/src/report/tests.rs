use super::*;
use crate::test_kit::{FakeHttp, VirtualClock, job_json};

fn job() -> Job {
    Job::parse(&serde_json::to_vec(&job_json("SN1", "2026-01-02T03:04:05Z")).unwrap()).unwrap()
}

fn failed() -> Outcome {
    Outcome::Failed {
        step: "partition.service".to_owned(),
        message: format!("sda: {}no space", "x".repeat(1000)),
    }
}

#[test]
fn a_report_is_repeated_with_growing_pauses_until_it_is_acknowledged() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = FakeHttp::statuses([0, 500, 429, 0, 0, 0, 0, 0, 503, 200]);
    let reporter = Reporter::new(&http, &clock, &job, &log);
    assert_eq!(reporter.deliver(&failed(), None), ReportDelivery::Acknowledged);
    let pauses: Vec<u64> = clock.pauses().iter().map(Duration::as_secs).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    let sent = http.bodies();
    assert!(sent.iter().all(|body| body["delivery_id"] == sent[0]["delivery_id"]));
    assert_eq!(sent[0]["failed_step"], "partition.service");
    let message = sent[0]["message"].as_str().unwrap();
    assert_eq!(message.chars().count(), 1000);
    assert!(message.starts_with("sda") && message.ends_with("no space"), "{message}");
    assert_eq!(sent[0]["class"], "installer");
    assert!(
        http.requests()
            .iter()
            .all(|request| { request.headers.contains(&("x-webhook-secret", "report-secret".to_owned())) })
    );
}

/// Begins the first step that writes, and the step after it or else the end, while the controller responds so. Returns the result of
/// the first, and the reports.
fn begin(statuses: impl IntoIterator<Item = u16>) -> (Result<(), String>, Vec<serde_json::Value>) {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = FakeHttp::statuses(statuses);
    let reporter = Reporter::new(&http, &clock, &job, &log);
    reporter.set_disk(&DiskFacts { serial: Some("D1".to_owned()), ..DiskFacts::default() }, &[]);
    let begun = reporter.begin_writing("partition.service", 2);
    match begun {
        Ok(()) => reporter.begin_writing("image-linux.service", 5).unwrap(),
        Err(_) => {
            let _in_one_attempt = reporter.deliver(&failed(), Some(Duration::ZERO));
        }
    }
    (begun, http.bodies())
}

#[test]
fn nothing_is_written_before_the_controller_has_acknowledged_the_disk() {
    // The step after the first one goes on without a response.
    let (begun, sent) = begin([0, 503, 429, 200, 0]);
    assert_eq!(begun, Ok(()));
    assert_eq!(sent.len(), 5);
    assert!(sent.iter().all(|body| body["disk"]["serial"] == "D1" && body["disk"]["written"] == true));
    let (refused, sent) = begin([409, 200]);
    assert!(refused.unwrap_err().starts_with("nothing was written: the controller refuses with 409"));
    // The end names the disk, and that nothing was written to it.
    let written: Vec<bool> = sent.iter().map(|body| body["disk"]["written"] == true).collect();
    assert_eq!(written, [true, false]);
    // A controller that is away is waited for, ten minutes.
    let (silent, sent) = begin([0; 18]);
    assert!(silent.unwrap_err().contains("the connection was refused"));
    assert!((15..=17).contains(&sent.len()), "{}", sent.len());
    assert_eq!(sent.last().map(|body| &body["disk"]["written"]), Some(&serde_json::json!(false)));
}

#[test]
fn a_failure_has_the_class_of_its_image_or_of_its_step() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let class = |fault: Option<beacon::Class>, step: &str| {
        let http = FakeHttp::statuses([200]);
        let reporter = Reporter::new(&http, &clock, &job, &log);
        if let Some(class) = fault {
            reporter.fault().set(class).unwrap();
        }
        let outcome = Outcome::Failed { step: step.to_owned(), message: "x".to_owned() };
        assert_eq!(reporter.deliver(&outcome, None), ReportDelivery::Acknowledged);
        http.bodies()[0]["class"].as_str().unwrap().to_owned()
    };
    assert_eq!(class(None, "select-disk.service"), "input");
    assert_eq!(class(None, "partition.service"), "installer");
    assert_eq!(class(Some(beacon::Class::Image), "image-linux.service"), "media");
    assert_eq!(class(Some(beacon::Class::Medium), "image-disk.service"), "media");
}

#[test]
fn the_time_of_the_controller_is_that_of_its_last_response() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = FakeHttp::statuses([200]).with_header("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let reporter = Reporter::new(&http, &clock, &job, &log);
    assert_eq!(reporter.date(), None);
    assert_eq!(reporter.announce("network.service"), Ok(Announced::Accepted));
    assert_eq!(reporter.date().unwrap().to_string(), "1994-11-06T08:49:37Z");
}

#[test]
fn a_controller_away_for_ten_minutes_is_waited_for() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = FakeHttp::statuses(std::iter::repeat_n(0, 15).chain([200]));
    let reporter = Reporter::new(&http, &clock, &job, &log);
    assert_eq!(reporter.deliver(&Outcome::Success, None), ReportDelivery::Acknowledged);
    assert!(clock.elapsed() > Duration::from_secs(600));
}

#[test]
fn a_refusal_is_not_repeated_and_retry_after_is_kept() {
    for status in [400, 401, 404, 409] {
        let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
        let http = FakeHttp::statuses([status]);
        let reporter = Reporter::new(&http, &clock, &job, &log);
        assert_eq!(reporter.deliver(&Outcome::Success, None), ReportDelivery::Refused(status));
    }
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = FakeHttp::statuses([503, 200]).with_header("retry-after", "17");
    let reporter = Reporter::new(&http, &clock, &job, &log);
    assert_eq!(reporter.deliver(&Outcome::Success, None), ReportDelivery::Acknowledged);
    assert_eq!(clock.pauses(), [Duration::from_secs(17)]);
}

/// A proxy whose controller is away: it responds so, without the error of a controller.
fn proxy(statuses: impl IntoIterator<Item = u16>) -> FakeHttp {
    let inner = FakeHttp::statuses(statuses);
    FakeHttp::new(move |request| {
        let response = inner.send(request).map_err(|error| error.0)?;
        Ok((response.status, Vec::new(), b"<html>not found</html>".to_vec()))
    })
}

#[test]
fn only_the_error_of_a_controller_says_that_a_job_is_not_awaited() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let said = |http: FakeHttp| Reporter::new(&http, &clock, &job, &log).announce("network.service");
    assert_eq!(said(FakeHttp::statuses([404])), Ok(Announced::Refused(404)));
    assert_eq!(said(proxy([404])), Ok(Announced::Other(404)));
    assert_eq!(said(FakeHttp::statuses([429])), Ok(Announced::Other(429)));
}

#[test]
fn a_refusal_by_a_proxy_is_repeated_for_half_a_minute() {
    let job = job();
    let deliver = |statuses: &[u16]| {
        let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
        let http = proxy(statuses.iter().copied());
        let delivery = Reporter::new(&http, &clock, &job, &log).deliver(&Outcome::Success, None);
        (delivery, clock.elapsed())
    };
    let (delivery, took) = deliver(&[404, 404, 200]);
    assert!(delivery == ReportDelivery::Acknowledged && took < REFUSAL_TIME);
    let (delivery, took) = deliver(&[403; 6]);
    assert!(delivery == ReportDelivery::Refused(403) && took >= REFUSAL_TIME, "{took:?}");
    // Half a minute of refusals, and not one before an absence and one after it.
    let absence = [vec![404], vec![502; 9], vec![404; 5], vec![200]].concat();
    assert_eq!(deliver(&absence).0, ReportDelivery::Acknowledged);
}

#[test]
fn a_refusal_by_a_proxy_does_not_end_the_confirmation_before_the_first_write() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = proxy([404, 403, 200]);
    let reporter = Reporter::new(&http, &clock, &job, &log);
    reporter.set_disk(&DiskFacts::default(), &[]);
    assert_eq!(reporter.begin_writing("partition.service", 2), Ok(()));
}

#[test]
fn a_report_ends_at_its_limit_and_stays_below_the_size_of_the_controller() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    for _ in 0..2000 {
        log.line("unit", "\"".repeat(100));
    }
    let http = FakeHttp::statuses(std::iter::repeat_n(0, 99));
    let reporter = Reporter::new(&http, &clock, &job, &log);
    assert_eq!(reporter.deliver(&failed(), Some(Duration::from_secs(30))), ReportDelivery::GaveUp);
    assert!(clock.elapsed() <= Duration::from_secs(30));
    let longest = http.requests().iter().map(|request| request.body.len()).max().unwrap();
    assert!(longest < 64 * 1024, "{longest}");
}

#[test]
fn a_controller_that_is_away_is_not_asked_for_every_progress() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = FakeHttp::statuses([0, 200]);
    let reporter = Reporter::new(&http, &clock, &job, &log);
    for _ in 0..12 {
        reporter.progress("a", 1);
        clock.sleep(Duration::from_secs(10));
    }
    reporter.progress("a", 2);
    assert_eq!(http.requests().len(), 2);
}

#[test]
fn a_step_that_reads_the_image_reports_its_bytes_and_another_none() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = FakeHttp::statuses([200, 200]);
    let reporter = Reporter::new(&http, &clock, &job, &log);
    reporter.reading("a", 1, 7, 9);
    reporter.progress("b", 2);
    let bodies: Vec<serde_json::Value> =
        http.requests().iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
    assert_eq!((&bodies[0]["bytes"], &bodies[0]["total"]), (&7.into(), &9.into()));
    assert!(bodies[1].get("bytes").is_none() && bodies[1].get("total").is_none());
}

#[test]
fn progress_is_sent_once_in_five_seconds_for_each_step() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    let http = FakeHttp::statuses(std::iter::repeat_n(200, 9));
    let reporter = Reporter::new(&http, &clock, &job, &log);
    reporter.progress("a", 1);
    reporter.progress("a", 2);
    reporter.progress("b", 3);
    clock.sleep(Duration::from_secs(5));
    reporter.progress("b", 200);
    let sent: Vec<_> = http.bodies().iter().map(|body| body["percent"].as_u64().unwrap()).collect();
    assert_eq!(sent, [1, 3, 100]);
}

#[test]
fn refusals_by_the_controller_for_half_a_minute_end_a_job_that_writes() {
    let (clock, log, job) = (VirtualClock::default(), Log::new(Vec::new()), job());
    // The first report is that of the disk; the others are ten seconds apart.
    let later = |http: &FakeHttp, reports: usize| {
        let reporter = Reporter::new(http, &clock, &job, &log);
        reporter.set_disk(&DiskFacts::default(), &[]);
        reporter.begin_writing("partition.service", 2).unwrap();
        for _ in 1..reports {
            clock.sleep(Duration::from_secs(10));
            reporter.progress("image-linux.service", 5);
        }
        reporter.is_awaited()
    };
    for status in [401, 404, 409] {
        let refused = [200, status, status, status, status];
        let ended = later(&FakeHttp::statuses(refused), 5).unwrap_err();
        assert!(ended.contains("the controller ended this job"), "{ended}");
        // A controller that starts can refuse what it accepts later, and what follows an accepted report counts anew.
        assert_eq!(later(&FakeHttp::statuses(refused), 4), Ok(()));
        assert_eq!(later(&FakeHttp::statuses([200, status, status, 200, status, status]), 6), Ok(()));
        assert_eq!(later(&proxy(refused), 5), Ok(()));
    }
    assert_eq!(later(&FakeHttp::statuses([200, 429, 503, 503, 503, 503]), 6), Ok(()));
    // Before the first write the report of the disk decides.
    let reporter_http = FakeHttp::statuses([404, 404, 404, 404, 404, 200]);
    let reporter = Reporter::new(&reporter_http, &clock, &job, &log);
    reporter.set_disk(&DiskFacts::default(), &[]);
    for _ in 0..5 {
        reporter.progress("select-disk.service", 1);
        clock.sleep(Duration::from_secs(10));
    }
    assert_eq!(reporter.begin_writing("partition.service", 2), Ok(()));
}
