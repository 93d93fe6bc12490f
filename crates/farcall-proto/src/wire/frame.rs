//! The frames: what each says, how it is read and written (docs/protocol.md, "Frames").

use super::binding::{Bind, Stale, Ticket, Welcome, read_bind, read_stale, read_ticket, read_welcome};
use super::kinds::*;
use super::{FRAME_HEAD, Malformed, Reader, Writer, u32_at, u64_at};
use crate::Trace;

const META: u8 = 0x01;
const FRAGMENT: u8 = 0x02;
const ASK: u8 = 0x04;
const PULL: u8 = 0x01;
/// The flags of a CALL and of a PROBE whose caller does not wait for the call's end.
const DETACHED: u8 = 0x08;
const PROBE_DETACHED: u8 = 0x01;

pub(super) const RETURNED: u8 = 0;
const RAISED: u8 = 1;
const FAILED: u8 = 2;

const META_DEADLINE: u16 = 1;
const META_TRACE: u16 = 2;
const META_PATIENCE: u16 = 3;

/// The most ranges that a selective acknowledgement names.
pub(crate) const MAX_RANGES: usize = 32;
/// The longest body of a frame.
pub(super) const MAX_BODY: usize = u16::MAX as usize;

/// A frame as it was received.
#[derive(Debug)]
pub(crate) enum Frame<'a> {
    Bind(Bind<'a>),
    Welcome(Welcome<'a>),
    /// A hint: the server does not know the conversation, so the ticket is to be shown. The frame's other
    /// field, the number of the datagram that it answers, is only for people who read captures.
    Challenge {
        conversation: u64,
    },
    Stale(Stale),
    Ticket(Ticket<'a>),
    Call(CallHead, Part<'a>),
    Result(ResultHead, Part<'a>),
    Select(Position, Select<'a>),
    Cancel(Position),
    Probe(Position),
    /// A probe of a call that is to go on although its end is not waited for.
    Detach(Position),
    State(Position, Progress),
    MtuProbe(u32),
    MtuEcho(u32),
    /// Bytes for an export, of no call: nobody answers.
    Post(u64, &'a [u8]),
    Ack(Ack),
}

/// What a client says of itself in every datagram where it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    /// Every call of a smaller number has ended at the caller.
    pub low: u64,
    /// The largest datagram that is known to pass both ways.
    pub datagram: u32,
}

/// What a call, result or word about one names: the call and the exchange within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub activity: u32,
    /// Zero is the call itself; signals and bulk transfers number theirs from one.
    pub exchange: u32,
    pub sequence: u64,
}

/// What the server knows of a call that was asked after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing: send it (again).
    Unknown = 0,
    /// It is being executed, or waits for it.
    Running = 2,
    /// It was executed and the result is no longer held.
    Gone = 3,
}

/// The part of a message that a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub total: u32,
    pub offset: u32,
    /// The sender wants to hear what has arrived.
    pub ask: bool,
}

/// The bytes of arguments or results in one frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// `None`: these are all.
    pub fragment: Option<Fragment>,
    pub bytes: &'a [u8],
}

impl Part<'_> {
    /// How many bytes there are of the whole message.
    pub fn total(&self) -> usize {
        self.fragment.map_or(self.bytes.len(), |f| f.total as usize)
    }

    fn flags(&self) -> u8 {
        match self.fragment {
            None => 0,
            Some(Fragment { ask: false, .. }) => FRAGMENT,
            Some(Fragment { ask: true, .. }) => FRAGMENT | ASK,
        }
    }
}

