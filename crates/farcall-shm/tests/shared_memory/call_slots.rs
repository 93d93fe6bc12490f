//! The two halves over one memory, without sockets: what one writes the other reads. Runs under Miri as well:
//! `cargo +nightly miri test -p farcall-shm --test shared_memory`.

use crate::threads;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

use farcall_shm::{
    Added, Call, Caller, FETCHED, INLINE, LANES, PART, PARTS, Page, Request, SLOTS, Server, Status, Taker,
};

fn halves() -> (Arc<Caller>, Server, Taker) {
    let page = Page::alone();
    (Arc::new(Caller::new(page.clone())), Server::new(page), Taker::new())
}

fn call(procedure: u32) -> Call {
    Call { export: 7, procedure, within: None, trace: None }
}

#[test]
fn a_call_and_its_answer() {
    let (caller, server, mut taker) = halves();
    let mut reply = Vec::new();
    for round in 1..=3 {
        let slot = caller.claim().unwrap();
        let call = Call { within: Some(Duration::from_micros(5)), trace: Some([round; 24]), ..call(2) };
        assert!(!server.is_rung(&taker.seen()));
        let ticket = caller.call(slot, &call, &[round; 21], None);
        assert_eq!((ticket.slot(), ticket.number()), (slot, u64::from(round)));
        assert!(server.is_rung(&taker.seen()));
        assert!(!caller.is_taken(ticket));
        let (taken, number) = server.take(&mut taker).unwrap();
        assert_eq!((taken, number, taker.number(slot)), (slot, u64::from(round), number));
        assert!(caller.is_taken(ticket) && !caller.is_answered(ticket));
        assert_eq!(server.request(slot), Request::Call { call, len: 21, added: None });
        let mut arguments = vec![9];
        server.arguments(slot, 21, &mut arguments);
        assert_eq!((arguments[0], &arguments[1..]), (9, &[round; 21][..]));
        server.answer(slot, number, Status::Exception, &[round; 13]);
        assert!(caller.is_answered(ticket));
        reply.clear();
        assert_eq!(caller.answer(ticket, &mut reply), (Status::Exception, 13));
        assert_eq!(reply, [round; 13]);
        caller.release(slot);
    }
}

#[test]
fn each_request_has_its_turn() {
    let (caller, server, mut taker) = halves();
    let tickets: Vec<_> = (0..SLOTS)
        .map(|which| caller.call(caller.claim().unwrap(), &call(which as u32), &[], None))
        .collect();
    assert_eq!(caller.claim(), None);
    let mut order = Vec::new();
    while let Some((slot, number)) = server.take(&mut taker) {
        server.answer(slot, number, Status::Result, &[]);
        order.push(slot);
        // The first one comes again and again, and holds up nobody.
        if order.len() < 2 * SLOTS && slot == 0 {
            caller.call(0, &call(0), &[], None);
        }
    }
    assert_eq!(order[..SLOTS], Vec::from_iter(0..SLOTS));
    assert!(tickets[1..].iter().all(|ticket| caller.is_answered(*ticket)));
}

