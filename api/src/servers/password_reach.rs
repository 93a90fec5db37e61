//! Where the stored password of a BMC may be sent after a change of its server.
//!
//! ```text
//!   address      certificate check       without the password in the request
//!   equal        equal or stricter       accepted
//!   equal        weaker or another one   refused
//!   another      the same pin            accepted if the request repeats the pin, or the new address shows the certificate
//!   another      anything else           refused
//!
//!   label queue  set or another one      refused: the workers of that queue receive the password with a call
//!                equal or removed        accepted
//!
//!   media_base_url  set or another one   refused, except for administrators: that host can read the task images of the server
//!                   equal or removed     accepted
//! ```
//!
//! Invariant: a caller that does not know the password of a BMC cannot have it sent to a machine that could not receive it before.

use model::{Server, TlsMode};
use upkeep::order::QUEUE_LABEL;

/// Who can receive the stored password after a change, compared with before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PasswordReach {
    /// No machine that could not receive it before.
    Same,
    /// The machine at another address that shows the pinned certificate.
    PinnedElsewhere,
    /// Another machine; the text says why.
    Wider(&'static str),
}

/// Compares the receivers of the password before and after a change.
pub(super) fn password_reach(old: &Server, new: &Server) -> PasswordReach {
    let queue = worker_queue(new);
    if queue.is_some() && queue != worker_queue(old) {
        return PasswordReach::Wider(
            "the workers of another queue receive it, because the label queue changes",
        );
    }
    let same_pin = (old.tls, new.tls) == (TlsMode::Pinned, TlsMode::Pinned)
        && old.tls_fingerprint.is_some()
        && old.tls_fingerprint == new.tls_fingerprint;
    if old.bmc_address != new.bmc_address {
        return if same_pin && is_https(new) {
            PasswordReach::PinnedElsewhere
        } else {
            PasswordReach::Wider("the address of the BMC changes")
        };
    }
    let weaker = match (old.tls, new.tls) {
        // Without TLS nothing is verified, neither before nor after.
        _ if !is_https(new) => false,
        (TlsMode::Insecure, _) => false,
        (TlsMode::Verify, mode) => mode != TlsMode::Verify,
        (TlsMode::Pinned, TlsMode::Verify) => false,
        // The first certificate was not seen yet: every pin is as strict as none.
        (TlsMode::Pinned, TlsMode::Pinned) => old.tls_fingerprint.is_some() && !same_pin,
        (TlsMode::Pinned, TlsMode::Insecure) => true,
    };
    if weaker {
        return PasswordReach::Wider(
            "the certificate of the BMC is verified less than before, or another one is accepted",
        );
    }
    PasswordReach::Same
}

/// Whether the BMC would read media from a host that the change names. A task image has the report token, the pull password and user
/// data, which only the machine and administrators may read; the host that serves it, or that the URL leads to, sees all of that.
pub(super) fn media_reach_another_host(old: &Server, new: &Server) -> bool {
    new.media_base_url.is_some() && new.media_base_url != old.media_base_url
}

/// The queue whose workers receive the password; `None` when only the controller uses it.
fn worker_queue(server: &Server) -> Option<&str> {
    let queue = server.labels.get(QUEUE_LABEL).map(String::as_str);
    queue.filter(|queue| !queue.is_empty() && *queue != bmc::QUEUE)
}

