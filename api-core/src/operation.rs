//! One operation of the API: method, path, parameters, body, responses and error codes, as a builder of its table row.

use std::collections::BTreeMap;

use axum::http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::error::ErrorResponse;
use super::error_code::ErrorCode;
use super::labels::{Labels, labels_of};

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The credentials that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// No credentials.
    Public,
    /// Every caller with a role.
    Any,
    /// A viewer, an operator or an administrator.
    Reader,
    /// An operator or an administrator.
    Operator,
    /// An administrator.
    Admin,
    /// The secret of a report.
    ReportSecret,
}

/// A successful response.
struct Success {
    status: u16,
    description: &'static str,
    /// Media types with their schemas.
    content: Vec<(&'static str, Option<SchemaOf>)>,
    headers: Vec<(&'static str, &'static str)>,
}

/// The body of a request.
struct RequestBody {
    schema: SchemaOf,
    media_types: &'static [&'static str],
    required: bool,
}

/// A row of the operation table.
pub struct ApiOperation {
    /// The method, in lower case.
    pub method: &'static str,
    /// The path, with its parameters in braces.
    pub path: &'static str,
    /// The `operationId`.
    pub id: &'static str,
    tag: &'static str,
    summary: &'static str,
    access: Access,
    /// The operation takes no session cookie as a credential.
    without_session: bool,
    parameters: Vec<Value>,
    body: Option<RequestBody>,
    responses: Vec<Success>,
    errors: Vec<ErrorCode>,
}

/// Creates a row with a method and path. The tag groups operations in a document viewer.
fn operation(
    method: &'static str,
    (tag, path): (&'static str, &'static str),
    id: &'static str,
    summary: &'static str,
) -> ApiOperation {
    ApiOperation {
        method,
        path,
        id,
        tag,
        summary,
        access: Access::Public,
        without_session: false,
        parameters: Vec::new(),
        body: None,
        responses: Vec::new(),
        errors: Vec::new(),
    }
}

/// A `GET` operation for viewers.
pub fn get(place: (&'static str, &'static str), id: &'static str, summary: &'static str) -> ApiOperation {
    operation("get", place, id, summary).access(Access::Reader)
}

/// A `POST` operation for operators.
pub fn post(place: (&'static str, &'static str), id: &'static str, summary: &'static str) -> ApiOperation {
    operation("post", place, id, summary).access(Access::Operator)
}

/// A `PATCH` operation for operators.
pub fn patch(place: (&'static str, &'static str), id: &'static str, summary: &'static str) -> ApiOperation {
    operation("patch", place, id, summary).access(Access::Operator)
}

/// A `DELETE` operation for operators.
pub fn delete(place: (&'static str, &'static str), id: &'static str, summary: &'static str) -> ApiOperation {
    operation("delete", place, id, summary).access(Access::Operator)
}

impl ApiOperation {
    fn access(mut self, access: Access) -> Self {
        use ErrorCode::{Csrf, Forbidden, Internal, RateLimited, Unauthorized, Unavailable, ValidationError};
        self.access = access;
        self.errors = match access {
            Access::Public => Vec::new(),
            Access::Any | Access::Reader | Access::Operator | Access::Admin => {
                let mut errors = vec![Unauthorized, Forbidden, RateLimited, Internal, Unavailable];
                if self.method != "get" {
                    errors.push(Csrf);
                }
                errors
            }
            Access::ReportSecret => vec![Unauthorized, RateLimited, Internal, Unavailable],
        };
        let has_role = !matches!(access, Access::Public | Access::ReportSecret);
        if has_role && self.path.starts_with("/api/") {
            // An unknown query parameter.
            self.errors.push(ValidationError);
        }
        self
    }

    /// The operation needs no credentials.
    pub fn for_everyone(self) -> Self {
        self.access(Access::Public)
    }

    /// The operation needs an operator although it changes nothing in the database.
    pub fn for_operators(self) -> Self {
        self.access(Access::Operator)
    }

    /// The operation needs an administrator.
    pub fn for_admins(self) -> Self {
        self.access(Access::Admin)
    }

