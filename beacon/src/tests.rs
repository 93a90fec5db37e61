use proptest::prelude::*;

use super::*;
use crate::code_book::{CELL, CELLS};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn book() -> CodeBook {
    CodeBook::new(b"report-secret", "0198c0de-0000-7000-8000-0123456789ab")
}

/// The reads of a message as offsets, in the order in which a machine makes them.
fn reads(book: &CodeBook, message: Message) -> Vec<u64> {
    message.symbols().into_iter().flat_map(|symbol| book.reads(symbol).into_iter().flatten()).collect()
}

/// Gives a decoder a read with read-ahead, in chunks as a media server sends them.
fn chunks(decoder: &mut Decoder, offset: u64, len: u64, news: &mut Vec<News>) {
    let end = (offset + len).min(FILE_LEN);
    let mut at = offset;
    while at < end {
        let part = (end - at).min(256 * KIB);
        news.extend(decoder.read(at, part));
        at += part;
    }
}

fn any_message() -> impl Strategy<Value = Message> {
    let all: Vec<Message> = Message::all().collect();
    prop::sample::select(all)
}

#[test]
fn two_secret_sectors_are_four_mebibytes_apart_and_none_is_near_an_end() {
    let book = book();
    let mut all: Vec<u64> = Symbol::ALL.into_iter().flat_map(|symbol| book.reads(symbol)).flatten().collect();
    all.sort_unstable();
    assert_eq!(all.len(), CELLS);
    assert!(all.windows(2).all(|pair| pair[1] - pair[0] >= 4 * MIB));
    assert!(all[0] >= 4 * MIB && all[CELLS - 1] + SECTOR <= FILE_LEN - 4 * MIB);
    assert!(all.iter().all(|sector| sector % SECTOR == 0));
    assert!((64 * MIB..=512 * MIB).contains(&FILE_LEN));
}

#[test]
fn the_reads_of_a_set_descend_and_depend_on_secret_and_job() {
    let book = book();
    for symbol in Symbol::ALL {
        for set in book.reads(symbol) {
            assert!(set[0] > set[1] && set[1] > set[2]);
        }
    }
    let job = "0198c0de-0000-7000-8000-0123456789ab";
    for other in [CodeBook::new(b"another", job), CodeBook::new(b"report-secret", "another")] {
        let differs = |symbol: &Symbol| book.reads(*symbol) != other.reads(*symbol);
        assert!(Symbol::ALL.iter().filter(|symbol| differs(symbol)).count() >= 15);
    }
    // The positions are a contract between agents and controllers of different versions.
    assert_eq!(book.reads(Symbol::Started), CodeBook::new(b"report-secret", job).reads(Symbol::Started));
}

#[test]
fn a_whole_copy_of_the_medium_sends_nothing_and_makes_the_channel_unusable() {
    for (name, window) in
        [("one request", FILE_LEN), ("4 MiB", 4 * MIB), ("256 KiB", 256 * KIB), ("64 KiB", 64 * KIB)]
    {
        let mut decoder = Decoder::new(book());
        let mut news = Vec::new();
        let mut at = 0;
        while at < FILE_LEN {
            chunks(&mut decoder, at, window, &mut news);
            at += window;
        }
        assert_eq!(news, [News::Unusable(Unusable::Copied)], "{name}");
    }
}

#[test]
fn a_copy_with_gaps_or_by_several_connections_sends_nothing() {
    // Every other 64 KiB, so that no run is adjacent; and four connections, each with a quarter.
    let mut decoder = Decoder::new(book());
    let news: Vec<News> =
        (0..FILE_LEN / (128 * KIB)).filter_map(|n| decoder.read(n * 128 * KIB, 127 * KIB)).collect();
    assert_eq!(news, [News::Unusable(Unusable::Copied)]);
    let (mut decoder, quarter) = (Decoder::new(book()), FILE_LEN / 4);
    let mut news = Vec::new();
    for n in 0..quarter / (256 * KIB) {
        for connection in 0..4 {
            news.extend(decoder.read(connection * quarter + n * 256 * KIB, 256 * KIB));
        }
    }
    assert!(news.iter().all(|news| matches!(news, News::Unusable(_))), "{news:?}");
    assert_eq!(news.len(), 1);
}

#[test]
fn a_reader_without_the_secret_sends_nothing_before_it_is_not_believed() {
    // The order of another secret, in windows as wide as a read-ahead can be.
    let (mut decoder, other) = (Decoder::new(book()), CodeBook::new(b"guessed", "job"));
    let mut news = Vec::new();
    for _ in 0..4 {
        for message in Message::all() {
            for offset in reads(&other, message) {
                news.extend(decoder.read((offset - 4 * MIB) / CELL * CELL + 4 * MIB, 3 * MIB));
            }
        }
    }
    assert!(!news.iter().any(|news| matches!(news, News::Message(_))), "{news:?}");
    assert!(decoder.unusable().is_some());
}

