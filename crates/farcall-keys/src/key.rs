//! Public keys: who an end is.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, VerifyingKey};
use farcall_base::work;
use sha2::{Digest as _, Sha256};

use crate::text::{self, PRIVATE};

/// The length of a signature in bytes.
pub const SIGNATURE_BYTES: usize = 64;

const KEY_BYTES: usize = 32;

/// The length of a key's text, in characters.
const KEY_CHARS: usize = 44;

/// An identity: an Ed25519 public key that is sound.
///
/// A sound key is a point of the curve in its one canonical encoding, and none of the few points of small
/// order, for which anybody can make signatures. Its text is standard base64, 44 characters, as WireGuard
/// writes keys.
///
/// ```
/// use farcall_keys::{Identity, PublicKey};
///
/// let key = Identity::from_entropy([7; 32]).public();
/// assert_eq!(key.to_string(), "6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw=");
/// assert_eq!(key.to_string().parse(), Ok(key));
/// assert!("no key".parse::<PublicKey>().is_err());
/// # assert_eq!(key.fingerprint().to_string().len(), 39);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// Returns the key with this encoding.
    ///
    /// # Errors
    /// [`KeyError::NotAPoint`] and [`KeyError::Weak`].
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Result<PublicKey, KeyError> {
        let point = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::NotAPoint)?;
        if point.is_weak() {
            return Err(KeyError::Weak);
        }
        // Two encodings of one point would be two identities of one private key.
        match point.to_edwards().compress().to_bytes() == bytes {
            true => Ok(PublicKey(bytes)),
            false => Err(KeyError::NotAPoint),
        }
    }

    /// Returns the key's encoding.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns the key's X25519 form, the static key of its owner in a Noise handshake.
    ///
    /// The form does not tell a point from its negative, whose private keys are each other's negatives. So a
    /// handshake proves an identity only together with the [`Presentation`](crate::Presentation) that names
    /// it.
    pub fn exchange_key(&self) -> [u8; KEY_BYTES] {
        self.point().to_montgomery().to_bytes()
    }

    /// Returns a short text by which people compare keys.
    pub fn fingerprint(&self) -> Fingerprint {
        let digest = Sha256::new().chain_update(b"farcall key 1").chain_update(self.0).finalize();
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        Fingerprint(short)
    }

    /// Returns whether the signature is this key's over these bytes in this context.
    pub fn verify(&self, context: Context, bytes: &[u8], signature: &[u8; SIGNATURE_BYTES]) -> bool {
        work::steps(1 + bytes.len() / 16);
        let signature = Signature::from_bytes(signature);
        self.point().verify_strict(&context.message(bytes), &signature).is_ok()
    }

    fn point(&self) -> VerifyingKey {
        VerifyingKey::from_bytes(&self.0).expect("a key is a point of the curve")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&text::encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<PublicKey, KeyError> {
        if text.starts_with(PRIVATE) {
            return Err(KeyError::Private);
        }
        if text.len() != KEY_CHARS {
            return Err(KeyError::Length(text.len()));
        }
        // The decoder wants room for what the text could hold, which is a byte more than a key.
        let mut bytes = [0; KEY_BYTES + 1];
        match STANDARD.decode_slice(text, &mut bytes) {
            Ok(KEY_BYTES) => {}
            Ok(_) | Err(_) => return Err(KeyError::NotBase64),
        }
        let mut key = [0; KEY_BYTES];
        key.copy_from_slice(&bytes[..KEY_BYTES]);
        PublicKey::from_bytes(key)
    }
}

/// Why a text or bytes are no sound public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The text has this many bytes, not 44.
    Length(usize),
    /// The text is not standard base64 of 32 bytes.
    NotBase64,
    /// The bytes are no point of the curve, or not its canonical encoding.
    NotAPoint,
    /// The point has a small order: anybody can sign for it.
    Weak,
    /// The text is that of a private key.
    Private,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Length(found) => {
                write!(f, "a public key has {KEY_CHARS} characters of base64, not {found}")
            }
            KeyError::NotBase64 => write!(f, "a public key is standard base64 of {KEY_BYTES} bytes"),
            KeyError::NotAPoint => f.write_str("these bytes are no Ed25519 public key"),
            KeyError::Weak => f.write_str("this public key is weak: anybody can sign for it"),
            KeyError::Private => f.write_str("this is a private key, and a public key is expected"),
        }
    }
}

impl std::error::Error for KeyError {}

/// What a signature is for. A signature in one context is worth nothing in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(&'static str);

impl Context {
    pub(crate) const GRANT: Context = Context::new("farcall grant 1");
    pub(crate) const REVOCATIONS: Context = Context::new("farcall revocation list 1");
    pub(crate) const ENTRY: Context = Context::new("farcall registry entry 1");

    /// Returns a context of 1 to 255 bytes. It names the program, the purpose and the version of the format.
    ///
    /// # Panics
    /// If the text has another length; at compile time, in a constant.
    pub const fn new(text: &'static str) -> Context {
        assert!(!text.is_empty() && text.len() <= 255, "a context has 1 to 255 bytes");
        Context(text)
    }

    /// Returns what is signed: the length of the context, the context, and the bytes.
    pub(crate) fn message(self, bytes: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(1 + self.0.len() + bytes.len());
        message.push(self.0.len() as u8);
        message.extend_from_slice(self.0.as_bytes());
        message.extend_from_slice(bytes);
        message
    }
}

/// A digest of a public key that people can compare: 128 bits of SHA-256, as eight groups of hexadecimal
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Returns the fingerprint with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Fingerprint {
        Fingerprint(bytes)
    }

    /// Returns the fingerprint's bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: Vec<String> =
            self.0.chunks(2).map(|two| format!("{:02x}{:02x}", two[0], two[1])).collect();
        f.pad(&groups.join("-"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}
