//! `validate`: checks server, OS image and addresses, and imports the maintenance ISO. The recipe was validated when the job
//! was accepted.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tracing::Instrument as _;

use super::super::outputs::Validated;
use super::super::services::Services;
use super::super::waits;
use super::{class, input, names, recipe, step};
use bmc::{MediaBases, bmc_address, failure, unavailable, wait_for_bmc};
use engine::{StepContext, StepError, StepPolicy, StepReport};
use media::ImportError;
use model::{NewEvent, StepName};
use recipe::{Delivery, Recipe};

const STEP: &StepName = names::VALIDATE;
/// The time one call waits for an import before the step returns a wait.
const IMPORT_CALL_TIME: Duration = Duration::from_secs(20);
/// Time limit of an import.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(2 * 3600);

step!(
    /// Checks everything that can be checked before the machine is changed.
    Validate,
    import_policy,
    run
);

/// The policy of `validate`. Waiting for an import counts towards the budget, which must leave time for a retry.
fn import_policy(_services: &Services) -> StepPolicy {
    StepPolicy { budget: IMPORT_TIMEOUT * 2, ..StepPolicy::default() }
}

async fn run(services: &Arc<Services>, context: &StepContext) -> Result<StepReport, StepError> {
    let job_input = input(STEP, context)?;
    let server = services.bmc.server(STEP, &job_input.server).await?;
    let recipe = recipe(STEP, context)?;
    let bmc = bmc_address(&server).await.map_err(|why| {
        StepError::retry(failure(class::INPUT, STEP, why, "correct the server's BMC address"))
    })?;
    let addresses = &services.bmc.addresses;
    let unreachable =
        |why: String| wrong(why, "see CONTROLLER_PUBLIC_URL and MEDIA_BASE_URL in `shoal config reference`");
    let controller_url = addresses.controller_for(bmc).map_err(unreachable)?;
    let MediaBases { first: media_base, secure: secure_media_base } =
        addresses.media_for(&server, bmc).map_err(unreachable)?;
    let (pinned, os_image) = match recipe.delivery {
        Delivery::Network => (own_image(services, context, &recipe, &controller_url).await?, None),
        Delivery::Media => {
            let (digest, image) = medium_image(services, context, &recipe).await?;
            (Some(digest), Some(image))
        }
    };
    let own_registry = pinned.is_some();
    let image = match import(services, &job_input.maintenance_iso_url).await? {
        Some(image) => image,
        None => {
            let detail = "the maintenance ISO is being imported";
            return Ok(StepReport::wait(wait_for_bmc(&waits::MEDIA_IMPORT, IMPORT_TIMEOUT, detail)));
        }
    };
    let validated = Validated {
        controller_url,
        media_base,
        secure_media_base,
        boot_digest: image.digest.to_hex(),
        boot_len: image.len,
        own_registry,
        os_image,
    };
    let from = match (&validated.os_image, own_registry) {
        (Some(_), _) => "from the registry of this controller, on the medium",
        (None, true) => "from the registry of this controller",
        (None, false) => "is not in the registry of this controller, so the machine pulls it from that host",
    };
    let message = match &recipe.oci_url {
        Some(url) => {
            format!("recipe valid; OS image {url} {from}; maintenance ISO of {} bytes", image.len)
        }
        None => format!("recipe valid; maintenance ISO of {} bytes", image.len),
    };
    let event = NewEvent::info("validate.done", message)
        .with(json!({ "maintenance_sha256": validated.boot_digest, "os_image_digest": pinned }));
    let mut report = StepReport::done().with_output(json!(validated)).event(event);
    if let Some(pending) = &server.pending_cleanup {
        let message = "an earlier job could not clean up this server; this job does the pending cleanup";
        report = report.event(NewEvent::warn("server.cleanup-pending", message).with(json!(pending)));
    }
    Ok(report)
}

fn wrong(summary: impl Into<String>, next: impl Into<String>) -> StepError {
    StepError::fail(failure(class::INPUT, STEP, summary, next))
}

