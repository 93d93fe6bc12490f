//! CALL: a call, or a fragment of its arguments.

use super::datagram::{u32_at, u64_at};
use super::kinds::CALL;
use super::part::{self, FRAGMENT_FIELDS};
use super::position::POSITION;
use super::{Body, FRAME_HEAD, HEADER, Malformed, Part, Position, Reader, Writer, only};
use crate::Trace;
use crate::scheme::Scheme;

/// The flag of a call with metadata.
const META: u8 = 0x01;
/// The flag of a call whose caller does not wait for its end.
const DETACHED: u8 = 0x08;

/// The kinds of metadata.
const DEADLINE: u16 = 1;
const TRACE: u16 = 2;
const PATIENCE: u16 = 3;
const SILENCE: u16 = 4;

/// Bytes of a call before its metadata.
pub(crate) const CALL_HEAD: usize = POSITION + 12;

/// Returns how many bytes a datagram with one whole call has besides arguments and metadata.
#[inline(always)]
pub(crate) const fn call_overhead(scheme: Scheme) -> usize {
    HEADER + FRAME_HEAD + CALL_HEAD + scheme.tag()
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHead {
    pub position: Position,
    pub export: u64,
    pub procedure: u32,
    pub meta: Meta,
}

/// What travels with a call besides its arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// What is left of the deadline, in nanoseconds.
    pub deadline: Option<u64>,
    pub trace: Option<Trace>,
    /// The client's patience with a silent server in nanoseconds, if it is not the default.
    pub patience: Option<u64>,
    /// How long the server is to wait for the client when it is silent, in nanoseconds, if that does not
    /// follow from the client's patience.
    pub silence: Option<u64>,
    /// Whether the call goes on although nobody waits for its end. On the wire this is a flag of the frame.
    pub detached: bool,
}

impl CallHead {
    /// Reads the frames of a datagram that holds one whole call without metadata, and nothing else. Returns
    /// `None` for any other datagram.
    #[inline(always)]
    pub fn only(frames: &[u8]) -> Option<(CallHead, &[u8])> {
        let (first, args) = only::<CALL_HEAD>(frames, CALL)?;
        Some((CallHead::of(first, Meta::default()), args))
    }

    #[inline]
    pub(super) fn read<'a>(flags: u8, mut r: Reader<'a>) -> Result<(CallHead, Part<'a>), Malformed> {
        let first = r.first::<CALL_HEAD>()?;
        let mut meta = if flags & META != 0 { Meta::read(&mut r)? } else { Meta::default() };
        meta.detached = flags & DETACHED != 0;
        Ok((CallHead::of(first, meta), Part::read(flags, r)?))
    }

    #[inline(always)]
    fn of(first: &[u8; CALL_HEAD], meta: Meta) -> CallHead {
        let (export, procedure) = (u64_at(first, POSITION), u32_at(first, POSITION + 8));
        CallHead { position: Position::of(first), export, procedure, meta }
    }
}

impl Meta {
    /// Returns how many bytes the metadata take on the wire: 0 if there are none.
    pub fn len(&self) -> usize {
        let words = [self.deadline, self.patience, self.silence];
        let items = 12 * words.iter().flatten().count() + self.trace.map_or(0, |_| 28);
        if items == 0 { 0 } else { 4 + items }
    }

    fn read(r: &mut Reader<'_>) -> Result<Meta, Malformed> {
        let len = r.u32()? as usize;
        if !len.is_multiple_of(4) {
            return Err(Malformed);
        }
        let mut items = Reader::new(r.bytes(len)?);
        let mut meta = Meta::default();
        while !items.is_empty() {
            let (kind, len) = (items.u16()?, items.u16()?);
            let mut item = Reader::new(items.bytes(len.into())?);
            match kind {
                DEADLINE => meta.deadline = Some(item.u64()?),
                PATIENCE => meta.patience = Some(item.u64()?),
                SILENCE => meta.silence = Some(item.u64()?),
                TRACE => meta.trace = Some(Trace { trace: item.array()?, span: item.array()? }),
                _ => {}
            }
        }
        Ok(meta)
    }

    /// Writes the metadata. There must be some.
    fn write(&self, body: &mut Body<'_>) {
        body.u32(self.len() as u32 - 4);
        if let Some(left) = self.deadline {
            body.u16(DEADLINE).u16(8).u64(left);
        }
        if let Some(patience) = self.patience {
            body.u16(PATIENCE).u16(8).u64(patience);
        }
        if let Some(silence) = self.silence {
            body.u16(SILENCE).u16(8).u64(silence);
        }
        if let Some(t) = &self.trace {
            body.u16(TRACE).u16(24).bytes(&t.trace).bytes(&t.span);
        }
    }
}

impl Writer<'_> {
    /// Returns how many bytes of a call's arguments fit this datagram, or `None` if not even a call without
    /// arguments fits.
    pub fn call_room(&self, meta: &Meta, fragmented: bool) -> Option<usize> {
        self.room().checked_sub(CALL_HEAD + meta.len() + if fragmented { FRAGMENT_FIELDS } else { 0 })
    }

    #[inline(always)]
    pub fn call(&mut self, head: &CallHead, args: Part<'_>) {
        let (flags, fields) = part::layout(args.fragment);
        let meta = head.meta.len();
        let flags = if meta > 0 { META } else { 0 } | if head.meta.detached { DETACHED } else { 0 } | flags;
        let len = CALL_HEAD + meta + fields + args.bytes.len();
        let (first, mut body) = self.frame_after::<CALL_HEAD>(CALL, flags, len, 0);
        head.position.write(first);
        first[POSITION..POSITION + 8].copy_from_slice(&head.export.to_be_bytes());
        first[POSITION + 8..].copy_from_slice(&head.procedure.to_be_bytes());
        if meta > 0 {
            head.meta.write(&mut body);
        }
        part::write_fields(&mut body, args.fragment);
        body.bytes(args.bytes);
    }
}
