//! The list of media grants of all jobs.

use super::*;
use crate::{CausedByReads, MediaFilter, MediaPage};
use model::{Artifact, Grant, GrantReads};

/// A job with a boot image and a task image.
async fn job_with_media(kit: &Kit, name: &str, second: u64) -> RunId {
    kit.server(name).await;
    let id = kit.create_run(new_job(name, at(second), None, name)).await;
    let run = kit.claim_one("w", at(second)).await.run;
    let grant = |artifact: Artifact| Grant {
        token_hash: format!("{name}-{}", artifact.as_str()),
        run: id,
        artifact,
        inputs: None,
        sha256: "d".repeat(64),
        size: 7,
        created_at: at(second),
    };
    let mut change = RunChange::of(run.clone());
    change.effects = [Artifact::Boot, Artifact::Task]
        .map(|artifact| Effect::GrantIssued(Box::new(grant(artifact))))
        .into();
    kit.commit(change, &run, at(second)).await;
    id
}

async fn list(kit: &Kit, filter: MediaFilter) -> MediaPage {
    kit.store.media(MediaFilter { limit: 10, ..filter }).await.unwrap()
}

fn names(page: &MediaPage) -> Vec<(String, &'static str)> {
    let server = |row: &crate::MediaRow| row.stored.server.as_ref().unwrap().to_string();
    page.media.iter().map(|row| (server(row), row.stored.grant.artifact.as_str())).collect()
}

#[tokio::test]
async fn the_media_of_all_jobs_are_listed_the_newest_first_in_pages() {
    let kit = Kit::new();
    job_with_media(&kit, "A", 1).await;
    job_with_media(&kit, "B", 2).await;
    let mut filter = MediaFilter { limit: 3, ..MediaFilter::default() };
    let first = kit.store.media(filter.clone()).await.unwrap();
    assert_eq!(names(&first), [("B".to_owned(), "task"), ("B".to_owned(), "boot"), ("A".to_owned(), "task")]);
    filter.after = first.next;
    assert!(filter.after.is_some());
    let last = kit.store.media(filter).await.unwrap();
    assert_eq!((names(&last), last.next), (vec![("A".to_owned(), "boot")], None));
}

#[tokio::test]
async fn media_say_whether_their_job_is_held() {
    let kit = Kit::new();
    job_with_media(&kit, "A", 1).await;
    let held = job_with_media(&kit, "B", 2).await;
    let run = kit.run(held).await;
    let hold = model::Hold {
        class: "operator".into(),
        since: at(3),
        remind_at: at(4),
        verbs: Vec::new(),
        detail: String::new(),
    };
    let on_hold = Run { phase: Phase::Held, next_run_at: None, hold: Some(hold), lease: None, ..run.clone() };
    kit.commit(RunChange::of(on_hold), &run, at(3)).await;
    let page = list(&kit, MediaFilter::default()).await;
    assert_eq!(page.media.iter().map(|row| row.held).collect::<Vec<_>>(), [true, true, false, false]);
}

#[tokio::test]
async fn media_are_selected_by_server_image_and_whether_they_are_served() {
    let kit = Kit::new();
    let ended = job_with_media(&kit, "A", 1).await;
    job_with_media(&kit, "B", 2).await;
    let now = Some(at(5));
    let reads = GrantReads { first_read_at: now, boot_read_at: None, last_read_at: now, bytes: 9 };
    kit.store.record_reads("B-boot", reads, |_| CausedByReads::default(), at(5)).await.unwrap();
    kit.end(ended, Outcome::Failed, at(20)).await;

    let open = list(&kit, MediaFilter { open: Some(true), ..MediaFilter::default() }).await;
    assert_eq!(names(&open), [("B".to_owned(), "task"), ("B".to_owned(), "boot")]);
    assert_eq!((open.media[1].stored.reads, open.media[1].workflow.as_str()), (reads, PROVISION));
    let closed = list(&kit, MediaFilter { open: Some(false), ..MediaFilter::default() }).await;
    assert_eq!(names(&closed), [("A".to_owned(), "task"), ("A".to_owned(), "boot")]);
    assert!(closed.media.iter().all(|row| row.stored.ended_at == Some(at(20))));
    let boot =
        MediaFilter { artifact: Some(Artifact::Boot), server: Some(serial("A")), ..MediaFilter::default() };
    assert_eq!(names(&list(&kit, boot).await), [("A".to_owned(), "boot")]);
}

#[tokio::test]
async fn media_of_servers_without_the_labels_of_a_token_are_not_listed() {
    let kit = Kit::new();
    job_with_media(&kit, "A", 1).await;
    let labelled = MediaFilter { server_labels: labels(&[("site", "a")]), ..MediaFilter::default() };
    assert_eq!(list(&kit, labelled.clone()).await.media, []);
    kit.outside()
        .execute("INSERT INTO server_labels (key, value, serial) VALUES ('site', 'a', 'A')", [])
        .unwrap();
    assert_eq!(list(&kit, labelled).await.media.len(), 2);
}

/// A regression guard: the images that are served are few among all that were.
#[test]
fn a_list_of_served_images_reads_their_index_and_sorts_nothing() {
    let kit = Kit::new();
    let outside = kit.outside();
    for (open, artifact) in [(Some(true), None), (Some(true), Some(Artifact::Boot))] {
        let (sql, values) = MediaFilter { open, artifact, limit: 10, ..MediaFilter::default() }.page();
        let mut explained = outside.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let rows = explained
            .query_map(rusqlite::params_from_iter(values), |row| row.get::<_, String>("detail"))
            .unwrap();
        let plan: Vec<String> = rows.map(Result::unwrap).collect();
        assert!(plan[0].contains("idx_media_grants_served"), "{plan:#?}");
        assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{plan:#?}");
    }
}
