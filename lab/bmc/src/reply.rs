//! Responses: JSON bodies, and Redfish errors in the standard shape or in the shape of a vendor.
//!
//! ```text
//!   { "error": { "code": "Base.1.18.GeneralError", "message": "…",
//!                "@Message.ExtendedInfo": [ { "MessageId": "Base.1.18.PropertyUnknown", "Message": "…",
//!                                             "MessageArgs": ["…"], "MessageSeverity": "Warning",
//!                                             "Resolution": "…", "RelatedProperties": ["#/…"] } ] } }
//! ```
//!
//! Reference: DSP0266 clause 8.6 (error responses); message ids and texts follow the Base registry (DSP8011).

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use super::{
    body::BodyTransfer,
    config::{ErrorPolicy, ErrorShape},
};

/// A response before it is converted to HTTP.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: StatusCode,
    headers: Vec<(HeaderName, HeaderValue)>,
    content_type: Option<HeaderValue>,
    pub(super) body: Bytes,
    transfer: Option<BodyTransfer>,
}

impl Reply {
    pub(super) fn json(status: StatusCode, body: &Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            content_type: Some(HeaderValue::from_static("application/json;charset=utf-8")),
            body: Bytes::from(body.to_string()),
            transfer: None,
        }
    }

    pub(super) fn ok(body: &Value) -> Self {
        Self::json(StatusCode::OK, body)
    }

    pub(super) fn no_content() -> Self {
        Self::empty(StatusCode::NO_CONTENT)
    }

    /// A response without body and content type.
    pub(super) fn empty(status: StatusCode) -> Self {
        Self { content_type: None, body: Bytes::new(), ..Self::json(status, &Value::Null) }
    }

    /// A response with exactly this body. An invalid status becomes 500; an invalid content type is left out.
    pub(super) fn raw(status: u16, content_type: &str, body: &str) -> Self {
        Self {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            headers: Vec::new(),
            content_type: HeaderValue::from_str(content_type).ok(),
            body: Bytes::copy_from_slice(body.as_bytes()),
            transfer: None,
        }
    }

    /// Replaces the content type; an invalid one is left out.
    pub(super) fn of_type(mut self, content_type: &str) -> Self {
        self.content_type = HeaderValue::from_str(content_type).ok();
        self
    }

    /// Sets how the body is sent.
    pub(super) fn transferred_as(mut self, transfer: BodyTransfer) -> Self {
        self.transfer = Some(transfer);
        self
    }

    /// Adds a header; one with an invalid value is left out.
    #[must_use]
    pub(super) fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// Converts to the HTTP response for a request with this method.
    pub(super) fn into_response(self, method: &Method) -> Response<Bytes> {
        let length = self.body.len();
        let body = if method == Method::HEAD { Bytes::new() } else { self.body };
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static("odata-version"), HeaderValue::from_static("4.0"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        if let Some(content_type) = self.content_type.filter(|_| self.status != StatusCode::NO_CONTENT) {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        match self.transfer {
            Some(BodyTransfer::Chunked) => {}
            Some(BodyTransfer::Padded(length)) => {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
            _ if self.status == StatusCode::NO_CONTENT => {}
            _ => {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
            }
        }
        for (name, value) in self.headers {
            headers.insert(name, value);
        }
        if let Some(transfer) = self.transfer {
            response.extensions_mut().insert(transfer);
        }
        response
    }
}

/// An error response with one message of the Base registry. Boxed, because most functions of this crate return it.
#[derive(Debug)]
pub(super) struct ErrorReply(Box<Message>);

#[derive(Debug)]
struct Message {
    status: StatusCode,
    id: String,
    text: String,
    args: Vec<String>,
    resolution: &'static str,
    related: Option<String>,
    headers: Vec<(HeaderName, String)>,
    plain: bool,
}

impl ErrorReply {
    pub(super) fn new(status: StatusCode, id: &str, text: impl Into<String>) -> Self {
        Self(Box::new(Message {
            status,
            id: id.to_owned(),
            text: text.into(),
            args: Vec::new(),
            resolution: "None.",
            related: None,
            headers: Vec::new(),
            plain: false,
        }))
    }

    #[must_use]
    pub(super) fn args(mut self, args: &[&str]) -> Self {
        self.0.args = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    #[must_use]
    pub(super) fn resolution(mut self, resolution: &'static str) -> Self {
        self.0.resolution = resolution;
        self
    }

    #[must_use]
    pub(super) fn about(mut self, pointer: impl Into<String>) -> Self {
        self.0.related = Some(pointer.into());
        self
    }

    #[must_use]
    pub(super) fn with(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.0.headers.push((name, value.into()));
        self
    }

    /// Sends the message as plain text declared as JSON, in place of the vendor's usual shape.
    #[must_use]
    pub(super) fn in_plain_text(mut self) -> Self {
        self.0.plain = true;
        self
    }

    // === One constructor for each client error ===

    pub(super) fn not_found(path: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "ResourceMissingAtURI",
            format!("The resource at the URI '{path}' was not found."),
        )
        .args(&[path])
        .resolution("Place a valid resource at the URI or correct the URI and resubmit the request.")
    }

    pub(super) fn method_not_allowed(allow: &str) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "OperationNotAllowed",
            "The HTTP method is not allowed on this resource.",
        )
        .with(header::ALLOW, allow)
    }

    pub(super) fn unauthorized(id: &str, text: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, id, text)
            .resolution("Log in with valid credentials and resubmit the request.")
            .with(header::WWW_AUTHENTICATE, "Basic realm=\"RedfishService\"")
    }

    pub(super) fn malformed_json() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "MalformedJSON",
            "The request body submitted was malformed JSON and could not be parsed by the receiving service.",
        )
        .resolution("Ensure that the request body is valid JSON and resubmit the request.")
    }

    pub(super) fn property(id: &str, name: &str, text: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, id, text).args(&[name]).about(format!("#/{name}"))
    }

    pub(super) fn property_unknown(name: &str) -> Self {
        Self::property(
            "PropertyUnknown",
            name,
            format!("The property '{name}' is not in the list of valid properties for the resource."),
        )
        .resolution("Remove the unknown property from the request body and resubmit the request.")
    }

    pub(super) fn property_not_writable(name: &str) -> Self {
        Self::property(
            "PropertyNotWritable",
            name,
            format!("The property '{name}' is a read-only property and cannot be assigned a value."),
        )
    }

    pub(super) fn property_missing(name: &str) -> Self {
        Self::property(
            "PropertyMissing",
            name,
            format!("The property '{name}' is a required property and must be included in the request."),
        )
    }

    pub(super) fn property_type(name: &str) -> Self {
        Self::property(
            "PropertyValueTypeError",
            name,
            format!("The value for the property '{name}' is not a type that the property can accept."),
        )
    }

    pub(super) fn property_not_in_list(name: &str, value: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "PropertyValueNotInList",
            format!("The value '{value}' for the property '{name}' is not in the list of acceptable values."),
        )
        .args(&[value, name])
        .about(format!("#/{name}"))
    }

    pub(super) fn parameter_unknown(action: &str, name: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "ActionParameterUnknown",
            format!("The action '{action}' was submitted with the invalid parameter '{name}'."),
        )
        .args(&[action, name])
        .about(format!("#/{name}"))
        .resolution("Correct the invalid parameter and resubmit the request.")
    }

    pub(super) fn parameter_missing(action: &str, name: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "ActionParameterMissing",
            format!(
                "The action '{action}' requires that the parameter '{name}' be present in the request body."
            ),
        )
        .args(&[action, name])
        .about(format!("#/{name}"))
        .resolution("Supply the action with the required parameter in the request body.")
    }

    pub(super) fn parameter_type(action: &str, name: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "ActionParameterValueTypeError",
            format!(
                "The value for the parameter '{name}' in the action '{action}' is not of an acceptable type."
            ),
        )
        .args(&[name, action])
        .about(format!("#/{name}"))
    }

    pub(super) fn parameter_not_in_list(action: &str, name: &str, value: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "ActionParameterValueNotInList",
            format!("The value '{value}' for the parameter '{name}' in the action '{action}' is not in the list of acceptable values."),
        )
        .args(&[value, name, action])
        .about(format!("#/{name}"))
    }

    pub(super) fn parameter_format(action: &str, name: &str, why: &str) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            "ActionParameterValueFormatError",
            format!("The value for the parameter '{name}' in the action '{action}' is of a different format than the parameter can accept: {why}."),
        )
        .args(&[name, action])
        .about(format!("#/{name}"))
    }

    pub(super) fn busy() -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceTemporarilyUnavailable",
            "The service is temporarily unavailable. Retry in 1 seconds.",
        )
        .args(&["1"])
        .with(header::RETRY_AFTER, "1")
    }
}

