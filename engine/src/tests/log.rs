//! The log of a run: its ids on every line, and one line for its failure.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

use parking_lot::Mutex;
use serde_json::{Map, Value};

use super::kit::{Act, Kit};
use model::{Outcome, RunId, Verb};

thread_local! {
    /// The log of this thread's test; `None` in a test that does not read its log.
    static LINES: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// The log of all other threads, such as the writers of stores.
static ELSEWHERE: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writes to the log of the thread. One subscriber serves all tests of the process: tracing remembers for each log call
/// whether any subscriber wants it, so subscribers that come and go with their tests would miss lines.
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LINES.with_borrow_mut(|lines| match lines {
            Some(lines) => lines.extend_from_slice(bytes),
            None => ELSEWHERE.lock().extend_from_slice(bytes),
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts to record the log of this thread.
fn record() {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        tracing_subscriber::fmt().json().with_span_list(true).with_writer(|| Log).init();
    });
    LINES.set(Some(Vec::new()));
}

/// Each recorded line with the fields of its spans and its own.
fn recorded() -> Vec<Map<String, Value>> {
    parsed(LINES.take().unwrap_or_default())
}

/// The lines at `error` about a job, which any thread has logged.
fn errors_of(id: RunId) -> Vec<Map<String, Value>> {
    let mut lines = recorded();
    lines.extend(parsed(ELSEWHERE.lock().clone()));
    lines.retain(|line| {
        line["level"] == "ERROR" && line.get("job_id").is_some_and(|of| *of == id.to_string())
    });
    lines
}

fn parsed(lines: Vec<u8>) -> Vec<Map<String, Value>> {
    let text = String::from_utf8(lines).unwrap();
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let mut fields = line["fields"].as_object().unwrap().clone();
            fields.insert("level".to_owned(), line["level"].clone());
            for span in line["spans"].as_array().into_iter().flatten() {
                fields.extend(span.as_object().unwrap().clone());
            }
            fields
        })
        .collect()
}

#[tokio::test]
async fn a_failure_is_one_error_line_with_class_next_action_and_the_ids_of_the_job() {
    let kit = Kit::new();
    kit.script("b", [Act::Fail]);
    record();
    let id = kit.start("drill", &["a", "b"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Failed));
    let failure = kit.run(id).await.failure.unwrap();
    let lines = recorded();
    let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(errors.len(), 1, "{lines:?}");
    let line = errors[0];
    assert_eq!(line["class"], *failure.class);
    assert_eq!(line["next_action"], failure.next_action);
    assert_eq!((&line["failed_step"], &line["step"]), (&"b".into(), &"b".into()), "{line:?}");
    for of_job in &lines {
        assert_eq!(of_job["job_id"], id.to_string(), "{of_job:?}");
        for field in ["server_serial", "workflow", "worker_id", "epoch", "step"] {
            assert!(of_job.contains_key(field), "{field} is missing: {of_job:?}");
        }
    }
    assert!(lines.iter().any(|line| line["message"] == "the job has ended" && line["outcome"] == "failed"));
}

#[tokio::test]
async fn the_hold_and_the_end_of_an_unreadable_job_are_one_error_line_each() {
    let kit = Kit::new();
    kit.script("a", [Act::Await("word")]);
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    record();
    let sql = "UPDATE runs SET deadline_at = 'never', next_run_at = ?2 WHERE id = ?1";
    kit.outside_view().execute(sql, [id.to_string(), kit.now().to_string()]).unwrap();
    kit.run_until_idle().await;
    let held = errors_of(id);
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!((&held[0]["step"], &held[0]["workflow"]), (&"a".into(), &"drill".into()));
    record();
    kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    let ended = errors_of(id);
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(ended[1]["message"].as_str().unwrap().contains("ended by ann"), "{ended:?}");
    for line in &ended {
        assert_eq!(line["class"], "unreadable");
        for field in ["server_serial", "worker_id", "epoch", "step", "next_action"] {
            assert!(line.contains_key(field), "{field} is missing: {line:?}");
        }
        assert_ne!(line["worker_id"], "");
    }
}

#[tokio::test]
async fn a_cancelled_job_is_no_error() {
    let kit = Kit::new();
    kit.script("a", [Act::Hold]);
    record();
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
    let lines = recorded();
    assert!(lines.iter().all(|line| line["level"] != "ERROR"), "{lines:?}");
}
