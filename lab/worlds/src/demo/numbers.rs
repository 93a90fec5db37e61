//! The numbers of an installation that a BMC with a slow virtual medium makes long: the time to the first report, and what was read
//! of the media. Printed, never judged here: they depend on the computer.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::DemoApi;

/// The reads of one image.
#[derive(Debug, PartialEq)]
struct Read {
    /// `boot` or `task`.
    image: String,
    bytes: u64,
    size: u64,
}

/// The numbers of one installation.
#[derive(Debug, PartialEq)]
pub(super) struct Numbers {
    /// Seconds from the power-on to the first report of the machine; `None` without a report.
    first_report: Option<f64>,
    media: Vec<Read>,
}

impl Numbers {
    /// Reads the numbers of a job from the public API. `powered_on`: when its machine was first powered on.
    pub(super) async fn of(
        api: &DemoApi,
        job_id: &str,
        powered_on: Option<Timestamp>,
    ) -> anyhow::Result<Self> {
        let media = api.media(job_id).await?;
        // The events of a job have an order; the first report is among the first of them.
        let events = api.events(job_id, 0).await?;
        Ok(Self::from_documents(&media, &events, powered_on))
    }

    fn from_documents(media: &Value, events: &Value, powered_on: Option<Timestamp>) -> Self {
        let media = media["media"].as_array().into_iter().flatten().map(|read| Read {
            image: read["image"].as_str().unwrap_or_default().to_owned(),
            bytes: read["bytes"].as_u64().unwrap_or_default(),
            size: read["size"].as_u64().unwrap_or_default(),
        });
        let is_report =
            |event: &&Value| event["type"].as_str().is_some_and(|kind| kind.starts_with("report."));
        let report = events["events"].as_array().into_iter().flatten().find(is_report);
        let reported_at = report.and_then(|event| event["time"].as_str()?.parse::<Timestamp>().ok());
        let seconds = |(from, to): (Timestamp, Timestamp)| to.duration_since(from).as_secs_f64();
        Self { first_report: powered_on.zip(reported_at).map(seconds), media: media.collect() }
    }

    /// The numbers as sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let first =
            self.first_report.map(|seconds| format!("first report {seconds:.1} s after the power-on"));
        let read = |read: &Read| {
            format!("{} bytes were read of the {} medium, which has {}", read.bytes, read.image, read.size)
        };
        first.into_iter().chain(self.media.iter().map(read)).collect()
    }

    /// The numbers as a document.
    pub(super) fn document(&self) -> Value {
        let media = self.media.iter();
        let media: Vec<Value> = media
            .map(|read| json!({ "image": read.image, "bytes": read.bytes, "size": read.size }))
            .collect();
        json!({ "first_report_seconds": self.first_report, "media": media })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_and_the_reads_of_the_media_are_the_numbers() {
        let media = json!({ "media": [{ "image": "boot", "bytes": 18, "size": 17 }, { "image": "task", "bytes": 2, "size": 3 }] });
        let event = |kind: &str, time: &str| json!({ "type": kind, "time": time });
        let events = json!({ "events": [
            event("step.started", "2026-01-02T03:04:05.000Z"), event("report.progress", "2026-01-02T03:04:26.500Z"),
            event("report.success", "2026-01-02T03:05:00.000Z"),
        ] });
        let powered_on = "2026-01-02T03:04:05Z".parse().ok();
        let numbers = Numbers::from_documents(&media, &events, powered_on);
        assert_eq!(
            numbers.sentences(),
            [
                "first report 21.5 s after the power-on",
                "18 bytes were read of the boot medium, which has 17",
                "2 bytes were read of the task medium, which has 3",
            ]
        );
        assert_eq!(numbers.document()["media"][0], json!({ "image": "boot", "bytes": 18, "size": 17 }));
        // A machine that never reported, or was never powered on, has no such time.
        assert_eq!(Numbers::from_documents(&media, &json!({ "events": [] }), powered_on).first_report, None);
        assert_eq!(
            Numbers::from_documents(&media, &events, None).document()["first_report_seconds"],
            Value::Null
        );
    }
}
