//! Slots without a `VirtualMedia` resource: the `IsoConfig` resource of older Supermicro boards.

use http::Method;
use redfish::InsertOptions;
use serde_json::json;

use crate::fake::{Fake, MEDIA, Reply, SLOT, URL};
use crate::flags::{bodies, discovered, takes_inserts, with};

/// `IsoConfig`: host and path are configured, then mounted; another resource shows the mounted image.
#[tokio::test(start_paused = true)]
async fn host_and_path_are_configured_and_then_mounted() {
    let fake = Fake::new();
    let (config, mounted) = (format!("{MEDIA}/CfgCD"), format!("{MEDIA}/CD1"));
    let (mount, unmount) = (format!("{config}/Mount"), format!("{config}/UnMount"));
    fake.put(
        &config,
        json!({ "Id": "CfgCD", "Host": "http://10.9.9.9", "Path": "/old/x.iso", "Actions": {
        "#IsoConfig.Mount": { "target": mount }, "#IsoConfig.UnMount": { "target": unmount },
    } }),
    );
    fake.put(&mounted, json!({ "Id": "CD1", "Inserted": false, "ConnectedVia": "NotConnected" }));
    let new = json!({ "Host": "http://10.0.0.1", "Path": "/tcanary0grant0abcdef/boot.iso" });
    fake.on(Method::PATCH, &config, [Reply::status(200).effect(&config, new.clone())]);
    fake.on(
        Method::POST,
        &mount,
        [Reply::status(200).effect(&mounted, json!({ "Inserted": true, "ConnectedVia": "URI" }))],
    );
    let gone = json!({ "Inserted": false, "ConnectedVia": "NotConnected" });
    fake.on(Method::POST, &unmount, [Reply::status(200).effect(&mounted, gone)]);
    let bmc = with(&fake, json!({ "vm_method": "oem:iso_config" }));
    let found = discovered(&bmc).await;
    let [slot] = found.slots.as_slice() else { panic!("one slot") };
    assert!(slot.is_cd() && slot.is_empty() && slot.takes_media() && slot.uri == config);
    let done = bmc.insert(&config, URL, InsertOptions::default()).await.unwrap();
    assert!(done.confirmed && done.observed.holds(URL));
    assert!(bmc.eject(&config).await.unwrap().confirmed);
    let sent: Vec<(Method, String)> =
        fake.mutations().into_iter().map(|sent| (sent.method, sent.path)).collect();
    assert_eq!(sent, [(Method::PATCH, config), (Method::POST, mount), (Method::POST, unmount)]);
    let mut body = new;
    body["Username"] = "".into();
    body["Password"] = "".into();
    assert_eq!(bodies(&fake)[0], body);
}

#[tokio::test(start_paused = true)]
async fn a_board_with_newer_firmware_has_standard_slots() {
    let fake = Fake::new();
    takes_inserts(&fake);
    let bmc = with(&fake, json!({ "vm_method": "oem:iso_config" }));
    assert_eq!(discovered(&bmc).await.slots[0].uri, SLOT);
    assert!(bmc.insert(SLOT, URL, InsertOptions::default()).await.unwrap().confirmed);
}
