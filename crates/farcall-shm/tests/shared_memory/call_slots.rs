//! The two halves over one memory, without sockets: what one writes the other reads. Runs under Miri as well:
//! `cargo +nightly miri test -p farcall-shm --test shared_memory`.

use crate::threads;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use farcall_shm::{
    BulkArguments, Call, CallMemory, Caller, FETCH_PARTS, MAX_DRAINED, PART_BYTES, RING_COUNT, RING_PARTS,
    Request, RequestCursor, SLOT_BODY_BYTES, SLOT_COUNT, Server, Status,
};

pub(crate) fn halves() -> (Arc<Caller>, Server, RequestCursor) {
    let page = CallMemory::alone();
    (Arc::new(Caller::new(page.clone())), Server::new(page), RequestCursor::new())
}

pub(crate) fn call(procedure: u32) -> Call {
    Call { export: 7, procedure, within: None, trace: None }
}

#[test]
fn a_call_and_its_answer() {
    let (caller, server, mut cursor) = halves();
    let mut reply = Vec::new();
    for round in 1..=3 {
        let slot = caller.claim().unwrap();
        let call = Call { within: Some(Duration::from_micros(5)), trace: Some([round; 24]), ..call(2) };
        assert!(!server.has_work(&cursor.seen()));
        let id = caller.call(slot, &call, &[round; 21], None);
        assert_eq!((id.slot(), id.number()), (slot, u64::from(round)));
        assert!(server.has_work(&cursor.seen()));
        assert!(!caller.is_taken(id));
        let (taken, number) = server.take(&mut cursor).unwrap();
        assert_eq!((taken, number, cursor.number(slot)), (slot, u64::from(round), number));
        assert!(!caller.is_taken(id), "the server may still refuse it");
        server.tell_taken(&cursor, taken);
        assert!(caller.is_taken(id) && !caller.is_answered(id));
        assert_eq!(server.request(slot), Request::Call { call, len: 21, bulk: None });
        let mut arguments = vec![9];
        server.arguments(slot, 21, &mut arguments);
        assert_eq!((arguments[0], &arguments[1..]), (9, &[round; 21][..]));
        server.answer(slot, number, Status::Exception, &[round; 13]);
        assert!(caller.is_answered(id));
        reply.clear();
        assert_eq!(caller.answer(id, &mut reply), (Status::Exception, 13));
        assert_eq!(reply, [round; 13]);
        caller.release(slot);
    }
}

#[test]
fn a_withdrawn_call_never_runs_and_the_next_one_in_its_slot_does() {
    let (caller, server, mut cursor) = halves();
    let slot = caller.claim().unwrap();
    let id = caller.call(slot, &call(1), &[], None);
    assert!(caller.withdraw(id));
    assert!(!caller.withdraw(id), "one thread withdraws it");
    caller.abandon(id);
    let (taken, number) = server.take(&mut cursor).unwrap();
    server.tell_taken(&cursor, taken);
    assert!(server.is_withdrawn(taken));
    caller.reclaim();
    assert!(server.is_withdrawn(taken), "the slot is used again once the server has answered");
    server.answer(taken, number, Status::Failed { kind: 1, ran: 0 }, &[]);
    caller.reclaim();
    assert_eq!(caller.claim(), Some(slot));
    let next = caller.call(slot, &call(1), &[], None);
    let (taken, _) = server.take(&mut cursor).unwrap();
    server.tell_taken(&cursor, taken);
    assert!(!server.is_withdrawn(taken));
    assert!(!caller.withdraw(next), "it is taken");
    assert!(!server.is_withdrawn(taken));
}

#[test]
fn a_call_that_is_withdrawn_while_it_is_taken_is_withdrawn_or_runs() {
    /// Ends the server's thread, also when the caller's has failed.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    const CALLS: u64 = if cfg!(miri) { 20 } else { 20_000 };
    let (caller, server, mut cursor) = halves();
    let over = AtomicBool::new(false);
    let serve = || {
        while !over.load(Ordering::SeqCst) {
            let Some((slot, number)) = server.take(&mut cursor) else {
                std::thread::yield_now();
                continue;
            };
            server.tell_taken(&cursor, slot);
            let status =
                if server.is_withdrawn(slot) { Status::Failed { kind: 1, ran: 0 } } else { Status::Result };
            server.answer(slot, number, status, &[]);
        }
    };
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(serve);
        for number in 0..CALLS {
            let id = caller.call(caller.claim().unwrap(), &call(1), &[], None);
            (0..number % 100).for_each(|_| std::hint::spin_loop());
            let withdrawn = caller.withdraw(id);
            while !caller.is_answered(id) {
                std::thread::yield_now();
            }
            let ran = caller.answer(id, &mut Vec::new()).0 == Status::Result;
            assert!(!withdrawn || !ran, "call {number} was withdrawn, and has run");
            caller.abandon(id);
            caller.reclaim();
        }
    });
}

