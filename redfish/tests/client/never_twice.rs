//! Whatever a BMC answers, nothing is sent after an answer that leaves open whether it was carried out, and
//! nothing is sent without end.

use http::Method;
use proptest::prelude::*;
use redfish::{InsertOptions, TransportError, TransportErrorKind};

use crate::fake::Fake;
use crate::fake::{INSERT, Reply, SLOT, URL, client, inserted};

/// A reply, and whether the request may go out once more after it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Done,
    NamesAMember(&'static str),
    Expired,
    Refused(u16),
    Server(u16),
    TimedOut,
    Lost,
    NotSent,
}

impl Kind {
    fn reply(self) -> Reply {
        match self {
            Kind::Done => Reply::status(204).effect(SLOT, inserted()),
            Kind::NamesAMember(name) => Reply::text(400, &format!("{name} is wrong")),
            Kind::Expired => Reply::status(401),
            Kind::Refused(status) | Kind::Server(status) => Reply::status(status),
            Kind::TimedOut => Reply::times_out(),
            Kind::Lost => Reply::fails(TransportError::maybe_sent(TransportErrorKind::Lost, "reset")),
            Kind::NotSent => Reply::fails(TransportError::not_sent(TransportErrorKind::Connect, "refused")),
        }
    }

    fn may_go_on(self) -> bool {
        matches!(self, Kind::NamesAMember(_) | Kind::Expired)
    }

    fn leaves_open(self) -> bool {
        matches!(self, Kind::Server(_) | Kind::TimedOut | Kind::Lost)
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    let members = vec!["TransferProtocolType", "TransferMethod", "UserName", "Inserted", "Image"];
    prop_oneof![
        2 => Just(Kind::Done),
        6 => prop::sample::select(members).prop_map(Kind::NamesAMember),
        3 => Just(Kind::Expired),
        1 => prop::sample::select(vec![400, 403, 404, 405, 406, 409, 415, 429, 503]).prop_map(Kind::Refused),
        1 => prop::sample::select(vec![500, 502, 504]).prop_map(Kind::Server),
        1 => Just(Kind::TimedOut),
        1 => Just(Kind::Lost),
        1 => Just(Kind::NotSent),
    ]
}

proptest! {
    #[test]
    fn an_insert_stops_at_the_first_answer_that_does_not_prove_it_was_not_carried_out(
        kinds in prop::collection::vec(kind(), 1..24)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let fake = Fake::new();
            fake.on(Method::POST, INSERT, kinds.iter().map(|kind| kind.reply()));
            let result = client(&fake).insert(SLOT, URL, InsertOptions::default()).await;
            let sent = fake.sent(Method::POST, INSERT).len();
            let stop = kinds.iter().position(|kind| !kind.may_go_on()).map_or(usize::MAX, |at| at + 1);
            prop_assert!(sent <= stop, "{sent} sent, {stop} allowed");
            prop_assert!(sent <= 14, "{sent} sent");
            let last = kinds.get(sent - 1).copied();
            match result {
                Ok(done) => prop_assert!(done.confirmed && matches!(last, Some(Kind::Done))),
                Err(error) => prop_assert_eq!(error.maybe_applied(), last.is_some_and(Kind::leaves_open), "{}", error),
            }
            Ok(())
        })?;
    }
}