/// The words are those that a hostile caller may write.
#[test]
fn a_request_is_read_within_bounds_whatever_its_words_are() {
    const MOST: u64 = (1 << 60) - 1;
    let page = Page::alone();
    let server = Server::new(page.clone());
    let [what_at, size_at, more_at, added_at, ..] = Page::slot_words(SLOTS - 1);
    // The three words of the trace stand before `added`.
    for (at, word) in [(added_at - 3, 1), (added_at - 2, 2), (added_at - 1, 3), (added_at, u64::MAX)] {
        page.scribble(at, word);
    }
    let call = |export, procedure, len| {
        let call = Call { export, ..call(procedure) };
        Request::Call { call, len, added: None }
    };
    let mut trace = [0; 24];
    for (bytes, word) in trace.chunks_exact_mut(8).zip(1u64..) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    let traced = Call { export: 0, procedure: 0, within: None, trace: Some(trace) };
    let waiting = Call { within: Some(Duration::from_nanos(MOST)), trace: None, ..traced };
    let all = Added { lane: 0xffff % LANES, len: (1 << 48) - 1 };
    let lanes = (LANES * FETCHED) as u64;
    let fetch = |lane, part, offset| Request::Fetch { lane, part, offset };
    let cases = [
        (7, 3 << 32 | INLINE as u64, 0, call(7, 3, INLINE)),
        (7, 3 << 32 | (INLINE + 1) as u64, 0, Request::Nonsense),
        (u64::MAX, u64::MAX << 32, 0, call(u64::MAX, u32::MAX, 0)),
        (0, u32::MAX.into(), 0, Request::Nonsense),
        (0, 0, MOST, Request::Call { call: waiting, len: 0, added: None }),
        (0, 0, 1 << 62, Request::Call { call: traced, len: 0, added: None }),
        (0, 5, 1 << 63, Request::Call { call: Call { trace: None, ..traced }, len: 5, added: Some(all) }),
        (0, 0, 1 << 60, fetch(0, 0, 0)),
        (lanes - 1, 0, 1 << 60 | MOST, fetch(LANES - 1, FETCHED - 1, MOST)),
        (lanes, 0, 1 << 60, Request::Nonsense),
        (u64::MAX, 0, 1 << 60, Request::Nonsense),
        (u64::MAX, u64::MAX, 2 << 60, Request::Forget),
        (0, 0, 3 << 60, Request::Nonsense),
    ];
    for (what, size, more, expected) in cases {
        for (at, word) in [(what_at, what), (size_at, size), (more_at, more)] {
            page.scribble(at, word);
        }
        assert_eq!(server.request(SLOTS - 1), expected, "{what:#x} {size:#x} {more:#x}");
    }
}

/// The words are those that a hostile server may write.
#[test]
fn a_reply_is_read_within_bounds_whatever_its_words_are() {
    let page = Page::alone();
    let caller = Arc::new(Caller::new(page.clone()));
    let ticket = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    let [.., len, stream, _] = Page::slot_words(ticket.slot());
    page.scribble(len, u64::MAX);
    let mut body = Vec::new();
    assert_eq!((caller.answer(ticket, &mut body).1, body.len()), (u64::MAX, INLINE));
    // The lowest 8 bits name a lane, from 1 to LANES. The bits above them are the request's number.
    for (word, is_streamed) in [(0, false), (1, true), (LANES, true), (LANES + 1, false), (255, false)] {
        page.scribble(stream, ticket.number() << 8 | word as u64);
        let found = (caller.is_streamed(ticket), caller.stream(ticket).is_some());
        assert_eq!(found, (is_streamed, is_streamed), "{word}");
        page.scribble(stream, (ticket.number() + 1) << 8 | word as u64);
        assert!(!caller.is_streamed(ticket));
    }
}

#[test]
fn the_caller_reads_each_status_as_the_server_wrote_it() {
    let (caller, server, mut taker) = halves();
    let failed = |kind, ran| Status::Failed { kind, ran };
    let slot = caller.claim().unwrap();
    let failures = [failed(0, 0), failed(0x1234, 0x56), failed(u16::MAX, u8::MAX)];
    for status in [Status::Result, Status::Exception, Status::Part].into_iter().chain(failures) {
        let ticket = caller.call(slot, &call(1), &[], None);
        let (_, number) = server.take(&mut taker).unwrap();
        server.answer(slot, number, status, &[]);
        assert_eq!(caller.answer(ticket, &mut Vec::new()), (status, 0));
        assert_eq!(caller.is_part(ticket), status == Status::Part);
    }
}

#[test]
fn what_is_fetched_comes_by_parts() {
    let (caller, server, mut taker) = halves();
    let mut lanes: Vec<_> = (0..LANES).map(|_| caller.lane(Duration::ZERO).unwrap()).collect();
    let content = |lane: usize, part: usize| vec![(lane * FETCHED + part) as u8; 77];
    let slot = caller.claim().unwrap();
    for (which, lane) in lanes.iter_mut().enumerate() {
        for part in 0..FETCHED {
            let ticket = caller.fetch(slot, lane, part, 4096);
            let (_, number) = server.take(&mut taker).unwrap();
            assert_eq!(server.request(slot), Request::Fetch { lane: which, part, offset: 4096 });
            server.fill(which, part, &content(which, part));
            server.answer(slot, number, Status::Part, &[]);
            assert!(caller.is_answered(ticket) && caller.is_part(ticket));
        }
    }
    for (which, lane) in lanes.iter().enumerate() {
        for part in 0..FETCHED {
            let mut drained = Vec::new();
            lane.drain(part, 77, &mut drained);
            assert_eq!(drained, content(which, part));
        }
    }
}

