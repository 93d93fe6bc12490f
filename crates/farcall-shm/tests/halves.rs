//! The two halves over one memory, without sockets: what one writes the other reads. Runs under Miri as well:
//! `cargo +nightly miri test -p farcall-shm --test halves`.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use farcall_shm::{Call, Caller, HALF, Half, INLINE, Page, Request, SLOTS, Server, Status, Taker};

fn halves() -> (Caller, Server, Taker) {
    let page = Page::alone();
    (Caller::new(page.clone()), Server::new(page), Taker::new())
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
        let ticket = caller.call(slot, &call, &[round; 21], false);
        assert!(server.is_rung(&taker.seen()));
        assert!(!caller.is_taken(ticket));
        let (taken, number) = server.take(&mut taker).unwrap();
        assert_eq!((taken, number), (slot, u32::from(round)));
        assert!(caller.is_taken(ticket) && !caller.is_answered(ticket));
        assert_eq!(server.request(slot), Request::Call { call, len: 21, added: false });
        let mut arguments = vec![9];
        server.arguments(slot, 21, &mut arguments);
        assert_eq!((arguments[0], &arguments[1..]), (9, &[round; 21][..]));
        server.answer(slot, number, Status::Exception, &[round; 13]);
        assert!(caller.is_answered(ticket));
        assert_eq!(caller.answer(ticket, &mut reply), (Status::Exception, 13));
        assert_eq!(reply, [round; 13]);
        caller.release(slot);
    }
}

#[test]
fn each_request_has_its_turn() {
    let (caller, server, mut taker) = halves();
    let tickets: Vec<_> =
        (0..SLOTS).map(|which| caller.call(caller.claim().unwrap(), &call(which as u32), &[], false)).collect();
    assert_eq!(caller.claim(), None);
    let mut order = Vec::new();
    while let Some((slot, number)) = server.take(&mut taker) {
        server.answer(slot, number, Status::Result, &[]);
        order.push(slot);
        // The first one comes again and again, and holds up nobody.
        if order.len() < 2 * SLOTS && slot == 0 {
            caller.call(0, &call(0), &[], false);
        }
    }
    assert_eq!(order[..SLOTS], Vec::from_iter(0..SLOTS));
    assert!(tickets[1..].iter().all(|ticket| caller.is_answered(*ticket)));
}

#[test]
fn what_is_large_goes_by_parts() {
    let (caller, server, mut taker) = halves();
    let lane = caller.lane(Duration::ZERO).unwrap();
    let slot = caller.claim().unwrap();
    let bytes: Vec<u8> = (0..HALF).map(|i| i as u8).collect();
    lane.fill(Half(1), &bytes);
    let ticket = caller.add(slot, &lane, Half(1), 1000, 5);
    let (taken, number) = server.take(&mut taker).unwrap();
    let Request::Add { lane: which, half: 1, len: 1000, offset: 5 } = server.request(taken) else { panic!() };
    let mut part = Vec::new();
    server.drain(which, 1, 1000, &mut part);
    assert_eq!(part, bytes[..1000]);
    server.answer(slot, number, Status::Part, &[]);
    assert!(caller.is_part(ticket));

    let ticket = caller.fetch(slot, &lane, Half(0), 4096);
    let (_, number) = server.take(&mut taker).unwrap();
    assert_eq!(server.request(slot), Request::Fetch { lane: which, half: 0, offset: 4096 });
    server.fill(which, 0, &bytes[..77]);
    server.answer(slot, number, Status::Part, &[]);
    assert!(caller.is_answered(ticket));
    let mut part = Vec::new();
    lane.drain(Half(0), 77, &mut part);
    assert_eq!(part, bytes[..77]);
}

#[test]
fn of_a_long_answer_the_slot_holds_the_beginning() {
    let (caller, server, mut taker) = halves();
    let ticket = caller.call(caller.claim().unwrap(), &call(1), &[], false);
    let (slot, number) = server.take(&mut taker).unwrap();
    server.answer(slot, number, Status::Result, &vec![3; INLINE + 1]);
    let mut beginning = Vec::new();
    assert_eq!(caller.answer(ticket, &mut beginning), (Status::Result, INLINE as u64 + 1));
    assert_eq!(beginning, vec![3; INLINE]);
}

#[test]
fn what_was_given_up_is_told_once_it_is_taken() {
    let (caller, server, mut taker) = halves();
    let first = caller.call(caller.claim().unwrap(), &call(1), &[], false);
    server.take(&mut taker).unwrap();
    let second = caller.call(caller.claim().unwrap(), &call(1), &[], false);
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
    let tickets: Vec<_> = (0..SLOTS).map(|_| caller.call(caller.claim().unwrap(), &call(1), &[], false)).collect();
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
    let caller = Arc::new(caller);
    let serving = std::thread::spawn(move || {
        let mut body = Vec::new();
        for _ in 0..calls {
            let (slot, number) = loop {
                if let Some(taken) = server.take(&mut taker) {
                    break taken;
                }
                server.lie_down();
                if !server.is_rung(&taker.seen()) {
                    server.sleep(None);
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
        let ticket = caller.call(caller.claim().unwrap(), &call(1), &arguments, false);
        while !caller.is_answered(ticket) {
            caller.sleep(ticket, None);
        }
        caller.answer(ticket, &mut reply);
        assert_eq!(reply, arguments);
        caller.release(ticket.slot());
    }
    serving.join().unwrap();
}
