//! The keys by which a server seals the secrets of conversations into their tickets, so that it need not keep
//! them.
//!
//! The keys stay in this process's memory, and are replaced by new ones. When a key is erased, the tickets
//! that it sealed can no longer be opened, by the server or by somebody who steals its memory.

use zeroize::Zeroizing;

use crate::suite::{Key, Level, Suite, Suites, TAG};
use crate::wipe::wiped;

/// Bytes before what is sealed: the key's number and the count.
const HEAD: usize = 4 + 8;

/// The current key, and the one before.
pub struct TicketKeys {
    suite: Suite,
    current: Numbered,
    before: Option<Numbered>,
}

struct Numbered {
    number: u32,
    /// On the heap, so that it can be moved without leaving copies.
    key: Box<Key>,
    /// How many tickets the key has sealed.
    sealed: u64,
}

impl std::fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TicketKeys").field("number", &self.current.number).finish_non_exhaustive()
    }
}

impl TicketKeys {
    /// The number of bytes that sealing adds.
    pub const OVERHEAD: usize = HEAD + TAG;

    /// Makes the first key, for the best of these suites, from fresh entropy.
    pub fn new(suites: Suites, entropy: &Zeroizing<[u8; 44]>) -> TicketKeys {
        let suite = suites.best(Level::Secure).unwrap_or(Suite::ChaCha20Poly1305);
        TicketKeys { suite, current: numbered(suite, 0, entropy), before: None }
    }

    /// Makes a new key from fresh entropy, and erases the one before the current one.
    pub fn replace(&mut self, entropy: &Zeroizing<[u8; 44]>) {
        let next = numbered(self.suite, self.current.number.wrapping_add(1), entropy);
        self.before = Some(std::mem::replace(&mut self.current, next));
    }

    /// Returns whether the current key has sealed nothing.
    pub fn is_unused(&self) -> bool {
        self.current.sealed == 0
    }

    /// Returns the sealed form of `secret`. It opens only with the same `context`.
    pub fn seal(&mut self, context: &[u8], secret: &[u8]) -> Vec<u8> {
        let Numbered { number, key, sealed } = &mut self.current;
        *sealed += 1;
        let head = [&number.to_be_bytes()[..], &sealed.to_be_bytes()].concat();
        let mut whole = [context, &head, secret, &[0; TAG]].concat();
        key.seal(*sealed, &mut whole, context.len() + HEAD);
        whole.split_off(context.len())
    }

    /// Opens what [`TicketKeys::seal`] returned. Returns `None` if the key is erased, or anything was changed.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (number, rest) = sealed.split_first_chunk()?;
        let count = u64::from_be_bytes(*rest.first_chunk()?);
        let number = u32::from_be_bytes(*number);
        let mut keys = [Some(&self.current), self.before.as_ref()].into_iter().flatten();
        let key = keys.find(|key| key.number == number)?;
        let mut whole = Zeroizing::new([context, sealed].concat());
        if !key.key.open(count, &mut whole, context.len() + HEAD) {
            return None;
        }
        let secret = whole.get(context.len() + HEAD..whole.len().checked_sub(TAG)?)?;
        Some(Zeroizing::new(secret.to_vec()))
    }
}

fn numbered(suite: Suite, number: u32, entropy: &Zeroizing<[u8; 44]>) -> Numbered {
    let key = wiped(|| Box::new(Key::new(suite, |out| out.copy_from_slice(&entropy[..out.len()]))));
    Numbered { number, key, sealed: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entropy(byte: u8) -> Zeroizing<[u8; 44]> {
        Zeroizing::new([byte; 44])
    }

    #[test]
    fn a_ticket_opens_until_its_key_was_replaced_twice() {
        let mut keys = TicketKeys::new(Suites::of_this_machine(), &entropy(1));
        let sealed = keys.seal(b"context", b"secret");
        assert_eq!(sealed.len(), 6 + TicketKeys::OVERHEAD);
        let opens = |keys: &TicketKeys, context: &[u8], sealed: &[u8]| keys.open(context, sealed).is_some();
        assert_eq!(*keys.open(b"context", &sealed).unwrap(), b"secret");
        assert!(!opens(&keys, b"another", &sealed));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(!opens(&keys, b"context", &changed) && !opens(&keys, b"context", &sealed[..at]), "{at}");
        }
        keys.replace(&entropy(2));
        assert!(opens(&keys, b"context", &sealed));
        assert_ne!(keys.seal(b"context", b"secret"), sealed);
        keys.replace(&entropy(3));
        assert!(!opens(&keys, b"context", &sealed));
    }

    #[test]
    fn two_tickets_of_one_secret_differ() {
        let mut keys = TicketKeys::new(Suites::of_this_machine(), &entropy(1));
        assert_ne!(keys.seal(b"", b"secret"), keys.seal(b"", b"secret"));
    }
}
