//! What each simulated vendor offers, and which way is chosen: golden/update-services.txt.

use std::fmt::Write;
use std::path::Path;

use lab_bmc::{SimBmcConfig, VENDORS};
use redfish::choose_way;

use crate::kit::{Bench, SERIAL, Wanted};

#[tokio::test]
async fn the_offer_of_each_vendor_is_as_recorded() {
    let mut page = String::from(
        "What the update service of each simulated BMC offers, and which way is chosen for an image of 64 MB and one of 300 MB\n\
         that is served by HTTP and HTTPS.\n",
    );
    for vendor in VENDORS {
        let config = SimBmcConfig::vendor(vendor.name, SERIAL, "root", "x").unwrap();
        if !config.update.takes_images() {
            continue;
        }
        let bench = Bench::new(vendor.name, Wanted::new("bios", "1")).await;
        bench.discover().await.unwrap();
        let service = bench.bmc.update_capability().await.unwrap();
        let profile = bench.bmc.profile();
        writeln!(page, "\n{} (profile {})", vendor.name, profile.name).unwrap();
        writeln!(page, "{}", serde_json::to_string_pretty(&service).unwrap()).unwrap();
        for size in [64_000_000, 300_000_000] {
            let offer = redfish::ImageOffer { size, ..bench.offer() };
            match choose_way(&service, &profile, &offer) {
                Ok(choice) => writeln!(page, "{size} bytes: {}", choice.why()).unwrap(),
                Err(none) => writeln!(page, "{size} bytes: {none}").unwrap(),
            }
        }
        let inventory = bench.bmc.firmware_inventory(&service).await.unwrap();
        for item in inventory.items {
            let version = item.version.as_ref().map_or("none", |version| version.as_str());
            writeln!(page, "installed: {} {:?} {version}", item.id, item.name.unwrap_or_default()).unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/update-services.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let recorded = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(recorded, page, "run again with UPDATE_GOLDEN=1 and read the difference");
}