#[test]
fn each_request_has_its_turn() {
    let (caller, server, mut cursor) = halves();
    let tickets: Vec<_> = (0..SLOT_COUNT)
        .map(|which| caller.call(caller.claim().unwrap(), &call(which as u32), &[], None))
        .collect();
    assert_eq!(caller.claim(), None);
    let mut order = Vec::new();
    while let Some((slot, number)) = server.take(&mut cursor) {
        server.answer(slot, number, Status::Result, &[]);
        order.push(slot);
        // The first one comes again and again, and holds up nobody.
        if order.len() < 2 * SLOT_COUNT && slot == 0 {
            caller.call(0, &call(0), &[], None);
        }
    }
    assert_eq!(order[..SLOT_COUNT], Vec::from_iter(0..SLOT_COUNT));
    assert!(tickets[1..].iter().all(|id| caller.is_answered(*id)));
}

/// The words are those that a hostile caller may write.
#[test]
fn a_request_is_read_within_bounds_whatever_its_words_are() {
    const MOST: u64 = (1 << 60) - 1;
    let page = CallMemory::alone();
    let server = Server::new(page.clone());
    let [what_at, size_at, more_at, added_at, ..] = CallMemory::slot_words(SLOT_COUNT - 1);
    // The three words of the trace stand before `bulk`.
    for (at, word) in [(added_at - 3, 1), (added_at - 2, 2), (added_at - 1, 3), (added_at, u64::MAX)] {
        page.scribble(at, word);
    }
    let call = |export, procedure, len| {
        let call = Call { export, ..call(procedure) };
        Request::Call { call, len, bulk: None }
    };
    let mut trace = [0; 24];
    for (bytes, word) in trace.chunks_exact_mut(8).zip(1u64..) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let traced = Call { export: 0, procedure: 0, within: None, trace: Some(trace) };
    let waiting = Call { within: Some(Duration::from_nanos(MOST)), trace: None, ..traced };
    let all = BulkArguments { ring: 0xffff % RING_COUNT, len: (1 << 48) - 1 };
    let rings = (RING_COUNT * FETCH_PARTS) as u64;
    let fetch = |ring, part, offset| Request::Fetch { ring, part, offset };
    let cases = [
        (7, 3 << 32 | SLOT_BODY_BYTES as u64, 0, call(7, 3, SLOT_BODY_BYTES)),
        (7, 3 << 32 | (SLOT_BODY_BYTES + 1) as u64, 0, Request::Nonsense),
        (u64::MAX, u64::MAX << 32, 0, call(u64::MAX, u32::MAX, 0)),
        (0, u32::MAX.into(), 0, Request::Nonsense),
        (0, 0, MOST, Request::Call { call: waiting, len: 0, bulk: None }),
        (0, 0, 1 << 62, Request::Call { call: traced, len: 0, bulk: None }),
        (0, 5, 1 << 63, Request::Call { call: Call { trace: None, ..traced }, len: 5, bulk: Some(all) }),
        (0, 0, 1 << 60, fetch(0, 0, 0)),
        (rings - 1, 0, 1 << 60 | MOST, fetch(RING_COUNT - 1, FETCH_PARTS - 1, MOST)),
        (rings, 0, 1 << 60, Request::Nonsense),
        (u64::MAX, 0, 1 << 60, Request::Nonsense),
        (u64::MAX, u64::MAX, 2 << 60, Request::Forget),
        (0, 0, 3 << 60, Request::Nonsense),
    ];
    for (what, size, more, expected) in cases {
        for (at, word) in [(what_at, what), (size_at, size), (more_at, more)] {
            page.scribble(at, word);
        }
        assert_eq!(server.request(SLOT_COUNT - 1), expected, "{what:#x} {size:#x} {more:#x}");
    }
}

