//! The keys of one end of a conversation, phase by phase (docs/protocol.md, section 11.4): when the end goes
//! on to the next phase, and which datagrams it has taken already.

use std::sync::Arc;

use farcall_crypto::{Cipher, End, Place, Secrets, Window, limit_per_phase, max_per_phase};

use crate::secure::Opened;
use crate::{Mutant, Rule};

/// The keys of one end of a conversation. They take 112 bytes, besides the cipher.
#[derive(Debug)]
pub(crate) struct Phases {
    secrets: Place,
    /// The datagrams that have come.
    window: Window,
    /// The expanded keys of the phase. They can be erased and made again at any time.
    cipher: Option<Arc<Cipher>>,
    /// How many datagrams were sealed in this phase.
    sealed: u32,
    end: End,
    /// Whether a datagram of the current phase has come, so that the other end has its keys.
    confirmed: bool,
    /// Whether the cipher was used since [`Phases::was_used`] was asked last.
    used: bool,
}

impl Phases {
    /// Makes a place for the secrets of a conversation that begins, which [`Phases::hold`] puts in. `cipher`
    /// are the expanded keys, if there are any.
    pub fn new(end: End, cipher: Option<Arc<Cipher>>) -> Phases {
        let (secrets, window) = (Place::default(), Window::default());
        Phases { secrets, window, cipher, sealed: 0, end, confirmed: true, used: true }
    }

    /// Takes the secrets in. Call this where the phases stay, because moving secrets leaves copies on the
    /// stack.
    pub fn hold(&mut self, secrets: &Secrets) {
        self.secrets.hold(secrets);
    }

    pub fn secrets(&self) -> &Place {
        &self.secrets
    }

    /// Returns the number of the current phase.
    pub fn phase(&self) -> u32 {
        self.secrets.phase()
    }

    /// Returns the cipher, if it was not erased.
    #[inline]
    pub fn expanded(&self) -> Option<&Arc<Cipher>> {
        self.cipher.as_ref()
    }

    /// Returns the cipher of the current phase.
    #[inline]
    pub fn cipher(&mut self) -> &Arc<Cipher> {
        self.used = true;
        self.cipher.get_or_insert_with(|| self.secrets.cipher(self.end, None))
    }

    /// Erases the expanded keys.
    pub fn erase_cipher(&mut self) {
        self.cipher = None;
    }

    /// Returns whether the cipher was used since this was asked last.
    pub fn was_used(&mut self) -> bool {
        std::mem::take(&mut self.used)
    }

    /// Returns the cipher that seals one more datagram. Goes on to the next phase if this one has sealed
    /// many.
    #[inline]
    pub fn sealing(&mut self, mutant: Mutant) -> &Arc<Cipher> {
        if self.sealed >= max_per_phase() && (self.confirmed || mutant.breaks(Rule::PhaseUnconfirmed)) {
            self.advance(false);
        }
        self.sealed += 1;
        self.cipher()
    }

    /// Returns whether the phase has sealed as many datagrams as it may. Then the conversation must end,
    /// because the other end has not been heard in this phase.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.sealed >= limit_per_phase()
    }

    /// Notes that the datagram of this number has been opened. Returns false if it had come before, unless
    /// `again` says that this does not matter.
    #[inline]
    pub fn take(&mut self, number: u64, opened: Opened, again: bool) -> bool {
        if !self.window.take(number) && !again {
            return false;
        }
        if opened.phase == self.phase().wrapping_add(1) {
            self.advance(true);
        }
        self.confirmed |= opened.phase == self.phase();
        true
    }

    /// Returns whether [`Phases::take`] would accept a datagram of this number.
    pub fn is_new(&self, number: u64) -> bool {
        self.window.is_new(number)
    }

    /// Notes that the datagram of this number has come before the conversation was known.
    pub fn note(&mut self, number: u64) {
        self.window.take(number);
    }

    /// Goes on to the next phase if the other end has followed to this one. Returns whether it does.
    pub fn go_on(&mut self) -> bool {
        let may = self.confirmed;
        if may {
            self.advance(false);
        }
        may
    }

    /// Goes on to the next phase. `confirmed` says whether the other end has done so.
    #[cold]
    fn advance(&mut self, confirmed: bool) {
        self.secrets.advance();
        if let Some(before) = &self.cipher {
            self.cipher = Some(self.secrets.cipher(self.end, Some(before)));
        }
        (self.sealed, self.confirmed) = (0, confirmed);
    }
}