/// What travels with a call besides its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// What is left of the deadline, in nanoseconds.
    pub deadline: Option<u64>,
    pub trace: Option<Trace>,
    /// The client's patience in nanoseconds, if it is not the usual one.
    pub patience: Option<u64>,
    /// Nobody waits for its end, and it is to go on. A flag.
    pub detached: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHead {
    pub position: Position,
    pub export: u64,
    pub procedure: u32,
    pub meta: Meta,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Result,
    Exception,
    /// Failed: whether it ran, and the kind, by their numbers.
    Failed {
        ran: u8,
        kind: u16,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultHead {
    pub position: Position,
    pub status: Status,
}

/// How far a message has arrived, and how far its sender may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Every byte before this one has arrived.
    pub through: u32,
    /// The first byte that may not be sent yet.
    pub limit: u32,
    /// The largest datagram number in which a fragment of the message, or a probe for it, came.
    pub largest: u64,
}

/// A selective acknowledgement: what has arrived of a fragmented message, and how far its sender
/// may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Select<'a> {
    /// Every byte before this one has arrived.
    pub through: u32,
    /// The first byte that may not be sent yet.
    pub limit: u32,
    /// The largest datagram number in which a fragment of the message, or a probe for it, came.
    pub largest: u64,
    /// The receiver waited in vain: what is under way is lost.
    pub pull: bool,
    ranges: &'a [u8],
}

impl Select<'_> {
    /// The ranges beyond `through` that have arrived, as start and end.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.ranges.chunks_exact(8).map(|c| {
            let word = |at: usize| u32::from_be_bytes([c[at], c[at + 1], c[at + 2], c[at + 3]]);
            (word(0), word(4))
        })
    }
}

/// The frames of a datagram, one after the other. Ends after the first that is malformed.
pub(crate) struct Frames<'a> {
    rest: Reader<'a>,
}

/// A frame of which only the head was read.
#[derive(Clone, Copy)]
pub(crate) struct Raw<'a> {
    kind: u8,
    flags: u8,
    body: Reader<'a>,
}

impl<'a> Frames<'a> {
    pub fn new(frames: &'a [u8]) -> Frames<'a> {
        Frames { rest: Reader::new(frames) }
    }

    /// The next frame; `None` at the end.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Raw<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let [kind, flags, high, low] = self.rest.array()?;
        let len = u16::from_be_bytes([high, low]) as usize;
        if !len.is_multiple_of(4) {
            return Err(Malformed);
        }
        Ok(Some(Raw { kind, flags, body: Reader::new(self.rest.bytes(len)?) }))
    }
}

impl<'a> Raw<'a> {
    /// Whether it is a CALL, which [`Raw::call`] reads.
    #[inline]
    pub fn is_call(&self) -> bool {
        self.kind == CALL
    }

    /// The call, if the frame is a CALL.
    #[inline]
    pub fn call(&self) -> Result<(CallHead, Part<'a>), Malformed> {
        let mut r = self.body;
        let first = r.first::<CALL_HEAD>()?;
        let mut meta = if self.flags & META != 0 { read_meta(&mut r)? } else { Meta::default() };
        meta.detached = self.flags & DETACHED != 0;
        Ok((CallHead::of(first, meta), read_part(self.flags, r)?))
    }

    fn result(&self) -> Result<(ResultHead, Part<'a>), Malformed> {
        let mut r = self.body;
        let head = ResultHead::of(r.first()?)?;
        Ok((head, read_part(self.flags, r)?))
    }

    /// A whole result, if it is one; else [`Raw::read`] says what it is.
    #[inline]
    pub fn whole_result(&self) -> Option<(ResultHead, &'a [u8])> {
        if (self.kind, self.flags) != (RESULT, 0) {
            return None;
        }
        let mut r = self.body;
        Some((ResultHead::of(r.first().ok()?).ok()?, r.rest()))
    }

