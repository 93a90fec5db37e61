//! The admin API of a farm: sets faults and shows journals, for users of `shoal sim`.
//!
//! ```text
//!   GET    /servers                      serial, vendor, address, power, boots, counters
//!   GET    /servers/{serial}/journal     the most recent requests and changes
//!   GET    /servers/{serial}/faults      the faults in force
//!   POST   /servers/{serial}/faults      add a fault
//!   DELETE /servers/{serial}/faults      remove all faults
//!   POST   /servers/{serial}/restart     restart the BMC: sessions, media and boot override are lost
//!   POST   /servers/{serial}/certificate replace the TLS certificate of the BMC
//! ```
//!
//! The API listens on loopback, on a separate port. It is no part of Redfish: a client of the BMCs never sees it. It
//! shows no credential, and only the file name of a media URL.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::{get, post},
};
use lab_bmc::{Fault, JournalEntry, SimBmc};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Farm;

/// A running admin API. It stops when this value is dropped.
#[derive(Debug)]
pub struct FarmAdmin {
    address: SocketAddr,
    _running: DropGuard,
}

impl FarmAdmin {
    /// Serves the admin API of a farm on a port of loopback; port 0 selects any free port.
    ///
    /// # Errors
    /// Returns an error if the port is taken.
    pub async fn open(farm: &Farm, port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let server = axum::serve(listener, router(farm)).with_graceful_shutdown(async move {
            stopped.cancelled().await;
        });
        tokio::spawn(async move {
            if let Err(error) = server.await {
                tracing::warn!(%error, "the admin API of the simulated servers stopped");
            }
        });
        Ok(Self { address, _running: stop.drop_guard() })
    }

    /// The URL of the API, such as `http://127.0.0.1:9000`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A server that the admin API shows.
struct AdminServer {
    bmc: SimBmc,
    url: String,
}

type Servers = Arc<BTreeMap<String, AdminServer>>;

/// The admin API as a router.
pub fn router(farm: &Farm) -> Router {
    let entry = |server: &crate::SimulatedServer| {
        (server.serial.clone(), AdminServer { bmc: server.bmc.clone(), url: server.bmc_url.clone() })
    };
    let servers: Servers = Arc::new(farm.servers().iter().map(entry).collect());
    Router::new()
        .route("/servers", get(list))
        .route("/servers/{serial}/journal", get(journal))
        .route("/servers/{serial}/faults", get(faults).post(add_fault).delete(clear_faults))
        .route("/servers/{serial}/restart", post(restart))
        .route("/servers/{serial}/certificate", post(certificate))
        .with_state(servers)
}

async fn list(State(servers): State<Servers>) -> Json<Value> {
    let list = servers.iter().map(|(serial, server)| {
        let now = server.bmc.snapshot();
        let slots: Vec<Value> = now
            .slots
            .iter()
            .map(|slot| json!({ "id": slot.id, "file": slot.image.as_ref().map(|url| url.file_name()) }))
            .collect();
        json!({
            "serial": serial,
            "bmc_address": server.url,
            "model": server.bmc.config().identity.model,
            "power": now.power,
            "slots": slots,
            "boots_from_media": now.boots_from_media,
            "boots_from_disk": now.boots_from_disk,
            "ejected_while_running": now.ejected_while_running,
            "power_ons": now.power_ons,
            "open_sessions": now.open_sessions,
            "requests": now.requests,
            "max_in_flight": now.max_in_flight,
            "max_mutating_in_flight": now.max_mutating_in_flight,
        })
    });
    Json(list.collect())
}

fn bmc<'a>(servers: &'a Servers, serial: &str) -> Result<&'a SimBmc, StatusCode> {
    servers.get(serial).map(|server| &server.bmc).ok_or(StatusCode::NOT_FOUND)
}

async fn journal(
    State(servers): State<Servers>,
    Path(serial): Path<String>,
) -> Result<Json<Vec<JournalEntry>>, StatusCode> {
    Ok(Json(bmc(&servers, &serial)?.journal()))
}

async fn faults(
    State(servers): State<Servers>,
    Path(serial): Path<String>,
) -> Result<Json<Vec<Fault>>, StatusCode> {
    Ok(Json(bmc(&servers, &serial)?.faults()))
}

async fn add_fault(
    State(servers): State<Servers>,
    Path(serial): Path<String>,
    Json(fault): Json<Fault>,
) -> Result<StatusCode, StatusCode> {
    bmc(&servers, &serial)?.inject(fault);
    Ok(StatusCode::NO_CONTENT)
}

async fn clear_faults(
    State(servers): State<Servers>,
    Path(serial): Path<String>,
) -> Result<StatusCode, StatusCode> {
    bmc(&servers, &serial)?.clear_faults();
    Ok(StatusCode::NO_CONTENT)
}

async fn restart(
    State(servers): State<Servers>,
    Path(serial): Path<String>,
) -> Result<StatusCode, StatusCode> {
    bmc(&servers, &serial)?.reset_bmc();
    Ok(StatusCode::NO_CONTENT)
}

async fn certificate(
    State(servers): State<Servers>,
    Path(serial): Path<String>,
) -> Result<StatusCode, StatusCode> {
    bmc(&servers, &serial)?.renew_certificate();
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use lab_bmc::{FaultEffect, FaultTrigger};
    use tower::ServiceExt;

    use super::*;
    use crate::{FarmConfig, ServerSpec};

    async fn farm(disks: &std::path::Path) -> Farm {
        let servers = vec![ServerSpec::new("A-1"), ServerSpec::new("A-2")];
        Farm::start(FarmConfig::new(servers, "root", "canary-secret".to_owned().into(), disks)).await.unwrap()
    }

    async fn send(farm: &Farm, method: &str, path: &str, body: &str) -> (StatusCode, String) {
        let request = axum::http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = router(farm).oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_fault_is_set_and_cleared_for_one_server_and_the_list_has_no_secret() {
        let disks = tempfile::tempdir().unwrap();
        let farm = farm(disks.path()).await;
        let fault = Fault::once(FaultTrigger::Insert, FaultEffect::Drop);
        let text = serde_json::to_string(&fault).unwrap();
        assert_eq!(send(&farm, "POST", "/servers/A-1/faults", &text).await.0, StatusCode::NO_CONTENT);
        assert_eq!(farm.server("A-1").unwrap().bmc.faults(), [fault]);
        assert!(farm.server("A-2").unwrap().bmc.faults().is_empty());
        assert_eq!(send(&farm, "DELETE", "/servers/A-1/faults", "").await.0, StatusCode::NO_CONTENT);
        assert!(farm.server("A-1").unwrap().bmc.faults().is_empty());
        assert_eq!(send(&farm, "GET", "/servers/B/journal", "").await.0, StatusCode::NOT_FOUND);
        let (status, list) = send(&farm, "GET", "/servers", "").await;
        assert_eq!(status, StatusCode::OK);
        assert!(list.contains("A-2") && !list.contains("canary"), "{list}");
        farm.shutdown().await;
    }
}
