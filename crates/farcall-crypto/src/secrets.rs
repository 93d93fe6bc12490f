//! The secrets of a conversation, and what is derived from them by HKDF with SHA-256 (RFC 5869).
//!
//! A *root* comes out of the handshake, or of a resumption. From it follow two secrets: the *base*, which
//! stays, and the first secret of a *chain*. Each member of the chain gives the keys of one *phase*, one for
//! each direction, and the next member. Old members are erased, so somebody who steals the secrets later
//! cannot read datagrams of earlier phases (forward secrecy within the conversation).

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::hmac::{self, HMAC_SHA256};
use zeroize::Zeroizing;

use crate::cipher::{Answering, Cipher};
use crate::suite::Key;
use crate::wipe::wiped;
use crate::{Level, Suite};

/// A secret of 32 bytes, which is overwritten when it is dropped.
pub(crate) type Secret = Zeroizing<[u8; 32]>;

/// Bytes of the proof that an end has a conversation's secrets.
pub const PROOF: usize = 32;

/// Which end of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end that calls.
    Client,
    /// The end that serves.
    Server,
}

/// What both ends of a conversation know, and nobody else. It is on the heap, so that it can be moved without
/// leaving copies, and is overwritten when it is dropped.
pub struct Secrets(Box<Place>);

/// A place of 72 bytes for [`Secrets`] in something that is on the heap and is not moved. It is overwritten
/// when it is dropped.
pub struct Place {
    base: Secret,
    /// The secret of the current phase.
    chain: Secret,
    phase: u32,
    /// How long after their handshake the secrets were made, in seconds.
    resumed_after: u16,
    level: Level,
    suite: Suite,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").field("phase", &self.phase).finish_non_exhaustive()
    }
}

/// The new randomness of both ends from which, and from an earlier conversation's secrets, the root of a
/// resumed conversation follows.
#[derive(Clone, Copy, Debug)]
pub struct Resumption<'r> {
    /// The client's 32 random bytes.
    pub client: &'r [u8; 32],
    /// The server's 32 random bytes.
    pub server: &'r [u8; 32],
    /// What both ends know beforehand, as for a handshake.
    pub prologue: &'r [u8],
}

impl Secrets {
    /// The length in bytes of [`Place::to_bytes`].
    pub const BYTES: usize = 2 + 32 + 32;

    /// Derives a root from the outcome of a handshake.
    pub(crate) fn root(salt: &[u8], material: &[u8]) -> Secret {
        derive(&Salt::new(HKDF_SHA256, salt).extract(material), &[b"farcall root"])
    }

    /// Makes the secrets that follow from a root, in the first phase.
    pub fn new(root: Secret, level: Level, suite: Suite) -> Secrets {
        wiped(|| {
            let prk = prk(&root);
            let (base, chain) = (derive(&prk, &[b"farcall base"]), derive(&prk, &[b"farcall chain"]));
            Secrets(Box::new(Place { base, chain, phase: 0, resumed_after: 0, level, suite }))
        })
    }

    /// Reads what [`Place::to_bytes`] wrote. Returns `None` for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<Secrets> {
        let ([level, suite], rest) = bytes.split_first_chunk()?;
        let (base, chain) = rest.split_first_chunk()?;
        let chain: &[u8; 32] = chain.try_into().ok()?;
        let (level, suite) = (Level::of(*level)?, Suite::of(*suite)?);
        Some(wiped(|| {
            let (base, chain) = (Zeroizing::new(*base), Zeroizing::new(*chain));
            Secrets(Box::new(Place { base, chain, phase: 0, resumed_after: 0, level, suite }))
        }))
    }
}

