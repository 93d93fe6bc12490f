//! What a log of secrets has of a conversation, so that captured datagrams can be read.

use zeroize::Zeroizing;

use crate::secrets::{End, Secret, Secrets, key_of, next};
use crate::suite::Key;
use crate::{Cipher, Level, Suite};

/// What opens the datagrams of one conversation, in both directions. The conversation cannot be resumed by
/// it.
pub struct Logged {
    level: Level,
    suite: Suite,
    /// The secret of each phase so far, from the first.
    chain: Vec<Secret>,
}

impl std::fmt::Debug for Logged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Logged").field("level", &self.level).finish_non_exhaustive()
    }
}

impl Logged {
    /// The length in bytes of [`Logged::to_bytes`].
    pub const BYTES: usize = 2 + 32;

    /// Returns what a log may keep of a conversation that begins with these secrets.
    pub fn of(secrets: &Secrets) -> Logged {
        debug_assert_eq!(secrets.phase(), 0);
        let (level, suite, first) = secrets.phase_secret();
        Logged { level, suite, chain: vec![first.clone()] }
    }

    /// Returns what a log keeps: the level, the suite and the first phase's secret.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let kind = [self.level as u8, self.suite as u8];
        Zeroizing::new([&kind[..], &self.chain[0][..]].concat())
    }

    /// Reads what [`Logged::to_bytes`] wrote. Returns `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Logged> {
        let ([level, suite], first) = bytes.split_first_chunk()?;
        let chain = vec![Zeroizing::new(first.try_into().ok()?)];
        Some(Logged { level: Level::of(*level)?, suite: Suite::of(*suite)?, chain })
    }

    /// Opens the datagram of this number in place, which `sender` has sealed. `phase` are the 14 lowest bits
    /// of its phase; only the first 2^14 phases are read. Returns the phase, or `None` if the datagram does
    /// not open. Then the bytes beyond `clear` have no meaning.
    pub fn open(
        &mut self,
        sender: End,
        (phase, number): (u16, u64),
        datagram: &mut [u8],
        clear: usize,
    ) -> Option<u32> {
        while self.chain.len() <= usize::from(phase) {
            let following = next(self.chain.last()?);
            self.chain.push(following);
        }
        let key: Key = key_of(self.suite, &self.chain[usize::from(phase)], sender);
        let clear = Cipher::clear_of(self.level, datagram.len(), clear);
        key.open(number, datagram, clear).then_some(phase.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_log_opens_what_both_ends_have_sealed_in_every_phase() {
        for (level, suite) in
            [(Level::Secure, Suite::ChaCha20Poly1305), (Level::Authenticated, Suite::ChaCha20Poly1305)]
        {
            let mut secrets = Secrets::new(Zeroizing::new([5; 32]), level, suite);
            let bytes = Logged::of(&secrets).to_bytes();
            assert_eq!(bytes.len(), Logged::BYTES);
            assert!((0..bytes.len()).all(|len| Logged::from_bytes(&bytes[..len]).is_none()));
            let mut logged = Logged::from_bytes(&bytes).unwrap();
            for phase in 0..3 {
                for (sender, other) in [(End::Client, End::Server), (End::Server, End::Client)] {
                    let mut datagram = [7; 64];
                    secrets.cipher(sender, None).seal(9, &mut datagram, 20);
                    let mut opens = |sender, phase, number| {
                        logged.open(sender, (phase, number), &mut datagram.clone(), 20)
                    };
                    assert_eq!(opens(sender, phase, 9), Some(u32::from(phase)));
                    assert_eq!(opens(other, phase, 9), None);
                    assert_eq!(opens(sender, phase + 1, 9), None);
                    assert_eq!(opens(sender, phase, 8), None);
                }
                secrets.advance();
            }
        }
    }
}
