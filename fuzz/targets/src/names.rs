//! Fuzz targets for the registry's file, for names that users write, for records that clerks read from one
//! another's memory, and for accesses to segments.

use farcall_names::{Address, Label, Name};

/// Reads the text of a registry's file, writes what was read, and reads it again.
pub fn names_file(data: &[u8]) {
    farcall_names::fuzz_file(data);
}

/// Reads lines as those of a registry's file of format 2, at once and one by one. Each line gets its check.
pub fn names_log(data: &[u8]) {
    farcall_names::fuzz_log(data);
}

/// Reads each line as an answer of etcd to a question for entries, and as a line of a watch.
pub fn etcd_answer(data: &[u8]) {
    farcall_names::fuzz_etcd(data);
}

/// Finds the instances of a type by messages of DNS. Each has its length in two bytes in front, and consists
/// of the flags, three counts of records, and what follows the question.
pub fn dns_answer(data: &[u8]) {
    farcall_names::fuzz_dns(data);
}

/// Reads a record from a clerk's memory, writes what was read, and reads it again.
pub fn clerk(data: &[u8]) {
    farcall::memory::clerk::fuzz_record(data);
}

/// Reads a name, a label and an address, writes what was read, and reads it again.
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

/// Serves an access to a segment, or a post to one.
pub fn access(data: &[u8]) {
    farcall::memory::fuzz_access(data);
}

/// Reads the counters of a server from memory that the server exports.
pub fn counters(data: &[u8]) {
    let words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    farcall::memory::fuzz_counters(&words);
}