impl ErrorReply {
    /// Status and body in the shape of this vendor; plain text is a JSON string.
    pub(super) fn status_and_body(&self, policy: &ErrorPolicy) -> (StatusCode, Value) {
        let refused = &self.0;
        let named = |id: &str| match (id.contains('.'), policy.registry.as_str()) {
            (true, _) | (false, "") => id.to_owned(),
            (false, registry) => format!("{registry}.{id}"),
        };
        let severity = if refused.status.is_server_error() { "Critical" } else { "Warning" };
        let mut info = json!({
            "@odata.type": "#Message.v1_2_0.Message",
            "MessageId": named(&refused.id),
            "Message": refused.text,
            "MessageArgs": refused.args,
            // The old name beside the new one, as on most BMCs.
            "Severity": severity,
            "MessageSeverity": severity,
            "Resolution": refused.resolution,
        });
        if let Some(related) = &refused.related {
            info["RelatedProperties"] = json!([related]);
        }
        let mut error = json!({
            "code": named("GeneralError"),
            "message": "A general error has occurred. See ExtendedInfo for more information.",
        });
        let body = match if refused.plain { ErrorShape::Text } else { policy.shape } {
            ErrorShape::Standard => {
                error["@Message.ExtendedInfo"] = json!([info]);
                json!({ "error": error })
            }
            ErrorShape::InfoIsObject => {
                error["@Message.ExtendedInfo"] = info;
                json!({ "error": error })
            }
            ErrorShape::NoEnvelope => json!({ "@Message.ExtendedInfo": [info] }),
            ErrorShape::NoCode => json!({ "error": { "@Message.ExtendedInfo": [info] } }),
            ErrorShape::NoInfo => {
                json!({ "error": { "code": named(&refused.id), "message": refused.text } })
            }
            ErrorShape::Text => Value::from(refused.text.as_str()),
        };
        (refused.status, body)
    }

    /// The response in the shape of this vendor.
    pub(super) fn reply(self, policy: &ErrorPolicy) -> Reply {
        let (status, body) = self.status_and_body(policy);
        let reply = match body.as_str() {
            // Plain text, but declared as JSON.
            Some(text) => {
                Reply { body: Bytes::copy_from_slice(text.as_bytes()), ..Reply::json(status, &body) }
            }
            None => Reply::json(status, &body),
        };
        self.0.headers.into_iter().fold(reply, |reply, (name, value)| reply.with(name, &value))
    }
}
