//! The entry by which a clerk, the name service of a machine, describes a segment, and the record of 128
//! bytes that encodes it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use xxhash_rust::xxh3::xxh3_64;

use super::Fault;
use crate::access::Rights;
use farcall_names::Label;

/// The most bytes of a segment's name.
pub const MAX_NAME: usize = 64;

/// A segment as the clerk of its machine knows it.
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Entry {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) generation: u64,
    pub(super) size: u64,
    /// The bits of [`Rights`].
    pub(super) rights: u32,
}

/// A record in a clerk's memory: an entry, a question for an entry, or the answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The entry. `None` is the answer that there is no such segment.
    pub(super) entry: Option<Entry>,
    /// A number that distinguishes a question and its answer from all other questions.
    pub(super) token: u64,
    /// The slot into which the answer to a question is to be written.
    pub(super) place: u64,
}

/// The content of a slot for a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// The slot was never used, so a search for a name ends here.
    Free,
    /// The slot's record was deleted.
    Deleted,
    /// The record is being written, or the bytes were not written by a clerk.
    Unsound,
    /// The slot holds a whole record.
    Held(Record),
}

/// The bytes of a record: 16 words, in little-endian order.
///
/// ```text
/// word  0      the flag: FREE, DELETED, WRITING, or the check of all that follows
/// word  1      bits 0..8 the name's length, 8..16 the address's version (4 or 6), 16..32 its port, 32..64 rights
/// words 2, 3   the address's bytes
/// word  4      generation
/// word  5      size
/// words 6..14  the name
/// word  14     token
/// word  15     place
/// ```
pub(super) const RECORD_BYTES: usize = 128;

/// The flags of slots without a record, as the bytes of their word.
pub(super) const FREE: [u8; 8] = 0_u64.to_le_bytes();
pub(super) const DELETED: [u8; 8] = 1_u64.to_le_bytes();
pub(super) const WRITING: [u8; 8] = 2_u64.to_le_bytes();

impl Entry {
    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address at which the segment is exported.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the rights that every process has.
    pub fn rights(&self) -> Rights {
        Rights::from_bits(self.rights)
    }

    /// Returns a name by which the segment can be imported without a clerk, such as
    /// `udp://127.0.0.1:7000/Load`.
    pub fn url(&self) -> String {
        format!("udp://{}/{}", self.address, self.name)
    }
}

/// Checks that a name is a valid name of a segment.
pub(super) fn check_name(name: &str) -> Result<(), Fault> {
    if name.len() > MAX_NAME {
        return Err(Fault::NotAName(format!(
            "a segment's name has at most {MAX_NAME} bytes, this one {}",
            name.len()
        )));
    }
    name.parse::<Label>().map(drop).map_err(|why| Fault::NotAName(why.to_string()))
}

impl Record {
    pub(super) fn of(entry: Entry) -> Record {
        Record { entry: Some(entry), token: 0, place: 0 }
    }

    /// Encodes the record. Callers check the name first, with [`check_name`]. A name that is too long would
    /// be cut, and readers would find the record unsound.
    pub(super) fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        if let Some(entry) = &self.entry {
            let (version, ip) = match entry.address.ip() {
                IpAddr::V4(ip) => (4, ip.to_ipv6_mapped().octets()),
                IpAddr::V6(ip) => (6, ip.octets()),
            };
            bytes[8] = entry.name.len().min(usize::from(u8::MAX)) as u8;
            bytes[9] = version;
            bytes[10..12].copy_from_slice(&entry.address.port().to_le_bytes());
            bytes[12..16].copy_from_slice(&entry.rights.to_le_bytes());
            bytes[16..32].copy_from_slice(&ip);
            bytes[32..40].copy_from_slice(&entry.generation.to_le_bytes());
            bytes[40..48].copy_from_slice(&entry.size.to_le_bytes());
            let name = &entry.name.as_bytes()[..entry.name.len().min(MAX_NAME)];
            bytes[48..48 + name.len()].copy_from_slice(name);
        }
        bytes[112..120].copy_from_slice(&self.token.to_le_bytes());
        bytes[120..128].copy_from_slice(&self.place.to_le_bytes());
        let flag = check(&bytes);
        bytes[..8].copy_from_slice(&flag);
        bytes
    }
}

/// Returns the first word of a sound record: a check word, which differs from the flags of slots without a
/// record.
fn check(bytes: &[u8; RECORD_BYTES]) -> [u8; 8] {
    (xxh3_64(&bytes[8..]) | 1 << 63).to_le_bytes()
}

