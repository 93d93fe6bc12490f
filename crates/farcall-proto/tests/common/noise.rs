//! The handshake and the key schedule of docs/protocol.md, section 11, written a second time from the document,
//! with which vectors are checked. Not fast, and not in constant time.
#![allow(dead_code, reason = "each test program uses a part")]

use curve25519_dalek::MontgomeryPoint;
use ring::aead::{AES_128_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::{digest, hmac};

type Word = [u8; 32];

pub const HEADER: usize = 20;
/// Where the body of a datagram's first frame begins.
pub const BODY: usize = HEADER + 4;

/// Noise_IK_25519_ChaChaPoly_SHA256 (The Noise Protocol Framework, revision 34, section 5.2).
struct Symmetric {
    hash: Word,
    chain: Word,
    key: Word,
    count: u64,
    /// The chain and the key after each exchange of keys.
    mixed: Vec<Vec<u8>>,
}

/// What the two messages of a handshake are, and what they lead to.
pub struct Handshake {
    pub first: Vec<u8>,
    pub second: Vec<u8>,
    pub hash: Word,
    pub split: Vec<u8>,
    /// The chain and the key after each exchange of keys.
    pub mixed: Vec<Vec<u8>>,
}

/// The private keys of a handshake.
pub struct Keys {
    pub client: Word,
    pub server: Word,
    pub client_once: Word,
    pub server_once: Word,
}

impl Keys {
    /// Computes both messages.
    pub fn shake(&self, prologue: &[u8], payload: &[u8]) -> Handshake {
        let Keys { client, server, client_once, server_once } = self;
        let name = *b"Noise_IK_25519_ChaChaPoly_SHA256";
        let mut s = Symmetric { hash: name, chain: name, key: [0; 32], count: 0, mixed: Vec::new() };
        s.mix_hash(prologue);
        s.mix_hash(&public(server));
        let mut first = public(client_once).to_vec();
        s.mix_hash(&first);
        s.mix_key(&dh(client_once, &public(server)));
        first.extend(s.encrypt(&public(client)));
        s.mix_key(&dh(client, &public(server)));
        first.extend(s.encrypt(payload));
        let mut second = public(server_once).to_vec();
        s.mix_hash(&second);
        s.mix_key(&dh(server_once, &public(client_once)));
        s.mix_key(&dh(server_once, &public(client)));
        second.extend(s.encrypt(b""));
        let split = hkdf(&s.chain, b"", &[], 64);
        Handshake { first, second, hash: s.hash, split, mixed: s.mixed }
    }
}

impl Symmetric {
    fn mix_hash(&mut self, data: &[u8]) {
        let both = [&self.hash[..], data].concat();
        self.hash.copy_from_slice(digest::digest(&digest::SHA256, &both).as_ref());
    }

    fn mix_key(&mut self, material: &[u8]) {
        let both = hkdf(&self.chain, material, &[], 64);
        self.chain.copy_from_slice(&both[..32]);
        self.key.copy_from_slice(&both[32..]);
        self.count = 0;
        self.mixed.push(both);
    }

    fn encrypt(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.count.to_le_bytes());
        self.count += 1;
        let sealed = encrypt(&self.key, nonce, &self.hash, plain);
        self.mix_hash(&sealed);
        sealed
    }
}

/// Returns the public key of a private key.
pub fn public(private: &Word) -> Word {
    MontgomeryPoint::mul_base_clamped(*private).to_bytes()
}

/// X25519 (RFC 7748).
pub fn dh(private: &Word, public: &Word) -> Word {
    MontgomeryPoint(*public).mul_clamped(*private).to_bytes()
}

/// HKDF with SHA-256 (RFC 5869): extract, then expand.
pub fn hkdf(salt: &[u8], material: &[u8], info: &[u8], len: usize) -> Vec<u8> {
    expand(hmac(salt, material).as_ref(), info, len)
}

/// The expansion of HKDF with SHA-256.
pub fn expand(secret: &[u8], info: &[u8], len: usize) -> Vec<u8> {
    let (mut out, mut block) = (Vec::new(), Vec::new());
    for count in 1..=len.div_ceil(32) as u8 {
        block = hmac(secret, &[&block[..], info, &[count]].concat()).as_ref().to_vec();
        out.extend_from_slice(&block);
    }
    out.truncate(len);
    out
}

