use std::collections::VecDeque;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::Ordering;
use std::thread;

use ferroce_proto::mr::Piece;

use super::protocol::longest;
use super::short_ring::{IN_BODY, body};
use super::*;
use crate::fd::Fd;
use crate::memory::file;

const CAPACITY: u32 = 4096;

fn pair() -> (Sender, Receiver) {
    let (sender, fd) = create(CAPACITY, false).unwrap();
    (sender, open(&fd, CAPACITY, false).unwrap())
}

#[test]
fn records_come_out_as_they_went_in() {
    let (mut sender, mut receiver) = pair();
    let mut room = [0; 4096];
    assert_eq!(receiver.pop(&mut room), Ok(Popped::Empty));
    for round in 0..1000_usize {
        let len = 1 + round * 37 % sender.longest();
        let bytes = vec![u8::try_from(round % 251).unwrap(); len];
        let (a, b) = bytes.split_at(len / 3);
        assert_eq!(sender.push(&[a, b]), Ok(Pushed::Done));
        assert!(receiver.has_more());
        assert_eq!(receiver.pop(&mut room), Ok(Popped::Record(len)));
        assert_eq!(room[..len], bytes);
        assert!(!receiver.has_more());
    }
}

#[test]
fn a_full_ring_says_so_until_there_is_room() {
    let (mut sender, mut receiver) = pair();
    let longest = sender.longest();
    let record = vec![1; longest];
    let mut room = [0; 4096];
    while sender.push(&[&record]).unwrap() == Pushed::Done {}
    assert!(!receiver.wakes(), "nobody waits");
    assert_eq!(sender.wait(longest), Ok(false));
    assert_eq!(receiver.pop(&mut room), Ok(Popped::Record(longest)));
    assert!(receiver.wakes() && !receiver.wakes(), "once");
    assert_eq!(sender.wait(longest), Ok(true));
    assert!(!receiver.wakes(), "it does not wait after all");
    assert_eq!(sender.push(&[&record]), Ok(Pushed::Done));
}

#[test]
fn a_sleeper_is_woken_once() {
    let (mut sender, mut receiver) = pair();
    assert!(receiver.sleep());
    assert_eq!(sender.push(&[b"a"]), Ok(Pushed::Done));
    assert!(sender.wakes() && !sender.wakes());
    assert!(!receiver.sleep(), "there is a record");
    assert!(!sender.wakes());
}

#[test]
fn two_threads_pass_everything_in_order() {
    let (mut sender, mut receiver) = pair();
    let total = 200_000_u32;
    let producer = thread::spawn(move || {
        let mut next = 0_u32;
        while next < total {
            let len = 4 + (next % 61) as usize;
            let bytes = [&next.to_le_bytes()[..], &[7; 64][..len - 4]];
            match sender.push(&bytes).unwrap() {
                Pushed::Done => next += 1,
                Pushed::Full => thread::yield_now(),
            }
        }
    });
    let mut room = [0; 4096];
    for expected in 0..total {
        let len = loop {
            match receiver.pop(&mut room).unwrap() {
                Popped::Record(len) => break len,
                Popped::Empty => thread::yield_now(),
            }
        };
        assert_eq!(len, 4 + (expected % 61) as usize);
        assert_eq!(room[..4], expected.to_le_bytes());
    }
    producer.join().unwrap();
}

#[test]
fn a_peer_that_lies_about_a_length_is_found_out() {
    let mut room = [0; 4096];
    for len in [
        u32::try_from(longest(CAPACITY)).unwrap() + 1,
        u32::MAX,
        4096,
    ] {
        let (liar, mut receiver) = pair();
        liar.area.store(Word::Length(0), len, Ordering::Relaxed);
        assert_eq!(receiver.pop(&mut room), Err(Broken), "{len}");
    }
    let (mut sender, mut receiver) = pair();
    assert_eq!(sender.push(&[&[1; 100]]), Ok(Pushed::Done));
    assert_eq!(receiver.pop(&mut room[..99]), Err(Broken), "no room");
}

