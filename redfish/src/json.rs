//! Tolerant, bounded parsing of the JSON of a BMC.
//!
//! ```text
//!   body -> (BOM?) -> fewer than 65,536 values, depth under 128 -> JSON object -> Resource
//!                                                                   text()  a string, or a number printed
//!                                                                   flag()  a boolean, or "true"/"false"
//!                                                                   link()  {"@odata.id": "/path"}, checked
//! ```
//!
//! A missing or wrongly typed field is `None` and never an error: real BMCs often violate their schemas.
//! A link is a path on the same BMC or `None`; host names in links are ignored.
//! Specification: DSP0266 clauses 7.5 (data model) and 9 (JSON payloads).

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderMap;
use serde_json::{Map, Value};
use url::Url;

/// Maximum number of values in one document; a larger document is refused before it is parsed.
const MAX_VALUES: usize = 65_536;
/// Maximum number of entries read from a list.
pub(crate) const MAX_ENTRIES: usize = 64;
/// Maximum number of bytes kept of a text.
pub(crate) const MAX_TEXT: usize = 512;
/// Maximum length of a path; longer ones are not followed.
const MAX_PATH: usize = 1024;

/// One resource, as the BMC sent it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    /// The path from which the resource was read.
    pub(crate) path: String,
    /// `ETag` header, else `@odata.etag`; never empty.
    pub(crate) etag: Option<String>,
    /// The `Allow` header, if there was one.
    pub(crate) allow: Option<String>,
    /// The members of the object.
    pub(crate) fields: Arc<Map<String, Value>>,
}

impl Resource {
    pub(crate) fn new(path: &str, headers: &HeaderMap, fields: Map<String, Value>) -> Self {
        let header = |name: &str| {
            let value = headers.get(name)?.to_str().ok()?.trim();
            (!value.is_empty()).then(|| clip(value, MAX_TEXT))
        };
        let in_body = || text(&fields, "@odata.etag").filter(|etag| !etag.is_empty());
        let etag = header("etag").or_else(in_body);
        Resource { path: path.to_owned(), etag, allow: header("allow"), fields: Arc::new(fields) }
    }
}

/// Parses a body into the members of one JSON object; the error names what the body is instead.
pub(crate) fn object(body: &[u8]) -> Result<Map<String, Value>, &'static str> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err("an empty body");
    }
    if body.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() > MAX_VALUES {
        return Err("a document with too many values");
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("JSON that is not an object"),
        Err(_) if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'<') => Err("a web page"),
        Err(error) if error.is_eof() => Err("truncated JSON"),
        Err(_) => Err("text that is not JSON"),
    }
}

/// A string member, trimmed and clipped; numbers and booleans are converted to text.
pub(crate) fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    plain(fields.get(name)?)
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(clip(text.trim(), MAX_TEXT)),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A string member that is not empty.
pub(crate) fn word(fields: &Map<String, Value>, name: &str) -> Option<String> {
    text(fields, name).filter(|text| !text.is_empty())
}

