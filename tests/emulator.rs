//! A whole job on a BMC of another project: sushy-tools' emulator, with its fake driver.
//!
//! ```text
//!   controller --Redfish--> sushy-emulator (a child process)        odd status codes, slow power, no serial, no Once
//!                               |  PowerState On, images in slots
//!                               v
//!   host (this test) ------- MaintenanceOs --> reads the inserted URLs, installs, reports
//! ```
//!
//! The emulator boots nothing, so the test polls its power state: when it is on with media in its slots, the test runs the
//! maintenance OS.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab_machines::{
    Console, InstallOutcome, InstallResult, InstallerBehaviour, Machine, MaintenanceOs, MediaBoot, Medium,
    Tools, http,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::kit::{BMC_PASSWORD, BMC_USER, Scene, TIME_LIMIT};

/// The id of the emulator's only machine.
const SYSTEM: &str = "58893887-8974-2487-2389-841168418919";
/// The pause between two polls of the emulator, which is a development server in Python.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A running emulator. It is killed when this is dropped.
struct Emulator {
    child: Child,
    client: reqwest::Client,
    url: String,
    log: PathBuf,
}

impl Emulator {
    /// Starts an emulator with two CD slots and a floppy, over HTTPS with an htpasswd file when `secure`.
    async fn start(folder: &Path, secure: bool) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut config = format!(
            "SUSHY_EMULATOR_LISTEN_IP='127.0.0.1'\n\
             SUSHY_EMULATOR_LISTEN_PORT={port}\n\
             SUSHY_EMULATOR_FAKE_DRIVER=True\n\
             SUSHY_EMULATOR_STATE_DIR={state:?}\n\
             SUSHY_EMULATOR_VMEDIA_DEVICES={{\n\
             'Cd1':{{'Name':'Virtual CD 1','MediaTypes':['CD','DVD']}},\n\
             'Cd2':{{'Name':'Virtual CD 2','MediaTypes':['CD','DVD']}},\n\
             'Floppy':{{'Name':'USB','MediaTypes':['Floppy','USBStick']}}}}\n\
             SUSHY_EMULATOR_FAKE_SYSTEMS=[{{'uuid':'{SYSTEM}','name':'fake1','power_state':'Off',\
             'nics':[{{'mac':'00:5c:52:31:3a:9c','ip':'172.22.0.100'}}]}}]\n",
            state = folder.display().to_string(),
        );
        let (mut scheme, mut ca) = ("http", None);
        if secure {
            let key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
            let hash = bcrypt::hash(BMC_PASSWORD, 4).unwrap();
            let file = |name: &str, content: &str| {
                let path = folder.join(name);
                std::fs::write(&path, content).unwrap();
                path.display().to_string()
            };
            config += &format!(
                "SUSHY_EMULATOR_SSL_CERT={:?}\nSUSHY_EMULATOR_SSL_KEY={:?}\nSUSHY_EMULATOR_AUTH_FILE={:?}\n",
                file("emulator.crt", &key.cert.pem()),
                file("emulator.key", &key.signing_key.serialize_pem()),
                file("emulator.htpasswd", &format!("{BMC_USER}:{hash}\n")),
            );
            (scheme, ca) = ("https", Some(key.cert.pem()));
        }
        let path = folder.join("emulator.conf");
        std::fs::write(&path, config).unwrap();
        let log = folder.join("emulator.log");
        let output = std::fs::File::create(&log).unwrap();
        let child = Command::new("sushy-emulator")
            .arg("--config")
            .arg(&path)
            .arg("--fake")
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .expect("start sushy-emulator (PyPI package sushy-tools)");
        let client = http::api_client(ca.as_deref()).unwrap();
        let emulator = Self { child, client, url: format!("{scheme}://127.0.0.1:{port}"), log };
        let deadline = Instant::now() + TIME_LIMIT;
        while emulator.get("/redfish/v1").await.is_none() {
            assert!(Instant::now() < deadline, "the emulator does not respond:\n{}", emulator.log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        emulator
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let request = self.client.get(format!("{}{path}", self.url)).basic_auth(BMC_USER, Some(BMC_PASSWORD));
        request.send().await.ok()?.error_for_status().ok()?.json().await.ok()
    }

    async fn is_on(&self) -> bool {
        let system = self.get(&format!("/redfish/v1/Systems/{SYSTEM}")).await;
        system.is_some_and(|system| system["PowerState"] == "On")
    }

    async fn media(&self) -> Vec<Medium> {
        let mut media = Vec::new();
        for slot in ["Cd1", "Cd2", "Floppy"] {
            let found = self.get(&format!("/redfish/v1/Systems/{SYSTEM}/VirtualMedia/{slot}")).await.unwrap();
            if let Some(url) = found["Image"].as_str().filter(|url| !url.is_empty()) {
                media.push(Medium { slot: slot.to_owned(), url: url.to_owned() });
            }
        }
        media
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The process may have ended already; then there is nothing to kill.
        let _gone = self.child.kill();
        self.child.wait().unwrap();
    }
}

/// Acts as a machine that is off: waits for power-on, boots the first image in its drives, installs.
async fn boot_once(emulator: &Emulator, serial: &str, disks: &Path) -> InstallResult {
    while !emulator.is_on().await {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let machine = Machine::new(serial, Machine::usual_disks(), disks);
    let tools = Tools::new().unwrap();
    let os = MaintenanceOs::new(Arc::new(machine), InstallerBehaviour::default(), tools, Console::default());
    let media = emulator.media().await;
    let booted = media.first().expect("a medium is in a drive when the power comes on").slot.clone();
    os.run(MediaBoot { generation: 1, booted, media, cancel: CancellationToken::new() }).await
}

async fn a_whole_job(secure: bool) {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    scene.admin.push_image().await;
    let folder = scene.folder.path().join("emulator");
    std::fs::create_dir_all(&folder).unwrap();
    let emulator = Emulator::start(&folder, secure).await;
    let serial = "SUSHY-1";
    scene.admin.register_at(serial, &emulator.url).await;
    // The emulator's system shows no serial number, and its chassis shows an invented one.
    let allow = json!({ "allow_unverified_serial": true });
    scene.admin.patch(&format!("/api/v1/servers/{serial}"), &allow).await.expect(200);

    let id = scene.admin.create_job(serial).await;
    let host = boot_once(&emulator, serial, &folder);
    let (report, job) = tokio::join!(tokio::time::timeout(TIME_LIMIT, host), scene.admin.complete(&id));

    let event_log = scene.admin.event_log(&id).await;
    let report =
        report.unwrap_or_else(|_| panic!("the machine was not booted\n{event_log}\n{}", emulator.log()));
    assert!(matches!(report.outcome, InstallOutcome::Succeeded(_)), "{report:?}\n{event_log}");
    assert_eq!(job["outcome"], "succeeded", "{event_log}");
    assert_eq!(job["cleanup"]["state"], "done", "{event_log}");
    assert!(emulator.media().await.is_empty(), "a slot still holds an image\n{event_log}");
    assert!(emulator.is_on().await, "the machine is not on\n{event_log}");
    drop(emulator);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sushy-emulator, run by .ci/run"]
async fn a_foreign_emulator_takes_a_whole_job_over_http() {
    a_whole_job(false).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs sushy-emulator, run by .ci/run"]
async fn a_foreign_emulator_takes_a_whole_job_over_https_with_a_password() {
    a_whole_job(true).await;
}
