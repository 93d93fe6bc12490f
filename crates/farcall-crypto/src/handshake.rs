//! The two messages by which the ends of a conversation agree on a secret: Noise IK with X25519,
//! ChaCha20-Poly1305 and SHA-256 (The Noise Protocol Framework, revision 34, section 7.5).
//!
//! In this pattern the client knows the server's public key before it begins, and shows its own, encrypted,
//! in the first message. Each message has a payload. The server cannot trust the first message's payload to
//! be new, because anybody can repeat the message; the first datagram that opens under the final keys shows
//! that the client is there.

use std::hint::black_box;

use curve25519_dalek::MontgomeryPoint;
use ring::aead::{Aad, LessSafeKey, Nonce};
use ring::digest::{Context, SHA256};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use zeroize::{Zeroize, Zeroizing};

use crate::secrets::Secrets;
use crate::suite::{NONCE, TAG, expand};
use crate::wipe::wiped;
use crate::{Level, Suite};

/// The handshake's name, which its hash depends on.
const NAME: &str = "Noise_IK_25519_ChaChaPoly_SHA256";

/// A handshake without keys, whose state takes the place of one that has ended.
const NOTHING: &str = "Noise_NN_25519_ChaChaPoly_SHA256";

/// Bytes of the first message, besides its payload: an ephemeral key, the client's key and a tag, and the
/// payload's tag.
pub const MESSAGE_1: usize = 32 + 32 + 16 + 16;

/// Bytes of the second message without a payload: an ephemeral key, and a tag.
pub const MESSAGE_2: usize = 32 + 16;

/// Bytes of a key of the handshake's AEAD.
const AEAD_KEY: usize = 32;

/// Bytes of the longest Noise message.
const MAX_MESSAGE: usize = 65_535;

/// Returns the public key of an X25519 private key (RFC 7748).
pub fn public_key(private: &[u8; 32]) -> [u8; 32] {
    MontgomeryPoint::mul_base_clamped(*private).to_bytes()
}

/// The client's end of a handshake.
#[derive(Debug)]
pub struct Initiator(State);

impl Initiator {
    /// Begins a handshake with the server that has this public key, and returns the first message.
    /// `prologue` is what both ends know beforehand; the handshake fails if they know different things.
    /// `entropy` must be fresh. Returns `None` if the server's key is not a usable key, or the payload is
    /// too long.
    pub fn begin(
        private: &[u8; 32],
        server: &[u8; 32],
        prologue: &[u8],
        payload: &[u8],
        entropy: &[u8; 32],
    ) -> Option<(Initiator, Vec<u8>)> {
        wiped(|| {
            let builder = builder(entropy)?.local_private_key(private).ok()?.prologue(prologue).ok()?;
            let mut state = State::new(builder.remote_public_key(server).ok()?.build_initiator().ok()?);
            let mut message = vec![0; (MESSAGE_1 + payload.len()).min(MAX_MESSAGE)];
            let len = state.0.write_message(payload, &mut message).ok()?;
            message.truncate(len);
            Some((Initiator(state), message))
        })
    }

    /// Takes the server's message in, and returns the secrets and the message's payload. Returns `None` if
    /// the message is not from the server that was asked, or was changed. The handshake cannot go on then: a
    /// client that may get another answer keeps the first message, and begins again.
    pub fn end(&mut self, message: &[u8], level: Level, suite: Suite) -> Option<(Secrets, Vec<u8>)> {
        wiped(|| {
            let mut payload = vec![0; message.len().min(MAX_MESSAGE)];
            let len = self.0.0.read_message(message, &mut payload).ok()?;
            payload.truncate(len);
            #[cfg(feature = "audit")]
            crate::audit::note_handshake();
            Some((self.0.secrets(level, suite), payload))
        })
    }
}

/// The server's end of a handshake, after the client's message was taken in.
#[derive(Debug)]
pub struct Responder {
    state: State,
    /// The client's public key, which the message proves to belong to its sender.
    pub client: [u8; 32],
    /// The payload of the client's message.
    pub payload: Vec<u8>,
}

impl Responder {
    /// Takes the client's message in. Returns `None` if it is not for this server's key, was changed, or was
    /// written with another prologue.
    pub fn begin(
        private: &[u8; 32],
        prologue: &[u8],
        message: &[u8],
        entropy: &[u8; 32],
    ) -> Option<Responder> {
        wiped(|| {
            let builder = builder(entropy)?.local_private_key(private).ok()?.prologue(prologue).ok()?;
            let mut state = State::new(builder.build_responder().ok()?);
            let mut payload = vec![0; message.len().min(MAX_MESSAGE)];
            let len = state.0.read_message(message, &mut payload).ok()?;
            payload.truncate(len);
            let client = state.0.get_remote_static()?.try_into().ok()?;
            Some(Responder { state, client, payload })
        })
    }

    /// Returns the server's message, and the secrets.
    pub fn end(mut self, payload: &[u8], level: Level, suite: Suite) -> Option<(Vec<u8>, Secrets)> {
        wiped(move || {
            let mut message = vec![0; (MESSAGE_2 + payload.len()).min(MAX_MESSAGE)];
            let len = self.state.0.write_message(payload, &mut message).ok()?;
            message.truncate(len);
            Some((message, self.state.secrets(level, suite)))
        })
    }
}

