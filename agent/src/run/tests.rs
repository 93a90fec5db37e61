use std::{
    collections::BTreeMap,
    io::Write,
    path::{Path, PathBuf},
};

use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::device::FileDisk;
use crate::discovery::read_medium;
use crate::test_kit::{FakeHttp, VirtualClock, bootable_image, disk_image, is_filled, job_json, task_image};

const MIB: u64 = 1 << 20;

pub(super) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// A controller with a registry that holds `layer` as the only layer of an artifact.
pub(super) fn controller(layer: Vec<u8>, media_type: &str) -> FakeHttp {
    let config = b"{}".to_vec();
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest(&config), "size": 2},
        "layers": [{"mediaType": media_type, "digest": digest(&layer), "size": layer.len()}],
    });
    let blob = format!("http://registry.test/v2/os/disk/blobs/{}", digest(&layer));
    FakeHttp::new(move |request| {
        if request.url == "http://registry.test/v2/os/disk/manifests/1" {
            return Ok((200, Vec::new(), manifest.to_string().into_bytes()));
        }
        if request.url == blob {
            return Ok((200, Vec::new(), layer.clone()));
        }
        let report = request.url.contains("/status-webhook/");
        Ok((if report { 200 } else { 404 }, Vec::new(), Vec::new()))
    })
}

/// A rescue system with an SSH server that needs no program.
struct OneMachine;

impl RescueHost for OneMachine {
    fn start(&self, keys: &crate::rescue::Keys, _log: &Log) -> Result<RescueReach, String> {
        if keys.is_empty() {
            return Err("this medium has no SSH server".to_owned());
        }
        let addresses = vec!["192.0.2.7".parse().unwrap()];
        Ok(RescueReach {
            addresses,
            ssh_host_key: Some("SHA256:x".to_owned()),
            consoles: vec!["tty1".to_owned()],
        })
    }
}

/// Two disks of a machine; the task may write to the first only.
pub(super) struct Room {
    folders: Vec<tempfile::TempDir>,
    paths: BTreeMap<String, PathBuf>,
    facts: Vec<DiskFacts>,
}

impl Room {
    pub(super) fn new(sizes: &[u64]) -> Self {
        let mut room = Self { folders: Vec::new(), paths: BTreeMap::new(), facts: Vec::new() };
        for (index, mib) in sizes.iter().enumerate() {
            let name = format!("sd{}", char::from(b'a' + index as u8));
            let (folder, path) = disk_image(mib * MIB, 0xd0 + index as u8);
            room.folders.push(folder);
            room.paths.insert(name.clone(), path);
            let serial = Some(format!("SER-{name}"));
            room.facts.push(DiskFacts {
                name,
                bytes: mib * MIB,
                sector: 512,
                serial,
                ..DiskFacts::default()
            });
        }
        room
    }

    fn run(&self, http: &FakeHttp, recipe: &serde_json::Value) -> Outcome {
        let job = job_json("SN1", "2026-01-02T03:04:05Z");
        let recipe = serde_json::to_vec(recipe).unwrap();
        let image = task_image(&job, "", &[("recipe.json", &recipe)]);
        let found = read_medium("sr0", image).unwrap().remove(0);
        let (clock, log) = (VirtualClock::default(), Log::new(Vec::new()));
        let (outcome, delivery) = self.run_with(http, &found, &crate::medium::open_medium, &clock, &log);
        assert_eq!(delivery, ReportDelivery::Acknowledged);
        outcome
    }

    /// Runs a retry of a job that wrote to the disk `former`.
    fn retry(&self, http: &FakeHttp, former: &serde_json::Value) -> Outcome {
        let mut job = job_json("SN1", "2026-01-02T03:04:05Z");
        job["disk_before"] = former.clone();
        let list = || self.facts.clone();
        self.run_listed(http, (&job, &install()), &list, &VirtualClock::default())
    }

