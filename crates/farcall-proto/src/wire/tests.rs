//! The codec at its edges. The fast readers agree with the general reader, frames are read back as they were
//! written and fill their datagram to the last byte, and lengths are accepted up to their bound.

use super::call::CALL_HEAD;
use super::*;
use crate::Trace;
use crate::scheme::Scheme;
use crate::transfer::Incoming;

const CONVERSATION: u64 = 0x1112_1314_1516_1718;
const NUMBER: u64 = 0x2122_2324_2526_2728;
const SEQUENCE: u64 = 0x5152_5354_5556_5758;
const POSITION: Position = Position { activity: 0x3132_3334, exchange: 0x4142_4344, sequence: SEQUENCE };
const SCHEMES: [Scheme; 2] = [Scheme::Open, Scheme::Local];

fn target(scheme: Scheme) -> Target {
    Target::without_secrets(CONVERSATION, scheme)
}

/// A datagram of at most `limit` bytes, with the frames that `write` writes into it.
fn written(scheme: Scheme, limit: usize, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; limit];
    let mut writer = Writer::new(&mut out, limit, target(scheme));
    write(&mut writer);
    let len = writer.finish(Numbers::from(NUMBER).take()).len();
    out.truncate(len);
    out
}

fn sealed(mut datagram: Vec<u8>, scheme: Scheme) -> Vec<u8> {
    scheme.close(&mut datagram, 0);
    datagram
}

/// Datagrams that differ from `datagram`, which holds one frame, in one bit or in their length; some are
/// longer than a frame can be. Their tags fit them, except where a bit of the tag was changed.
fn neighbours(datagram: &[u8], scheme: Scheme) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for at in 0..datagram.len() {
        for bit in 0..8 {
            let mut changed = datagram.to_vec();
            changed[at] ^= 1 << bit;
            all.push(if at < datagram.len() - 8 { sealed(changed, scheme) } else { changed });
        }
    }
    for len in (0..datagram.len() + 9).chain([65_535, 65_536 + 60, 140_000]) {
        let mut changed = datagram.to_vec();
        changed.resize(len, 0);
        all.push(sealed(changed.clone(), scheme));
        if let Some(body) = len.checked_sub(HEADER + FRAME_HEAD + 8) {
            let head = u32::from(datagram[HEADER]) << 24 | body as u32;
            changed[HEADER..HEADER + FRAME_HEAD].copy_from_slice(&head.to_be_bytes());
            all.push(sealed(changed, scheme));
        }
    }
    all
}

/// The only frame of a datagram, as the general reader reads it. `None` if the datagram has none or several.
fn only_frame(datagram: &[u8]) -> Option<(Header, Frame<'_>)> {
    let (header, frames) = open(datagram, None, true).ok()?;
    let mut frames = Frames::new(frames);
    let frame = frames.next().ok()??.read().ok()??;
    matches!(frames.next(), Ok(None)).then_some((header, frame))
}

/// Whether the datagram has an unknown key phase, or its frame an unknown flag. The fast readers leave such a
/// datagram to the general reader, which ignores both.
fn is_odd(datagram: &[u8]) -> bool {
    datagram[2..4] != [0, 0] || datagram[HEADER + 1] != 0
}

/// The fields of a call, by whichever reader: conversation, scheme, position, export, procedure, arguments.
type Said = (u64, Scheme, Position, u64, u32, Vec<u8>);