/// The state of a handshake, which is overwritten when it is dropped. `snow` does not do that.
struct State(Box<HandshakeState>);

impl State {
    /// Takes the state of a handshake in which nothing has been computed yet.
    fn new(state: HandshakeState) -> State {
        State(Box::new(state))
    }

    fn secrets(&mut self, level: Level, suite: Suite) -> Secrets {
        let (mut to_server, mut to_client) = self.0.dangerously_get_raw_split();
        let mut split = Zeroizing::new([0; 64]);
        split[..32].copy_from_slice(&to_server);
        split[32..].copy_from_slice(&to_client);
        to_server.zeroize();
        to_client.zeroize();
        let root = Secrets::root(self.0.get_handshake_hash(), &*split);
        Secrets::new(root, level, suite)
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("State")
    }
}

impl Drop for State {
    fn drop(&mut self) {
        wiped(|| {
            let blank = NOTHING.parse().ok();
            let blank = blank.map(|params| Builder::with_resolver(params, Box::new(Resolver::default())));
            if let Some(blank) = blank.and_then(|builder| builder.build_initiator().ok()) {
                *self.0 = blank;
            }
        });
        // Without this, the compiler may leave out a write to memory that nobody reads again.
        black_box(&self.0);
    }
}

fn builder<'b>(entropy: &[u8; 32]) -> Option<Builder<'b>> {
    let params: NoiseParams = NAME.parse().ok()?;
    Some(Builder::with_resolver(params, Box::new(Resolver(Zeroizing::new(*entropy)))))
}

/// Gives Noise its algorithms. The random numbers are the entropy that was handed in.
#[derive(Default)]
struct Resolver(Zeroizing<[u8; 32]>);

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.0.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        (*choice == DHChoice::Curve25519).then(|| Box::<X25519>::default() as Box<dyn Dh>)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        (*choice == HashChoice::SHA256).then(|| Box::new(Sha256(Context::new(&SHA256))) as Box<dyn Hash>)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        let cipher = || Box::new(ChaChaPoly(expand(SUITE, &[0; AEAD_KEY])));
        (*choice == CipherChoice::ChaChaPoly).then(|| cipher() as Box<dyn Cipher>)
    }
}

/// The AEAD of the handshake, by `ring`. (That of `snow`'s resolver for `ring` is not overwritten.)
struct ChaChaPoly(LessSafeKey);

/// The suite of the handshake's messages.
const SUITE: Suite = Suite::ChaCha20Poly1305;