    fn run_listed(
        &self,
        http: &dyn Http,
        (job, recipe): (&serde_json::Value, &serde_json::Value),
        list: &dyn Fn() -> Vec<DiskFacts>,
        clock: &VirtualClock,
    ) -> Outcome {
        let image = task_image(job, "", &[("recipe.json", &serde_json::to_vec(recipe).unwrap())]);
        let found = read_medium("sr0", image).unwrap().remove(0);
        let log = Log::new(Vec::new());
        self.run_on(http, &found, &crate::medium::open_medium, list, clock, &log).0
    }

    pub(super) fn run_with(
        &self,
        http: &FakeHttp,
        found: &FoundTask,
        medium: &OpenMedium<'_>,
        clock: &VirtualClock,
        log: &Log,
    ) -> (Outcome, ReportDelivery) {
        self.run_on(http, found, medium, &|| self.facts.clone(), clock, log)
    }

    fn run_on(
        &self,
        http: &dyn Http,
        found: &FoundTask,
        medium: &OpenMedium<'_>,
        list: &dyn Fn() -> Vec<DiskFacts>,
        clock: &VirtualClock,
        log: &Log,
    ) -> (Outcome, ReportDelivery) {
        let machine = Machine {
            http,
            foreign_http: http,
            clock,
            log,
            disks: list,
            media: vec!["sr0".to_owned()],
            open: &|facts| {
                Ok(Box::new(FileDisk::open(&self.paths[&facts.name], facts.sector)?) as Box<dyn Disk>)
            },
            peek: &|facts| {
                Ok(Box::new(FileDisk::open_to_read(&self.paths[&facts.name], facts.sector)?) as Box<dyn Disk>)
            },
            drivers: &crate::stable_disks::DriverLoads::default,
            linux: &crate::linux::LinuxHost::default(),
            inventory: &|| crate::inventory::read(Path::new("/nowhere"), Path::new("/nowhere")),
            rescue: &OneMachine,
            medium,
            report_limit: None,
        };
        run(&machine, found)
    }

    pub(super) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read::<&Path>(self.paths[name].as_ref()).unwrap()
    }

    pub(super) fn is_untouched(&self, name: &str) -> bool {
        let fill = 0xd0 + (name.as_bytes()[2] - b'a');
        is_filled(&self.bytes(name), fill)
    }
}

fn install() -> serde_json::Value {
    json!({"task_target": "install-image.target", "oci_url": "c.test:1/os/disk:1", "disk_hints": {"serial": "SER-sda"}})
}

fn step(outcome: &Outcome) -> (&str, &str) {
    match outcome {
        Outcome::Failed { step, message } => (step, message),
        Outcome::Success | Outcome::Reachable(_) => panic!("it succeeded"),
    }
}

