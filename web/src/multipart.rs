//! Forms with files: `multipart/form-data` (RFC 7578), as browsers send it.
//!
//! ```text
//!   --BOUNDARY CRLF  Content-Disposition: form-data; name="text" CRLF  CRLF  value  CRLF --BOUNDARY CRLF … CRLF --BOUNDARY--
//! ```
//!
//! Invariants: no body makes the reader panic; the values are parts of the body, so their sum is not longer than it; a part without a
//! name, and a body that does not end with its last boundary, are refused.

/// The longest boundary (RFC 2046).
const MAX_BOUNDARY: usize = 70;
/// The longest head of a part.
const MAX_HEAD: usize = 4096;

/// The reason why a body is no form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NotAForm(&'static str);

/// The boundary of a content type; `None` when it is not that of a form with files.
pub(crate) fn boundary(content_type: &str) -> Option<&str> {
    let rest = content_type.strip_prefix("multipart/form-data")?;
    let parameter =
        rest.split(';').map(str::trim).find_map(|parameter| parameter.strip_prefix("boundary="))?;
    let boundary = parameter.trim_matches('"');
    (1..=MAX_BOUNDARY).contains(&boundary.len()).then_some(boundary)
}

/// The fields of a body: at most `limit`, the others are left out.
pub(crate) fn fields(boundary: &str, body: &[u8], limit: usize) -> Result<Vec<(String, String)>, NotAForm> {
    let delimiter = format!("--{boundary}");
    let mut rest =
        body.strip_prefix(delimiter.as_bytes()).ok_or(NotAForm("the body has no first boundary"))?;
    let next = format!("\r\n{delimiter}");
    let mut fields = Vec::new();
    loop {
        if rest.starts_with(b"--") {
            return Ok(fields);
        }
        let part = rest.strip_prefix(b"\r\n").ok_or(NotAForm("a boundary does not end its line"))?;
        let end = find(part, next.as_bytes()).ok_or(NotAForm("the last boundary is missing"))?;
        if fields.len() < limit {
            fields.push(field(&part[..end])?);
        }
        rest = &part[end + next.len()..];
    }
}

/// Name and value of a part.
fn field(part: &[u8]) -> Result<(String, String), NotAForm> {
    let head = find(&part[..part.len().min(MAX_HEAD)], b"\r\n\r\n").ok_or(NotAForm("a part has no head"))?;
    let text = std::str::from_utf8(&part[..head]).map_err(|_| NotAForm("the head of a part is no text"))?;
    let disposition = text.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let name = disposition.and_then(name).ok_or(NotAForm("a part has no name"))?;
    let value =
        std::str::from_utf8(&part[head + 4..]).map_err(|_| NotAForm("a field or file is not UTF-8 text"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The parameter `name` of a disposition. Names of our forms have no quotation marks, so an escaped one is no name.
fn name(disposition: &str) -> Option<&str> {
    let mut parameters = disposition.split(';').map(str::trim);
    let quoted = parameters.find_map(|parameter| parameter.strip_prefix("name="))?;
    let name = quoted.strip_prefix('"')?.strip_suffix('"')?;
    (!name.is_empty()).then_some(name)
}

fn find(within: &[u8], wanted: &[u8]) -> Option<usize> {
    within.windows(wanted.len()).position(|window| window == wanted)
}

/// The body of the fuzz target `multipart`: the first line is a content type, the rest a body.
pub fn fuzz(data: &[u8]) {
    let (head, body) = data.split_at(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()));
    let Some(boundary) = std::str::from_utf8(head).ok().and_then(boundary) else { return };
    if let Ok(fields) = fields(boundary, body.get(1..).unwrap_or_default(), 8) {
        assert!(fields.len() <= 8, "more fields than the limit");
        let sum: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(sum <= body.len(), "the values are longer than the body");
        assert!(fields.iter().all(|(name, _)| !name.is_empty()), "a field without a name");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(boundary: &str, fields: &[(String, String)]) -> Vec<u8> {
        let part = |(name, value): &(String, String)| {
            format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a;b.csv\"\r\nContent-Type: text/csv\r\n\r\n{value}\r\n"
            )
        };
        let parts: String = fields.iter().map(part).collect();
        format!("{parts}--{boundary}--\r\n").into_bytes()
    }

    #[test]
    fn a_body_that_is_no_form_is_refused_with_its_cause() {
        let disposition = "Content-Disposition: form-data; name=\"a\"";
        for (body, cause) in [
            (String::new(), "no first boundary"),
            ("--x".to_owned(), "does not end its line"),
            (format!("--x\r\n{disposition}\r\n\r\nvalue"), "last boundary"),
            ("--x\r\nvalue\r\n--x--".to_owned(), "no head"),
            ("--x\r\nContent-Type: a\r\n\r\nvalue\r\n--x--".to_owned(), "no name"),
            ("--x\r\nContent-Disposition: form-data; name=\"\"\r\n\r\n\r\n--x--".to_owned(), "no name"),
        ] {
            let refused = fields("x", body.as_bytes(), 8).unwrap_err().to_string();
            assert!(refused.contains(cause), "{body:?}: {refused}");
        }
        for content_type in
            ["text/plain; boundary=x", "multipart/form-data", "multipart/form-data; boundary="]
        {
            assert_eq!(boundary(content_type), None, "{content_type}");
        }
        assert_eq!(boundary("multipart/form-data; boundary=\"a b\""), Some("a b"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_written_form_is_read_again_and_nothing_stops_the_reader(
            given in proptest::collection::vec(("[a-z_]{1,8}", "[ -~\r\n]{0,40}"), 0..6),
            any in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            let body = written("----Boundary7", &given);
            prop_assert_eq!(fields("----Boundary7", &body, 64).unwrap(), given);
            let _ = fields("x", &any, 8);
            fuzz(&any);
            let cut = body.len() / 2;
            prop_assert!(fields("----Boundary7", &body[..cut], 64).is_err());
        }
    }
}
