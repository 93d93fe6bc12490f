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
use farcall_crypto::{Cipher, End, Place, Secrets};

use crate::phases::Phases;
use crate::secure::Opened;
use crate::wire::{Number, Numbers};
use crate::{Ended, Mutant, Rule, Time};

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
    /// The conversations whose clients were met outside UDP, as long as something lasts that was made there.
    met: HashMap<u64, Ended, BuildHasherDefault<Identity>>,
    /// The conversations whose ciphers are kept, the oldest first.
    busy: VecDeque<u64>,
    /// The conversations that must end, because no more may be sealed by their keys.
    spent: Vec<u64>,
    /// The cipher by which a datagram of an unknown conversation was to be opened last.
    expanded: Option<(u64, Arc<Cipher>)>,
    /// When ciphers of idle conversations were last looked for.
    erased: Time,
}

/// What is kept of one conversation. An idle one takes 136 bytes.
#[derive(Debug)]
struct Kept {
    phases: Phases,
    principal: Arc<Principal>,
    /// The numbers of the datagrams to the client.
    numbers: Numbers,
    /// How many datagrams did not open.
    failed: u32,
    /// When the phase began, in the server's coarse units.
    since: u32,
}

impl AllSecrets {
    /// Adds a conversation, which the datagram of this number has begun, if it was a datagram.
    pub fn insert(
        &mut self,
        (conversation, number): (u64, Option<u64>),
        (secrets, principal): (Secrets, Arc<Principal>),
        now: u32,
        mutant: Mutant,
    ) {
        let expanded = self.expanded.take_if(|(of, _)| *of == conversation).map(|(_, cipher)| cipher);
        let is_busy = expanded.is_some();
        let mut phases = Phases::new(End::Server, expanded);
        if let Some(number) = number.filter(|_| !mutant.breaks(Rule::FirstUnnoted)) {
            phases.note(number);
        }
        let mut kept = Box::new(Kept { phases, principal, numbers: Numbers::from(1), failed: 0, since: now });
        // They are copied to where they stay, because moving them would leave copies on the stack.
        kept.phases.hold(&secrets);
        self.of.insert(conversation, kept);
        if is_busy {
            self.note_busy(conversation);
        }
    }

    /// Keeps the cipher of a conversation that is not known yet, whose first datagram is about to be opened
    /// by it, and forgets the one before. It is used again if the conversation begins.
    pub fn keep_expanded(&mut self, conversation: u64, cipher: &Arc<Cipher>) {
        self.expanded = Some((conversation, cipher.clone()));
    }

    /// Forgets the cipher of a conversation that has not begun.
    pub fn forget_expanded(&mut self) {
        self.expanded = None;
    }

    /// Erases what is kept of a conversation. What was made at meetings with its client ends.
    pub fn remove(&mut self, conversation: u64, mutant: Mutant) {
        self.of.remove(&conversation);
        let met = self.met.remove(&conversation);
        if let Some(ended) = met.filter(|_| !mutant.breaks(Rule::MeetingOutlives)) {
            ended.end();
        }
    }

    /// Notes that the client of a conversation was met, and returns what tells when the conversation ends.
    pub fn meet(&mut self, conversation: u64) -> Ended {
        self.met.retain(|_, ended| ended.is_kept());
        self.met.entry(conversation).or_default().clone()
    }

    /// Returns whether something lasts that was made at a meeting with the client of a conversation.
    pub fn has_met(&self, conversation: u64) -> bool {
        self.met.get(&conversation).is_some_and(Ended::is_kept)
    }

    /// Returns the number that the next datagram to a conversation's client will have.
    pub fn next_number(&self, conversation: u64) -> Option<u64> {
        self.of.get(&conversation).map(|kept| kept.numbers.next())
    }

    /// Returns who a conversation's client is.
    #[inline]
    pub fn principal(&self, conversation: u64) -> Option<Arc<Principal>> {
        self.of.get(&conversation).map(|kept| kept.principal.clone())
    }

    /// Returns a conversation's secrets.
    pub fn secrets(&self, conversation: u64) -> Option<&Place> {
        self.of.get(&conversation).map(|kept| kept.phases.secrets())
    }

    /// Returns the clients of all conversations, each once for each evidence that it has shown.
    pub fn principals(&self) -> Vec<Arc<Principal>> {
        let mut seen = HashSet::new();
        let principals = self.of.values().map(|kept| &kept.principal);
        principals.filter(|principal| seen.insert(principal.key_and_evidence())).cloned().collect()
    }

    /// Returns the conversations whose clients are not `accepted` any more.
    pub fn of_others(&self, accepted: impl Fn(&Principal) -> bool) -> Vec<u64> {
        let others = self.of.iter().filter(|(_, kept)| !accepted(&kept.principal));
        others.map(|(conversation, _)| *conversation).collect()
    }

    /// Returns a conversation's cipher, by which its datagrams open.
    pub fn cipher(&mut self, conversation: u64) -> Option<Arc<Cipher>> {
        let phases = &mut self.of.get_mut(&conversation)?.phases;
        let is_new = phases.expanded().is_none();
        let cipher = phases.cipher().clone();
        if is_new {
            self.note_busy(conversation);
        }
        Some(cipher)
    }

