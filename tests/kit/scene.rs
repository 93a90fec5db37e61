//! A controller in this process, started as `shoal serve` starts it, with simulated servers.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use controller::app::{self, RunningController};
use lab_bmc::SimBmc;
use lab_machines::{Farm, ServerSpec, SimulatedServer, images};
use model::{Clock, Time};
use secrecy::ExposeSecret;
use serde_json::Value;
use settings::{Settings, Sources};
use tempfile::TempDir;

use super::clock::SkippingClock;
use super::{Client, Polls, TIME_LIMIT, start_farm};

/// The receivers and web servers of the tests.
pub(super) const LOOPBACK: &str = "127.0.0.0/8,::1/128";

/// Writes the maintenance ISO that simulated machines boot.
pub(crate) fn maintenance_iso(folder: &Path) -> PathBuf {
    static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut bytes = Vec::new();
        images::maintenance_iso().unwrap().write_to(&mut bytes).unwrap();
        bytes
    });
    let path = folder.join("maintenance.iso");
    std::fs::write(&path, IMAGE.as_slice()).unwrap();
    path
}

/// A controller with registered simulated servers and a pushed OS image.
pub(crate) struct Scene {
    /// The client with the admin token.
    pub(crate) admin: Client,
    pub(crate) farm: Farm,
    pub(crate) running: RunningController,
    pub(crate) folder: TempDir,
    clock: Arc<SkippingClock>,
}

impl Scene {
    /// Starts a controller with default settings.
    pub(crate) async fn start(specs: Vec<ServerSpec>) -> Self {
        Self::start_with(specs, |_settings, _folder| {}).await
    }

    /// Starts a controller with changed settings. The folder is for files that the settings name.
    pub(crate) async fn start_with(
        specs: Vec<ServerSpec>,
        change: impl FnOnce(&mut Settings, &Path),
    ) -> Self {
        let scene = Self::bare(specs, change).await;
        for server in scene.farm.servers() {
            scene.admin.register(server).await;
        }
        scene.admin.push_image().await;
        scene
    }

    /// Starts a controller without registered servers and without an OS image.
    pub(crate) async fn bare(specs: Vec<ServerSpec>, change: impl FnOnce(&mut Settings, &Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let iso = maintenance_iso(folder.path());
        let flags = [
            ("STORAGE_ROOT", folder.path().join("data").display().to_string()),
            ("CONTROLLER_HTTP_ADDR", "127.0.0.1:0".to_owned()),
            ("CONTROLLER_HTTPS_ADDR", "127.0.0.1:0".to_owned()),
            ("MAINTENANCE_ISO_URL", iso.display().to_string()),
            ("IMAGE_DIR", folder.path().display().to_string()),
            ("FETCH_ALLOW_CIDRS", LOOPBACK.to_owned()),
        ];
        let mut settings = Settings::load(&Sources {
            flags: flags.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            environment: &|_| None,
            variables: Vec::new(),
            file: None,
        })
        .unwrap();
        change(&mut settings, folder.path());
        let clock = Arc::new(SkippingClock::default());
        let started = Box::pin(app::start(settings, Arc::clone(&clock) as Arc<dyn Clock>));
        let running = started.await.unwrap();
        let anonymous = Client::anonymous(format!("http://{}", running.api));
        let admin = match &running.first_token {
            Some(token) => anonymous.with_token(token.expose_secret()),
            None => anonymous,
        };
        let farm = start_farm(specs, folder.path()).await;
        Self { admin, farm, running, folder, clock }
    }

    pub(crate) fn anonymous(&self) -> Client {
        self.admin.without_token()
    }

    pub(crate) fn server(&self, serial: &str) -> &SimulatedServer {
        self.farm.server(serial).unwrap()
    }

    pub(crate) fn bmc(&self, serial: &str) -> &SimBmc {
        &self.server(serial).bmc
    }

    /// Skips time on the controller's clock.
    pub(crate) fn skip(&self, by: Duration) {
        self.clock.skip(by);
        self.running.engine.wake();
    }

    /// The time on the controller's clock.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Skips to the deadline of the job's wait, and by ten seconds once it has passed: to the controller a long skip can be an outage, after
    /// which an overdue wait has a minute more. Short ones are none.
    pub(crate) fn skip_deadline(&self, job: &Value) {
        let deadline: Time = job["wait"]["deadline"].as_str().unwrap().parse().unwrap();
        let left = deadline.since(self.now());
        self.skip(if left.is_zero() { Duration::from_secs(10) } else { left + Duration::from_secs(1) });
    }

    /// Skips to the next check of the job's wait, if the wait has one. The machine is given its time to report.
    fn skip_wait(&self, job: &Value) {
        if ["report", "media_report"].iter().any(|reason| job["wait"]["reason"] == *reason) {
            return;
        }
        let Some(poll_at) = job["wait"]["poll_at"].as_str() else { return };
        let poll_at: Time = poll_at.parse().unwrap();
        let now = self.clock.now();
        if poll_at > now {
            self.skip(poll_at.since(now));
        }
    }

    /// Skips the pauses of all open jobs until the future has ended.
    pub(crate) async fn while_skipping<T>(&self, work: impl Future<Output = T>) -> T {
        let skip = async {
            let mut polls = Polls::new();
            loop {
                let open = self.admin.get("/api/v1/jobs?filter=-condition%3Aended").await.expect(200);
                for job in open["jobs"].as_array().unwrap() {
                    self.skip_wait(&self.admin.job(job["job_id"].as_str().unwrap()).await);
                }
                polls.pause().await;
            }
        };
        tokio::select! {
            done = work => done,
            never = skip => never,
        }
    }

    /// Waits until a job satisfies `wanted` and skips pauses on the way. A wait for a report is not skipped.
    pub(crate) async fn wait_skipping(&self, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let (deadline, mut polls) = (Instant::now() + TIME_LIMIT, Polls::new());
        loop {
            let job = self.admin.job(id).await;
            if wanted(&job) {
                return job;
            }
            if Instant::now() > deadline || job["status"] == "complete" {
                let explained = self.admin.get(&format!("/api/v1/jobs/{id}/explain")).await.text();
                panic!(
                    "timeout: {what}; the job is {job:#}\n{explained}\n{}",
                    self.admin.event_log(id).await
                );
            }
            self.skip_wait(&job);
            polls.pause().await;
        }
    }

    /// Waits until a job has ended and skips pauses on the way.
    pub(crate) async fn complete_skipping(&self, id: &str) -> Value {
        self.wait_skipping(id, "the end", |job| job["status"] == "complete").await
    }

    /// Stops the servers and the controller.
    pub(crate) async fn end(self) {
        drop(self.end_keeping().await);
    }

    /// Stops the servers and the controller. Returns the folder with its data.
    pub(crate) async fn end_keeping(self) -> TempDir {
        self.farm.shutdown().await;
        // On the heap: otherwise every test that ends a scene is a large future.
        Box::pin(self.running.stop()).await;
        self.folder
    }
}
