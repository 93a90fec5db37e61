//! Removes from JSON what identifies a machine, a site or a person.
//!
//! ```text
//!   "SerialNumber": "CZ2D1X"   ->  "serial-5f1c09ab"        this text elsewhere, also inside links: this pseudonym
//!   10.1.2.3, fe80::1, 52:54:00:12:34:56, UUIDs             ->  address-…, mac-…, uuid-…
//!   passwords, tokens, keys, image URLs                     ->  "[redacted]"
//! ```
//!
//! A pseudonym is a keyed hash with one key per capture: two captures cannot be joined, and a short serial number cannot
//! be found by trying without the key.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Members whose text identifies a machine, with the prefix of the pseudonym.
const NAMED: [(&str, &str); 16] = [
    ("serialnumber", "serial"),
    ("sku", "serial"),
    ("servicetag", "serial"),
    ("assettag", "asset"),
    ("chassisservicetag", "serial"),
    ("nodeid", "serial"),
    ("uuid", "uuid"),
    ("serviceentrypointuuid", "uuid"),
    ("macaddress", "mac"),
    ("permanentmacaddress", "mac"),
    ("hostname", "name"),
    ("fqdn", "name"),
    ("username", "name"),
    ("clientoriginipaddress", "address"),
    ("address", "address"),
    ("gateway", "address"),
];
/// Members whose value is always a secret.
const SECRET: [&str; 8] =
    ["password", "token", "secret", "community", "key", "image", "imagename", "privatekey"];
/// Minimum length of a text that is replaced everywhere; shorter texts occur in unrelated places.
const SHORTEST: usize = 5;
/// Maximum number of texts that are replaced everywhere in a capture.
const MAX_TEXTS: usize = 4096;
/// Maximum depth of nesting; deeper values are dropped.
const MAX_DEPTH: usize = 64;

/// Replaces identifying texts, each with one pseudonym everywhere.
pub(crate) struct Redactor {
    key: [u8; 32],
    /// Texts of the members in [`NAMED`], the longest first, with the prefix of the pseudonym.
    known: Vec<(String, &'static str)>,
}

impl Redactor {
    /// Collects the identifying texts of `resources`.
    pub(crate) fn new<'a>(seed: u64, resources: impl Iterator<Item = &'a Value>) -> Self {
        let mut texts = BTreeSet::new();
        for resource in resources {
            collect(resource, &mut texts, 0);
        }
        let mut known: Vec<(String, &'static str)> = texts.into_iter().collect();
        known.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        Redactor { key: Sha256::digest(seed.to_be_bytes()).into(), known }
    }

    /// Returns a value without identifying texts.
    pub(crate) fn value(&self, value: &Value) -> Value {
        self.nested(value, 0)
    }

    fn nested(&self, value: &Value, depth: usize) -> Value {
        match value {
            _ if depth > MAX_DEPTH => Value::Null,
            Value::Object(fields) => Value::Object(self.members(fields, depth)),
            Value::Array(list) => {
                Value::Array(list.iter().map(|value| self.nested(value, depth + 1)).collect())
            }
            Value::String(text) => Value::String(self.text(text)),
            other => other.clone(),
        }
    }

    fn members(&self, fields: &Map<String, Value>, depth: usize) -> Map<String, Value> {
        let one = |(name, value): (&String, &Value)| {
            let shown = match (value, word_for(name)) {
                (Value::String(text), _) if !text.is_empty() && is_secret(name) => "[redacted]".into(),
                (Value::String(text), Some(word)) if !text.trim().is_empty() => {
                    self.pseudonym(text.trim(), word).into()
                }
                _ => self.nested(value, depth + 1),
            };
            (self.text(name), shown)
        };
        fields.iter().map(one).collect()
    }

    /// Returns a text without identifying parts.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (known, word) in &self.known {
            if text.contains(known.as_str()) {
                text = text.replace(known.as_str(), &self.pseudonym(known, word));
            }
        }
        let mut shown = String::with_capacity(text.len());
        let mut rest = text.as_str();
        // Split into words of the characters of addresses and ids, and the text between them.
        while !rest.is_empty() {
            let word = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            match kind(&rest[..word]) {
                Some(kind) => shown.push_str(&self.pseudonym(&rest[..word].to_ascii_lowercase(), kind)),
                None => shown.push_str(&rest[..word]),
            }
            let other = rest[word..].find(is_word).map_or(rest.len(), |at| word + at);
            shown.push_str(&rest[word..other]);
            rest = &rest[other..];
        }
        shown
    }

    fn pseudonym(&self, text: &str, word: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(self.key);
        hash.update(text.as_bytes());
        format!("{word}-{}", hex::encode(&hash.finalize()[..4]))
    }
}

