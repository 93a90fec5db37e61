//! Entry points for fuzzing the readers of foreign JSON; the targets in `fuzz/` hand bytes over and nothing else.

use http::{HeaderMap, StatusCode};

use crate::boot::BootOverride;
use crate::error::classify;
use crate::json::{self, Resource};
use crate::media::Slot;
use crate::message::ErrorBody;
use crate::profile::Profile;

/// Reads bytes as the body of a refusal: the text shown is bounded and holds no secret.
pub fn error_body(body: &[u8]) {
    const SECRET: &str = "correct horse battery staple";
    let parsed = ErrorBody::parse(body);
    let sentence = parsed.sentence(&[SECRET]);
    assert!(sentence.len() <= 4096 && !sentence.contains(SECRET));
    for status in [400, 401, 403, 404, 409, 503] {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let shown = classify(status, &parsed, None, &[SECRET]).to_string();
        assert!(!shown.chars().any(char::is_control));
    }
}

/// Reads bytes as a resource: views never panic, and links are paths on this BMC.
pub fn resource(body: &[u8]) {
    let Ok(fields) = json::object(body) else { return };
    for name in ["Members", "Systems", "Links"] {
        let found = json::links(&fields, name).into_iter().chain(json::link(&fields, name));
        for path in found {
            assert!(path.starts_with('/') && !path.starts_with("//") && !path.contains(char::is_whitespace));
        }
    }
    let _ = BootOverride::of(&fields);
    let resource = Resource::new("/redfish/v1/x", &HeaderMap::new(), fields);
    let slot = Slot::of(&resource, &Profile::generic());
    assert!(!(slot.is_empty() && slot.holds("http://10.0.0.1/tabc/boot.iso")));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use crate::json::{clip, path_of};
    use crate::message::redact;

    /// JSON out of the names the readers look for, in places where they do not expect them.
    fn document() -> impl Strategy<Value = Value> {
        let name = prop::sample::select(vec![
            "@odata.id",
            "error",
            "@Message.ExtendedInfo",
            "MessageId",
            "Message",
            "Severity",
            "Members",
            "Links",
            "Boot",
            "BootSourceOverrideTarget",
            "Actions",
            "#VirtualMedia.InsertMedia",
            "target",
            "Image",
            "Inserted",
            "MediaTypes",
            "ConnectedVia",
            "RelatedProperties",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,40}".prop_map(Value::from),
            prop::sample::select(vec![
                "/redfish/v1/a",
                "//evil/a",
                "http://10.0.0.1/tabc/boot.iso",
                "Base.1.0.X"
            ])
            .prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec((name.clone(), inner), 0..6).prop_map(|members| {
                    Value::Object(
                        members
                            .into_iter()
                            .map(|(name, value)| (name.to_owned(), value))
                            .collect::<Map<_, _>>(),
                    )
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_bytes_and_any_document_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), json in document()) {
            for body in [bytes, json.to_string().into_bytes()] {
                super::error_body(&body);
                super::resource(&body);
            }
        }

        #[test]
        fn a_link_is_a_clean_path_or_nothing(link in ".{0,60}", path in "[/a-z.?#%: ]{0,30}") {
            for link in [link, path.clone(), format!("https://host{path}")] {
                if let Some(path) = path_of(&link) {
                    prop_assert!(path.starts_with('/') && !path.starts_with("//"), "{path}");
                    prop_assert!(path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains("/../"));
                }
            }
        }

        #[test]
        fn clipped_text_keeps_its_limit(text in ".{0,60}", limit in 0_usize..80) {
            let clipped = clip(&text, limit);
            prop_assert!(clipped.len() <= limit && !clipped.contains(char::is_control));
        }

        #[test]
        fn a_secret_is_redacted_wherever_it_stands(before in ".{0,600}", after in ".{0,20}") {
            let shown = redact(&format!("{before}hunter2-canary{after}"), &["hunter2-canary"]);
            prop_assert!(!shown.contains("hunter2-"), "{shown}");
        }
    }

    #[test]
    fn seeds_of_hostile_json_are_survived() {
        let deep = "[".repeat(60_000);
        let seeds: [&[u8]; 9] = [
            b"",
            b"{}",
            b"{\"error\":{\"@Message.ExtendedInfo\":{\"Message\":\"correct horse battery staple\"}}}",
            b"{\"error\":null,\"@Message.ExtendedInfo\":[null,1,{}]}",
            b"{\"Image\":7,\"Inserted\":\"true\",\"Actions\":[],\"MediaTypes\":{}}",
            b"{\"Members\":[{\"@odata.id\":\"//evil/x\"},{\"@odata.id\":\"/ok\"},{\"@odata.id\":\"/a/../b\"}]}",
            b"{\"Boot\":{\"BootSourceOverrideTarget\":[1],\"BootSourceOverrideEnabled\":{}}}",
            b"\xff\xfe://://\xc3",
            deep.as_bytes(),
        ];
        for seed in seeds {
            super::error_body(seed);
            super::resource(seed);
        }
    }
}
