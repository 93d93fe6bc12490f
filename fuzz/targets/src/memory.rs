//! Fuzz targets for calls through shared memory: the server's side and the caller's side, each with a peer
//! that writes any words into the memory at any time, and the message by which a peer begins.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use farcall_shm::{
    Call, CallMemory, Caller, FETCH_PARTS, Hello, KeyedHello, PART_BYTES, RING_COUNT, RING_PARTS, Request,
    RequestCursor, RequestId, SLOT_BODY_BYTES, SLOT_COUNT, Server, Status,
};

use crate::script::Script;

/// Reads a hello, the first message of an importer, which wants to call or to map a segment, and the hello of
/// an importer with keys. A hello that was read is written as the same bytes.
pub fn shm_hello(data: &[u8]) {
    if let Some(KeyedHello { proof, ticket, hello, body }) = KeyedHello::from_bytes(data) {
        assert_eq!(KeyedHello::body_of(ticket, &hello), body);
        assert_eq!([&proof[..], body].concat(), data);
    }
    let Some(hello) = Hello::from_bytes(data) else { return };
    assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
    assert_eq!(hello.to_bytes(), data);
}

/// Runs a script of the words that a caller writes, and of what an honest server does.
///
/// | step | operands |
/// |---|---|
/// | 0–2 the caller writes a word | byte: before the slots, in one of the first slots, or anywhere; text: where; text: the word |
/// | 3 the server takes a request | |
/// | 4 the server takes parts from bulk rings, or looks for calls that were given up | |
/// | 5 the server answers a request | byte: which; filling |
pub fn memory_server(data: &[u8]) {
    let page = CallMemory::alone();
    let (server, mut cursor) = (Server::new(page.clone()), RequestCursor::new());
    let mut script = Script::new(data);
    let mut consumers = server.consumers();
    let (mut numbers, mut taken) = ([0; SLOT_COUNT], Vec::new());
    while let Some(step) = script.step() {
        match step % 6 {
            3 => {
                let Some((slot, number)) = server.take(&mut cursor) else { continue };
                numbers[slot] += 1;
                assert_eq!(number, numbers[slot], "the server takes each request once");
                assert_eq!(cursor.number(slot), number);
                check_request(&server, slot);
                taken.push((slot, number));
            }
            4 if server.has_parts(&mut cursor) => consumers.iter_mut().for_each(|ring| {
                ring.renew();
                if ring.has_part() {
                    ring.take(None);
                }
            }),
            4 => assert!(server.given_up(&mut cursor).is_none_or(|slot| slot < SLOT_COUNT)),
            5 => {
                let Some((slot, number)) = script.pick(&taken) else { continue };
                server.answer(slot, number, Status::Result, &script.filling());
            }
            _ => scribble(&page, &mut script),
        }
    }
    // While the caller writes nothing, the server comes to an end of its work.
    assert!((0..=2 * SLOT_COUNT).any(|_| server.take(&mut cursor).is_none()));
    assert!((0..=SLOT_COUNT).any(|_| server.given_up(&mut cursor).is_none()));
    server.has_parts(&mut cursor);
    assert!(!server.has_work(&cursor.seen()));
}

fn check_request(server: &Server, slot: usize) {
    let mut body = Vec::new();
    match server.request(slot) {
        Request::Call { len, bulk, .. } => {
            assert!(len <= SLOT_BODY_BYTES && bulk.is_none_or(|bulk| bulk.ring < RING_COUNT));
            server.arguments(slot, len, &mut body);
            assert_eq!(body.len(), len);
        }
        Request::Fetch { ring, part, .. } => {
            assert!(ring < RING_COUNT && part < FETCH_PARTS);
            server.fill(ring, part, &[1, 2, 3]);
        }
        Request::Forget | Request::Nonsense => {}
    }
}

/// Runs a script of the words that a server writes, and of what an honest caller does.
///
/// | step | operands |
/// |---|---|
/// | 0–2 the server writes a word | byte: before the slots, in one of the first slots, or anywhere; text: where; text: the word |
/// | 3 the caller makes a call | filling |
/// | 4 the caller looks for an answer | byte: which |
/// | 5 the caller gives a call up | byte: which |
/// | 6 the caller sleeps, and asks the server to wake its service thread | byte: which |
/// | 7 the caller drains an argument ring | text: each byte stands for 256 bytes in the ring |
pub fn memory_caller(data: &[u8]) {
    let page = CallMemory::alone();
    let caller = Arc::new(Caller::new(page.clone()));
    let mut script = Script::new(data);
    let mut under_way: Vec<RequestId> = Vec::new();
    let mut body = Vec::new();
    while let Some(step) = script.step() {
        match step % 8 {
            3 => {
                let arguments = script.filling();
                let Some(slot) = caller.claim() else { continue };
                assert!(
                    slot < SLOT_COUNT && under_way.iter().all(|id| id.slot() != slot),
                    "no other call has the slot"
                );
                let call = Call { export: 1, procedure: 2, within: None, trace: None };
                under_way.push(caller.call(
                    slot,
                    &call,
                    &arguments[..arguments.len().min(SLOT_BODY_BYTES)],
                    None,
                ));
            }
            4 => {
                let Some(id) = script.pick(&under_way).filter(|id| caller.is_answered(*id)) else {
                    continue;
                };
                body.clear();
                if let Some(mut ring) = caller.result_ring(id) {
                    while ring.has_part() && body.len() < RING_PARTS * PART_BYTES {
                        ring.take(Some(&mut body));
                    }
                    ring.finish(caller.ring_bytes(id), Some(&mut body));
                    assert!(body.len() <= 2 * RING_PARTS * PART_BYTES);
                    body.clear();
                }
                caller.answer(id, &mut body);
                assert!(body.len() <= SLOT_BODY_BYTES);
                caller.release(id.slot());
                under_way.retain(|other| *other != id);
            }
            5 => {
                let Some(id) = script.pick(&under_way) else { continue };
                caller.give_up(id);
                caller.abandon(id);
                under_way.retain(|other| *other != id);
            }
            6 => {
                let Some(id) = script.pick(&under_way) else { continue };
                caller.sleep(id, false, Duration::ZERO);
                caller.watch(id);
                caller.is_taken(id);
            }
            7 => {
                let Some(ring) = caller.argument_ring(Duration::ZERO) else { continue };
                body.clear();
                ring.drain(1, script.text().len() << 8, &mut body);
                assert!(body.len() <= PART_BYTES);
            }
            _ => scribble(&page, &mut script),
        }
    }
    let slots: HashSet<usize> = under_way.iter().map(|id| id.slot()).collect();
    assert_eq!(slots.len(), under_way.len());
}

/// Writes a word as the peer.
fn scribble(page: &Arc<CallMemory>, script: &mut Script<'_>) {
    let region = script.byte();
    let (at, word) = (number(script.text()) as usize, number(script.text()));
    let at = match region % 3 {
        0 => at % CallMemory::slot_words(0)[0],
        1 => CallMemory::slot_words(at >> 3 & 3)[at & 7],
        _ => at % CallMemory::WORDS,
    };
    page.scribble(at, word);
}

/// Returns the first eight bytes of a text as a big-endian number.
fn number(text: &[u8]) -> u64 {
    text.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