#[test]
fn the_fast_readers_of_a_whole_call_agree_with_the_general_reader() {
    let said = |header: &Header, head: &CallHead, args: &[u8]| -> Said {
        let (position, export, procedure) = (head.position, head.export, head.procedure);
        (header.conversation, header.scheme, position, export, procedure, args.to_vec())
    };
    let in_general = |datagram: &[u8]| -> Option<Said> {
        let (header, frame) = only_frame(datagram)?;
        let Frame::Call(head, Part { fragment: None, bytes }) = frame else { return None };
        let plain = head.meta == Meta::default();
        plain.then(|| said(&header, &head, bytes))
    };
    let from_frames = |datagram: &[u8]| -> Option<Said> {
        let (header, frames) = open(datagram, None, true).ok()?;
        let (head, args) = CallHead::only(frames)?;
        Some(said(&header, &head, args))
    };
    let from_datagram = |datagram: &[u8]| -> Option<Said> {
        let (header, frames) = peek(datagram).ok()?;
        let (head, args) = CallHead::only(frames)?;
        let opened = header.open(datagram, None, true)?;
        assert_eq!(opened, frames);
        Some(said(&header, &head, args))
    };
    let export = 0x6162_6364_6566_6768;
    let head = CallHead { position: POSITION, export, procedure: 0x7172_7374, meta: Meta::default() };
    for scheme in SCHEMES {
        for args in [&[][..], b"args", b"longer arguments"] {
            let part = Part { fragment: None, bytes: args };
            let call = written(scheme, 1200, |writer| writer.call(&head, part));
            let said = (CONVERSATION, scheme, POSITION, head.export, head.procedure, args.to_vec());
            assert_eq!(call.len(), call_overhead(scheme) + args.len());
            assert_eq!(in_general(&call), Some(said));
            for other in std::iter::once(call.clone()).chain(neighbours(&call, scheme)) {
                let expected = in_general(&other);
                for quick in [from_frames(&other), from_datagram(&other)] {
                    assert!(quick == expected || quick.is_none() && is_odd(&other), "{other:x?}");
                }
            }
        }
    }
}

#[test]
fn the_fast_readers_of_a_whole_result_agree_with_the_general_reader() {
    let failed = Status::Failed { ran: 2, kind: 0x0a0b };
    let statuses = [Status::Result, Status::Exception, failed];
    for (scheme, status) in SCHEMES.into_iter().flat_map(|scheme| statuses.map(|status| (scheme, status))) {
        let body = b"eight by";
        let head = ResultHead { position: POSITION, status };
        let result = written(scheme, 1200, |writer| assert!(writer.result(&head, body)));
        let mut returned = 0;
        for other in std::iter::once(result.clone()).chain(neighbours(&result, scheme)) {
            let expected = match only_frame(&other) {
                Some((header, Frame::Result(head, 0, part))) if part.fragment.is_none() => {
                    Some((header, head, part.bytes))
                }
                _ => None,
            };
            let opened = open(&other, None, true);
            let frames = opened.map_or(&[][..], |(_, frames)| frames);
            let quick = ResultHead::only(frames).map(|(head, bytes)| (head.position, head.status, bytes));
            let general = expected.map(|(_, head, bytes)| (head.position, head.status, bytes));
            assert!(quick == general || quick.is_none() && is_odd(&other), "{other:x?}");
            returned += usize::from(expected.is_some_and(|(header, head, _)| {
                (header.conversation, header.scheme) == (CONVERSATION, scheme)
                    && (head.position, head.status) == (POSITION, Status::Result)
            }));
        }
        // Neighbours whose body or datagram number differs are results of the same call.
        assert_eq!(returned > 100, status == Status::Result, "{returned} neighbours were read");
    }
}

#[test]
fn the_fast_readers_take_a_call_and_a_result_as_long_as_a_frame_can_be() {
    for (scheme, len) in SCHEMES.into_iter().flat_map(|scheme| [4_000, 65_532].map(|len| (scheme, len))) {
        let bytes = vec![7; len];
        let result = written(scheme, 65_600, |writer| {
            let head = ResultHead { position: POSITION, status: Status::Result };
            assert!(writer.result(&head, &bytes[RESULT_HEAD..]));
        });
        let (_, frames) = open(&result, None, true).unwrap();
        assert_eq!(ResultHead::only(frames).map(|(_, body)| body.len()), Some(len - RESULT_HEAD));
        let call = written(scheme, 65_600, |writer| {
            let head = CallHead { position: POSITION, export: 1, procedure: 2, meta: Meta::default() };
            writer.call(&head, Part { fragment: None, bytes: &bytes[CALL_HEAD..] });
        });
        let (_, frames) = open(&call, None, true).unwrap();
        assert_eq!(CallHead::only(frames).map(|(_, args)| args.len()), Some(len - CALL_HEAD));
    }
}

