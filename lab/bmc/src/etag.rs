//! ETags: how a vendor writes them and what it takes in `If-Match`.
//!
//! ```text
//!   kind                 GET gives   If-Match that matches
//!   strong               "5"         "5", *
//!   weak                 W/"5"       W/"5", "5", *      (RFC 9110 would have no weak tag match here)
//!   weak_matches_strong  W/"5"       "5", *
//!   empty                (empty)     *
//!   absent               none        *
//! ```
//!
//! Reference: RFC 9110 clauses 8.8.3 and 13.1.1, DSP0266 clause 7.10.

use http::{StatusCode, header};

use super::{
    call::Call,
    config::{EtagKind, EtagPolicy, IfMatch},
    reply::{Refused, Reply},
};

/// The opaque part of the tag of a revision.
pub(super) fn opaque(prefix: &str, revision: u64) -> String {
    format!("\"{prefix}{revision:x}\"")
}

/// The tag as it is given; `None`: not at all.
pub(super) fn given(policy: EtagPolicy, opaque: &str) -> Option<String> {
    match policy.kind {
        EtagKind::Strong => Some(opaque.to_owned()),
        EtagKind::Weak | EtagKind::WeakMatchesStrong => Some(format!("W/{opaque}")),
        EtagKind::Empty => Some(String::new()),
        EtagKind::Absent => None,
    }
}

/// Puts the tag on an answer.
pub(super) fn tag(policy: EtagPolicy, reply: Reply, opaque: &str) -> Reply {
    match given(policy, opaque) {
        Some(tag) => reply.with(header::ETAG, &tag),
        None => reply,
    }
}

/// Whether the request may change what has this tag now.
pub(super) fn check(policy: EtagPolicy, call: &Call, opaque: &str) -> Result<(), Refused> {
    let told = call.header(header::IF_MATCH).map(str::trim);
    match (policy.if_match, told) {
        (IfMatch::Ignored, _) | (IfMatch::Optional, None) | (_, Some("*")) => Ok(()),
        (IfMatch::Required, None) => Err(Refused::new(
            StatusCode::PRECONDITION_REQUIRED,
            "PreconditionRequired",
            "A precondition header or annotation is required to change the resource.",
        )),
        (IfMatch::OnlyStar, _) | (IfMatch::RequiredSays412, None) => Err(failed()),
        (_, Some(told)) => {
            let matches = |tag: &str| match (policy.kind, tag.strip_prefix("W/")) {
                (EtagKind::Empty | EtagKind::Absent, _) => false,
                (EtagKind::Weak, Some(weak)) => weak == opaque,
                (_, None) => tag == opaque,
                (_, Some(_)) => false,
            };
            if told.split(',').any(|tag| matches(tag.trim())) { Ok(()) } else { Err(failed()) }
        }
    }
}

fn failed() -> Refused {
    Refused::new(
        StatusCode::PRECONDITION_FAILED,
        "PreconditionFailed",
        "The ETag supplied did not match the ETag required to change this resource.",
    )
    .resolution("Try the operation again using the appropriate ETag.")
}