impl ChaChaPoly {
    /// Makes a nonce of a count (The Noise Protocol Framework, section 12.3).
    fn nonce(count: u64) -> Nonce {
        let mut nonce = [0; NONCE];
        if let Some(last) = nonce.last_chunk_mut() {
            *last = count.to_le_bytes();
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher for ChaChaPoly {
    fn name(&self) -> &'static str {
        "ChaChaPoly"
    }

    fn set(&mut self, key: &[u8; AEAD_KEY]) {
        self.0 = expand(SUITE, key);
    }

    fn encrypt(&self, count: u64, clear: &[u8], plain: &[u8], out: &mut [u8]) -> usize {
        let (body, rest) = out.split_at_mut(plain.len());
        body.copy_from_slice(plain);
        let tag = self.0.seal_in_place_separate_tag(Self::nonce(count), Aad::from(clear), body);
        if let Ok(tag) = tag {
            rest[..TAG].copy_from_slice(tag.as_ref());
        }
        plain.len() + TAG
    }

    fn decrypt(&self, count: u64, clear: &[u8], sealed: &[u8], out: &mut [u8]) -> Result<usize, snow::Error> {
        let mut whole = Zeroizing::new(sealed.to_vec());
        let opened = self.0.open_in_place(Self::nonce(count), Aad::from(clear), &mut whole);
        let opened = opened.map_err(|_| snow::Error::Decrypt)?;
        out.get_mut(..opened.len()).ok_or(snow::Error::Decrypt)?.copy_from_slice(opened);
        Ok(opened.len())
    }
}

impl Drop for ChaChaPoly {
    fn drop(&mut self) {
        self.set(&[0; AEAD_KEY]);
        black_box(&self.0);
    }
}

/// SHA-256 by `ring`. What was hashed last, and the state of the hash, are overwritten at the end.
struct Sha256(Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        SHA256.block_len()
    }

    fn hash_len(&self) -> usize {
        SHA256.output_len()
    }

    fn reset(&mut self) {
        self.0 = Context::new(&SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        out[..SHA256.output_len()].copy_from_slice(self.0.clone().finish().as_ref());
    }
}

impl Drop for Sha256 {
    fn drop(&mut self) {
        self.reset();
        black_box(&self.0);
    }
}

/// Random numbers for one ephemeral key, which is all that an end needs in this pattern.
struct Once(Option<Zeroizing<[u8; 32]>>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), snow::Error> {
        let entropy = self.0.take().ok_or(snow::Error::Rng)?;
        if dest.len() != entropy.len() {
            return Err(snow::Error::Rng);
        }
        dest.copy_from_slice(&*entropy);
        Ok(())
    }
}

/// X25519 (RFC 7748) by `curve25519-dalek`.
#[derive(Default)]
struct X25519 {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl X25519 {
    fn make_public(&mut self) {
        #[cfg(feature = "audit")]
        crate::audit::note_asymmetric();
        self.public = public_key(&self.private);
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, private: &[u8]) {
        self.private.copy_from_slice(private);
        self.make_public();
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), snow::Error> {
        random.try_fill_bytes(&mut *self.private)?;
        self.make_public();
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        &*self.private
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), snow::Error> {
        #[cfg(feature = "audit")]
        crate::audit::note_asymmetric();
        let public = public.get(..32).and_then(|public| public.try_into().ok()).ok_or(snow::Error::Dh)?;
        let mut shared = MontgomeryPoint(public).mul_clamped(*self.private);
        // An all-zero result comes from a key of small order, with which there is no secret (RFC 7748,
        // section 6.1).
        let usable = shared.0 != [0; 32];
        out[..32].copy_from_slice(&shared.0);
        shared.zeroize();
        if usable { Ok(()) } else { Err(snow::Error::Dh) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;

    const CLIENT: [u8; 32] = [3; 32];
    const SERVER: [u8; 32] = [4; 32];
    const KIND: (Level, Suite) = (Level::Secure, Suite::Aes128Gcm);

    fn begin(server: &[u8; 32], prologue: &[u8]) -> (Initiator, Vec<u8>) {
        Initiator::begin(&CLIENT, server, prologue, b"from the client", &[5; 32]).unwrap()
    }

    #[test]
    fn both_ends_agree_and_know_one_another() {
        let (mut initiator, first) = begin(&public_key(&SERVER), b"prologue");
        assert_eq!(first.len(), MESSAGE_1 + 15);
        let responder = Responder::begin(&SERVER, b"prologue", &first, &[6; 32]).unwrap();
        assert_eq!(
            (responder.client, &responder.payload[..]),
            (public_key(&CLIENT), &b"from the client"[..])
        );
        let (second, servers) = responder.end(b"from the server", KIND.0, KIND.1).unwrap();
        assert_eq!(second.len(), MESSAGE_2 + 15);
        let (clients, payload) = initiator.end(&second, KIND.0, KIND.1).unwrap();
        assert_eq!(payload, b"from the server");
        let (client, server) = (clients.cipher(End::Client, None), servers.cipher(End::Server, None));
        let mut datagram = *b"01234567890123456789 some frames and 16 bytes more";
        client.seal(7, &mut datagram, 20);
        assert!(server.open(0, 7, &mut datagram, 20).is_some());
        assert_eq!(&datagram[20..34], b" some frames a");
    }

    #[test]
    fn a_handshake_fails_if_anything_differs() {
        let public = public_key(&SERVER);
        let (_, first) = begin(&public, b"prologue");
        let accepts = |private: &[u8; 32], prologue: &[u8], message: &[u8]| {
            Responder::begin(private, prologue, message, &[6; 32]).is_some()
        };
        assert!(accepts(&SERVER, b"prologue", &first));
        assert!(!accepts(&[9; 32], b"prologue", &first), "another server");
        assert!(!accepts(&SERVER, b"another", &first));
        for at in 0..first.len() {
            let mut changed = first.clone();
            changed[at] ^= 1;
            assert!(!accepts(&SERVER, b"prologue", &changed), "byte {at}");
            assert!(!accepts(&SERVER, b"prologue", &first[..at]), "{at} bytes");
        }
        let answer = || {
            let responder = Responder::begin(&SERVER, b"prologue", &first, &[6; 32]).unwrap();
            responder.end(b"", KIND.0, KIND.1).unwrap().0
        };
        let ends = |message: &[u8]| begin(&public, b"prologue").0.end(message, KIND.0, KIND.1).is_some();
        assert!(ends(&answer()));
        for at in 0..MESSAGE_2 {
            let mut changed = answer();
            changed[at] ^= 1;
            assert!(!ends(&changed), "byte {at}");
        }
    }

    #[test]
    fn a_key_of_small_order_is_refused() {
        let one = std::array::from_fn(|at| u8::from(at == 0));
        for small in [[0; 32], one] {
            assert!(Initiator::begin(&CLIENT, &small, b"", b"", &[5; 32]).is_none());
        }
    }

    /// The example of RFC 7748, section 6.1.
    #[test]
    fn the_diffie_hellman_function_is_x25519() {
        let hex = |text: &str| -> [u8; 32] {
            std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        };
        let (mut ours, mut theirs) = (X25519::default(), X25519::default());
        ours.set(&[6; 32]);
        theirs.set(&[7; 32]);
        let (mut one, mut other) = ([0; 32], [0; 32]);
        ours.dh(theirs.pubkey(), &mut one).unwrap();
        theirs.dh(ours.pubkey(), &mut other).unwrap();
        assert_eq!(one, other);
        assert_eq!(
            public_key(&hex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")),
            hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
        );
    }
}