/// The server may write to the lane until it has answered the fetch.
#[test]
fn a_lane_with_an_unanswered_fetch_is_not_given_out_again() {
    let (caller, server, mut taker) = halves();
    let _others: Vec<_> = (1..LANES).map(|_| caller.lane(Duration::ZERO).unwrap()).collect();
    let fetch = || {
        let mut lane = caller.lane(Duration::ZERO).unwrap();
        let ticket = caller.fetch(caller.claim().unwrap(), &mut lane, 0, 0);
        (lane, ticket)
    };
    let mut answer = || {
        let (slot, number) = server.take(&mut taker).unwrap();
        server.answer(slot, number, Status::Part, &[]);
    };
    // The lane is given out again in each of three cases: the fetch is answered; the fetch was answered, and
    // the server has answered a later request in its slot; the caller has said that the fetched part is
    // there.
    let (lane, ticket) = fetch();
    drop(lane);
    assert!(caller.lane(Duration::ZERO).is_none());
    answer();
    assert_eq!(fetch().1.slot(), ticket.slot() + 1);
    answer();
    caller.call(ticket.slot() + 1, &call(1), &[], None);
    answer();
    let (mut lane, _) = fetch();
    lane.fetched();
    drop(lane);
    assert!(caller.lane(Duration::ZERO).is_some());
}

/// A time limit that no test reaches.
const GUARD: Duration = Duration::from_secs(3600);

#[test]
fn a_caller_gets_a_free_lane_at_once_and_waits_if_there_is_none() {
    let (caller, ..) = halves();
    let mut lanes: Vec<_> = (0..LANES).map(|_| caller.lane(GUARD).unwrap()).collect();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| caller.lane(GUARD).is_some());
        lanes.pop();
        assert!(waiting.join().unwrap());
    });
}

#[test]
fn a_caller_that_fills_a_lane_sleeps_until_it_has_room() {
    let (caller, server, _) = halves();
    let mut lane = caller.lane(Duration::ZERO).unwrap();
    assert!(lane.has_room());
    assert_eq!(lane.put(&bytes(PARTS * PART)), PARTS * PART);
    assert!(!lane.has_room());
    let sleep = || {
        while !lane.has_room() {
            lane.sleep(GUARD);
        }
    };
    wake_from_sleep(sleep, || server.emptiers().iter_mut().for_each(|emptier| emptier.take(None)));
    assert_eq!(lane.put(&[1]), 1);
}

/// Returns `len` bytes, of which each part differs from the part before it.
fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8 ^ i >> 16) as u8).collect()
}

/// A lane that were used again before its call is taken would give the call the arguments of another one.
#[test]
fn a_lane_of_whole_parts_is_not_over_before_its_call_is_taken() {
    let (caller, server, mut taker) = halves();
    let mut emptiers = server.emptiers();
    let mut lane = caller.lane(Duration::ZERO).unwrap();
    let _others: Vec<_> = (1..LANES).map(|_| caller.lane(Duration::ZERO).unwrap()).collect();
    assert_eq!(lane.put(&bytes(2 * PART)), 2 * PART);
    let emptier = emptiers.iter_mut().find_map(|one| one.renew().then_some(one)).unwrap();
    let mut arguments = Vec::new();
    while emptier.has_part() {
        emptier.take(Some(&mut arguments));
    }
    caller.call(caller.claim().unwrap(), &call(1), &[], Some(&mut lane));
    drop(lane);
    assert!(caller.lane(Duration::ZERO).is_none());
    server.take(&mut taker).unwrap();
    assert!(emptier.finish(2 * PART as u64, Some(&mut arguments)) && arguments == bytes(2 * PART));
    assert!(caller.lane(Duration::ZERO).is_some());
}