/// The reports that were sent to the controller.
fn reports(http: &FakeHttp) -> Vec<serde_json::Value> {
    let requests = http.requests().into_iter().filter(|request| request.url.contains("status-webhook"));
    requests.map(|request| serde_json::from_slice(&request.body).unwrap()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn an_image_is_installed_on_the_chosen_disk_grown_and_reported_and_other_disks_stay() {
    let image = bootable_image(4 * MIB, 512);
    for layer in [image.clone(), gzip(&image)] {
        let room = Room::new(&[14, 14]);
        let http = controller(layer, "application/octet-stream");
        for _ in 0..2 {
            // The second run is the same job after a loss of power.
            assert_eq!(room.run(&http, &install()), Outcome::Success);
            let disk = FileDisk::open(&room.paths["sda"], 512).unwrap();
            let table = Table::read(&disk).unwrap().unwrap();
            assert_eq!(table.range(1).unwrap(), MIB..13 * MIB);
            let bytes = room.bytes("sda");
            assert!(bytes[MIB as usize..3 * MIB as usize] == image[MIB as usize..3 * MIB as usize]);
            assert!(room.is_untouched("sdb"));
        }
        let bodies: Vec<_> = http.requests().into_iter().filter(|request| !request.body.is_empty()).collect();
        let first: serde_json::Value = serde_json::from_slice(&bodies[1].body).unwrap();
        assert_eq!(
            (&first["step"], &first["disk"]["serial"]),
            (&json!("select-disk.service"), &json!("SER-sda"))
        );
        let last: serde_json::Value = serde_json::from_slice(&bodies.last().unwrap().body).unwrap();
        assert_eq!(last["status"], "success");
        assert!(last["log"].as_str().unwrap().contains("read back"));
    }
}

#[test]
fn nothing_is_written_when_the_disk_the_image_or_the_recipe_is_wrong() {
    let image = bootable_image(4 * MIB, 512);
    let cases = [
        (
            json!({"task_target": "install-image.target", "oci_url": "c.test:1/os/disk:1", "target_disk": "/dev/sda"}),
            image.clone(),
            ("select-disk.service", "input"),
        ),
        (
            json!({"task_target": "install-image.target", "oci_url": "c.test:1/os/disk:2", "disk_hints": {"serial": "SER-sda"}}),
            image.clone(),
            ("image-disk.service", "media"),
        ),
        (install(), bootable_image(4 * MIB, 4096), ("image-disk.service", "input")),
        (install(), bootable_image(20 * MIB, 512), ("image-disk.service", "input")),
        (install(), b"an error page".repeat(200), ("image-disk.service", "media")),
        (install(), b"short".to_vec(), ("image-disk.service", "media")),
        (
            json!({"task_target": "install-windows.target"}),
            image,
            ("provision-dispatcher.service", "installer"),
        ),
    ];
    for (recipe, layer, (unit, class)) in cases {
        let room = Room::new(&[14, 14]);
        let http = controller(layer, "application/octet-stream");
        let outcome = room.run(&http, &recipe);
        assert_eq!(step(&outcome).0, unit, "{outcome:?}");
        assert_eq!(reports(&http).pop().unwrap()["class"], class, "{outcome:?}");
        assert!(room.is_untouched("sda") && room.is_untouched("sdb"), "{recipe}");
    }
}

/// An image with an MBR: one partition of type Linux.
fn mbr_image(size: u64) -> Vec<u8> {
    let mut image = vec![0x11; size as usize];
    image[446..510].fill(0);
    image[446..462].copy_from_slice(&[0x80, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image
}

#[test]
fn an_image_with_an_mbr_is_written_to_sectors_of_512_bytes_only() {
    let image = mbr_image(4 * MIB);
    let http = controller(image.clone(), "application/octet-stream");
    let mut room = Room::new(&[14]);
    room.facts[0].sector = 4096;
    let outcome = room.run(&http, &install());
    assert_eq!(step(&outcome).0, "image-disk.service");
    assert!(step(&outcome).1.contains("sectors of 512 bytes"), "{outcome:?}");
    assert!(room.is_untouched("sda"));
    room.facts[0].sector = 512;
    assert_eq!(room.run(&http, &install()), Outcome::Success);
    assert!(room.bytes("sda").starts_with(&image));
}

/// The image with other entries in both copies of its GPT, of which the headers count `count`. Each has the first and the last sector.
fn with_entries(mut image: Vec<u8>, count: u32, entries: &[(u64, u64)]) -> Vec<u8> {
    let header_of = |image: &[u8], at: usize| u64::from_le_bytes(image[at + 72..at + 80].try_into().unwrap());
    for header in [512, image.len() - 512] {
        let table = header_of(&image, header) as usize * 512;
        let first = image[table..table + 128].to_vec();
        for (index, (from, to)) in entries.iter().enumerate() {
            let slot = &mut image[table + index * 128..][..128];
            slot.copy_from_slice(&first);
            slot[32..40].copy_from_slice(&from.to_le_bytes());
            slot[40..48].copy_from_slice(&to.to_le_bytes());
        }
        let sum = crc32fast::hash(&image[table..table + count as usize * 128]);
        image[header + 80..header + 84].copy_from_slice(&count.to_le_bytes());
        image[header + 88..header + 92].copy_from_slice(&sum.to_le_bytes());
        image[header + 16..header + 20].fill(0);
        let sum = crc32fast::hash(&image[header..header + 92]);
        image[header + 16..header + 20].copy_from_slice(&sum.to_le_bytes());
    }
    image
}

#[test]
fn a_gpt_that_breaks_a_rule_stays_as_the_image_has_it_and_the_job_succeeds() {
    let tables: [(u32, &[(u64, u64)]); 4] = [
        (4, &[(3, 34), (35, 4000)]),
        (128, &[(2048, 4000), (3000, 5000)]),
        (128, &[(0, 4000)]),
        // Boot code of some boards begins behind fewer entries.
        (56, &[(2048, 4000)]),
    ];
    for (count, entries) in tables {
        let image = with_entries(bootable_image(4 * MIB, 512), count, entries);
        for target in ["install-image.target", "install-windows.target"] {
            let room = Room::new(&[14]);
            let http = controller(image.clone(), "application/octet-stream");
            let mut recipe = install();
            recipe["task_target"] = json!(target);
            assert_eq!(room.run(&http, &recipe), Outcome::Success, "{entries:?}");
            assert!(room.bytes("sda").starts_with(&image), "{entries:?}");
            let last = reports(&http).pop().unwrap();
            assert!(last["log"].as_str().unwrap().contains("stay as they are"), "{last}");
        }
    }
}

#[test]
fn a_gpt_whose_entries_are_elsewhere_stays_because_boot_code_can_lie_before_them() {
    let mut image = bootable_image(4 * MIB, 512);
    image.copy_within(1024..1024 + 128 * 128, 40 * 512);
    image[1024..1024 + 128 * 128].fill(0xb0);
    image[512 + 72..512 + 80].copy_from_slice(&40_u64.to_le_bytes());
    let entries = [(2048, 4000)];
    let image = with_entries(image, 128, &entries);
    let room = Room::new(&[14]);
    let http = controller(image.clone(), "application/octet-stream");
    assert_eq!(room.run(&http, &install()), Outcome::Success);
    assert!(room.bytes("sda").starts_with(&image));
}

#[test]
fn an_mbr_that_names_partitions_stays_beside_the_rest_of_an_old_gpt() {
    let mut image = bootable_image(4 * MIB, 512);
    image[..512].copy_from_slice(&mbr_image(512)[..512]);
    for target in ["install-image.target", "install-windows.target"] {
        let room = Room::new(&[14]);
        let http = controller(image.clone(), "application/octet-stream");
        let mut recipe = install();
        recipe["task_target"] = json!(target);
        assert_eq!(room.run(&http, &recipe), Outcome::Success);
        assert!(room.bytes("sda").starts_with(&image), "{target}");
        let last = reports(&http).pop().unwrap();
        assert!(last["log"].as_str().unwrap().contains("the image has an MBR"), "{last}");
    }
}

#[test]
fn an_image_whose_partitions_end_behind_the_disk_is_refused_before_the_first_write() {
    let mbr = |sectors: u32| {
        let mut image = mbr_image(4 * MIB);
        image[458..462].copy_from_slice(&sectors.to_le_bytes());
        image
    };
    let too_large = u32::try_from(16 * MIB / 512).unwrap();
    for image in [bootable_image(24 * MIB, 512), mbr(too_large)] {
        let room = Room::new(&[14, 24]);
        let outcome = room.run(&controller(image, "application/octet-stream"), &install());
        assert_eq!(step(&outcome).0, "image-disk.service");
        assert!(step(&outcome).1.contains("nothing was written"), "{outcome:?}");
        assert!(room.is_untouched("sda") && room.is_untouched("sdb"));
    }
    let fits = u32::try_from(13 * MIB / 512).unwrap();
    let room = Room::new(&[14]);
    assert_eq!(room.run(&controller(mbr(fits), "application/octet-stream"), &install()), Outcome::Success);
}

#[test]
fn a_boot_medium_that_appeared_after_the_search_is_not_written() {
    let room = Room::new(&[14, 24]);
    let medium = tempfile::tempfile().unwrap();
    task_image(&job_json("SN1", "2026-01-02T03:04:05Z"), "", &[]).write_to_file(&medium).unwrap();
    let mut bytes = vec![0; medium.metadata().unwrap().len() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&medium, &mut bytes, 0).unwrap();
    FileDisk::open(&room.paths["sda"], 512).unwrap().write_at(0, &bytes).unwrap();
    let before = room.bytes("sda");
    let mut by_size = install();
    by_size["disk_hints"] = json!({"max_bytes": 14 * MIB});
    let http = controller(bootable_image(4 * MIB, 512), "application/octet-stream");
    let outcome = room.run(&http, &by_size);
    assert_eq!(step(&outcome).0, "select-disk.service", "{outcome:?}");
    assert!(step(&outcome).1.contains("no usable disk matches"), "{outcome:?}");
    assert!(room.bytes("sda") == before && room.is_untouched("sdb"), "{outcome:?}");
    // The serial number says that this disk is meant.
    assert_eq!(room.run(&http, &install()), Outcome::Success);
}

#[test]
fn an_image_larger_than_the_disk_or_with_a_wrong_end_never_boots() {
    let image = bootable_image(12 * MIB, 512);
    let room = Room::new(&[10, 24]);
    let outcome = room.run(&controller(image.clone(), "application/octet-stream"), &install());
    assert!(step(&outcome).1.contains("larger than the disk"), "{outcome:?}");
    let room = Room::new(&[14, 14]);
    let honest = controller(image.clone(), "application/octet-stream");
    let wrong = FakeHttp::new(move |request| {
        let response = honest.send(request).map_err(|error| error.0)?;
        let status = response.status;
        let mut body = response.bytes(1 << 30).unwrap();
        if body.len() == image.len() {
            *body.last_mut().unwrap() ^= 1;
        }
        Ok((status, Vec::new(), body))
    });
    let outcome = room.run(&wrong, &install());
    assert_eq!(step(&outcome).0, "image-disk.service");
    assert!(step(&outcome).1.contains("hashes to"), "{outcome:?}");
    assert!(is_filled(&room.bytes("sda")[..MIB as usize], 0));
    assert!(room.is_untouched("sdb"));
}

#[test]
fn a_late_disk_that_makes_the_choice_ambiguous_stops_it_and_a_late_disk_that_is_the_only_match_is_found() {
    let image = bootable_image(4 * MIB, 512);
    let room = Room::new(&[14, 14]);
    let bare = json!({"task_target": "install-image.target", "oci_url": "c.test:1/os/disk:1", "target_disk": "/dev/sda"});
    let late = |recipe: &serde_json::Value, name: &str, at: u64| {
        let clock = VirtualClock::default();
        let list = || {
            let is_there = |disk: &&DiskFacts| disk.name != name || clock.elapsed().as_secs() >= at;
            room.facts.iter().filter(is_there).cloned().collect::<Vec<_>>()
        };
        let job = job_json("SN1", "2026-01-02T03:04:05Z");
        let http = controller(image.clone(), "application/octet-stream");
        room.run_listed(&http, (&job, recipe), &list, &clock)
    };
    let refused = late(&bare, "sdb", 3);
    assert!(step(&refused).1.contains("candidates"), "{refused:?}");
    assert!(room.is_untouched("sda") && room.is_untouched("sdb"));
    assert_eq!(late(&install(), "sda", 30), Outcome::Success);
    assert!(room.is_untouched("sdb"));
}

#[test]
fn a_name_that_moved_to_another_disk_before_it_was_opened_is_not_written() {
    let room = Room::new(&[14, 14]);
    let moved = DiskFacts { serial: Some("OTHER".to_owned()), ..room.facts[0].clone() };
    let clock = VirtualClock::default();
    let looks = std::cell::Cell::new(0);
    let list = || {
        looks.set(looks.get() + 1);
        // The choice is made after ten seconds of looks, the disk is opened after it.
        vec![if looks.get() > 11 { moved.clone() } else { room.facts[0].clone() }]
    };
    let http = controller(bootable_image(4 * MIB, 512), "application/octet-stream");
    let job = job_json("SN1", "2026-01-02T03:04:05Z");
    let outcome = room.run_listed(&http, (&job, &install()), &list, &clock);
    assert!(step(&outcome).1.contains("another serial number"), "{outcome:?}");
    assert!(room.is_untouched("sda"));
}

#[test]
fn a_retry_writes_to_the_disk_of_the_former_attempt_and_to_no_other() {
    let http = controller(bootable_image(4 * MIB, 512), "application/octet-stream");
    let room = Room::new(&[14, 14]);
    let refused = room.retry(&http, &json!({"serial": "SER-old", "wwn": null}));
    let (unit, message) = step(&refused);
    assert_eq!(unit, "select-disk.service");
    assert!(message.contains("SER-old") && message.contains("SER-sda"), "{message}");
    assert!(room.is_untouched("sda") && room.is_untouched("sdb"));
    let last = reports(&http).pop().unwrap();
    assert_eq!([&last["class"], &last["disk"]["written"]], [&json!("input"), &json!(false)]);
    assert_eq!(room.retry(&http, &json!({"serial": "SER-sda", "wwn": null})), Outcome::Success);
    let written: Vec<_> = reports(&http).into_iter().filter(|body| body["disk"]["written"] == true).collect();
    assert_eq!(written[0]["step"], "partition.service", "before the first write");
    assert_eq!(written.last().unwrap()["status"], "success");
}

#[test]
fn an_image_of_a_foreign_registry_is_refused_at_once_without_certificate_authorities() {
    struct NoAuthorities(FakeHttp);
    impl Http for NoAuthorities {
        fn send(
            &self,
            request: &crate::http::Request,
        ) -> Result<crate::http::Response, crate::http::HttpError> {
            self.0.send(request)
        }
        fn trusts_authorities(&self) -> bool {
            false
        }
    }
    let room = Room::new(&[14, 14]);
    let mut job = job_json("SN1", "2026-01-02T03:04:05Z");
    job["registry"] = serde_json::Value::Null;
    let http = NoAuthorities(controller(Vec::new(), "application/octet-stream"));
    let outcome =
        room.run_listed(&http, (&job, &install()), &|| room.facts.clone(), &VirtualClock::default());
    assert!(step(&outcome).1.contains("no certificate authorities"), "{outcome:?}");
    assert!(reports(&http.0).len() == http.0.requests().len(), "the registry is not asked");
    assert!(room.is_untouched("sda"));
}

#[test]
fn a_disk_that_changed_since_it_was_selected_is_not_written() {
    let mut room = Room::new(&[14, 14]);
    room.facts[0].bytes -= MIB;
    let http = controller(bootable_image(4 * MIB, 512), "application/octet-stream");
    assert_eq!(step(&room.run(&http, &install())).0, "select-disk.service");
    assert!(room.is_untouched("sda"));
}

#[test]
fn a_rescue_reports_that_the_machine_is_reachable_until_it_is_acknowledged_and_opens_no_disk() {
    let room = Room::new(&[14]);
    let http = controller(Vec::new(), "application/octet-stream");
    let key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGV4YW1wbGV4 a@b";
    let recipe = json!({"task_target": "rescue.target", "ssh_authorized_keys": [key]});
    assert!(matches!(room.run(&http, &recipe), Outcome::Reachable(_)));
    let last: serde_json::Value = serde_json::from_slice(&http.requests().last().unwrap().body).unwrap();
    assert_eq!(
        [&last["status"], &last["addresses"], &last["ssh_host_key"], &last["consoles"], &last["log"]],
        [&json!("reachable"), &json!(["192.0.2.7"]), &json!("SHA256:x"), &json!(["tty1"]), &json!(null)]
    );
    let without = room.run(&http, &json!({"task_target": "rescue.target"}));
    assert_eq!(step(&without), ("rescue.service", "this medium has no SSH server"));
    assert!(room.is_untouched("sda"));
}

#[test]
fn a_windows_image_keeps_its_partitions_and_only_the_backup_of_its_table_moves() {
    let image = bootable_image(6 * MIB, 512);
    let room = Room::new(&[14, 14]);
    let recipe = json!({"task_target": "install-windows.target", "oci_url": "c.test:1/os/disk:1", "disk_hints": {"serial": "SER-sda"}});
    let http = controller(image.clone(), "application/octet-stream");
    assert_eq!(room.run(&http, &recipe), Outcome::Success);
    let written = FileDisk::open(&room.paths["sda"], 512).unwrap();
    let (_folder, path) = disk_image(6 * MIB, 0);
    std::fs::write(&path, &image).unwrap();
    let original = Table::read(&FileDisk::open(&path, 512).unwrap()).unwrap().unwrap();
    let table = Table::read(&written).unwrap().unwrap();
    let partitions: Vec<_> = table.partitions().collect();
    assert_eq!(partitions, original.partitions().collect::<Vec<_>>());
    let range = partitions[0].1.start as usize..partitions[0].1.end as usize;
    assert_eq!(room.bytes("sda")[range.clone()], image[range]);
    assert!(room.is_untouched("sdb"));
    let steps: Vec<serde_json::Value> = http
        .requests()
        .iter()
        .filter(|request| request.url.contains("status-webhook"))
        .map(|request| serde_json::from_slice::<serde_json::Value>(&request.body).unwrap()["step"].clone())
        .collect();
    assert!(steps.contains(&json!("image-windows.service")), "{steps:?}");
}

#[test]
fn a_quick_erase_removes_tables_and_signatures_of_one_disk() {
    let room = Room::new(&[14, 14]);
    let image = bootable_image(14 * MIB, 512);
    std::fs::write(&room.paths["sda"], &image).unwrap();
    let http = controller(Vec::new(), "application/octet-stream");
    let recipe = json!({"task_target": "erase.target", "disk_hints": {"serial": "SER-sda"}});
    assert_eq!(room.run(&http, &recipe), Outcome::Success);
    let disk = FileDisk::open(&room.paths["sda"], 512).unwrap();
    assert!(Table::read(&disk).unwrap().is_none() && wipe::old_partitions(&disk).unwrap().is_empty());
    assert!(room.is_untouched("sdb"));
}

#[test]
fn a_secure_erase_leaves_zeros_on_one_disk_and_reports_how_and_what_is_not_proven() {
    let room = Room::new(&[14, 14]);
    let http = controller(Vec::new(), "application/octet-stream");
    let recipe =
        json!({"task_target": "erase.target", "erase_mode": "secure", "disk_hints": {"serial": "SER-sda"}});
    assert_eq!(room.run(&http, &recipe), Outcome::Success);
    assert!(is_filled(&std::fs::read(&room.paths["sda"]).unwrap(), 0));
    assert!(room.is_untouched("sdb"));
    let last: serde_json::Value = serde_json::from_slice(&http.requests().last().unwrap().body).unwrap();
    let erased = &last["disk"]["erased"];
    assert_eq!((&last["disk"]["name"], &erased["level"]), (&json!("sda"), &json!("clear")), "{last}");
    assert!(erased["unproven"].is_string() && erased["not_used"][0].is_string(), "{erased}");
    assert!(last["disk"].to_string().len() <= 1024, "the controller keeps up to 1 KiB");
}

#[test]
fn a_refused_choice_of_the_disk_reports_the_inventory_of_the_machine() {
    let room = Room::new(&[14, 14]);
    let http = controller(bootable_image(4 * MIB, 512), "application/octet-stream");
    let recipe = json!({
        "task_target": "install-image.target", "oci_url": "c.test:1/os/disk:1", "disk_hints": {"min_bytes": 1},
    });
    assert_eq!(step(&room.run(&http, &recipe)).0, "select-disk.service");
    let last: serde_json::Value = serde_json::from_slice(&http.requests().last().unwrap().body).unwrap();
    assert_eq!((&last["status"], &last["inventory"]["boot_mode"]), (&json!("failed"), &json!("bios")));
}

#[test]
fn an_inventory_is_in_the_final_report_and_writes_nothing() {
    let room = Room::new(&[14]);
    let http = controller(Vec::new(), "application/octet-stream");
    assert_eq!(room.run(&http, &json!({"task_target": "inventory.target"})), Outcome::Success);
    let last: serde_json::Value = serde_json::from_slice(&http.requests().last().unwrap().body).unwrap();
    assert_eq!((&last["status"], &last["inventory"]["boot_mode"]), (&json!("success"), &json!("bios")));
    assert!(room.is_untouched("sda"));
}
