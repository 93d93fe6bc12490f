//! The two halves of shared memory, each with a peer that writes anything into it at any time, and how a peer
//! begins.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use farcall_shm::{
    Call, Caller, FETCHED, Hello, INLINE, LANES, PART, PARTS, Page, Request, SLOTS, Server, Status, Taker,
    Ticket,
};

use crate::script::Script;

/// What an importer says first, to call or to map a segment: what is a hello is written as it was read.
pub fn shm_hello(data: &[u8]) {
    let Some(hello) = Hello::from_bytes(data) else { return };
    assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
    assert_eq!(hello.to_bytes(), data);
}

/// A script of what a caller writes, and of what an honest server does.
///
/// | step | operands |
/// |---|---|
/// | 0–2 the caller writes a word | byte: before, or in, the first slots, or anywhere; text: where, what |
/// | 3 the server takes a request | |
/// | 4 the server looks for what was given up | |
/// | 5 the server answers a request | byte: which; filling |
pub fn memory_server(data: &[u8]) {
    let page = Page::alone();
    let (server, mut taker) = (Server::new(page.clone()), Taker::new());
    let mut script = Script::new(data);
    let mut emptiers = server.emptiers();
    let (mut numbers, mut taken) = ([0; SLOTS], Vec::new());
    while let Some(step) = script.step() {
        match step % 6 {
            3 => {
                let Some((slot, number)) = server.take(&mut taker) else { continue };
                numbers[slot] += 1;
                assert_eq!(number, numbers[slot], "a request is taken once");
                assert_eq!(taker.number(slot), number);
                check_request(&server, slot);
                taken.push((slot, number));
            }
            4 if server.has_parts(&mut taker) => emptiers.iter_mut().for_each(|lane| {
                lane.renew();
                if lane.has_part() {
                    lane.take(None);
                }
            }),
            4 => assert!(server.given_up(&mut taker).is_none_or(|slot| slot < SLOTS)),
            5 => {
                let Some((slot, number)) = script.pick(&taken) else { continue };
                server.answer(slot, number, Status::Result, &script.filling());
            }
            _ => scribble(&page, &mut script),
        }
    }
    // While nobody writes, looking ends.
    assert!((0..=2 * SLOTS).any(|_| server.take(&mut taker).is_none()));
    assert!((0..=SLOTS).any(|_| server.given_up(&mut taker).is_none()));
    server.has_parts(&mut taker);
    assert!(!server.is_rung(&taker.seen()));
}

fn check_request(server: &Server, slot: usize) {
    let mut body = Vec::new();
    match server.request(slot) {
        Request::Call { len, added, .. } => {
            assert!(len <= INLINE && added.is_none_or(|added| added.lane < LANES));
            server.arguments(slot, len, &mut body);
            assert_eq!(body.len(), len);
        }
        Request::Fetch { lane, part, .. } => {
            assert!(lane < LANES && part < FETCHED);
            server.fill(lane, part, &[1, 2, 3]);
        }
        Request::Forget | Request::Nonsense => {}
    }
}

/// A script of what a server writes, and of what an honest caller does.
///
/// | step | operands |
/// |---|---|
/// | 0–2 the server writes a word | as above |
/// | 3 the caller makes a call | filling |
/// | 4 the caller looks for an answer | byte: which |
/// | 5 the caller gives a call up | byte: which |
/// | 6 the caller waits, and has somebody watch | byte: which |
/// | 7 the caller empties a lane | text: its length |
pub fn memory_caller(data: &[u8]) {
    let page = Page::alone();
    let caller = Arc::new(Caller::new(page.clone()));
    let mut script = Script::new(data);
    let mut under_way: Vec<Ticket> = Vec::new();
    let mut body = Vec::new();
    while let Some(step) = script.step() {
        match step % 8 {
            3 => {
                let arguments = script.filling();
                let Some(slot) = caller.claim() else { continue };
                assert!(
                    slot < SLOTS && under_way.iter().all(|ticket| ticket.slot() != slot),
                    "nobody else has it"
                );
                let call = Call { export: 1, procedure: 2, within: None, trace: None };
                under_way.push(caller.call(slot, &call, &arguments[..arguments.len().min(INLINE)], None));
            }
            4 => {
                let Some(ticket) = script.pick(&under_way).filter(|ticket| caller.is_answered(*ticket))
                else {
                    continue;
                };
                body.clear();
                if let Some(mut lane) = caller.stream(ticket) {
                    while lane.has_part() && body.len() < PARTS * PART {
                        lane.take(Some(&mut body));
                    }
                    lane.finish(caller.streamed(ticket), Some(&mut body));
                    assert!(body.len() <= 2 * PARTS * PART);
                    body.clear();
                }
                caller.answer(ticket, &mut body);
                assert!(body.len() <= INLINE);
                caller.release(ticket.slot());
                under_way.retain(|other| *other != ticket);
            }
            5 => {
                let Some(ticket) = script.pick(&under_way) else { continue };
                caller.give_up(ticket);
                caller.abandon(ticket);
                under_way.retain(|other| *other != ticket);
            }
            6 => {
                let Some(ticket) = script.pick(&under_way) else { continue };
                caller.sleep(ticket, false, Duration::ZERO);
                caller.watch(ticket);
                caller.is_taken(ticket);
            }
            7 => {
                let Some(lane) = caller.lane(Duration::ZERO) else { continue };
                body.clear();
                lane.drain(1, script.text().len() << 8, &mut body);
                assert!(body.len() <= PART);
            }
            _ => scribble(&page, &mut script),
        }
    }
    let slots: HashSet<usize> = under_way.iter().map(|ticket| ticket.slot()).collect();
    assert_eq!(slots.len(), under_way.len());
}

/// The peer writes a word.
fn scribble(page: &Arc<Page>, script: &mut Script<'_>) {
    let region = script.byte();
    let (at, word) = (number(script.text()) as usize, number(script.text()));
    let at = match region % 3 {
        0 => at % Page::slot_words(0)[0],
        1 => Page::slot_words(at >> 3 & 3)[at & 7],
        _ => at % Page::WORDS,
    };
    page.scribble(at, word);
}

fn number(text: &[u8]) -> u64 {
    text.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
