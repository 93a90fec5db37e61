//! The limit of wrong passwords per address.
//!
//! ```text
//!  TRIES at once, then one more every RECOVERY; a try with a right password is returned
//! ```
//!
//! An IPv6 address stands for its /64, which one host has for itself. An address is dropped when all its tries have
//! recovered; when the table is full, the address closest to that is dropped.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

const TRIES: u32 = 20;
const RECOVERY: Duration = Duration::from_secs(5);
const ADDRESSES_MAX: usize = 4096;

/// Addresses with recent wrong passwords. The value is the time when all tries of the address have recovered.
#[derive(Default)]
pub(super) struct Limiter {
    recovered: HashMap<IpAddr, Instant>,
}

impl Limiter {
    /// Takes a try; `false` when the address has none left.
    pub(super) fn take(&mut self, address: IpAddr, now: Instant) -> bool {
        let address = network(address);
        let recovered = self.recovered.get(&address).map_or(now, |recovered| now.max(*recovered));
        let after = recovered + RECOVERY;
        if after > now + RECOVERY * TRIES {
            return false;
        }
        if self.recovered.len() >= ADDRESSES_MAX && !self.recovered.contains_key(&address) {
            self.recovered.retain(|_, recovered| *recovered > now);
        }
        if self.recovered.len() >= ADDRESSES_MAX && !self.recovered.contains_key(&address) {
            let nearest = self.recovered.iter().min_by_key(|(_, recovered)| **recovered).map(|(key, _)| *key);
            nearest.map(|nearest| self.recovered.remove(&nearest));
        }
        self.recovered.insert(address, after);
        true
    }

    /// Returns a try.
    pub(super) fn return_try(&mut self, address: IpAddr) {
        if let Some(recovered) = self.recovered.get_mut(&network(address)) {
            *recovered = recovered.checked_sub(RECOVERY).unwrap_or(*recovered);
        }
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_run_out_and_come_back_one_by_one() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let address = "192.0.2.1".parse().unwrap();
        assert!((0..TRIES).all(|_| limiter.take(address, now)));
        assert!(!limiter.take(address, now));
        assert!(limiter.take("192.0.2.2".parse().unwrap(), now));
        assert!(limiter.take(address, now + RECOVERY));
        assert!(!limiter.take(address, now + RECOVERY));
        assert!((0..TRIES).all(|_| limiter.take(address, now + RECOVERY * 100)));
    }

    #[test]
    fn right_passwords_never_use_up_the_tries() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let address = "192.0.2.1".parse().unwrap();
        for _ in 0..1000 {
            assert!(limiter.take(address, now));
            limiter.return_try(address);
        }
    }

    #[test]
    fn addresses_in_one_network_share_their_tries() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        for host in 0..TRIES {
            assert!(limiter.take(format!("2001:db8::{host:x}").parse().unwrap(), now));
        }
        assert!(!limiter.take("2001:db8::ffff".parse().unwrap(), now));
        assert!(limiter.take("2001:db8:0:1::1".parse().unwrap(), now));
        assert!((0..TRIES).all(|_| limiter.take("::ffff:192.0.2.1".parse().unwrap(), now)));
        assert!(!limiter.take("192.0.2.1".parse().unwrap(), now));
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let (mut limiter, now) = (Limiter::default(), Instant::now());
        let worst = "192.0.2.1".parse().unwrap();
        assert!((0..TRIES).all(|_| limiter.take(worst, now)));
        for number in 0..ADDRESSES_MAX as u32 * 2 {
            limiter.take(IpAddr::V4((0x0a00_0000 + number).into()), now);
        }
        assert_eq!(limiter.recovered.len(), ADDRESSES_MAX);
        assert!(!limiter.take(worst, now), "the address with the most wrong passwords is not dropped first");
    }
}
