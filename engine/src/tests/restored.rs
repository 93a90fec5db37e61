//! Restored data in a running engine: no step runs, verbs are refused, a report of the machine is kept.

use std::time::Duration;

use super::kit::{Act, Kit, new_run};
use crate::{VerbError, VerbRefused};
use model::{NewEvent, NewRun, Outcome, Phase, RunId, Serial, Server, UnfinishedRuns, Verb};

/// A run that waits for a report of its server when the data is restored.
async fn restored() -> (Kit, RunId, Serial) {
    let kit = Kit::new();
    let server = Server::unknown("S-1".parse().unwrap(), kit.now());
    let serial = server.serial.clone();
    kit.engine.store().create_server(server, NewEvent::info("server.created", "x")).await.unwrap();
    kit.script("w", [Act::Await("report")]);
    let run = NewRun { server: Some(serial.clone()), ..new_run("drill", &["w", "next"], kit.now()) };
    let run = kit.start_run(run).await;
    kit.run_until_idle().await;
    kit.clock.advance(Duration::from_secs(48 * 3600));
    kit.engine.store().set_origin("m".to_owned(), Some("a copy".to_owned()), kit.now()).await.unwrap();
    (kit, run, serial)
}

#[tokio::test]
async fn no_step_runs_on_restored_data_and_every_verb_is_refused_with_the_release() {
    let (kit, run, _) = restored().await;
    kit.calls();
    for verb in [Verb::Cancel, Verb::Hold, Verb::Resume] {
        let refused = kit.engine.verb(run, verb, "ann", "").await;
        let Err(VerbError::Verb(why @ VerbRefused::Restored { .. })) = refused else { panic!("{refused:?}") };
        assert!(why.to_string().contains("shoal server release S-1"), "{why}");
    }
    assert_eq!(kit.engine.cancel_all(&[run], "ann", "").await.unwrap(), 0);
    assert_eq!(kit.run_until_idle().await, 0);
    assert_eq!(kit.calls(), "");
    assert_eq!(kit.run(run).await.phase, Phase::Waiting);
}

#[tokio::test]
async fn a_report_on_restored_data_is_kept_and_acted_on_after_the_release() {
    let (kit, run, serial) = restored().await;
    kit.calls();
    kit.report(run).await;
    assert_eq!(kit.run_until_idle().await, 0);
    assert_eq!(kit.calls(), "");
    kit.engine.release_server(&serial, Some(UnfinishedRuns::Continue), "ann", kit.now()).await.unwrap();
    kit.run_until_idle().await;
    assert_eq!(
        kit.ended(run).await,
        Some(Outcome::Succeeded),
        "the deadline did not pass while the data was old"
    );
}

#[tokio::test]
async fn a_run_that_a_release_ends_executes_no_step_and_no_cleanup() {
    let (kit, run, serial) = restored().await;
    kit.calls();
    kit.engine.release_server(&serial, Some(UnfinishedRuns::End), "ann", kit.now()).await.unwrap();
    kit.run_until_idle().await;
    assert_eq!((kit.ended(run).await, kit.calls()), (Some(Outcome::Cancelled), String::new()));
    assert_eq!(kit.class(run).await, "restored");
}
