//! What the registry reads, its file and the names that users write; what clerks read of one another's
//! memory, and what is asked of segments.

use farcall_names::{Address, Label, Name};

/// The text of a registry's file; what is read is written and read again.
pub fn names_file(data: &[u8]) {
    farcall_names::fuzz_file(data);
}

/// A record in a clerk's memory; what is read is written and read again.
pub fn clerk(data: &[u8]) {
    farcall::memory::clerk::fuzz_record(data);
}

/// A name, a label, an address; what is read is written and read again.
pub fn name(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(name) = text.parse::<Name>() {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    if let Ok(label) = text.parse::<Label>() {
        assert_eq!(label.as_str(), text);
    }
    if let Ok(address) = text.parse::<Address>() {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}

/// An access to a segment, or what is posted to it.
pub fn access(data: &[u8]) {
    farcall::memory::fuzz_access(data);
}

/// What a server counts, in its memory.
pub fn counters(data: &[u8]) {
    let words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    farcall::memory::fuzz_counters(&words);
}