    /// Any frame that this version knows; `None` for one that may be skipped.
    pub fn read(&self) -> Result<Option<Frame<'a>>, Malformed> {
        let mut r = self.body;
        Ok(Some(match self.kind {
            CALL => {
                let (head, part) = self.call()?;
                Frame::Call(head, part)
            }
            RESULT => {
                let (head, part) = self.result()?;
                Frame::Result(head, part)
            }
            ACK => Frame::Ack(Ack { low: r.u64()?, datagram: r.u32()? }),
            TICKET => Frame::Ticket(read_ticket(&mut r)?),
            SELECT => {
                let position = read_position(&mut r)?;
                Frame::Select(position, read_select(self.flags, r)?)
            }
            CANCEL => Frame::Cancel(read_position(&mut r)?),
            PROBE if self.flags & PROBE_DETACHED != 0 => Frame::Detach(read_position(&mut r)?),
            PROBE => Frame::Probe(read_position(&mut r)?),
            STATE => {
                let position = read_position(&mut r)?;
                Frame::State(position, read_progress(&mut r)?)
            }
            MTU_PROBE => Frame::MtuProbe(r.u32()?),
            MTU_ECHO => Frame::MtuEcho(r.u32()?),
            POST => Frame::Post(r.u64()?, r.rest()),
            BIND => Frame::Bind(read_bind(self.flags, r)?),
            WELCOME => Frame::Welcome(read_welcome(r)?),
            CHALLENGE => Frame::Challenge { conversation: r.u64()? },
            STALE => Frame::Stale(read_stale(r)?),
            PADDING => return Ok(None),
            _ if self.kind >= NON_CRITICAL => return Ok(None),
            _ => return Err(Malformed),
        }))
    }
}

fn read_progress(r: &mut Reader<'_>) -> Result<Progress, Malformed> {
    match r.u32()? {
        0 => Ok(Progress::Unknown),
        2 => Ok(Progress::Running),
        3 => Ok(Progress::Gone),
        _ => Err(Malformed),
    }
}

#[inline]
fn read_position(r: &mut Reader<'_>) -> Result<Position, Malformed> {
    Ok(Position::of(r.first::<POSITION>()?))
}

fn read_meta(r: &mut Reader<'_>) -> Result<Meta, Malformed> {
    let len = r.u32()? as usize;
    if !len.is_multiple_of(4) {
        return Err(Malformed);
    }
    let mut items = Reader::new(r.bytes(len)?);
    let mut meta = Meta::default();
    while !items.is_empty() {
        let kind = items.u16()?;
        let len = items.u16()? as usize;
        let mut item = Reader::new(items.bytes(len)?);
        match kind {
            META_DEADLINE => meta.deadline = Some(item.u64()?),
            META_PATIENCE => meta.patience = Some(item.u64()?),
            META_TRACE => meta.trace = Some(Trace { trace: item.array()?, span: item.array()? }),
            _ => {}
        }
    }
    Ok(meta)
}

#[inline]
fn read_part<'a>(flags: u8, mut r: Reader<'a>) -> Result<Part<'a>, Malformed> {
    if flags & FRAGMENT == 0 {
        return Ok(Part { fragment: None, bytes: r.rest() });
    }
    let fragment = Fragment { total: r.u32()?, offset: r.u32()?, ask: flags & ASK != 0 };
    let bytes = r.rest();
    let end = u64::from(fragment.offset) + bytes.len() as u64;
    if bytes.is_empty() || end > u64::from(fragment.total) {
        return Err(Malformed);
    }
    Ok(Part { fragment: Some(fragment), bytes })
}

fn read_select<'a>(flags: u8, mut r: Reader<'a>) -> Result<Select<'a>, Malformed> {
    let (through, limit, largest) = (r.u32()?, r.u32()?, r.u64()?);
    let select = Select { through, limit, largest, pull: flags & PULL != 0, ranges: r.rest() };
    if !select.ranges.len().is_multiple_of(8) || select.ranges.len() / 8 > MAX_RANGES {
        return Err(Malformed);
    }
    Ok(select)
}

#[cfg(test)]
pub(crate) fn read_select_for_tests(body: &[u8]) -> Select<'_> {
    let mut r = Reader::new(body);
    read_position(&mut r).unwrap();
    read_select(0, r).unwrap()
}

/// What every CALL and every RESULT begins with.
const POSITION: usize = 16;
pub(crate) const CALL_HEAD: usize = POSITION + 12;
pub(crate) const RESULT_HEAD: usize = POSITION + 4;

impl Position {
    /// The position with which a body begins.
    #[inline(always)]
    fn of<const N: usize>(body: &[u8; N]) -> Position {
        Position { activity: u32_at(body, 0), exchange: u32_at(body, 4), sequence: u64_at(body, 8) }
    }