    /// The operation is about the caller's own login.
    pub fn for_any_role(self) -> Self {
        self.access(Access::Any)
    }

    /// The operation begins a session, which a session cannot do.
    pub fn begins_session(mut self) -> Self {
        self.without_session = true;
        self.errors(&[ErrorCode::ConflictNoSession])
    }

    /// The path names a user.
    pub fn of_user(self) -> Self {
        self.path_parameter("name", "The name of the user.", json!({ "type": "string" }))
            .errors(&[ErrorCode::UnknownUser])
    }

    /// The path names an API token.
    pub fn of_token(self) -> Self {
        self.path_parameter("name", "The name of the API token.", json!({ "type": "string" }))
            .errors(&[ErrorCode::UnknownToken])
    }

    /// The operation needs the secret of a report.
    pub fn with_report_secret(self) -> Self {
        self.access(Access::ReportSecret)
    }

    /// The path names a job.
    pub fn of_job(self) -> Self {
        self.path_parameter("id", "The id of the job.", json!({ "$ref": "#/components/schemas/JobId" }))
            .errors(&[ErrorCode::UnknownJob])
    }

    /// The path names a server.
    pub fn of_server(self) -> Self {
        let schema = json!({ "$ref": "#/components/schemas/SerialNumber" });
        self.path_parameter("serial", "The serial number of the server.", schema)
            .errors(&[ErrorCode::UnknownServer])
    }

    /// The path names a batch.
    pub fn of_batch(self) -> Self {
        self.path_parameter("id", "The id of the batch.", json!({ "$ref": "#/components/schemas/BatchId" }))
            .errors(&[ErrorCode::UnknownBatch])
    }

    /// The path names a webhook.
    pub fn of_webhook(self) -> Self {
        self.path_parameter(
            "id",
            "The id of the webhook.",
            json!({ "$ref": "#/components/schemas/WebhookId" }),
        )
        .errors(&[ErrorCode::UnknownWebhook])
    }

    /// The operation exists on a controller with a registry.
    pub fn of_registry(self) -> Self {
        self.errors(&[ErrorCode::NoRegistry, ErrorCode::RegistryFailed])
    }

    /// A parameter of the path.
    pub fn path_parameter(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter("path", true, name, description, schema)
    }

    /// An optional query parameter.
    pub fn query(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter("query", false, name, description, schema).errors(&[ErrorCode::ValidationError])
    }

    /// The query parameter `limit` of a page.
    pub fn page_size(self, usual: u32, most: u32) -> Self {
        let schema = json!({ "type": "integer", "minimum": 1, "maximum": most, "default": usual });
        self.query("limit", "The maximum of entries on the page.", schema)
    }

    /// An optional header.
    pub fn header(self, name: &str, description: &str, schema: Value) -> Self {
        self.parameter("header", false, name, description, schema)
    }

    /// The header `Idempotency-Key`.
    pub fn idempotency_key(self) -> Self {
        self.header(
            "Idempotency-Key",
            "A name of the request. A repetition with the same key creates nothing twice.",
            json!({ "type": "string", "minLength": 1, "maxLength": 128 }),
        )
        .errors(&[ErrorCode::ValidationError, ErrorCode::IdempotencyKeyReused])
    }

    /// The header `If-Match`.
    pub fn if_match(self) -> Self {
        self.header(
            "If-Match",
            "The `ETag` of the resource when it was read. The request is refused if the resource has changed since.",
            json!({ "type": "string" }),
        )
        .errors(&[ErrorCode::PreconditionFailed])
    }

    fn parameter(
        mut self,
        place: &str,
        required: bool,
        name: &str,
        description: &str,
        schema: Value,
    ) -> Self {
        let parameter = json!({ "name": name, "in": place, "required": required, "description": description, "schema": schema });
        self.parameters.push(parameter);
        self
    }

    /// A JSON body.
    pub fn body<T: JsonSchema>(self) -> Self {
        self.body_as::<T>(&["application/json"]).errors(&[ErrorCode::UnsupportedMediaType])
    }