/// HMAC with SHA-256 (RFC 2104).
pub fn hmac(key: &[u8], message: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message)
}

/// Returns the AEAD key for these bytes: 16 are of AES-128-GCM, 32 of ChaCha20-Poly1305.
fn aead(key: &[u8]) -> LessSafeKey {
    let algorithm = if key.len() == 16 { &AES_128_GCM } else { &CHACHA20_POLY1305 };
    LessSafeKey::new(UnboundKey::new(algorithm, key).unwrap())
}

fn encrypt(key: &[u8], nonce: [u8; 12], clear: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut sealed = plain.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    aead(key).seal_in_place_append_tag(nonce, Aad::from(clear), &mut sealed).unwrap();
    sealed
}

/// Seals a datagram whose first `clear` bytes are not encrypted, without its tag.
pub fn seal(key_and_iv: &[u8], datagram: &[u8], clear: usize) -> Vec<u8> {
    let (key, iv) = key_and_iv.split_at(key_and_iv.len() - 12);
    let (clear, plain) = datagram.split_at(clear);
    [clear, &encrypt(key, nonce(iv, datagram), clear, plain)].concat()
}

/// Opens a datagram whose first `clear` bytes are not encrypted, and returns it without its tag.
pub fn open(key_and_iv: &[u8], datagram: &[u8], clear: usize) -> Option<Vec<u8>> {
    let (key, iv) = key_and_iv.split_at(key_and_iv.len() - 12);
    let (clear, sealed) = datagram.split_at(clear);
    let (mut plain, nonce) = (sealed.to_vec(), Nonce::assume_unique_for_key(nonce(iv, datagram)));
    let plain = aead(key).open_in_place(nonce, Aad::from(clear), &mut plain).ok()?;
    Some([clear, plain].concat())
}

/// Returns the nonce of a datagram.
pub fn nonce(iv: &[u8], datagram: &[u8]) -> [u8; 12] {
    let mut nonce: [u8; 12] = iv.try_into().unwrap();
    nonce.iter_mut().skip(4).zip(&datagram[12..20]).for_each(|(iv, number)| *iv ^= number);
    nonce
}

/// Returns the prologue of a handshake: the label, the client's identifier, the ticket of the hello with its
/// conversation, the versions and schemes that are offered, the name, and the server's step.
pub fn prologue(bind: &[u8], hello: &[u8], name: &str) -> Vec<u8> {
    let opaque = |bytes: &[u8]| {
        let len = (bytes.len() as u32).to_be_bytes();
        [&len, bytes, &[0; 3][..bytes.len().wrapping_neg() & 3]].concat()
    };
    let ticket = &hello[BODY + 8..BODY + 16 + 44];
    [
        b"farcall handshake 1\0",
        &bind[BODY..BODY + 8],
        ticket,
        &bind[BODY + 16..BODY + 24],
        &opaque(name.as_bytes()),
        &opaque(step(hello)),
    ]
    .concat()
}

/// Returns the step in the handshake field of a BIND or a WELCOME.
pub fn step(datagram: &[u8]) -> &[u8] {
    let word = |at: usize| u32::from_be_bytes(datagram[at..at + 4].try_into().unwrap()) as usize;
    let opaque = |at: usize| at + 4 + word(at).next_multiple_of(4);
    let ticket = |at: usize| opaque(at + 40);
    let handshake = match datagram[HEADER] {
        1 => {
            let (flags, mut at) = (datagram[HEADER + 1], BODY + 28);
            at = if flags & 1 != 0 { ticket(at + 8) + 20 } else { at };
            at = if flags & 2 != 0 { ticket(at + 8) } else { at };
            opaque(at)
        }
        _ => ticket(BODY + 16) + 16 + 20 + 16,
    };
    let (total, part) = (word(handshake), handshake + 16);
    assert_eq!((word(handshake + 4), word(handshake + 8), word(handshake + 12)), (0, 0, total));
    &datagram[part..part + total]
}
