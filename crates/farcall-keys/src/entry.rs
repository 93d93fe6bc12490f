//! Proofs of registry entries: an exporter's signed word at which addresses it exports a name, and until when
//! that counts.
//!
//! The encoding, version 1. Numbers are big-endian.
//!
//! ```text
//! version       1 byte, 1
//! expires       8 bytes, Unix seconds; the entry counts before this time
//! presentation  its length in 2 bytes, and the exporter's key with the grants that fit the name
//! signature     64 bytes, Ed25519 by that key over the byte 24, "farcall registry entry 1", everything above,
//!               the type and the instance (texts with their lengths in front), and the entry's other contents
//! ```
//!
//! Whoever owns a registry cannot sign for an exporter, so it cannot change an entry or write one. It can
//! keep an entry that was withdrawn, or put it back, until the entry expires. So an entry expires soon, and
//! its exporter signs it anew as long as it exports the name.

use sha2::{Digest as _, Sha256};

use crate::codec::{Read, Reader, put_text};
use crate::grant::Right;
use crate::key::{Context, SIGNATURE_BYTES};
use crate::keyring::Keyring;
use crate::presentation::{MAX_PRESENTATION_BYTES, Presentation};
use crate::principal::{Asked, Principal};
use crate::refusal::{Refusal, RefusalKind};
use crate::segment;

/// How long an entry counts after it was signed, in seconds. Its exporter signs it anew earlier.
pub const ENTRY_SECONDS: u64 = 600;

/// By how many seconds the clocks of an exporter and an importer may differ. An entry that expires later than
/// an exporter could sign by such a clock does not count.
pub const MAX_CLOCK_DIFFERENCE_SECONDS: u64 = 300;

/// The maximum length of a proof in bytes.
pub const MAX_ENTRY_PROOF_BYTES: usize = 1 + 8 + 2 + MAX_PRESENTATION_BYTES + SIGNATURE_BYTES;

const VERSION: u8 = 1;

/// A proof whose signatures were checked. Whether it counts, [`Keyring::check_entry`] says.
///
/// ```
/// use farcall_keys::{ENTRY_SECONDS, EntryProof, Identity, KnownServer, Keyring};
///
/// let [server, client] = [1, 2].map(|byte| Keyring::new(Identity::from_entropy([byte; 32])));
/// let known: KnownServer = format!("Store/main {}", server.identity().public()).parse()?;
/// let (client, now) = (client.with_known_server(known), 1_800_000_000);
///
/// let contents = b"udp://10.0.0.7:7000";
/// let proof = server.prove_entry("Store", "main", contents, now);
/// let checked = EntryProof::verify("Store", "main", contents, &proof)?;
/// assert!(client.check_entry(&checked, now).is_ok());
/// assert!(client.check_entry(&checked, now + ENTRY_SECONDS).is_err());
/// assert!(EntryProof::verify("Store", "main", b"udp://10.0.0.8:7000", &proof).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryProof {
    type_name: Box<str>,
    instance: Box<str>,
    expires: u64,
    shown: Presentation,
}

impl EntryProof {
    /// Checks that the key that a proof shows has signed this entry, and that each grant that it shows is
    /// genuine. The answer depends on nothing else, so it may be kept.
    ///
    /// # Errors
    /// The reason why the proof is none.
    pub fn verify(
        type_name: &str,
        instance: &str,
        contents: &[u8],
        proof: &[u8],
    ) -> Result<EntryProof, Refusal> {
        if proof.is_empty() {
            return Err(unsigned(type_name, instance));
        }
        let (expires, shown, signature) = read(proof).map_err(|why| {
            Refusal::new(
                RefusalKind::Malformed,
                format!("a registry entry of {type_name}/{instance} with its exporter's signature"),
                why.to_string(),
                "use a version of farcall at the exporter that this one understands",
            )
        })?;
        let message = message(expires, &shown.encode(), [type_name, instance], contents);
        if !shown.key().verify(Context::ENTRY, &message, &signature) {
            return Err(Refusal::new(
                RefusalKind::Forged,
                format!("a registry entry of {type_name}/{instance} that {} signed as it is", shown.key()),
                "one that was changed, or that it did not sign",
                "find out who else can write to the registry; the exporter signs its entry anew by itself",
            ));
        }
        if let Some(forged) = shown.grants().iter().find(|grant| !grant.is_genuine()) {
            return Err(Refusal::new(
                RefusalKind::Forged,
                format!("a registry entry with a grant that {} signed", forged.authority()),
                format!("a grant for {:?} with another signature", &**forged.terms().principal),
                "give the exporter the grant as `farcall keys grant` printed it",
            ));
        }
        Ok(EntryProof { type_name: type_name.into(), instance: instance.into(), expires, shown })
    }