#[test]
fn arguments_go_by_a_lane_while_it_is_emptied() {
    let (caller, server, mut taker) = halves();
    let _others: Vec<_> = (1..LANES).map(|_| caller.lane(Duration::ZERO).unwrap()).collect();
    let mut emptiers = server.emptiers();
    // Each use begins anew, also after one whose call was never made.
    for (len, ahead) in [(PART + 3, 1), (5, 0), (PARTS * PART + PART / 2, PARTS - 1)] {
        assert_eq!(caller.lane(Duration::ZERO).unwrap().put(&bytes(PART)), PART);
        let mut lane = caller.lane(Duration::ZERO).unwrap();
        let all = bytes(len);
        // Not at the beginning of a word.
        assert_eq!(lane.put(&all[..3]), 3);
        let mut taken = 3 + lane.put(&all[3..]);
        assert_eq!(taken, len.min(PARTS * PART));
        assert!(server.has_parts(&mut taker) && !server.has_parts(&mut taker));
        let emptier = emptiers.iter_mut().find_map(|one| one.renew().then_some(one)).unwrap();
        assert!(!emptier.renew());
        let mut arguments = Vec::new();
        for _ in 0..ahead {
            assert!(emptier.has_part());
            emptier.take(Some(&mut arguments));
        }
        assert!(!emptier.has_part());
        taken += lane.put(&all[taken..]);
        assert_eq!(taken, len);
        let ticket = caller.call(caller.claim().unwrap(), &call(1), &[1, 2], Some(&mut lane));
        let (slot, number) = server.take(&mut taker).unwrap();
        let Request::Call { len: 2, added: Some(Added { len: added, .. }), .. } = server.request(slot) else {
            panic!("a call with arguments in a lane");
        };
        assert_eq!(added, len as u64);
        assert!(emptier.finish(added, Some(&mut arguments)) && arguments == all);
        // Nothing is there twice.
        assert!(!emptier.has_part());
        server.answer(slot, number, Status::Result, &[]);
        caller.release(ticket.slot());
    }
}

#[test]
fn a_lane_is_not_used_again_before_its_arguments_were_taken() {
    let (caller, server, mut taker) = halves();
    let mut lanes: Vec<_> = std::iter::from_fn(|| caller.lane(Duration::ZERO)).collect();
    let mut last = lanes.pop().unwrap();
    last.put(&[7; 100]);
    caller.call(caller.claim().unwrap(), &call(1), &[], Some(&mut last));
    drop(last);
    assert!(caller.lane(Duration::ZERO).is_none());
    let (slot, _) = server.take(&mut taker).unwrap();
    let Request::Call { added: Some(added), .. } = server.request(slot) else { panic!() };
    let mut emptier = server.emptiers().into_iter().nth(added.lane).unwrap();
    assert!(emptier.finish(added.len, None));
    assert!(caller.lane(Duration::ZERO).is_some());
}

#[test]
fn what_is_held_stands_there_until_the_lane_is_dropped() {
    let (caller, server, mut taker) = halves();
    let content = |which: usize| vec![which as u8 + 1; PART + 9];
    let mut held = Vec::new();
    while held.len() < LANES / 2 {
        let mut lane = caller.lane(Duration::ZERO).unwrap();
        assert!(!lane.is_held() && lane.hold() && lane.hold() && lane.is_held());
        let all = content(held.len());
        lane.put(&all);
        assert_eq!(lane.rest(), PARTS * PART - all.len());
        caller.call(caller.claim().unwrap(), &call(1), &[], Some(&mut lane));
        let (slot, _) = server.take(&mut taker).unwrap();
        let Request::Call { added: Some(added), .. } = server.request(slot) else { panic!() };
        assert!(server.emptiers()[added.lane].finish(added.len, None));
        held.push(lane);
    }
    // Others are left, for those who want none longer than it takes.
    let mut other = caller.lane(Duration::ZERO).unwrap();
    assert!(!other.hold());
    for (which, lane) in held.iter().enumerate() {
        let mut copy = Vec::new();
        lane.copy(&mut copy);
        assert_eq!(copy, content(which));
    }
    if let Some(mut lane) = held.pop() {
        lane.let_go();
        assert!(!lane.is_held() && other.hold() && !lane.hold());
    }
}

