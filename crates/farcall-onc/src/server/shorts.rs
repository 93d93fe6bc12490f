//! AUTH_SHORT (RFC 5531 appendix A): what a server gives for an AUTH_SYS credential, to stand for it.
//!
//! It is 16 bytes where the credential may have 400. The server knows what it authenticated for only as long as its
//! table has room: who comes with one that it does not know any more is refused by AUTH_REJECTEDCRED, and
//! sends the credential.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcall::System;

/// What was given.
pub(super) struct ShortCredentials {
    /// So many are known at most; the oldest goes first.
    most: usize,
    /// Of chance, so that what an earlier server gave is not taken for ours.
    incarnation: u64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Credentials in the order of their numbers, of which the first has the number `first`.
    credentials: VecDeque<Arc<[u8]>>,
    first: u64,
    numbers: HashMap<Arc<[u8]>, u64>,
}

impl ShortCredentials {
    pub(super) fn new(most: usize) -> ShortCredentials {
        let mut incarnation = [0; 8];
        System::current().entropy(&mut incarnation);
        ShortCredentials {
            most: most.max(1),
            incarnation: u64::from_ne_bytes(incarnation),
            table: Mutex::default(),
        }
    }

    /// What authenticated for this body of an AUTH_SYS.
    pub(super) fn give(&self, credential: &[u8]) -> Vec<u8> {
        let number = self.lock().number(credential, self.most);
        [self.incarnation, number].map(u64::to_be_bytes).concat()
    }

    /// What this authenticated for, if that is known.
    pub(super) fn find(&self, short: &[u8]) -> Option<Arc<[u8]>> {
        let number = short.strip_prefix(&self.incarnation.to_be_bytes())?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        let table = self.lock();
        let place = usize::try_from(number.checked_sub(table.first)?).ok()?;
        table.credentials.get(place).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn number(&mut self, credential: &[u8], most: usize) -> u64 {
        if let Some(number) = self.numbers.get(credential) {
            return *number;
        }
        if self.credentials.len() >= most
            && let Some(oldest) = self.credentials.pop_front()
        {
            self.numbers.remove(&oldest);
            self.first += 1;
        }
        let (number, credential) = (self.first + self.credentials.len() as u64, Arc::from(credential));
        self.credentials.push_back(Arc::clone(&credential));
        self.numbers.insert(credential, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_stands_for_its_credential_until_there_are_too_many() {
        let shorts = ShortCredentials::new(3);
        let given: Vec<_> = [b"a", b"b", b"c"].map(|credential| shorts.give(credential)).into();
        assert_eq!(shorts.give(b"a"), given[0]);
        assert_eq!(shorts.find(&given[1]).as_deref(), Some(&b"b"[..]));
        let fourth = shorts.give(b"d");
        assert_eq!(shorts.find(&given[0]), None);
        assert_eq!(shorts.find(&fourth).as_deref(), Some(&b"d"[..]));
        assert_ne!(shorts.give(b"a"), given[0]);
        (0..1000u32).for_each(|n| drop(shorts.give(&n.to_be_bytes())));
        let table = shorts.lock();
        assert_eq!((table.credentials.len(), table.numbers.len()), (3, 3));
    }

    #[test]
    fn what_nobody_gave_stands_for_nothing() {
        let shorts = ShortCredentials::new(3);
        let given = shorts.give(b"a");
        assert_eq!(ShortCredentials::new(3).find(&given), None);
        for wrong in [&given[..15], &[&given[..], &[0]].concat(), b"", &[0xff; 16]] {
            assert_eq!(shorts.find(wrong), None);
        }
        let mut next = given;
        next[15] += 1;
        assert_eq!(shorts.find(&next), None);
    }
}
