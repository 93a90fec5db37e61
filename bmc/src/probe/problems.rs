//! BMC problems as one sentence with a next action. Probes, diagnostics and job failures use the same texts.

use redfish::RedfishError;
use serde_json::{Value, json};

use super::super::classify::{next_action, with_serial};

/// The reason why a BMC could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct BmcProblem {
    /// The stable code.
    pub code: String,
    /// The event, as one sentence.
    pub sentence: String,
    /// The next action.
    pub next_action: String,
}

/// Describes an error of the Redfish client for operators.
pub fn bmc_problem(error: &RedfishError, serial: Option<&str>) -> BmcProblem {
    BmcProblem {
        code: error.code().to_owned(),
        sentence: error.kind.to_string(),
        next_action: with_serial(&next_action(error), serial.unwrap_or("SERIAL")),
    }
}

impl BmcProblem {
    /// Builds the problem of an unusable server record or request.
    pub fn record(why: String, serial: &str) -> Self {
        Self {
            code: "record".to_owned(),
            sentence: why,
            next_action: format!("correct it with `shoal server update {serial}`"),
        }
    }

    /// Returns the problem as JSON.
    pub fn json(&self) -> Value {
        json!({ "code": self.code, "sentence": self.sentence, "next_action": self.next_action })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use redfish::error::DenialReason;
    use redfish::{ErrorKind, Operation, TransportError, TransportErrorKind};

    use super::*;

    fn of(kind: ErrorKind) -> RedfishError {
        RedfishError { operation: Operation::Discover, request: None, kind, maybe_applied: false }
    }

    fn failed(kind: TransportErrorKind, detail: &str) -> RedfishError {
        RedfishError::connecting(TransportError::not_sent(kind, detail))
    }

    fn denied(denial: DenialReason) -> RedfishError {
        of(ErrorKind::Unauthorized { denial, message: String::new() })
    }

    fn unusable(detail: &str) -> RedfishError {
        of(ErrorKind::BadAnswer { detail: detail.to_owned(), lasting: true })
    }

    fn media(reads: &str, served: &str) -> RedfishError {
        of(ErrorKind::MediaUrl { reads: reads.to_owned(), served: served.to_owned() })
    }

    /// Every problem that can occur before the first job, with its text.
    #[test]
    fn every_bmc_problem_has_a_golden_sentence_and_a_next_action() {
        use TransportErrorKind as K;
        let pins = format!("pinned {}, shown {}", "ab".repeat(32), "cd".repeat(32));
        let table = [
            ("name does not resolve", failed(K::Resolve, "dns error: failed to lookup address information")),
            (
                "refused connection",
                failed(K::Refused, "tcp connect error: Connection refused (os error 111)"),
            ),
            ("no route", failed(K::Connect, "tcp connect error: No route to host (os error 113)")),
            ("cut off", failed(K::Lost, "connection closed before message completed")),
            ("too slow", failed(K::Timeout, "no complete response within 30 s")),
            ("legacy TLS", failed(K::LegacyTls, "peer is incompatible: ServerDoesNotSupportTls12Or13")),
            ("handshake ended by the BMC", failed(K::HandshakeCut, "tls handshake eof")),
            (
                "plain HTTP on the port",
                failed(K::NotTls, "received corrupt message of type InvalidContentType"),
            ),
            ("certificate changed", failed(K::PinMismatch, &pins)),
            ("certificate of an unknown CA", failed(K::Untrusted, "invalid peer certificate: UnknownIssuer")),
            ("wrong password", denied(DenialReason::Credentials)),
            ("wrong password too often", denied(DenialReason::TooManyRejections)),
            ("password change required", denied(DenialReason::PasswordChangeRequired)),
            ("no privilege", denied(DenialReason::Privilege)),
            ("no licence", of(ErrorKind::License { message: "A license is required.".to_owned() })),
            (
                "media detached",
                of(ErrorKind::MediaDetached { attribute: "VirtualMedia.1.Attached".to_owned() }),
            ),
            ("media by https only", media("https", "http")),
            ("media from one port only", media("port 80", "port 8080")),
            (
                "busy",
                of(ErrorKind::Busy {
                    status: 500,
                    message_id: Some("IDRAC.2.8.SYS518".to_owned()),
                    message: "The service is not ready.".to_owned(),
                    retry_after: None,
                }),
            ),
            (
                "internal error",
                of(ErrorKind::Server {
                    status: 500,
                    message_id: Some("Base.1.12.InternalError".to_owned()),
                    message: "The request failed.".to_owned(),
                }),
            ),
            ("HTML", unusable("a web page instead of a resource")),
            ("redirect", unusable("a redirect to another host (login.example), which is not followed")),
            ("endless body", failed(K::BodyTooLarge, "the response has more than 4194304 bytes")),
            (
                "no Systems",
                of(ErrorKind::NotSupported { what: "the service root has no Systems".to_owned() }),
            ),
        ];
        let mut text = String::new();
        for (what, error) in &table {
            let BmcProblem { code, sentence, next_action } = bmc_problem(error, Some("SN-1"));
            assert!(
                !sentence.is_empty() && !next_action.is_empty() && !next_action.contains("SERIAL"),
                "{what}"
            );
            writeln!(text, "{what} [{code}]\n  {sentence}\n  to do: {next_action}\n").unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/bmc-problems.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }
}