#[test]
fn a_result_comes_by_a_lane_while_it_is_made() {
    let (caller, server, mut taker) = halves();
    let mut filler = server.fillers().into_iter().next().unwrap();
    for len in [10, PART, PARTS * PART + 9] {
        let all = bytes(len);
        let ticket = caller.call(caller.claim().unwrap(), &call(1), &[], None);
        let (slot, number) = server.take(&mut taker).unwrap();
        assert!(filler.is_over() && !caller.is_streamed(ticket));
        filler.begin();
        server.stream(slot, number, &filler, len as u64);
        let taken = filler.put(&all);
        assert_eq!(taken, len.min(filler.len() as usize));
        assert!(caller.is_streamed(ticket) && !caller.is_answered(ticket));
        assert_eq!(caller.expected(ticket), len as u64);
        let mut emptier = caller.stream(ticket).unwrap();
        let mut body = Vec::new();
        while emptier.has_part() {
            emptier.take(Some(&mut body));
        }
        assert_eq!(taken + filler.put(&all[taken..]), len);
        server.streamed(slot, filler.len());
        server.answer(slot, number, Status::Result, &[1, 2, 3]);
        assert!(!filler.is_over() || len.is_multiple_of(PART));
        assert!(emptier.finish(caller.streamed(ticket), Some(&mut body)));
        assert_eq!(caller.answer(ticket, &mut body), (Status::Result, 3));
        assert!(body.starts_with(&all) && body.ends_with(&[1, 2, 3]) && body.len() == len + 3);
        assert!(filler.is_over());
        caller.release(slot);
    }
}

/// The caller puts as much as fits, and the rest when the server has made room.
#[test]
fn arguments_longer_than_a_lane_arrive_whole_while_the_server_empties_it() {
    let parts = if cfg!(miri) { 2 * PARTS } else { 100 * PARTS };
    let (caller, server, _) = halves();
    let emptiers = server.emptiers();
    let mut lane = caller.lane(Duration::ZERO).unwrap();
    let mut emptier = emptiers.into_iter().find_map(|mut one| one.renew().then_some(one)).unwrap();
    let all = bytes(parts * PART + 1);
    std::thread::scope(|scope| {
        let emptying = scope.spawn(move || {
            let mut arguments = Vec::new();
            while arguments.len() < parts * PART {
                match emptier.has_part() {
                    true => emptier.take(Some(&mut arguments)),
                    false => std::thread::yield_now(),
                }
            }
            (emptier, arguments)
        });
        let mut taken = 0;
        while taken < all.len() {
            taken += lane.put(&all[taken..]);
        }
        // The call, which is made when all was put in, tells the server how much that is.
        let (mut emptier, mut arguments) = emptying.join().unwrap();
        assert!(emptier.finish(all.len() as u64, Some(&mut arguments)));
        assert!(arguments == all);
    });
}

#[test]
fn the_lane_of_an_abandoned_result_is_used_again() {
    let (caller, server, mut taker) = halves();
    let mut filler = server.fillers().into_iter().next().unwrap();
    let ticket = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    let (slot, number) = server.take(&mut taker).unwrap();
    filler.begin();
    server.stream(slot, number, &filler, 5000);
    filler.put(&bytes(PART + 1));
    caller.abandon(ticket);
    caller.reclaim();
    assert!(!filler.is_over());
    server.streamed(slot, filler.len());
    server.answer(slot, number, Status::Result, &[]);
    caller.reclaim();
    assert!(filler.is_over());
    assert_eq!(caller.claim(), Some(slot));
}

#[test]
fn a_filler_has_only_the_room_that_was_emptied_in_its_present_use() {
    let (caller, server, mut taker) = halves();
    let mut filler = server.fillers().into_iter().next().unwrap();
    let all = PARTS * PART;
    let mut emptiers = Vec::new();
    // The lane is used twice. The emptier of the first use (`former`) still empties a part during the second
    // use, and must make no room in it.
    for _ in 0..2 {
        let ticket = caller.call(caller.claim().unwrap(), &call(1), &[], None);
        let (slot, number) = server.take(&mut taker).unwrap();
        filler.begin();
        server.stream(slot, number, &filler, 1);
        emptiers.push(caller.stream(ticket).unwrap());
        assert_eq!((filler.room(), filler.has_room(), filler.len()), (all, true, 0));
    }
    let [mut former, mut emptier] = emptiers.try_into().unwrap();
    assert_eq!((filler.put(&[1; 3]), filler.room()), (3, all - 3));
    assert_eq!((filler.put(&vec![2; PART - 3]), filler.room()), (PART - 3, all - PART));
    assert_eq!((filler.put(&bytes(all)), filler.room(), filler.has_room()), (all - PART, 0, false));
    assert_eq!(filler.len(), all as u64);
    former.take(None);
    assert_eq!((former.has_part(), filler.room(), filler.put(&[1])), (false, 0, 0));
    emptier.take(None);
    assert_eq!((filler.room(), filler.has_room()), (PART, true));
    // The other side makes no room either by saying that it has emptied parts that are not there yet.
    for _ in 0..=PARTS {
        emptier.take(None);
    }
    assert_eq!((filler.room(), filler.put(&[1])), (0, 0));
}

