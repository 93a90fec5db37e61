//! Describes the wrong shape of JSON that a client sent: the place, and the type that is expected there.
//!
//! Invariant: no value of the client is in it, because a password of another type than a text is a value too.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::error::Detail;
use super::error_code::Rule;

/// The beginnings of texts of `serde` that continue with the value.
const WITH_VALUE: [&str; 3] = ["invalid type: ", "invalid value: ", "unknown variant "];

/// The refusal of JSON that is read as `T` with this error.
pub fn refusal<T: DeserializeOwned>(json: &[u8], error: &serde_json::Error) -> Detail {
    Detail::new(&place::<T>(json), Rule::Shape, without_value(&error.to_string()))
}

/// Removes the place and the value from an error of `serde_json`.
fn without_value(text: &str) -> String {
    let what = text.rsplit_once(" at line ").map_or(text, |(what, _)| what);
    if !WITH_VALUE.iter().any(|begin| what.starts_with(begin)) {
        return what.to_owned();
    }
    match what.rsplit_once(", expected ") {
        Some((_, expected)) => format!("{expected} is expected"),
        None => "another value is expected".to_owned(),
    }
}

/// The place of the first value with a wrong shape, as a JSON Pointer.
fn place<T: DeserializeOwned>(json: &[u8]) -> String {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(&mut reader) else { return String::new() };
    let mut pointer = String::new();
    for segment in error.path() {
        let part = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            Segment::Enum { .. } | Segment::Unknown => continue,
        };
        pointer.push('/');
        pointer.push_str(&part);
    }
    pointer
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        Green,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape is used")]
    struct Body {
        rows: Option<Vec<Body>>,
        password: Option<SecretString>,
        colour: Option<Colour>,
        count: Option<u8>,
    }

    fn refused(json: &str) -> (String, String) {
        let error = serde_json::from_str::<Body>(json).unwrap_err();
        let detail = refusal::<Body>(json.as_bytes(), &error);
        (detail.path, detail.message)
    }

    #[test]
    fn a_value_of_another_shape_is_refused_by_its_place_and_without_itself() {
        let of = |path: &str, message: &str| (path.to_owned(), message.to_owned());
        assert_eq!(refused(r#"{"password": 12345678}"#), of("/password", "a string is expected"));
        assert_eq!(
            refused(r#"{"rows": [{}, {"password": [true]}]}"#),
            of("/rows/1/password", "a string is expected")
        );
        let (path, message) = refused(r#"{"count": "canary at line 1, expected u8"}"#);
        assert_eq!((path.as_str(), message.as_str()), ("/count", "u8 is expected"));
        let (path, message) = refused(r#"{"colour": "canary, expected by nothing"}"#);
        assert_eq!((path.as_str(), message.contains("canary")), ("/colour", false), "{message}");
        assert!(message.contains("`red`") && message.contains("`green`"), "{message}");
        let (_, message) = refused(r#"{"passwort": "x"}"#);
        assert!(message.starts_with("unknown field `passwort`"), "{message}");
    }
}