#[test]
fn a_result_that_is_written_around_its_body_equals_an_ordinary_result() {
    for (scheme, len) in SCHEMES.into_iter().flat_map(|scheme| [0, 4, 40].map(|len| (scheme, len))) {
        let body = &[7; 40][..len];
        let head = ResultHead { position: POSITION, status: Status::Result };
        let expected = written(scheme, 1200, |writer| assert!(writer.result(&head, body)));
        let around = written(scheme, 100, |writer| {
            let filled = writer.result_by(&head, |room| {
                assert_eq!(room.len(), 100 - 44 - 8);
                room[..len].copy_from_slice(body);
                Some(len)
            });
            assert_eq!(filled, Some(()));
        });
        assert_eq!(around, expected);
        let nothing = written(scheme, 100, |writer| assert!(writer.result_by(&head, |_| None).is_none()));
        assert_eq!(nothing.len(), HEADER + 8);
        written(scheme, 51, |writer| assert!(writer.result_by(&head, |_| panic!("no room")).is_none()));
    }
}

/// Each combination of a call's metadata.
fn metas() -> impl Iterator<Item = Meta> {
    (0..32).map(|n| Meta {
        deadline: (n & 1 != 0).then_some(0x8182_8384_8586_8788),
        trace: (n & 2 != 0).then_some(Trace { trace: *b"trace identifier", span: *b"the span" }),
        patience: (n & 4 != 0).then_some(0x9192_9394_9596_9798),
        silence: (n & 16 != 0).then_some(0xb1b2_b3b4_b5b6_b7b8),
        detached: n & 8 != 0,
    })
}

fn fragments() -> [Option<Fragment>; 3] {
    let fragment = |ask| Fragment { total: 0xf1f2_f3f4, offset: 0xa1a2_a3a4, ask };
    [None, Some(fragment(false)), Some(fragment(true))]
}

#[test]
fn calls_and_results_fill_their_datagrams_and_are_read_back_with_any_metadata() {
    let limit = 1200;
    for (meta, fragment) in metas().flat_map(|meta| fragments().map(|fragment| (meta, fragment))) {
        let head = CallHead { position: POSITION, export: 1 << 40, procedure: 7 << 20, meta };
        let bytes = vec![7; limit];
        let mut room = 0;
        let call = written(Scheme::Open, limit, |writer| {
            room = writer.call_room(&meta, fragment.is_some()).expect("room for a call");
            writer.call(&head, Part { fragment, bytes: &bytes[..room] });
        });
        assert_eq!(call.len(), limit, "{meta:?} {fragment:?}");
        let Some((_, Frame::Call(read, part))) = only_frame(&call) else { panic!("{meta:?} {fragment:?}") };
        assert_eq!((read.position, read.export), (head.position, head.export));
        assert_eq!((read.procedure, read.meta), (head.procedure, meta));
        assert_eq!((part.fragment, part.bytes), (fragment, &bytes[..room]));
        assert_eq!(part.total(), fragment.map_or(room, |fragment| fragment.total as usize));
        // A datagram that has room for the call and no arguments is the shortest that can hold it.
        for (limit, expected) in [(limit - room, Some(0)), (limit - room - 4, None)] {
            let mut out = vec![0; limit];
            let writer = Writer::new(&mut out, limit, target(Scheme::Open));
            assert_eq!(writer.call_room(&meta, fragment.is_some()), expected, "{meta:?} {fragment:?}");
        }
    }
    let head = ResultHead { position: POSITION, status: Status::Exception };
    for fragment in fragments() {
        let bytes = vec![7; limit];
        let mut room = 0;
        let result = written(Scheme::Local, limit, |writer| {
            room = if fragment.is_some() { writer.fragment_room(0) } else { writer.room() - RESULT_HEAD };
            match fragment {
                None => assert!(writer.result(&head, &bytes[..room])),
                Some(part) => {
                    writer.result_fragment((&head, 0), part, [&bytes[..room], &[], &[]], false);
                }
            }
        });
        assert_eq!(result.len(), limit);
        let Some((_, Frame::Result(read, 0, part))) = only_frame(&result) else { panic!("{fragment:?}") };
        assert_eq!((read.position, read.status), (head.position, head.status));
        assert_eq!((part.fragment, part.bytes), (fragment, &bytes[..room]));
    }
}

