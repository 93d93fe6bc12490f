//! AUTH_SHORT (RFC 5531 appendix A): a short credential that a server gives to a client, for use in place of
//! its AUTH_SYS credential.
//!
//! An AUTH_SHORT has 16 bytes, where the credential can have 400. The server forgets the oldest AUTH_SHORT
//! when its table is full. A call with an AUTH_SHORT that the server does not know is refused with
//! AUTH_REJECTEDCRED, and the client sends the whole credential again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcall::System;

/// The short credentials that a server has given and still knows.
pub(super) struct ShortCredentials {
    /// The most short credentials that are known at the same time. The oldest is forgotten first.
    most: usize,
    /// A random number at the beginning of each AUTH_SHORT, so that an AUTH_SHORT of an earlier server is not
    /// accepted.
    incarnation: u64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// The AUTH_SYS credentials in the order of their numbers. The first has the number `first`.
    credentials: VecDeque<Arc<[u8]>>,
    first: u64,
    /// The number of each credential.
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

    /// Returns the AUTH_SHORT for the body of an AUTH_SYS credential. Makes a new one if the credential has
    /// none.
    pub(super) fn give(&self, credential: &[u8]) -> Vec<u8> {
        let number = self.lock().number(credential, self.most);
        [self.incarnation, number].map(u64::to_be_bytes).concat()
    }

    /// Returns the body of the AUTH_SYS credential for which an AUTH_SHORT was given, if it is still known.
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
    /// Returns the number of a credential. Adds the credential if it is new.
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
    fn an_auth_short_stands_for_its_credential_until_it_is_forgotten() {
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
    fn an_auth_short_that_the_server_did_not_give_is_unknown() {
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
