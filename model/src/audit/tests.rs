//! The chain: every single change, removal, insertion and exchange is found, and a cut end with a known head.

use proptest::prelude::*;

use super::*;
use crate::Time;

fn entry(number: u64, text: &str) -> NewAuditEntry {
    let time: Time = "2026-11-23T08:00:00Z".parse().unwrap();
    let time = time.plus(std::time::Duration::from_secs(number));
    NewAuditEntry::new(time, AuditActor::new(ActorKind::User, text).with_id("7"), "user.create")
        .from_source("192.0.2.1")
        .on("user", text)
        .of_request("r-1")
}

fn log(texts: &[String]) -> Vec<AuditEntry> {
    let mut head = AuditHead::genesis();
    let chained = texts.iter().enumerate().map(|(number, text)| {
        let entry = entry(number as u64, text).after(head);
        head = entry.head();
        entry
    });
    chained.collect()
}

fn check(entries: &[AuditEntry], known: Option<KnownHead>) -> Result<ChainSummary, ChainFault> {
    let mut check = ChainCheck::new(AuditHead::genesis(), known);
    entries.iter().try_for_each(|entry| check.next(entry))?;
    check.finish()
}

/// Exports a log, lets `change` edit its lines, and reads it back.
fn read_back(lines: &[String]) -> Result<Vec<AuditEntry>, String> {
    lines.iter().map(|line| AuditEntry::of_line(line)).collect()
}

#[test]
fn an_entry_has_one_canonical_form() {
    let first = entry(0, "a \"quoted\" n\u{e4}me").after(AuditHead::genesis());
    assert_eq!(
        first.to_line(),
        "{\"seq\":1,\"time\":\"2026-11-23T08:00:00.000Z\",\"actor_kind\":\"user\",\"actor\":\"a \\\"quoted\\\" n\u{e4}me\",\
         \"actor_id\":\"7\",\"source\":\"192.0.2.1\",\"action\":\"user.create\",\"target\":\"user/a \\\"quoted\\\" n\u{e4}me\",\
         \"result\":\"ok\",\"request_id\":\"r-1\",\"count\":1,\
         \"previous\":\"b415c08b8a76dea37cc76a5509bfccefea3dbb8bc086cd2c2a8895b6754ad3be\",\
         \"hash\":\"9271fade9f0b6287d7af668581b820b939b54e5f6fbbe53e69909159dd8f562c\"}"
    );
}

#[test]
fn a_line_with_another_spelling_of_an_entry_is_refused() {
    let line = entry(0, "ann").after(AuditHead::genesis()).to_line();
    assert_eq!(AuditEntry::of_line(&line).unwrap().to_line(), line);
    for other in [
        line.replace(",\"count\"", ", \"count\""),
        line.replace("\"ann\"", "\"\\u0061nn\""),
        line.replace("\"count\":1", "\"count\":1,\"more\":1"),
        line.replace("\"count\":1,", ""),
        line.replace(".000Z", "Z"),
        format!("{line} "),
    ] {
        assert_ne!(other, line);
        assert!(AuditEntry::of_line(&other).is_err(), "{other}");
    }
}

#[test]
fn texts_of_an_entry_are_bounded_and_without_control_characters() {
    let long = entry(0, &format!("a\nb\u{7f}{}", "x".repeat(9000)));
    assert!(long.actor.name.starts_with("abx"));
    assert_eq!(long.actor.name.chars().count(), MAX_AUDIT_TEXT);
    assert_eq!(long.target.chars().count(), MAX_AUDIT_TEXT);
}

#[test]
fn a_cut_end_is_found_with_a_head_that_was_kept() {
    let log = log(&["a", "b", "c"].map(str::to_owned));
    let head = log[2].head();
    assert!(check(&log[..2], None).is_ok(), "without a head a cut end is a shorter log");
    assert_eq!(check(&log[..2], Some(head.into())), Err(ChainFault::Truncated { seq: 3, last: 2 }));
    let hash_only: KnownHead = head.hash.to_string().parse().unwrap();
    assert_eq!(check(&log[..2], Some(hash_only)), Err(ChainFault::NoSuchHash));
    assert!(check(&log, Some(hash_only)).is_ok());
    assert!(check(&log, Some(log[0].head().into())).is_ok(), "an older head is in the chain too");
    let other = entry(9, "z").after(log[1].head());
    assert_eq!(
        check(&[&log[..2], &[other]].concat(), Some(head.into())),
        Err(ChainFault::Rewritten { seq: 3 })
    );
}