#[test]
fn a_frame_fits_if_its_body_is_not_longer_than_the_room() {
    for limit in 60..100 {
        let mut out = vec![0; limit];
        let mut writer = Writer::new(&mut out, limit, target(Scheme::Open));
        for _ in 0..2 {
            let room = writer.room();
            let left = limit - 8 - writer.len() - FRAME_HEAD;
            assert!(room.is_multiple_of(4) && (room..room + 4).contains(&left));
            for len in (0..limit).step_by(4) {
                assert_eq!(writer.fits(len), len <= room, "{len} of {limit}");
            }
            writer.ack(Ack { low: 1, datagram: 2 });
        }
    }
}

#[test]
fn padding_brings_a_datagram_to_its_size() {
    for size in 28..100 {
        let padded = written(Scheme::Open, 200, |writer| {
            writer.ack(Ack { low: 1, datagram: 2 });
            writer.pad(size);
        });
        assert_eq!(padded.len(), (size & !3).max(44), "{size}");
        let echo = written(Scheme::Open, 200, |writer| writer.mtu(true, (size & !3) + 8));
        assert_eq!(echo.len(), (size & !3) + 8);
        assert_eq!(
            written(Scheme::Open, 52, |writer| writer.pad(size)).len(),
            if size < 32 { 28 } else { (size & !3).min(52) }
        );
    }
}

#[test]
fn a_select_names_as_many_ranges_as_fit_and_is_read_back() {
    let starts = (1..=40).map(|n| 0x0102_0304 * n);
    let ahead: Vec<(u32, u32)> = starts.map(|start| (start, start + 0x11)).collect();
    let mut incoming = Incoming::new(u32::MAX, Vec::new(), 0, 0);
    incoming.grant(u32::MAX);
    for (start, end) in &ahead {
        let fragment = Fragment { total: u32::MAX, offset: *start, ask: false };
        incoming.take(0x6162_6364_6566_6768, fragment, &vec![1; (end - start) as usize]);
    }
    let empty = HEADER + FRAME_HEAD + 16 + 16 + 8;
    let all = empty + 8 * 32;
    for (limit, named) in [(empty, 0), (empty + 7, 0), (empty + 8, 1), (all, 32), (1200, MAX_RANGES)] {
        for pull in [false, true] {
            let select = written(Scheme::Open, limit, |writer| {
                writer.select(POSITION, pull, incoming.extent(), incoming.beyond())
            });
            assert_eq!(select.len(), empty + 8 * named);
            let Some((_, Frame::Select(position, select))) = only_frame(&select) else { panic!("{limit}") };
            assert_eq!((position, select.pull), (POSITION, pull));
            let largest = 0x6162_6364_6566_6768;
            assert_eq!(
                (select.extent.through, select.extent.limit, select.extent.largest),
                (0, u64::from(u32::MAX), largest)
            );
            let named = ahead[..named].iter().map(|(start, end)| (u64::from(*start), u64::from(*end)));
            assert!(select.ranges().eq(named));
        }
    }
    let all = written(Scheme::Open, 1200, |writer| writer.select_all(POSITION, 77));
    let Some((_, Frame::Select(_, select))) = only_frame(&all) else { panic!("it is a SELECT") };
    let Extent { through, limit, largest } = select.extent;
    assert_eq!((through, limit, largest, select.pull), (77, 77, 0, false));
}

/// A frame whose body is these words.
fn frame(kind: u8, flags: u8, words: &[u32]) -> Vec<u8> {
    let [high, low] = (4 * words.len() as u16).to_be_bytes();
    [kind, flags, high, low].into_iter().chain(words.iter().flat_map(|word| word.to_be_bytes())).collect()
}