/// Pins the recipe's image until the end of the job if it comes from this controller's registry, and returns its digest. A missing
/// image fails the job.
async fn own_image(
    services: &Services,
    context: &StepContext,
    recipe: &Recipe,
    controller_url: &str,
) -> Result<Option<String>, StepError> {
    let Some(reference) = recipe.oci_url.as_deref().filter(|_| services.settings.registry) else {
        return Ok(None);
    };
    let Some(image) = ImageName::parse(reference) else {
        return Err(wrong(
            format!("oci_url {reference} has no host or no repository"),
            "write it as HOST[:PORT]/REPOSITORY:TAG",
        ));
    };
    let held = services
        .images
        .hold(&image.repository, &image.reference, &context.snapshot.run.id.to_string())
        .await
        .map_err(|why| unavailable(STEP, &why))?;
    let ours = controller_url.split_once("://").is_some_and(|(_, host)| host == image.host);
    if ours && held.is_none() {
        return Err(wrong(
            format!("the registry of this controller does not hold {}:{}", image.repository, image.reference),
            format!("push it: skopeo copy … docker://{reference}"),
        ));
    }
    Ok(held)
}

/// Returns the OS image that the medium holds, with its digest, and pins it until the end of the job.
async fn medium_image(
    services: &Services,
    context: &StepContext,
    recipe: &Recipe,
) -> Result<(String, media::OsImage), StepError> {
    let found = services.medium_image(recipe).await.map_err(|why| unavailable(STEP, &why))?;
    let (name, image) = found
        .map_err(|why| wrong(why, "push the image to the registry of this controller, then retry the job"))?;
    // By digest: a tag may have moved since the look.
    let owner = context.snapshot.run.id.to_string();
    let held = services.images.hold(&name.repository, &name.reference, &owner).await;
    let Some(digest) = held.map_err(|why| unavailable(STEP, &why))? else {
        return Err(wrong(
            format!(
                "{}@{} was deleted from the registry of this controller",
                name.repository, name.reference
            ),
            "push the image again, then retry the job",
        ));
    };
    Ok((digest, image))
}

/// A parsed image reference `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`.
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

/// Imports the maintenance ISO; returns `None` while the import is running.
async fn import(services: &Arc<Services>, location: &str) -> Result<Option<media::ImportedImage>, StepError> {
    let library = services.library.clone();
    let location = location.to_owned();
    // A separate task: the import continues when this call times out, and the next call joins it.
    let import = async move { library.import(&location, &|_, _| {}).await };
    let import = tokio::spawn(import.in_current_span());
    match tokio::time::timeout(IMPORT_CALL_TIME, import).await {
        Err(_elapsed) => Ok(None),
        Ok(Ok(Ok(image))) => Ok(Some(image)),
        // Other imports go first, or the program that imported it ended: the next call begins it anew.
        Ok(Ok(Err(ImportError::Busy { .. } | ImportError::Interrupted))) => Ok(None),
        Ok(Ok(Err(why))) => Err(import_failed(&why)),
        Ok(Err(_panic)) => Err(StepError::fail(failure(
            model::class::INTERNAL,
            STEP,
            "the import of the maintenance ISO panicked",
            "find the panic in the log and report it as a bug",
        ))),
    }
}

fn import_failed(why: &ImportError) -> StepError {
    let failure = failure(
        class::MEDIA,
        STEP,
        model::error_chain(why).to_string(),
        match why {
            ImportError::Store { .. } => {
                "make room on the disk of the image library, or mend it; then retry the job"
            }
            _ => "check MAINTENANCE_ISO_URL (or the job's maintenance_iso_url)",
        },
    );
    // A network and a disk recover; a location that is wrong does not.
    match why {
        ImportError::Fetch { .. } | ImportError::Store { .. } | ImportError::ReadFile { .. } => {
            StepError::retry(failure)
        }
        _ => StepError::fail(failure),
    }
}

#[cfg(test)]
mod tests {
    use engine::StepOutcome;

    use super::*;

    #[test]
    fn an_import_that_a_disk_or_a_network_failed_is_tried_again_with_its_own_advice() {
        let failed = || std::sync::Arc::new(std::io::Error::from(std::io::ErrorKind::StorageFull));
        let full = import_failed(&ImportError::Store { operation: "write", source: failed() });
        let StepOutcome::Retry(full) = StepReport::from(full).outcome else {
            panic!("a full disk can be emptied")
        };
        assert!(full.next_action.contains("make room"), "{full:?}");
        let wrong = import_failed(&ImportError::NotAnImage);
        let StepOutcome::Fail(wrong) = StepReport::from(wrong).outcome else { panic!("it stays wrong") };
        assert!(wrong.next_action.contains("MAINTENANCE_ISO_URL"), "{wrong:?}");
    }

    #[test]
    fn image_names_are_parsed_into_host_repository_and_reference() {
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
