//! Behaviour that several vendors share: how images are read, collections, sessions, licences, passwords, firmware.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::Method;
use lab_bmc::{MediaReader, MediaRefusal, MediaRequest, MediaResponse, NullHost, SimBmc, VENDORS};
use serde_json::json;

use crate::kit::{Bmc, IMAGE, Memory, PASSWORD, USER, ask, config};

/// Records each request for media.
struct Noted(Arc<Memory>, Mutex<Vec<MediaRequest>>);

#[async_trait]
impl MediaReader for Noted {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        self.1.lock().unwrap().push(request.clone());
        self.0.fetch(request).await
    }
}

/// The requests with which a vendor reads an image that this request inserts.
async fn reads(vendor: &str, path: &str, method: Method, body: serde_json::Value) -> Vec<MediaRequest> {
    let noted = Arc::new(Noted(Memory::bootable(), Mutex::default()));
    let sim_bmc = SimBmc::new(config(vendor), Arc::new(NullHost), Arc::clone(&noted) as Arc<dyn MediaReader>);
    let done = ask(&sim_bmc, method, path, Some(body), &[]).await.unwrap();
    assert!(done.status < 300, "{vendor}: {done:?}");
    noted.1.lock().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn each_vendor_reads_images_in_its_own_way() {
    let insert = |manager: &str, slot: &str| {
        format!("/redfish/v1/{manager}/VirtualMedia/{slot}/Actions/VirtualMedia.InsertMedia")
    };
    let image = json!({ "Image": IMAGE });
    let usual = reads("generic", &insert("Managers/bmc-a7", "CD1"), Method::POST, image.clone()).await;
    assert!(usual[0].head && usual[1..].iter().all(|read| read.range.is_some()));
    let parallel = reads("hpe-ilo6", &insert("Managers/1", "2"), Method::POST, image.clone()).await;
    assert_eq!(parallel.iter().filter(|read| read.range.is_some_and(|range| range.0 >= 32_768)).count(), 4);
    let emulator = config("sushy").identity.system_id;
    let whole = reads("sushy", &insert(&format!("Systems/{emulator}"), "Cd1"), Method::POST, image).await;
    assert!(whole.len() == 1 && !whole[0].head && whole[0].range.is_none() && whole[0].to_the_end);
    let cisco = json!({ "Image": IMAGE, "TransferProtocolType": "HTTP" });
    let aborted = reads("cisco-ucs", &insert("Managers/CIMC", "2"), Method::POST, cisco.clone()).await;
    assert!(aborted[0].range.is_none() && !aborted[0].to_the_end, "the first read is aborted");
    let headless = reads("fujitsu-irmc", &insert("Systems/0", "0"), Method::POST, cisco).await;
    assert!(headless.iter().all(|read| !read.head));
}

#[tokio::test(start_paused = true)]
async fn supermicro_x11_reads_in_http_1_0() {
    let noted = Arc::new(Noted(Memory::bootable(), Mutex::default()));
    let reader = Arc::clone(&noted) as Arc<dyn MediaReader>;
    let sim_bmc = SimBmc::new(config("smc-x11-cfgcd"), Arc::new(NullHost), reader);
    let cfg = "/redfish/v1/Managers/1/VM1/CfgCD";
    let image = json!({ "Host": "http://192.0.2.1", "Path": "/tabc/boot.iso" });
    ask(&sim_bmc, Method::PATCH, cfg, Some(image), &[]).await.unwrap();
    let mount = format!("{cfg}/Actions/IsoConfig.Mount");
    assert_eq!(ask(&sim_bmc, Method::POST, &mount, Some(json!({})), &[]).await.unwrap().status, 200);
    let reads = noted.1.lock().unwrap();
    assert!(!reads.is_empty() && reads.iter().all(|read| read.http_1_0));
}

#[tokio::test(start_paused = true)]
async fn a_long_collection_is_paged_and_no_member_is_lost_or_shown_twice() {
    let bmc = Bmc::of("lenovo-xcc").await;
    let mut next = Some(format!("{}/VirtualMedia", bmc.manager));
    let mut seen = Vec::new();
    while let Some(path) = next {
        let page = bmc.get(&path).await;
        assert_eq!(page.body["Members@odata.count"], 10);
        let members = page.body["Members"].as_array().unwrap().iter();
        seen.extend(members.map(|member| member["@odata.id"].as_str().unwrap().to_owned()));
        next = page.body["Members@odata.nextLink"].as_str().map(str::to_owned);
    }
    assert_eq!(seen.len(), 10);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn expand_shows_members_where_it_is_offered_and_is_refused_elsewhere() {
    for vendor in VENDORS {
        let bmc = Bmc::of(vendor.name).await;
        let query = &bmc.root.body["ProtocolFeaturesSupported"]["ExpandQuery"];
        let offered = query["NoLinks"] == true;
        let systems = bmc.root.text("/Systems/@odata.id");
        let expanded = bmc.get(&format!("{systems}?$expand=.($levels=1)")).await;
        if offered {
            let host = expanded.body["Members"].as_array().unwrap().iter();
            assert!(host.clone().any(|member| member.get("PowerState").is_some()), "{}", vendor.name);
        } else {
            assert_eq!(expanded.status, 501, "{}", vendor.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_link_of_every_vendor_resolves() {
    for vendor in VENDORS {
        let fixed = config(vendor.name).service.fixed_status;
        let bmc = Bmc::of(vendor.name).await;
        // Some resources exist only while the host is on.
        bmc.power("On").await;
        bmc.until(|now| now.generation == 1).await;
        let mut open = vec!["/redfish/v1/".to_owned()];
        let mut seen = Vec::new();
        while let Some(path) = open.pop() {
            if seen.contains(&path) || path.contains("BootOptions") {
                continue;
            }
            let shown = bmc.get(&path).await;
            // What a vendor links and cannot show is part of its data.
            if let Some(fixed) = fixed.iter().find(|fixed| path.ends_with(fixed.ends_with.as_str())) {
                assert_eq!(shown.status, fixed.status, "{}: {path}", vendor.name);
                seen.push(path);
                continue;
            }
            assert_eq!(shown.status, 200, "{}: {path}", vendor.name);
            assert_eq!(shown.text("/@odata.id"), path, "{}", vendor.name);
            collect(&shown.body, &mut open);
            seen.push(path);
            assert!(seen.len() < 100, "{}", vendor.name);
        }
        assert!(seen.len() > 6, "{}", vendor.name);
    }
}

fn collect(body: &serde_json::Value, links: &mut Vec<String>) {
    match body {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                match (key.as_str(), value.as_str()) {
                    ("@odata.id" | "@Redfish.ActionInfo", Some(link)) => links.push(link.to_owned()),
                    _ => collect(value, links),
                }
            }
        }
        serde_json::Value::Array(list) => list.iter().for_each(|value| collect(value, links)),
        _ => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_beyond_the_session_limit_is_refused_with_the_vendors_message() {
    for (vendor, word) in [("dell-idrac9-6", "IDRAC.2.8.RAC0218"), ("cisco-ucs", "SessionLimitExceeded")] {
        let bmc = Bmc::of(vendor).await;
        let limit = bmc.sim_bmc.config().session.limit;
        let login = json!({ "UserName": USER, "Password": PASSWORD });
        let sessions = bmc.root.text("/Links/Sessions/@odata.id");
        for _ in 0..limit {
            assert_eq!(bmc.post(sessions, login.clone()).await.status, 201);
        }
        let full = bmc.post(sessions, login).await;
        assert!(full.status == 503 && full.says(word), "{vendor}: {full:?}");
    }
    let bmc = Bmc::of("fujitsu-irmc").await;
    let login = json!({ "UserName": USER, "Password": PASSWORD });
    let opened = bmc.post(bmc.root.text("/Links/Sessions/@odata.id"), login).await;
    assert!(opened.header("location").is_none(), "only the body names the session");
    assert!(opened.text("/@odata.id").contains("/Sessions/"));
}

#[tokio::test(start_paused = true)]
async fn a_missing_licence_and_an_expired_password_are_403_with_their_own_message() {
    for (vendor, message) in
        [("hpe-ilo6", "iLO.2.14.LicenseKeyRequired"), ("smc-x12", "SMC.1.0.OemLicenseNotPassed")]
    {
        let mut unlicensed = config(vendor);
        unlicensed.media.licence_missing = Some(message.to_owned());
        let bmc = Bmc::with(unlicensed).await;
        let slots = bmc.slots().await;
        let refused = bmc.insert(&slots[0], json!({ "Image": IMAGE })).await;
        assert!(refused.status == 403 && refused.says(message), "{refused:?}");
    }
    let bmc = Bmc::of("openbmc").await;
    let mut fresh = config("openbmc");
    fresh.session.password_change_required = true;
    let sim_bmc = SimBmc::new(fresh, Arc::new(NullHost), Memory::bootable());
    let refused = ask(&sim_bmc, Method::GET, &bmc.system, None, &[]).await.unwrap();
    assert!(refused.status == 403 && refused.says("PasswordChangeRequired"));
    assert_eq!(ask(&sim_bmc, Method::GET, "/redfish/v1/", None, &[]).await.unwrap().status, 200);
}

#[tokio::test(start_paused = true)]
async fn the_firmware_inventory_names_versions() {
    let bmc = Bmc::of("dell-idrac9-6").await;
    let update = bmc.get(bmc.root.text("/UpdateService/@odata.id")).await;
    let inventory = bmc.get(update.text("/FirmwareInventory/@odata.id")).await;
    let bios = bmc.get(inventory.text("/Members/1/@odata.id")).await;
    assert_eq!((bios.text("/Name"), bios.text("/Version")), ("BIOS", "1.10.2"));
}

#[tokio::test(start_paused = true)]
async fn media_can_be_lost_when_the_host_is_powered_on() {
    let mut forgetful = config("generic");
    forgetful.media.lost_at_power_on = true;
    let bmc = Bmc::with(forgetful).await;
    let slots = bmc.slots().await;
    bmc.insert(&slots[0], json!({ "Image": IMAGE })).await;
    bmc.patch(&bmc.system, crate::kit::once("Cd", None)).await;
    assert!(!bmc.boots_from_media().await);
    assert_eq!(bmc.get(&slots[0]).await.body["Inserted"], false);
    tokio::time::sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_secret_is_in_the_journal() {
    for vendor in VENDORS {
        let bmc = Bmc::of(vendor.name).await;
        let login = json!({ "UserName": USER, "Password": PASSWORD });
        ask(&bmc.sim_bmc, Method::POST, "/redfish/v1/SessionService/Sessions", Some(login), &[])
            .await
            .unwrap();
        for slot in bmc.slots().await {
            let body = json!({ "Image": "http://192.0.2.1/tsecret/boot.iso", "Inserted": true });
            ask(&bmc.sim_bmc, Method::PATCH, &slot, Some(body.clone()), &[("if-match", "*")]).await.unwrap();
            let action = format!("{slot}/Actions/VirtualMedia.InsertMedia");
            ask(&bmc.sim_bmc, Method::POST, &action, Some(body), &[]).await.unwrap();
        }
        let journal = serde_json::to_string(&bmc.sim_bmc.journal()).unwrap();
        for secret in ["tsecret", PASSWORD, "Basic "] {
            assert!(!journal.contains(secret), "{}: {secret}", vendor.name);
        }
    }
}
