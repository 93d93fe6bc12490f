//! Which AEAD seals the datagrams of a conversation, and how much of a datagram it encrypts.

use ring::aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize;

use crate::wipe::after_seal;

/// Bytes of the tag at the end of a sealed datagram.
pub const TAG: usize = 16;

/// Bytes of a nonce (RFC 5116).
pub(crate) const NONCE: usize = 12;

/// Bytes of the longest key.
const MAX_KEY: usize = 32;

/// How much a conversation's seals protect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each end knows the other, and no datagram can be forged, changed or repeated. Everybody on the path
    /// can read them.
    Authenticated,
    /// Besides that, only the two ends can read the datagrams' frames.
    Secure,
}

impl Level {
    /// Returns the level that [`Logged`](crate::Logged) and tickets have as this number.
    pub(crate) fn of(number: u8) -> Option<Level> {
        [Level::Authenticated, Level::Secure].into_iter().find(|level| *level as u8 == number)
    }
}

/// An algorithm of authenticated encryption with associated data (AEAD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Suite {
    /// AES-128 in Galois/counter mode (NIST SP 800-38D), for processors that have instructions for it.
    Aes128Gcm = 1,
    /// ChaCha20 and Poly1305 (RFC 8439), for all others.
    ChaCha20Poly1305 = 2,
}

