//! The update service of each vendor, by requests written by hand.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Method, Request, header};
use lab_bmc::firmware_image;
use serde_json::json;

use crate::kit::{Answer, Bmc, PASSWORD, USER};

/// Sends a form whose text parts are `parts` and whose last part is the image.
async fn form(
    bmc: &Bmc,
    path: &str,
    parts: &[(&str, &str)],
    image: &[u8],
    headers: &[(&str, &str)],
) -> Answer {
    let mut body = Vec::new();
    for (name, text) in parts {
        let part = format!("--b0\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n");
        body.extend_from_slice(part.as_bytes());
    }
    let last = "--b0\r\nContent-Disposition: form-data; name=\"UpdateFile\"; filename=\"f.bin\"\r\n\r\n";
    body.extend_from_slice(last.as_bytes());
    body.extend_from_slice(image);
    body.extend_from_slice(b"\r\n--b0--\r\n");
    upload(bmc, path, "multipart/form-data; boundary=b0", body, headers).await
}

async fn upload(bmc: &Bmc, path: &str, kind: &str, body: Vec<u8>, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(Method::POST).uri(path).header(header::CONTENT_TYPE, kind);
    if !headers.iter().any(|(name, _)| *name == "x-auth-token") {
        let account = STANDARD.encode(format!("{USER}:{PASSWORD}"));
        request = request.header(header::AUTHORIZATION, format!("Basic {account}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = bmc.sim_bmc.handle(request.body(Bytes::from(body)).unwrap()).await.unwrap();
    let (parts, text) = response.into_parts();
    let body = serde_json::from_slice(&text).unwrap_or_default();
    Answer { status: parts.status.as_u16(), headers: parts.headers, body, text }
}

fn bios() -> Vec<u8> {
    firmware_image("bios", "99.1", None, 4000)
}

async fn multipart(bmc: &Bmc) -> String {
    bmc.get("/redfish/v1/UpdateService").await.text("/MultipartHttpPushUri").to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_update_is_checked_written_and_done_in_virtual_time() {
    let bmc = Bmc::of("generic").await;
    let path = multipart(&bmc).await;
    let accepted = form(&bmc, &path, &[("UpdateParameters", "{}")], &bios(), &[]).await;
    assert_eq!(accepted.status, 202);
    let (task, monitor) =
        (accepted.text("/@odata.id").to_owned(), accepted.header("location").unwrap().to_owned());
    assert_eq!(bmc.get(&monitor).await.status, 202);
    tokio::time::sleep(Duration::from_secs(20 + 150)).await;
    assert_eq!(bmc.get(&task).await.body["PercentComplete"], 50);
    let second = form(&bmc, &path, &[("UpdateParameters", "{}")], &bios(), &[]).await;
    assert_eq!(second.status, 503, "one update at a time");
    tokio::time::sleep(Duration::from_secs(150)).await;
    let done = bmc.get(&task).await;
    assert!(done.text("/TaskState") == "Completed" && done.says("ResetRequired"), "{}", done.body);
    assert_ne!(bmc.get(&bmc.system).await.text("/BiosVersion"), "99.1", "it runs after a restart");
    bmc.power("On").await;
    assert_eq!(bmc.get(&bmc.system).await.text("/BiosVersion"), "99.1");
    let updates = bmc.sim_bmc.updates();
    assert!(updates.len() == 1 && updates[0].applied, "{updates:?}");
}

#[tokio::test(start_paused = true)]
async fn the_bmc_restarts_after_its_own_update_without_its_sessions() {
    let bmc = Bmc::of("generic").await;
    let path = multipart(&bmc).await;
    let image = firmware_image("bmc", "2.0", None, 4000);
    let accepted = form(&bmc, &path, &[("UpdateParameters", "{}")], &image, &[]).await;
    let task = accepted.text("/@odata.id").to_owned();
    // No request is needed for the restart.
    tokio::time::sleep(Duration::from_secs(20 + 300 + 10)).await;
    let away = crate::kit::ask(&bmc.sim_bmc, Method::GET, "/redfish/v1/", None, &[]).await;
    assert!(away.is_err());
    tokio::time::sleep(Duration::from_secs(180)).await;
    assert_eq!(bmc.get(&bmc.manager).await.text("/FirmwareVersion"), "2.0");
    assert_eq!(bmc.get(&task).await.status, 404, "its tasks are lost");
}

#[tokio::test(start_paused = true)]
async fn each_vendor_refuses_an_upload_in_the_form_of_another() {
    let parameters = ("UpdateParameters", "{}");
    let hpe = Bmc::of("hpe-ilo6").await;
    let refused = form(&hpe, "/cgi-bin/uploadFile", &[parameters], &bios(), &[]).await;
    assert_eq!(refused.status, 401, "no session key");
    let ami = Bmc::of("ami-megarac").await;
    let path = multipart(&ami).await;
    assert_eq!(form(&ami, &path, &[parameters], &bios(), &[]).await.status, 400, "no OemParameters");
    let oem = ("OemParameters", "{\"ImageType\":\"HPM\"}");
    assert_eq!(form(&ami, &path, &[parameters, oem], &bios(), &[]).await.status, 202);
    let dgx = Bmc::of("nvidia-dgx-h100").await;
    assert_eq!(form(&dgx, &path, &[parameters, oem], &bios(), &[]).await.status, 400, "no Targets");
    let targets = ("UpdateParameters", "{\"Targets\":[]}");
    assert_eq!(form(&dgx, &path, &[targets, oem], &bios(), &[]).await.status, 202);
    let dell = Bmc::of("dell-idrac8").await;
    let inventory = "/redfish/v1/UpdateService/FirmwareInventory";
    assert_eq!(form(&dell, inventory, &[], &bios(), &[]).await.status, 412, "no If-Match");
    let tag = dell.get(inventory).await.header("etag").unwrap().to_owned();
    let stored = form(&dell, inventory, &[], &bios(), &[("if-match", &tag)]).await;
    assert_eq!((stored.status, dell.sim_bmc.snapshot().updates_started), (201, 0));
    let openbmc = Bmc::of("openbmc").await;
    let push = "/redfish/v1/UpdateService/update";
    let image = firmware_image("bmc", "9", None, 4000);
    assert_eq!(
        form(&openbmc, push, &[], &image, &[]).await.status,
        400,
        "a form where the image is expected"
    );
    assert_eq!(upload(&openbmc, push, "application/octet-stream", image, &[]).await.status, 202);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_is_checked_waits_for_its_start() {
    let bmc = Bmc::of("smc-x12").await;
    let path = multipart(&bmc).await;
    let start = "/redfish/v1/UpdateService/Actions/UpdateService.StartUpdate";
    assert_eq!(bmc.post(start, json!({})).await.status, 400, "there is no image");
    let parameters = "{\"@Redfish.OperationApplyTime\":\"OnStartUpdateRequest\"}";
    let accepted = form(&bmc, &path, &[("UpdateParameters", parameters)], &bios(), &[]).await;
    assert!(accepted.header("location").is_none());
    let task = accepted.text("/Accepted/@Message.ExtendedInfo/0/MessageArgs/0").to_owned();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bmc.get(&task).await.text("/TaskState"), "Completed");
    let started = bmc.post(start, json!({})).await;
    let second = started.text("/Accepted/@Message.ExtendedInfo/0/MessageArgs/0").to_owned();
    assert_ne!(task, second);
    assert_eq!(bmc.get(&second).await.text("/TaskState"), "Running");
}

#[tokio::test(start_paused = true)]
async fn ids_of_a_vendor_change_with_the_version() {
    let bmc = Bmc::of("dell-idrac9-6").await;
    let path = multipart(&bmc).await;
    form(&bmc, &path, &[("UpdateParameters", "{}")], &bios(), &[]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    bmc.power("On").await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let inventory = "/redfish/v1/UpdateService/FirmwareInventory";
    assert_eq!(bmc.get(&format!("{inventory}/Installed-159-1.10.2")).await.status, 404);
    assert_eq!(bmc.get(&format!("{inventory}/Installed-159-99.1")).await.text("/Version"), "99.1");
}