impl Slot {
    /// Parses the bytes of a slot, which may be anything.
    pub(super) fn parse(bytes: &[u8; RECORD_BYTES]) -> Slot {
        match first(bytes, 0) {
            FREE => Slot::Free,
            DELETED => Slot::Deleted,
            flag if flag == check(bytes) => record(bytes).map_or(Slot::Unsound, Slot::Held),
            _ => Slot::Unsound,
        }
    }
}

fn record(bytes: &[u8; RECORD_BYTES]) -> Option<Record> {
    let (token, place) = (word(bytes, 14), word(bytes, 15));
    let entry = match bytes[8] {
        0 => None,
        _ => Some(entry(bytes)?),
    };
    Some(Record { entry, token, place })
}

fn entry(bytes: &[u8; RECORD_BYTES]) -> Option<Entry> {
    let name = std::str::from_utf8(bytes[48..48 + MAX_NAME].get(..usize::from(bytes[8]))?).ok()?;
    check_name(name).ok()?;
    let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[16..32]).ok()?);
    let ip = match bytes[9] {
        4 => IpAddr::V4(ip.to_ipv4_mapped().unwrap_or(Ipv4Addr::UNSPECIFIED)),
        6 => IpAddr::V6(ip),
        _ => return None,
    };
    let port = u16::from_le_bytes([bytes[10], bytes[11]]);
    let rights = u32::from_le_bytes(bytes[12..16].try_into().ok()?);
    let (generation, size) = (word(bytes, 4), word(bytes, 5));
    if port == 0 || generation == 0 {
        return None;
    }
    Some(Entry { name: name.to_owned(), address: SocketAddr::new(ip, port), generation, size, rights })
}

/// Parses arbitrary bytes as a slot of a clerk's memory, unchanged and with a valid check word. For the fuzz
/// target.
#[doc(hidden)]
pub fn fuzz_record(data: &[u8]) {
    let Some(data) = data.first_chunk::<RECORD_BYTES>() else { return };
    let mut sealed = *data;
    sealed[..8].copy_from_slice(&check(data));
    for bytes in [data, &sealed] {
        if let Slot::Held(record) = Slot::parse(bytes) {
            assert_eq!(Slot::parse(&record.to_bytes()), Slot::Held(record));
        }
    }
}

fn word(bytes: &[u8; RECORD_BYTES], which: usize) -> u64 {
    u64::from_le_bytes(first(bytes, which))
}

fn first(bytes: &[u8; RECORD_BYTES], which: usize) -> [u8; 8] {
    std::array::from_fn(|byte| bytes[which * 8 + byte])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &str) -> Entry {
        let address = "[fe80::7]:7000".parse().unwrap();
        Entry { name: name.to_owned(), address, generation: 9, size: 1 << 33, rights: 5 }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let longest = "x".repeat(MAX_NAME);
        for name in ["a", "Load", &longest] {
            let mut entry = sample(name);
            for address in ["[::1]:1", "10.0.0.7:65535", "0.0.0.0:5"] {
                entry.address = address.parse().unwrap();
                let record = Record { entry: Some(entry.clone()), token: 3, place: u64::MAX };
                assert_eq!(Slot::parse(&record.to_bytes()), Slot::Held(record));
            }
        }
        let nothing = Record { entry: None, token: 7, place: 0 };
        assert_eq!(Slot::parse(&nothing.to_bytes()), Slot::Held(nothing));
    }

    #[test]
    fn a_torn_record_is_unsound() {
        let (old, new) = (Record::of(sample("Load")).to_bytes(), Record::of(sample("Loud")).to_bytes());
        for words in 1..16 {
            let mut torn = old;
            torn[..words * 8].copy_from_slice(&new[..words * 8]);
            let parsed = Slot::parse(&torn);
            assert!(torn == old || torn == new || parsed == Slot::Unsound, "{words} words: {parsed:?}");
        }
    }

    #[test]
    fn any_bytes_are_parsed_without_harm() {
        let good = Record::of(sample("Load")).to_bytes();
        for at in 0..RECORD_BYTES {
            for change in [1, 0x80, 0xff] {
                let mut bad = good;
                bad[at] ^= change;
                assert_eq!(Slot::parse(&bad), Slot::Unsound);
                // The bytes are parsed also with a check word that says that the record is sound.
                let flag = check(&bad);
                bad[..8].copy_from_slice(&flag);
                let _ = Slot::parse(&bad);
            }
        }
        assert_eq!(Slot::parse(&Record::of(sample(&"x".repeat(MAX_NAME + 1))).to_bytes()), Slot::Unsound);
        assert_eq!(Slot::parse(&Record::of(sample("no name")).to_bytes()), Slot::Unsound);
    }
}
