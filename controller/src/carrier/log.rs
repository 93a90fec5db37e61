//! The event log of the database, as it is published.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nats_carrier::{EventLog, LogError, Record, event_subject};
use serde_json::json;
use tokio::sync::watch;

use crate::webhooks::bounded_event;
use model::{Clock, OutgoingEvent, error_chain};
use store::{Store, StoreError};

/// The setting with the name of the log. A copy of the data has it too: event numbers are never used twice, and those of a copy
/// continue far behind.
const NAME: &str = "events.log";
/// The workflow of events without a job.
const NO_WORKFLOW: &str = "controller";

/// The events of a database.
pub(super) struct StoreLog {
    store: Store,
    clock: Arc<dyn Clock>,
}

impl StoreLog {
    pub(super) fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }
}

fn unreadable(error: StoreError) -> LogError {
    LogError(error_chain(&error).to_string())
}

#[async_trait]
impl EventLog for StoreLog {
    async fn id(&self) -> Result<String, LogError> {
        if let Some(name) = self.store.setting(NAME).await.map_err(unreadable)? {
            return Ok(name);
        }
        let name = uuid::Uuid::new_v4().simple().to_string();
        let stored = self.store.set_setting(NAME, Some(name.clone()), Vec::new(), self.clock.now()).await;
        stored.map_err(unreadable)?;
        Ok(name)
    }

    async fn last(&self) -> Result<i64, LogError> {
        self.store.last_seq().await.map_err(unreadable)
    }

    async fn after(&self, seq: i64, limit: u32, max_body: usize) -> Result<Vec<Record>, LogError> {
        let events = self.store.outgoing(seq, limit).await.map_err(unreadable)?;
        Ok(events.iter().map(|out| record(out, max_body)).collect())
    }

    fn commits(&self) -> watch::Receiver<u64> {
        self.store.commits()
    }
}

fn record(out: &OutgoingEvent, max_body: usize) -> Record {
    let workflow = out.workflow.as_deref().unwrap_or(NO_WORKFLOW);
    let body = bounded_event(&out.event, max_body, |event| {
        json!({ "event": event, "workflow": out.workflow, "labels": out.labels }).to_string()
    });
    Record { seq: out.event.seq, subject: event_subject(workflow, &out.event.kind), body: Bytes::from(body) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{NewEvent, SystemClock};

    async fn log(folder: &std::path::Path) -> StoreLog {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let store = Store::open(&folder.join("db"), clock.now()).unwrap();
        StoreLog::new(store, clock)
    }

    #[tokio::test]
    async fn events_are_records_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let log = log(folder.path()).await;
        let name = log.id().await.unwrap();
        assert_eq!(log.id().await.unwrap(), name);
        let now = log.clock.now();
        for message in ["a", &"long ".repeat(20_000)] {
            let event = NewEvent::info("drain.set", message).with(json!({ "more": message }));
            log.store.set_setting("other", None, vec![event], now).await.unwrap();
        }
        let records = log.after(0, 10, 8 << 10).await.unwrap();
        let numbers: Vec<i64> = records.iter().map(|record| record.seq).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(log.last().await.unwrap(), 2);
        assert!(records.iter().all(|record| record.subject == "shoal.events.controller.drain.set"));
        let body: serde_json::Value = serde_json::from_slice(&records[0].body).unwrap();
        assert_eq!((&body["event"]["seq"], &body["event"]["data"]["more"]), (&json!(1), &json!("a")));
        assert!(records[1].body.len() <= 8 << 10, "{}", records[1].body.len());
        assert!(log.after(2, 10, 8 << 10).await.unwrap().is_empty());
    }
}