/// Whether the frame has a meaning; `false` for one that its reader skips.
type Read = Result<bool, Malformed>;

/// The first of these frames, not yet read.
fn first(frames: &[u8]) -> Raw<'_> {
    Frames::new(frames).next().unwrap().expect("a frame")
}

/// Reads the first frame.
fn read(frame: &[u8]) -> Read {
    let raw = Frames::new(frame).next()?.expect("a frame");
    Ok(raw.read()?.is_some())
}

#[test]
fn a_frame_that_breaks_the_specification_is_malformed() {
    let call = [0, 0, 0, 1, 0, 7, 1];
    let with = |more: &[u32]| [&call[..], more].concat();
    let ranges = |words: usize| [&[0, 0, 0, 1, 0, 0, 0, 0][..], &vec![5; words]].concat();
    let (said, skipped) = (Ok(true), Ok(false));
    let cases: Vec<(u8, u8, Vec<u32>, Read)> = vec![
        (CALL, 0, call.to_vec(), said),
        (CALL, 0, call[..6].to_vec(), Err(Malformed)),
        // Metadata: none, a deadline, a deadline that is too short, an unknown item, an item whose length is
        // no multiple of four, and items that are longer than the frame.
        (CALL, 1, with(&[0, 9]), said),
        (CALL, 1, with(&[12, 0x0001_0008, 0, 5]), said),
        (CALL, 1, with(&[8, 0x0001_0004, 5, 0]), Err(Malformed)),
        (CALL, 1, with(&[8, 0x0099_0004, 5, 0]), said),
        (CALL, 1, with(&[6, 0x0099_0002, 0, 0]), Err(Malformed)),
        (CALL, 1, with(&[16, 0, 0]), Err(Malformed)),
        // A fragment that ends with its message, one that ends beyond it, one without bytes, one whose end
        // overflows.
        (CALL, 2, with(&[8, 4, 9]), said),
        (CALL, 2, with(&[7, 4, 9]), Err(Malformed)),
        (CALL, 2, with(&[8, 4]), Err(Malformed)),
        (CALL, 2, with(&[8, u32::MAX, 9]), Err(Malformed)),
        (RESULT, 0, vec![0, 0, 0, 1, 0x0200_0000], said),
        (RESULT, 0, vec![0, 0, 0, 1, 0x0300_0000], Err(Malformed)),
        (RESULT, 6, vec![0, 0, 0, 1, 0, 8, 4, 9], said),
        (RESULT, 6, vec![0, 0, 0, 1, 0, 7, 4, 9], Err(Malformed)),
        (SELECT, 0, ranges(64), said),
        (SELECT, 0, ranges(63), Err(Malformed)),
        (SELECT, 0, ranges(66), Err(Malformed)),
        (SELECT, 0, ranges(1), Err(Malformed)),
        (STATE, 0, vec![0, 0, 0, 1, 3], said),
        (STATE, 0, vec![0, 0, 0, 1, 1], Err(Malformed)),
        (STATE, 0, vec![0, 0, 0, 1, 4], Err(Malformed)),
        (STALE, 0, vec![0, 1, 0, 1, 4, 0], said),
        (STALE, 0, vec![0, 1, 0, 1, 5, 0], Err(Malformed)),
        (STALE, 0, vec![0, 1, 0, 1, 0, 0], Err(Malformed)),
        (PADDING, 0, vec![1, 2], skipped),
        (0x06, 0, vec![], Err(Malformed)),
        (0x19, 0, vec![], Err(Malformed)),
        (RESULT, 8, vec![0, 0, 0, 1, 0, 5], said),
        (RESULT, 8, vec![0, 0, 0, 1, 0], Err(Malformed)),
        // DATA without an exchange, from an offset that is no multiple of four, and from one that is too
        // large.
        (DATA, 0, vec![0, 2, 0, 1, 0, 8], said),
        (DATA, 0, vec![0, 2, 0, 1, 0], Err(Malformed)),
        (DATA, 0, vec![0, 0, 0, 1, 0, 8], Err(Malformed)),
        (DATA, 0, vec![0, 2, 0, 1, 0, 6], Err(Malformed)),
        (DATA, 0, vec![0, 2, 0, 1, 1 << 30, 0], Err(Malformed)),
        (CREDIT, 0, vec![0, 2, 0, 1, 0, 8, 0, 9, 0, 3, 4, 8], said),
        (CREDIT, 0, vec![0, 2, 0, 1, 0, 8, 0, 9, 0, 3, 4], Err(Malformed)),
        (STOP, 0, vec![0, 2, 0, 1, 7], said),
        (STOP, 0, vec![0, 2, 0, 1], Err(Malformed)),
        (0x7f, 0, vec![], Err(Malformed)),
        (USER_PROOF, 0, vec![0, 1, 2, 3, 4, 5], said),
        (USER_PROOF, 0, vec![0, 1, 2, 3, 4], Err(Malformed)),
        (DRAIN, 0, vec![0, 1, 0, 2, 0, 3], said),
        (DRAIN, 0, vec![0, 1, 0, 2, 0], Err(Malformed)),
        (WANTED, 0, vec![0, 2, 0, 1], said),
        (WANTED, 0, vec![0, 2, 0], Err(Malformed)),
        (0x84, 0, vec![], skipped),
        (0xff, 0, vec![], skipped),
        (ACK, 0, vec![0, 1, 1200], said),
    ];
    for (kind, flags, words, expected) in cases {
        assert_eq!(read(&frame(kind, flags, &words)), expected, "{kind:x} {flags} {words:?}");
    }
    assert_eq!(read(&[PADDING, 0, 0, 2, 0, 0]), Err(Malformed), "a length is a multiple of four");
}