    #[inline(always)]
    pub(super) fn write<const N: usize>(self, body: &mut [u8; N]) {
        body[..4].copy_from_slice(&self.activity.to_be_bytes());
        body[4..8].copy_from_slice(&self.exchange.to_be_bytes());
        body[8..POSITION].copy_from_slice(&self.sequence.to_be_bytes());
    }
}

impl CallHead {
    #[inline(always)]
    pub(super) fn of(first: &[u8; CALL_HEAD], meta: Meta) -> CallHead {
        let (export, procedure) = (u64_at(first, POSITION), u32_at(first, POSITION + 8));
        CallHead { position: Position::of(first), export, procedure, meta }
    }
}

impl ResultHead {
    #[inline(always)]
    pub(super) fn of(first: &[u8; RESULT_HEAD]) -> Result<ResultHead, Malformed> {
        let [.., status, ran, high, low] = *first;
        let status = match status {
            RETURNED => Status::Result,
            RAISED => Status::Exception,
            FAILED => Status::Failed { ran, kind: u16::from_be_bytes([high, low]) },
            _ => return Err(Malformed),
        };
        Ok(ResultHead { position: Position::of(first), status })
    }
}

impl Writer<'_> {
    fn position(&mut self, kind: u8, p: Position, more: usize) -> super::Body<'_> {
        let (first, body) = self.frame_after::<POSITION>(kind, 0, POSITION + more);
        p.write(first);
        body
    }

    /// Room for the bytes of a call's arguments in this datagram; `None` if even a call without
    /// any does not fit.
    pub fn call_room(&self, meta: &Meta, fragmented: bool) -> Option<usize> {
        self.room().checked_sub(CALL_HEAD + meta.len() + if fragmented { 8 } else { 0 })
    }

    #[inline(always)]
    pub fn call(&mut self, head: &CallHead, args: Part<'_>) {
        let meta = head.meta.len();
        let fragment = if args.fragment.is_some() { 8 } else { 0 };
        let flags =
            if meta > 0 { META } else { 0 } | if head.meta.detached { DETACHED } else { 0 } | args.flags();
        let len = CALL_HEAD + meta + fragment + args.bytes.len();
        let (first, mut body) = self.frame_after::<CALL_HEAD>(CALL, flags, len);
        head.position.write(first);
        first[POSITION..POSITION + 8].copy_from_slice(&head.export.to_be_bytes());
        first[POSITION + 8..].copy_from_slice(&head.procedure.to_be_bytes());
        if meta > 0 {
            head.meta.write(&mut body);
        }
        if let Some(f) = args.fragment {
            body.u32(f.total).u32(f.offset);
        }
        body.bytes(args.bytes);
    }

    /// Room for the bytes of a result's fragment in this datagram.
    pub fn fragment_room(&self) -> usize {
        self.room().saturating_sub(RESULT_HEAD + 8)
    }

    #[inline(always)]
    pub fn result(&mut self, head: &ResultHead, part: Part<'_>) {
        let fragment = if part.fragment.is_some() { 8 } else { 0 };
        let mut body = self.result_body(head, part.flags(), fragment + part.bytes.len(), 0);
        if let Some(f) = part.fragment {
            body.u32(f.total).u32(f.offset);
        }
        body.bytes(part.bytes);
    }

    /// A fragment whose bytes stand before, in and behind an insert. What is in it is not written if `apart`: the place
    /// in the datagram where it belongs.
    pub fn result_fragment(
        &mut self,
        head: &ResultHead,
        fragment: Fragment,
        [before, within, behind]: [&[u8]; 3],
        apart: bool,
    ) -> usize {
        let len = before.len() + within.len() + behind.len();
        let flags = Part { fragment: Some(fragment), bytes: &[] }.flags();
        let inserted = if apart { within.len() } else { 0 };
        let mut body = self.result_body(head, flags, 8 + len, inserted);
        body.u32(fragment.total).u32(fragment.offset);
        body.bytes(before);
        if !apart {
            body.bytes(within);
        }
        body.bytes(behind);
        self.len() - behind.len()
    }

    /// Writes a RESULT's head; `len` bytes come after it, of which `inserted` are not written.
    #[inline(always)]
    fn result_body(&mut self, head: &ResultHead, flags: u8, len: usize, inserted: usize) -> super::Body<'_> {
        let (status, ran, kind) = match head.status {
            Status::Result => (RETURNED, 0, 0),
            Status::Exception => (RAISED, 0, 0),
            Status::Failed { ran, kind } => (FAILED, ran, kind),
        };
        let [high, low] = u16::to_be_bytes(kind);
        let (first, body) = self.frame_around::<RESULT_HEAD>(RESULT, flags, RESULT_HEAD + len, inserted);
        head.position.write(first);
        first[POSITION..].copy_from_slice(&[status, ran, high, low]);
        body
    }

    /// Says what of a message has arrived: `extent`, and the ranges `beyond` the first gap, as many as fit.
    pub fn select(
        &mut self,
        p: Position,
        pull: bool,
        extent: Extent,
        beyond: impl Iterator<Item = (u32, u32)> + Clone,
    ) {
        let fits = self.room().saturating_sub(POSITION + 16) / 8;
        let ranges = || beyond.clone().take(MAX_RANGES.min(fits));
        let flags = if pull { PULL } else { 0 };
        let len = POSITION + 16 + 8 * ranges().count();
        let (first, mut body) = self.frame_after::<POSITION>(SELECT, flags, len);
        p.write(first);
        body.u32(extent.through).u32(extent.limit).u64(extent.largest);
        for (start, end) in ranges() {
            body.u32(start).u32(end);
        }
    }

    /// All `total` bytes of a message have arrived.
    pub fn select_all(&mut self, p: Position, total: u32) {
        self.position(SELECT, p, 16).u32(total).u32(total).u64(0);
    }

    pub fn cancel(&mut self, p: Position) {
        self.position(CANCEL, p, 0);
    }

    pub fn probe(&mut self, p: Position, detached: bool) {
        let (first, _) =
            self.frame_after::<POSITION>(PROBE, if detached { PROBE_DETACHED } else { 0 }, POSITION);
        p.write(first);
    }

    pub fn state(&mut self, p: Position, progress: Progress) {
        self.position(STATE, p, 4).u32(progress as u32);
    }

    pub fn post(&mut self, export: u64, bytes: &[u8]) {
        self.frame(POST, 0, 8 + bytes.len()).u64(export).bytes(bytes);
    }

    pub fn ack(&mut self, ack: Ack) {
        self.frame(ACK, 0, 12).u64(ack.low).u32(ack.datagram);
    }

    /// A probe, or the echo of one, that brings the datagram to exactly `size` bytes.
    pub fn mtu(&mut self, echo: bool, size: usize) {
        self.frame(if echo { MTU_ECHO } else { MTU_PROBE }, 0, 4).u32(size as u32);
        self.pad(size);
    }

    /// Padding that brings the datagram to `size` bytes, tag included, or as near as it can.
    pub fn pad(&mut self, size: usize) {
        let missing = size.saturating_sub(self.len + self.tag());
        if missing < FRAME_HEAD {
            return;
        }
        let len = (missing - FRAME_HEAD).min(self.room()) & !3;
        self.frame(PADDING, 0, len).rest.fill(0);
    }
}

impl Meta {
    /// Bytes on the wire: nothing when there is nothing to say.
    pub fn len(&self) -> usize {
        let words = self.deadline.map_or(0, |_| 12) + self.patience.map_or(0, |_| 12);
        let items = words + self.trace.map_or(0, |_| 28);
        if items == 0 { 0 } else { 4 + items }
    }

    /// Writes what there is to say, which is something.
    fn write(&self, body: &mut super::Body<'_>) {
        body.u32(self.len() as u32 - 4);
        if let Some(left) = self.deadline {
            body.u16(META_DEADLINE).u16(8).u64(left);
        }
        if let Some(patience) = self.patience {
            body.u16(META_PATIENCE).u16(8).u64(patience);
        }
        if let Some(t) = &self.trace {
            body.u16(META_TRACE).u16(24).bytes(&t.trace).bytes(&t.span);
        }
    }
}
