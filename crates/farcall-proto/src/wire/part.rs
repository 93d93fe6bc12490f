//! The end of a CALL or a RESULT: the bytes of arguments or of a result, all of them or a fragment.

use super::{Body, Malformed, Reader};

/// The flag of a frame that holds a fragment.
const FRAGMENT: u8 = 0x02;
/// The flag that asks the receiver to report what has arrived.
const ASK: u8 = 0x04;

/// The bytes of the fields before a fragment's bytes: the total and the offset.
pub(super) const FRAGMENT_FIELDS: usize = 8;

/// Which part of a message a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub total: u32,
    pub offset: u32,
    /// Whether the sender asks for a report of what has arrived.
    pub ask: bool,
}

/// The bytes of arguments or results in one frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// Where the bytes lie in the message, or `None` if they are the whole message.
    pub fragment: Option<Fragment>,
    pub bytes: &'a [u8],
}

impl<'a> Part<'a> {
    /// Makes a part that is a whole message.
    #[inline(always)]
    pub fn whole(bytes: &'a [u8]) -> Part<'a> {
        Part { fragment: None, bytes }
    }

    /// Returns the length of the whole message in bytes.
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

/// Returns the frame's flags, and how many bytes of fields come before the bytes of the part.
#[inline(always)]
pub(super) fn layout(fragment: Option<Fragment>) -> (u8, usize) {
    match fragment {
        None => (0, 0),
        Some(Fragment { ask: false, .. }) => (FRAGMENT, FRAGMENT_FIELDS),
        Some(Fragment { ask: true, .. }) => (FRAGMENT | ASK, FRAGMENT_FIELDS),
    }
}

/// Writes the fields that come before the bytes of a part.
#[inline(always)]
pub(super) fn write_fields(body: &mut Body<'_>, fragment: Option<Fragment>) {
    if let Some(f) = fragment {
        body.u32(f.total).u32(f.offset);
    }
}
