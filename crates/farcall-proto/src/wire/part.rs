//! The end of a CALL or a RESULT: the bytes of arguments or of a result, all of them or a fragment.

use super::{Body, Malformed, Reader};

/// The flags of a frame that holds a fragment, and whose sender wants to hear what has arrived.
const FRAGMENT: u8 = 0x02;
const ASK: u8 = 0x04;

/// Bytes that a fragment takes besides its own.
pub(super) const FRAGMENT_FIELDS: usize = 8;

/// Which part of a message a frame holds.
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

impl<'a> Part<'a> {
    /// All bytes of a message.
    #[inline(always)]
    pub fn whole(bytes: &'a [u8]) -> Part<'a> {
        Part { fragment: None, bytes }
    }

    /// How many bytes there are of the whole message.
    pub fn total(&self) -> usize {
        self.fragment.map_or(self.bytes.len(), |f| f.total as usize)
    }

    #[inline]
    pub(super) fn read(flags: u8, mut r: Reader<'a>) -> Result<Part<'a>, Malformed> {
        if flags & FRAGMENT == 0 {
            return Ok(Part::whole(r.rest()));
        }
        let fragment = Fragment { total: r.u32()?, offset: r.u32()?, ask: flags & ASK != 0 };
        let bytes = r.rest();
        let end = u64::from(fragment.offset) + bytes.len() as u64;
        if bytes.is_empty() || end > u64::from(fragment.total) {
            return Err(Malformed);
        }
        Ok(Part { fragment: Some(fragment), bytes })
    }
}

/// The frame's flags, and how many bytes stand before those of the part.
#[inline(always)]
pub(super) fn layout(fragment: Option<Fragment>) -> (u8, usize) {
    match fragment {
        None => (0, 0),
        Some(Fragment { ask: false, .. }) => (FRAGMENT, FRAGMENT_FIELDS),
        Some(Fragment { ask: true, .. }) => (FRAGMENT | ASK, FRAGMENT_FIELDS),
    }
}

/// Writes what stands before the bytes of a part.
#[inline(always)]
pub(super) fn write_fields(body: &mut Body<'_>, fragment: Option<Fragment>) {
    if let Some(f) = fragment {
        body.u32(f.total).u32(f.offset);
    }
}
