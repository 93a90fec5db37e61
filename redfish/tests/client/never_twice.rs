//! For any responses of a BMC: after a response that leaves open whether the request was carried out, nothing is sent,
//! and the number of requests is bounded.

use http::Method;
use proptest::prelude::*;
use redfish::{InsertOptions, TransportError, TransportErrorKind};

use crate::fake::Fake;
use crate::fake::{INSERT, Reply, SLOT, URL, client, inserted};

/// A reply, and whether the request may be sent again after it.
#[derive(Clone, Copy, Debug)]
enum ReplyKind {
    Done,
    NamesAMember(&'static str),
    Expired,
    Refused(u16),
    Server(u16),
    TimedOut,
    Lost,
    NotSent,
}

impl ReplyKind {
    fn reply(self) -> Reply {
        match self {
            ReplyKind::Done => Reply::status(204).effect(SLOT, inserted()),
            ReplyKind::NamesAMember(name) => Reply::text(400, &format!("{name} is wrong")),
            ReplyKind::Expired => Reply::status(401),
            ReplyKind::Refused(status) | ReplyKind::Server(status) => Reply::status(status),
            ReplyKind::TimedOut => Reply::times_out(),
            ReplyKind::Lost => Reply::fails(TransportError::maybe_sent(TransportErrorKind::Lost, "reset")),
            ReplyKind::NotSent => {
                Reply::fails(TransportError::not_sent(TransportErrorKind::Connect, "refused"))
            }
        }
    }

    fn may_repeat(self) -> bool {
        matches!(self, ReplyKind::NamesAMember(_) | ReplyKind::Expired)
    }

    fn leaves_open(self) -> bool {
        matches!(self, ReplyKind::Server(_) | ReplyKind::TimedOut | ReplyKind::Lost)
    }
}

fn kind() -> impl Strategy<Value = ReplyKind> {
    let members = vec!["TransferProtocolType", "TransferMethod", "UserName", "Inserted", "Image"];
    prop_oneof![
        2 => Just(ReplyKind::Done),
        6 => prop::sample::select(members).prop_map(ReplyKind::NamesAMember),
        3 => Just(ReplyKind::Expired),
        1 => prop::sample::select(vec![400, 403, 404, 405, 406, 409, 415, 429, 503]).prop_map(ReplyKind::Refused),
        1 => prop::sample::select(vec![500, 502, 504]).prop_map(ReplyKind::Server),
        1 => Just(ReplyKind::TimedOut),
        1 => Just(ReplyKind::Lost),
        1 => Just(ReplyKind::NotSent),
    ]
}

proptest! {
    #[test]
    fn an_insert_stops_at_the_first_response_that_does_not_prove_it_was_not_carried_out(
        kinds in prop::collection::vec(kind(), 1..24)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let fake = Fake::new();
            fake.on(Method::POST, INSERT, kinds.iter().map(|kind| kind.reply()));
            let result = client(&fake).insert(SLOT, URL, InsertOptions::default()).await;
            let sent = fake.sent(Method::POST, INSERT).len();
            let stop = kinds.iter().position(|kind| !kind.may_repeat()).map_or(usize::MAX, |at| at + 1);
            prop_assert!(sent <= stop, "{sent} sent, {stop} allowed");
            prop_assert!(sent <= 14, "{sent} sent");
            let last = kinds.get(sent - 1).copied();
            match result {
                Ok(done) => prop_assert!(done.confirmed && matches!(last, Some(ReplyKind::Done))),
                Err(error) => prop_assert_eq!(error.maybe_applied(), last.is_some_and(ReplyKind::leaves_open), "{}", error),
            }
            Ok(())
        })?;
    }
}