#[test]
fn a_length_that_cannot_be_is_noticed() {
    let (caller, server, _) = halves();
    let mut lane = caller.lane(Duration::ZERO).unwrap();
    lane.put(&bytes(2 * PART));
    let mut emptier = server.emptiers().into_iter().next().unwrap();
    emptier.take(None);
    for len in [0, u64::MAX, ((PARTS + 1) * PART + 1) as u64] {
        let mut body = Vec::new();
        assert!(!emptier.finish(len, Some(&mut body)) && body.is_empty());
    }
    // The server never copies more than a lane holds.
    let mut body = Vec::new();
    assert!(emptier.finish(((PARTS + 1) * PART) as u64, Some(&mut body)));
    assert_eq!(body.len(), PARTS * PART);
}

#[test]
fn of_a_long_answer_the_slot_holds_the_beginning() {
    let (caller, server, mut taker) = halves();
    let ticket = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    let (slot, number) = server.take(&mut taker).unwrap();
    server.answer(slot, number, Status::Result, &vec![3; INLINE + 1]);
    let mut beginning = Vec::new();
    assert_eq!(caller.answer(ticket, &mut beginning), (Status::Result, INLINE as u64 + 1));
    assert_eq!(beginning, vec![3; INLINE]);
}

#[test]
fn what_was_given_up_is_told_once_it_is_taken() {
    let (caller, server, mut taker) = halves();
    // The calls below get the last two slots, whose bits are in the last word of the bitmap.
    for _ in 0..SLOTS - 2 {
        caller.claim().unwrap();
    }
    let first = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    server.take(&mut taker).unwrap();
    let second = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    for ticket in [second, first, first] {
        caller.give_up(ticket);
    }
    assert_eq!(server.given_up(&mut taker), Some(first.slot()));
    assert_eq!(server.given_up(&mut taker), None, "the second is not taken yet");
    assert!(server.is_rung(&taker.seen()));
    server.take(&mut taker).unwrap();
    assert_eq!(server.given_up(&mut taker), Some(second.slot()));
    assert_eq!(server.given_up(&mut taker), None);
    assert!(!server.is_rung(&taker.seen()));
    // The same slots again: the server is rung for no other reason than that a call was given up.
    for slot in [first, second].map(|ticket| ticket.slot()) {
        let ticket = caller.call(slot, &call(1), &[], None);
        server.take(&mut taker).unwrap();
        assert!(!server.is_rung(&taker.seen()));
        caller.give_up(ticket);
        assert!(server.is_rung(&taker.seen()));
        assert_eq!([(); 2].map(|()| server.given_up(&mut taker)), [Some(slot), None]);
    }
}

#[test]
fn a_part_of_arguments_rings_the_server_before_its_call_is_made() {
    let (caller, server, mut taker) = halves();
    let mut lane = caller.lane(Duration::ZERO).unwrap();
    lane.put(&[1]);
    assert!(server.is_rung(&taker.seen()));
    assert!(server.has_parts(&mut taker) && !server.is_rung(&taker.seen()));
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
        assert_eq!(claimed, Vec::from_iter(0..SLOTS));
        claimed.into_iter().for_each(|slot| caller.release(slot));
    }
}

#[test]
fn an_abandoned_slot_is_used_again_when_it_is_answered() {
    let (caller, server, mut taker) = halves();
    let tickets: Vec<_> =
        (0..SLOTS).map(|_| caller.call(caller.claim().unwrap(), &call(1), &[], None)).collect();
    caller.abandon(tickets[3]);
    assert_eq!(caller.claim(), None);
    while let Some((slot, number)) = server.take(&mut taker) {
        server.answer(slot, number, Status::Result, &[]);
    }
    assert_eq!(caller.claim(), Some(tickets[3].slot()));
    assert_eq!((caller.claim(), caller.outstanding()), (None, SLOTS));
}

