//! The order of versions.

use proptest::prelude::*;

use crate::{FirmwareVersion, VersionOrder, compare};

fn order(installed: &str, of_file: &str) -> VersionOrder {
    compare(&FirmwareVersion::from(installed), &FirmwareVersion::from(of_file))
}

#[test]
fn versions_are_compared_by_their_numbers_and_an_order_is_never_made_up() {
    use VersionOrder::{Newer, Older, Same, Unclear};
    for (installed, of_file, expected) in [
        ("2.18.1", "2.19.0", Older),
        ("2.9", "2.10", Older),
        ("6.10.30.00", "6.10.30.00", Same),
        ("6.10.30.00", "6.10.30", Same),
        ("2.72", "2.72.0", Same),
        ("2.0", "2", Unclear),
        ("U30 v2.36 (07/16/2020)", "2.36", Same),
        ("U30 v2.36 (07/16/2020)", "v2.40", Older),
        ("Controller 5 v2.72", "2.71", Newer),
        ("CDI3A4A-6.10", "6.20", Older),
        ("2.36 (07/16/2020)", "2.36 (08/01/2021)", Unclear),
        ("U46 v1.56 (11/29/2021)", "1.56_11-29-2021", Same),
        ("U46 v1.56 (11/29/2021)", "1.58_11-29-2021", Older),
        ("U46 v1.56 (11/29/2021)", "1.56_05-26-2021", Unclear),
        ("U46 v1.50 (11/29/2021)", "1.50_11-29-2021", Same),
        ("2.36 beta", "2.36 alpha", Unclear),
        ("ABC", "abc", Same),
        ("A04", "A05", Unclear),
        ("00.1D.7D", "00.1D.8A", Unclear),
        ("00.1d.7d", "00.1D.7D", Same),
        ("1.2.3.4.5.6.7", "1.2.3.4.5.6.8", Unclear),
        ("", "1.0", Unclear),
    ] {
        assert_eq!(order(installed, of_file), expected, "{installed:?} and {of_file:?}");
    }
}

proptest! {
    #[test]
    fn the_order_of_two_versions_is_the_reverse_of_the_order_of_the_other_two(a in "[vV]?[0-9.A-C ]{0,9}", b in "[vV]?[0-9.A-C ]{0,9}") {
        let reversed = match order(&a, &b) {
            VersionOrder::Older => VersionOrder::Newer,
            VersionOrder::Newer => VersionOrder::Older,
            other => other,
        };
        prop_assert_eq!(order(&b, &a), reversed);
        prop_assert_eq!(order(&a, &a), VersionOrder::Same);
    }
}
