//! Calls that are given up: the server is told of each, and of no other call of its slot.

use farcall_shm::{RequestCursor, SLOT_COUNT, Status};

use crate::call_slots::{call, halves};

#[test]
fn what_was_given_up_is_told_once_it_is_taken() {
    let (caller, server, mut cursor) = halves();
    // The calls below get the last two slots, whose bits are in the last word of the bitmap.
    for _ in 0..SLOT_COUNT - 2 {
        caller.claim().unwrap();
    }
    let first = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    server.take(&mut cursor).unwrap();
    let second = caller.call(caller.claim().unwrap(), &call(1), &[], None);
    for id in [second, first, first] {
        caller.give_up(id);
    }
    assert_eq!(server.given_up(&mut cursor), Some(first.slot()));
    assert_eq!(server.given_up(&mut cursor), None, "the second is not taken yet");
    assert!(server.has_work(&cursor.seen()));
    server.take(&mut cursor).unwrap();
    assert_eq!(server.given_up(&mut cursor), Some(second.slot()));
    assert_eq!(server.given_up(&mut cursor), None);
    assert!(!server.has_work(&cursor.seen()));
    // The same slots again: the server is rung for no other reason than that a call was given up.
    for slot in [first, second].map(|id| id.slot()) {
        let id = caller.call(slot, &call(1), &[], None);
        server.take(&mut cursor).unwrap();
        assert!(!server.has_work(&cursor.seen()));
        caller.give_up(id);
        assert!(server.has_work(&cursor.seen()));
        assert_eq!([(); 2].map(|()| server.given_up(&mut cursor)), [Some(slot), None]);
    }
}

#[test]
fn a_cancel_that_the_server_finds_late_does_not_end_the_next_call_of_the_slot() {
    let (caller, server, mut cursor) = halves();
    let slot = caller.claim().unwrap();
    let make = || caller.call(slot, &call(1), &[], None);
    let take_and_answer = |cursor: &mut RequestCursor| {
        let (slot, number) = server.take(cursor).unwrap();
        server.answer(slot, number, Status::Result, &[]);
    };
    // The answer was on its way when the caller gave the call up.
    for taken_before in [true, false] {
        let cancelled = make();
        if taken_before {
            take_and_answer(&mut cursor);
            caller.give_up(cancelled);
        } else {
            caller.give_up(cancelled);
            take_and_answer(&mut cursor);
        }
        assert!(caller.is_answered(cancelled));
        let next = make();
        assert_eq!(server.given_up(&mut cursor), None);
        server.take(&mut cursor).unwrap();
        assert_eq!(server.given_up(&mut cursor), None, "nobody has given the next call up");
        // Its own cancel counts, however many there were before it.
        caller.give_up(next);
        assert_eq!([(); 2].map(|()| server.given_up(&mut cursor)), [Some(slot), None]);
        server.answer(slot, cursor.number(slot), Status::Result, &[]);
    }
    // The bit of the slot is as the server saw it last, for two calls were given up.
    let [first, second] = [(); 2].map(|()| {
        let id = make();
        caller.give_up(id);
        if id.number() % 2 == 1 {
            take_and_answer(&mut cursor);
        }
        id
    });
    assert_eq!((first.number() % 2, second.number() % 2), (1, 0));
    assert_eq!(server.given_up(&mut cursor), None, "the second is not taken yet");
    server.take(&mut cursor).unwrap();
    assert_eq!([(); 2].map(|()| server.given_up(&mut cursor)), [Some(slot), None]);
    assert!(!server.has_work(&cursor.seen()));
}

#[test]
fn a_cancel_counts_though_an_earlier_one_of_its_slot_was_not_found_before_it() {
    let (caller, server, mut cursor) = halves();
    let slot = caller.claim().unwrap();
    let make = || caller.call(slot, &call(1), &[], None);
    let first = make();
    let (_, number) = server.take(&mut cursor).unwrap();
    server.answer(slot, number, Status::Result, &[]);
    caller.give_up(first);
    caller.give_up(make());
    assert_eq!(server.given_up(&mut cursor), None, "the second is not taken yet");
    assert!(server.has_work(&cursor.seen()));
    server.take(&mut cursor).unwrap();
    assert_eq!([(); 2].map(|()| server.given_up(&mut cursor)), [Some(slot), None]);
}