    /// Returns a digest of an entry and its proof, by which the answer of [`EntryProof::verify`] can be kept:
    /// SHA-256 over all that it depends on.
    pub fn digest(type_name: &str, instance: &str, contents: &[u8], proof: &[u8]) -> [u8; 32] {
        let mut sha = Sha256::new();
        for part in [type_name.as_bytes(), instance.as_bytes(), proof, contents] {
            sha.update((part.len() as u64).to_be_bytes());
            sha.update(part);
        }
        sha.finalize().into()
    }

    /// Returns when the entry counts no more, in Unix seconds.
    pub fn expires(&self) -> u64 {
        self.expires
    }
}

/// Entries of registries.
impl Keyring {
    /// Signs a registry entry, as its exporter, at a time in Unix seconds: shows this end's key, with the
    /// grants to export that fit the name. `contents` is all that the entry says besides its name. The proof
    /// has at most [`MAX_ENTRY_PROOF_BYTES`], and counts for [`ENTRY_SECONDS`].
    pub fn prove_entry(&self, type_name: &str, instance: &str, contents: &[u8], now: u64) -> Vec<u8> {
        let shown = self.presentation(type_name, instance, Right::Export);
        let expires = now.saturating_add(ENTRY_SECONDS);
        let message = message(expires, &shown, [type_name, instance], contents);
        let mut proof = head(expires, &shown);
        proof.extend_from_slice(&self.identity().sign(Context::ENTRY, &message));
        proof
    }

    /// Judges whether an entry counts at a time in Unix seconds: its key may answer for its name, as
    /// [`Keyring::check_server`] says, and it was signed lately. A segment's entry also counts if its key may
    /// answer for the segment's name, which stands before its machine's address in the entry's name.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn check_entry(&self, proof: &EntryProof, now: u64) -> Result<Principal, Refusal> {
        let EntryProof { type_name, instance, expires, shown } = proof;
        if now >= *expires {
            return Err(Refusal::new(
                RefusalKind::Expired,
                format!(
                    "a registry entry of {type_name}/{instance} that was signed in the last {ENTRY_SECONDS} s"
                ),
                format!("one of {} that expired {} s ago", shown.key(), now - expires),
                "is the exporter running, and are both clocks right? else somebody put back an old entry",
            ));
        }
        if expires - now > ENTRY_SECONDS + MAX_CLOCK_DIFFERENCE_SECONDS {
            return Err(Refusal::new(
                RefusalKind::WrongClock,
                format!("a registry entry of {type_name}/{instance} that counts for {ENTRY_SECONDS} s"),
                format!("one of {} that expires in {} s", shown.key(), expires - now),
                "set the clocks of both machines right",
            ));
        }
        let judge = |instance: Box<str>| {
            let asked = Asked::Server { type_name: type_name.clone(), instance };
            self.judge_verified(shown.key(), shown.grants(), asked, now)
        };
        let segment = segment::without_machine(type_name, instance);
        judge(instance.clone()).or_else(|why| segment.map_or(Err(why), |segment| judge(segment.into())))
    }
}

/// Returns the refusal of an entry that nobody signed.
fn unsigned(type_name: &str, instance: &str) -> Refusal {
    Refusal::new(
        RefusalKind::Unsigned,
        format!("a registry entry of {type_name}/{instance} with its exporter's signature"),
        "one without",
        format!("run the exporter with keys, or name its address: udp://HOST:PORT/{type_name}/{instance}"),
    )
}

/// Reads the expiry, the presentation and the signature.
fn read(proof: &[u8]) -> Read<(u64, Presentation, [u8; SIGNATURE_BYTES])> {
    let mut reader = Reader::new("a proof of a registry entry", proof);
    if proof.len() > MAX_ENTRY_PROOF_BYTES {
        let found = proof.len();
        return Err(reader.wrong(format!("{found} bytes, and a proof has at most {MAX_ENTRY_PROOF_BYTES}")));
    }
    reader.version(VERSION)?;
    let expires = reader.u64()?;
    let length = usize::from(reader.u16()?);
    let shown = reader.take(length)?;
    let shown = Presentation::decode(shown).map_err(|why| reader.wrong(why.to_string()))?;
    let signature = reader.array()?;
    reader.end()?;
    Ok((expires, shown, signature))
}

/// Returns everything before the signature.
fn head(expires: u64, shown: &[u8]) -> Vec<u8> {
    let mut head = Vec::with_capacity(MAX_ENTRY_PROOF_BYTES);
    head.push(VERSION);
    head.extend_from_slice(&expires.to_be_bytes());
    head.extend_from_slice(&(shown.len() as u16).to_be_bytes());
    head.extend_from_slice(shown);
    head
}

/// Returns what is signed, after the context.
fn message(expires: u64, shown: &[u8], name: [&str; 2], contents: &[u8]) -> Vec<u8> {
    let mut message = head(expires, shown);
    name.iter().for_each(|part| put_text(part, &mut message));
    message.extend_from_slice(contents);
    message
}