    /// A JSON body that the client may leave out.
    pub fn optional_body<T: JsonSchema>(self) -> Self {
        let mut operation = self.body::<T>();
        if let Some(body) = &mut operation.body {
            body.required = false;
        }
        operation
    }

    /// A JSON body that is a merge patch.
    pub fn merge_patch<T: JsonSchema>(self) -> Self {
        self.body_as::<T>(&["application/merge-patch+json", "application/json"])
            .errors(&[ErrorCode::UnsupportedMediaType])
    }

    /// A JSON body whose media type is not checked.
    pub fn body_of_any_type<T: JsonSchema>(self) -> Self {
        self.body_as::<T>(&["application/json"])
    }

    fn body_as<T: JsonSchema>(mut self, media_types: &'static [&'static str]) -> Self {
        use ErrorCode::{BadBody, BadJson, BodyTimeout, BodyTooLarge, ValidationError};
        self.body =
            Some(RequestBody { schema: SchemaGenerator::subschema_for::<T>, media_types, required: true });
        self.errors(&[ValidationError, BadJson, BadBody, BodyTimeout, BodyTooLarge])
    }

    /// A response with a JSON body.
    pub fn returns<T: JsonSchema>(self, status: u16, description: &'static str) -> Self {
        self.success(
            status,
            description,
            vec![("application/json", Some(SchemaGenerator::subschema_for::<T>))],
        )
    }

    /// A response without a body.
    pub fn returns_nothing(self, status: u16, description: &'static str) -> Self {
        self.success(status, description, Vec::new())
    }

    /// A response with a body that is not JSON.
    pub fn returns_media(self, status: u16, description: &'static str, media_type: &'static str) -> Self {
        self.success(status, description, vec![(media_type, None)])
    }

    /// Another media type of the latest response, selected by `Accept`.
    pub fn or_media(mut self, media_type: &'static str) -> Self {
        if let Some(response) = self.responses.last_mut() {
            response.content.push((media_type, None));
        }
        self
    }

    /// A header of the latest response.
    pub fn with_header(mut self, name: &'static str, description: &'static str) -> Self {
        if let Some(response) = self.responses.last_mut() {
            response.headers.push((name, description));
        }
        self
    }

    fn success(
        mut self,
        status: u16,
        description: &'static str,
        content: Vec<(&'static str, Option<SchemaOf>)>,
    ) -> Self {
        self.responses.push(Success { status, description, content, headers: Vec::new() });
        self
    }

    /// Error codes of the operation besides those that follow from its access, path and body.
    pub fn errors(mut self, codes: &[ErrorCode]) -> Self {
        self.errors.extend(codes);
        self
    }

    /// The operation as an ApiOperation Object. Responses are written by one generator and requests by another: a field with
    /// a default is required in a response only.
    pub fn render(&self, responses: &mut SchemaGenerator, requests: &mut SchemaGenerator) -> Value {
        let mut rendered = Map::new();
        let mut put = |name: &str, value: Value| rendered.insert(name.to_owned(), value);
        put("operationId", json!(self.id));
        put("tags", json!([self.tag]));
        put("summary", json!(self.summary));
        put("security", self.security());
        put("x-token-labels", json!(self.takes_labels()));
        if !self.parameters.is_empty() {
            put("parameters", json!(self.parameters));
        }
        if let Some(body) = &self.body {
            let schema = (body.schema)(requests);
            let media_types = body.media_types.iter();
            let content: Map<String, Value> =
                media_types.map(|kind| ((*kind).to_owned(), json!({ "schema": schema }))).collect();
            put("requestBody", json!({ "required": body.required, "content": content }));
        }
        let mut by_status: BTreeMap<String, Value> = self
            .responses
            .iter()
            .map(|success| (success.status.to_string(), success.render(responses)))
            .collect();
        for (status, codes) in self.errors_by_status() {
            let target = format!("#/components/responses/{}", response_name(&codes));
            by_status.insert(status.to_string(), json!({ "$ref": target }));
        }
        put("responses", json!(by_status));
        Value::Object(rendered)
    }

    /// The names of the query parameters.
    pub fn query_parameters(&self) -> Vec<String> {
        let queries = self.parameters.iter().filter(|parameter| parameter["in"] == "query");
        queries.filter_map(|parameter| parameter["name"].as_str().map(str::to_owned)).collect()
    }

    /// The security requirements. The list of a scheme names the roles that may use the operation.
    fn security(&self) -> Value {
        let roles: &[&str] = match self.access {
            Access::Public => return json!([]),
            Access::ReportSecret => return json!([{ "reportSecret": [] }]),
            Access::Any => &["admin", "operator", "viewer", "report-only", "registry-only"],
            Access::Reader => &["admin", "operator", "viewer"],
            Access::Operator => &["admin", "operator"],
            Access::Admin => &["admin"],
        };
        if self.without_session {
            return json!([{ "bearer": roles }, { "basic": roles }]);
        }
        json!([{ "bearer": roles }, { "basic": roles }, { "session": roles }])
    }

    /// Whether a token with labels may use the operation, for the servers that it may see.
    fn takes_labels(&self) -> bool {
        let method = self.method.to_uppercase().parse().unwrap_or(Method::OPTIONS);
        let has_role = !matches!(self.access, Access::Public | Access::ReportSecret);
        has_role && labels_of(&method, self.path) != Labels::Refused
    }

    /// The error codes of the operation by status.
    fn errors_by_status(&self) -> BTreeMap<u16, Vec<ErrorCode>> {
        let mut by_status: BTreeMap<u16, Vec<ErrorCode>> = BTreeMap::new();
        let mut codes = self.errors.clone();
        codes.sort_unstable();
        codes.dedup();
        for code in codes {
            by_status.entry(code.status().as_u16()).or_default().push(code);
        }
        by_status
    }

    /// The error responses of the operation by name, for the components of the document.
    pub fn error_responses(&self, responses: &mut SchemaGenerator) -> Vec<(String, Value)> {
        let by_status = self.errors_by_status();
        by_status.values().map(|codes| (response_name(codes), error_response(codes, responses))).collect()
    }
}

