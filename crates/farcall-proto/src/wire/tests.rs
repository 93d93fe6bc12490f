//! The codec at its edges: what is read quickly is what is read in general, frames come back as they were written and fill
//! their datagram to the last byte, and lengths are taken up to their bound and no further.

use super::kinds::*;
use super::*;
use crate::Trace;
use crate::transfer::Incoming;

const CONVERSATION: u64 = 0x1112_1314_1516_1718;
const NUMBER: u64 = 0x2122_2324_2526_2728;
const POSITION: Position = Position { activity: 0x3132_3334, exchange: 0x4142_4344, sequence: 0x5152_5354_5556_5758 };
const SCHEMES: [Scheme; 2] = [Scheme::Open, Scheme::Local];

fn target(scheme: Scheme) -> Target {
    Target { conversation: CONVERSATION, seal: Seal::without_key(scheme, Direction::ToServer) }
}

/// A datagram of at most `limit` bytes, and what `write` writes into it.
fn written(scheme: Scheme, limit: usize, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; limit];
    let mut writer = Writer::new(&mut out, limit, target(scheme));
    write(&mut writer);
    let len = writer.finish(Numbers::from(NUMBER).take());
    out.truncate(len);
    out
}

fn sealed(mut datagram: Vec<u8>, scheme: Scheme) -> Vec<u8> {
    Seal::without_key(scheme, Direction::ToServer).close(&mut datagram, (0, 0));
    datagram
}

/// Datagrams that differ a little from one that holds one frame: a bit, or the length; and one that is longer than a frame can
/// be. All but the last bytes' changes are sealed anew.
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

/// The frame of a datagram that has no other, as the general reader reads it; `None` if there is none or more.
fn only_frame(datagram: &[u8]) -> Option<(Header, Frame<'_>)> {
    let (header, frames) = open(datagram, Direction::ToServer, |_| None, true).ok()?;
    let mut frames = Frames::new(frames);
    let frame = frames.next().ok()??.read().ok()??;
    matches!(frames.next(), Ok(None)).then_some((header, frame))
}

/// Whether the datagram's frame has a flag, or the datagram a key phase, that nothing is known of: quick readers leave that to the
/// general one, which ignores it.
fn is_odd(datagram: &[u8]) -> bool {
    datagram[2..4] != [0, 0] || datagram[HEADER + 1] != 0
}

/// What a call says, wherever it was read.
type Said = (u64, Scheme, Position, u64, u32, Vec<u8>);

#[test]
fn one_whole_call_is_read_quickly_as_it_is_read_in_general_and_nothing_else_is_taken_for_one() {
    let in_general = |datagram: &[u8]| -> Option<Said> {
        let (header, Frame::Call(head, Part { fragment: None, bytes })) = only_frame(datagram)? else { return None };
        let plain = head.meta == Meta::default();
        plain.then(|| (header.conversation, header.scheme, head.position, head.export, head.procedure, bytes.to_vec()))
    };
    let from_frames = |datagram: &[u8]| -> Option<Said> {
        let (header, frames) = open(datagram, Direction::ToServer, |_| None, true).ok()?;
        let (head, args) = only_call(frames)?;
        Some((header.conversation, header.scheme, head.position, head.export, head.procedure, args.to_vec()))
    };
    let at_a_glance = |datagram: &[u8]| -> Option<Said> {
        let call = LoneCall::glance(datagram)?;
        let said =
            (call.conversation(), call.scheme(), call.position(), call.export(), call.procedure(), call.args.to_vec());
        call.is_one(|_| None).then_some(said)
    };
    let head =
        CallHead { position: POSITION, export: 0x6162_6364_6566_6768, procedure: 0x7172_7374, meta: Meta::default() };
    for scheme in SCHEMES {
        for args in [&[][..], b"args", b"longer arguments"] {
            let call = written(scheme, 1200, |writer| writer.call(&head, Part { fragment: None, bytes: args }));
            let said = (CONVERSATION, scheme, POSITION, head.export, head.procedure, args.to_vec());
            assert_eq!(call.len(), call_overhead(scheme) + args.len());
            assert_eq!(in_general(&call), Some(said));
            for other in std::iter::once(call.clone()).chain(neighbours(&call, scheme)) {
                let expected = in_general(&other);
                for quick in [from_frames(&other), at_a_glance(&other)] {
                    assert!(quick == expected || quick.is_none() && is_odd(&other), "{other:x?}");
                }
            }
        }
    }
}