    /// Returns the right to write the next datagram to a conversation's client, and the cipher that seals it.
    /// Goes on to the next phase if this one has sealed many.
    #[inline(never)]
    pub fn take_number(&mut self, conversation: u64, mutant: Mutant) -> Option<(Number, Arc<Cipher>)> {
        let Kept { phases, numbers, .. } = &mut **self.of.get_mut(&conversation)?;
        let is_new = phases.expanded().is_none();
        let taken = (numbers.take(), phases.sealing(mutant).clone());
        if phases.is_spent() && !mutant.breaks(Rule::PhaseUnlimited) {
            self.spent.push(conversation);
        }
        if is_new {
            self.note_busy(conversation);
        }
        Some(taken)
    }

    /// Returns whether the datagram of this number has not come before, as far as this is known.
    pub fn is_new(&self, conversation: u64, number: u64) -> bool {
        self.of.get(&conversation).is_none_or(|kept| kept.phases.is_new(number))
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
        let Some(Kept { phases, since, .. }) = self.of.get_mut(&conversation).map(|kept| &mut **kept) else {
            return true;
        };
        let before = phases.phase();
        if !phases.take(number, opened, mutant.breaks(Rule::ReplayIgnored)) {
            return false;
        }
        let is_old = now.wrapping_sub(*since) as i32 > MAX_AGE as i32;
        if phases.phase() != before || is_old && phases.go_on() {
            *since = now;
        }
        true
    }

    /// Returns whether any conversation must end, because no more may be sealed by its keys.
    #[inline(always)]
    pub fn has_spent(&self) -> bool {
        !self.spent.is_empty()
    }

    /// Takes the conversations that must end.
    pub fn take_spent(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.spent)
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
                if kept.phases.was_used() {
                    self.busy.push_back(conversation);
                } else {
                    kept.phases.erase_cipher();
                }
            }
        }
        !self.busy.is_empty()
    }

    /// Notes that the cipher of a conversation is kept. Erases ciphers that were not used lately, until few
    /// enough are kept.
    fn note_busy(&mut self, conversation: u64) {
        self.busy.push_back(conversation);
        let mut looks = 0;
        while self.busy.len() > MAX_CIPHERS
            && let Some(conversation) = self.busy.pop_front()
        {
            let Some(kept) = self.of.get_mut(&conversation) else { continue };
            looks += 1;
            if kept.phases.was_used() && looks <= MAX_CIPHERS {
                self.busy.push_back(conversation);
            } else {
                kept.phases.erase_cipher();
            }
        }
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
        let principal = Arc::new(Principal::new("somebody", [1; 32]));
        for conversation in 1..=MAX_CIPHERS as u64 + 100 {
            let secrets = Secrets::new([7; 32].into(), Level::Secure, Suite::ChaCha20Poly1305);
            all.insert((conversation, Some(1)), (secrets, principal.clone()), 0, Mutant::NONE);
            assert!(all.cipher(conversation).is_some() && all.cipher(1).is_some());
            assert!(all.busy.len() <= MAX_CIPHERS);
        }
        let kept = all.of.values().filter(|kept| kept.phases.expanded().is_some()).count();
        assert_eq!(kept, MAX_CIPHERS);
        let has_cipher = |conversation| all.of[&conversation].phases.expanded().is_some();
        assert!(has_cipher(1) && !has_cipher(2));
        assert!(all.cipher(2).is_some() && all.cipher(2).is_some());
        all.remove(2, Mutant::NONE);
        assert!(all.cipher(2).is_none());
    }

    #[test]
    fn keys_that_opened_the_first_datagram_of_a_conversation_are_not_expanded_again() {
        let mut all = AllSecrets::default();
        let principal = Arc::new(Principal::new("somebody", [1; 32]));
        let secrets = || Secrets::new([7; 32].into(), Level::Secure, Suite::ChaCha20Poly1305);
        let cipher = secrets().cipher(End::Server, None);
        for (expanded, used) in [(1, true), (2, false)] {
            all.keep_expanded(expanded, &cipher);
            all.insert((1, Some(1)), (secrets(), principal.clone()), 0, Mutant::NONE);
            assert_eq!(Arc::ptr_eq(&all.cipher(1).unwrap(), &cipher), used);
            all.remove(1, Mutant::NONE);
        }
        all.forget_expanded();
        assert_eq!(Arc::strong_count(&cipher), 1);
    }

    #[test]
    fn the_cipher_of_an_idle_conversation_is_erased() {
        let mut all = AllSecrets::default();
        let principal = Arc::new(Principal::new("somebody", [1; 32]));
        for conversation in 1..=2 {
            let secrets = Secrets::new([7; 32].into(), Level::Secure, Suite::ChaCha20Poly1305);
            all.insert((conversation, Some(1)), (secrets, principal.clone()), 0, Mutant::NONE);
            assert!(all.cipher(conversation).is_some());
        }
        let at = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        assert!(all.erase_idle(at(100)) && all.cipher(2).is_some());
        assert!(all.erase_idle(at(101)) && all.of[&1].phases.expanded().is_some(), "it is too early");
        assert!(all.erase_idle(at(110)));
        assert!(all.of[&1].phases.expanded().is_none() && all.of[&2].phases.expanded().is_some());
        assert!(!all.erase_idle(at(120)) && all.of[&2].phases.expanded().is_none());
        assert!(all.cipher(1).is_some(), "it is made anew when it is needed");
    }

    #[test]
    fn an_idle_conversation_takes_136_bytes() {
        assert!(size_of::<Kept>() <= 136, "{}", size_of::<Kept>());
    }
}
