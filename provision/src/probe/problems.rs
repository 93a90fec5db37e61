//! What stands in the way, in one sentence, and what to do about it: the same in a probe, in a doctor's check and in the
//! failure of a job.

use redfish::RedfishError;
use serde_json::{Value, json};

use super::super::classify::{about, next_action};

/// Why a BMC could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sentence}")]
pub struct Trouble {
    /// A short stable name.
    pub code: String,
    /// What is wrong.
    pub sentence: String,
    /// What to do.
    pub next_action: String,
}

/// What an error of the Redfish client means to an operator.
pub fn trouble(error: &RedfishError, serial: Option<&str>) -> Trouble {
    Trouble {
        code: error.code().to_owned(),
        sentence: error.kind.to_string(),
        next_action: about(&next_action(error), serial.unwrap_or("SERIAL")),
    }
}

impl Trouble {
    /// The server's record, or what was asked for, cannot be used.
    pub(crate) fn record(why: String, serial: &str) -> Self {
        Self {
            code: "record".to_owned(),
            sentence: why,
            next_action: format!("correct it with `shoal server update {serial}`"),
        }
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({ "code": self.code, "sentence": self.sentence, "next_action": self.next_action })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use redfish::error::Denial;
    use redfish::{ErrorKind, Operation, TransportError, TransportErrorKind};

    use super::*;

    fn of(kind: ErrorKind) -> RedfishError {
        RedfishError { operation: Operation::Discover, request: None, kind, maybe_applied: false }
    }

    fn failed(kind: TransportErrorKind, detail: &str) -> RedfishError {
        RedfishError::connecting(TransportError::not_sent(kind, detail))
    }

    fn denied(denial: Denial) -> RedfishError {
        of(ErrorKind::Unauthorized { denial, message: String::new() })
    }

    fn unusable(detail: &str) -> RedfishError {
        of(ErrorKind::BadAnswer { detail: detail.to_owned(), lasting: true })
    }

    /// Everything an operator can meet before the first job, and what is said of it.
    #[test]
    fn every_trouble_has_one_golden_sentence_and_a_way_out() {
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
            ("too slow", failed(K::Timeout, "no complete answer within 30 s")),
            ("legacy TLS", failed(K::LegacyTls, "peer is incompatible: ServerDoesNotSupportTls12Or13")),
            (
                "plain HTTP on the port",
                failed(K::NotTls, "received corrupt message of type InvalidContentType"),
            ),
            ("certificate changed", failed(K::PinMismatch, &pins)),
            ("certificate of an unknown CA", failed(K::Untrusted, "invalid peer certificate: UnknownIssuer")),
            ("wrong password", denied(Denial::Credentials)),
            ("wrong password too often", denied(Denial::TooManyRejections)),
            ("password change required", denied(Denial::PasswordChangeRequired)),
            ("no privilege", denied(Denial::Privilege)),
            ("no licence", of(ErrorKind::License { message: "A license is required.".to_owned() })),
            ("HTML", unusable("a web page instead of a resource")),
            ("redirect", unusable("a redirect to another host (login.example), which is not followed")),
            ("endless body", failed(K::BodyTooLarge, "the answer has more than 4194304 bytes")),
            (
                "no Systems",
                of(ErrorKind::NotSupported { what: "the service root has no Systems".to_owned() }),
            ),
        ];
        let mut text = String::new();
        for (what, error) in &table {
            let Trouble { code, sentence, next_action } = trouble(error, Some("SN-1"));
            assert!(
                !sentence.is_empty() && !next_action.is_empty() && !next_action.contains("SERIAL"),
                "{what}"
            );
            writeln!(text, "{what} [{code}]\n  {sentence}\n  to do: {next_action}\n").unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/bmc-troubles.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &text).unwrap();
        }
        assert_eq!(text, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }
}
