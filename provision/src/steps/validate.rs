//! `validate`: server known, recipe still valid, image there, maintenance ISO imported, addresses that the BMC can reach.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::super::classify::{failure, unavailable};
use super::super::outputs::Validated;
use super::super::services::Site;
use super::super::waits;
use super::{bmc_address, class, input, server, settled, settling, step};
use engine::model::NewEvent;
use engine::{StepContext, StepPolicy, StepReport, Verdict};
use media::ImportError;
use recipe::Recipe;

const STEP: &str = "validate";
/// How long one call waits for an import before it parks the job.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long an import may take.
const IMPORT_WITHIN: Duration = Duration::from_secs(2 * 3600);

step!(
    /// Checks all that can be checked before a machine is touched.
    Validate,
    import_policy,
    run
);

/// Waiting for an import counts as time spent; it must leave room for a retry.
fn import_policy(_site: &Site) -> StepPolicy {
    StepPolicy { budget: IMPORT_WITHIN * 2, ..StepPolicy::default() }
}

async fn run(site: &Arc<Site>, context: &StepContext) -> Result<StepReport, StepReport> {
    let asked = input(STEP, context)?;
    let server = server(STEP, site, &asked.server).await?;
    let recipe = site.schemas.validate(&asked.recipe).map_err(|errors| {
        let first =
            errors.first().map_or(String::new(), |error| format!("{}: {}", error.path, error.message));
        wrong(format!("the recipe no longer holds: {first}"), "correct the recipe and create the job again")
    })?;
    let bmc = bmc_address(&server).await.map_err(|why| {
        StepReport::new(Verdict::Retry(failure(class::INPUT, STEP, why, "correct the server's BMC address")))
    })?;
    let addresses = &site.addresses;
    let unreachable =
        |why: String| wrong(why, "see CONTROLLER_PUBLIC_URL and MEDIA_BASE_URL in `shoal config reference`");
    let controller_url = addresses.controller_for(bmc).map_err(unreachable)?;
    let media_base = addresses.media_for(&server, bmc).map_err(unreachable)?;
    let own_registry = own_registry(site, context, &recipe, &controller_url).await?;
    let image = match import(site, &asked.maintenance_iso_url).await? {
        Some(image) => image,
        None => {
            return Ok(settling(
                &waits::MEDIA_IMPORT,
                IMPORT_WITHIN,
                "the maintenance ISO is being imported",
            ));
        }
    };
    let validated = Validated {
        controller_url,
        media_base,
        boot_digest: image.digest.to_hex(),
        boot_len: image.len,
        own_registry,
    };
    let from = if own_registry { "our registry" } else { "elsewhere" };
    let message = match &recipe.oci_url {
        Some(url) => {
            format!("recipe valid; OS image {url} from {from}; maintenance ISO of {} bytes", image.len)
        }
        None => format!("recipe valid; maintenance ISO of {} bytes", image.len),
    };
    let event =
        NewEvent::info("validate.done", message).with(json!({ "maintenance_sha256": validated.boot_digest }));
    let mut report = StepReport::done().leaving(json!(validated)).event(event);
    if let Some(debt) = &server.debt {
        let message = "an earlier job could not clean up this server; this job brings it into a known state";
        report = report.event(NewEvent::warn("server.cleanup-pending", message).with(debt.clone()));
    }
    Ok(report)
}

fn wrong(summary: impl Into<String>, next: impl Into<String>) -> StepReport {
    StepReport::fail(failure(class::INPUT, STEP, summary, next))
}

/// Whether the recipe's image comes from our registry; an image that should be there and is not ends the job here.
/// One that is there stays there until the job is over.
async fn own_registry(
    site: &Site,
    context: &StepContext,
    recipe: &Recipe,
    controller_url: &str,
) -> Result<bool, StepReport> {
    let Some(reference) = recipe.oci_url.as_deref().filter(|_| site.settings.registry) else {
        return Ok(false);
    };
    let Some(image) = ImageName::parse(reference) else {
        return Err(wrong(
            format!("oci_url {reference} has no host, or no repository behind it"),
            "write it as HOST[:PORT]/REPOSITORY:TAG",
        ));
    };
    let held = site
        .images
        .hold(&image.repository, &image.reference, &context.snapshot.run.id.to_string())
        .await
        .map_err(|why| unavailable(STEP, &why))?;
    let ours = controller_url.split_once("://").is_some_and(|(_, host)| host == image.host);
    if ours && !held {
        return Err(wrong(
            format!("our registry does not hold {}:{}", image.repository, image.reference),
            format!("push it: skopeo copy … docker://{reference}"),
        ));
    }
    Ok(held)
}

/// `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]` taken apart.
pub(crate) struct ImageName {
    pub(crate) host: String,
    pub(crate) repository: String,
    pub(crate) reference: String,
}

impl ImageName {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, rest) = text.split_once('/')?;
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (rest, None),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        (!host.is_empty() && !repository.is_empty()).then(|| Self {
            host: host.to_owned(),
            repository: repository.to_owned(),
            reference: digest.or(tag).unwrap_or("latest").to_owned(),
        })
    }
}

/// Imports the maintenance ISO; `None` while it is still under way.
async fn import(site: &Arc<Site>, location: &str) -> Result<Option<media::ImportedImage>, StepReport> {
    let library = site.library.clone();
    let location = location.to_owned();
    // A task of its own: the import goes on when this call gives up waiting, and the next call joins it.
    let import = tokio::spawn(async move { library.import(&location, &|_, _| {}).await });
    match tokio::time::timeout(PATIENCE, import).await {
        Err(_elapsed) => Ok(None),
        Ok(Ok(Ok(image))) => Ok(Some(image)),
        Ok(Ok(Err(why))) => Err(import_failed(&why)),
        Ok(Err(_panic)) => Err(StepReport::fail(failure(
            engine::class::INTERNAL,
            STEP,
            "the import of the maintenance ISO broke off",
            "look for the panic in the log and report it",
        ))),
    }
}

fn import_failed(why: &ImportError) -> StepReport {
    let failure = failure(
        class::MEDIA,
        STEP,
        engine::model::error_chain(why).to_string(),
        "check MAINTENANCE_ISO_URL (or the job's maintenance_iso_url)",
    );
    match why {
        ImportError::Fetch { .. } => StepReport::new(Verdict::Retry(failure)),
        _ => StepReport::fail(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_are_taken_apart_as_clients_do() {
        let image = ImageName::parse("controller.internal:8080/os-images/ubuntu-rootfs:22.04").unwrap();
        assert_eq!(
            (image.host.as_str(), image.repository.as_str(), image.reference.as_str()),
            ("controller.internal:8080", "os-images/ubuntu-rootfs", "22.04")
        );
        assert_eq!(ImageName::parse("h/a").unwrap().reference, "latest");
        assert_eq!(ImageName::parse("h/a:t@sha256:00").unwrap().reference, "sha256:00");
        assert!(ImageName::parse("no-host").is_none());
    }
}
