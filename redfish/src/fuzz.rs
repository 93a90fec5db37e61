//! Entry points for fuzzing the readers of foreign JSON; the targets in `fuzz/` hand bytes over and nothing else.
//!
//! ```text
//!   error_body   bytes -> what is shown of a refusal            bounded, without secrets and control characters
//!   task_body    bytes -> what a poll of a task says             never panics, shows no secret
//!   resource     bytes -> slots, boot, links                     links are paths on this BMC, empty is not inserted
//!   walk         {path: document} -> a whole discovery           ends, in a bounded number of requests, all to paths
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;

use crate::bmc::{Bmc, Options};
use crate::boot::BootOverride;
use crate::discovery::SystemSelector;
use crate::error::classify;
use crate::json::{self, Resource};
use crate::media::Slot;
use crate::message::ErrorBody;
use crate::profile::Profile;
use crate::session::Credentials;
use crate::transport::{Request, Response, Transport, TransportError};

const SECRET: &str = "correct horse battery staple";
/// What a discovery may need at most: pages and members of a few collections, each with its bounds.
const MOST_REQUESTS: usize = 600;

/// Reads bytes as the body of a refusal: the text shown is bounded and holds no secret.
///
/// # Panics
///
/// When that does not hold.
pub fn error_body(body: &[u8]) {
    error_body_by(body, |parsed| parsed.sentence(&[SECRET]));
}

fn error_body_by(body: &[u8], shown: impl Fn(&ErrorBody) -> String) {
    let parsed = ErrorBody::parse(body);
    let sentence = shown(&parsed);
    assert!(sentence.len() <= 4096 && !sentence.contains(SECRET));
    for status in [400, 401, 403, 404, 409, 503] {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let shown = classify(status, &parsed, None, &[SECRET]).to_string();
        assert!(!shown.contains(char::is_control) && !shown.contains(SECRET), "{shown}");
    }
}

/// Reads bytes as what a task says of itself: whatever it is, the text shown is bounded and holds no secret.
///
/// # Panics
///
/// When that does not hold.
pub fn task_body(body: &[u8]) {
    let bmc = client(Arc::new(World::default()));
    for status in [200, 202, 204, 404, 500] {
        let said = bmc.core.task_says(StatusCode::from_u16(status).unwrap_or_default(), body);
        assert!(said.len() <= 8192 && !said.contains(SECRET) && !said.contains(char::is_control), "{said}");
    }
}

/// Reads bytes as a resource: views never panic, and links are paths on this BMC.
///
/// # Panics
///
/// When that does not hold.
pub fn resource(body: &[u8]) {
    let Ok(fields) = json::object(body) else { return };
    for name in ["Members", "Systems", "Links"] {
        let found = json::links(&fields, name).into_iter().chain(json::link(&fields, name));
        for path in found {
            assert!(path.starts_with('/') && !path.starts_with("//") && !path.contains(char::is_whitespace));
        }
    }
    for action in ["IsoConfig.Mount", "VirtualMedia.VmmControl", "EnableRMedia"] {
        assert!(json::oem_action(&fields, action).is_none_or(|path| path.starts_with('/')));
    }
    let _ = BootOverride::of(&fields);
    let resource = Resource::new("/redfish/v1/x", &HeaderMap::new(), fields);
    for name in Profile::names() {
        let Some(profile) = Profile::named(name) else { continue };
        let slot = Slot::of(&resource, &profile);
        assert!(!(slot.is_empty() && slot.holds("http://10.0.0.1/tabc/boot.iso")));
        assert!(slot.id.len() <= json::MAX_TEXT && slot.media_types.len() <= json::MAX_ENTRIES);
    }
}

/// Reads bytes as a BMC, a JSON object of documents by path, and discovers it: that ends after a bounded number
/// of requests, and none goes anywhere but to a path.
///
/// # Panics
///
/// When that does not hold.
pub fn walk(data: &[u8]) {
    walk_by(data, async |bmc| {
        let _found_or_not = bmc.discover(&SystemSelector::serial("SER1")).await;
    });
}

fn walk_by(data: &[u8], discover: impl AsyncFn(&Bmc)) {
    let Ok(documents) = json::object(data) else { return };
    let bodies = documents.into_iter().map(|(path, document)| match document {
        // A string is a body as it stands, for what is not JSON.
        Value::String(text) => (path, Bytes::from(text)),
        document => (path, Bytes::from(document.to_string())),
    });
    let world = Arc::new(World { bodies: bodies.collect(), ..World::default() });
    let bmc = client(Arc::clone(&world));
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
    runtime.block_on(discover(&bmc));
    let asked = world.asked.load(Ordering::Relaxed);
    assert!(asked <= MOST_REQUESTS, "{asked} requests");
    let strange = world.strange.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(strange, None);
}

/// A BMC made of documents.
#[derive(Default)]
struct World {
    bodies: BTreeMap<String, Bytes>,
    asked: AtomicUsize,
    /// A request that should not have been sent.
    strange: Mutex<Option<String>>,
}

#[async_trait]
impl Transport for World {
    async fn send(&self, request: Request, _: Duration) -> Result<Response, TransportError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let Request { method, path, body: sent, .. } = request;
        let clean = path.starts_with('/') && !path.starts_with("//") && path.is_ascii();
        // By what is sent: where sessions are is the BMC's to say.
        let login = method == Method::POST
            && sent.is_some_and(|body| {
                serde_json::from_slice::<Value>(&body).is_ok_and(|sent| sent.get("UserName").is_some())
            });
        if !clean || !(method == Method::GET || login) {
            *self.strange.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{method} {path}"));
        }
        let body = self.bodies.get(&path).cloned();
        let status = match body {
            Some(_) => StatusCode::OK,
            None => StatusCode::NOT_FOUND,
        };
        let token = http::HeaderValue::from_static("token");
        let headers = if login { HeaderMap::from_iter([(TOKEN, token)]) } else { HeaderMap::new() };
        Ok(Response { status, headers, body: body.unwrap_or_default() })
    }
}