#[test]
fn an_anchor_counts_only_if_an_entry_records_it() {
    let log = log(&["a", "b", "c"].map(str::to_owned));
    let anchor = log[1].head();
    let check = |entries: &[AuditEntry], known: Option<KnownHead>| {
        let mut check = ChainCheck::new(anchor, known);
        entries.iter().try_for_each(|entry| check.next(entry))?;
        check.finish()
    };
    assert_eq!(check(&log[2..], None), Err(ChainFault::UnrecordedAnchor { seq: 2 }));
    let mut prune = entry(3, "x");
    prune.action = PRUNED;
    prune.target = anchor_target(anchor);
    let pruned = prune.after(log[2].head());
    let kept = [log[2].clone(), pruned];
    assert_eq!(check(&kept, None).unwrap().entries, 2);
    assert!(check(&kept, Some(anchor.into())).is_ok());
    assert_eq!(check(&kept, Some(log[0].head().into())), Err(ChainFault::Pruned { seq: 1 }));
    let forged = AuditHead { seq: 2, hash: AuditHash::of("x") };
    assert_eq!(check(&kept, Some(forged.into())), Err(ChainFault::Rewritten { seq: 2 }));
}

proptest! {
    #[test]
    fn any_changed_character_of_an_export_is_found(
        texts in prop::collection::vec("[a-z\"\\\\é]{1,8}", 1..6),
        line in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        replacement in any::<char>(),
    ) {
        let log = log(&texts);
        let mut lines: Vec<String> = log.iter().map(AuditEntry::to_line).collect();
        let line = line.index(lines.len());
        let mut changed: Vec<char> = lines[line].chars().collect();
        let place = place.index(changed.len());
        prop_assume!(changed[place] != replacement);
        changed[place] = replacement;
        lines[line] = changed.into_iter().collect();
        let head = log.last().unwrap().head();
        let found = read_back(&lines).map(|entries| check(&entries, Some(head.into())));
        prop_assert!(!matches!(found, Ok(Ok(_))), "{found:?}");
    }

    #[test]
    fn a_changed_entry_with_a_new_hash_is_found_unless_it_is_the_last_one(
        texts in prop::collection::vec("[a-z]{1,8}", 2..8),
        at in any::<prop::sample::Index>(),
        member in 0_usize..8,
    ) {
        let mut log = log(&texts);
        let at = at.index(log.len());
        let entry = &mut log[at];
        match member {
            0 => entry.actor.push('x'),
            1 => entry.actor_id.push('x'),
            2 => entry.source.push('x'),
            3 => entry.action.push('x'),
            4 => entry.target.push('x'),
            5 => entry.result.push('x'),
            6 => entry.request_id.push('x'),
            _ => entry.count += 1,
        }
        let seq = entry.seq;
        let last = log.len() - 1;
        prop_assert_eq!(check(&log, None), Err(ChainFault::Changed { seq }));
        let head = log[last].head();
        log[at].hash = log[at].computed_hash();
        match at == last {
            // The head shows it: its hash is another one.
            true => prop_assert_eq!(check(&log, Some(head.into())), Err(ChainFault::Rewritten { seq })),
            false => prop_assert_eq!(check(&log, None), Err(ChainFault::Unlinked { seq: seq + 1 })),
        }
    }

    #[test]
    fn removed_exchanged_and_inserted_entries_are_found(
        texts in prop::collection::vec("[a-z]{1,8}", 3..10),
        one in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
    ) {
        let log = log(&texts);
        prop_assert_eq!(check(&log, None).unwrap().head, log.last().unwrap().head());
        let (one, other) = (one.index(log.len()), other.index(log.len()));
        let mut removed = log.clone();
        let gone = removed.remove(one).seq;
        let found = check(&removed, Some(log.last().unwrap().head().into()));
        match one + 1 == log.len() {
            true => prop_assert_eq!(found, Err(ChainFault::Truncated { seq: gone, last: gone - 1 })),
            false => prop_assert_eq!(found, Err(ChainFault::Missing { first: gone, next: gone + 1 })),
        }
        let mut inserted = log.clone();
        inserted.insert(one, log[other].clone());
        prop_assert!(check(&inserted, None).is_err());
        prop_assume!(one != other);
        let mut exchanged = log.clone();
        exchanged.swap(one, other);
        prop_assert!(check(&exchanged, None).is_err());
        // The numbers exchanged too, so that only the chain shows it.
        let (left, right) = (exchanged[one].seq, exchanged[other].seq);
        exchanged[one].seq = right;
        exchanged[other].seq = left;
        prop_assert!(check(&exchanged, None).is_err());
    }
}
