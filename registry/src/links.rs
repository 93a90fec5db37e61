//! The digests that a manifest refers to.
//!
//! ```text
//!  a push      every field below is there once, and is a descriptor or a list of them     anything else is refused
//!  a stored    every digest in one of these fields counts, whatever else the field has    a document of an earlier version
//!  document
//! ```
//!
//! Only the names of the fields matter, not the kind of document: everything under `config`, `layers`, `blobs` or `manifests`
//! is content. Invariant: what a push is accepted with can be read, so that garbage collection, deletes, pins and exports can
//! follow it.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::digest::Digest;

/// The references of one manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Links {
    /// Configuration, layers, and the entries of an index. Digests that this registry does not support are left out.
    pub(crate) content: Vec<Digest>,
    pub(crate) subject: Option<Digest>,
}

#[derive(Deserialize)]
struct Document {
    config: Option<Named>,
    layers: Option<Vec<Named>>,
    blobs: Option<Vec<Named>>,
    manifests: Option<Vec<Named>>,
    subject: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    digest: String,
}

/// The members of an object, in order, also those of one name.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl Links {
    /// Reads the references of a document that is pushed.
    ///
    /// # Errors
    /// When a field that lists content is there twice, or is neither a descriptor nor a list of them.
    pub(crate) fn read(document: &[u8]) -> Result<Self, serde_json::Error> {
        let document: Document = serde_json::from_slice(document)?;
        let lists = [document.layers, document.blobs, document.manifests];
        let listed = lists.into_iter().flatten().flatten().chain(document.config);
        Ok(Links {
            content: listed.filter_map(|named| named.digest.parse().ok()).collect(),
            subject: document.subject.and_then(|named| named.digest.parse().ok()),
        })
    }

    /// Reads the references of a stored document. Earlier versions took documents that [`Links::read`] refuses.
    ///
    /// # Errors
    /// When the document is no JSON object, which no version took.
    pub(crate) fn read_stored(document: &[u8]) -> Result<Self, serde_json::Error> {
        if let Ok(links) = Self::read(document) {
            return Ok(links);
        }
        // Unknown fields may have bytes that are not UTF-8.
        let text = String::from_utf8_lossy(document);
        let mut links = Links::default();
        for (name, value) in serde_json::from_str::<Members<'_>>(&text)?.0 {
            match name.as_str() {
                "config" | "layers" | "blobs" | "manifests" => links.content.extend(digests(value)),
                // The last of several is the one that was recorded.
                "subject" => links.subject = digests(value).pop(),
                _ => {}
            }
        }
        Ok(links)
    }
}

/// The digests of a descriptor, or of those in a list.
fn digests(value: &RawValue) -> Vec<Digest> {
    let listed: Vec<&RawValue> = serde_json::from_str(value.get()).unwrap_or_else(|_| vec![value]);
    let objects = listed.into_iter().filter_map(|one| serde_json::from_str::<Members<'_>>(one.get()).ok());
    let members = objects.flat_map(|object| object.0).filter(|(name, _)| name == "digest");
    members.filter_map(|(_, text)| serde_json::from_str::<String>(text.get()).ok()?.parse().ok()).collect()
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Algorithm;

    fn digest(text: &str) -> Digest {
        Digest::of(Algorithm::Sha256, text.as_bytes())
    }

    #[test]
    fn all_content_of_a_document_and_its_subject_are_read() {
        let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(digest);
        let document = format!(
            r#"{{"config":{{"digest":"{a}"}},"layers":[{{"digest":"{b}"}},{{"digest":"blake3:0"}}],"blobs":[{{"digest":"{c}"}}],
                "manifests":[{{"digest":"{d}"}}],"subject":{{"digest":"{e}"}},"annotations":{{"digest":"{}"}}}}"#,
            digest("f")
        );
        let links = Links::read(document.as_bytes()).unwrap();
        assert_eq!(links.content, [b, c, d, a]);
        assert_eq!(links.subject, Some(e));
        assert_eq!(Links::read_stored(document.as_bytes()).unwrap(), links);
    }

    #[test]
    fn a_stored_document_is_read_whatever_its_fields_have() {
        let [a, b] = ["a", "b"].map(digest);
        let one = format!(r#"{{"digest":"{a}"}}"#);
        let list = format!(r#"[{{"digest":"{b}","size":1}}]"#);
        for (odd, expected) in [
            (r#""blobs":5"#.to_owned(), vec![&a]),
            (r#""blobs":1e999"#.to_owned(), vec![&a]),
            (r#""blobs":"\ud800""#.to_owned(), vec![&a]),
            (
                r#""blobs":[{"x":1},null,{"digest":7},{"digest":"\ud800"},[{"digest":"x"}]]"#.to_owned(),
                vec![&a],
            ),
            (format!(r#""blobs":{list},"blobs":[]"#), vec![&a, &b]),
            (format!(r#""blobs":{one},"layers":{list}"#), vec![&a, &a, &b]),
            (format!(r#""config":{list}"#), vec![&a, &b]),
            (format!(r#""blobs":[{{"digest":"{a}","digest":"{b}"}}]"#), vec![&a, &a, &b]),
            (format!(r#""blobs":{{}},"x":{}1{}"#, "[".repeat(200), "]".repeat(200)), vec![&a]),
        ] {
            let document = format!(r#"{{"config":{one},{odd}}}"#);
            assert!(Links::read(document.as_bytes()).is_err(), "{document}");
            let stored = Links::read_stored(document.as_bytes()).unwrap();
            assert_eq!(stored.content.iter().collect::<Vec<_>>(), expected, "{document}");
        }
        let subjects = format!(r#"{{"subject":{one},"subject":{{"digest":"{b}"}}}}"#);
        assert_eq!(Links::read_stored(subjects.as_bytes()).unwrap().subject, Some(b));
        let bytes =
            [br#"{"blobs":5,"x":""#, &b"\xff\xfe"[..], br#"","config":"#, one.as_bytes(), b"}"].concat();
        assert_eq!(Links::read_stored(&bytes).unwrap().content, [a]);
        for no_object in ["", "[]", "7", "{", "{}x"] {
            assert!(Links::read_stored(no_object.as_bytes()).is_err(), "{no_object}");
        }
    }
}
