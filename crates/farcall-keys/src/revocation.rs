//! Revocation lists: which keys and grants an authority has taken back.
//!
//! The encoding, version 1. Numbers are big-endian.
//!
//! ```text
//! version       1 byte, 1
//! authority     32 bytes, the public key that signed
//! serial        8 bytes; a later list has a greater one
//! issued        8 bytes, Unix seconds
//! greatest age  8 bytes, seconds
//! keys          4 bytes, how many; then 32 bytes each, in ascending order
//! grants        4 bytes, how many; then the serial of each, 8 bytes, in ascending order
//! signature     64 bytes, Ed25519 over the byte 25, "farcall revocation list 1" and everything above
//! ```

use std::collections::BTreeSet;

use crate::codec::{Malformed, Read, Reader};
use crate::key::{Context, PublicKey, SIGNATURE_BYTES};

/// The most keys and grants of a list together.
pub const MAX_REVOCATIONS: usize = 100_000;

const VERSION: u8 = 1;

/// What is revoked: keys, which no longer count for anything, and single grants of the authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revoked {
    /// The keys' encodings. A key that is not sound can be revoked: it has no other use.
    keys: Vec<[u8; 32]>,
    grants: Vec<u64>,
}

/// A signed list of what an authority has revoked. A revoked key counts for nothing, even where a key file
/// lists it. A list that is older than its greatest age is stale: as long as it is, no grant of its authority
/// makes a new binding, because newer revocations may be missing.
///
///  [`RevocationList::is_genuine`] checks the signature;
/// decoding does not.
///
/// ```
/// use farcall_keys::{Identity, Revoked};
///
/// let [authority, lost] = [1, 2].map(|byte| Identity::from_entropy([byte; 32]));
/// let revoked = Revoked::new([lost.public()], [17]).expect("less than 100,000");
/// let list = authority.revoke(1, 1_800_000_000, 7 * 86_400, revoked);
/// assert!(list.is_genuine() && list.has_key(&lost.public()) && list.has_grant(17));
/// assert!(!list.is_stale(1_800_000_000 + 7 * 86_400) && list.is_stale(1_800_000_001 + 7 * 86_400));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationList {
    authority: PublicKey,
    serial: u64,
    issued: u64,
    greatest_age: u64,
    revoked: Revoked,
    signature: [u8; SIGNATURE_BYTES],
}

impl Revoked {
    /// Returns what is to be revoked. Duplicates count once.
    ///
    /// Returns `None` if there are more than [`MAX_REVOCATIONS`] together.
    pub fn new(
        keys: impl IntoIterator<Item = PublicKey>,
        grants: impl IntoIterator<Item = u64>,
    ) -> Option<Revoked> {
        let keys: BTreeSet<[u8; 32]> = keys.into_iter().map(|key| *key.as_bytes()).collect();
        let grants: BTreeSet<u64> = grants.into_iter().collect();
        let fits = keys.len() + grants.len() <= MAX_REVOCATIONS;
        fits.then(|| Revoked { keys: keys.into_iter().collect(), grants: grants.into_iter().collect() })
    }

    /// Returns the revoked keys that are sound, in ascending order.
    pub fn keys(&self) -> impl Iterator<Item = PublicKey> {
        self.keys.iter().filter_map(|bytes| PublicKey::from_bytes(*bytes).ok())
    }

    /// Returns the serials of the revoked grants, in ascending order.
    pub fn grants(&self) -> &[u64] {
        &self.grants
    }
}

impl RevocationList {
    pub(crate) fn sign(
        authority: PublicKey,
        [serial, issued, greatest_age]: [u64; 3],
        revoked: Revoked,
        signer: impl FnOnce(&[u8]) -> [u8; SIGNATURE_BYTES],
    ) -> RevocationList {
        let signature = [0; SIGNATURE_BYTES];
        let mut list = RevocationList { authority, serial, issued, greatest_age, revoked, signature };
        list.signature = signer(&list.signed_bytes());
        list
    }