/// The name of a response with one of the given codes.
fn response_name(codes: &[ErrorCode]) -> String {
    codes.iter().map(|code| code.as_str()).collect::<Vec<_>>().join("-")
}

/// A response with one of the given codes.
fn error_response(codes: &[ErrorCode], responses: &mut SchemaGenerator) -> Value {
    let texts: Vec<String> =
        codes.iter().map(|code| format!("`{}`: {}.", code.as_str(), code.text().title)).collect();
    let names: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let error = responses.subschema_for::<ErrorResponse<'static>>();
    let schema = json!({ "allOf": [error, { "properties": { "error": { "enum": names } } }] });
    let mut response =
        json!({ "description": texts.join(" "), "content": { "application/json": { "schema": schema } } });
    if codes.iter().any(|code| matches!(code.status().as_u16(), 429 | 503)) {
        response["headers"] = json!({ "Retry-After": {
            "description": "After how many seconds the request may succeed.", "schema": { "type": "integer", "minimum": 1 },
        } });
    }
    response
}

impl Success {
    fn render(&self, responses: &mut SchemaGenerator) -> Value {
        let mut rendered = json!({ "description": self.description });
        if !self.content.is_empty() {
            let content: Map<String, Value> = self
                .content
                .iter()
                .map(|(kind, schema)| {
                    let media_type =
                        schema.map_or(json!({}), |schema| json!({ "schema": schema(responses) }));
                    ((*kind).to_owned(), media_type)
                })
                .collect();
            rendered["content"] = Value::Object(content);
        }
        if !self.headers.is_empty() {
            let header =
                |description: &str| json!({ "description": description, "schema": { "type": "string" } });
            let headers: Map<String, Value> = self
                .headers
                .iter()
                .map(|(name, description)| ((*name).to_owned(), header(description)))
                .collect();
            rendered["headers"] = Value::Object(headers);
        }
        rendered
    }
}
