//! Base64, and how words from files and peers are shown in errors.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The most characters of a foreign word that an error shows.
const MAX_SHOWN_CHARS: usize = 60;

/// What begins a private key's text, so that nobody takes it for a public key.
pub(crate) const PRIVATE: &str = "private:";

pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes standard base64 with its padding.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Returns a foreign word for an error: escaped, shortened, and never a private key.
pub(crate) fn shown(word: &str) -> String {
    if word.contains(PRIVATE) {
        return "a private key".to_owned();
    }
    if word.is_empty() {
        return "nothing".to_owned();
    }
    let short: String = word.chars().take(MAX_SHOWN_CHARS).collect();
    let more = if short.len() < word.len() { "..." } else { "" };
    format!("{short:?}{more}")
}