impl Deref for Secrets {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl DerefMut for Secrets {
    fn deref_mut(&mut self) -> &mut Place {
        &mut self.0
    }
}

/// A place that holds no secrets.
impl Default for Place {
    fn default() -> Place {
        let (base, chain) = (Secret::default(), Secret::default());
        Place {
            base,
            chain,
            phase: 0,
            resumed_after: 0,
            level: Level::Secure,
            suite: Suite::ChaCha20Poly1305,
        }
    }
}

impl Place {
    /// Takes these secrets in, in the place of those that it held.
    pub fn hold(&mut self, secrets: &Secrets) {
        let Place { base, chain, phase, resumed_after, level, suite } = &*secrets.0;
        self.base.copy_from_slice(&**base);
        self.chain.copy_from_slice(&**chain);
        (self.phase, self.level, self.suite) = (*phase, *level, *suite);
        self.resumed_after = *resumed_after;
    }

    /// Returns the secrets of a new conversation that continues this one: they follow from this one's secrets
    /// and from new random bytes of both ends. So no key is ever made twice, even by a server that forgets
    /// which conversations it has resumed.
    #[must_use]
    pub fn resume(&self, resumption: &Resumption<'_>) -> Secrets {
        #[cfg(feature = "audit")]
        crate::audit::note_resumption();
        let Resumption { client, server, prologue } = resumption;
        let salt = [&client[..], &server[..]].concat();
        wiped(|| {
            let secret = derive(&prk(&self.base), &[b"farcall resume"]);
            let prk = Salt::new(HKDF_SHA256, &salt).extract(&*secret);
            Secrets::new(derive(&prk, &[b"farcall resumed", prologue]), self.level, self.suite)
        })
    }

    /// Returns a copy, for another place that is overwritten too when it is dropped.
    #[must_use]
    pub fn copy(&self) -> Secrets {
        wiped(|| {
            let (base, chain) = (self.base.clone(), self.chain.clone());
            let Place { phase, resumed_after, level, suite, .. } = *self;
            Secrets(Box::new(Place { base, chain, phase, resumed_after, level, suite }))
        })
    }

    /// How much the conversation's seals protect.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The algorithm of the conversation's seals.
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The number of the current phase, from 0.
    pub fn phase(&self) -> u32 {
        self.phase
    }

    /// Returns how long after their handshake the secrets were made, in seconds: 0 unless somebody has
    /// [noted](Place::note_resumed_after) that they are of a resumed conversation.
    pub fn resumed_after(&self) -> u16 {
        self.resumed_after
    }

    /// Notes how long after their handshake the secrets were made, in seconds. [`Place::to_bytes`] does not
    /// have it.
    pub fn note_resumed_after(&mut self, seconds: u16) {
        self.resumed_after = seconds;
    }

    /// Goes on to the next phase, and erases the secret of the current one.
    pub fn advance(&mut self) {
        #[cfg(feature = "audit")]
        crate::audit::note_phase();
        wiped(|| self.chain = next(&self.chain));
        self.phase = self.phase.wrapping_add(1);
    }

    /// Expands the keys of the current phase at one end, and the next phase's key by which the other end's
    /// datagrams open. `before` is the cipher of the phase before, if its key is to open datagrams that were
    /// overtaken.
    pub fn cipher(&self, end: End, before: Option<&Cipher>) -> Arc<Cipher> {
        let other = match end {
            End::Client => End::Server,
            End::Server => End::Client,
        };
        let Place { chain, phase, level, suite, .. } = self;
        let key = |chain: &Secret, sender| key_of(*suite, chain, sender);
        wiped(|| {
            let (current, following) = (key(chain, other), key(&next(chain), other));
            Arc::new(Cipher::new(*level, *phase, key(chain, end), before, current, following))
        })
    }

    /// Returns the key that seals an answer to the question with these bytes, and no other.
    pub fn answering(&self, question: &[u8]) -> Answering {
        let Place { base, suite, .. } = self;
        let key = || Key::new(*suite, |out| fill(&prk(base), &[b"farcall answer", question], out));
        wiped(|| Answering(Box::new(key())))
    }

    /// Returns the proof that this end has the conversation's secrets, at a meeting with this transcript.
    #[must_use]
    pub fn prove(&self, prover: End, transcript: &[u8]) -> [u8; PROOF] {
        let mut proof = [0; PROOF];
        wiped(|| {
            let tag = hmac::sign(&self.meeting_key(), &proven(prover, transcript));
            proof.copy_from_slice(tag.as_ref());
        });
        proof
    }

