//! From the descriptors of the process to the limits of each listener.
//!
//! ```text
//!   one listener                 [ API  1/2 | media 1/2 ]
//!   MEDIA_HTTP_ADDR is set       [ API  7/8 | media 1/8 ]  half of the connections      the listener of the API
//!                                [ API  1/8 | media 7/8 ]  half of the connections      the listener of media
//! ```

use super::table::{Limits, PoolLimits};
use settings::descriptors::DescriptorBudget;

/// The routes that a listener serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::app) enum Serves {
    /// API, registry and media: the only listener.
    All,
    /// API and registry, and media for URLs that name it; media have a listener of their own.
    Api,
    /// Media.
    Media,
}

impl Limits {
    /// The limits of a listener.
    pub(super) fn of(budget: &DescriptorBudget, serves: Serves) -> Self {
        let (part, media_eighths) = match serves {
            Serves::All => (1, 4),
            Serves::Api => (2, 1),
            Serves::Media => (2, 7),
        };
        let (open, active) = (budget.open / part, budget.active / part);
        let media = active * media_eighths / 8;
        let api = active - media;
        let pool = |requests: usize| PoolLimits {
            requests,
            unproved: (requests - requests / 4).max(1),
            per_address: (requests / 2).max(1),
        };
        Self {
            open,
            open_per_address: (open / 8).max(8),
            api: pool(api),
            media: pool(media),
            anonymous: (api / 2).max(1),
            unproved_per_address: (active / 8).max(4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_more_connections_than_requests_and_no_client_has_a_whole_pool() {
        for limit in [64, 1024, 20_000, 1 << 20] {
            let budget = DescriptorBudget::of(limit, 256);
            let shares: Vec<Limits> =
                [Serves::All, Serves::Api, Serves::Media].map(|serves| Limits::of(&budget, serves)).into();
            for limits in &shares {
                assert!(limits.api.requests + limits.media.requests < limits.open, "{limits:?}");
                assert!(limits.api.requests > 0 && limits.media.requests > 0, "{limits:?}");
            }
            if limit >= 1024 {
                for limits in &shares {
                    for pool in [limits.api, limits.media] {
                        assert!(
                            pool.per_address < pool.requests && pool.unproved < pool.requests,
                            "{limits:?}"
                        );
                    }
                    assert!(
                        limits.unproved_per_address < limits.open && limits.anonymous < limits.api.requests
                    );
                }
            }
            assert!(shares[1].open + shares[2].open <= budget.open);
        }
    }

    #[test]
    fn media_and_api_of_one_listener_have_a_half_each() {
        let limits = Limits::of(&DescriptorBudget::of(20_000, 256), Serves::All);
        assert!(limits.api.requests.abs_diff(limits.media.requests) <= 1, "{limits:?}");
    }
}