/// The words are those that a hostile server may write.
#[test]
fn a_reply_is_read_within_bounds_whatever_its_words_are() {
    let page = CallMemory::alone();
    let caller = Arc::new(Caller::new(page.clone()));
    let id = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    let [.., len, stream, _] = CallMemory::slot_words(id.slot());
    page.scribble(len, u64::MAX);
    let mut body = Vec::new();
    assert_eq!((caller.answer(id, &mut body).1, body.len()), (u64::MAX, SLOT_BODY_BYTES));
    // The lowest 8 bits name a ring, from 1 to RING_COUNT. The bits above them are the request's number.
    for (word, is_streamed) in
        [(0, false), (1, true), (RING_COUNT, true), (RING_COUNT + 1, false), (255, false)]
    {
        page.scribble(stream, id.number() << 8 | word as u64);
        let found = (caller.has_result_ring(id), caller.result_ring(id).is_some());
        assert_eq!(found, (is_streamed, is_streamed), "{word}");
        page.scribble(stream, (id.number() + 1) << 8 | word as u64);
        assert!(!caller.has_result_ring(id));
    }
}

#[test]
fn the_caller_reads_each_status_as_the_server_wrote_it() {
    let (caller, server, mut cursor) = halves();
    let failed = |kind, ran| Status::Failed { kind, ran };
    let slot = caller.claim().unwrap();
    let failures = [failed(0, 0), failed(0x1234, 0x56), failed(u16::MAX, u8::MAX)];
    for status in [Status::Result, Status::Exception, Status::Part].into_iter().chain(failures) {
        let id = caller.call(slot, &call(1), &[], None);
        let (_, number) = server.take(&mut cursor).unwrap();
        server.answer(slot, number, status, &[]);
        assert_eq!(caller.answer(id, &mut Vec::new()), (status, 0));
        assert_eq!(caller.is_part(id), status == Status::Part);
    }
}

#[test]
fn what_is_fetched_comes_by_parts() {
    let (caller, server, mut cursor) = halves();
    let mut rings: Vec<_> = (0..RING_COUNT).map(|_| caller.argument_ring(Duration::ZERO).unwrap()).collect();
    let content = |ring: usize, part: usize| vec![(ring * FETCH_PARTS + part) as u8; 77];
    let slot = caller.claim().unwrap();
    for (which, ring) in rings.iter_mut().enumerate() {
        for part in 0..FETCH_PARTS {
            let id = caller.fetch(slot, ring, part, 4096);
            let (_, number) = server.take(&mut cursor).unwrap();
            assert_eq!(server.request(slot), Request::Fetch { ring: which, part, offset: 4096 });
            server.fill(which, part, &content(which, part));
            server.answer(slot, number, Status::Part, &[]);
            assert!(caller.is_answered(id) && caller.is_part(id));
        }
    }
    for (which, ring) in rings.iter().enumerate() {
        for part in 0..FETCH_PARTS {
            let mut drained = Vec::new();
            ring.drain(part, 77, &mut drained);
            assert_eq!(drained, content(which, part));
        }
    }
}

/// The server may write to the ring until it has answered the fetch.
#[test]
fn a_lane_with_an_unanswered_fetch_is_not_given_out_again() {
    let (caller, server, mut cursor) = halves();
    let _others: Vec<_> = (1..RING_COUNT).map(|_| caller.argument_ring(Duration::ZERO).unwrap()).collect();
    let fetch = || {
        let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
        let id = caller.fetch(caller.claim().unwrap(), &mut ring, 0, 0);
        (ring, id)
    };
    let mut answer = || {
        let (slot, number) = server.take(&mut cursor).unwrap();
        server.answer(slot, number, Status::Part, &[]);
    };
    // The ring is given out again in each of three cases: the fetch is answered; the fetch was answered, and
    // the server has answered a later request in its slot; the caller has said that the fetched part is
    // there.
    let (ring, id) = fetch();
    drop(ring);
    assert!(caller.argument_ring(Duration::ZERO).is_none());
    answer();
    assert_eq!(fetch().1.slot(), id.slot() + 1);
    answer();
    caller.call(id.slot() + 1, &call(1), &[], None);
    answer();
    let (mut ring, _) = fetch();
    ring.fetched();
    drop(ring);
    assert!(caller.argument_ring(Duration::ZERO).is_some());
}