    /// Returns whether that end has given this proof at a meeting with this transcript. Takes the same time
    /// for every wrong proof.
    #[must_use]
    pub fn is_proven(&self, prover: End, transcript: &[u8], proof: &[u8]) -> bool {
        wiped(|| hmac::verify(&self.meeting_key(), &proven(prover, transcript), proof).is_ok())
    }

    fn meeting_key(&self) -> hmac::Key {
        let prk = prk(&self.base);
        prk.expand(&[b"farcall meeting"], HMAC_SHA256).expect("less than 255 blocks").into()
    }

    /// Returns the secret of the current phase, its level and its suite.
    pub(crate) fn phase_secret(&self) -> (Level, Suite, &Secret) {
        (self.level, self.suite, &self.chain)
    }

    /// Returns what a ticket keeps of these secrets, in the first phase: from it [`Secrets::from_bytes`] makes
    /// them again.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let Place { base, chain, level, suite, .. } = self;
        let kind = [*level as u8, *suite as u8];
        Zeroizing::new([&kind[..], &base[..], &chain[..]].concat())
    }
}

/// Returns what an end authenticates at a meeting. Proofs of the two ends differ, so that none can be
/// reflected.
fn proven(prover: End, transcript: &[u8]) -> Vec<u8> {
    let label = match prover {
        End::Client => b"farcall client",
        End::Server => b"farcall server",
    };
    [label, transcript].concat()
}

const TO_SERVER: &[u8] = b"farcall to server";
const TO_CLIENT: &[u8] = b"farcall to client";

/// Returns the key by which an end seals its datagrams in the phase that has this secret.
pub(crate) fn key_of(suite: Suite, chain: &Secret, sender: End) -> Key {
    let label = match sender {
        End::Client => TO_SERVER,
        End::Server => TO_CLIENT,
    };
    Key::new(suite, |out| fill(&prk(chain), &[label], out))
}

/// Returns the secret of the phase after the one that has this secret.
pub(crate) fn next(chain: &Secret) -> Secret {
    derive(&prk(chain), &[b"farcall next"])
}

fn prk(secret: &Secret) -> Prk {
    Prk::new_less_safe(HKDF_SHA256, &**secret)
}

fn derive(prk: &Prk, info: &[&[u8]]) -> Secret {
    let mut secret = Zeroizing::new([0; 32]);
    fill(prk, info, &mut *secret);
    secret
}

