//! Compares every exchange of the tests' client with the OpenAPI document: status, schema of the response, error code, and for an
//! accepted request its body and query parameters. Objects of a response are closed: a field that the document lacks is a violation.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex};

use jsonschema::Validator;
use serde_json::{Value, json};

/// A request and its response, as far as the document describes them.
#[derive(Clone, Hash)]
pub(crate) struct Exchange {
    /// The method in lower case.
    pub(crate) method: String,
    pub(crate) path: String,
    /// The names of the query parameters.
    pub(crate) query: Vec<String>,
    /// The request body, if it is known and not empty.
    pub(crate) sent: Option<Vec<u8>>,
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) received: Vec<u8>,
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(api::openapi()).unwrap());

/// The schemas of responses: every object with known fields has no other fields.
static CLOSED: LazyLock<Value> = LazyLock::new(|| {
    let mut components = DOCUMENT["components"].clone();
    close(&mut components);
    components
});

/// Compiled schemas by their place in the document.
static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// Digests of exchanges that match. Tests that poll repeat most of theirs.
static MATCHING: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

fn close(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_object = fields.get("type").is_some_and(|kind| kind == "object");
            if is_object && fields.contains_key("properties") && !fields.contains_key("additionalProperties")
            {
                fields.insert("additionalProperties".to_owned(), json!(false));
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// Compiles a schema of the document once.
fn validator(place: &str, schema: &Value, components: &Value) -> Arc<Validator> {
    let mut compiled = VALIDATORS.lock().unwrap();
    let compile = || {
        let mut root = schema.clone();
        root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        root["components"] = components.clone();
        Arc::new(jsonschema::options().should_validate_formats(true).build(&root).unwrap())
    };
    Arc::clone(compiled.entry(place.to_owned()).or_insert_with(compile))
}

/// The first difference between a JSON text and a schema.
fn difference(place: &str, schema: &Value, components: &Value, text: &[u8]) -> Result<(), String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| format!("{place}: not JSON: {error}"))?;
    let validator = validator(place, schema, components);
    match validator.iter_errors(&value).next() {
        None => Ok(()),
        Some(error) => Err(format!("{place}: {error} at {:?} of {value}", error.instance_path().to_string())),
    }
}

/// The template of a path, with its operations.
fn operations(path: &str) -> Option<(&'static String, &'static Value)> {
    let fits = |template: &str| {
        let (mut template, mut path) = (template.split('/'), path.split('/'));
        loop {
            match (template.next(), path.next()) {
                (None, None) => return true,
                (Some(part), Some(given))
                    if part == given || (part.starts_with('{') && !given.is_empty()) => {}
                _ => return false,
            }
        }
    };
    DOCUMENT["paths"].as_object().unwrap().iter().find(|(template, _)| fits(template))
}

/// A value of the document, or the component it refers to.
fn resolved(value: &'static Value) -> &'static Value {
    let target = value["$ref"].as_str().and_then(|target| target.strip_prefix('#'));
    target.map_or(value, |target| DOCUMENT.pointer(target).unwrap())
}

/// Why an exchange contradicts the document.
pub(crate) fn violation(exchange: &Exchange) -> Option<String> {
    compare(exchange).err().map(|why| format!("{} {}: {why}", exchange.method, exchange.path))
}

fn compare(exchange: &Exchange) -> Result<(), String> {
    let Exchange { method, path, query, sent, status, content_type, received } = exchange;
    let Some((template, operations)) = operations(path) else {
        return if path.starts_with("/api/") { unrouted(exchange, 404) } else { Ok(()) };
    };
    let Some(operation) = operations.get(method) else {
        // A HEAD request has the route of GET and no body.
        return if method == "head" { Ok(()) } else { unrouted(exchange, 405) };
    };
    let place = format!("{method} {template} {status}");
    let response = resolved(&operation["responses"][status.to_string()]);
    if response.is_null() {
        // The media listener has none of the routes.
        return if *status == 404 {
            unrouted(exchange, 404)
        } else {
            Err(format!("{place} is not documented"))
        };
    }
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    match response["content"].as_object() {
        None if received.is_empty() => {}
        None => return Err(format!("{place} has a body")),
        Some(content) => {
            let media_type =
                content.get(essence).ok_or_else(|| format!("{place} has the media type {essence:?}"))?;
            if let Some(schema) = media_type.get("schema") {
                difference(&place, schema, &CLOSED, received)?;
            }
        }
    }
    if (200..300).contains(status) {
        accepted(template, method, operation, query, sent.as_deref(), received)?;
    }
    Ok(())
}

/// A request that no operation accepts.
fn unrouted(exchange: &Exchange, status: u16) -> Result<(), String> {
    let Exchange { method, path, received, .. } = exchange;
    if exchange.status != status {
        return Err(format!("{method} {path} is not documented and has the status {}", exchange.status));
    }
    let schema = json!({ "$ref": "#/components/schemas/Error" });
    if received.is_empty() { Ok(()) } else { difference("unrouted", &schema, &CLOSED, received) }
}

/// What an accepted request sent is part of the document.
fn accepted(
    template: &str,
    method: &str,
    operation: &Value,
    query: &[String],
    sent: Option<&[u8]>,
    received: &[u8],
) -> Result<(), String> {
    let none = Vec::new();
    let parameters = operation["parameters"].as_array().unwrap_or(&none);
    for name in query {
        let known =
            parameters.iter().any(|parameter| parameter["in"] == "query" && parameter["name"] == **name);
        if !known {
            return Err(format!("the query parameter {name} is not documented"));
        }
    }
    // A batch is accepted although some of its rows are not valid.
    let refused =
        serde_json::from_slice::<Value>(received).is_ok_and(|body| body["refused"].as_u64() > Some(0));
    match (sent, operation.pointer("/requestBody/content")) {
        (Some(sent), Some(content)) if !refused => {
            let schema = content.as_object().and_then(|content| content.values().next()).unwrap();
            difference(
                &format!("{method} {template} request"),
                &schema["schema"],
                &DOCUMENT["components"],
                sent,
            )
        }
        _ => Ok(()),
    }
}

/// Asserts that an exchange matches the document.
pub(crate) fn check(exchange: &Exchange) {
    let mut hasher = DefaultHasher::new();
    exchange.hash(&mut hasher);
    let digest = hasher.finish();
    if MATCHING.lock().unwrap().contains(&digest) {
        return;
    }
    if let Some(why) = violation(exchange) {
        panic!("an exchange contradicts golden/openapi.json: {why}");
    }
    MATCHING.lock().unwrap().insert(digest);
}
