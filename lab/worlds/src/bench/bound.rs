//! A figure that is judged against a bound, because the load of the machine does not change it.

use anyhow::bail;

/// A figure and its upper bound.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    /// The name of the measured figure.
    pub(super) what: &'static str,
    /// The result.
    pub(super) result: f64,
    /// The upper bound of the result.
    pub(super) most: f64,
    /// The unit, with a space before it; empty for a number of things.
    pub(super) unit: &'static str,
}

impl Bound {
    /// The result in parts of the bound.
    fn ratio(&self) -> f64 {
        self.result / self.most
    }

    fn holds(&self) -> bool {
        // A result that is no number holds nothing.
        self.result <= self.most
    }

    /// The result, for people.
    pub(super) fn found(&self) -> String {
        format!("{:.1}{}, {:.2} of the bound", self.result, self.unit, self.ratio())
    }

    /// The bound, for people.
    pub(super) fn target(&self) -> String {
        format!("{:.0}{}", self.most, self.unit)
    }

    /// Whether the figure is within its bound, in words.
    pub(super) fn verdict(&self) -> String {
        if self.holds() { "held" } else { "MISSED" }.to_owned()
    }
}

/// Ends with an error that names each bound that is missed.
pub(super) fn judge(bounds: &[Bound]) -> anyhow::Result<()> {
    let missed: Vec<String> = bounds
        .iter()
        .filter(|bound| !bound.holds())
        .map(|bound| format!("{}: {}, at most {}", bound.what, bound.found(), bound.target()))
        .collect();
    if missed.is_empty() {
        return Ok(());
    }
    bail!("{} of {} bounds are missed: {}", missed.len(), bounds.len(), missed.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(result: f64) -> Bound {
        Bound { what: "requests", result, most: 30.0, unit: "" }
    }

    #[test]
    fn a_figure_within_its_bound_is_shown_with_its_ratio_and_one_above_ends_with_words() {
        assert_eq!(requests(24.0).found(), "24.0, 0.80 of the bound");
        assert!(judge(&[requests(24.0), requests(30.0)]).is_ok());
        // The defects that the bounds are there to find.
        for defect in [30.5, f64::NAN, f64::INFINITY] {
            let words = judge(&[requests(24.0), requests(defect)]).unwrap_err().to_string();
            assert!(words.starts_with("1 of 2 bounds are missed: requests:"), "{words}");
            assert_eq!(requests(defect).verdict(), "MISSED");
        }
    }
}