fn is_https(server: &Server) -> bool {
    server.bmc_address.starts_with("https://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Clock, SystemClock};

    /// A server from its address, mode and pin, as in `https://10.0.0.7 pinned aa`.
    fn server(text: &str) -> Server {
        let mut words = text.split(' ');
        let mut server = Server::unknown("S-1".parse().unwrap(), SystemClock.now());
        server.bmc_address = words.next().unwrap().to_owned();
        server.tls = TlsMode::parse(words.next().unwrap()).unwrap();
        server.tls_fingerprint = words.next().map(str::to_owned);
        server
    }

    #[test]
    fn media_of_another_host_need_the_password_and_those_of_the_controller_do_not() {
        let with = |base: Option<&str>| Server {
            media_base_url: base.map(str::to_owned),
            ..server("https://a pinned aa")
        };
        for (old, new, other) in [
            (None, Some("http://a"), true),
            (Some("http://a"), Some("http://b"), true),
            (Some("http://a"), Some("http://a:8080"), true),
            (Some("http://a"), Some("http://a"), false),
            (Some("http://a"), None, false),
            (None, None, false),
        ] {
            assert_eq!(media_reach_another_host(&with(old), &with(new)), other, "{old:?} -> {new:?}");
        }
    }

    #[test]
    fn only_a_change_that_reaches_no_other_machine_needs_no_password() {
        const SAME: [(&str, &str); 11] = [
            ("https://a pinned aa", "https://a pinned aa"),
            ("https://a pinned", "https://a pinned"),
            ("https://a pinned", "https://a pinned aa"),
            ("https://a pinned aa", "https://a verify aa"),
            ("https://a pinned", "https://a verify"),
            ("https://a verify", "https://a verify"),
            ("https://a insecure", "https://a insecure"),
            ("https://a insecure", "https://a pinned"),
            ("https://a insecure", "https://a pinned aa"),
            ("https://a insecure", "https://a verify"),
            ("http://a pinned", "http://a insecure"),
        ];
        const WIDER: [(&str, &str); 15] = [
            ("https://a pinned aa", "https://a pinned"),
            ("https://a pinned aa", "https://a pinned bb"),
            ("https://a pinned aa", "https://a insecure aa"),
            ("https://a pinned", "https://a insecure"),
            ("https://a verify", "https://a pinned"),
            ("https://a verify", "https://a pinned aa"),
            ("https://a verify", "https://a insecure"),
            ("https://a pinned", "https://b pinned"),
            ("https://a pinned aa", "https://b pinned"),
            ("https://a pinned aa", "https://b verify aa"),
            ("https://a verify", "https://b verify"),
            ("https://a verify aa", "https://b pinned aa"),
            ("https://a insecure aa", "https://a:8443 insecure aa"),
            ("https://a pinned aa", "http://a pinned aa"),
            ("http://a pinned", "http://b pinned"),
        ];
        for (old, new) in SAME {
            assert_eq!(password_reach(&server(old), &server(new)), PasswordReach::Same, "{old} -> {new}");
        }
        for (old, new) in WIDER {
            let reach = password_reach(&server(old), &server(new));
            assert!(matches!(reach, PasswordReach::Wider(_)), "{old} -> {new}: {reach:?}");
        }
        let queue = |queue: Option<&str>| {
            let labels = queue.map(|queue| (QUEUE_LABEL.to_owned(), queue.to_owned()));
            Server { labels: labels.into_iter().collect(), ..server("https://a pinned aa") }
        };
        for (old, new, wider) in [
            (None, Some("b"), true),
            (Some("b"), Some("c"), true),
            (Some("default"), Some("b"), true),
            (Some("b"), Some("b"), false),
            (Some("b"), None, false),
            (Some("b"), Some("default"), false),
            (None, Some(""), false),
        ] {
            let reach = password_reach(&queue(old), &queue(new));
            assert_eq!(matches!(reach, PasswordReach::Wider(_)), wider, "{old:?} -> {new:?}: {reach:?}");
        }
        let pinned_and_queue = Server { bmc_address: "https://b".to_owned(), ..queue(Some("b")) };
        let both = password_reach(&queue(None), &pinned_and_queue);
        assert!(matches!(both, PasswordReach::Wider(_)), "a pin says nothing about a worker: {both:?}");
        let moved = password_reach(&server("https://a pinned aa"), &server("https://b pinned aa"));
        assert_eq!(moved, PasswordReach::PinnedElsewhere);
    }
}
