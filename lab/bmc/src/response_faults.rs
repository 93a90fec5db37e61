//! Fault effects on a finished response.
//!
//! ```text
//!   Reply ──► Lie, ErrorShape ──► bytes ──► ByteOrderMark, Gzip, Truncate, … ──► BodyTransfer (how the bytes are sent)
//! ```

use std::io::Write;

use bytes::Bytes;
use http::{HeaderName, StatusCode, header};
use serde_json::{Map, Value};

use super::{body::BodyTransfer, config::ErrorShape, faults::FaultEffect, reply::Reply};

/// Applies an effect to a response.
pub(super) fn apply_effect(mut reply: Reply, effect: &FaultEffect) -> Reply {
    match effect {
        FaultEffect::Lie(lie) => with_json(reply, |body| overlay(body, lie)),
        FaultEffect::ErrorShape(shape)
            if reply.status.is_client_error() || reply.status.is_server_error() =>
        {
            reshape(reply, *shape)
        }
        FaultEffect::Truncate(bytes) => {
            reply.body.truncate(*bytes);
            reply
        }
        FaultEffect::ContentType(text) => reply.of_type(text),
        FaultEffect::ByteOrderMark => {
            reply.body = [b"\xEF\xBB\xBF", reply.body.as_ref()].concat().into();
            reply
        }
        FaultEffect::Gzip => {
            reply.body = gzip(&reply.body);
            reply.with(header::CONTENT_ENCODING, "gzip")
        }
        FaultEffect::DuplicateKey if reply.body.starts_with(b"{\"") => {
            reply.body = [b"{\"@odata.id\":\"/redfish/v1/Twice\",", &reply.body[1..]].concat().into();
            reply
        }
        FaultEffect::Deep(depth) => {
            let depth = usize::try_from(*depth).unwrap_or(usize::MAX).min(1 << 20);
            let nested = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            reply.body = format!("{{\"Deep\":{nested}}}").into();
            reply
        }
        FaultEffect::Chunked => reply.transferred_as(BodyTransfer::Chunked),
        FaultEffect::CutBody(bytes) => reply.transferred_as(BodyTransfer::Cut(*bytes)),
        FaultEffect::Trickle(pause) => reply.transferred_as(BodyTransfer::Trickle(*pause)),
        FaultEffect::Huge(bytes) => reply.transferred_as(BodyTransfer::Padded(*bytes)),
        _ => reply,
    }
}

/// The response that a fault defines completely.
pub(super) fn canned(status: u16, headers: &std::collections::BTreeMap<String, String>, body: &str) -> Reply {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = Reply::empty(status);
    reply.body = Bytes::copy_from_slice(body.as_bytes());
    headers.iter().fold(reply, |reply, (name, value)| match name.parse::<HeaderName>() {
        Ok(header::CONTENT_TYPE) => reply.of_type(value),
        Ok(name) => reply.with(name, value),
        Err(_) => reply,
    })
}

fn with_json(mut reply: Reply, change: impl FnOnce(&mut Value)) -> Reply {
    if let Ok(mut body) = serde_json::from_slice(&reply.body) {
        change(&mut body);
        reply.body = body.to_string().into();
    }
    reply
}

/// Replaces the values of existing keys; adds no key.
fn overlay(body: &mut Value, lie: &Value) {
    let (Value::Object(body), Value::Object(lie)) = (body, lie) else { return };
    for (key, claimed) in lie {
        match body.get_mut(key) {
            Some(inner @ Value::Object(_)) if claimed.is_object() => overlay(inner, claimed),
            Some(value) => *value = claimed.clone(),
            None => {}
        }
    }
}

fn reshape(mut reply: Reply, shape: ErrorShape) -> Reply {
    if shape == ErrorShape::Text {
        let error = serde_json::from_slice::<Value>(&reply.body).unwrap_or_default();
        let message = error.pointer("/error/@Message.ExtendedInfo/0/Message").and_then(Value::as_str);
        reply.body = message.unwrap_or("error").to_owned().into();
        return reply;
    }
    with_json(reply, |body| {
        let info = body.pointer("/error/@Message.ExtendedInfo").cloned().unwrap_or_default();
        let first = info.get(0).cloned().unwrap_or_default();
        let Some(error) = body.get_mut("error").and_then(Value::as_object_mut) else { return };
        match shape {
            ErrorShape::Standard | ErrorShape::Text => {}
            ErrorShape::InfoIsObject => {
                error.insert("@Message.ExtendedInfo".to_owned(), first);
            }
            ErrorShape::NoCode => {
                error.remove("code");
            }
            ErrorShape::NoInfo => {
                error.remove("@Message.ExtendedInfo");
            }
            ErrorShape::NoEnvelope => {
                *body = Value::Object(Map::from_iter([("@Message.ExtendedInfo".to_owned(), info)]));
            }
        }
    })
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    // Writing to memory does not fail; if it did, the body would stay uncompressed.
    match encoder.write_all(bytes).and_then(|()| encoder.finish()) {
        Ok(packed) => packed.into(),
        Err(_) => Bytes::copy_from_slice(bytes),
    }
}