/// Fills `out`, which has less than 8,160 bytes, with key material.
fn fill(prk: &Prk, info: &[&[u8]], out: &mut [u8]) {
    let okm = prk.expand(info, Length(out.len())).expect("less than 255 blocks");
    okm.fill(out).expect("the same length");
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(root: u8) -> Secrets {
        Secrets::new(Zeroizing::new([root; 32]), Level::Secure, Suite::ChaCha20Poly1305)
    }

    /// Seals a datagram by one end's cipher and opens it by the other's.
    fn passes(from: &Cipher, to: &Cipher) -> bool {
        let mut datagram = [7; 64];
        from.seal(9, &mut datagram, 20);
        to.open(from.phase() as u16, 9, &mut datagram, 20).is_some()
    }

    #[test]
    fn the_two_directions_have_keys_of_their_own() {
        let (client, server) = (secrets(1).cipher(End::Client, None), secrets(1).cipher(End::Server, None));
        assert!(passes(&client, &server) && passes(&server, &client));
        assert!(!passes(&client, &client) && !passes(&server, &server), "nothing can be reflected");
        assert!(!passes(&client, &secrets(2).cipher(End::Server, None)));
    }

    #[test]
    fn an_end_opens_datagrams_of_the_phase_before_and_of_the_next_one() {
        let (mut ours, mut theirs) = (secrets(1), secrets(1));
        let first = ours.cipher(End::Client, None);
        theirs.advance();
        let second = theirs.cipher(End::Server, None);
        assert!(passes(&second, &first), "the other end has gone on first");
        ours.advance();
        let ours_now = ours.cipher(End::Client, Some(&first));
        assert!(passes(&second, &ours_now));
        let old = secrets(1).cipher(End::Server, None);
        assert!(passes(&old, &ours_now), "a datagram of the phase before was overtaken");
        ours.advance();
        assert!(!passes(&old, &ours.cipher(End::Client, Some(&ours_now))));
    }

    #[test]
    fn a_ticket_keeps_the_secrets() {
        let secrets = secrets(1);
        let bytes = secrets.to_bytes();
        assert_eq!(bytes.len(), Secrets::BYTES);
        let again = Secrets::from_bytes(&bytes).unwrap();
        assert!(passes(&secrets.cipher(End::Client, None), &again.cipher(End::Server, None)));
        assert!((0..bytes.len()).all(|len| Secrets::from_bytes(&bytes[..len]).is_none()));
        assert!(Secrets::from_bytes(&[&bytes[..], &[0]].concat()).is_none());
    }

    #[test]
    fn a_resumed_conversation_has_other_keys_which_both_ends_have_chosen() {
        let (client, server) = ([1; 32], [2; 32]);
        let resumption = Resumption { client: &client, server: &server, prologue: b"prologue" };
        let resumed = |resumption: &Resumption<'_>| secrets(1).resume(resumption).cipher(End::Client, None);
        let same = secrets(1).resume(&resumption).cipher(End::Server, None);
        assert!(passes(&resumed(&resumption), &same));
        for other in [
            Resumption { client: &server, ..resumption },
            Resumption { server: &client, ..resumption },
            Resumption { prologue: b"other", ..resumption },
        ] {
            assert!(!passes(&resumed(&other), &same));
        }
        assert!(!passes(&secrets(1).cipher(End::Client, None), &same));
    }

    #[test]
    fn a_proof_is_good_for_one_end_of_one_conversation_at_one_meeting() {
        let (client, server) = (secrets(1), Secrets::from_bytes(&secrets(1).to_bytes()).unwrap());
        let proof = client.prove(End::Client, b"meeting");
        assert!(server.is_proven(End::Client, b"meeting", &proof));
        assert!(!server.is_proven(End::Server, b"meeting", &proof), "nothing can be reflected");
        assert!(!server.is_proven(End::Client, b"another", &proof));
        assert!(!secrets(2).is_proven(End::Client, b"meeting", &proof));
        assert!(client.is_proven(End::Server, b"meeting", &server.prove(End::Server, b"meeting")));
        for at in 0..PROOF {
            let mut changed = proof;
            changed[at] ^= 1;
            assert!(!server.is_proven(End::Client, b"meeting", &changed));
            assert!(!server.is_proven(End::Client, b"meeting", &proof[..at]));
        }
        let mut later = secrets(1);
        later.advance();
        assert!(later.is_proven(End::Client, b"meeting", &proof), "it does not depend on the phase");
    }

    #[test]
    fn a_proof_is_the_hmac_that_the_specification_names() {
        let base: [u8; 32] = secrets(1).to_bytes()[2..34].try_into().unwrap();
        // HKDF-Expand of one block is one HMAC (RFC 5869, section 2.3).
        let key = hmac::sign(&hmac::Key::new(HMAC_SHA256, &base), b"farcall meeting\x01");
        let key = hmac::Key::new(HMAC_SHA256, key.as_ref());
        for (end, text) in [(End::Client, b"farcall clientx"), (End::Server, b"farcall serverx")] {
            assert_eq!(secrets(1).prove(end, b"x"), hmac::sign(&key, text).as_ref());
        }
    }

    #[test]
    fn an_answer_answers_one_question() {
        let mut answer = [7; 64];
        secrets(1).answering(b"question").seal(3, &mut answer);
        assert!(secrets(1).answering(b"question").open(3, &mut answer.clone()));
        assert!(!secrets(1).answering(b"another").open(3, &mut answer.clone()));
        assert!(!secrets(1).answering(b"question").open(4, &mut answer.clone()));
        assert!(!secrets(2).answering(b"question").open(3, &mut answer));
    }
}