#[test]
fn one_whole_result_is_read_quickly_as_it_is_read_in_general_and_nothing_else_is_taken_for_one() {
    let failed = Status::Failed { ran: 2, kind: 0x0a0b };
    for (scheme, status) in
        SCHEMES.into_iter().flat_map(|s| [Status::Result, Status::Exception, failed].map(|t| (s, t)))
    {
        let body = b"eight by";
        let head = ResultHead { position: POSITION, status };
        let result = written(scheme, 1200, |writer| writer.result(&head, Part { fragment: None, bytes: body }));
        let mut returned = 0;
        for other in std::iter::once(result.clone()).chain(neighbours(&result, scheme)) {
            let expected = match only_frame(&other) {
                Some((header, Frame::Result(head, Part { fragment: None, bytes }))) => Some((header, head, bytes)),
                _ => None,
            };
            let frames = open(&other, Direction::ToServer, |_| None, true).map_or(&[][..], |(_, frames)| frames);
            let quick = only_result(frames).map(|(head, bytes)| (head.position, head.status, bytes));
            let general = expected.map(|(_, head, bytes)| (head.position, head.status, bytes));
            assert!(quick == general || quick.is_none() && is_odd(&other), "{other:x?}");
            let ours = expected.filter(|(header, head, _)| {
                (header.conversation, header.scheme) == (CONVERSATION, scheme)
                    && (head.position, head.status) == (POSITION, Status::Result)
                    && other[HEADER + FRAME_HEAD + RESULT_HEAD - 4..][..4] == [0; 4]
                    && !is_odd(&other)
            });
            let known = result_of(&other, CONVERSATION, &target(scheme).seal, POSITION);
            assert_eq!(known, ours.map(|(_, _, bytes)| bytes), "{other:x?}");
            returned += usize::from(known.is_some());
        }
        assert_eq!(returned > 100, status == Status::Result, "{returned} with other bodies, and other numbers");
    }
}

#[test]
fn a_call_and_a_result_as_long_as_a_frame_can_be_are_read_quickly() {
    for (scheme, len) in SCHEMES.into_iter().flat_map(|scheme| [4_000, 65_532].map(|len| (scheme, len))) {
        let bytes = vec![7; len];
        let result = written(scheme, 65_600, |writer| {
            let head = ResultHead { position: POSITION, status: Status::Result };
            writer.result(&head, Part { fragment: None, bytes: &bytes[RESULT_HEAD..] });
        });
        let body = result_of(&result, CONVERSATION, &target(scheme).seal, POSITION);
        assert_eq!(body.map(<[u8]>::len), Some(len - RESULT_HEAD));
        let call = written(scheme, 65_600, |writer| {
            let head = CallHead { position: POSITION, export: 1, procedure: 2, meta: Meta::default() };
            writer.call(&head, Part { fragment: None, bytes: &bytes[CALL_HEAD..] });
        });
        assert!(LoneCall::glance(&call).is_some_and(|call| call.is_one(|_| None)));
    }
}

#[test]
fn a_result_that_is_written_around_its_body_is_the_datagram_that_any_result_is() {
    for (scheme, len) in SCHEMES.into_iter().flat_map(|scheme| [0, 4, 40].map(|len| (scheme, len))) {
        let (target, body) = (target(scheme), &[7; 40][..len]);
        let head = ResultHead { position: POSITION, status: Status::Result };
        let expected = written(scheme, 1200, |writer| writer.result(&head, Part { fragment: None, bytes: body }));
        let mut out = vec![0xff; 100];
        let room = body_room(&mut out, scheme).expect("room");
        assert_eq!(room.len(), 100 - 44 - 8);
        room[..len].copy_from_slice(body);
        let number = || Numbers::from(NUMBER).take();
        let end = result_around(&mut out, &target, number(), POSITION, len).expect("room");
        assert_eq!(&out[..end], expected);
        assert_eq!(result_around(&mut out[..end - 1], &target, number(), POSITION, len), None);
        assert!(body_room(&mut out[..51], scheme).is_none());
    }
}

