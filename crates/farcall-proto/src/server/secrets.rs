//! What a server keeps of conversations in schemes with secrets: their secrets, which of their datagrams have
//! come, and who their clients are. It is forgotten together with the conversation.
//!
//! The expanded keys (the cipher) of a conversation take a few KiB, so they are kept of busy conversations
//! only, and erased when a conversation has been idle for some sweeps.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

use farcall_base::Principal;
use farcall_crypto::{Cipher, End, Place, Secrets, Window, max_per_phase};

use crate::secure::Opened;
use crate::wire::Numbers;
use crate::{Mutant, Rule, Time};

/// The maximum number of conversations whose ciphers are kept.
const MAX_CIPHERS: usize = 4096;

/// How often ciphers that were not used since are erased, at most, and how many are looked at each time.
const ERASE_EVERY: Duration = Duration::from_secs(10);
const MAX_LOOKS: usize = 512;

/// A phase ends after about ten minutes if the conversation is used, in the server's coarse units of an eighth
/// of a second.
const MAX_AGE: u32 = 4 * 8 * 600;

/// The secrets of all conversations, by the server's identifiers.
#[derive(Debug, Default)]
pub(super) struct AllSecrets {
    of: HashMap<u64, Box<Kept>, BuildHasherDefault<Identity>>,
    /// The conversations whose ciphers are kept, the oldest first.
    busy: VecDeque<u64>,
    /// When ciphers of idle conversations were last looked for.
    erased: Time,
}

/// What is kept of one conversation. An idle one takes 136 bytes.
#[derive(Debug)]
struct Kept {
    secrets: Place,
    /// The datagrams that have come.
    window: Window,
    principal: Arc<Principal>,
    cipher: Option<Arc<Cipher>>,
    /// The numbers of the datagrams to the client.
    numbers: Numbers,
    /// How many datagrams were sealed in this phase.
    sealed: u32,
    /// How many datagrams did not open.
    failed: u32,
    /// When the phase began, in the server's coarse units.
    since: u32,
    /// Whether a datagram of the current phase has come, so that the client has its keys.
    confirmed: bool,
    /// Whether the cipher was used since the conversation was last looked at in `busy`.
    used: bool,
}

impl AllSecrets {
    /// Adds a conversation, which the datagram of this number has begun.
    pub fn insert(
        &mut self,
        (conversation, number): (u64, u64),
        (secrets, principal): (Secrets, Arc<Principal>),
        now: u32,
        mutant: Mutant,
    ) {
        let mut window = Window::default();
        if !mutant.breaks(Rule::FirstUnnoted) {
            window.take(number);
        }
        let mut kept = Box::new(Kept {
            secrets: Place::default(),
            window,
            principal,
            cipher: None,
            numbers: Numbers::from(1),
            sealed: 0,
            failed: 0,
            since: now,
            confirmed: true,
            used: false,
        });
        // They are copied to where they stay, because moving them would leave copies on the stack.
        kept.secrets.hold(&secrets);
        self.of.insert(conversation, kept);
    }

    /// Erases what is kept of a conversation.
    pub fn remove(&mut self, conversation: u64) {
        self.of.remove(&conversation);
    }

    /// Returns the numbers of the datagrams to a conversation's client.
    #[inline]
    pub fn numbers(&mut self, conversation: u64) -> Option<&mut Numbers> {
        self.of.get_mut(&conversation).map(|kept| &mut kept.numbers)
    }

    /// Returns who a conversation's client is.
    #[inline]
    pub fn principal(&self, conversation: u64) -> Option<Arc<Principal>> {
        self.of.get(&conversation).map(|kept| kept.principal.clone())
    }

    /// Returns a conversation's secrets.
    pub fn secrets(&self, conversation: u64) -> Option<&Place> {
        self.of.get(&conversation).map(|kept| &kept.secrets)
    }

    /// Returns the clients of all conversations, each once.
    pub fn principals(&self) -> Vec<Arc<Principal>> {
        let mut seen = HashSet::new();
        let principals = self.of.values().map(|kept| &kept.principal);
        principals.filter(|principal| seen.insert(principal.key)).cloned().collect()
    }

    /// Returns the conversations whose clients are not `accepted` any more.
    pub fn of_others(&self, accepted: impl Fn(&Principal) -> bool) -> Vec<u64> {
        let others = self.of.iter().filter(|(_, kept)| !accepted(&kept.principal));
        others.map(|(conversation, _)| *conversation).collect()
    }

    /// Returns a conversation's cipher, by which its datagrams open.
    pub fn cipher(&mut self, conversation: u64) -> Option<Arc<Cipher>> {
        let kept = self.of.get_mut(&conversation)?;
        kept.used = true;
        if let Some(cipher) = &kept.cipher {
            return Some(cipher.clone());
        }
        let cipher = kept.secrets.cipher(End::Server, None);
        kept.cipher = Some(cipher.clone());
        self.busy.push_back(conversation);
        self.make_room();
        Some(cipher)
    }

    /// Returns the cipher that seals the next datagram of a conversation. Goes on to the next phase if this
    /// one has sealed many.
    #[inline(never)]
    pub fn sealing(&mut self, conversation: u64, mutant: Mutant) -> Option<Arc<Cipher>> {
        let kept = self.of.get_mut(&conversation)?;
        kept.sealed += 1;
        if kept.sealed > max_per_phase() && (kept.confirmed || mutant.breaks(Rule::PhaseUnconfirmed)) {
            kept.advance(false);
        }
        match &kept.cipher {
            Some(cipher) => Some(cipher.clone()),
            None => self.cipher(conversation),
        }
    }