impl Suite {
    /// Returns the suite with this number on the wire.
    pub fn of(number: u8) -> Option<Suite> {
        match number {
            1 => Some(Suite::Aes128Gcm),
            2 => Some(Suite::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// Returns the suite's name.
    pub fn name(self) -> &'static str {
        match self {
            Suite::Aes128Gcm => "AES-128-GCM",
            Suite::ChaCha20Poly1305 => "ChaCha20-Poly1305",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// A set of suites, a bit for each: 1 << number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Suites(pub u8);

impl Suites {
    /// Returns the suites that this machine computes in constant time and fast: AES-GCM only where the
    /// processor has instructions for AES and for carry-less multiplication.
    pub fn of_this_machine() -> Suites {
        let chacha = 1 << Suite::ChaCha20Poly1305 as u8;
        Suites(if has_aes() { chacha | 1 << Suite::Aes128Gcm as u8 } else { chacha })
    }

    /// Returns the suites that are in both sets.
    pub fn and(self, other: Suites) -> Suites {
        Suites(self.0 & other.0)
    }

    /// Returns the fastest suite of the set for a level. What is not encrypted, `ring` authenticates faster
    /// by Poly1305 than by GHASH, but for the shortest datagrams (docs/security.md has the figures).
    pub fn best(self, level: Level) -> Option<Suite> {
        let order = match level {
            Level::Secure => [Suite::Aes128Gcm, Suite::ChaCha20Poly1305],
            Level::Authenticated => [Suite::ChaCha20Poly1305, Suite::Aes128Gcm],
        };
        order.into_iter().find(|suite| self.0 & 1 << *suite as u8 != 0)
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// An expanded AEAD key, and what its nonces are made of.
pub(crate) struct Key {
    key: LessSafeKey,
    /// Combined with a datagram's number, this gives the nonce (RFC 8446 section 5.3).
    iv: [u8; NONCE],
    suite: Suite,
    #[cfg(feature = "audit")]
    name: u64,
}

impl Key {
    /// Expands a key. `fill` derives that many bytes of key material.
    pub fn new(suite: Suite, fill: impl FnOnce(&mut [u8])) -> Key {
        let mut material = [0; MAX_KEY + NONCE];
        let len = suite.algorithm().key_len();
        let material_of_suite = &mut material[..len + NONCE];
        fill(material_of_suite);
        let mut iv = [0; NONCE];
        iv.copy_from_slice(&material_of_suite[len..]);
        let key = expand(suite, &material_of_suite[..len]);
        #[cfg(feature = "audit")]
        let name = crate::audit::name_of(&material);
        material.zeroize();
        Key {
            key,
            iv,
            suite,
            #[cfg(feature = "audit")]
            name,
        }
    }

    #[inline]
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        if let Some(last) = nonce.last_chunk_mut() {
            *last = (u64::from_be_bytes(*last) ^ number).to_be_bytes();
        }
        Nonce::assume_unique_for_key(nonce)
    }

    /// Encrypts the bytes from `clear` on in place, and writes the tag over all bytes into the last [`TAG`]
    /// ones.
    #[inline]
    pub fn seal(&self, number: u64, datagram: &mut [u8], clear: usize) {
        let Some((body, tag)) = datagram.split_last_chunk_mut::<TAG>() else { return };
        let Some((header, frames)) = body.split_at_mut_checked(clear) else { return };
        let nonce = self.nonce(number);
        if let Ok(sealed) = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), frames) {
            tag.copy_from_slice(sealed.as_ref());
        }
        self.wipe();
        #[cfg(feature = "audit")]
        crate::audit::note_seal(self.name, number, datagram);
    }

    /// Checks the tag, and decrypts the bytes from `clear` on in place. If the tag is wrong, the content of
    /// these bytes is lost.
    #[inline]
    #[must_use]
    pub fn open(&self, number: u64, datagram: &mut [u8], clear: usize) -> bool {
        if datagram.len() < clear + TAG {
            return false;
        }
        #[cfg(feature = "audit")]
        let digest = crate::audit::digest(datagram);
        let (header, sealed) = datagram.split_at_mut(clear);
        let opened = self.key.open_in_place(self.nonce(number), Aad::from(header), sealed).is_ok();
        self.wipe();
        #[cfg(feature = "audit")]
        crate::audit::note_open(self.name, number, digest, opened);
        opened
    }

    /// Overwrites the copies of the key that ChaCha20 leaves on the stack. (AES reads its keys from where
    /// they are.)
    #[inline(always)]
    fn wipe(&self) {
        if self.suite == Suite::ChaCha20Poly1305 {
            after_seal();
        }
    }
}

/// Overwrites the expanded key. `ring` does not, so a key that is known to be without worth takes its place.
impl Drop for Key {
    fn drop(&mut self) {
        self.key = expand(self.suite, &[0; MAX_KEY][..self.suite.algorithm().key_len()]);
        self.iv.zeroize();
        // Without this, the compiler may leave out a write to memory that nobody reads again.
        std::hint::black_box(&self.key);
    }
}

pub(crate) fn expand(suite: Suite, key: &[u8]) -> LessSafeKey {
    let unbound = UnboundKey::new(suite.algorithm(), key).expect("a key of the algorithm's length");
    LessSafeKey::new(unbound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_is_chosen_that_both_ends_have_and_the_fastest_goes_first() {
        let (aes, chacha) = (Suites(0b10), Suites(0b100));
        let both = Suites(0b110);
        assert_eq!(both.best(Level::Secure), Some(Suite::Aes128Gcm));
        assert_eq!(both.best(Level::Authenticated), Some(Suite::ChaCha20Poly1305));
        for level in [Level::Secure, Level::Authenticated] {
            assert_eq!(both.and(chacha).best(level), Some(Suite::ChaCha20Poly1305));
            assert_eq!(both.and(aes).best(level), Some(Suite::Aes128Gcm));
            assert_eq!(aes.and(chacha).best(level), None);
            assert!(
                Suites::of_this_machine().and(chacha).best(level).is_some(),
                "every machine has ChaCha20"
            );
        }
        for suite in [Suite::Aes128Gcm, Suite::ChaCha20Poly1305] {
            assert_eq!(Suite::of(suite as u8), Some(suite));
        }
        assert_eq!(Suite::of(0), None);
    }

    #[test]
    fn a_nonce_is_the_iv_and_the_number_combined() {
        let key = Key::new(Suite::Aes128Gcm, |material| material.fill(0xff));
        let nonce = |number: u64| *key.nonce(number).as_ref();
        assert_eq!(nonce(0), [0xff; 12]);
        assert_eq!(nonce(0x0102), [255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0xfe, 0xfd]);
    }

    #[test]
    fn a_short_datagram_does_not_open_and_seals_without_a_panic() {
        let key = Key::new(Suite::ChaCha20Poly1305, |material| material.fill(1));
        for len in 0..40 {
            let mut datagram = vec![0; len];
            key.seal(1, &mut datagram, 20);
            assert_eq!(key.open(1, &mut datagram, 20), len >= 20 + TAG);
        }
    }

    #[cfg(feature = "audit")]
    #[test]
    fn a_number_used_twice_and_a_forgery_are_counted() {
        use crate::audit::{Audit, Counts, counts, exchange, max_per_phase};
        let _ = exchange(Some(Audit::new(5)));
        let key = Key::new(Suite::ChaCha20Poly1305, |material| material.fill(1));
        let same = Key::new(Suite::ChaCha20Poly1305, |material| material.fill(1));
        let mut one = [7; 64];
        key.seal(1, &mut one, 20);
        assert!(same.open(1, &mut one.clone(), 20));
        assert!(!same.open(2, &mut one.clone(), 20));
        same.seal(2, &mut [8; 64], 20);
        assert_eq!((counts().reused, counts().forged), (0, 0));
        let mut other = [9; 64];
        same.seal(1, &mut other, 20);
        assert!(key.open(1, &mut other, 20) && key.open(1, &mut one, 20));
        assert_eq!((counts().sealed, counts().opened, counts().refused), (3, 3, 1));
        assert_eq!((counts().reused, counts().forged), (1, 0));
        assert_eq!(max_per_phase(), Some(5));
        let before = exchange(Some(Audit::new(6)));
        let mut unseen = [7; 64];
        let hidden = exchange(None);
        key.seal(3, &mut unseen, 20);
        let _ = exchange(hidden);
        assert!(key.open(3, &mut unseen, 20));
        assert_eq!(counts().forged, 1);
        assert_eq!(max_per_phase(), Some(6));
        assert!(exchange(before).is_some());
        assert!(exchange(None).is_some());
        assert_eq!((max_per_phase(), counts()), (None, Counts::default()));
    }
}
