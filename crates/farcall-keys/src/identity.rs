//! Private keys: what an end signs and takes part in handshakes with.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use zeroize::{Zeroize as _, Zeroizing};

use crate::grant::{Grant, Terms, TooLarge};
use crate::key::{Context, PublicKey, SIGNATURE_BYTES};
use crate::revocation::{RevocationList, Revoked};
use crate::text::PRIVATE;

const SECRET_BYTES: usize = 32;

/// The private key of an end, or of an authority. Its memory is overwritten when it is dropped.
///
/// ```
/// use farcall_keys::{Context, Identity};
///
/// const GREETING: Context = Context::new("example greeting 1");
/// let identity = Identity::from_entropy([7; 32]);
/// let signature = identity.sign(GREETING, b"hello");
/// assert!(identity.public().verify(GREETING, b"hello", &signature));
/// ```
pub struct Identity {
    signing: SigningKey,
    public: PublicKey,
}

impl Identity {
    /// Returns the same identity. Its secrets are erased when it is dropped, as those of this one are.
    pub(crate) fn copy(&self) -> Identity {
        Identity { signing: self.signing.clone(), public: self.public }
    }

    /// Makes the identity of this entropy, which comes from the operating system and is used for nothing
    /// else.
    pub fn from_entropy(mut entropy: [u8; SECRET_BYTES]) -> Identity {
        let signing = SigningKey::from_bytes(&entropy);
        entropy.zeroize();
        let public = PublicKey::from_bytes(signing.verifying_key().to_bytes());
        Identity { signing, public: public.expect("a multiple of the base point that is not its order's") }
    }

    /// Reads an identity from its text, which [`Identity::to_text`] made. Returns `None` for any other text.
    pub fn from_text(text: &str) -> Option<Identity> {
        let text = text.strip_prefix(PRIVATE)?;
        // The decoder wants room for what the text could hold.
        let mut bytes = Zeroizing::new([0; SECRET_BYTES + 4]);
        if text.len() > SECRET_BYTES.div_ceil(3) * 4 {
            return None;
        }
        let count = STANDARD.decode_slice(text, bytes.as_mut_slice()).ok()?;
        if count != SECRET_BYTES {
            return None;
        }
        let mut entropy = Zeroizing::new([0; SECRET_BYTES]);
        entropy.copy_from_slice(bytes.get(..SECRET_BYTES)?);
        Some(Identity::from_entropy(*entropy))
    }

    /// Returns the private key as text, to be kept in a file that only its owner can read.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(PRIVATE.len() + 44));
        text.push_str(PRIVATE);
        STANDARD.encode_string(self.signing.as_bytes(), &mut text);
        text
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the X25519 private key whose public key is [`PublicKey::exchange_key`], clamped (RFC 7748,
    /// section 5). These are the bytes that libsodium's `crypto_sign_ed25519_sk_to_curve25519` makes.
    pub fn exchange_secret(&self) -> Zeroizing<[u8; SECRET_BYTES]> {
        let mut scalar = Zeroizing::new(self.signing.to_scalar_bytes());
        scalar[0] &= 0b1111_1000;
        scalar[31] = scalar[31] & 0b0111_1111 | 0b0100_0000;
        scalar
    }

    /// Signs bytes in a context.
    pub fn sign(&self, context: Context, bytes: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.signing.sign(&context.message(bytes)).to_bytes()
    }

    /// Signs a grant, as an authority.
    ///
    /// # Errors
    /// If the names are so long that the grant has more than [`MAX_GRANT_BYTES`](crate::MAX_GRANT_BYTES).
    pub fn grant(&self, terms: Terms) -> Result<Grant, TooLarge> {
        Grant::sign(self.public, terms, |bytes| self.sign(Context::GRANT, bytes))
    }

    /// Signs a revocation list, as an authority. `issued` is in Unix seconds, `greatest_age` in seconds.
    pub fn revoke(&self, serial: u64, issued: u64, greatest_age: u64, revoked: Revoked) -> RevocationList {
        RevocationList::sign(self.public, [serial, issued, greatest_age], revoked, |bytes| {
            self.sign(Context::REVOCATIONS, bytes)
        })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}, private key hidden)", self.public)
    }
}