#[test]
fn a_peer_that_lies_about_what_it_has_read_is_found_out() {
    for read in [4096, 1, 0x8000_0000, 0_u32.wrapping_sub(64)] {
        let (mut sender, liar) = pair();
        liar.area.store(Word::Read, read, Ordering::Relaxed);
        let mut pushed = Ok(Pushed::Done);
        while pushed == Ok(Pushed::Done) {
            pushed = sender.push(&[&[0; 900]]);
        }
        assert_eq!(pushed, Err(Broken), "{read}");
        assert_eq!(sender.wait(900), Err(Broken), "{read}");
    }
}

#[test]
fn only_sealed_files_of_the_right_size_are_taken() {
    let (_sender, fd) = create(CAPACITY, false).unwrap();
    assert!(matches!(
        open(&fd, 2 * CAPACITY, false),
        Err(Refused::Size(8192))
    ));
    assert!(matches!(open(&fd, 4095, false), Err(Refused::Size(4095))));
    let unsealed = file::unsealed(c"ring").unwrap();
    assert!(matches!(
        open(&unsealed, CAPACITY, false),
        Err(Refused::Seals)
    ));
}

#[test]
fn a_file_whose_pages_may_be_gone_is_not_taken() {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    let flags = libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB;
    // SAFETY: the name is a C string; the others take no pointers. Huge pages are taken only by
    // accesses.
    let fd = unsafe {
        let fd = libc::memfd_create(c"ring".as_ptr(), flags);
        assert!(fd >= 0, "memory files of huge pages");
        assert_eq!(libc::ftruncate(fd, 64 << 20), 0);
        assert_eq!(libc::fcntl(fd, libc::F_ADD_SEALS, seals), 0);
        Fd::internal(fd)
    };
    assert!(matches!(
        open(&fd, CAPACITY, false),
        Err(Refused::HugePages)
    ));
}

const HEAD: Head = [1, 2, 3];

/// What a consumer finds, behind the head.
fn pop(consumer: &mut ShortRingReceiver) -> Result<Option<Vec<u8>>, Broken> {
    Ok(consumer.look()?.map(|waiting| {
        let mut rest = vec![0; waiting.rest];
        assert_eq!(consumer.take(waiting, &mut rest), HEAD);
        rest
    }))
}

/// Both ends of a short ring, in a run, and the ring that it belongs to.
fn short_ring() -> (ShortRingSender, ShortRingReceiver, Sender) {
    let (sender, fd) = create(CAPACITY, true).unwrap();
    assert!(!sender.area().has_short_rings(), "nobody looks at them yet");
    let receiver = open(&fd, CAPACITY, true).unwrap();
    assert!(sender.area().has_short_rings());
    assert_eq!(SharedShortRing::of(sender.area(), SHORT_RINGS), None);
    let last = |area| SharedShortRing::of(area, SHORT_RINGS - 1).unwrap();
    let mut producer = ShortRingProducer::new(last(sender.area()), u32::MAX - 100);
    assert!(!producer.is_accepted(5));
    let mut consumer = ShortRingConsumer::accept(last(receiver.area()), 5);
    assert!(producer.is_accepted(5) && !producer.is_accepted(6));
    consumer.begin_run(producer.begin_run());
    (producer, consumer, sender)
}

#[test]
fn a_short_ring_passes_messages_until_it_is_full() {
    let (mut producer, mut consumer, _ring) = short_ring();
    let bytes = |round: u8, count: usize| -> Vec<u8> {
        let len = 4 * count % (LONGEST_IN_SLOT + 4);
        (0..=u8::MAX).map(|at| round ^ at).take(len).collect()
    };
    for round in 0..20_u8 {
        let begin = producer.position();
        let mut count = 0;
        while producer.push((HEAD, &bytes(round, count)), None).unwrap() {
            count += 1;
        }
        assert_eq!(count, 256);
        for i in 0..count {
            assert_eq!(pop(&mut consumer), Ok(Some(bytes(round, i))));
        }
        assert_eq!(pop(&mut consumer), Ok(None));
        assert_eq!(
            producer.push((HEAD, &[1; 4]), None),
            Ok(false),
            "nothing was said of it"
        );
        consumer.publish(begin.wrapping_add(256));
        assert_eq!(producer.look(), begin.wrapping_add(256));
    }
    for len in [LONGEST_IN_SLOT + 4, 1] {
        let rest = [0; LONGEST_IN_SLOT + 4];
        assert_eq!(producer.push((HEAD, &rest[..len]), None), Err(Broken));
    }
}

