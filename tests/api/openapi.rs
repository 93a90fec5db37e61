//! The OpenAPI document beside the running controller. Every other test compares its exchanges with it too (`kit/contract.rs`).

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Client, Exchange, Scene, violation};

fn document() -> Value {
    serde_json::from_str(api::openapi()).unwrap()
}

/// Every operation as path template, method and Operation Object.
fn operations(document: &Value) -> Vec<(&str, Method, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, operations)| {
            operations.as_object().unwrap().iter().map(move |(method, operation)| {
                (path.as_str(), method.to_uppercase().parse().unwrap(), operation)
            })
        })
        .collect()
}

/// The path of a template, with names that do not exist.
fn example(template: &str) -> String {
    template
        .replace("{id}", &uuid::Uuid::now_v7().to_string())
        .replace("{serial}", "NOT-REGISTERED")
        .replace("{name}", "unknown")
}

async fn status(client: &Client, method: &Method, path: &str) -> u16 {
    client.send(client.request(method.clone(), path).json(&json!({}))).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_served_without_credentials_and_equals_the_golden_file() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let served = scene.anonymous().get("/openapi.json").await;
    assert_eq!(served.status, 200);
    assert_eq!(served.header("content-type"), Some("application/json"));
    assert!(
        served.text() == include_str!("../../golden/openapi.json"),
        "UPDATE_GOLDEN=1 rewrites the golden file"
    );
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_path_has_exactly_the_methods_of_the_document() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let document = document();
    for (template, documented) in document["paths"].as_object().unwrap() {
        let response = scene.admin.send(scene.admin.request(Method::OPTIONS, &example(template))).await;
        assert_eq!(response.status, 405, "{template}");
        let allowed: BTreeSet<String> =
            response.header("allow").unwrap().split(',').map(|method| method.trim().to_lowercase()).collect();
        let mut expected: BTreeSet<String> = documented.as_object().unwrap().keys().cloned().collect();
        if expected.contains("get") {
            expected.insert("head".to_owned());
        }
        assert_eq!(allowed, expected, "{template}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_requires_the_credentials_and_the_role_of_the_document() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let anonymous = scene.anonymous();
    let mut roles = Vec::new();
    for role in ["operator", "viewer", "report-only", "registry-only"] {
        let registry = if role == "registry-only" { json!(["pull:**"]) } else { json!([]) };
        let new = json!({ "name": format!("a-{role}"), "role": role, "registry": registry });
        let token = scene.admin.post("/api/v1/tokens", &new).await.expect(201);
        roles.push((role, anonymous.with_token(token["token"].as_str().unwrap())));
    }
    roles.push(("admin", scene.admin.clone()));
    for (template, method, operation) in operations(&document()) {
        let path = example(template);
        let security = operation["security"].as_array().unwrap();
        let place = format!("{method} {template}");
        let without = status(&anonymous, &method, &path).await;
        if security.is_empty() {
            assert_eq!(without, 200, "{place}");
            continue;
        }
        assert_eq!(without, 401, "{place}");
        for (role, client) in &roles {
            let found = status(client, &method, &path).await;
            if security[0].get("reportSecret").is_some() {
                assert_eq!(found, 401, "{place}: a token is sent as X-Webhook-Secret");
                continue;
            }
            let listed = security[0]["bearer"].as_array().unwrap().contains(&json!(role));
            assert_eq!(found == 403, !listed, "{place} as {role}: {found}");
            assert_ne!(found, 401, "{place} as {role}");
        }
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_operation_refuses_a_query_parameter_that_the_document_does_not_have() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let mut checked = 0;
    for (template, method, operation) in operations(&document()) {
        let of_api = template.starts_with("/api/") && operation["security"][0].get("bearer").is_some();
        if !of_api {
            continue;
        }
        let path = format!("{}?colour=blue", example(template));
        let request = scene.admin.request(method.clone(), &path).json(&json!({}));
        let refused = scene.admin.send(request).await.refused(400, "validation_error");
        let detail = &refused["details"][0];
        assert_eq!(
            (&detail["path"], &detail["code"]),
            (&json!("colour"), &json!("unknown")),
            "{method} {template}"
        );
        checked += 1;
    }
    assert!(checked > 35, "only {checked} operations were checked");
    let misspelt = scene.admin.get("/api/v1/servers?limt=5").await.refused(400, "validation_error");
    assert!(misspelt["message"].as_str().unwrap().contains("did you mean limit?"), "{misspelt}");
    // Probes and scrapers add parameters of their own.
    for path in ["/healthz?verbose", "/readyz?verbose", "/metrics?name[]=up", "/openapi.json?v=1"] {
        let request = scene.admin.request(Method::HEAD, path);
        assert_eq!(scene.admin.send(request).await.status, 200, "{path}");
    }
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_the_document_does_not_require_may_be_left_out() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let mut checked = 0;
    for (template, method, operation) in operations(&document()) {
        if operation["requestBody"]["required"] != json!(false) {
            continue;
        }
        for media_type in [None, Some("application/json"), Some("application/x-www-form-urlencoded")] {
            let request = scene.admin.request(method.clone(), &example(template));
            let request = match media_type {
                Some(media_type) => request.header("content-type", media_type).body(""),
                None => request,
            };
            let status = scene.admin.send(request).await.status;
            assert!(matches!(status, 200..=299 | 404), "{method} {template} {media_type:?}: {status}");
        }
        let request = scene.admin.request(method.clone(), &example(template)).body("reason=x");
        scene.admin.send(request).await.refused(415, "unsupported_media_type");
        checked += 1;
    }
    assert!(checked >= 9, "only {checked} operations were checked");
    // A reason is required here; a request without a body is refused for it.
    let request = scene.admin.request(Method::POST, "/api/v1/registry/read-only");
    let refused = scene.admin.send(request).await.refused(400, "validation_error");
    assert_eq!(refused["details"][0]["path"], "/reason", "{refused}");
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn about_shows_version_build_features_schema_and_instance() {
    let scene = Scene::bare(vec![], |settings, _| settings.metrics_anonymous = true).await;
    scene.anonymous().get("/about").await.refused(401, "unauthorized");
    let about = scene.admin.get("/about").await.expect(200);
    assert_eq!(about["version"], scene.anonymous().get("/healthz").await.expect(200)["version"]);
    assert_eq!(about["features"], json!(["registry", "tls", "passwords", "anonymous-metrics"]));
    assert_eq!(
        about["workflows"],
        json!([
            "provision",
            "diagnostics",
            "power.cycle",
            "bmc.reset",
            "inventory.out-of-band",
            "firmware.install",
            "bios.apply"
        ])
    );
    let database = rusqlite::Connection::open(scene.folder.path().join("data/provisioner.db")).unwrap();
    let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    let schema = one("SELECT value FROM settings WHERE key = 'schema_version'");
    assert_eq!(about["schema_version"].to_string(), schema);
    assert_eq!(about["instance"], json!(one("SELECT id FROM controller_instances")));
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_of_query_parameters_are_those_of_the_controller() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let mut checked = 0;
    for (template, method, operation) in operations(&document()) {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        for parameter in parameters.iter().filter(|parameter| parameter["in"] == "query") {
            // A request for a name that does not exist is refused before its parameters are read.
            if template.contains('{') || method != Method::GET {
                continue;
            }
            let (name, schema) = (parameter["name"].as_str().unwrap(), &parameter["schema"]);
            let ask = async |value: String| {
                status(&scene.admin, &method, &format!("{template}?{name}={value}")).await
            };
            let (least, most) = (schema["minimum"].as_i64(), schema["maximum"].as_i64());
            for (bound, beyond) in [(least, -1), (most, 1)] {
                if let Some(bound) = bound {
                    assert_eq!(ask(bound.to_string()).await, 200, "{template} {name}={bound}");
                    assert_eq!(
                        ask((bound + beyond).to_string()).await,
                        400,
                        "{template} {name} beyond {bound}"
                    );
                    checked += 1;
                }
            }
        }
    }
    assert!(checked >= 9, "only {checked} bounds were checked");
    scene.end().await;
}

#[test]
fn every_schema_of_the_document_is_a_json_schema() {
    let document = document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    assert!(schemas.len() > 60, "only {} schemas", schemas.len());
    for (name, schema) in schemas {
        assert!(jsonschema::draft202012::meta::is_valid(schema), "{name}");
    }
}

/// Changes of a response that the comparison of the tests' client must notice.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_does_not_match_the_document_is_noticed() {
    let scene = Scene::bare(vec![], |_, _| {}).await;
    let drain = scene.admin.get("/api/v1/drain").await.expect(200);
    let exchange = |method: &str, path: &str, status: u16, body: &Value| Exchange {
        method: method.to_owned(),
        path: path.to_owned(),
        query: Vec::new(),
        sent: None,
        status,
        content_type: "application/json".to_owned(),
        received: body.to_string().into_bytes(),
    };
    let shown = |body: &Value| violation(&exchange("get", "/api/v1/drain", 200, body));
    assert_eq!(shown(&drain), None);

    let mut missing = drain.clone();
    missing.as_object_mut().unwrap().remove("queued");
    assert!(shown(&missing).unwrap().contains("queued"), "a missing field");
    let mut unknown = drain.clone();
    unknown["colour"] = json!("blue");
    assert!(shown(&unknown).unwrap().contains("colour"), "an unknown field");
    let mut wrong = drain.clone();
    wrong["queued"] = json!("many");
    assert!(shown(&wrong).is_some(), "a wrong type");
    let mut nested = drain.clone();
    nested["drain"] = json!({ "since": "yesterday", "by": "ann", "reason": "" });
    assert!(shown(&nested).is_some(), "a time in another format");
    assert!(violation(&exchange("get", "/api/v1/drain", 299, &drain)).is_some(), "an unknown status");
    assert!(violation(&exchange("put", "/api/v1/drain", 200, &drain)).is_some(), "an unknown method");
    assert!(violation(&exchange("get", "/api/v1/drains", 200, &drain)).is_some(), "an unknown path");

    let refused = |code: &str| json!({ "error": code, "message": "no", "details": [], "request_id": "r" });
    let job = "/api/v1/jobs/0198a0b0-0000-7000-8000-000000000000";
    assert_eq!(violation(&exchange("get", job, 404, &refused("unknown_job"))), None);
    assert!(
        violation(&exchange("get", job, 404, &refused("unknown_server"))).is_some(),
        "a code of another operation"
    );
    let mut with_help = refused("unknown_job");
    with_help["help"] = json!("");
    assert!(violation(&exchange("get", job, 404, &with_help)).is_some(), "an unknown field of an error");

    let accepted = |sent: Value, query: &str| Exchange {
        query: query.split('&').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        sent: Some(sent.to_string().into_bytes()),
        ..exchange("post", "/api/v1/drain", 202, &drain)
    };
    assert_eq!(violation(&accepted(json!({ "reason": "backup" }), "")), None);
    assert!(violation(&accepted(json!({ "why": "backup" }), "")).is_some(), "an unknown field of a request");
    assert!(violation(&accepted(json!({}), "dry_run")).is_some(), "an unknown query parameter");
    scene.end().await;
}