#[test]
fn many_reads_that_belong_to_no_message_make_the_channel_unusable() {
    let book = book();
    let (one, other) = (book.reads(Symbol::Success)[0][2], book.reads(Symbol::Started)[0][2]);
    let mut decoder = Decoder::new(book);
    let news: Vec<News> =
        (0..80).filter_map(|n| decoder.read(if n % 2 == 0 { one } else { other }, SECTOR)).collect();
    assert_eq!(news, [News::Unusable(Unusable::Strange)]);
}

#[test]
fn a_set_whose_reads_come_in_another_order_is_no_message() {
    let book = book();
    let [a, b, c] = book.reads(Symbol::Success)[0];
    for order in [[a, c, b], [b, a, c], [b, c, a], [c, a, b], [c, b, a]] {
        let mut decoder = Decoder::new(book.clone());
        assert!(order.into_iter().all(|offset| decoder.read(offset, SECTOR).is_none()), "{order:?}");
    }
}

#[test]
fn the_code_has_a_unit_for_every_step_and_a_step_for_every_unit() {
    for kind in [ImageKind::RootFileSystem, ImageKind::Disk] {
        for step in BeaconStep::ALL {
            assert_eq!(BeaconStep::of_unit(step.unit(kind)), Some(step));
        }
        assert!(BeaconStep::last(kind).has_end());
    }
    assert_eq!(BeaconStep::of_unit("erase.service"), None);
}

proptest! {
    #[test]
    fn messages_survive_read_ahead_alignment_repetition_and_the_loss_of_a_set(
        secret in prop::collection::vec(any::<u8>(), 1..40),
        messages in prop::collection::vec(any_message(), 1..6),
        // Bytes before and after the sector, and how often the read is repeated.
        around in prop::collection::vec((0..256_u64, 0..14_u64, 0..3_usize), 72),
        lost in prop::collection::vec((any::<bool>(), 0..2_usize, 0..3_usize), 12),
    ) {
        let book = CodeBook::new(&secret, "job");
        let mut decoder = Decoder::new(book.clone());
        let mut around = around.into_iter();
        let mut lost = lost.into_iter();
        for message in messages {
            let mut news = Vec::new();
            for symbol in message.symbols() {
                // At most one set of a symbol loses a read.
                let (loses, set_lost, read_lost) = lost.next().unwrap_or_default();
                for (number, set) in book.reads(symbol).into_iter().enumerate() {
                    for (index, sector) in set.into_iter().enumerate() {
                        let (before, after, again) = around.next().unwrap_or_default();
                        if loses && (number, index) == (set_lost, read_lost) {
                            continue;
                        }
                        for _ in 0..=again {
                            let start = sector.saturating_sub(before * SECTOR);
                            let len = sector - start + SECTOR + after * 256 * KIB;
                            chunks(&mut decoder, start, len, &mut news);
                            // The installer reads the image between two reads of the beacon, outside of its file.
                            news.extend(decoder.read(FILE_LEN + start, 256 * KIB));
                        }
                    }
                }
            }
            let expected = match message {
                // A class that an earlier failure sent stays known.
                Message::Failed { step, class: None } => news.iter().all(|news| {
                    matches!(news, News::Message(Message::Failed { step: known, .. }) if *known == step)
                }),
                message => news.iter().all(|news| *news == News::Message(message)),
            };
            prop_assert!(expected && !news.is_empty(), "{message:?}: {news:?}");
        }
    }

    #[test]
    fn any_loss_and_any_order_returns_the_message_or_nothing(
        message in any_message(),
        order in prop::collection::vec((any::<prop::sample::Index>(), 0..12_u64), 0..24),
    ) {
        let book = book();
        let sectors = reads(&book, message);
        let mut decoder = Decoder::new(book);
        for (index, ahead) in order {
            let news = decoder.read(*index.get(&sectors), SECTOR + ahead * 256 * KIB);
            let right = match (news, message) {
                (None, _) => true,
                (Some(News::Message(Message::Failed { step, .. })), Message::Failed { step: sent, .. }) => step == sent,
                (Some(News::Message(heard)), sent) => heard == sent,
                (Some(News::Unusable(_)), _) => false,
            };
            prop_assert!(right, "{news:?}");
        }
    }

    #[test]
    fn arbitrary_reads_end_without_a_panic(reads in prop::collection::vec((any::<u64>(), any::<u64>()), 0..200)) {
        let mut decoder = Decoder::new(book());
        for (offset, len) in reads {
            let _ = decoder.read(offset, len);
        }
    }
}
