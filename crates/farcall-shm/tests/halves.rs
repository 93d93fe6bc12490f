//! The two halves over one memory, without sockets: what one writes the other reads. Runs under Miri as well:
//! `cargo +nightly miri test -p farcall-shm --test halves`.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use farcall_shm::{Added, Call, Caller, INLINE, LANES, PART, PARTS, Page, Request, SLOTS, Server, Status, Taker};

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
        assert!(server.is_rung(&taker.seen()));
        assert!(!caller.is_taken(ticket));
        let (taken, number) = server.take(&mut taker).unwrap();
        assert_eq!((taken, number), (slot, u64::from(round)));
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
    let tickets: Vec<_> =
        (0..SLOTS).map(|which| caller.call(caller.claim().unwrap(), &call(which as u32), &[], None)).collect();
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

#[test]
fn what_is_fetched_comes_by_parts() {
    let (caller, server, mut taker) = halves();
    let mut lane = caller.lane(Duration::ZERO).unwrap();
    let slot = caller.claim().unwrap();
    let ticket = caller.fetch(slot, &mut lane, 1, 4096);
    let (_, number) = server.take(&mut taker).unwrap();
    let Request::Fetch { lane: which, part: 1, offset: 4096 } = server.request(slot) else { panic!() };
    server.fill(which, 1, &[7; 77]);
    server.answer(slot, number, Status::Part, &[]);
    assert!(caller.is_answered(ticket) && caller.is_part(ticket));
    let mut part = Vec::new();
    lane.drain(1, 77, &mut part);
    assert_eq!(part, [7; 77]);
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ i >> 8) as u8).collect()
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
    let all = bytes(PART + 9);
    let mut held = Vec::new();
    while held.len() < LANES / 2 {
        let mut lane = caller.lane(Duration::ZERO).unwrap();
        assert!(lane.hold() && lane.hold() && lane.is_held());
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
    for lane in &held {
        let mut copy = Vec::new();
        lane.copy(&mut copy);
        assert_eq!(copy, all);
    }
    if held.pop().is_some() {
        assert!(other.hold());
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
}

#[test]
fn an_abandoned_slot_is_used_again_when_it_is_answered() {
    let (caller, server, mut taker) = halves();
    let tickets: Vec<_> = (0..SLOTS).map(|_| caller.call(caller.claim().unwrap(), &call(1), &[], None)).collect();
    caller.abandon(tickets[3]);
    assert_eq!(caller.claim(), None);
    while let Some((slot, number)) = server.take(&mut taker) {
        server.answer(slot, number, Status::Result, &[]);
    }
    assert_eq!(caller.claim(), Some(tickets[3].slot()));
    assert_eq!(caller.claim(), None);
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
