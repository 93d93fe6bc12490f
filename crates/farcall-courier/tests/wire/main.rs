//! Tests of messages and packets, without I/O.

mod packets;
mod replies;
mod vectors;

/// Returns the bytes of words in hexadecimal.
pub fn bytes(words: &str) -> Vec<u8> {
    words.split_whitespace().flat_map(|word| u16::from_str_radix(word, 16).unwrap().to_be_bytes()).collect()
}