#[test]
fn the_slot_of_an_abandoned_long_answer_is_free_once_the_server_has_forgotten_the_answer() {
    for (status, len, is_kept) in
        [(Status::Result, INLINE, false), (Status::Result, INLINE + 1, true), (Status::Part, 0, true)]
    {
        let (caller, server, mut taker) = halves();
        let ticket = caller.call(caller.claim().unwrap(), &call(1), &[], None);
        assert_eq!(caller.outstanding(), 1);
        let (slot, number) = server.take(&mut taker).unwrap();
        caller.abandon(ticket);
        server.answer(slot, number, status, &vec![1; len]);
        caller.reclaim();
        assert_eq!((server.is_rung(&taker.seen()), caller.outstanding()), (is_kept, usize::from(is_kept)));
        let Some((slot, number)) = server.take(&mut taker) else { continue };
        assert_eq!(server.request(slot), Request::Forget);
        caller.reclaim();
        assert_eq!(caller.outstanding(), 1);
        // The caller tells the server once to forget the answer, whatever the server answers to that.
        server.answer(slot, number, status, &vec![1; len]);
        caller.reclaim();
        assert_eq!((server.take(&mut taker), caller.outstanding()), (None, 0));
    }
}

#[test]
fn detaching_one_request_leaves_others_attached() {
    let (caller, server, mut taker) = halves();
    let tickets = [(); 2].map(|()| caller.call(caller.claim().unwrap(), &call(1), &[], None));
    let taken = [(); 2].map(|()| server.take(&mut taker).unwrap());
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
    let (caller, server, mut taker) = halves();
    let rest_until = |ready: &dyn Fn() -> bool| {
        while !ready() {
            let lying = caller.lie_down();
            if !ready() {
                caller.rest(lying, None);
            }
        }
    };
    let sleep_until = |ready: &dyn Fn() -> bool| {
        while !ready() {
            let lying = server.lie_down();
            if !ready() {
                server.sleep(lying);
            }
            server.get_up();
        }
    };
    let seen = taker.seen();
    let claimed = caller.claim().unwrap();
    let make_call = || _ = caller.call(claimed, &call(1), &[], None);
    wake_from_sleep(|| sleep_until(&|| server.is_rung(&seen)), make_call);
    let (slot, number) = server.take(&mut taker).unwrap();
    server.answer(slot, number, Status::Result, &[]);

    let ticket = caller.call(claimed, &call(1), &[], None);
    let (slot, number) = server.take(&mut taker).unwrap();
    assert!(caller.watch(ticket) && caller.watch(ticket));
    let answer = || server.answer(slot, number, Status::Result, &[]);
    wake_from_sleep(|| rest_until(&|| caller.is_answered(ticket)), answer);
    assert!(!caller.watch(ticket), "the answer is there");

    let ticket = caller.call(claimed, &call(1), &[], None);
    let (slot, number) = server.take(&mut taker).unwrap();
    let wait = || {
        while !caller.is_answered(ticket) {
            caller.sleep(ticket, false, GUARD);
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
    let (caller, server, mut taker) = halves();
    let serving = std::thread::spawn(move || {
        let mut body = Vec::new();
        for _ in 0..calls {
            let (slot, number) = loop {
                if let Some(taken) = server.take(&mut taker) {
                    break taken;
                }
                let lying = server.lie_down();
                if !server.is_rung(&taker.seen()) {
                    server.sleep(lying);
                }
                server.get_up();
            };
            body.clear();
            server.arguments(slot, 24, &mut body);
            server.answer(slot, number, Status::Result, &body);
        }
    });
    let mut reply = Vec::new();
    for round in 0..calls {
        let arguments = [round as u8; 24];
        let ticket = caller.call(caller.claim().unwrap(), &call(1), &arguments, None);
        while !caller.is_answered(ticket) {
            caller.sleep(ticket, false, Duration::MAX);
        }
        reply.clear();
        caller.answer(ticket, &mut reply);
        assert_eq!(reply, arguments);
        caller.release(ticket.slot());
    }
    serving.join().unwrap();
}
