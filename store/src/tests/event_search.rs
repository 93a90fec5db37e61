//! The search in the event log: what it finds, its pages, and the indexes it reads.

use super::{Kit, at, new_run, serial};
use crate::event_search::{Order, PART, sql};
use crate::{ActorSearch, EventSearch, EventsFound, LogPlace};
use model::{EventLevel, NewEvent, NewRun, RunId};

/// The messages of a page.
fn messages(found: &EventsFound) -> Vec<&str> {
    found.events.iter().map(|event| event.message.as_str()).collect()
}

/// The log "x made a b c d e": of XF-1 and a run of it, of XF-2, and of no server.
async fn kit() -> (Kit, RunId) {
    let kit = Kit::new();
    kit.server("XF-1").await;
    let id = kit.create_run(NewRun { server: Some(serial("XF-1")), ..new_run(at(0)) }).await;
    let log = [
        (Some(id), Some("XF-1"), NewEvent::info("step.started", "a")),
        (None, Some("XF-1"), NewEvent::warn("server.updated", "b").by("ann")),
        (None, Some("XF-2"), NewEvent::error("server.updated", "c")),
        (None, None, NewEvent::warn("registry.denied", "d").by("registry")),
        (Some(id), Some("XF-1"), NewEvent::error("step.failed", "e")),
    ];
    for (index, (run, server, event)) in (1..).zip(log) {
        kit.store.append(run, server.map(serial), vec![event], at(index * 10)).await.unwrap();
    }
    (kit, id)
}

fn of_server(name: &str) -> EventSearch {
    EventSearch { server: Some(serial(name)), ..EventSearch::default() }
}

fn of_types(types: &[&str]) -> EventSearch {
    EventSearch { types: types.iter().map(|glob| glob.parse().unwrap()).collect(), ..EventSearch::default() }
}

fn by(actor: &str) -> EventSearch {
    EventSearch { actor: Some(ActorSearch::Named(actor.to_owned())), ..EventSearch::default() }
}

fn from_level(level: EventLevel) -> EventSearch {
    EventSearch { level: Some(level), ..EventSearch::default() }
}

#[tokio::test]
async fn a_search_for_people_leaves_out_every_part_of_the_program() {
    let (kit, _) = kit().await;
    for actor in model::PROGRAM_ACTORS.into_iter().chain(["worker/w1", "ann", "local", "anonymous"]) {
        let event = NewEvent::info("controller.drained", actor).by(actor);
        kit.store.append(None, None, vec![event], at(60)).await.unwrap();
    }
    let people = EventSearch { actor: Some(ActorSearch::People), ..of_types(&["controller.*"]) };
    let found = kit.store.search_events(people, LogPlace::Newest, 100).await.unwrap();
    assert_eq!(messages(&found), ["ann", "local", "anonymous"]);
}

#[tokio::test]
async fn events_are_found_by_run_server_type_level_and_time() {
    let (kit, id) = kit().await;
    let all = EventSearch::default;
    for (search, expected) in [
        (all(), vec!["x", "made", "a", "b", "c", "d", "e"]),
        (EventSearch { run: Some(id), ..all() }, vec!["made", "a", "e"]),
        (of_server("XF-1"), vec!["x", "made", "a", "b", "e"]),
        (of_server("XF-2"), vec!["c"]),
        (of_server("XF-3"), vec![]),
        (EventSearch { run: Some(id), ..of_server("XF-2") }, vec![]),
        (of_types(&["server.up*"]), vec!["b", "c"]),
        (of_types(&["step.f?iled", "registry.denied"]), vec!["d", "e"]),
        (of_types(&["server"]), vec![]),
        (from_level(EventLevel::Warn), vec!["b", "c", "d", "e"]),
        (EventSearch { level: Some(EventLevel::Error), ..of_types(&["s*"]) }, vec!["c", "e"]),
        (EventSearch { level: Some(EventLevel::Warn), ..of_server("XF-1") }, vec!["b", "e"]),
        (EventSearch { since: Some(at(20)), until: Some(at(40)), ..all() }, vec!["b", "c"]),
        (EventSearch { actor: Some(ActorSearch::People), ..of_types(&["server.*"]) }, vec!["b"]),
        (by("registry"), vec!["d"]),
        (EventSearch { run: Some(id), ..by("ann") }, vec![]),
        (EventSearch { types: of_types(&["s*"]).types, ..by("ann") }, vec!["b"]),
    ] {
        for place in [LogPlace::After(0), LogPlace::Newest] {
            let found = kit.store.search_events(search.clone(), place, 100).await.unwrap();
            assert_eq!(messages(&found), expected, "{search:?} {place:?}");
            assert_eq!((found.next, found.previous), (7, None), "{search:?} {place:?}");
        }
    }
}

