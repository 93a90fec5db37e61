//! A parsed request: its resource, kind and body.
//!
//! ```text
//!   POST /redfish/v1/Systems/437XR1138R2/Actions/ComputerSystem.Reset  {"ResetType":"On"}
//!     └─ resource Reset ─┴─ kind Reset ─┴─ detail Reset(On) ─┴─ body Object
//! ```
//!
//! Invariant: parsing never fails; an invalid part is kept as such and refused when it is used.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, header};
use serde_json::{Map, Value};

use super::{
    config::SimBmcConfig,
    journal::RequestKind,
    routes::{Oem, Paths, Resource},
    types::ResetType,
    update::{Upload, UploadReader},
};

/// The longest body that is read.
pub(super) const MAX_BODY_BYTES: usize = 64 * 1024;
/// The longest path that is read and kept in the journal.
const MAX_PATH_BYTES: usize = 1024;

/// The body of a request.
#[derive(Debug)]
pub(super) enum Body {
    Absent,
    Object(Map<String, Value>),
    /// JSON that is not an object, or no JSON.
    Malformed,
    /// A body that is not declared as JSON.
    WrongType,
    TooLong,
}

/// The slot or reset type that a request names; faults match on it.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Detail {
    None,
    Slot(String),
    Reset(ResetType),
}

impl Detail {
    pub(super) fn slot(&self) -> Option<&String> {
        match self {
            Self::Slot(id) => Some(id),
            Self::None | Self::Reset(_) => None,
        }
    }
}

/// A parsed request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) resource: Option<Resource>,
    pub(super) operation: RequestKind,
    pub(super) detail: Detail,
    pub(super) body: Body,
    /// The content of an upload of firmware.
    pub(super) upload: Option<Upload>,
}

impl Call {
    pub(super) fn parse(config: &SimBmcConfig, paths: &Paths, request: Request<Bytes>) -> Self {
        let (mut parts, bytes) = request.into_parts();
        let full = parts.uri.path();
        let resource = if full.len() <= MAX_PATH_BYTES { paths.resolve(config, full) } else { None };
        let path = full.chars().take(MAX_PATH_BYTES).collect();
        let takes_upload = parts.method == Method::POST
            && matches!(resource, Some(Resource::UpdateMultipart | Resource::UpdatePush));
        let (body, upload) = if takes_upload {
            // Over a socket the upload was read before; in process it is the body.
            let read = parts.extensions.remove::<Option<Upload>>();
            (Body::Absent, read.unwrap_or_else(|| read_upload(&parts.headers, &bytes)))
        } else {
            (parse_body(&parts.headers, &bytes), None)
        };
        let operation = operation(&parts.method, resource.as_ref(), &body);
        let detail = match (&resource, &body) {
            (Some(resource), _) if resource.slot().is_some() => {
                resource.slot().map_or(Detail::None, |slot| Detail::Slot(config.slots[slot].id.clone()))
            }
            (Some(Resource::Reset), Body::Object(object)) => object
                .get("ResetType")
                .and_then(Value::as_str)
                .and_then(|text| text.parse().ok())
                .map_or(Detail::None, Detail::Reset),
            _ => Detail::None,
        };
        Self {
            method: parts.method,
            path,
            query: parts.uri.query().map(str::to_owned),
            headers: parts.headers,
            resource,
            operation,
            detail,
            body,
            upload,
        }
    }

    /// The value of a header, if it is text.
    pub(super) fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

fn operation(method: &Method, resource: Option<&Resource>, body: &Body) -> RequestKind {
    match (method, resource) {
        (&Method::GET | &Method::HEAD, _) => RequestKind::Read,
        (&Method::POST, Some(Resource::Sessions)) => RequestKind::Login,
        (&Method::DELETE, Some(Resource::Session(_))) => RequestKind::Logout,
        (&Method::PATCH, Some(Resource::System | Resource::Settings)) => RequestKind::PatchSystem,
        (&Method::PATCH, Some(Resource::Bios | Resource::BiosSettings)) => RequestKind::PatchBios,
        (&Method::PATCH, Some(Resource::Slot(..))) => match body {
            Body::Object(object) if object.contains_key("Oem") => RequestKind::Configure,
            Body::Object(object) if object.get("Image").is_some_and(Value::is_string) => RequestKind::Insert,
            _ => RequestKind::Eject,
        },
        (&Method::POST, Some(Resource::Reset)) => RequestKind::Reset,
        (
            &Method::POST,
            Some(
                Resource::UpdateSimple
                | Resource::UpdateMultipart
                | Resource::UpdatePush
                | Resource::UpdateStart,
            ),
        ) => RequestKind::Update,
        (&Method::PATCH, Some(Resource::UpdateService)) => RequestKind::Configure,
        (&Method::POST, Some(Resource::ManagerReset)) => RequestKind::ResetManager,
        (&Method::POST, Some(Resource::Insert(..) | Resource::Oem(Oem::HpInsert(..) | Oem::CfgCdMount))) => {
            RequestKind::Insert
        }
        (&Method::POST, Some(Resource::Eject(..) | Resource::Oem(Oem::HpEject(..) | Oem::CfgCdUnmount))) => {
            RequestKind::Eject
        }
        (&Method::POST, Some(Resource::Oem(Oem::Vmm(..)))) => match body {
            Body::Object(object) if object.get("VmmControlType").is_some_and(|kind| kind == "Connect") => {
                RequestKind::Insert
            }
            _ => RequestKind::Eject,
        },
        (&Method::POST | &Method::PATCH, Some(Resource::Oem(_))) => RequestKind::Configure,
        _ => RequestKind::Unknown,
    }
}

/// A reader for the upload that these headers announce.
pub(super) fn upload_reader(headers: &HeaderMap) -> UploadReader {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    UploadReader::new(kind)
}

fn read_upload(headers: &HeaderMap, bytes: &[u8]) -> Option<Upload> {
    let mut reader = upload_reader(headers);
    reader.feed(bytes);
    reader.finish()
}

fn parse_body(headers: &HeaderMap, bytes: &[u8]) -> Body {
    if bytes.is_empty() {
        return Body::Absent;
    }
    if bytes.len() > MAX_BODY_BYTES {
        return Body::TooLong;
    }
    let media_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Body::WrongType;
    }
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(object)) => Body::Object(object),
        Ok(_) | Err(_) => Body::Malformed,
    }
}
