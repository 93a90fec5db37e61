//! Ranges of IPv4 addresses on the command line: `10.0.0.0/24`, `10.0.0.10-10.0.0.20`, `10.0.0.7`.

use std::net::Ipv4Addr;

/// The maximum of addresses of one range.
pub(super) const MAX_ADDRESSES: u32 = 4096;

/// The addresses of a range. The network address and the broadcast address of a network are left out.
///
/// # Errors
/// When the text is no range, or the range has more than [`MAX_ADDRESSES`].
pub(super) fn range(text: &str) -> Result<Vec<Ipv4Addr>, String> {
    let refused = || format!("{text:?} is no range: give 10.0.0.0/24, 10.0.0.10-10.0.0.20 or one address");
    let address = |text: &str| text.parse::<Ipv4Addr>().map(u32::from).map_err(|_| refused());
    let (first, last) = if let Some((network, bits)) = text.split_once('/') {
        let bits: u32 = bits.parse().ok().filter(|bits| *bits <= 32).ok_or_else(refused)?;
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let first = address(network)? & mask;
        let last = first | !mask;
        if bits < 31 { (first + 1, last - 1) } else { (first, last) }
    } else if let Some((first, last)) = text.split_once('-') {
        (address(first)?, address(last)?)
    } else {
        let one = address(text)?;
        (one, one)
    };
    match last.checked_sub(first) {
        None => Err(format!("{text:?} ends before it begins")),
        Some(more) if more >= MAX_ADDRESSES => {
            Err(format!("{text:?} has more than {MAX_ADDRESSES} addresses; give a smaller range"))
        }
        Some(_) => Ok((first..=last).map(Ipv4Addr::from).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_addresses_of_machines() {
        let shown = |text: &str| range(text).unwrap().iter().map(Ipv4Addr::to_string).collect::<Vec<_>>();
        assert_eq!(shown("10.0.0.9/30"), ["10.0.0.9", "10.0.0.10"]);
        assert_eq!(shown("10.0.0.8/31"), ["10.0.0.8", "10.0.0.9"]);
        assert_eq!(shown("10.0.0.255-10.0.1.1"), ["10.0.0.255", "10.0.1.0", "10.0.1.1"]);
        assert_eq!(shown("10.0.0.7"), ["10.0.0.7"]);
        assert_eq!(range("10.0.0.0/24").unwrap().len(), 254);
        assert_eq!(range("10.0.0.0/20").unwrap().len(), 4094);
        for refused in ["10.0.0.0/19", "0.0.0.0/0", "10.0.0.2-10.0.0.1", "10.0.0.0/33", "10.0.0", "", "a-b"] {
            assert!(range(refused).is_err(), "{refused}");
        }
    }
}