#[tokio::test]
async fn pages_back_and_pages_on_have_every_event_once() {
    let (kit, _) = kit().await;
    for search in [EventSearch::default(), of_server("XF-1"), from_level(EventLevel::Error)] {
        let whole = kit.store.search_events(search.clone(), LogPlace::Newest, 100).await.unwrap().events;
        for limit in 1..4 {
            let (mut back, mut place) = (Vec::new(), LogPlace::Newest);
            loop {
                let mut found = kit.store.search_events(search.clone(), place, limit).await.unwrap();
                found.events.append(&mut back);
                back = found.events;
                let Some(previous) = found.previous else { break };
                assert!(!back.is_empty() && back[0].seq >= previous, "{search:?} {limit}");
                place = LogPlace::Before(previous);
            }
            assert_eq!(back, whole, "{search:?} {limit}");
            let newest = kit.store.search_events(search.clone(), LogPlace::Newest, whole.len() as u32).await;
            assert_eq!(
                newest.unwrap().previous,
                None,
                "a full page that is the last one leads nowhere: {search:?}"
            );
            let (mut on, mut after) = (Vec::new(), 0);
            loop {
                let found =
                    kit.store.search_events(search.clone(), LogPlace::After(after), limit).await.unwrap();
                on.extend(found.events);
                if found.next == after {
                    break;
                }
                after = found.next;
            }
            assert_eq!(on, whole, "{search:?} {limit}");
        }
    }
}

/// Retention leaves gaps in the log: the search goes on at the next event before one, whatever its length.
#[tokio::test]
async fn a_search_crosses_a_gap_in_the_log_and_ends_at_the_first_event_that_is_too_old() {
    let (kit, _) = kit().await;
    kit.outside().execute("UPDATE sqlite_sequence SET seq = 1000000 WHERE name = 'events'", []).unwrap();
    kit.store.record_event(NewEvent::info("controller.started", "f"), at(100)).await.unwrap();
    let page = async |search: EventSearch, place| kit.store.search_events(search, place, 10).await.unwrap();
    let found = page(EventSearch::default(), LogPlace::Newest).await;
    assert_eq!((found.events.len(), found.previous), (8, None), "every event is wanted: no part");
    let controller = || of_types(&["controller.*", "step.*"]);
    let found = page(controller(), LogPlace::Newest).await;
    assert_eq!((messages(&found), found.previous), (vec!["f"], Some(8)));
    let found = page(controller(), LogPlace::Before(8)).await;
    assert_eq!((messages(&found), found.previous, found.next), (vec!["a", "e"], None, 7));
    let recent = EventSearch { since: Some(at(60)), ..EventSearch::default() };
    assert_eq!(page(recent, LogPlace::Newest).await.previous, None, "the event before the gap is too old");
    let found = page(controller(), LogPlace::After(0)).await;
    assert_eq!((messages(&found), found.next), (vec!["a", "e"], PART));
    let found = page(controller(), LogPlace::After(found.next)).await;
    assert_eq!((messages(&found), found.next), (vec!["f"], 1_000_001), "a part begins with an event");
    let found = page(EventSearch::default(), LogPlace::After(7)).await;
    assert_eq!((messages(&found), found.next), (vec!["f"], 1_000_001));
    for (place, next) in [(LogPlace::After(i64::MAX), i64::MAX), (LogPlace::Before(0), 0)] {
        let found = page(EventSearch::default(), place).await;
        assert_eq!((found.events.len(), found.next, found.previous), (0, next, None), "{place:?}");
    }
}

/// A regression guard: the log has a row for every step of every job, and an operator waits for the page.
#[tokio::test]
async fn the_events_of_a_run_and_of_a_server_are_read_by_an_index() {
    let (kit, id) = kit().await;
    let outside = kit.outside();
    for (search, indexes) in [
        (EventSearch { run: Some(id), ..EventSearch::default() }, &["idx_events_run"][..]),
        (of_server("XF-1"), &["idx_events_run", "idx_events_server"]),
        (EventSearch::default(), &["INTEGER PRIMARY KEY"]),
    ] {
        for order in [Order::Oldest, Order::Newest] {
            let statement = sql(&search, order);
            let mut explained = outside.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
            let rows = explained.query_map([rusqlite::types::Null; 7], |row| row.get::<_, String>("detail"));
            let plan = rows.unwrap().map(Result::unwrap).collect::<Vec<_>>().join("\n");
            for index in indexes {
                assert!(plan.contains(index), "{index}:\n{plan}");
            }
            assert!(!plan.contains("SCAN events"), "{plan}");
        }
    }
}