const TOKEN: http::HeaderName = http::HeaderName::from_static("x-auth-token");

fn client(world: Arc<World>) -> Bmc {
    // Nothing is waited for: what fails once fails.
    let options = Options { read_attempts: 1, jitter_seed: Some(1), ..Options::default() };
    #[expect(clippy::expect_used, reason = "a literal that is an endpoint")]
    let endpoint = "https://bmc.example".parse().expect("an endpoint");
    let credentials = Credentials::new("admin", SECRET.to_owned());
    Bmc::builder(endpoint, credentials, world, Profile::generic()).options(options).detecting().build()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::path::Path;

    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::{error_body, error_body_by, resource, task_body, walk, walk_by};
    use crate::error::Operation;
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
            "TaskState",
            "Messages",
            "Oem",
            "#IsoConfig.Mount",
            "Host",
            "Path",
            "Systems",
            "Managers",
            "ManagedBy",
            "VirtualMedia",
            "Members@odata.nextLink",
            "ProtocolFeaturesSupported",
            "ExpandQuery",
            "NoLinks",
            "@Redfish.Settings",
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

    fn with(mut document: Value, members: Value) -> Value {
        match (document.as_object_mut(), members) {
            (Some(object), Value::Object(members)) => object.extend(members),
            (None, members) => document = members,
            (Some(_), _) => {}
        }
        document
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_bytes_and_any_document_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), json in document()) {
            for body in [bytes, json.to_string().into_bytes()] {
                error_body(&body);
                task_body(&body);
                resource(&body);
            }
        }

        #[test]
        fn any_bmc_is_walked_to_an_end(
            root in document(), system in document(), manager in document(), others in prop::collection::vec(document(), 0..4),
        ) {
            let mut world = Map::new();
            let (systems, managers) = ("/redfish/v1/Systems", "/redfish/v1/Managers/1");
            let mut root = with(root, json!({ "Systems": { "@odata.id": systems } }));
            if let Some(root) = root.as_object_mut() {
                root.entry("Vendor").or_insert("Supermicro".into());
            }
            world.insert("/redfish/v1/".to_owned(), root);
            world.insert(systems.to_owned(), json!({ "Members": [{ "@odata.id": "/redfish/v1/a" }, { "@odata.id": "/redfish/v1/b" }] }));
            let managed = json!({ "Links": { "ManagedBy": [{ "@odata.id": managers }] } });
            world.insert("/redfish/v1/a".to_owned(), with(system, managed));
            world.insert(managers.to_owned(), with(manager, json!({ "VirtualMedia": { "@odata.id": "/redfish/v1/c" } })));
            for (at, other) in others.into_iter().enumerate() {
                world.insert(["/redfish/v1/b", "/redfish/v1/c", "/redfish/v1/d", "/redfish/v1/c/CfgCD"][at].to_owned(), other);
            }
            walk(Value::Object(world).to_string().as_bytes());
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

    type Oracle = fn(&[u8]);

    #[test]
    fn every_seed_holds() {
        let oracles: [(&str, Oracle); 4] = [
            ("redfish_error", error_body),
            ("redfish_task", task_body),
            ("redfish_resource", resource),
            ("redfish_walk", walk),
        ];
        for (corpus, oracle) in oracles {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(corpus);
            let mut seeds = 0;
            for file in std::fs::read_dir(directory).unwrap() {
                let seed = std::fs::read(file.unwrap().path()).unwrap();
                // Every reader has to get over what was meant for another one.
                oracles.iter().for_each(|(_, oracle)| oracle(&seed));
                oracle(&seed);
                seeds += 1;
            }
            assert!(seeds >= 6, "{corpus}");
        }
    }

    #[test]
    fn what_is_too_much_to_be_read_is_refused_at_once() {
        let deep = "[".repeat(60_000);
        let long = format!("{{\"Image\":\"{}\",\"Id\":\"{}\"}}", "a".repeat(1 << 20), "b".repeat(1 << 20));
        let flat = format!("{{\"Members\":[{}0]}}", "0,".repeat(70_000));
        for body in [deep, long, flat] {
            error_body(body.as_bytes());
            task_body(body.as_bytes());
            resource(body.as_bytes());
            walk(json!({ "/redfish/v1/": body }).to_string().as_bytes());
        }
    }

    /// An oracle that nothing can offend proves nothing.
    #[test]
    fn a_reader_that_shows_secrets_and_a_walker_without_memory_are_noticed() {
        let said = b"{\"error\":{\"message\":\"no, correct horse battery staple\"}}";
        error_body(said);
        let tells_all = || error_body_by(said, |parsed| parsed.sentence(&[]));
        assert!(catch_unwind(tells_all).is_err());

        let circle = json!({ "/redfish/v1/": { "Systems": { "@odata.id": "/redfish/v1/Systems" } },
            "/redfish/v1/Systems": { "Members@odata.nextLink": "/redfish/v1/Systems" } });
        let circle = circle.to_string().into_bytes();
        walk(&circle);
        let forgetful = || {
            walk_by(&circle, async |bmc| {
                let mut next = Some("/redfish/v1/Systems".to_owned());
                for _ in 0..1000 {
                    let Some(path) = next.take() else { break };
                    let page = bmc.core.read(Operation::Discover, &path).await;
                    let fields = page.map(|page| page.fields).unwrap_or_default();
                    next = fields.get("Members@odata.nextLink").and_then(Value::as_str).and_then(path_of);
                }
            });
        };
        assert!(catch_unwind(forgetful).is_err());
    }
}
