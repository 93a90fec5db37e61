//! The identity check: before the first change, the serial number that a BMC shows is compared with the registered one
//! (decision D3a).
//!
//! ```text
//!   shown = registered                              -> verified
//!   shown, but another                              -> failure: this is another machine, nothing was changed
//!   not shown, server has allow_unverified_serial   -> not verified: an event, the run continues
//!   not shown                                       -> failure
//! ```

use redfish::{Discovery, SerialMatch};

use super::class;
use super::classify::failure;
use engine::StepError;
use model::{NewEvent, Server, StepName};

/// Compares the serial number of a discovered machine with its record. Returns a warning if it is not verified.
///
/// # Errors
/// Returns a failure when the machine is another one, or shows no serial number and the record does not allow that.
pub fn verify(
    step: &StepName,
    server: &Server,
    discovery: &Discovery,
) -> Result<Option<NewEvent>, StepError> {
    let serial = &server.serial;
    let wrong_machine =
        |summary: String, next: String| StepError::fail(failure(class::INPUT, step, summary, next));
    match discovery.system.matches_serial(serial.as_str()) {
        SerialMatch::Match => Ok(None),
        SerialMatch::Mismatch => Err(wrong_machine(
            format!(
                "the BMC at {} belongs to another machine: it shows serial {}, {serial} is registered; nothing was changed",
                server.bmc_address,
                discovery.system.shown_serial().unwrap_or("?"),
            ),
            format!(
                "correct the address with `shoal server update {serial} --bmc-address … --bmc-password-stdin`"
            ),
        )),
        SerialMatch::Unknown if server.allow_unverified_serial => Ok(Some(NewEvent::warn(
            "redfish.serial-unverified",
            "the BMC shows no serial; the job continues because the server has allow_unverified_serial",
        ))),
        SerialMatch::Unknown => Err(wrong_machine(
            format!(
                "the BMC at {} shows no serial, so it cannot be verified that it is {serial}",
                server.bmc_address
            ),
            format!("if you are sure: `shoal server update {serial} --allow-unverified-serial true`"),
        )),
    }
}
