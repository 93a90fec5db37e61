//! Entry points for fuzzing the parsers of a BMC's JSON; the targets in `fuzz/` only pass bytes.
//!
//! ```text
//!   error_body   bytes -> text of a refusal                      bounded, without secrets and control characters
//!   task_body    bytes -> result of a poll of a task             never panics, shows no secret
//!   resource     bytes -> slots, boot, links                     links are paths on this BMC, empty is not inserted
//!   update       bytes -> update service, task, inventory, registry   bounded, without secrets, paths on this BMC
//!   walk         {path: document} -> a whole discovery           ends, in a bounded number of requests, all to paths
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use serde_json::Value;

use crate::bmc::Bmc;
use crate::boot::BootOverride;
use crate::credentials::BmcCredentials;
use crate::discovery::SystemSelector;
use crate::error::classify;
use crate::json::{self, Resource};
use crate::media::Slot;
use crate::message::ErrorBody;
use crate::options::ClientOptions;
use crate::profile::Profile;
use crate::settings::AttributeRegistry;
use crate::transport::{Request, Response, Transport, TransportError};
use crate::update::accepted::Accepted;
use crate::update::service::add_action_info;
use crate::update::tasks::{is_update, pick};
use crate::update::{ImageOffer, SoftwareItem, UpdateCapability, UpdatePoll, choose_way, describe};

const SECRET: &str = "correct horse battery staple";
/// Maximum number of requests of a discovery: pages and members of a few collections, each bounded.
const MAX_REQUESTS: usize = 600;

