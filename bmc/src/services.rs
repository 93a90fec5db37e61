//! The services that a workflow uses for BMCs: the records of servers, connections, addresses, and the policies of its steps.

use std::time::Duration;

use redfish::Discovery;

use super::addresses::{Addresses, MediaBases, bmc_address};
use super::class;
use super::classify::{failure, from_redfish, unavailable};
use super::connections::{Bmcs, ConnectError};
use super::lookup::ServerLookup;
use super::probe::BmcProblem;
use super::step::ConnectedBmc;
use engine::{StepContext, StepError, StepPolicy};
use model::{Effect, Serial, Server, StepName};

/// The services that every workflow shares.
pub struct BmcServices {
    /// Looks up registered servers.
    pub servers: Box<dyn ServerLookup>,
    /// Connections to BMCs.
    pub connections: Bmcs,
    /// The addresses of the controller.
    pub addresses: Addresses,
    /// Maximum number of attempts of a step that uses a BMC.
    pub tries: u32,
}

impl BmcServices {
    /// The policy of steps that only read a BMC.
    pub fn reading_policy(&self) -> StepPolicy {
        StepPolicy { interruptible: true, ..self.changing_policy() }
    }

    /// The policy of steps that change a BMC. They are not interruptible: the BMC could apply an interrupted change after
    /// cleanup has read its state.
    pub fn changing_policy(&self) -> StepPolicy {
        StepPolicy {
            // One insert request may take the BMC two minutes.
            call: Duration::from_secs(150),
            budget: Duration::from_secs(20 * 60),
            attempts: self.tries,
            backoff: Duration::from_millis(500),
            backoff_cap: Duration::from_secs(8),
            wait: None,
            interruptible: false,
            runs_past_deadline: false,
        }
    }

    /// Reads the current record of a server.
    ///
    /// # Errors
    /// Returns a failure when the server is not registered, and a retry when the lookup did not respond.
    pub async fn server(&self, step: &StepName, serial: &Serial) -> Result<Server, StepError> {
        match self.servers.server(serial).await {
            Ok(Some(server)) => Ok(server),
            Ok(None) => Err(StepError::fail(failure(
                class::INPUT,
                step,
                format!("server {serial} is no longer registered"),
                "register it again, then create the job again",
            ))),
            Err(why) => Err(unavailable(step, &why)),
        }
    }

    /// Connects to the BMC of a server. The client sends a change only while the lease of the worker outlives it.
    ///
    /// # Errors
    /// Returns a failure when the record is not usable, and what ends the step when the BMC did not respond.
    pub async fn connect(
        &self,
        step: &StepName,
        context: &StepContext,
        serial: &Serial,
    ) -> Result<ConnectedBmc, StepError> {
        let server = self.server(step, serial).await?;
        self.connect_to(context, server).await.map_err(|why| not_connected(step, serial, why))
    }

    /// Connects to the BMC of a server whose record was read.
    pub(super) async fn connect_to(
        &self,
        context: &StepContext,
        server: Server,
    ) -> Result<ConnectedBmc, ConnectError> {
        let connected = self.connections.connect(&server, &context.lease).await?;
        let learned = connected
            .learned_fingerprint
            .map(|fingerprint| Effect::ServerPinned { serial: server.serial.clone(), fingerprint });
        Ok(ConnectedBmc { server, bmc: connected.bmc, tries: self.tries, learned })
    }

    /// Connects to the BMC that an earlier step of the run verified ([`super::identity`]) and discovered at `address`.
    ///
    /// # Errors
    /// Returns a failure when the record has another address now, and otherwise the errors of [`BmcServices::connect`].
    pub async fn connect_verified(
        &self,
        step: &StepName,
        context: &StepContext,
        serial: &Serial,
        (address, discovery): (&str, &Discovery),
    ) -> Result<ConnectedBmc, StepError> {
        let connected = self.connect(step, context, serial).await?;
        let now = &connected.server.bmc_address;
        if now != address {
            // A new address may be another machine (decision D3a), and this job began at the old one.
            return Err(StepError::fail(failure(
                class::INPUT,
                step,
                format!(
                    "the BMC address of {serial} was changed during this job, from {address} to {now}; the job does not \
                     use the new address"
                ),
                "check the machine behind the old address: media and power may be as this job left them",
            )));
        }
        connected.bmc.recall(discovery);
        Ok(connected)
    }

    /// Closes sessions that previous controller instances left open on BMCs without a running job.
    pub async fn close_orphaned_sessions(&self) {
        self.connections.close_orphaned_sessions(self.servers.as_ref()).await;
    }

    /// Returns the base URLs where the server's BMC reads media.
    ///
    /// # Errors
    /// Returns the problem when the record or the settings of the controller give no reachable address.
    pub async fn media_bases(&self, server: &Server) -> Result<MediaBases, BmcProblem> {
        let wrong = |why: String| BmcProblem::record(why, server.serial.as_str());
        let bmc = bmc_address(server).await.map_err(wrong)?;
        self.addresses.media_for(server, bmc).map_err(wrong)
    }
}

/// Returns the error of a step whose BMC could not be connected.
pub(super) fn not_connected(step: &StepName, serial: &Serial, why: ConnectError) -> StepError {
    match why {
        ConnectError::Record(_) => StepError::fail(failure(
            class::INPUT,
            step,
            why.to_string(),
            format!("correct it with `shoal server update {serial}`"),
        )),
        ConnectError::Bmc(why) => from_redfish(step, &why),
    }
}
