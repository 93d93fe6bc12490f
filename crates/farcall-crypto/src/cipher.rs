//! Seals and opens the datagrams of a conversation.
//!
//! A cipher never changes, so threads can share it and use it without a lock. When the conversation goes on
//! to another phase, a new cipher takes its place.

use std::sync::Arc;

use crate::Level;
use crate::suite::{Key, TAG};

/// After this many datagrams in a phase, an end goes on to the next phase. RFC 9001, section 6.6, allows
/// 2^23 datagrams under one key of AES-GCM; this is half of them, so that both ends together stay below.
pub const MAX_PER_PHASE: u32 = 1 << 22;

/// An end seals no more than this many datagrams in a phase, even if it may not go on to the next one.
const LIMIT_PER_PHASE: u32 = 1 << 23;

/// Returns after how many datagrams in a phase an end must seal no more: 2^23, except in simulations.
#[inline(always)]
pub fn limit_per_phase() -> u32 {
    #[cfg(feature = "audit")]
    return crate::audit::limit_per_phase().unwrap_or(LIMIT_PER_PHASE);
    #[cfg(not(feature = "audit"))]
    LIMIT_PER_PHASE
}

/// Returns after how many datagrams in a phase an end goes on to the next one: [`MAX_PER_PHASE`], except in
/// simulations.
#[inline(always)]
pub fn max_per_phase() -> u32 {
    #[cfg(feature = "audit")]
    return crate::audit::max_per_phase().unwrap_or(MAX_PER_PHASE);
    #[cfg(not(feature = "audit"))]
    MAX_PER_PHASE
}

/// The expanded keys of one end of a conversation, in one phase.
pub struct Cipher {
    level: Level,
    phase: u32,
    seal: Key,
    /// The keys by which the other end's datagrams of the phase before, of this phase, and of the next one
    /// open.
    before: Option<Arc<Key>>,
    current: Arc<Key>,
    next: Key,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cipher").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl Cipher {
    pub(crate) fn new(
        level: Level,
        phase: u32,
        seal: Key,
        before: Option<&Cipher>,
        current: Key,
        next: Key,
    ) -> Cipher {
        let before = before.filter(|before| before.phase.wrapping_add(1) == phase);
        let before = before.map(|before| before.current.clone());
        Cipher { level, phase, seal, before, current: Arc::new(current), next }
    }

    /// The number of the phase. A datagram has its 14 lowest bits.
    pub fn phase(&self) -> u32 {
        self.phase
    }

    /// Seals the datagram of this number in place. The last [`TAG`] bytes are for the tag. The first `clear`
    /// bytes are never encrypted. A number must be used only once in each direction of a conversation.
    #[inline]
    pub fn seal(&self, number: u64, datagram: &mut [u8], clear: usize) {
        self.seal.seal(number, datagram, self.clear(datagram.len(), clear));
    }

    /// Opens the datagram of this number in place. `phase` are the 14 lowest bits of its phase. Returns
    /// the phase, which is this cipher's, the one before, or the next one. Returns `None` if the datagram does
    /// not open; then the bytes beyond `clear` have no meaning.
    #[inline]
    pub fn open(&self, phase: u16, number: u64, datagram: &mut [u8], clear: usize) -> Option<u32> {
        let clear = self.clear(datagram.len(), clear);
        let ahead = phase.wrapping_sub(self.phase as u16) & PHASE_BITS;
        let (key, opened) = match ahead {
            0 => (&*self.current, self.phase),
            1 => (&self.next, self.phase.wrapping_add(1)),
            PHASE_BITS => (self.before.as_deref()?, self.phase.wrapping_sub(1)),
            _ => return None,
        };
        key.open(number, datagram, clear).then_some(opened)
    }

    #[inline]
    fn clear(&self, len: usize, clear: usize) -> usize {
        Cipher::clear_of(self.level, len, clear)
    }

    /// Returns how many bytes of a datagram of `len` bytes are not encrypted at a level, if the first `clear`
    /// are never.
    #[inline]
    pub(crate) fn clear_of(level: Level, len: usize, clear: usize) -> usize {
        match level {
            Level::Authenticated => len.saturating_sub(TAG),
            Level::Secure => clear,
        }
    }
}

/// The bits of a phase's number that a datagram has.
const PHASE_BITS: u16 = 0x3fff;

/// The key that seals answers to one question. Nothing of them is encrypted.
pub struct Answering(pub(crate) Box<Key>);

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answering")
    }
}

impl Answering {
    /// Seals the datagram of this number in place. Its last [`TAG`] bytes are for the tag.
    pub fn seal(&self, number: u64, datagram: &mut [u8]) {
        self.0.seal(number, datagram, datagram.len().saturating_sub(TAG));
    }

    /// Returns whether the datagram of this number was sealed by this key.
    pub fn open(&self, number: u64, datagram: &mut [u8]) -> bool {
        let clear = datagram.len().saturating_sub(TAG);
        self.0.open(number, datagram, clear)
    }
}