#[test]
fn each_flag_has_its_meaning_and_unknown_flags_have_none() {
    let is_detached = |flags: u8| {
        let call = frame(CALL, flags, &[0, 0, 0, 1, 0, 7, 1]);
        let Ok(Some(Frame::Call(head, _))) = first(&call).read() else { panic!("it is a CALL") };
        head.meta.detached
    };
    assert_eq!([0x00, 0x08, 0x10, 0x18].map(is_detached), [false, true, false, true]);
    let asks = |flags: u8| {
        let call = frame(CALL, flags, &[0, 0, 0, 1, 0, 7, 1, 8, 0, 5]);
        let Ok(Some(Frame::Call(_, part))) = first(&call).read() else { panic!("it is a CALL") };
        part.fragment.map(|fragment| fragment.ask)
    };
    assert_eq!([0x00, 0x02, 0x04, 0x06].map(asks), [None, Some(false), None, Some(true)]);
    let pulls = |flags: u8| {
        let select = frame(SELECT, flags, &[0, 0, 0, 1, 0, 0, 0, 0]);
        let Ok(Some(Frame::Select(_, select))) = first(&select).read() else { panic!("it is a SELECT") };
        select.pull
    };
    assert_eq!([0x00, 0x01, 0x02, 0x03].map(pulls), [false, true, false, true]);
    let detaches = |flags: u8| {
        let probe = frame(PROBE, flags, &[0, 0, 0, 1]);
        matches!(first(&probe).read(), Ok(Some(Frame::Probe { detached: true, .. })))
    };
    assert_eq!([0x00, 0x01, 0x02, 0x03].map(detaches), [false, true, false, true]);
    let is_whole = |kind: u8, flags: u8| {
        let result = frame(kind, flags, &[0, 0, 0, 1, 0]);
        let raw = first(&result);
        matches!(raw.result(), Some(Ok((_, part))) if part.fragment.is_none())
    };
    assert_eq!([is_whole(RESULT, 0), is_whole(RESULT, 2), is_whole(STATE, 0)], [true, false, false]);
}

fn ticket(rest: &[u8]) -> Ticket<'_> {
    let (client, incarnation, issued, mac) = (1 << 60, 2 << 50, 3 << 40, Mac(*b"sixteen bytes..."));
    Ticket { client, incarnation, issued, mac, rest: rest.into() }
}