/// Bytes of a memory file that are there.
fn bytes_there(fd: &Fd) -> u64 {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_conversation_brings_all_slots_in_and_a_few_messages_do_not() {
    let (sender, fd) = create(CAPACITY, true).unwrap();
    let _receiver: Receiver = open(&fd, CAPACITY, true).unwrap();
    let area = SharedShortRing::of(sender.area(), 0).unwrap();
    let mut producer = ShortRingProducer::new(area, 0);
    producer.begin_run();
    let mut push = |count: usize| {
        for _ in 0..count {
            assert_eq!(producer.push((HEAD, &[1; 4]), None), Ok(true));
        }
        bytes_there(&fd)
    };
    let few = push(15);
    assert!(few < 32 << 10, "{few} bytes");
    let all = push(1);
    assert!(all >= 32 << 10, "{all} bytes");
    assert_eq!(push(240), all);
}

#[test]
fn an_empty_short_ring_gives_its_pages_back_and_goes_on() {
    let (sender, fd) = create(CAPACITY, true).unwrap();
    let receiver = open(&fd, CAPACITY, true).unwrap();
    let of = |area| SharedShortRing::of(area, 3).unwrap();
    let mut producer = ShortRingProducer::new(of(sender.area()), 0);
    let mut consumer = ShortRingConsumer::accept(of(receiver.area()), 1);
    consumer.begin_run(producer.begin_run());
    let unused = bytes_there(&fd);
    for round in 0..3 {
        assert!(!producer.holds_memory());
        for number in 0..100 {
            let bytes = pattern(number, 1000 + round);
            producer.push_long(&long(&bytes), None).unwrap();
            assert_eq!(pop(&mut consumer), Ok(Some(padded(bytes))));
        }
        assert!(producer.holds_memory() && producer.has_had_many());
        assert!(
            !producer.give_memory_back(),
            "nothing was said of what was read"
        );
        assert!(bytes_there(&fd) > unused + (100 << 10));
        consumer.publish(producer.position());
        assert!(producer.give_memory_back());
        assert_eq!(bytes_there(&fd), unused);
        assert_eq!(pop(&mut consumer), Ok(None));
    }
}

/// Zero is the word of the last position before zero.
#[test]
fn no_page_that_was_given_back_is_taken_for_a_message() {
    let (sender, _fd) = create(CAPACITY, true).unwrap();
    for before in [0, 1, 255, 256, 257, 511, 512, 513, 1000] {
        let area = SharedShortRing::of(sender.area(), 0).unwrap();
        let mut producer = ShortRingProducer::new(area.clone(), u32::MAX - before);
        let mut consumer = ShortRingConsumer::accept(area.clone(), 1);
        area.discard();
        consumer.begin_run(producer.begin_run());
        for number in 0..1200_u32 {
            assert_eq!(
                pop(&mut consumer),
                Ok(None),
                "{before} before the last, {number}"
            );
            assert_eq!(producer.push((HEAD, &number.to_ne_bytes()), None), Ok(true));
            let expected = number.to_ne_bytes().to_vec();
            assert_eq!(pop(&mut consumer), Ok(Some(expected)));
            consumer.publish(producer.position());
            producer.give_memory_back();
        }
    }
}

/// A long message.
fn long(rest: &[u8]) -> Long<'_> {
    Long {
        head: HEAD,
        rest: Piece::Inline(rest),
        packet: 1024,
    }
}

