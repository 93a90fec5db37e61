//! Jobs with `delivery: media`: the OS image on the medium, and results that arrive as reads of it.

use std::fs::DirEntry;
use std::path::Path;
use std::time::Duration;

use beacon::{BeaconStep, CodeBook, Message, Symbol};
use iso9660::{Image, ReadAt, Window};
use lab_bmc::{Fault, FaultEffect, FaultTrigger};
use lab_machines::maintenance_os::unit;
use lab_machines::{InstallerBehaviour, ServerSpec};
use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Client, Scene, recipe, silent, soon};

fn on_media() -> Value {
    let mut recipe = recipe();
    recipe["$schema"] = json!("https://shoal.dev/provisioner/recipe-v2.schema.json");
    recipe["delivery"] = json!("media");
    recipe
}

async fn create(scene: &Scene, serial: &str) -> String {
    let body = json!({ "server_serial": serial, "recipe": on_media() });
    scene.admin.post("/api/v1/jobs", &body).await.expect(202)["job_id"].as_str().unwrap().to_owned()
}

/// A server whose machine reports by reads without pauses.
fn quick(serial: &str, behaviour: InstallerBehaviour) -> ServerSpec {
    let mut spec = ServerSpec::new(serial);
    spec.behaviour = InstallerBehaviour { beacon_pause: Duration::from_millis(2), ..behaviour };
    spec
}

/// The bytes of all files below a folder, but for the database and the boot image, which is stored once for all jobs.
fn stored(folder: &Path) -> u64 {
    let of = |entry: DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() && name != "maintenance" => stored(&entry.path()),
            kind if kind.is_file() && !name.starts_with("provisioner.db") => entry.metadata().unwrap().len(),
            _ => 0,
        }
    };
    std::fs::read_dir(folder).unwrap().map(|entry| of(entry.unwrap())).sum()
}

fn of_type<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == name).collect()
}