/// A time limit that no test reaches.
const GUARD: Duration = Duration::from_secs(3600);

#[test]
fn a_caller_gets_a_free_lane_at_once_and_waits_if_there_is_none() {
    let (caller, ..) = halves();
    let mut rings: Vec<_> = (0..RING_COUNT).map(|_| caller.argument_ring(GUARD).unwrap()).collect();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| caller.argument_ring(GUARD).is_some());
        rings.pop();
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn a_caller_that_fills_a_lane_sleeps_until_it_has_room() {
    let (caller, server, _) = halves();
    let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
    assert!(ring.has_room());
    assert_eq!(ring.put(&bytes(RING_PARTS * PART_BYTES)), RING_PARTS * PART_BYTES);
    assert!(!ring.has_room());
    let sleep = || {
        while !ring.has_room() {
            ring.sleep(GUARD);
        }
    };
    wake_from_sleep(sleep, || server.consumers().iter_mut().for_each(|consumer| consumer.take(None)));
    assert_eq!(ring.put(&[1]), 1);
}

/// Returns `len` bytes, of which each part differs from the part before it.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect()
}

/// A ring that were used again before its call is taken would give the call the arguments of another one.
#[test]
fn a_lane_of_whole_parts_is_not_over_before_its_call_is_taken() {
    let (caller, server, mut cursor) = halves();
    let mut consumers = server.consumers();
    let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
    let _others: Vec<_> = (1..RING_COUNT).map(|_| caller.argument_ring(Duration::ZERO).unwrap()).collect();
    assert_eq!(ring.put(&bytes(2 * PART_BYTES)), 2 * PART_BYTES);
    let consumer = consumers.iter_mut().find_map(|one| one.renew().then_some(one)).unwrap();
    let mut arguments = Vec::new();
    while consumer.has_part() {
        consumer.take(Some(&mut arguments));
    }
    caller.call(caller.claim().unwrap(), &call(1), &[], Some(&mut ring));
    drop(ring);
    assert!(caller.argument_ring(Duration::ZERO).is_none());
    server.take(&mut cursor).unwrap();
    assert!(
        consumer.finish(2 * PART_BYTES as u64, Some(&mut arguments)) && arguments == bytes(2 * PART_BYTES)
    );
    assert!(caller.argument_ring(Duration::ZERO).is_some());
}

#[test]
fn arguments_go_by_a_lane_while_it_is_emptied() {
    let (caller, server, mut cursor) = halves();
    let _others: Vec<_> = (1..RING_COUNT).map(|_| caller.argument_ring(Duration::ZERO).unwrap()).collect();
    let mut consumers = server.consumers();
    // Each use begins anew, also after one whose call was never made.
    for (len, ahead) in
        [(PART_BYTES + 3, 1), (5, 0), (RING_PARTS * PART_BYTES + PART_BYTES / 2, RING_PARTS - 1)]
    {
        assert_eq!(caller.argument_ring(Duration::ZERO).unwrap().put(&bytes(PART_BYTES)), PART_BYTES);
        let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
        let all = bytes(len);
        // Not at the beginning of a word.
        assert_eq!(ring.put(&all[..3]), 3);
        let mut taken = 3 + ring.put(&all[3..]);
        assert_eq!(taken, len.min(RING_PARTS * PART_BYTES));
        assert!(server.has_parts(&mut cursor) && !server.has_parts(&mut cursor));
        let consumer = consumers.iter_mut().find_map(|one| one.renew().then_some(one)).unwrap();
        assert!(!consumer.renew());
        let mut arguments = Vec::new();
        for _ in 0..ahead {
            assert!(consumer.has_part());
            consumer.take(Some(&mut arguments));
        }
        assert!(!consumer.has_part());
        taken += ring.put(&all[taken..]);
        assert_eq!(taken, len);
        let id = caller.call(caller.claim().unwrap(), &call(1), &[1, 2], Some(&mut ring));
        let (slot, number) = server.take(&mut cursor).unwrap();
        let Request::Call { len: 2, bulk: Some(BulkArguments { len: added, .. }), .. } = server.request(slot)
        else {
            panic!("a call with arguments in a ring");
        };
        assert_eq!(added, len as u64);
        assert!(consumer.finish(added, Some(&mut arguments)) && arguments == all);
        // Nothing is there twice.
        assert!(!consumer.has_part());
        server.answer(slot, number, Status::Result, &[]);
        caller.release(id.slot());
    }
}