/// Bytes that tell where they are.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|at| u8::try_from((seed * 7 + at / 3) % 251).unwrap())
        .collect()
}

/// The bytes of a message as they come: filled up with zeros.
fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn long_messages_lie_in_the_body_until_they_are_read() {
    let (mut producer, mut consumer, _ring) = short_ring();
    let mut sent = VecDeque::new();
    let mut full = 0;
    for round in 0..400_usize {
        let len = [LONGEST_REST, 105, 5000, 8 << 10, LONGEST_REST - 3][round % 5];
        let bytes = pattern(round, len);
        while let Err(refusal) = producer.push_long(&long(&bytes), None) {
            assert_eq!(refusal, ShortRingRefusal::Full);
            full += 1;
            // Some of them at a time.
            for _ in 0..1 + round % 7 {
                let Some(expected) = sent.pop_front() else {
                    break;
                };
                assert_eq!(pop(&mut consumer), Ok(Some(expected)));
            }
            consumer.publish(consumer.position().unwrap());
        }
        sent.push_back(padded(bytes));
        if round % 3 == 0 {
            assert!(producer.push((HEAD, &[9; 8]), None).unwrap());
            sent.push_back(vec![9; 8]);
        }
    }
    for expected in sent {
        assert_eq!(pop(&mut consumer), Ok(Some(expected)));
    }
    assert!(full > 10, "it was full {full} times");
    let too_long = vec![0; LONGEST_REST + 1];
    let refused = producer.push_long(&long(&too_long), None);
    assert_eq!(refused, Err(ShortRingRefusal::Broken));
}

#[test]
fn a_conversation_of_long_messages_stays_in_one_place() {
    let (mut producer, mut consumer, _ring) = short_ring();
    for round in 0..600 {
        let bytes = pattern(round, 8000);
        producer.push_long(&long(&bytes), None).unwrap();
        let at = consumer.position().unwrap();
        let offset = ShortRingWord::Offset(at);
        assert_eq!(producer.area().load(offset, Ordering::Relaxed), 0);
        let waiting = consumer.look().unwrap().unwrap();
        assert_eq!((waiting.packet, waiting.packets()), (1024, 8));
        assert_eq!(pop(&mut consumer), Ok(Some(bytes)));
        consumer.publish(consumer.position().unwrap());
        producer.look();
    }
}

#[test]
fn what_belongs_to_another_run_is_not_seen() {
    let (mut producer, mut consumer, _ring) = short_ring();
    producer.push((HEAD, &[1; 4]), None).unwrap();
    assert_eq!(pop(&mut consumer), Ok(Some(vec![1; 4])));
    let next = producer.begin_run();
    producer.push((HEAD, &[2; 4]), None).unwrap();
    assert_eq!(pop(&mut consumer), Ok(None), "it does not know of it");
    consumer.publish(consumer.position().unwrap());
    assert_eq!(producer.look(), next, "the word of the last run is old");
    consumer.begin_run(next);
    assert_eq!(pop(&mut consumer), Ok(Some(vec![2; 4])));
    consumer.end_run();
    producer.push((HEAD, &[3; 4]), None).unwrap();
    assert_eq!(pop(&mut consumer), Ok(None), "it does not look");
}

