//! What the registry reads, its file and the names that users write; and what clerks read of one another's memory.

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