#[test]
fn a_lane_is_not_used_again_before_its_arguments_were_taken() {
    let (caller, server, mut cursor) = halves();
    let mut rings: Vec<_> = std::iter::from_fn(|| caller.argument_ring(Duration::ZERO)).collect();
    let mut last = rings.pop().unwrap();
    last.put(&[7; 100]);
    caller.call(caller.claim().unwrap(), &call(1), &[], Some(&mut last));
    drop(last);
    assert!(caller.argument_ring(Duration::ZERO).is_none());
    let (slot, _) = server.take(&mut cursor).unwrap();
    let Request::Call { bulk: Some(bulk), .. } = server.request(slot) else { panic!() };
    let mut consumer = server.consumers().into_iter().nth(bulk.ring).unwrap();
    assert!(consumer.finish(bulk.len, None));
    assert!(caller.argument_ring(Duration::ZERO).is_some());
}

#[test]
fn what_is_held_stands_there_until_the_lane_is_dropped() {
    let (caller, server, mut cursor) = halves();
    let content = |which: usize| vec![which as u8 + 1; PART_BYTES + 9];
    let mut held = Vec::new();
    while held.len() < RING_COUNT / 2 {
        let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
        assert!(!ring.is_held() && ring.hold() && ring.hold() && ring.is_held());
        let all = content(held.len());
        ring.put(&all);
        assert_eq!(ring.rest(), RING_PARTS * PART_BYTES - all.len());
        caller.call(caller.claim().unwrap(), &call(1), &[], Some(&mut ring));
        let (slot, _) = server.take(&mut cursor).unwrap();
        let Request::Call { bulk: Some(bulk), .. } = server.request(slot) else { panic!() };
        assert!(server.consumers()[bulk.ring].finish(bulk.len, None));
        held.push(ring);
    }
    // Others are left, for those who want none longer than it takes.
    let mut other = caller.argument_ring(Duration::ZERO).unwrap();
    assert!(!other.hold());
    for (which, ring) in held.iter().enumerate() {
        let mut copy = Vec::new();
        ring.copy(&mut copy);
        assert_eq!(copy, content(which));
    }
    if let Some(mut ring) = held.pop() {
        ring.let_go();
        assert!(!ring.is_held() && other.hold() && !ring.hold());
    }
}

#[test]
fn a_result_comes_by_a_lane_while_it_is_made() {
    let (caller, server, mut cursor) = halves();
    let mut producer = server.producers().into_iter().next().unwrap();
    for len in [10, PART_BYTES, RING_PARTS * PART_BYTES + 9] {
        let all = bytes(len);
        let id = caller.call(caller.claim().unwrap(), &call(1), &[], None);
        let (slot, number) = server.take(&mut cursor).unwrap();
        assert!(producer.is_over() && !caller.has_result_ring(id));
        producer.begin();
        server.start_result(slot, number, &producer, len as u64);
        let taken = producer.put(&all);
        assert_eq!(taken, len.min(producer.len() as usize));
        assert!(caller.has_result_ring(id) && !caller.is_answered(id));
        assert_eq!(caller.expected_bytes(id), len as u64);
        let mut consumer = caller.result_ring(id).unwrap();
        let mut body = Vec::new();
        while consumer.has_part() {
            consumer.take(Some(&mut body));
        }
        assert_eq!(taken + producer.put(&all[taken..]), len);
        server.end_result(slot, producer.len());
        server.answer(slot, number, Status::Result, &[1, 2, 3]);
        assert!(!producer.is_over() || len.is_multiple_of(PART_BYTES));
        assert!(consumer.finish(caller.ring_bytes(id), Some(&mut body)));
        assert_eq!(caller.answer(id, &mut body), (Status::Result, 3));
        assert!(body.starts_with(&all) && body.ends_with(&[1, 2, 3]) && body.len() == len + 3);
        assert!(producer.is_over());
        caller.release(slot);
    }
}

