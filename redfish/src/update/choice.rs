//! Chooses the way an image reaches the BMC: a pure function of what the BMC offers, its profile and the image.
//!
//! ```text
//!   for each way of the profile's update_ways, in order:
//!      offered by the BMC? ── fits the size? ── a protocol that media are served by? ──► chosen
//!            └────────────────────┴──────────────────────┴── no: the reason is kept, the next way is considered
//! ```
//!
//! Every considered way is kept with its reason, so that an operator can read why this one. Profiles prefer an upload where
//! a BMC takes both: it needs no route from the BMC to the controller, no certificate that the BMC trusts, and its end is known.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::profile::{ApplyTimeRule, ImageUri, Include, Profile, PushBody, UpdateStateAt, UpdateWay};
use crate::update::service::{ApplyTime, UpdateCapability};

/// An image and the ways in which this controller can hand it over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ImageOffer<'a> {
    /// Size of the image in bytes.
    pub size: u64,
    /// Schemes of the URLs under which the image is served to this BMC (`http`, `https`); empty when it is not served.
    pub schemes: &'a [&'a str],
}

/// A way that was considered, and why it was chosen or not.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Considered {
    /// The way.
    pub way: UpdateWay,
    /// The reason, as a clause.
    pub why: String,
}

/// The route by which an image is sent.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "way")]
pub enum UpdateRoute {
    /// The BMC reads the image from a URL.
    Simple {
        /// The path for the POST.
        target: String,
        /// The protocol of the URL, in upper case.
        protocol: String,
        /// Whether `TransferProtocol` is sent.
        names_protocol: bool,
        /// The form in which the image is named.
        #[serde(default = "full_url")]
        uri: ImageUri,
    },
    /// The image is uploaded as a multipart form.
    Multipart {
        /// The path for the POST.
        target: String,
    },
    /// The image is uploaded to the older URI.
    Push {
        /// The path for the POST.
        target: String,
        /// The form of the body.
        body: PushBody,
        /// The path of `SimpleUpdate`, where the upload only stores the image.
        then: Option<String>,
    },
}

impl UpdateRoute {
    /// The way this route belongs to.
    pub fn way(&self) -> UpdateWay {
        match self {
            UpdateRoute::Simple { .. } => UpdateWay::Simple,
            UpdateRoute::Multipart { .. } => UpdateWay::Multipart,
            UpdateRoute::Push { .. } => UpdateWay::Push,
        }
    }
}

/// The chosen way with the reasons.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Choice {
    /// The route by which the image is sent.
    pub route: UpdateRoute,
    /// The ways that were considered, the chosen one last.
    pub considered: Vec<Considered>,
}

impl Choice {
    /// The reasons as one line for operators.
    pub fn why(&self) -> String {
        explain(&self.considered)
    }
}

/// No way fits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoWay {
    /// The ways that were considered.
    pub considered: Vec<Considered>,
}

impl fmt::Display for NoWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no way to update this BMC fits: {}", explain(&self.considered))
    }
}

impl std::error::Error for NoWay {}

fn explain(considered: &[Considered]) -> String {
    let lines = considered.iter().map(|one| format!("{}: {}", one.way.as_str(), one.why));
    lines.collect::<Vec<_>>().join("; ")
}

/// Chooses how an image is sent.
///
/// # Errors
///
/// When no way of the profile fits; the error names each way with its reason.
pub fn choose_way(
    service: &UpdateCapability,
    profile: &Profile,
    image: &ImageOffer<'_>,
) -> Result<Choice, NoWay> {
    let mut considered = Vec::new();
    for way in &profile.update_ways {
        let judged = match way {
            UpdateWay::Simple => simple(service, profile, image),
            UpdateWay::Multipart => multipart(service, image),
            UpdateWay::Push => push(service, profile, image),
        };
        match judged {
            Ok((route, why)) => {
                considered.push(Considered { way: *way, why });
                return Ok(Choice { route, considered });
            }
            Err(why) => considered.push(Considered { way: *way, why }),
        }
    }
    Err(NoWay { considered })
}

type Judged = Result<(UpdateRoute, String), String>;

/// The form of the URL in an update that was stored without that field.
fn full_url() -> ImageUri {
    ImageUri::Url
}

