//! Texts of other programs that are too long for a summary.

use std::borrow::Cow;

/// Cuts a text to a number of characters by leaving out its middle: the beginning says what failed, and the end why.
#[must_use]
pub fn cut_middle(text: &str, most: usize) -> Cow<'_, str> {
    let count = text.chars().count();
    if count <= most {
        return Cow::Borrowed(text);
    }
    let kept = most.saturating_sub(1);
    let head: String = text.chars().take(kept.div_ceil(2)).collect();
    let tail: String = text.chars().skip(count - kept / 2).collect();
    Cow::Owned(format!("{head}…{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_long_text_stay_and_the_limit_holds_for_every_length() {
        assert_eq!(cut_middle("reading the image: no such host", 15), "reading…ch host");
        for most in 1..12 {
            assert_eq!(cut_middle("ääääääääääää", most).chars().count(), most);
        }
        assert_eq!(cut_middle("short", 5), "short");
    }
}