/// The caller puts as much as fits, and the rest when the server has made room.
#[test]
fn arguments_longer_than_a_lane_arrive_whole_while_the_server_empties_it() {
    let parts = if cfg!(miri) { 2 * RING_PARTS } else { 100 * RING_PARTS };
    let (caller, server, _) = halves();
    let consumers = server.consumers();
    let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
    let mut consumer = consumers.into_iter().find_map(|mut one| one.renew().then_some(one)).unwrap();
    let all = bytes(parts * PART_BYTES + 1);
    std::thread::scope(|scope| {
        let emptying = scope.spawn(move || {
            let mut arguments = Vec::new();
            while arguments.len() < parts * PART_BYTES {
                match consumer.has_part() {
                    true => consumer.take(Some(&mut arguments)),
                    false => std::thread::yield_now(),
                }
            }
            (consumer, arguments)
        });
        let mut taken = 0;
        while taken < all.len() {
            taken += ring.put(&all[taken..]);
        }
        // The call, which is made when all was put in, tells the server how much that is.
        let (mut consumer, mut arguments) = emptying.join().unwrap();
        assert!(consumer.finish(all.len() as u64, Some(&mut arguments)));
        assert!(arguments == all);
    });
}

#[test]
fn the_lane_of_an_abandoned_result_is_used_again() {
    let (caller, server, mut cursor) = halves();
    let mut producer = server.producers().into_iter().next().unwrap();
    let id = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    let (slot, number) = server.take(&mut cursor).unwrap();
    producer.begin();
    server.start_result(slot, number, &producer, 5000);
    producer.put(&bytes(PART_BYTES + 1));
    caller.abandon(id);
    caller.reclaim();
    assert!(!producer.is_over());
    server.end_result(slot, producer.len());
    server.answer(slot, number, Status::Result, &[]);
    caller.reclaim();
    assert!(producer.is_over());
    assert_eq!(caller.claim(), Some(slot));
}

#[test]
fn a_filler_has_only_the_room_that_was_emptied_in_its_present_use() {
    let (caller, server, mut cursor) = halves();
    let mut producer = server.producers().into_iter().next().unwrap();
    let all = RING_PARTS * PART_BYTES;
    let mut consumers = Vec::new();
    // The ring is used twice. The consumer of the first use (`former`) still empties a part during the second
    // use, and must make no room in it.
    for _ in 0..2 {
        let id = caller.call(caller.claim().unwrap(), &call(1), &[], None);
        let (slot, number) = server.take(&mut cursor).unwrap();
        producer.begin();
        server.start_result(slot, number, &producer, 1);
        consumers.push(caller.result_ring(id).unwrap());
        assert_eq!((producer.room(), producer.has_room(), producer.len()), (all, true, 0));
    }
    let [mut former, mut consumer] = consumers.try_into().unwrap();
    assert_eq!((producer.put(&[1; 3]), producer.room()), (3, all - 3));
    assert_eq!((producer.put(&vec![2; PART_BYTES - 3]), producer.room()), (PART_BYTES - 3, all - PART_BYTES));
    assert_eq!(
        (producer.put(&bytes(all)), producer.room(), producer.has_room()),
        (all - PART_BYTES, 0, false)
    );
    assert_eq!(producer.len(), all as u64);
    former.take(None);
    assert_eq!((former.has_part(), producer.room(), producer.put(&[1])), (false, 0, 0));
    consumer.take(None);
    assert_eq!((producer.room(), producer.has_room()), (PART_BYTES, true));
    // The other side makes no room either by saying that it has emptied parts that are not there yet.
    for _ in 0..=RING_PARTS {
        consumer.take(None);
    }
    assert_eq!((producer.room(), producer.put(&[1])), (0, 0));
}

#[test]
fn a_length_that_cannot_be_is_noticed() {
    let (caller, server, _) = halves();
    let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
    ring.put(&bytes(2 * PART_BYTES));
    let mut consumer = server.consumers().into_iter().next().unwrap();
    consumer.take(None);
    for len in [0, u64::MAX, ((RING_PARTS + 1) * PART_BYTES + 1) as u64] {
        let mut body = Vec::new();
        assert!(!consumer.finish(len, Some(&mut body)) && body.is_empty());
    }
    // The server never copies more than a ring holds.
    let mut body = Vec::new();
    assert!(consumer.finish(((RING_PARTS + 1) * PART_BYTES) as u64, Some(&mut body)));
    assert_eq!(body.len(), RING_PARTS * PART_BYTES);
}

