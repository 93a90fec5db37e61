//! Percent-decoding and query strings.
//!
//! `+` stands for itself: the values here are digests, names, tags and media types, in which `+` is an ordinary
//! character and a space never occurs.

use std::borrow::Cow;

use http::StatusCode;

use super::error::{ApiError, Code};

/// Entries in one page of a list, unless the client requests fewer.
const PAGE: usize = 1000;

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
    values(query, key).next()?
}

/// Every value of `key`, in order; `None` for one that cannot be decoded.
pub(crate) fn values<'a>(query: Option<&'a str>, key: &str) -> impl Iterator<Item = Option<Cow<'a, str>>> {
    query
        .into_iter()
        .flat_map(|query| query.split('&'))
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(move |(name, _)| decode(name).is_some_and(|name| name == key))
        .map(|(_, value)| decode(value))
}

/// Percent-encodes the characters that are not allowed in a value.
pub(crate) fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

/// The requested number of entries in one page.
pub(super) fn page_size(query: Option<&str>) -> Result<usize, ApiError> {
    let Some(number) = value(query, "n") else { return Ok(PAGE) };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        let message = "n must be the number of entries wanted in one page";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, Code::Unsupported, message));
    }
    // A number too large for usize is larger than a page.
    Ok(number.parse().unwrap_or(PAGE).min(PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_requested_number_of_entries_within_bounds() {
        for (query, expected) in [(None, Some(1000)), (Some("n=7"), Some(7)), (Some("n=0"), Some(0))] {
            assert_eq!(page_size(query).ok(), expected);
        }
        assert_eq!(page_size(Some("n=99999999999999999999999")).ok(), Some(1000));
        for refused in ["n=", "n=-1", "n=+1", "n=x"] {
            assert!(page_size(Some(refused)).is_err(), "{refused}");
        }
    }

    #[test]
    fn an_encoded_value_decodes_to_itself() {
        let kind = "application/vnd.example+json; charset=\"ä\"&n=1";
        let encoded = encode(kind);
        assert!(!encoded.contains(['&', '+', ' ', '"', '<', '>']));
        assert_eq!(decode(&encoded).unwrap(), kind);
    }

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
        let all: Vec<_> = values(query, "x").map(|value| value.unwrap().into_owned()).collect();
        assert_eq!(all, ["1", "2"]);
        assert_eq!(values(query, "bad").collect::<Vec<_>>(), [None]);
        assert_eq!(decode("%ff"), None);
        assert_eq!(decode("%4"), None);
    }
}