fn collect(value: &Value, texts: &mut BTreeSet<(String, &'static str)>, depth: usize) {
    match value {
        _ if depth > MAX_DEPTH || texts.len() >= MAX_TEXTS => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                if let (Value::String(text), Some(word)) = (value, word_for(name))
                    && text.trim().len() >= SHORTEST
                {
                    texts.insert((text.trim().to_owned(), word));
                }
                collect(value, texts, depth + 1);
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, texts, depth + 1)),
        _ => {}
    }
}

fn word_for(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    NAMED.iter().find(|(named, _)| *named == name).map(|(_, word)| *word)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.contains(&name.as_str()) || name.ends_with("password") || name.ends_with("token")
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-')
}

/// The kind of identifier a word has the form of, if any.
fn kind(word: &str) -> Option<&'static str> {
    let word = word.trim_end_matches('.');
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if word.len() == 36 && uuid::Uuid::try_parse(word).is_ok() {
        return Some("uuid");
    }
    let groups: Vec<&str> = word.split([':', '-']).collect();
    if groups.len() == 6 && groups.iter().all(|group| group.len() == 2 && hex(group)) {
        return Some("mac");
    }
    let host = match word.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.contains(':') => host,
        _ => word,
    };
    if host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| !ip.is_unspecified() && ip.octets()[0] >= 10) {
        return Some("address");
    }
    let v6 = word.parse::<std::net::Ipv6Addr>().is_ok_and(|ip| !ip.is_unspecified());
    (v6 && word.len() > 4).then_some("address")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn redacted(seed: u64, value: &Value) -> Value {
        Redactor::new(seed, [value].into_iter()).value(value)
    }

    #[test]
    fn an_identifying_text_is_replaced_everywhere_with_one_pseudonym() {
        let value = json!({
            "SerialNumber": " CZ2D1X0042 ", "SKU": "CZ2D1X0042", "Model": "R750", "UUID": "44454c4c-4400-1058-8050-b4c04f4d3333",
            "Links": { "Chassis": [{ "@odata.id": "/redfish/v1/Chassis/CZ2D1X0042" }] },
            "Oem": { "Note": "host 10.1.2.3:443 (52:54:00:12:34:56, fe80::5054:ff:fe12:3456)" },
            "Password": "canary", "FirmwareVersion": "7.10.50.00", "Image": "http://10.1.2.3/tsecret/boot.iso",
        });
        let shown = redacted(7, &value);
        let text = shown.to_string();
        for secret in ["CZ2D1X0042", "44454c4c", "10.1.2.3", "52:54:00", "fe80", "canary", "tsecret"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
        let serial = shown["SerialNumber"].as_str().unwrap();
        assert_eq!(shown["SKU"], serial);
        assert_eq!(shown["Links"]["Chassis"][0]["@odata.id"], format!("/redfish/v1/Chassis/{serial}"));
        assert_eq!((&shown["Model"], &shown["FirmwareVersion"]), (&json!("R750"), &json!("7.10.50.00")));
        assert_eq!(redacted(7, &value), shown, "one key gives one pseudonym");
        assert_ne!(redacted(8, &value), shown, "another key gives another pseudonym");
    }

    #[test]
    fn versions_and_names_are_not_addresses() {
        for word in ["1.45.455b66", "7.10.50.00", "VirtualMedia.v1_4_0", "12:34", "::", "a:b", "0.0.0.0"] {
            assert_eq!(kind(word), None, "{word}");
        }
        for (word, expected) in
            [("192.0.2.7", "address"), ("2001:db8::1", "address"), ("aa-bb-cc-dd-ee-ff", "mac")]
        {
            assert_eq!(kind(word), Some(expected), "{word}");
        }
    }

    #[test]
    fn deep_nesting_is_dropped() {
        let mut value = json!({ "SerialNumber": "ABCDEF" });
        for _ in 0..200 {
            value = json!([value]);
        }
        assert!(!redacted(1, &value).to_string().contains("ABCDEF"));
    }
}
