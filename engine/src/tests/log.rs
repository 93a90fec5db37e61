//! What the log says of a run: its ids on every line, and one line for its failure.

use std::io;
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};
use tracing_subscriber::fmt::MakeWriter;

use super::kit::{Act, Kit};
use crate::Verb;
use crate::model::Outcome;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Each line with the fields of its spans and its own.
    fn read(&self) -> Vec<Map<String, Value>> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
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
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn captured() -> (Lines, tracing::subscriber::DefaultGuard) {
    let lines = Lines::default();
    let subscriber = tracing_subscriber::fmt()
        .json()
        .with_span_list(true)
        .with_max_level(tracing::Level::INFO)
        .with_writer(lines.clone())
        .finish();
    (lines, tracing::subscriber::set_default(subscriber))
}

#[tokio::test]
async fn a_failure_is_one_error_line_with_class_next_action_and_the_ids_of_the_job() {
    let kit = Kit::new();
    kit.script("b", [Act::Fail]);
    let (lines, _guard) = captured();
    let id = kit.start("drill", &["a", "b"]).await;
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Failed));
    let failure = kit.run(id).await.failure.unwrap();
    let lines = lines.read();
    let errors: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!(errors.len(), 1, "{lines:?}");
    let line = errors[0];
    assert_eq!(line["class"], failure.class);
    assert_eq!(line["next_action"], failure.next_action);
    assert_eq!(line["failed_step"], "b");
    for of_job in &lines {
        assert_eq!(of_job["job_id"], id.to_string(), "{of_job:?}");
        for field in ["server_serial", "workflow", "worker_id", "epoch"] {
            assert!(of_job.contains_key(field), "{field} is missing: {of_job:?}");
        }
    }
    assert!(lines.iter().any(|line| line["message"] == "the job has ended" && line["outcome"] == "failed"));
}

#[tokio::test]
async fn a_cancelled_job_is_no_error() {
    let kit = Kit::new();
    kit.script("a", [Act::Hold]);
    let (lines, _guard) = captured();
    let id = kit.start("drill", &["a"]).await;
    kit.run_until_idle().await;
    kit.engine.verb(id, Verb::Cancel, "ann", "").await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(kit.ended(id).await, Some(Outcome::Cancelled));
    let lines = lines.read();
    assert!(lines.iter().all(|line| line["level"] != "ERROR"), "{lines:?}");
}
