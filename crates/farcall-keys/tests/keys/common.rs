//! The parties of the tests: identities of fixed entropy, and what an authority signs for them.

use farcall_keys::{Grant, Identity, PublicKey, Rights, Terms};

/// The time of the tests, in Unix seconds.
pub const NOW: u64 = 1_800_000_000;
pub const DAY: u64 = 86_400;

pub const AUTHORITY: u8 = 1;
pub const SERVER: u8 = 2;
pub const CLIENT: u8 = 3;
pub const OTHER: u8 = 4;

pub fn identity(number: u8) -> Identity {
    Identity::from_entropy([number; 32])
}

pub fn key(number: u8) -> PublicKey {
    identity(number).public()
}

pub fn terms(to: u8, principal: &str, rights: Rights, scope: &str) -> Terms {
    Terms {
        key: key(to),
        principal: principal.parse().unwrap(),
        rights,
        scope: scope.parse().unwrap(),
        serial: 7,
        expires: NOW + 90 * DAY,
    }
}

/// Returns a grant of the authority.
pub fn grant(to: u8, principal: &str, rights: Rights, scope: &str) -> Grant {
    identity(AUTHORITY).grant(terms(to, principal, rights, scope)).unwrap()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    let text: String = text.split_whitespace().collect();
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}