fn bind<'a>(name: &'a [u8], handshake: Handshake<'a>) -> Bind<'a> {
    Bind {
        client: 0x0102_0304_0506_0708,
        nonce: 9 << 40,
        versions: (1, 2),
        schemes: 3,
        from: 4,
        renew: None,
        proof: None,
        name,
        handshake,
        #[cfg(feature = "secure")]
        body: &[],
    }
}

fn welcome<'a>(rest: &'a [u8], handshake: Handshake<'a>) -> Welcome<'a> {
    Welcome {
        nonce: 9 << 40,
        conversation: CONVERSATION,
        ticket: ticket(rest),
        versions: (1, 2),
        refused: 0,
        scheme: 1,
        export: 5 << 40,
        total: 1000,
        seen: "[2001:db8::1]:7".parse().unwrap(),
        ended: Some(Ended { reason: StaleReason::Horizon, age: 6 << 40 }),
        handshake,
        procedures: &[],
    }
}

#[test]
fn bind_and_welcome_fill_their_datagrams_with_a_part_of_the_handshake_and_are_read_back() {
    let part = vec![7; 2000];
    let handshake = Handshake { total: 60_000, offset: 4, through: 5, part: &part };
    let seen: std::net::SocketAddr = "10.1.2.3:4".parse().unwrap();
    for (renews, proves) in [(false, false), (false, true), (true, false), (true, true)] {
        let renew = renews.then(|| (8 << 40, ticket(b"renewed."), seen));
        let proof = proves.then(|| (7 << 40, ticket(b"a proof")));
        let question = Bind { renew: renew.clone(), proof: proof.clone(), ..bind(b"Store", handshake) };
        let datagram = written(Scheme::Open, 1200, |writer| writer.bind(&question));
        assert_eq!(datagram.len(), 1200, "{renews} {proves}");
        let Some((_, Frame::Bind(read))) = only_frame(&datagram) else { panic!("{renews} {proves}") };
        assert_eq!((read.client, read.nonce), (question.client, question.nonce));
        assert_eq!((read.versions, read.schemes), (question.versions, 3));
        assert_eq!((read.from, read.name), (4, &b"Store"[..]));
        assert_eq!((read.renew, read.proof), (renew, proof));
        // The header, the tag and the head of the frame have 32 bytes, the fields 28, the name 12, and the
        // handshake's own fields 16.
        let optional = if renews { 8 + 52 + 20 } else { 0 } + if proves { 8 + 52 } else { 0 };
        let fits = 1200 - 32 - (28 + 12 + 16) - optional;
        assert_eq!(read.handshake, Handshake { part: &part[..fits], ..handshake });
    }
    let answer = welcome(b"rest", handshake);
    let datagram = written(Scheme::Open, 1200, |writer| assert!(writer.welcome(&answer, &[])));
    assert_eq!(datagram.len(), 1200);
    let Some((_, Frame::Welcome(read))) = only_frame(&datagram) else { panic!("it is a WELCOME") };
    assert_eq!((read.handshake.total, read.handshake.part), (60_000, &part[..read.handshake.part.len()]));
}

#[test]
fn a_welcome_names_as_many_procedures_as_fit_and_is_not_written_without_room_for_its_fields() {
    let fingerprint = |n: u32| Fingerprint { number: n, types: u64::from(n) << 40, name: u64::from(n) << 41 };
    let procedures: Vec<Fingerprint> = (1..100).map(fingerprint).collect();
    let answer = welcome(b"rest", Handshake::default());
    let least = written(Scheme::Open, 1200, |writer| assert!(writer.welcome(&answer, &[]))).len();
    let most = (1200 - least) / 20;
    for (limit, fit) in [(least, 0), (least + 19, 0), (least + 20, 1), (least + 59, 2), (1200, most)] {
        let datagram = written(Scheme::Open, limit, |writer| assert!(writer.welcome(&answer, &procedures)));
        assert_eq!(datagram.len(), least + 20 * fit);
        let Some((_, Frame::Welcome(read))) = only_frame(&datagram) else { panic!("{limit}") };
        assert_eq!(read.procedures().collect::<Vec<_>>(), procedures[..fit]);
        assert_eq!((read.nonce, read.conversation), (answer.nonce, CONVERSATION));
        assert_eq!((&read.ticket, read.export), (&answer.ticket, answer.export));
        assert_eq!((read.versions, read.refused, read.scheme), ((1, 2), 0, 1));
        assert_eq!((read.seen, read.ended, read.total), (answer.seen, answer.ended, 1000));
    }
    for limit in [least - 1, least - 4, 60] {
        let nothing = written(Scheme::Open, limit, |writer| assert!(!writer.welcome(&answer, &procedures)));
        assert_eq!(nothing.len(), HEADER + 8, "{limit}");
    }
}