#[test]
fn of_a_long_answer_the_slot_holds_the_beginning() {
    let (caller, server, mut cursor) = halves();
    let id = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    let (slot, number) = server.take(&mut cursor).unwrap();
    server.answer(slot, number, Status::Result, &vec![3; SLOT_BODY_BYTES + 1]);
    let mut beginning = Vec::new();
    assert_eq!(caller.answer(id, &mut beginning), (Status::Result, SLOT_BODY_BYTES as u64 + 1));
    assert_eq!(beginning, vec![3; SLOT_BODY_BYTES]);
}

#[test]
fn a_part_of_arguments_rings_the_server_before_its_call_is_made() {
    let (caller, server, mut cursor) = halves();
    let mut ring = caller.argument_ring(Duration::ZERO).unwrap();
    ring.put(&[1]);
    assert!(server.has_work(&cursor.seen()));
    assert!(server.has_parts(&mut cursor) && !server.has_work(&cursor.seen()));
}

#[test]
fn no_slot_is_claimed_by_two_threads_at_once() {
    const THREADS: usize = 4;
    let rounds = if cfg!(miri) { 1 } else { 200 };
    let (caller, barrier) = (halves().0, Barrier::new(THREADS));
    let claim_all = || {
        barrier.wait();
        Vec::from_iter(std::iter::from_fn(|| caller.claim()))
    };
    for _ in 0..rounds {
        let mut claimed = std::thread::scope(|scope| {
            let threads = [(); THREADS].map(|()| scope.spawn(claim_all));
            threads.map(|thread| thread.join().unwrap()).concat()
        });
        claimed.sort_unstable();
        assert_eq!(claimed, Vec::from_iter(0..SLOT_COUNT));
        claimed.into_iter().for_each(|slot| caller.release(slot));
    }
}

#[test]
fn an_abandoned_slot_is_used_again_when_it_is_answered() {
    let (caller, server, mut cursor) = halves();
    let tickets: Vec<_> =
        (0..SLOT_COUNT).map(|_| caller.call(caller.claim().unwrap(), &call(1), &[], None)).collect();
    caller.abandon(tickets[3]);
    assert_eq!(caller.claim(), None);
    while let Some((slot, number)) = server.take(&mut cursor) {
        server.answer(slot, number, Status::Result, &[]);
    }
    assert_eq!(caller.claim(), Some(tickets[3].slot()));
    assert_eq!((caller.claim(), caller.outstanding()), (None, SLOT_COUNT));
}

#[test]
fn the_slot_of_an_abandoned_long_answer_is_free_once_the_server_has_forgotten_the_answer() {
    for (status, len, is_kept) in [
        (Status::Result, SLOT_BODY_BYTES, false),
        (Status::Result, SLOT_BODY_BYTES + 1, true),
        (Status::Part, 0, true),
    ] {
        let (caller, server, mut cursor) = halves();
        let id = caller.call(caller.claim().unwrap(), &call(1), &[], None);
        assert_eq!(caller.outstanding(), 1);
        let (slot, number) = server.take(&mut cursor).unwrap();
        caller.abandon(id);
        server.answer(slot, number, status, &vec![1; len]);
        caller.reclaim();
        assert_eq!((server.has_work(&cursor.seen()), caller.outstanding()), (is_kept, usize::from(is_kept)));
        let Some((slot, number)) = server.take(&mut cursor) else { continue };
        assert_eq!(server.request(slot), Request::Forget);
        caller.reclaim();
        assert_eq!(caller.outstanding(), 1);
        // The caller tells the server once to forget the answer, whatever the server answers to that.
        server.answer(slot, number, status, &vec![1; len]);
        caller.reclaim();
        assert_eq!((server.take(&mut cursor), caller.outstanding()), (None, 0));
    }
}

#[test]
fn detaching_one_request_leaves_others_attached() {
    let (caller, server, mut cursor) = halves();
    let tickets = [(); 2].map(|()| caller.call(caller.claim().unwrap(), &call(1), &[], None));
    let taken = [(); 2].map(|()| server.take(&mut cursor).unwrap());
    caller.detach(tickets[1]);
    assert_eq!(taken.map(|(slot, number)| server.is_detached(slot, number)), [false, true]);
    let (slot, number) = taken[1];
    assert!(!server.is_detached(slot, number + 1), "the slot's next request is another one");
}

