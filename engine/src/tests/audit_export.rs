//! Exports of the audit log: they verify on their own, and every cut, change and foreign byte is found.

use proptest::prelude::*;

use model::Time;
use model::audit::{ActorKind, AuditActor, ChainFault, NewAuditEntry};
use store::audit_export::{AuditVerifyError, head_of_export, verify_database, verify_export, write_export};
use store::{AuditFile, AuditRetention, Store};

async fn export_of(entries: u64, prune: u64) -> (String, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shoal.db");
    let now: Time = "2026-01-01T00:00:00Z".parse().unwrap();
    let store = Store::open(&path, now).unwrap();
    let actor = AuditActor::new(ActorKind::User, "ann");
    let new = NewAuditEntry::new(now, actor, "test.change");
    store
        .record_audit((0..entries).map(|number| new.clone().on("thing", &number.to_string())).collect())
        .await
        .unwrap();
    let keep = AuditRetention { before: None, entries: entries - prune, at_least: 1, at_most: 1000 };
    store.prune_audit(keep, now).await.unwrap();
    store.record_audit(vec![new]).await.unwrap();
    let mut text = Vec::new();
    let file = AuditFile::open(&path).unwrap();
    assert_eq!(write_export(&file, &mut text).unwrap(), store.audit_head().await.unwrap());
    (String::from_utf8(text).unwrap(), folder)
}

#[tokio::test]
async fn an_export_verifies_on_its_own_also_after_pruning() {
    for prune in [0, 4] {
        let (text, folder) = export_of(9, prune).await;
        let summary = verify_export(text.as_bytes(), None).unwrap();
        assert_eq!(summary, verify_database(&folder.path().join("shoal.db"), None).unwrap());
        assert_eq!(head_of_export(text.as_bytes()).unwrap(), summary.head);
        assert!(verify_export(text.as_bytes(), Some(summary.head.into())).is_ok());
    }
}

#[tokio::test]
async fn an_export_that_was_cut_or_whose_beginning_was_removed_is_found() {
    let (text, _folder) = export_of(9, 4).await;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let cut = lines[..lines.len() - 1].concat();
    let fault = verify_export(cut.as_bytes(), None).unwrap_err();
    assert!(matches!(fault, AuditVerifyError::Fault(ChainFault::Truncated { seq: 11, last: 10 })), "{fault}");
    assert!(fault.is_broken());
    let beheaded = [&lines[..1], &lines[2..]].concat().concat();
    let fault = verify_export(beheaded.as_bytes(), None).unwrap_err();
    assert!(matches!(fault, AuditVerifyError::Fault(ChainFault::Missing { first: 5, next: 6 })), "{fault}");
    // A forged anchor in the place of the removed entries.
    let second: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
    let header: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    let forged = lines[0]
        .replace(header["anchor"].as_str().unwrap(), &format!("5:{}", second["previous"].as_str().unwrap()));
    let fault =
        verify_export([&[forged.as_str()], &lines[2..]].concat().concat().as_bytes(), None).unwrap_err();
    assert!(matches!(fault, AuditVerifyError::Fault(ChainFault::UnrecordedAnchor { seq: 5 })), "{fault}");
    assert!(matches!(verify_export(&b"{}\n"[..], None), Err(AuditVerifyError::NoExport(_))));
    let long = [lines[0].as_bytes(), &vec![b'x'; 1 << 20]].concat();
    assert!(matches!(verify_export(&long[..], None), Err(AuditVerifyError::Unreadable { seq: 5, .. })));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        let _ = verify_export(&bytes[..], None);
        let header = format!("{{\"format\":\"shoal-audit-1\",\"anchor\":\"0:{}\",\"head\":\"1:{}\"}}\n", "0".repeat(64), "0".repeat(64));
        prop_assert!(verify_export(&[header.as_bytes(), &bytes].concat()[..], None).is_err());
    }
}