/// What travels with a call besides its arguments, in each combination.
fn metas() -> impl Iterator<Item = Meta> {
    (0..16).map(|n| Meta {
        deadline: (n & 1 != 0).then_some(0x8182_8384_8586_8788),
        trace: (n & 2 != 0).then_some(Trace { trace: *b"trace identifier", span: *b"the span" }),
        patience: (n & 4 != 0).then_some(0x9192_9394_9596_9798),
        detached: n & 8 != 0,
    })
}

fn fragments() -> [Option<Fragment>; 3] {
    let fragment = |ask| Fragment { total: 0xf1f2_f3f4, offset: 0xa1a2_a3a4, ask };
    [None, Some(fragment(false)), Some(fragment(true))]
}

#[test]
fn calls_and_results_fill_their_datagrams_and_come_back_whatever_goes_with_them() {
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
        assert_eq!((read.position, read.export, read.procedure), (head.position, head.export, head.procedure));
        assert_eq!((read.meta, part.fragment, part.bytes), (meta, fragment, &bytes[..room]));
        assert_eq!(part.total(), fragment.map_or(room, |fragment| fragment.total as usize));
        // The shortest datagram that has room for such a call has none for its arguments.
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
            room = if fragment.is_some() { writer.fragment_room() } else { writer.room() - RESULT_HEAD };
            writer.result(&head, Part { fragment, bytes: &bytes[..room] });
        });
        assert_eq!(result.len(), limit);
        let Some((_, Frame::Result(read, part))) = only_frame(&result) else { panic!("{fragment:?}") };
        assert_eq!((read.position, read.status), (head.position, head.status));
        assert_eq!((part.fragment, part.bytes), (fragment, &bytes[..room]));
    }
}