/// Runs `sleeper` in a thread of its own, calls `wake` once that thread sleeps, and waits until it ends.
fn wake_from_sleep(sleeper: impl FnOnce() + Send, wake: impl FnOnce()) {
    let (sender, ids) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            sender.send(threads::this()).unwrap();
            sleeper();
        });
        threads::once_asleep(ids.recv().unwrap(), wake);
    });
}

#[test]
fn caller_and_server_are_woken_by_each_other_and_by_their_own_process() {
    let (caller, server, mut cursor) = halves();
    let rest_until = |ready: &dyn Fn() -> bool| {
        while !ready() {
            let lying = caller.announce_sleep();
            if !ready() {
                caller.sleep_until_woken(lying, None);
            }
        }
    };
    let sleep_until = |ready: &dyn Fn() -> bool| {
        while !ready() {
            let lying = server.announce_sleep();
            if !ready() {
                server.sleep(lying);
            }
            server.announce_awake();
        }
    };
    let seen = cursor.seen();
    let claimed = caller.claim().unwrap();
    let make_call = || _ = caller.call(claimed, &call(1), &[], None);
    wake_from_sleep(|| sleep_until(&|| server.has_work(&seen)), make_call);
    let (slot, number) = server.take(&mut cursor).unwrap();
    server.answer(slot, number, Status::Result, &[]);

    let id = caller.call(claimed, &call(1), &[], None);
    let (slot, number) = server.take(&mut cursor).unwrap();
    assert!(caller.watch(id) && caller.watch(id));
    let answer = || server.answer(slot, number, Status::Result, &[]);
    wake_from_sleep(|| rest_until(&|| caller.is_answered(id)), answer);
    assert!(!caller.watch(id), "the answer is there");

    let id = caller.call(claimed, &call(1), &[], None);
    let (slot, number) = server.take(&mut cursor).unwrap();
    let wait = || {
        while !caller.is_answered(id) {
            caller.sleep(id, false, GUARD);
        }
    };
    wake_from_sleep(wait, || server.answer(slot, number, Status::Result, &[]));

    let over = [(); 2].map(|()| AtomicBool::new(false));
    let wake_caller = || {
        over[0].store(true, Ordering::Release);
        caller.wake();
    };
    wake_from_sleep(|| rest_until(&|| over[0].load(Ordering::Acquire)), wake_caller);
    let wake_server = || {
        over[1].store(true, Ordering::Release);
        server.wake();
    };
    wake_from_sleep(|| sleep_until(&|| over[1].load(Ordering::Acquire)), wake_server);
}

#[test]
fn two_threads() {
    let calls = if cfg!(miri) { 30 } else { 100_000 };
    let (caller, server, mut cursor) = halves();
    let serving = std::thread::spawn(move || {
        let mut body = Vec::new();
        for _ in 0..calls {
            let (slot, number) = loop {
                if let Some(taken) = server.take(&mut cursor) {
                    break taken;
                }
                let lying = server.announce_sleep();
                if !server.has_work(&cursor.seen()) {
                    server.sleep(lying);
                }
                server.announce_awake();
            };
            body.clear();
            server.arguments(slot, 24, &mut body);
            server.answer(slot, number, Status::Result, &body);
        }
    });
    let mut reply = Vec::new();
    for round in 0..calls {
        let arguments = [round as u8; 24];
        let id = caller.call(caller.claim().unwrap(), &call(1), &arguments, None);
        while !caller.is_answered(id) {
            caller.sleep(id, false, Duration::MAX);
        }
        reply.clear();
        caller.answer(id, &mut reply);
        assert_eq!(reply, arguments);
        caller.release(id.slot());
    }
    serving.join().unwrap();
}

#[test]
fn a_caller_learns_which_exports_have_drained() {
    let (caller, server, _) = halves();
    assert!(!caller.is_drained(7));
    server.tell_drained(Some(7));
    assert!(caller.is_drained(7) && !caller.is_drained(8));
    // The memory has room for a few. A caller of another one asks the server.
    let more = 100 + MAX_DRAINED as u64;
    (100..more).for_each(|export| server.tell_drained(Some(export)));
    assert!(caller.is_drained(7) && caller.is_drained(100) && !caller.is_drained(more - 1));
    server.tell_drained(None);
    assert!(caller.is_drained(8) && caller.is_drained(more - 1));
}
