//! The gauges of the controller and its host at the time of a scrape.

use super::Api;
use super::disks::{Room, folder_of};
use super::error::ApiError;
use access::audit::AuditAction;
use store::{AuditFilter, Store};
use telemetry::HostGauges;

/// Reads and sets the gauges.
pub(super) async fn set(api: &Api) -> Result<(), ApiError> {
    let store = api.store();
    let status = api.backups.as_ref().map(|backups| backups.status());
    let keeps_backups = status.as_ref().is_some_and(|status| status.target.is_some());
    let own_backup = status.and_then(|status| {
        let last = status.last?;
        Some((last.made_at?.unix_seconds(), status.age_seconds?, last.bytes?))
    });
    // The entry of a backup that is damaged, or never got its name, is no backup.
    let backup = match keeps_backups {
        true => own_backup.map(|(made_at, ..)| made_at),
        false => newest_entry(store).await?,
    };
    let certificate = api.tls.as_ref().and_then(|certificates| certificates.state().until);
    // A disk that cannot be read has no free space for an alert.
    let disk = Room::of(&api.storage).unwrap_or_default();
    let database = Room::of(folder_of(&api.database)).unwrap_or_default();
    let disabled_webhooks =
        store.webhooks().await?.iter().map(|webhook| u64::from(webhook.disabled.is_some())).sum();
    let dead_letters = store.dead_letter_count().await?;
    let now = api.now();
    let unserved = api.engine.unserved_queues().await?;
    let unserved = unserved.into_iter().map(|(queue, since)| (queue, now.since(since).as_secs()));
    api.metrics.set_queues_without_worker(unserved);
    let needs = store.needs_operator(now).await?;
    api.metrics.set_host(&HostGauges {
        overdue_jobs: needs.overdue_jobs,
        held_jobs: needs.held_jobs,
        stopped_batches: needs.stopped_batches,
        active_runs: api.engine.active_runs(),
        free_bytes: disk.free,
        size_bytes: disk.size,
        database_free_bytes: database.free,
        backup,
        own_backup,
        certificate_end: certificate.map(|until| until.timestamp().as_second()),
        started: api.about.started_at.timestamp().as_second(),
        dead_letters,
        disabled_webhooks,
    });
    Ok(())
}

/// The time of the newest backup in the audit log, in seconds since 1970.
async fn newest_entry(store: &Store) -> Result<Option<i64>, ApiError> {
    let filter = AuditFilter {
        action: Some(AuditAction::DataBackup.as_str().to_owned()),
        limit: 1,
        ..AuditFilter::default()
    };
    Ok(store.audit(filter).await?.first().map(|entry| entry.time.timestamp().as_second()))
}
