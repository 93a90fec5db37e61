//! Reads of the BMC of a registered server outside of a job. The client sends no change, and a machine with another serial
//! number than the registered one is not read.

use redfish::{Bmc, Discovery, SerialMatch, SystemSelector};

use super::probe::{BmcProblem, bmc_problem};
use super::services::BmcServices;
use model::{Serial, Server};

/// A BMC that is read.
pub struct Reader {
    /// The client.
    pub bmc: Bmc,
    /// The host and its manager.
    pub discovery: Discovery,
}

impl BmcServices {
    /// Connects to the BMC of a server for reads. The caller ends it with [`BmcServices::close_reader`].
    ///
    /// # Errors
    /// Returns the problem when the record of the server cannot be used, the BMC cannot be read, or the machine is another one.
    pub async fn reader(&self, server: &Server) -> Result<Reader, BmcProblem> {
        let connected =
            self.connections.reader(server, None).await.map_err(|why| why.problem(&server.serial))?;
        match discovered(&connected.bmc, server).await {
            Ok(discovery) => Ok(Reader { bmc: connected.bmc, discovery }),
            Err(problem) => {
                self.connections.release(&server.serial, &connected.bmc).await;
                Err(problem)
            }
        }
    }

    /// Ends the session of a reader, unless a job uses it.
    pub async fn close_reader(&self, serial: &Serial, reader: &Reader) {
        self.connections.release(serial, &reader.bmc).await;
    }
}

async fn discovered(bmc: &Bmc, server: &Server) -> Result<Discovery, BmcProblem> {
    let serial = server.serial.as_str();
    let found = bmc.discover(&SystemSelector::serial(serial)).await;
    let found = found.map_err(|error| bmc_problem(&error, Some(serial)))?;
    match found.system.matches_serial(serial) {
        SerialMatch::Match => Ok(found),
        SerialMatch::Unknown if server.allow_unverified_serial => Ok(found),
        SerialMatch::Unknown | SerialMatch::Mismatch => {
            let shown = found.system.shown_serial().unwrap_or("none");
            let why =
                format!("the BMC at {} shows serial {shown}, {serial} is registered", server.bmc_address);
            Err(BmcProblem::record(why, serial))
        }
    }
}
