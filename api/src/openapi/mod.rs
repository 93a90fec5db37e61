//! The API as a document: OpenAPI 3.1, generated from the operation table and the types of requests and responses.
//!
//! ```text
//!  operations.rs (one row per route and method) --+
//!  views and requests (derive JsonSchema) --------+--> document, built once --> /openapi.json, `shoal openapi`, golden/openapi.json
//!  types.rs (schemas of types of other crates) ---+
//! ```
//!
//! Invariants: every route has an operation and every operation a route; the bytes are the same in every process of one version.
//! The document contains no secret, so `/openapi.json` needs no credentials.
//!
//! Specification: OpenAPI 3.1.0, JSON Schema 2020-12.

mod backups;
mod conditions;
mod firmware;
mod fleet;
mod insight;
mod lists;
mod operations;
mod registry;
pub(super) mod types;
mod webhooks;
mod workers;

use std::sync::LazyLock;

use axum::http::{HeaderName, header};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::query::ParameterTable;
use api_core::operation;
use operations::operations;

const DESCRIPTION: &str = "Shoal installs servers through their BMCs. Every error response has the schema `Error`; docs/errors.md \
    describes each code. A client must accept response fields that it does not know. The OCI registry under `/v2/` follows the OCI \
    distribution specification and is not part of this document, nor are the media URLs that a job gives to a BMC. The list of a security requirement names the \
    roles that may use the operation. `x-token-labels` says whether a token with labels may use it, for the servers that have them.";

static DOCUMENT: LazyLock<String> = LazyLock::new(|| format!("{:#}\n", document()));

/// The OpenAPI document of the API, as JSON text.
pub fn openapi() -> &'static str {
    &DOCUMENT
}

/// The names of the query parameters of each operation, by method and path.
pub(super) fn query_parameters() -> ParameterTable {
    let operations = operations().into_iter();
    operations.map(|operation| ((operation.method, operation.path), operation.query_parameters())).collect()
}

/// `GET /openapi.json`.
pub(super) async fn serve() -> ([(HeaderName, &'static str); 1], &'static str) {
    ([(header::CONTENT_TYPE, "application/json")], openapi())
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut responses = settings.clone().for_serialize().into_generator();
    let mut requests = settings.for_deserialize().into_generator();
    for_parameters(&mut responses);
    let mut paths: Map<String, Value> = Map::new();
    let mut errors: Map<String, Value> = Map::new();
    for operation in operations() {
        errors.extend(operation.error_responses(&mut responses));
        let rendered = operation.render(&mut responses, &mut requests);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = rendered;
    }
    let mut schemas = requests.take_definitions(true);
    schemas.extend(responses.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Shoal",
            "version": env!("CARGO_PKG_VERSION"),
            "description": DESCRIPTION,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": [
            { "name": "jobs", "description": "Installations." },
            { "name": "batches", "description": "Many jobs in one request." },
            { "name": "servers", "description": "Registered machines and their BMCs." },
            { "name": "reports", "description": "Reports of the maintenance OS." },
            { "name": "webhooks", "description": "Events for other systems." },
            { "name": "firmware", "description": "Firmware files and sets." },
            { "name": "registry", "description": "Administration of the OCI registry." },
            { "name": "accounts", "description": "Users and API tokens." },
            { "name": "controller", "description": "The controller itself." },
        ],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": errors,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer", "description": "An API token, or a JWT with `AUTH_MODE=jwt`." },
                "basic": { "type": "http", "scheme": "basic", "description": "User and password with `AUTH_MODE=basic`." },
                "session": {
                    "type": "apiKey", "in": "cookie", "name": "__Host-shoal",
                    "description": "The cookie of `POST /api/v1/session`. Requests other than GET also send `X-CSRF-Token`.",
                },
                "reportSecret": {
                    "type": "apiKey", "in": "header", "name": "X-Webhook-Secret",
                    "description": "The `webhook_token` of `job.json`, or the shared secret of the setting `WEBHOOK_SECRET`.",
                },
            },
        },
    })
}

