//! How an image reaches the BMC: what the BMC offers, what the media server offers, and the URL where the BMC reads it.
//!
//! ```text
//!   the BMC has SimpleUpdate ──► addresses of the media server, as for media: the first one, then the one by HTTPS
//!                                          │
//!   profile, service, size ────► choose_way ──► upload: nothing is issued
//!                                          └──► URL: the address whose scheme was chosen ──► grant
//! ```
//!
//! Invariant: the address is one that media of this server use too, so that one setting serves both.

use redfish::profile::UpdateWay;
use redfish::update::Choice;
use redfish::{ImageOffer, UpdateCapability, choose_way};

use super::super::UpkeepServices;
use super::served::Fetch;
use super::urls::{IssuedUrl, UrlOrder};
use bmc::probe::BmcProblem;
use bmc::{ConnectedBmc, class, failure};
use engine::{StepContext, StepError};
use firmware::VerifiedFirmware;
use model::StepName;

/// A chosen way, and the address of the media server where the BMC reads the image.
pub(super) struct Way {
    pub(super) choice: Choice,
    pub(super) base: Option<String>,
}

/// Chooses how an image of `size` bytes reaches the BMC.
pub(super) async fn choose(
    step: &StepName,
    services: &UpkeepServices,
    connected: &ConnectedBmc,
    service: &UpdateCapability,
    size: u64,
) -> Result<Way, StepError> {
    let profile = connected.bmc.profile();
    let reads = service.simple.is_some() && profile.update_ways.contains(&UpdateWay::Simple);
    let bases = match (reads, services.urls.unserved()) {
        (true, Some(why)) => Err(BmcProblem {
            code: "unserved".to_owned(),
            sentence: why.to_owned(),
            next_action: format!(
                "remove the label `queue` of the server, then order the installation again: shoal server update {} --remove-label queue",
                connected.server.serial
            ),
        }),
        (true, None) => services.bmc.media_bases(&connected.server).await.map(|bases| {
            let all = std::iter::once(bases.first).chain(bases.secure);
            all.collect::<Vec<String>>()
        }),
        (false, _) => Ok(Vec::new()),
    };
    let (bases, problem) = match bases {
        Ok(bases) => (bases, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let schemes: Vec<&str> = bases.iter().map(|base| scheme(base)).collect();
    let offer = ImageOffer { size, schemes: &schemes };
    let choice = choose_way(service, &profile, &offer)
        .map_err(|why| StepError::fail(no_way(step, &why.to_string(), problem, !schemes.is_empty())))?;
    let base = match &choice.route {
        redfish::update::UpdateRoute::Simple { protocol, .. } => {
            bases.iter().find(|base| scheme(base).eq_ignore_ascii_case(protocol)).cloned()
        }
        _ => None,
    };
    Ok(Way { choice, base })
}

/// The failure when no way fits, with the reason why the image is not served.
fn no_way(step: &StepName, why: &str, problem: Option<BmcProblem>, served: bool) -> model::Failure {
    let (summary, next) = match problem {
        Some(problem) => (format!("{why} ({})", problem.sentence), problem.next_action),
        None if served => (
            why.to_owned(),
            "serve media by a scheme that the BMC reads (MEDIA_HTTP_ADDR, MEDIA_HTTPS_ADDR, MEDIA_BASE_URL), or install this \
             firmware with the tool of its vendor"
                .to_owned(),
        ),
        None => (
            why.to_owned(),
            "install this firmware in the web interface of the BMC, or with the tool of its vendor".to_owned(),
        ),
    };
    failure(class::UNSUPPORTED, step, summary, next)
}

fn scheme(base: &str) -> &str {
    base.split_once("://").map_or("http", |(scheme, _)| scheme)
}

/// Issues the URL of an image, if the BMC reads it from one.
pub(super) fn issue(
    step: &StepName,
    services: &UpkeepServices,
    context: &StepContext,
    base: Option<String>,
    file: &VerifiedFirmware,
    attempt: u32,
) -> Result<Option<(IssuedUrl, Fetch)>, StepError> {
    let Some(base) = base else { return Ok(None) };
    let now = context.now();
    let order = UrlOrder {
        run: context.snapshot.run.id,
        component: &context.record.key,
        attempt,
        base: &base,
        file,
        now,
    };
    let url = services.urls.issue(&order).map_err(|why| {
        let next = "set MEDIA_BASE_URL, or media_base_url of the server, to a short scheme://address[:port]";
        StepError::fail(failure(
            class::MEDIA,
            step,
            format!("there is no usable URL of the image: {why}"),
            next,
        ))
    })?;
    let grant = url.grant.token_hash.clone();
    let fetch = Fetch { grant, issued_at: now, size: file.file().size, base };
    Ok(Some((url, fetch)))
}