#[test]
fn names_tickets_and_handshakes_are_read_up_to_their_bounds() {
    let whole = |total, offset, through, part| Handshake { total, offset, through, part };
    let asks = |name: &[u8], handshake| {
        let question = bind(name, handshake);
        only_frame(&written(Scheme::Open, 1200, |writer| writer.bind(&question))).is_some()
    };
    let lengths = [254, 255, 256, 260].map(|len| asks(&[b'n'; 260][..len], Handshake::default()));
    assert_eq!(lengths, [true, true, false, false]);
    assert!(asks(b"", whole(65_536, 65_532, 65_536, b"last")));
    for wrong in [
        whole(65_537, 0, 0, b"part"),
        whole(65_536, 0, 65_537, b"part"),
        whole(65_536, 65_533, 0, b"last"),
        whole(3, 0, 0, b"part"),
        whole(100, u32::MAX, 0, b"part"),
    ] {
        assert!(!asks(b"", wrong), "{wrong:?}");
    }
    let shows = |len| {
        let rest = vec![7; len];
        only_frame(&written(Scheme::Open, 1200, |writer| writer.ticket(&ticket(&rest)))).is_some()
    };
    assert_eq!([0, 255, 256, 257, 300].map(shows), [true, true, true, false, false]);
    let answers = |datagram: &[u8], at: usize, byte: u8| {
        let mut changed = datagram.to_vec();
        changed[at..at + 8].fill(byte);
        only_frame(&sealed(changed, Scheme::Open)).is_some()
    };
    let answer = welcome(b"", Handshake::default());
    let answer = written(Scheme::Open, 1200, |writer| assert!(writer.welcome(&answer, &[])));
    let conversation = HEADER + FRAME_HEAD + 8;
    assert!(answers(&answer, conversation, 1));
    assert!(!answers(&answer, conversation, 0), "zero names no conversation");
    let mut torn = answer.clone();
    torn.resize(answer.len() + 16, 0);
    torn[HEADER + 2..HEADER + 4].copy_from_slice(&((answer.len() - 28 - 4 + 16) as u16).to_be_bytes());
    assert!(only_frame(&sealed(torn, Scheme::Open)).is_none(), "16 bytes are less than a procedure");
    let no_client = Bind { client: 0, ..bind(b"", Handshake::default()) };
    assert!(only_frame(&written(Scheme::Open, 1200, |writer| writer.bind(&no_client))).is_none());
}

#[test]
fn a_datagram_of_another_version_or_scheme_or_with_a_wrong_tag_is_not_opened() {
    let ack = written(Scheme::Open, 1200, |writer| writer.ack(Ack { low: 1, datagram: 2 }));
    let opens = |datagram: &[u8], check| open(datagram, None, check).is_ok();
    assert!(opens(&ack, true));
    for (at, byte) in [(0, 0), (0, 2), (1, 2), (1, 3), (1, 4)] {
        let mut other = ack.clone();
        other[at] = byte;
        assert!(!opens(&sealed(other, Scheme::Open), true), "byte {at} is {byte}");
    }
    let mut torn = ack.clone();
    torn[30] ^= 1;
    assert!(!opens(&torn, true) && opens(&torn, false), "the tag matters if it is checked");
    assert!(Frames::new(frames_of(&ack, Scheme::Open).unwrap()).next().is_ok_and(|raw| raw.is_some()));
    assert!(frames_of(&ack[..27], Scheme::Open).is_none());
}