/// Defines the schemas that parameters refer to.
fn for_parameters(generator: &mut SchemaGenerator) {
    fn define<T: JsonSchema>(generator: &mut SchemaGenerator) {
        generator.subschema_for::<T>();
    }
    define::<types::JobId>(generator);
    define::<types::BatchId>(generator);
    define::<types::WebhookId>(generator);
    define::<types::SerialNumber>(generator);
    define::<types::JobStatus>(generator);
    define::<types::Outcome>(generator);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use access::audit::AuditAction;

    #[test]
    fn the_document_matches_the_golden_file() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/openapi.json");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, openapi()).unwrap();
        }
        assert!(openapi() == std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }

    #[test]
    fn the_roles_of_every_route_are_those_of_the_golden_table() {
        let mut table = String::from(
            "# Which role may use a route; `labels`: with a token that has labels, for servers with them.\n",
        );
        let document = document();
        for operation in operations() {
            let rendered = &document["paths"][operation.path][operation.method];
            let security = &rendered["security"][0];
            let roles: Vec<&str> = match security.get("bearer").and_then(Value::as_array) {
                Some(roles) => roles.iter().filter_map(Value::as_str).collect(),
                None if security.get("reportSecret").is_some() => {
                    vec!["report-only", "(or", "a", "report", "secret)"]
                }
                None => vec!["public"],
            };
            let labels = if rendered["x-token-labels"] == true { " labels" } else { "" };
            let (method, path) = (operation.method.to_uppercase(), operation.path);
            table.push_str(&format!("{method:<6} {path:<48} {}{labels}\n", roles.join(" ")));
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../golden/route-roles.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(path, &table).unwrap();
        }
        assert_eq!(table, std::fs::read_to_string(path).unwrap(), "UPDATE_GOLDEN=1 rewrites {path}");
    }

    #[test]
    fn every_route_has_an_operation_and_every_operation_a_route() {
        let routes: BTreeSet<&str> = super::super::routes().iter().map(|(path, _)| *path).collect();
        let table = operations();
        let documented: BTreeSet<&str> = table.iter().map(|operation| operation.path).collect();
        assert_eq!(routes, documented);
        let names: BTreeSet<&str> = table.iter().map(|operation| operation.id).collect();
        assert_eq!(names.len(), table.len(), "two operations have one operationId");
        let places: BTreeSet<_> = table.iter().map(|operation| (operation.method, operation.path)).collect();
        assert_eq!(places.len(), table.len(), "two rows have one method and path");
    }

    #[test]
    fn every_route_that_changes_something_has_an_action_of_the_audit_log() {
        for operation in operations() {
            let method = operation.method.to_uppercase().parse().unwrap();
            let action = AuditAction::of_route(&method, operation.path);
            assert_eq!(
                action.is_none(),
                operation.method == "get",
                "{method} {}: {action:?}",
                operation.path
            );
        }
    }

    #[test]
    fn a_schema_has_one_form_in_requests_and_responses() {
        let settings = || SchemaSettings::draft2020_12();
        let mut responses = settings().for_serialize().into_generator();
        let mut requests = settings().for_deserialize().into_generator();
        for operation in operations() {
            operation.render(&mut responses, &mut requests);
        }
        let responses = responses.take_definitions(true);
        for (name, schema) in requests.take_definitions(true) {
            assert!(responses.get(&name).is_none_or(|other| *other == schema), "{name} has two forms");
        }
    }

    #[test]
    fn every_reference_and_every_path_parameter_is_defined() {
        fn references(value: &Value, found: &mut BTreeSet<String>) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(target)) = fields.get("$ref") {
                        found.insert(target.clone());
                    }
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|value| references(value, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.len() > 40, "only {} references", found.len());
        for target in found {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target} is not defined");
        }
        for (path, operations) in document["paths"].as_object().unwrap() {
            let in_path: BTreeSet<&str> =
                path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
            for operation in operations.as_object().unwrap().values() {
                let none = Vec::new();
                let parameters = operation["parameters"].as_array().unwrap_or(&none);
                let declared: BTreeSet<&str> = parameters
                    .iter()
                    .filter(|parameter| parameter["in"] == "path")
                    .filter_map(|parameter| parameter["name"].as_str())
                    .collect();
                assert_eq!(in_path, declared, "{path}");
            }
        }
    }
}