    /// Decodes a list. Its signature is not checked.
    ///
    /// # Errors
    /// The place of the first byte that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<RevocationList, Malformed> {
        let mut reader = Reader::new("a revocation list", bytes);
        reader.version(VERSION)?;
        let authority = reader.key()?;
        let (serial, issued, greatest_age) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let key_count = count(&mut reader, 0, 32)?;
        let keys: Vec<[u8; 32]> = reader.take(key_count * 32)?.as_chunks().0.to_vec();
        let grant_count = count(&mut reader, key_count, 8)?;
        let grants = reader.take(grant_count * 8)?.as_chunks().0;
        let grants: Vec<u64> = grants.iter().map(|serial| u64::from_be_bytes(*serial)).collect();
        if !keys.is_sorted_by(|a, b| a < b) || !grants.is_sorted_by(|a, b| a < b) {
            return Err(reader.wrong("the keys or the grants are not in ascending order"));
        }
        let signature = reader.array()?;
        reader.end()?;
        let revoked = Revoked { keys, grants };
        Ok(RevocationList { authority, serial, issued, greatest_age, revoked, signature })
    }

    /// Encodes the list, in at most some 3.2 MB.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.signed_bytes();
        bytes.extend_from_slice(&self.signature);
        bytes
    }

    /// Returns the key that signed the list, if the list is genuine.
    pub fn authority(&self) -> PublicKey {
        self.authority
    }

    /// Returns the list's number. A later list of the authority has a greater one.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns when the list was signed, in Unix seconds.
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// Returns the age in seconds beyond which the list is stale.
    pub fn greatest_age(&self) -> u64 {
        self.greatest_age
    }

    /// Returns what is revoked.
    pub fn revoked(&self) -> &Revoked {
        &self.revoked
    }

    /// Returns whether the signature is its authority's.
    pub fn is_genuine(&self) -> bool {
        self.authority.verify(Context::REVOCATIONS, &self.signed_bytes(), &self.signature)
    }

    pub(crate) fn signature(&self) -> &[u8; SIGNATURE_BYTES] {
        &self.signature
    }

    /// Returns whether the list is older than its greatest age.
    pub fn is_stale(&self, now: u64) -> bool {
        now.saturating_sub(self.issued) > self.greatest_age
    }

    /// Returns whether the key is revoked.
    pub fn has_key(&self, key: &PublicKey) -> bool {
        self.revoked.keys.binary_search(key.as_bytes()).is_ok()
    }

    /// Returns whether the authority's grant with this serial is revoked.
    pub fn has_grant(&self, serial: u64) -> bool {
        self.revoked.grants.binary_search(&serial).is_ok()
    }

    /// Returns everything before the signature.
    fn signed_bytes(&self) -> Vec<u8> {
        let Revoked { keys, grants } = &self.revoked;
        let mut bytes = Vec::with_capacity(129 + keys.len() * 32 + grants.len() * 8);
        bytes.push(VERSION);
        bytes.extend_from_slice(self.authority.as_bytes());
        [self.serial, self.issued, self.greatest_age]
            .iter()
            .for_each(|number| bytes.extend_from_slice(&number.to_be_bytes()));
        bytes.extend_from_slice(&(keys.len() as u32).to_be_bytes());
        keys.iter().for_each(|key| bytes.extend_from_slice(key));
        bytes.extend_from_slice(&(grants.len() as u32).to_be_bytes());
        grants.iter().for_each(|serial| bytes.extend_from_slice(&serial.to_be_bytes()));
        bytes
    }
}

/// Reads how many entries of `size` bytes follow. `before` entries came before.
fn count(reader: &mut Reader<'_>, before: usize, size: usize) -> Read<usize> {
    let count = reader.u32()?;
    match usize::try_from(count) {
        Ok(count) if count <= MAX_REVOCATIONS - before && count * size <= reader.remaining() => Ok(count),
        _ => Err(reader.wrong(format!(
            "{count} entries of {size} bytes, but {} bytes follow, and at most {MAX_REVOCATIONS} entries",
            reader.remaining()
        ))),
    }
}
