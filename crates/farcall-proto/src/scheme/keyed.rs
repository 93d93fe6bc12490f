//! The scheme for tests: a keyed MAC over everything, with a longer tag, and a handshake as long as one with
//! post-quantum keys. Nothing is encrypted, and the handshake proves only that both ends know the same
//! secret.

use super::{Direction, keyed_hash};

/// The bytes of the tag.
pub(super) const TAG: usize = 16;

/// Bytes of a handshake in either direction: as many as a key of ML-KEM-768 has (FIPS 203, table 3).
pub(crate) const HANDSHAKE: usize = 1184;

/// The secret that both ends know beforehand.
pub(crate) type Secret = [u8; 16];

/// A hash of both handshakes. The field `rest` of the ticket holds it.
pub(crate) type Transcript = [u8; 16];

/// The key of a conversation, or zeros if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Key([u8; 16]);

impl Key {
    /// No key.
    pub const NONE: Key = Key([0; 16]);

    /// Derives the key of a client's conversation from the transcript of both handshakes.
    pub fn of(secret: &Secret, client: u64, conversation: u64, transcript: &Transcript) -> Key {
        let parts: [&[u8]; 3] = [&client.to_be_bytes(), &conversation.to_be_bytes(), transcript];
        Key(keyed_hash(secret, &parts).as_bytes())
    }

    /// Derives the key that seals a WELCOME. The key depends on the body of the BIND, so that the WELCOME
    /// answers that BIND and no other.
    pub fn answering(&self, bind: &[u8]) -> Key {
        Key(keyed_hash(&self.0, &[b"WELCOME", bind]).as_bytes())
    }

    /// Computes the tag of the datagram of this number, for the receiver's `conversation`.
    pub(super) fn tag(&self, body: &[u8], direction: Direction, conversation: u64, number: u64) -> [u8; TAG] {
        let (conversation, number) = (conversation.to_be_bytes(), number.to_be_bytes());
        keyed_hash(&self.0, &[&[direction as u8], &conversation, &number, body]).as_bytes()
    }
}

/// Makes an end's handshake from a seed. In a real scheme it would be a public key.
pub(crate) fn handshake(seed: &[u8; 16], of: u64) -> Vec<u8> {
    let block = |n: u64| keyed_hash(seed, &[&of.to_be_bytes(), &n.to_be_bytes()]).as_bytes();
    (0..HANDSHAKE as u64 / 16).flat_map(block).collect()
}

/// Hashes both handshakes and the schemes that the client offered.
pub(crate) fn transcript(schemes: u32, client: &[u8], server: &[u8]) -> Transcript {
    keyed_hash(&[0; 16], &[&schemes.to_be_bytes(), client, server]).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_depends_on_all_that_was_agreed_and_the_tag_on_the_whole_datagram() {
        let transcripts = [
            transcript(1, b"c", b"s"),
            transcript(2, b"c", b"s"),
            transcript(1, b"d", b"s"),
            transcript(1, b"c", b"t"),
        ];
        let mut keys: Vec<Key> = transcripts.iter().map(|agreed| Key::of(&[1; 16], 7, 9, agreed)).collect();
        let [first, ..] = transcripts;
        keys.extend([
            Key::of(&[2; 16], 7, 9, &first),
            Key::of(&[1; 16], 8, 9, &first),
            Key::of(&[1; 16], 7, 8, &first),
        ]);
        keys.extend([keys[0].answering(b"one"), keys[0].answering(b"other"), keys[1].answering(b"one")]);
        let distinct: std::collections::BTreeSet<[u8; 16]> = keys.iter().map(|key| key.0).collect();
        assert_eq!(distinct.len(), keys.len());
        let tags = [
            keys[0].tag(b"body", Direction::ToServer, 3, 4),
            keys[1].tag(b"body", Direction::ToServer, 3, 4),
            keys[0].tag(b"other", Direction::ToServer, 3, 4),
            keys[0].tag(b"body", Direction::ToClient, 3, 4),
            keys[0].tag(b"body", Direction::ToServer, 5, 4),
            keys[0].tag(b"body", Direction::ToServer, 3, 5),
        ];
        assert_eq!(std::collections::BTreeSet::from(tags).len(), tags.len());
        assert_eq!(handshake(&[1; 16], 7).len(), HANDSHAKE);
        assert_ne!(handshake(&[1; 16], 7), handshake(&[1; 16], 8));
    }
}
