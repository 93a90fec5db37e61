//! The client's transport to a simulated BMC without a socket, in virtual time.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};

use super::kit::{Map, config, iso, request};
use crate::{
    BootSource, Fault, FaultEffect, FaultTrigger, InProcess, MediaReader, MediaRefusal, MediaRequest,
    MediaResponse, NullHost, ReadStyle, SimBmc, SimBmcConfig,
};
use redfish::{Request, Transport, TransportErrorKind};

/// One image in memory, with ranges.
struct Memory(Bytes);

#[async_trait]
impl MediaReader for Memory {
    async fn fetch(&self, request: MediaRequest) -> Result<MediaResponse, MediaRefusal> {
        let total = self.0.len() as u64;
        let (first, last) = request.range.unwrap_or((0, total - 1));
        let last = last.min(total - 1);
        let body = self.0.slice(usize::try_from(first).unwrap()..=usize::try_from(last).unwrap());
        Ok(MediaResponse {
            status: if request.range.is_some() { 206 } else { 200 },
            length: Some(if request.head { total } else { body.len() as u64 }),
            content_range: request.range.map(|_| format!("bytes {first}-{last}/{total}")),
            encoded: false,
            body: if request.head { Bytes::new() } else { body.slice(..body.len().min(request.keep)) },
        })
    }
}

fn simulated(config: SimBmcConfig) -> SimBmc {
    SimBmc::new(config, Arc::new(NullHost), Arc::new(Memory(Bytes::from(iso("MAINT", true, 300)))))
}

fn read(path: &str) -> Request {
    Request { method: Method::GET, path: path.to_owned(), headers: HeaderMap::new(), body: None }
}

#[tokio::test(start_paused = true)]
async fn a_host_boots_from_memory_without_a_socket_and_without_waiting() {
    let mut config = config();
    config.power.post_time = Duration::from_secs(90);
    let bmc = simulated(config);
    let transport = InProcess::new(bmc.clone());
    let began = std::time::Instant::now();
    let map = Map::of(&bmc).await;
    map.insert(&bmc, 0, "http://192.0.2.1/tabc/boot.iso").await;
    map.boot_once(&bmc, "Cd").await;
    let mut on = read(&map.reset);
    on.method = Method::POST;
    on.headers = request(Method::GET, "/", None).headers().clone();
    on.headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    on.body = Some(Bytes::from_static(b"{\"ResetType\":\"On\"}"));
    let response = transport.send(on, Duration::from_secs(1)).await.unwrap();
    assert_eq!(response.status, StatusCode::NO_CONTENT);
    let booted = bmc.wait_for(|now| now.boots_from_media == 1).await;
    assert!(matches!(booted.running, Some(BootSource::Media { .. })));
    assert!(began.elapsed() < Duration::from_secs(30), "the test waited in real time");
}

#[tokio::test(start_paused = true)]
async fn a_request_with_a_lost_response_may_be_applied_and_one_refused_at_connect_is_not() {
    let bmc = simulated(config());
    let transport = InProcess::new(bmc.clone());
    bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Drop));
    let lost = transport.send(read("/redfish/v1/"), Duration::from_secs(1)).await.unwrap_err();
    assert_eq!((lost.kind, lost.maybe_sent), (TransportErrorKind::Lost, true));
    bmc.set_reachable(false);
    let refused = transport.send(read("/redfish/v1/"), Duration::from_secs(1)).await.unwrap_err();
    assert_eq!((refused.kind, refused.maybe_sent), (TransportErrorKind::Connect, false));
    bmc.set_reachable(true);
    bmc.inject(Fault::once(FaultTrigger::Read, FaultEffect::Hang));
    let late = transport.send(read("/redfish/v1/"), Duration::from_secs(1)).await.unwrap_err();
    assert_eq!((late.kind, late.maybe_sent), (TransportErrorKind::Timeout, true));
    let root = transport.send(read("/redfish/v1/"), Duration::from_secs(1)).await.unwrap();
    assert_eq!(root.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn every_read_style_finds_the_same_facts() {
    let reader = Memory(Bytes::from(iso("MAINT", true, 300)));
    let url = crate::MediaUrl::new("http://192.0.2.1/tabc/boot.iso");
    let usual = ReadStyle::default();
    for style in [
        usual,
        ReadStyle { head: false, ..usual },
        ReadStyle { parallel: true, ..usual },
        ReadStyle { ranges: false, ..usual },
        ReadStyle { aborts: true, http_1_0: true, ..usual },
    ] {
        let facts = crate::media_reader::inspect(&reader, &url, style).await.unwrap();
        assert!(facts.el_torito, "{style:?}");
        assert_eq!((facts.length, facts.volume_id.as_deref()), (300 * 2048, Some("MAINT")), "{style:?}");
    }
}
