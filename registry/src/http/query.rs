//! Percent-decoding and query strings.
//!
//! `+` stays itself: the values here are digests, names, tags and (later) media types, where `+` is a letter of
//! its own and a space never occurs.

use std::borrow::Cow;

/// Decodes `%XX`; `None` for a broken escape or for bytes that are not UTF-8.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let high = char::from(rest.next()?).to_digit(16)?;
            let low = char::from(rest.next()?).to_digit(16)?;
            decoded.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// The first value of `key` in a query string; `None` also when it cannot be decoded.
pub(crate) fn value<'a>(query: Option<&'a str>, key: &str) -> Option<Cow<'a, str>> {
    query?
        .split('&')
        .filter_map(|pair| pair.split_once('=').or(Some((pair, ""))))
        .find_map(|(name, value)| (decode(name)? == key).then(|| decode(value))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_decoded() {
        let query = Some("mount=sha256%3aab&from=a%2Fb&n=&flag&x=1&x=2&bad=%zz");
        assert_eq!(value(query, "mount").as_deref(), Some("sha256:ab"));
        assert_eq!(value(query, "from").as_deref(), Some("a/b"));
        assert_eq!(value(query, "n").as_deref(), Some(""));
        assert_eq!(value(query, "flag").as_deref(), Some(""));
        assert_eq!(value(query, "x").as_deref(), Some("1"));
        assert_eq!(value(query, "bad"), None);
        assert_eq!(value(query, "absent"), None);
        assert_eq!(value(Some("type=a/b+json"), "type").as_deref(), Some("a/b+json"));
        assert_eq!(decode("%ff"), None);
        assert_eq!(decode("%4"), None);
    }
}