#[test]
fn a_peer_that_lies_in_a_short_ring_is_found_out_or_not_believed() {
    let (mut producer, mut consumer, ring) = short_ring();
    let at = producer.position();
    let short_ring = SharedShortRing::of(ring.area(), SHORT_RINGS - 1).unwrap();
    let lie = |word, value| short_ring.store(word, value, Ordering::Relaxed);
    for read in [at.wrapping_add(1), at.wrapping_sub(1), !at] {
        lie(ShortRingWord::Read, read);
        assert_eq!(producer.look(), at);
    }
    producer.push((HEAD, &[1; 4]), None).unwrap();
    let words = |bytes: usize| u32::try_from(bytes / 4).unwrap();
    let (most, room) = (words(LONGEST_REST), body(SHORT_RINGS - 1).1);
    for (rest, offset) in [
        (most + 1, 0),
        (u32::MAX, 0),
        (most, room - 4 * most + 4),
        (words(LONGEST_IN_SLOT) + 1, u32::MAX),
        (words(LONGEST_IN_SLOT) + 1, room),
    ] {
        // A length that no slot has counts as one in the body.
        let length = if rest % 2 == 0 {
            IN_BODY
        } else {
            words(LONGEST_IN_SLOT) + 1
        };
        lie(ShortRingWord::Length(at), length);
        lie(ShortRingWord::Rest(at), rest);
        lie(ShortRingWord::Offset(at), offset);
        assert_eq!(pop(&mut consumer), Err(Broken), "{rest} at {offset}");
    }
    lie(ShortRingWord::Offset(at), room - 4 * most);
    lie(ShortRingWord::Rest(at), most);
    let found = consumer.look().unwrap().map(|waiting| waiting.rest);
    assert_eq!(found, Some(LONGEST_REST), "the last place of all");
    for read in [at.wrapping_add(2), at.wrapping_sub(1), !at] {
        let short_ring = SHORT_RINGS - 1;
        let ack = ShortRingAck::new(short_ring, read, Some(100));
        assert_eq!(producer.on_ack(ack), at);
        assert!(!producer.completes_early(0), "what was put in is elsewhere");
    }
}

#[test]
fn what_a_message_says_of_the_other_short_ring_is_as_if_it_was_read_there() {
    let (mut out, _, _ring) = short_ring();
    let (mut back, mut ears, _other) = short_ring();
    let at = out.position();
    out.push((HEAD, &[1; 4]), None).unwrap();
    let said = ShortRingAck::new(SHORT_RINGS - 1, at.wrapping_add(1), Some(0));
    back.push((HEAD, &[2; LONGEST_IN_SLOT]), Some(said))
        .unwrap();
    assert_eq!(ears.look().unwrap().unwrap().ack, Some(said));
    assert_eq!(pop(&mut ears), Ok(Some(vec![2; LONGEST_IN_SLOT])));
    assert_eq!(ears.look(), Ok(None), "nothing is there");
    let of_another = ShortRingAck::new(0, said.read(), Some(0));
    assert_eq!(out.on_ack(of_another), at);
    assert_eq!(out.on_ack(said), said.read());
    assert_eq!(out.look(), said.read(), "an older word changes nothing");
}

#[test]
fn the_next_message_is_as_good_as_taken_where_that_was_said() {
    let (mut out, mut into, _ring) = short_ring();
    let says = |read, most| ShortRingAck::new(SHORT_RINGS - 1, read, Some(most));
    let put = |out: &mut ShortRingSender, ack: Option<ShortRingAck>, rest: &[u8]| {
        ack.map(|ack| out.on_ack(ack));
        out.push((HEAD, rest), None).unwrap();
        out.completes_early(rest.len())
    };
    let at = out.position();
    assert!(!put(&mut out, None, &[0; 4]), "nothing was said");
    assert!(put(&mut out, Some(says(at + 1, 4)), &[0; 4]));
    assert!(!put(&mut out, None, &[0; 4]), "it was said of one");
    assert!(!put(&mut out, Some(says(at + 3, 4)), &[0; 8]), "too long");
    assert!(
        !put(&mut out, Some(says(at + 3, 4)), &[]),
        "it was said of another"
    );
    let unsaid = ShortRingAck::new(SHORT_RINGS - 1, at + 5, None);
    assert!(!put(&mut out, Some(says(at + 5, 4)).and(Some(unsaid)), &[]));
    while pop(&mut into).unwrap().is_some() {}
    out.on_ack(says(at + 6, 4));
    into.withdraw();
    assert!(!put(&mut out, None, &[]), "it is taken back");
    assert_eq!(pop(&mut into), Ok(Some(vec![])), "and comes all the same");
}
