//! The ETags that a vendor writes and accepts in `If-Match`.
//!
//! ```text
//!   kind                 GET gives   If-Match that matches
//!   strong               "5"         "5", *
//!   weak                 W/"5"       W/"5", "5", *      (in RFC 9110 no weak tag matches here)
//!   weak_matches_strong  W/"5"       "5", *
//!   empty                (empty)     *
//!   absent               none        *
//! ```
//!
//! Reference: RFC 9110 clauses 8.8.3 and 13.1.1, DSP0266 clause 7.10.

use http::{StatusCode, header};

use super::{
    call::Call,
    config::{EtagKind, EtagPolicy, IfMatchRule},
    reply::{ErrorReply, Reply},
};

/// The opaque part of the ETag of a revision.
pub(super) fn opaque(prefix: &str, revision: u64) -> String {
    format!("\"{prefix}{revision:x}\"")
}

/// The ETag as this vendor writes it; `None` if it writes none.
pub(super) fn given(policy: EtagPolicy, opaque: &str) -> Option<String> {
    match policy.kind {
        EtagKind::Strong => Some(opaque.to_owned()),
        EtagKind::Weak | EtagKind::WeakMatchesStrong => Some(format!("W/{opaque}")),
        EtagKind::Empty => Some(String::new()),
        EtagKind::Absent => None,
    }
}

/// Adds the ETag to a response.
pub(super) fn tag(policy: EtagPolicy, reply: Reply, opaque: &str) -> Reply {
    match given(policy, opaque) {
        Some(tag) => reply.with(header::ETAG, &tag),
        None => reply,
    }
}

/// Checks `If-Match` of a request against the current ETag.
pub(super) fn check(policy: EtagPolicy, call: &Call, opaque: &str) -> Result<(), ErrorReply> {
    let received = call.header(header::IF_MATCH).map(str::trim);
    match (policy.if_match, received) {
        (IfMatchRule::Ignored, _) | (IfMatchRule::Optional, None) | (_, Some("*")) => Ok(()),
        (IfMatchRule::Required, None) => Err(ErrorReply::new(
            StatusCode::PRECONDITION_REQUIRED,
            "PreconditionRequired",
            "A precondition header or annotation is required to change the resource.",
        )),
        (IfMatchRule::OnlyStar, _) | (IfMatchRule::RequiredSays412, None) => Err(failed()),
        (_, Some(received)) => {
            let matches = |tag: &str| match (policy.kind, tag.strip_prefix("W/")) {
                (EtagKind::Empty | EtagKind::Absent, _) => false,
                (EtagKind::Weak, Some(weak)) => weak == opaque,
                (_, None) => tag == opaque,
                (_, Some(_)) => false,
            };
            if received.split(',').any(|tag| matches(tag.trim())) { Ok(()) } else { Err(failed()) }
        }
    }
}

/// Checks an `If-Match` that this vendor demands where the specification does not.
pub(super) fn check_required(call: &Call, opaque: &str) -> Result<(), ErrorReply> {
    match call.header(header::IF_MATCH).map(str::trim) {
        Some(received) if received == opaque || received == "*" => Ok(()),
        _ => Err(failed()),
    }
}

fn failed() -> ErrorReply {
    ErrorReply::new(
        StatusCode::PRECONDITION_FAILED,
        "PreconditionFailed",
        "The ETag supplied did not match the ETag required to change this resource.",
    )
    .resolution("Try the operation again using the appropriate ETag.")
}