fn simple(service: &UpdateCapability, profile: &Profile, image: &ImageOffer<'_>) -> Judged {
    let Some(action) = &service.simple else { return Err("the BMC has no action SimpleUpdate".to_owned()) };
    if image.schemes.is_empty() {
        return Err("the image is not served to this BMC".to_owned());
    }
    let lists = |scheme: &&&str| {
        action.protocols.is_empty() || action.protocols.iter().any(|known| known.eq_ignore_ascii_case(scheme))
    };
    let Some(scheme) = image.schemes.iter().find(lists) else {
        return Err(format!(
            "the BMC reads images by {} only, and they are served by {}",
            action.protocols.join(", "),
            image.schemes.join(", ")
        ));
    };
    let names_protocol = match profile.update_protocol {
        Include::Always => true,
        Include::WhenAsked => !action.protocols.is_empty() || profile.update_uri == ImageUri::WithoutScheme,
        Include::Never => false,
    };
    let route = UpdateRoute::Simple {
        target: action.target.clone(),
        protocol: scheme.to_ascii_uppercase(),
        names_protocol,
        uri: profile.update_uri,
    };
    Ok((route, format!("the BMC reads the image by {}", scheme.to_ascii_uppercase())))
}

fn multipart(service: &UpdateCapability, image: &ImageOffer<'_>) -> Judged {
    let Some(target) = &service.multipart else {
        return Err("the BMC has no MultipartHttpPushUri".to_owned());
    };
    fits(service, image)?;
    Ok((UpdateRoute::Multipart { target: target.clone() }, uploads(image)))
}

fn push(service: &UpdateCapability, profile: &Profile, image: &ImageOffer<'_>) -> Judged {
    let Some(target) = &service.push else { return Err("the BMC has no HttpPushUri".to_owned()) };
    fits(service, image)?;
    let body = profile.update_push_body;
    let then = match (body, &service.simple) {
        (PushBody::StagedForm, None) => {
            return Err(
                "the upload only stores the image, and the BMC has no SimpleUpdate to start it".to_owned()
            );
        }
        (PushBody::StagedForm, Some(simple)) => Some(simple.target.clone()),
        (PushBody::Raw | PushBody::SessionForm, _) => None,
    };
    Ok((UpdateRoute::Push { target: target.clone(), body, then }, uploads(image)))
}

fn uploads(image: &ImageOffer<'_>) -> String {
    format!("{} bytes are uploaded", image.size)
}

fn fits(service: &UpdateCapability, image: &ImageOffer<'_>) -> Result<(), String> {
    match service.max_image_bytes {
        Some(limit) if image.size > limit => {
            Err(format!("the image has {} bytes and the BMC takes at most {limit}", image.size))
        }
        _ => Ok(()),
    }
}

/// The apply time that is sent: the caller's, else the profile's if the BMC lists it or lists none.
pub(crate) fn apply_time(
    service: &UpdateCapability,
    profile: &Profile,
    route: &UpdateRoute,
    wanted: Option<ApplyTime>,
) -> Option<ApplyTime> {
    if wanted.is_some() {
        return wanted;
    }
    let time = match profile.update_apply_time {
        ApplyTimeRule::Unset => return None,
        ApplyTimeRule::Immediate => ApplyTime::Immediate,
        ApplyTimeRule::OnReset => ApplyTime::OnReset,
        // Without the second request the update would never start.
        ApplyTimeRule::OnStartUpdateRequest if route.way() != UpdateWay::Multipart => return None,
        ApplyTimeRule::OnStartUpdateRequest => {
            return service.start.is_some().then_some(ApplyTime::OnStartUpdateRequest);
        }
    };
    let listed = match route {
        UpdateRoute::Simple { .. } => {
            service.simple.as_ref().map_or(&[][..], |simple| simple.apply_times.as_slice())
        }
        UpdateRoute::Push { body: PushBody::Raw, .. } => {
            service.push_apply_times.as_deref().unwrap_or_default()
        }
        UpdateRoute::Multipart { .. } | UpdateRoute::Push { .. } => &[],
    };
    (listed.is_empty() || listed.contains(&time)).then_some(time)
}

/// The targets that are sent; `None` leaves the member out.
pub(crate) fn targets(
    service: &UpdateCapability,
    profile: &Profile,
    route: &UpdateRoute,
    wanted: &[String],
) -> Option<Vec<String>> {
    let listed = match route {
        UpdateRoute::Simple { .. } => service.simple.as_ref().and_then(|simple| simple.takes_targets),
        UpdateRoute::Multipart { .. } | UpdateRoute::Push { .. } => None,
    };
    match profile.update_targets {
        Include::Always => Some(wanted.to_vec()),
        Include::WhenAsked if !wanted.is_empty() && listed != Some(false) => Some(wanted.to_vec()),
        Include::WhenAsked | Include::Never => None,
    }
}

/// Whether the progress is shown by the service.
pub(crate) fn state_at_service(profile: &Profile) -> bool {
    profile.update_state_at == UpdateStateAt::Service
}
