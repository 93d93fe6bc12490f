//! Tests of records in all fragmentations that peers use, and of invalid records.

use std::time::Duration;

use farcall::env::Time;

use farcall_onc::wire::record::{Limits, RecordError, Records, begin, end};

/// Encodes a fragment: the mark, and then the bytes.
fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
    let mark = bytes.len() as u32 | if last { 1 << 31 } else { 0 };
    [&mark.to_be_bytes(), bytes].concat()
}

/// Passes the bytes to `records`, at most `step` bytes at a time, and returns all complete records.
fn feed(records: &mut Records, bytes: &[u8], step: usize) -> Result<Vec<Vec<u8>>, RecordError> {
    let mut all = Vec::new();
    for mut part in bytes.chunks(step) {
        while !part.is_empty() {
            let space = records.space();
            let len = space.len().min(part.len());
            space[..len].copy_from_slice(&part[..len]);
            records.filled(len);
            part = &part[len..];
            while let Some(record) = records.next()? {
                all.push(record.into_owned());
            }
        }
    }
    Ok(all)
}

#[test]
fn any_fragmentation_gives_the_same_records() {
    let message: Vec<u8> = (0..100u8).collect();
    for size in 1..=100 {
        let mut bytes = Vec::new();
        for _ in 0..3 {
            message.chunks(size).for_each(|part| bytes.extend(fragment(part, false)));
            // An empty last fragment ends the record as well.
            bytes.extend(fragment(&[], true));
        }
        for step in [1, 3, 4, 5, 7, 64, 10_000] {
            let records = feed(&mut Records::new(Limits::default()), &bytes, step).unwrap();
            assert_eq!(records, vec![message.clone(); 3], "fragments of {size} bytes, {step} bytes per read");
        }
    }
}

#[test]
fn a_record_is_sent_as_one_fragment() {
    let mut out = b"before".to_vec();
    let at = begin(&mut out);
    out.extend(b"message");
    end(&mut out, at).unwrap();
    assert_eq!(out, [b"before".as_slice(), &fragment(b"message", true)].concat());
}

#[test]
fn an_empty_record_is_a_record() {
    let bytes = [fragment(&[], true), fragment(b"next", true)].concat();
    assert_eq!(feed(&mut Records::new(Limits::default()), &bytes, 2).unwrap(), [&b""[..], b"next"]);
}

#[test]
fn long_records_arrive_whole_through_reads_of_any_size() {
    let message: Vec<u8> = (0..3_000_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
    let bytes = [fragment(&message, true), fragment(b"short", true), fragment(&message, true)].concat();
    for step in [1000, 65_536, 10_000_000] {
        let records = feed(&mut Records::new(Limits::default()), &bytes, step).unwrap();
        assert!(
            records.len() == 3 && records[0] == message && records[1] == b"short" && records[2] == message
        );
    }
}

// The length is checked before memory is allocated, whether or not the fragment is the last of its record.
#[test]
fn a_length_beyond_the_limit_is_refused_when_the_mark_arrives() {
    for mark in [0x7fff_ffffu32, 0xffff_ffff, 0x8400_0001] {
        let mut records = Records::new(Limits::default());
        let why = feed(&mut records, &mark.to_be_bytes(), 4).unwrap_err();
        let length = (mark & 0x7fff_ffff) as usize;
        assert_eq!(why, RecordError::TooLong { length, limit: 64 << 20 });
    }
}

#[test]
fn fragments_together_do_not_exceed_the_limit() {
    let limits = Limits { record: 10, ..Limits::default() };
    let fits = [fragment(b"12345", false), fragment(b"67890", true)].concat();
    assert_eq!(feed(&mut Records::new(limits), &fits, 100).unwrap(), [b"1234567890"]);
    let too_long = [fragment(b"12345", false), fragment(b"678901", true)].concat();
    let why = feed(&mut Records::new(limits), &too_long, 100).unwrap_err();
    assert_eq!(why, RecordError::TooLong { length: 11, limit: 10 });
}

// The fragments have one byte, and then none.
#[test]
fn a_record_of_too_many_fragments_is_refused() {
    for bytes in [&b"x"[..], b""] {
        let limits = Limits { fragments: 1500, ..Limits::default() };
        let within = [fragment(bytes, false).repeat(1499), fragment(b"end", true)].concat();
        assert_eq!(feed(&mut Records::new(limits), &within, 977).unwrap().len(), 1);
        let beyond = fragment(bytes, false).repeat(1501);
        let why = feed(&mut Records::new(limits), &beyond, 977).unwrap_err();
        assert_eq!(why, RecordError::TooManyFragments(1500));
    }
}

#[test]
fn a_record_that_takes_too_long_to_arrive_is_refused() {
    let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
    let mut records = Records::new(limits);
    let start = Time::default();
    let after = |seconds| start + Duration::from_secs(seconds);
    // A record is not late before its first byte has arrived.
    records.check(after(0)).unwrap();
    records.check(after(1000)).unwrap();
    feed(&mut records, &fragment(b"slow", true)[..2], 1).unwrap();
    records.check(after(1001)).unwrap();
    assert_eq!(records.patience(), Some(after(1061)));
    records.check(after(1061)).unwrap();
    assert_eq!(records.check(after(1062)), Err(RecordError::TooSlow(limits.time)));
    // The time of the next record begins with its own first byte.
    feed(&mut records, &fragment(b"slow", true)[2..], 1).unwrap();
    assert!(!records.is_partial());
    records.check(after(5000)).unwrap();
}

#[test]
fn memory_grows_with_the_received_bytes_and_not_with_the_announced_length() {
    let mut records = Records::new(Limits::default());
    let announced = 0x8000_0000u32 | 60 << 20;
    let bytes = [&announced.to_be_bytes()[..], &[7; 28]].concat();
    assert!(feed(&mut records, &bytes, 32).unwrap().is_empty());
    assert!(records.space().len() <= 256 << 10);
}
