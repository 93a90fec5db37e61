//! The stage of the benchmark that keeps all cores busy: people and machines come before new work.
//!
//! ```text
//!   servers   first third        second third                 last third
//!             wait for a report  released all at once         one POST of a job every 5 ms
//!                 │                    │ (keeps cores busy)        │
//!                 └ a report every 20 ms, until the job shows it   └ latency of the response
//! ```

use parking_lot::Mutex;

use super::client::{Latencies, at_rate};
use super::stages::{BenchRun, CONCURRENCY, LogPosition};

/// Number of servers of each third, at most.
const THIRD: usize = 1000;
/// POSTs of jobs per second.
const POSTS: f64 = 200.0;
/// Reports per second.
const REPORTS: f64 = 50.0;

type Jobs = Vec<(String, String)>;

impl BenchRun<'_> {
    /// Measures POSTs of jobs and reports while a thousand jobs run.
    pub(super) async fn busy(&self) -> anyhow::Result<()> {
        let third = THIRD.min(self.options.servers / 3);
        let serials: Vec<String> = self.bmcs().iter().map(|bmc| bmc.serial.clone()).take(3 * third).collect();
        let (first, rest) = serials.split_at(third);
        let (second, last) = rest.split_at(third);
        let complete = self.api().jobs_in("complete").await?;
        let mut log = LogPosition { after: self.last_event(0).await?, started: 0 };

        let mut waiting = self.create_all(first, None).await?.1;
        self.started(&mut log, third).await?;
        // As many reports as the POSTs take time.
        let later = waiting.split_off((third / 4).max(1).min(waiting.len()));
        self.drain(true).await?;
        let mut others = self.create_all(second, None).await?.1;
        self.drain(false).await?;
        let ((mut posts, posted), mut visible) = tokio::try_join!(
            self.create_all(last, Some(POSTS)),
            at_rate(waiting, Some(REPORTS), CONCURRENCY, |(serial, job)| async move {
                self.report_until_visible(&serial, &job).await
            })
        )?;
        self.figures.waits("POST of a job, 200/s, all cores busy", &mut posts, "p99 50 ms")?;
        self.figures.waits("a report until the job shows it, likewise", &mut visible, "p99 150 ms")?;

        others.extend(posted);
        others.extend(later);
        self.started(&mut log, 3 * third).await?;
        at_rate(others, None, CONCURRENCY, |(serial, job)| async move { self.report(&serial, &job).await })
            .await?;
        self.until("complete", complete + 3 * third).await
    }

    /// Creates a job for each server. Returns the latencies and the jobs.
    async fn create_all(&self, serials: &[String], rate: Option<f64>) -> anyhow::Result<(Latencies, Jobs)> {
        let jobs = Mutex::new(Vec::with_capacity(serials.len()));
        let waits = at_rate(serials.iter().collect(), rate, 256, |serial| async {
            let job = self.create(serial).await?;
            jobs.lock().push((serial.clone(), job));
            Ok(())
        })
        .await?;
        Ok((waits, jobs.into_inner()))
    }
}
