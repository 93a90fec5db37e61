//! The reasons why one read of a BMC that may restart failed.

use redfish::error::DenialReason;
use redfish::{ErrorKind, RedfishError, TransportErrorKind};

use bmc::ConnectError;

/// Why one read of a BMC failed.
pub(super) enum Look {
    /// The BMC did not respond, the TLS handshake failed, or no request was sent because the circuit is open.
    Silent(String),
    /// The BMC shows another certificate than the registered one, or one that is not trusted.
    OtherCertificate(RedfishError),
    /// The BMC rejects the login.
    Denied(RedfishError),
    /// The stored record of the server cannot be used to connect.
    Unusable(String),
    /// The read failed in another way.
    Error(RedfishError),
}

impl Look {
    /// Sorts an error of the client.
    pub(super) fn of(error: RedfishError) -> Self {
        match &error.kind {
            ErrorKind::Tls {
                problem: TransportErrorKind::PinMismatch | TransportErrorKind::Untrusted,
                ..
            } => Self::OtherCertificate(error),
            ErrorKind::Unreachable { .. }
            | ErrorKind::Timeout { .. }
            | ErrorKind::CircuitOpen(_)
            | ErrorKind::Tls { .. } => Self::Silent(error.kind.to_string()),
            ErrorKind::Unauthorized {
                denial: DenialReason::Credentials | DenialReason::TooManyRejections,
                ..
            } => Self::Denied(error),
            _ => Self::Error(error),
        }
    }

    /// Sorts an error of a connection.
    pub(super) fn of_connect(error: ConnectError) -> Self {
        match error {
            ConnectError::Record(why) => Self::Unusable(why),
            ConnectError::Bmc(error) => Self::of(*error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redfish::error::Operation;

    #[test]
    fn a_certificate_that_is_not_accepted_is_neither_silence_nor_a_handshake_of_a_bmc_that_starts() {
        let look = |problem| {
            let kind = ErrorKind::Tls { problem, detail: "of the TLS library".to_owned() };
            Look::of(RedfishError {
                operation: Operation::Connect,
                request: None,
                kind,
                maybe_applied: false,
            })
        };
        for problem in [TransportErrorKind::PinMismatch, TransportErrorKind::Untrusted] {
            assert!(matches!(look(problem), Look::OtherCertificate(_)), "{problem:?}");
        }
        for problem in [TransportErrorKind::TlsHandshake, TransportErrorKind::NotTls] {
            assert!(matches!(look(problem), Look::Silent(_)), "{problem:?}");
        }
    }
}
