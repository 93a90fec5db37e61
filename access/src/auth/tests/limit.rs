//! The rate limit of authentication failures.

use std::net::Ipv6Addr;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn limiter(burst: u32, seconds: u64, max_addresses: usize) -> RateLimiter {
    RateLimiter::new(RateLimit { burst, interval: Duration::from_secs(seconds), max_addresses })
}

fn host(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number))
}

#[test]
fn a_burst_is_allowed_and_then_one_per_interval() {
    let limiter = limiter(3, 10, 16);
    for _ in 0..3 {
        limiter.check(PEER, at(0)).unwrap();
        limiter.record_failure(PEER, at(0));
    }
    assert_eq!(limiter.check(PEER, at(0)), Err(Limited { retry_after: Duration::from_secs(10) }));
    assert_eq!(limiter.check(PEER, at(4)), Err(Limited { retry_after: Duration::from_secs(6) }));
    limiter.check(PEER, at(10)).unwrap();
    limiter.record_failure(PEER, at(10));
    assert!(limiter.check(PEER, at(10)).is_err());
    limiter.check(PEER, at(20)).unwrap();
}

#[test]
fn a_check_uses_up_nothing() {
    let limiter = limiter(1, 10, 16);
    for _ in 0..100 {
        limiter.check(PEER, at(0)).unwrap();
    }
    assert_eq!(limiter.remembered(), 0);
}

#[test]
fn each_address_has_its_own_allowance() {
    let limiter = limiter(1, 10, 16);
    limiter.record_failure(host(1), at(0));
    assert!(limiter.check(host(1), at(0)).is_err());
    limiter.check(host(2), at(0)).unwrap();
}

#[test]
fn an_ipv6_network_counts_as_one_and_mapped_ipv4_as_ipv4() {
    let limiter = limiter(1, 10, 16);
    limiter.record_failure(IpAddr::V6("2001:db8:1:2::1".parse().unwrap()), at(0));
    assert!(limiter.check(IpAddr::V6("2001:db8:1:2:ffff::9".parse().unwrap()), at(0)).is_err());
    limiter.check(IpAddr::V6("2001:db8:1:3::1".parse().unwrap()), at(0)).unwrap();
    limiter.record_failure(IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped()), at(0));
    assert!(limiter.check(PEER, at(0)).is_err());
    limiter.check(IpAddr::V6(Ipv6Addr::LOCALHOST), at(0)).unwrap();
}

#[test]
fn a_full_map_drops_the_address_with_the_smallest_deficit() {
    let limiter = limiter(2, 10, 4);
    for number in 0..4 {
        limiter.record_failure(host(number), at(0));
    }
    for number in 1..4 {
        limiter.record_failure(host(number), at(0));
    }
    limiter.record_failure(host(9), at(1));
    assert_eq!(limiter.remembered(), 4);
    for number in 1..4 {
        assert!(
            limiter.check(host(number), at(1)).is_err(),
            "host {number} has a larger deficit than host 0 had"
        );
    }
}

#[test]
fn a_full_map_drops_addresses_without_a_deficit_first() {
    let limiter = limiter(1, 10, 3);
    for number in 0..3 {
        limiter.record_failure(host(number), at(0));
    }
    limiter.record_failure(host(9), at(100));
    assert_eq!(limiter.remembered(), 1);
}

#[test]
fn a_refunded_attempt_can_be_used_again() {
    let limiter = limiter(2, 10, 16);
    limiter.record_failure(PEER, at(0));
    limiter.refund(PEER, at(0));
    assert_eq!(limiter.remembered(), 0);
    limiter.record_failure(PEER, at(0));
    limiter.record_failure(PEER, at(0));
    limiter.refund(PEER, at(0));
    limiter.check(PEER, at(0)).unwrap();
    limiter.record_failure(PEER, at(0));
    assert!(limiter.check(PEER, at(0)).is_err());
    for _ in 0..5 {
        limiter.refund(PEER, at(1));
    }
    limiter.record_failure(PEER, at(1));
    limiter.record_failure(PEER, at(1));
    assert!(limiter.check(PEER, at(1)).is_err(), "the allowance never exceeds the burst");
}

#[test]
fn a_clock_that_is_set_back_locks_no_address_out() {
    let limiter = limiter(2, 10, 16);
    limiter.record_failure(PEER, at(1_000_000));
    limiter.record_failure(PEER, at(1_000_000));
    let limited = limiter.check(PEER, at(0)).unwrap_err();
    assert!(limited.retry_after <= Duration::from_secs(20), "{limited:?}");
}

#[test]
fn zeros_and_extreme_values_of_a_limit_are_accepted() {
    let limiter = RateLimiter::new(RateLimit { burst: 0, interval: Duration::ZERO, max_addresses: 0 });
    limiter.check(PEER, at(0)).unwrap();
    limiter.record_failure(PEER, at(0));
    assert!(limiter.check(PEER, at(0)).is_err());
    limiter.check(PEER, at(1)).unwrap();
    let limiter = RateLimiter::new(RateLimit { burst: u32::MAX, interval: Duration::MAX, max_addresses: 2 });
    limiter.record_failure(PEER, at(0));
    let _either = limiter.check(PEER, at(0)).is_ok();
}

proptest! {
    /// The attempts that `check` allows never exceed the burst plus the restored attempts.
    #[test]
    fn no_sequence_of_attempts_exceeds_the_limit(waits in prop::collection::vec(0i64..30, 1..80)) {
        let limiter = limiter(3, 10, 4);
        let mut now = 0;
        let mut let_through = 0;
        for wait in waits {
            now += wait;
            if limiter.check(PEER, at(now)).is_ok() {
                limiter.record_failure(PEER, at(now));
                let_through += 1;
            }
        }
        prop_assert!(let_through <= 3 + now / 10, "{let_through} in {now} s");
    }

    /// A client that waits for `retry_after` is allowed.
    #[test]
    fn an_attempt_after_the_retry_time_is_allowed(failures in 1usize..20, later in 0i64..40) {
        let limiter = limiter(3, 10, 4);
        for _ in 0..failures {
            limiter.record_failure(PEER, at(0));
        }
        let now = at(later);
        if let Err(limited) = limiter.check(PEER, now) {
            let allowed = now + jiff::SignedDuration::try_from(limited.retry_after).unwrap();
            prop_assert!(limiter.check(PEER, allowed).is_ok());
            prop_assert!(limiter.check(PEER, allowed - jiff::SignedDuration::from_millis(1)).is_err());
        }
    }
}