/// A boolean member, also in the form of a string.
pub(crate) fn flag(fields: &Map<String, Value>, name: &str) -> Option<bool> {
    match fields.get(name)? {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// The strings of a list member; a single string counts as a list of one.
pub(crate) fn texts(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    match fields.get(name) {
        Some(Value::Array(entries)) => entries.iter().take(MAX_ENTRIES).filter_map(plain).collect(),
        Some(single) => plain(single).into_iter().collect(),
        None => Vec::new(),
    }
}

/// An object member.
pub(crate) fn member<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    fields.get(name)?.as_object()
}

/// The link in an object member: `{"name": {"@odata.id": "/path"}}`.
pub(crate) fn link(fields: &Map<String, Value>, name: &str) -> Option<String> {
    path_of(member(fields, name)?.get("@odata.id")?.as_str()?)
}

/// The last segment of a path, which is mostly the id of the resource.
pub(crate) fn last_segment(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// The links in a list member: `{"name": [{"@odata.id": "/path"}, …]}`, without repetitions.
pub(crate) fn links(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let entries = fields.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for entry in entries.iter().take(MAX_ENTRIES) {
        let path = entry.get("@odata.id").and_then(Value::as_str).and_then(path_of);
        paths.extend(path.filter(|path| !paths.contains(path)));
    }
    paths
}

/// The target of an action, looked up in `Actions` under its exact name.
pub(crate) fn action<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Map<String, Value>> {
    member(member(fields, "Actions")?, name)
}

/// The target of an OEM action, found by the suffix of its name in the places where BMCs have OEM actions:
/// `Actions`, `Actions.Oem`, `Actions.Oem.<vendor>`, `Oem.<vendor>.Actions`.
pub(crate) fn oem_action(fields: &Map<String, Value>, name: &str) -> Option<String> {
    fn target(actions: &Map<String, Value>, name: &str) -> Option<String> {
        let mut entries = actions.iter().take(MAX_ENTRIES);
        let action =
            entries.find(|(key, _)| key.ends_with(name)).and_then(|(_, action)| action.as_object())?;
        path_of(&word(action, "target")?)
    }
    fn objects(fields: &Map<String, Value>) -> impl Iterator<Item = &Map<String, Value>> {
        fields.values().take(MAX_ENTRIES).filter_map(Value::as_object)
    }
    let actions = member(fields, "Actions");
    let oem = actions.and_then(|actions| member(actions, "Oem"));
    let vendors = member(fields, "Oem").into_iter().flat_map(objects);
    actions
        .into_iter()
        .chain(oem)
        .chain(oem.into_iter().flat_map(objects))
        .chain(vendors.filter_map(|vendor| member(vendor, "Actions")))
        .find_map(|actions| target(actions, name))
}

/// The path in a link, a `Location` or a `target`. An absolute URL is reduced to its path, because requests go only
/// to this BMC; `None` for a text that is not a plain path.
pub(crate) fn path_of(link: &str) -> Option<String> {
    let link = link.trim();
    if link.len() > MAX_PATH {
        return None;
    }
    let path: Cow<'_, str> = if link.starts_with('/') {
        link.split('#').next().unwrap_or_default().into()
    } else {
        let url = Url::parse(link).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        match url.query() {
            Some(query) => format!("{}?{query}", url.path()).into(),
            None => url.path().to_owned().into(),
        }
    };
    let clean =
        path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\'));
    let climbs = path.split(['/', '?']).any(|segment| matches!(segment, "." | ".."));
    (path.len() > 1 && clean && !climbs && !path.starts_with("//")).then(|| path.into_owned())
}

/// Text cut to at most `limit` bytes at a character boundary, control characters replaced.
pub(crate) fn clip(text: &str, limit: usize) -> String {
    let end =
        text.char_indices().map(|(at, char)| at + char.len_utf8()).take_while(|end| *end <= limit).last();
    text[..end.unwrap_or(0)].chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fields(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn what_is_not_a_json_object_is_named() {
        for (body, name) in [
            (&b""[..], "an empty body"),
            (b"  \r\n", "an empty body"),
            (b"<html>", "a web page"),
            (b"{\"a\":", "truncated JSON"),
            (b"[1]", "JSON that is not an object"),
            (b"Invalid request", "text that is not JSON"),
        ] {
            assert_eq!(object(body), Err(name));
        }
        assert!(object(b"\xef\xbb\xbf{\"a\":1}").is_ok());
    }

    #[test]
    fn documents_with_too_many_values_are_refused() {
        assert_eq!(object("[".repeat(100_000).as_bytes()), Err("a document with too many values"));
        assert!(object("[".repeat(1_000).as_bytes()).is_err());
        let flat = format!("{{\"a\":[{}0]}}", "0,".repeat(70_000));
        assert_eq!(object(flat.as_bytes()), Err("a document with too many values"));
    }

    #[test]
    fn wrong_types_are_converted_or_none() {
        let fields = fields(json!({
            "n": 7, "s": "  x ", "b": "True", "o": {}, "null": null, "one": "CD", "mixed": ["a", 1, null, {}]
        }));
        assert_eq!(text(&fields, "n").as_deref(), Some("7"));
        assert_eq!(text(&fields, "s").as_deref(), Some("x"));
        assert_eq!(flag(&fields, "b"), Some(true));
        assert_eq!((text(&fields, "o"), text(&fields, "null"), flag(&fields, "n")), (None, None, None));
        assert_eq!(texts(&fields, "one"), ["CD"]);
        assert_eq!(texts(&fields, "mixed"), ["a", "1"]);
    }

    #[test]
    fn links_are_paths_on_this_bmc_or_none() {
        for (link, path) in [
            ("/redfish/v1/Systems/1#/Boot", Some("/redfish/v1/Systems/1")),
            ("https://elsewhere/redfish/v1/x?y=1", Some("/redfish/v1/x?y=1")),
            ("//elsewhere/x", None),
            ("/a/../b", None),
            ("/a b", None),
            ("/a\r\nX: y", None),
            ("relative", None),
            ("file:///etc/passwd", None),
            ("http:/sernI\u{44f}", None),
            ("http://b\u{e4}r/redfish/v1/x", None),
            ("", None),
        ] {
            assert_eq!(path_of(link).as_deref(), path, "{link}");
        }
    }

    #[test]
    fn clipping_never_splits_a_character() {
        assert_eq!(clip("äöü", 3), "ä");
        assert_eq!(clip("a\nb", 9), "a b");
        assert_eq!(clip("ä", 1), "");
    }
}