/// Waits for the end of a job; the time to the next look at the power state is skipped.
async fn ended(scene: &Scene, id: &str) -> Value {
    let said = |job: &Value| {
        job["outcome"] != Value::Null
            || job["wait"]["detail"].as_str().is_some_and(|detail| detail.contains("success was read"))
    };
    while scene.admin.wait(id, "a result", said).await["outcome"] == Value::Null {
        scene.skip(Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    scene.complete_skipping(id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_without_a_network_is_installed_from_its_medium_and_reports_by_reads_of_it() {
    let scene = Scene::start(vec![quick("DEL-1", InstallerBehaviour::default())]).await;
    let data = scene.folder.path().join("data");
    let before = stored(&data);
    assert!(before > 10_000, "the OS image is in the registry: {before} bytes");
    let id = create(&scene, "DEL-1").await;
    let job = ended(&scene, &id).await;
    let more = stored(&data).saturating_sub(before);
    assert!(
        more < 10_000,
        "{more} bytes more: the medium is computed from the blobs of the registry, nothing is stored twice"
    );
    assert_eq!(job["outcome"], "succeeded", "{}", scene.admin.event_log(&id).await);
    let events = scene.admin.events(&id).await;
    let done: Vec<&str> = of_type(&events, "report.progress")
        .iter()
        .filter_map(|event| event["data"]["step"].as_str())
        .collect();
    assert_eq!(done, ["partition.service", "image-linux.service", "bootloader-linux.service"]);
    assert_eq!(of_type(&events, "report.success")[0]["data"], json!({ "via": "media" }));
    assert_eq!(of_type(&events, "report.success")[0]["actor"], "media");
    assert_eq!(of_type(&events, "report.confirmed").len(), 1);
    // The job has no right to pull: the medium holds everything.
    assert_eq!(scene.admin.job(&id).await["task_iso_path"], Value::Null);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_is_said_by_reads_names_the_step_and_the_machine_stays_on() {
    let behaviour = InstallerBehaviour::failing_at(unit::BOOTLOADER_LINUX);
    let scene = Scene::start(vec![quick("DEL-2", behaviour)]).await;
    let id = create(&scene, "DEL-2").await;
    let job = ended(&scene, &id).await;
    assert_eq!(
        (&job["outcome"], &job["failed_step"]),
        (&json!("failed"), &json!("bootloader-linux.service"))
    );
    let events = scene.admin.events(&id).await;
    assert_eq!(of_type(&events, "report.failed")[0]["data"], json!({ "via": "media" }));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_the_registry_does_not_hold_is_refused_at_creation_with_words() {
    let scene = Scene::start(vec![silent("DEL-3")]).await;
    let mut recipe = on_media();
    recipe["oci_url"] = json!("controller.internal:8080/os-images/missing:1");
    let body = json!({ "server_serial": "DEL-3", "recipe": recipe });
    let refused = scene.admin.post("/api/v1/jobs", &body).await.refused(400, "validation_error");
    assert_eq!(
        (&refused["details"][0]["path"], &refused["details"][0]["code"]),
        (&json!("/recipe/oci_url"), &json!("os_image"))
    );
    assert!(
        refused["details"][0]["message"].as_str().unwrap().contains("does not hold os-images/missing:1"),
        "{refused}"
    );
    scene.end().await;
}

/// The task image of a silent machine, read by ranges as a BMC does.
struct Medium {
    client: Client,
    url: String,
    len: u64,
    beacon: u64,
    book: CodeBook,
}

/// The first bytes of an image; the rest is not needed to find the beacon.
struct Start(Vec<u8>, u64);

impl ReadAt for Start {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let start = usize::try_from(offset).unwrap();
        let bytes = self.0.get(start..start + buffer.len()).ok_or(std::io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }
}

impl Medium {
    async fn of(scene: &Scene, serial: &str) -> Self {
        let slots = scene.bmc(serial).snapshot().slots;
        let urls = slots.iter().filter_map(|slot| slot.image.as_ref()).map(|url| url.as_str().to_owned());
        let url = urls.into_iter().find(|url| url.contains("/task.")).unwrap();
        let client = scene.anonymous();
        let head = client.send(client.request(Method::HEAD, &url)).await;
        let len: u64 = head.header("content-length").unwrap().parse().unwrap();
        let start =
            client.send(client.request(Method::GET, &url).header("Range", "bytes=0-2097151")).await.body;
        let image = Image::open(Start(start.clone(), len)).unwrap();
        let job: Value = serde_json::from_slice(&image.read("job.json", 1 << 20).unwrap()).unwrap();
        assert_eq!(job["registry"], Value::Null, "the job has no right to pull");
        let part = image.extents("os-image.000").unwrap()[0];
        let window = Window::new(Start(start, len), part.offset, part.len).unwrap();
        let volume = Image::open(window).unwrap();
        let names: Vec<String> = volume.list("").unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["beacon", "blobs", "index.json", "oci-layout"]);
        let beacon = part.offset + volume.extents("beacon").unwrap()[0].offset;
        let secret = job["webhook_token"].as_str().unwrap();
        let book = CodeBook::new(secret.as_bytes(), job["job_id"].as_str().unwrap());
        Self { client, url, len, beacon, book }
    }

    async fn read(&self, offset: u64, len: u64) {
        let range = format!("bytes={}-{}", offset, (offset + len).min(self.len) - 1);
        let read = self.client.send(self.client.request(Method::GET, &self.url).header("Range", range)).await;
        assert_eq!(read.status, 206);
    }

    async fn say(&self, message: Message) {
        for symbol in message.symbols() {
            self.say_set(symbol, 0).await;
            self.say_set(symbol, 1).await;
        }
    }

    async fn say_set(&self, symbol: Symbol, set: usize) {
        for sector in self.book.reads(symbol)[set] {
            // Read-ahead of 256 KiB, as measured with QEMU.
            self.read(self.beacon + sector, 2048 + (256 << 10)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_before_the_power_on_and_by_strangers_say_nothing_and_a_repeated_message_counts_once() {
    let scene = Scene::start(vec![silent("DEL-4")]).await;
    let id = create(&scene, "DEL-4").await;
    let on_wait = |job: &Value| job["wait"]["reason"] == "media_report";
    scene.wait_skipping(&id, "the wait", on_wait).await;
    let medium = Medium::of(&scene, "DEL-4").await;
    let stranger = CodeBook::new(b"guessed", &id);
    for sector in stranger.reads(Symbol::Success).into_iter().flatten() {
        medium.read(medium.beacon + sector, 2048).await;
    }
    // One set is lost in a cache; the other is enough, and repetitions are ignored.
    medium.say_set(Symbol::Started, 1).await;
    medium.say(Message::Started).await;
    medium.say(Message::Done(BeaconStep::Partition)).await;
    let progress = |events: &[Value]| of_type(events, "report.progress").len();
    while progress(&scene.admin.events(&id).await) < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    medium.say(Message::Started).await;
    let job = scene.admin.job(&id).await;
    assert_eq!((&job["outcome"], progress(&scene.admin.events(&id).await)), (&Value::Null, 2));
    let explained = scene.admin.explain(&id).await.to_string();
    assert!(explained.contains("partition.service is done"), "{explained}");
    medium.say(Message::Failed { step: BeaconStep::Image, class: Some(beacon::Class::Image) }).await;
    let job = ended(&scene, &id).await;
    assert_eq!((&job["outcome"], &job["failed_step"]), (&json!("failed"), &json!("image-linux.service")));
    assert!(job["failure"].to_string().contains("does not match its digests"), "{job}");
    assert_eq!(job["failure"]["class"], "media");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bmc_that_copies_the_medium_makes_the_channel_unusable_and_explain_says_so() {
    let scene = Scene::start(vec![silent("DEL-5")]).await;
    let id = create(&scene, "DEL-5").await;
    scene.wait_skipping(&id, "the wait", |job| job["wait"]["reason"] == "media_report").await;
    let medium = Medium::of(&scene, "DEL-5").await;
    let mut at = medium.beacon;
    while scene.admin.events(&id).await.iter().all(|event| event["type"] != "report.media-unusable") {
        assert!(at < medium.beacon + beacon::FILE_LEN, "the copy was not recognised");
        medium.read(at, 4 << 20).await;
        at += 4 << 20;
    }
    medium.say(Message::Success).await;
    assert!(of_type(&scene.admin.events(&id).await, "report.success").is_empty());
    scene.skip(Duration::from_secs(30));
    let words = |job: &Value| {
        job["wait"]["detail"].as_str().is_some_and(|detail| detail.contains("copies the whole medium"))
    };
    scene.admin.wait(&id, "the words of the wait", words).await;
    scene.end().await;
}

/// Waits until a job has looked at its machine at this time and waits for the next look.
async fn looked(scene: &Scene, id: &str) {
    let now = scene.now();
    let waits = |job: &Value| {
        let poll = job["wait"]["poll_at"].as_str().map(|at| at.parse::<model::Time>().unwrap());
        job["outcome"] != Value::Null || poll.is_some_and(|at| at > now)
    };
    scene.admin.wait(id, "a look at the machine", waits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_loses_its_power_before_it_has_said_anything_is_not_installed() {
    // Its first message takes longer than this test.
    let mut spec = silent("DEL-6");
    spec.behaviour.beacon_pause = Duration::from_secs(3600);
    let scene = Scene::start(vec![spec]).await;
    let id = create(&scene, "DEL-6").await;
    scene.wait_skipping(&id, "the wait", |job| job["wait"]["reason"] == "media_report").await;
    let bmc = scene.bmc("DEL-6");
    soon("a boot", bmc.wait_for(|bmc| bmc.boots_from_media == 1)).await;
    let off = FaultEffect::Lie(json!({ "PowerState": "Off" }));
    let system = FaultTrigger::Request { method: "GET".to_owned(), path_ends_with: "437XR1138R2".to_owned() };
    // Seen off once, as while the firmware restarts the host in its self-test.
    bmc.inject(Fault::once(system.clone(), off.clone()));
    scene.skip(Duration::from_secs(200));
    looked(&scene, &id).await;
    for _ in 0..2 {
        scene.skip(Duration::from_secs(31));
        looked(&scene, &id).await;
    }
    assert_eq!(scene.admin.job(&id).await["outcome"], Value::Null, "{}", scene.admin.event_log(&id).await);
    bmc.inject(Fault::always(system, off));
    for _ in 0..2 {
        scene.skip(Duration::from_secs(31));
        looked(&scene, &id).await;
    }
    let job = scene.complete_skipping(&id).await;
    assert_eq!((&job["outcome"], &job["failure"]["class"]), (&json!("failed"), &json!("installer")), "{job}");
    assert!(job["failure"].to_string().contains("before it said anything"), "{job}");
    scene.end().await;
}