    /// Notes that the datagram of this number has been opened. Returns false if it had come before.
    #[inline]
    pub fn take(
        &mut self,
        now: u32,
        conversation: u64,
        (number, opened): (u64, Opened),
        mutant: Mutant,
    ) -> bool {
        let Some(kept) = self.of.get_mut(&conversation) else { return true };
        if !kept.window.take(number) && !mutant.breaks(Rule::ReplayIgnored) {
            return false;
        }
        if opened.phase == kept.secrets.phase().wrapping_add(1) {
            kept.advance(true);
            kept.since = now;
        }
        kept.confirmed |= opened.phase == kept.secrets.phase();
        if kept.confirmed && now.wrapping_sub(kept.since) as i32 > MAX_AGE as i32 {
            kept.advance(false);
            kept.since = now;
        }
        true
    }

    /// Notes that a datagram did not open. Returns whether so many did not that the conversation must end.
    pub fn note_failure(&mut self, conversation: u64) -> bool {
        let Some(kept) = self.of.get_mut(&conversation) else { return false };
        kept.failed = kept.failed.saturating_add(1);
        kept.failed == u32::MAX
    }

    /// Erases ciphers of conversations that are not busy any more. Returns whether any cipher is kept.
    pub fn erase_idle(&mut self, now: Time) -> bool {
        if now.since(self.erased) >= ERASE_EVERY {
            self.erased = now;
            for _ in 0..self.busy.len().min(MAX_LOOKS) {
                let Some(conversation) = self.busy.pop_front() else { break };
                let Some(kept) = self.of.get_mut(&conversation) else { continue };
                if std::mem::take(&mut kept.used) {
                    self.busy.push_back(conversation);
                } else {
                    kept.cipher = None;
                }
            }
        }
        !self.busy.is_empty()
    }

    /// Erases ciphers that were not used lately, until few enough are kept.
    fn make_room(&mut self) {
        let mut looks = 0;
        while self.busy.len() > MAX_CIPHERS
            && let Some(conversation) = self.busy.pop_front()
        {
            let Some(kept) = self.of.get_mut(&conversation) else { continue };
            looks += 1;
            if std::mem::take(&mut kept.used) && looks <= MAX_CIPHERS {
                self.busy.push_back(conversation);
            } else {
                kept.cipher = None;
            }
        }
    }
}

impl Kept {
    /// Goes on to the next phase. `confirmed` says whether the client has done so.
    #[cold]
    fn advance(&mut self, confirmed: bool) {
        self.secrets.advance();
        self.cipher = Some(self.secrets.cipher(End::Server, self.cipher.as_deref()));
        (self.sealed, self.confirmed) = (0, confirmed);
    }
}

/// Hashes a conversation's identifier, which the server has chosen at random, to itself.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }
}

#[cfg(test)]
mod tests {
    use farcall_crypto::{Level, Suite};

    use super::*;

    #[test]
    fn ciphers_are_kept_of_busy_conversations_only() {
        let mut all = AllSecrets::default();
        let principal = Arc::new(Principal { name: "somebody".into(), key: [1; 32] });
        for conversation in 1..=MAX_CIPHERS as u64 + 100 {
            let secrets = Secrets::new([7; 32].into(), Level::Secure, Suite::ChaCha20Poly1305);
            all.insert((conversation, 1), (secrets, principal.clone()), 0, Mutant::NONE);
            assert!(all.cipher(conversation).is_some() && all.cipher(1).is_some());
            assert!(all.busy.len() <= MAX_CIPHERS);
        }
        let kept = all.of.values().filter(|kept| kept.cipher.is_some()).count();
        assert_eq!(kept, MAX_CIPHERS);
        assert!(all.of[&1].cipher.is_some() && all.of[&2].cipher.is_none());
        assert!(all.cipher(2).is_some() && all.cipher(2).is_some());
        all.remove(2);
        assert!(all.cipher(2).is_none());
    }

    #[test]
    fn the_cipher_of_an_idle_conversation_is_erased() {
        let mut all = AllSecrets::default();
        let principal = Arc::new(Principal { name: "somebody".into(), key: [1; 32] });
        for conversation in 1..=2 {
            let secrets = Secrets::new([7; 32].into(), Level::Secure, Suite::ChaCha20Poly1305);
            all.insert((conversation, 1), (secrets, principal.clone()), 0, Mutant::NONE);
            assert!(all.cipher(conversation).is_some());
        }
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        assert!(all.erase_idle(at(100)) && all.cipher(2).is_some());
        assert!(all.erase_idle(at(101)) && all.of[&1].cipher.is_some(), "it is too early");
        assert!(all.erase_idle(at(110)));
        assert!(all.of[&1].cipher.is_none() && all.of[&2].cipher.is_some());
        assert!(!all.erase_idle(at(120)) && all.of[&2].cipher.is_none());
        assert!(all.cipher(1).is_some(), "it is made anew when it is needed");
    }

    #[test]
    fn an_idle_conversation_takes_136_bytes() {
        assert!(size_of::<Kept>() <= 136, "{}", size_of::<Kept>());
    }
}