#[test]
fn what_fits_is_what_there_is_room_for() {
    for limit in 60..100 {
        let mut out = vec![0; limit];
        let mut writer = Writer::new(&mut out, limit, target(Scheme::Open));
        for _ in 0..2 {
            let room = writer.room();
            assert!(room.is_multiple_of(4) && (room..room + 4).contains(&(limit - 8 - writer.len() - FRAME_HEAD)));
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
fn a_selection_names_as_many_ranges_as_fit_and_comes_back() {
    let ahead: Vec<(u32, u32)> = (0..40).map(|n| (0x0102_0304 * (n + 1), 0x0102_0304 * (n + 1) + 0x11)).collect();
    let mut incoming = Incoming::new(u32::MAX, Vec::new(), 0, 0);
    incoming.grant(u32::MAX);
    for (start, end) in &ahead {
        let fragment = Fragment { total: u32::MAX, offset: *start, ask: false };
        incoming.take(0x6162_6364_6566_6768, fragment, &vec![1; (end - start) as usize]);
    }
    let empty = HEADER + FRAME_HEAD + 16 + 16 + 8;
    for (limit, named) in [(empty, 0), (empty + 7, 0), (empty + 8, 1), (empty + 8 * 32, 32), (1200, MAX_RANGES)] {
        for pull in [false, true] {
            let select = written(Scheme::Open, limit, |writer| writer.select(POSITION, pull, &incoming));
            assert_eq!(select.len(), empty + 8 * named);
            let Some((_, Frame::Select(position, select))) = only_frame(&select) else { panic!("{limit}") };
            assert_eq!((position, select.pull), (POSITION, pull));
            assert_eq!((select.through, select.limit, select.largest), (0, u32::MAX, 0x6162_6364_6566_6768));
            assert_eq!(select.ranges().collect::<Vec<_>>(), ahead[..named]);
        }
    }
    let all = written(Scheme::Open, 1200, |writer| writer.select_all(POSITION, 77));
    let Some((_, Frame::Select(_, select))) = only_frame(&all) else { panic!("it is one") };
    assert_eq!((select.through, select.limit, select.largest, select.pull), (77, 77, 0, false));
}

/// A frame, of a body of words.
fn frame(kind: u8, flags: u8, words: &[u32]) -> Vec<u8> {
    let [high, low] = (4 * words.len() as u16).to_be_bytes();
    [kind, flags, high, low].into_iter().chain(words.iter().flat_map(|word| word.to_be_bytes())).collect()
}

/// Whether a frame that can be read says something.
type Read = Result<bool, Malformed>;

/// Reads the first frame.
fn read(frame: &[u8]) -> Read {
    let raw = Frames::new(frame).next()?.expect("a frame");
    Ok(raw.read()?.is_some())
}

#[test]
fn a_frame_that_breaks_the_specification_is_malformed_and_its_neighbour_is_not() {
    let call = [0, 0, 0, 1, 0, 7, 1];
    let with = |more: &[u32]| [&call[..], more].concat();
    let ranges = |words: usize| [&[0, 0, 0, 1, 0, 0, 0, 0][..], &vec![5; words]].concat();
    let (said, skipped) = (Ok(true), Ok(false));
    let cases: Vec<(u8, u8, Vec<u32>, Read)> = vec![
        (CALL, 0, call.to_vec(), said),
        (CALL, 0, call[..6].to_vec(), Err(Malformed)),
        // Metadata: none, one deadline, one that is cut short, another kind, a length that is no multiple of four.
        (CALL, 1, with(&[0, 9]), said),
        (CALL, 1, with(&[12, 0x0001_0008, 0, 5]), said),
        (CALL, 1, with(&[8, 0x0001_0004, 5, 0]), Err(Malformed)),
        (CALL, 1, with(&[8, 0x0099_0004, 5, 0]), said),
        (CALL, 1, with(&[6, 0x0099_0002, 0, 0]), Err(Malformed)),
        (CALL, 1, with(&[16, 0, 0]), Err(Malformed)),
        // A fragment up to the end of its message, one byte beyond it, and one without bytes.
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
        (0x7f, 0, vec![], Err(Malformed)),
        (0x81, 0, vec![], skipped),
        (0xff, 0, vec![], skipped),
        (ACK, 0, vec![0, 1, 1200], said),
    ];
    for (kind, flags, words, expected) in cases {
        assert_eq!(read(&frame(kind, flags, &words)), expected, "{kind:x} {flags} {words:?}");
    }
    assert_eq!(read(&[PADDING, 0, 0, 2, 0, 0]), Err(Malformed), "a length is a multiple of four");
}

#[test]
fn flags_say_what_they_say_and_no_other_flag_does() {
    let is_detached = |flags: u8| {
        let call = frame(CALL, flags, &[0, 0, 0, 1, 0, 7, 1]);
        let Ok(Some(Frame::Call(head, _))) = Frames::new(&call).next().unwrap().unwrap().read() else { panic!() };
        head.meta.detached
    };
    assert_eq!([0x00, 0x08, 0x10, 0x18].map(is_detached), [false, true, false, true]);
    let asks = |flags: u8| {
        let call = frame(CALL, flags, &[0, 0, 0, 1, 0, 7, 1, 8, 0, 5]);
        let Ok(Some(Frame::Call(_, part))) = Frames::new(&call).next().unwrap().unwrap().read() else { panic!() };
        part.fragment.map(|fragment| fragment.ask)
    };
    assert_eq!([0x00, 0x02, 0x04, 0x06].map(asks), [None, Some(false), None, Some(true)]);
    let pulls = |flags: u8| {
        let select = frame(SELECT, flags, &[0, 0, 0, 1, 0, 0, 0, 0]);
        let Ok(Some(Frame::Select(_, select))) = Frames::new(&select).next().unwrap().unwrap().read() else { panic!() };
        select.pull
    };
    assert_eq!([0x00, 0x01, 0x02, 0x03].map(pulls), [false, true, false, true]);
    let detaches = |flags: u8| {
        let probe = frame(PROBE, flags, &[0, 0, 0, 1]);
        matches!(Frames::new(&probe).next().unwrap().unwrap().read(), Ok(Some(Frame::Detach(_))))
    };
    assert_eq!([0x00, 0x01, 0x02, 0x03].map(detaches), [false, true, false, true]);
    let is_whole = |kind: u8, flags: u8| {
        let result = frame(kind, flags, &[0, 0, 0, 1, 0]);
        Frames::new(&result).next().unwrap().unwrap().whole_result().is_some()
    };
    assert_eq!([is_whole(RESULT, 0), is_whole(RESULT, 2), is_whole(STATE, 0)], [true, false, false]);
}

fn ticket(rest: &[u8]) -> Ticket<'_> {
    let (client, incarnation, issued, mac) = (1 << 60, 2 << 50, 3 << 40, *b"sixteen bytes...");
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
        #[cfg(feature = "test-scheme")]
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
fn questions_and_answers_fill_their_datagrams_with_what_fits_of_a_handshake_and_come_back() {
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
        assert_eq!((read.client, read.nonce, read.versions), (question.client, question.nonce, question.versions));
        assert_eq!((read.schemes, read.from, read.name), (3, 4, &b"Store"[..]));
        assert_eq!((read.renew, read.proof), (renew, proof));
        // Beside a header, a tag and a frame's head; 28 bytes of fields, the name, and 16 of the handshake's own.
        let fits = 1200 - 32 - (28 + 12 + 16) - if renews { 8 + 52 + 20 } else { 0 } - if proves { 8 + 52 } else { 0 };
        assert_eq!(read.handshake, Handshake { part: &part[..fits], ..handshake });
    }
    let answer = welcome(b"rest", handshake);
    let datagram = written(Scheme::Open, 1200, |writer| assert!(writer.welcome(&answer, &[])));
    assert_eq!(datagram.len(), 1200);
    let Some((_, Frame::Welcome(read))) = only_frame(&datagram) else { panic!("it is one") };
    assert_eq!((read.handshake.total, read.handshake.part), (60_000, &part[..read.handshake.part.len()]));
}

#[test]
fn an_answer_has_as_many_procedures_as_fit_and_is_not_written_if_not_even_its_fields_do() {
    let procedures: Vec<Fingerprint> =
        (1..100).map(|n| Fingerprint { number: n, types: u64::from(n) << 40, name: u64::from(n) << 41 }).collect();
    let answer = welcome(b"rest", Handshake::default());
    let least = written(Scheme::Open, 1200, |writer| assert!(writer.welcome(&answer, &[]))).len();
    for (limit, fit) in [(least, 0), (least + 19, 0), (least + 20, 1), (least + 59, 2), (1200, (1200 - least) / 20)] {
        let datagram = written(Scheme::Open, limit, |writer| assert!(writer.welcome(&answer, &procedures)));
        assert_eq!(datagram.len(), least + 20 * fit);
        let Some((_, Frame::Welcome(read))) = only_frame(&datagram) else { panic!("{limit}") };
        assert_eq!(read.procedures().collect::<Vec<_>>(), procedures[..fit]);
        assert_eq!((read.nonce, read.conversation, &read.ticket), (answer.nonce, CONVERSATION, &answer.ticket));
        assert_eq!((read.versions, read.refused, read.scheme, read.export), ((1, 2), 0, 1, answer.export));
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
    assert!(answers(&answer, conversation, 1) && !answers(&answer, conversation, 0), "zero is nobody's");
    let mut torn = answer.clone();
    torn.resize(answer.len() + 16, 0);
    torn[HEADER + 2..HEADER + 4].copy_from_slice(&((answer.len() - 28 - 4 + 16) as u16).to_be_bytes());
    assert!(only_frame(&sealed(torn, Scheme::Open)).is_none(), "less than a procedure");
    let nobody = Bind { client: 0, ..bind(b"", Handshake::default()) };
    assert!(only_frame(&written(Scheme::Open, 1200, |writer| writer.bind(&nobody))).is_none());
}

#[test]
fn what_is_of_another_version_or_scheme_or_has_another_tag_is_not_opened() {
    let ack = written(Scheme::Open, 1200, |writer| writer.ack(Ack { low: 1, datagram: 2 }));
    let opens = |datagram: &[u8], check| open(datagram, Direction::ToServer, |_| None, check).is_ok();
    assert!(opens(&ack, true));
    for (at, byte) in [(0, 0), (0, 2), (1, 2), (1, 3), (1, 4)] {
        let mut other = ack.clone();
        other[at] = byte;
        assert!(!opens(&sealed(other, Scheme::Open), true), "byte {at} is {byte}");
    }
    let mut torn = ack.clone();
    torn[30] ^= 1;
    assert!(!opens(&torn, true) && opens(&torn, false), "unless the tag is not looked at");
    assert!(Frames::new(frames_of(&ack, Scheme::Open).unwrap()).next().is_ok_and(|raw| raw.is_some()));
    assert!(frames_of(&ack[..27], Scheme::Open).is_none());
}