/// Parses bytes as the body of a refusal: the shown text is bounded and contains no secret.
///
/// # Panics
///
/// When the shown text is too long, or contains a secret.
pub fn error_body(body: &[u8]) {
    error_body_by(body, |parsed| parsed.message_text(&[SECRET]));
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

/// Parses bytes as the body of a task: the shown text is bounded and contains no secret.
///
/// # Panics
///
/// When the shown text is too long, or contains a secret.
pub fn task_body(body: &[u8]) {
    let bmc = client(Arc::new(FakeBmc::default()));
    for status in [200, 202, 204, 404, 500] {
        let shown = bmc.core.describe_poll(StatusCode::from_u16(status).unwrap_or_default(), body);
        assert!(
            shown.len() <= 8192 && !shown.contains(SECRET) && !shown.contains(char::is_control),
            "{shown}"
        );
    }
}

/// Parses bytes as a resource: nothing panics, and links are paths on this BMC.
///
/// # Panics
///
/// When a link is no path on this BMC, or a slot has a text or a list beyond its limit.
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

/// Parses bytes as every document of an update: the service, an accepted start, a task, an inventory member, a registry of
/// attributes. Texts are bounded and contain no secret, and every path is one on this BMC.
///
/// # Panics
///
/// When a text is too long or contains a secret, or a path is none on this BMC.
pub fn update(body: &[u8]) {
    update_by(body, &[SECRET]);
}

fn update_by(body: &[u8], secrets: &[&str]) {
    let Ok(fields) = json::object(body) else { return };
    let clean = |path: &String| {
        path.starts_with('/') && !path.starts_with("//") && !path.contains(char::is_whitespace)
    };
    let named = Accepted::read(None, &fields);
    assert!([&named.monitor, &named.task, &named.other].into_iter().flatten().all(clean), "{named:?}");
    for poll in describe(&fields, secrets) {
        assert!(poll.messages.len() <= 16, "{poll:?}");
        for message in &poll.messages {
            assert!(
                message.len() <= 4096 && !message.contains(SECRET) && !message.contains(char::is_control),
                "{message}"
            );
        }
        let stored = serde_json::to_string(&poll).unwrap_or_default();
        assert!(serde_json::from_str::<UpdatePoll>(&stored).is_ok_and(|read| read == poll), "{stored}");
    }
    let _ = AttributeRegistry::of(&fields).map(|registry| registry.check(&fields));
    let resource = Resource::new("/redfish/v1/x", &HeaderMap::new(), fields);
    let _ = (is_update(&resource.fields), pick(std::slice::from_ref(&resource)));
    let item = SoftwareItem::of(&resource);
    assert!(item.id.len() <= json::MAX_TEXT && item.related.iter().all(clean));
    let mut service = UpdateCapability::of(&resource);
    if let Some(simple) = &mut service.simple {
        add_action_info(simple, &resource.fields);
        assert!(clean(&simple.target) && simple.protocols.len() <= json::MAX_ENTRIES);
    }
    assert!(
        [&service.multipart, &service.push, &service.start].into_iter().flatten().all(clean),
        "{service:?}"
    );
    let size = service.max_image_bytes.unwrap_or(1);
    for name in Profile::names() {
        let Some(profile) = Profile::named(name) else { continue };
        let offer = ImageOffer { size, schemes: &["http", "https"] };
        let why = match choose_way(&service, &profile, &offer) {
            Ok(choice) => choice.why(),
            Err(none) => none.to_string(),
        };
        assert!(!why.is_empty() && why.len() <= 64 * 1024);
    }
}

/// Parses bytes as a BMC, a JSON object of documents by path, and discovers it: the discovery ends after a bounded
/// number of requests, and each request goes to a path.
///
/// # Panics
///
/// When the discovery sends too many requests, or a request that goes to no path.
pub fn walk(data: &[u8]) {
    walk_by(data, async |bmc| {
        let _found_or_not = bmc.discover(&SystemSelector::serial("SER1")).await;
    });
}

fn walk_by(data: &[u8], discover: impl AsyncFn(&Bmc)) {
    let Ok(documents) = json::object(data) else { return };
    let bodies = documents.into_iter().map(|(path, document)| match document {
        // A string is used as the whole body, for bodies that are not JSON.
        Value::String(text) => (path, Bytes::from(text)),
        document => (path, Bytes::from(document.to_string())),
    });
    let fake = Arc::new(FakeBmc { bodies: bodies.collect(), ..FakeBmc::default() });
    let bmc = client(Arc::clone(&fake));
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else { return };
    runtime.block_on(discover(&bmc));
    let requests = fake.requests.load(Ordering::Relaxed);
    assert!(requests <= MAX_REQUESTS, "{requests} requests");
    let unexpected = fake.unexpected.lock().clone();
    assert_eq!(unexpected, None);
}

/// A BMC that serves documents by path.
#[derive(Default)]
struct FakeBmc {
    bodies: BTreeMap<String, Bytes>,
    requests: AtomicUsize,
    /// A request that should not have been sent.
    unexpected: Mutex<Option<String>>,
}

#[async_trait]
impl Transport for FakeBmc {
    async fn send(&self, request: Request, _: Duration) -> Result<Response, TransportError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let Request { method, path, body: sent, .. } = request;
        let clean = path.starts_with('/') && !path.starts_with("//") && path.is_ascii();
        // Recognised by the body, because the BMC chooses the path of the sessions.
        let login = method == Method::POST
            && sent.is_some_and(|body| {
                serde_json::from_slice::<Value>(&body).is_ok_and(|sent| sent.get("UserName").is_some())
            });
        if !clean || !(method == Method::GET || login) {
            *self.unexpected.lock() = Some(format!("{method} {path}"));
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

fn client(fake: Arc<FakeBmc>) -> Bmc {
    // No retries, so that nothing waits.
    let options = ClientOptions { read_attempts: 1, jitter_seed: Some(1), ..ClientOptions::default() };
    #[expect(clippy::expect_used, reason = "the literal is a valid endpoint")]
    let endpoint = "https://bmc.example".parse().expect("an endpoint");
    let credentials = BmcCredentials::new("admin", SECRET.to_owned());
    Bmc::builder(endpoint, credentials, fake, Profile::generic()).options(options).detecting().build()
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::path::Path;

    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::{error_body, error_body_by, resource, task_body, update, update_by, walk, walk_by};
    use crate::error::Operation;
    use crate::json::{clip, path_of};
    use crate::message::redact;

    /// JSON of the names the parsers look for, in unexpected places.
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
            "PercentComplete",
            "#UpdateService.SimpleUpdate",
            "MultipartHttpPushUri",
            "HttpPushUri",
            "HttpPushUriOptions",
            "MessageArgs",
            "RelatedItem",
            "RegistryEntries",
            "Attributes",
            "AttributeName",
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
        fn any_bytes_and_any_document_are_parsed_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), json in document()) {
            for body in [bytes, json.to_string().into_bytes()] {
                error_body(&body);
                task_body(&body);
                resource(&body);
                update(&body);
            }
        }

        #[test]
        fn the_discovery_of_any_bmc_ends(
            root in document(), system in document(), manager in document(), others in prop::collection::vec(document(), 0..4),
        ) {
            let mut documents = Map::new();
            let (systems, managers) = ("/redfish/v1/Systems", "/redfish/v1/Managers/1");
            let mut root = with(root, json!({ "Systems": { "@odata.id": systems } }));
            if let Some(root) = root.as_object_mut() {
                root.entry("Vendor").or_insert("Supermicro".into());
            }
            documents.insert("/redfish/v1/".to_owned(), root);
            documents.insert(systems.to_owned(), json!({ "Members": [{ "@odata.id": "/redfish/v1/a" }, { "@odata.id": "/redfish/v1/b" }] }));
            let managed = json!({ "Links": { "ManagedBy": [{ "@odata.id": managers }] } });
            documents.insert("/redfish/v1/a".to_owned(), with(system, managed));
            documents.insert(managers.to_owned(), with(manager, json!({ "VirtualMedia": { "@odata.id": "/redfish/v1/c" } })));
            for (at, other) in others.into_iter().enumerate() {
                documents.insert(["/redfish/v1/b", "/redfish/v1/c", "/redfish/v1/d", "/redfish/v1/c/CfgCD"][at].to_owned(), other);
            }
            walk(Value::Object(documents).to_string().as_bytes());
        }

        #[test]
        fn a_link_is_a_clean_path_or_none(link in ".{0,60}", path in "[/a-z.?#%: ]{0,30}") {
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
        fn a_secret_is_redacted_at_any_position(before in ".{0,600}", after in ".{0,20}") {
            let shown = redact(&format!("{before}hunter2-canary{after}"), &["hunter2-canary"]);
            prop_assert!(!shown.contains("hunter2-"), "{shown}");
        }
    }

    type Oracle = fn(&[u8]);

    #[test]
    fn every_seed_of_the_corpus_passes() {
        let oracles: [(&str, Oracle); 5] = [
            ("redfish_error", error_body),
            ("redfish_task", task_body),
            ("redfish_resource", resource),
            ("redfish_update", update),
            ("redfish_walk", walk),
        ];
        for (corpus, oracle) in oracles {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(corpus);
            let mut seeds = 0;
            for file in std::fs::read_dir(directory).unwrap() {
                let seed = std::fs::read(file.unwrap().path()).unwrap();
                // Every parser must also accept the seeds of the others.
                oracles.iter().for_each(|(_, oracle)| oracle(&seed));
                oracle(&seed);
                seeds += 1;
            }
            assert!(seeds >= 6, "{corpus}");
        }
    }

    #[test]
    fn oversized_documents_are_refused_at_once() {
        let deep = "[".repeat(60_000);
        let long = format!("{{\"Image\":\"{}\",\"Id\":\"{}\"}}", "a".repeat(1 << 20), "b".repeat(1 << 20));
        let flat = format!("{{\"Members\":[{}0]}}", "0,".repeat(70_000));
        for body in [deep, long, flat] {
            error_body(body.as_bytes());
            task_body(body.as_bytes());
            resource(body.as_bytes());
            update(body.as_bytes());
            walk(json!({ "/redfish/v1/": body }).to_string().as_bytes());
        }
    }

    /// The checks fail for a wrong parser and for an endless discovery.
    #[test]
    fn the_checks_detect_a_shown_secret_and_an_endless_discovery() {
        let body = b"{\"error\":{\"message\":\"no, correct horse battery staple\"}}";
        error_body(body);
        let unredacted = || error_body_by(body, |parsed| parsed.message_text(&[]));
        assert!(catch_unwind(unredacted).is_err());
        let task = b"{\"TaskState\":\"Exception\",\"Messages\":[{\"Message\":\"no, correct horse battery staple\"}]}";
        update(task);
        assert!(catch_unwind(|| update_by(task, &[])).is_err());

        let cycle = json!({ "/redfish/v1/": { "Systems": { "@odata.id": "/redfish/v1/Systems" } },
            "/redfish/v1/Systems": { "Members@odata.nextLink": "/redfish/v1/Systems" } });
        let cycle = cycle.to_string().into_bytes();
        walk(&cycle);
        let endless = || {
            walk_by(&cycle, async |bmc| {
                let mut next = Some("/redfish/v1/Systems".to_owned());
                for _ in 0..1000 {
                    let Some(path) = next.take() else { break };
                    let page = bmc.core.read(Operation::Discover, &path).await;
                    let fields = page.map(|page| page.fields).unwrap_or_default();
                    next = fields.get("Members@odata.nextLink").and_then(Value::as_str).and_then(path_of);
                }
            });
        };
        assert!(catch_unwind(endless).is_err());
    }
}
