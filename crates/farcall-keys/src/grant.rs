//! Grants: an authority's signed word who a key is and what it may do.
//!
//! The encoding, version 1. Numbers are big-endian; a text has its length in one byte in front.
//!
//! ```text
//! version    1 byte, 1
//! authority  32 bytes, the public key that signed
//! key        32 bytes, whom the grant is for
//! rights     1 byte: 1 export, 2 import, 3 both
//! serial     8 bytes, by which the authority can revoke the grant
//! expires    8 bytes, Unix seconds; the grant counts before this time
//! principal  text
//! type       text: a type or *
//! instance   text: an instance, a beginning with * behind it, or *
//! signature  64 bytes, Ed25519 over the byte 15, "farcall grant 1" and everything above
//! ```

use std::fmt;

use crate::codec::{Malformed, Read, Reader, put_text};
use crate::key::{Context, PublicKey, SIGNATURE_BYTES};
use crate::name::{PrincipalName, Scope};
use crate::text;

/// The maximum length of a grant in bytes.
pub const MAX_GRANT_BYTES: usize = 320;

const VERSION: u8 = 1;

/// The bytes of a grant apart from its names.
const FIXED_BYTES: usize = 1 + 32 + 32 + 1 + 8 + 8 + 3 + SIGNATURE_BYTES;

/// What an end does with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Answers calls for it, as a server.
    Export,
    /// Calls it, as a client.
    Import,
}

/// A set of rights that is not empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rights(u8);

/// What a grant says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Whom the grant is for.
    pub key: PublicKey,
    /// Who that is.
    pub principal: PrincipalName,
    /// What it may do with the names of the scope.
    pub rights: Rights,
    /// The names.
    pub scope: Scope,
    /// The grant's number, which its authority uses once.
    pub serial: u64,
    /// The first Unix second at which the grant no longer counts.
    pub expires: u64,
}

/// Terms with an authority's signature. [`Grant::is_genuine`] checks the signature; decoding does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    authority: PublicKey,
    terms: Terms,
    signature: [u8; SIGNATURE_BYTES],
}

impl Rights {
    /// The right to export.
    pub const EXPORT: Rights = Rights(1);
    /// The right to import.
    pub const IMPORT: Rights = Rights(2);
    /// Both rights.
    pub const BOTH: Rights = Rights(3);

    /// Returns whether the right is among them.
    pub fn has(self, right: Right) -> bool {
        self.0 & Rights::from(right).0 != 0
    }
}

impl Grant {
    /// Signs terms by a function that signs bytes in the context of grants.
    pub(crate) fn sign(
        authority: PublicKey,
        terms: Terms,
        signer: impl FnOnce(&[u8]) -> [u8; SIGNATURE_BYTES],
    ) -> Result<Grant, TooLarge> {
        let [type_name, instance] = [terms.scope.type_name().to_string(), terms.scope.instance().to_string()];
        let found = terms.principal.len() + type_name.len() + instance.len();
        if FIXED_BYTES + found > MAX_GRANT_BYTES {
            return Err(TooLarge { found });
        }
        let signature = signer(&signed_bytes(authority, &terms));
        Ok(Grant { authority, terms, signature })
    }

    /// Decodes a grant. Its signature is not checked.
    ///
    /// # Errors
    /// The place of the first byte that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Grant, Malformed> {
        let mut reader = Reader::new("a grant", bytes);
        if bytes.len() > MAX_GRANT_BYTES {
            return Err(
                reader.wrong(format!("{} bytes, and a grant has at most {MAX_GRANT_BYTES}", bytes.len()))
            );
        }
        reader.version(VERSION)?;
        let authority = reader.key()?;
        let terms = read_terms(&mut reader)?;
        let signature = reader.array()?;
        reader.end()?;
        Ok(Grant { authority, terms, signature })
    }

    /// Decodes a grant from base64, as a file has it.
    ///
    /// # Errors
    /// As [`Grant::decode`].
    pub fn from_text(text: &str) -> Result<Grant, Malformed> {
        match text::decode(text) {
            Some(bytes) => Grant::decode(&bytes),
            None => {
                Err(Malformed::new("a grant", 0, format!("{} is not standard base64", text::shown(text))))
            }
        }
    }

    /// Encodes the grant.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = signed_bytes(self.authority, &self.terms);
        bytes.extend_from_slice(&self.signature);
        bytes
    }

    /// Returns the grant in base64: one word, for a file.
    pub fn to_text(&self) -> String {
        text::encode(&self.encode())
    }

    /// Returns the key that signed the grant, if the grant is genuine.
    pub fn authority(&self) -> PublicKey {
        self.authority
    }

    /// Returns what the grant says, if it is genuine.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Returns whether the signature is its authority's.
    pub fn is_genuine(&self) -> bool {
        self.authority.verify(Context::GRANT, &signed_bytes(self.authority, &self.terms), &self.signature)
    }
}

/// Returns everything before the signature.
fn signed_bytes(authority: PublicKey, terms: &Terms) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAX_GRANT_BYTES);
    bytes.push(VERSION);
    bytes.extend_from_slice(authority.as_bytes());
    bytes.extend_from_slice(terms.key.as_bytes());
    bytes.push(terms.rights.0);
    bytes.extend_from_slice(&terms.serial.to_be_bytes());
    bytes.extend_from_slice(&terms.expires.to_be_bytes());
    put_text(&terms.principal, &mut bytes);
    put_text(&terms.scope.type_name().to_string(), &mut bytes);
    put_text(&terms.scope.instance().to_string(), &mut bytes);
    bytes
}

fn read_terms(reader: &mut Reader<'_>) -> Read<Terms> {
    let key = reader.key()?;
    let rights = match reader.u8()? {
        bits @ 1..=3 => Rights(bits),
        other => return Err(reader.wrong(format!("rights are 1, 2 or 3, not {other}"))),
    };
    let (serial, expires) = (reader.u64()?, reader.u64()?);
    let principal = reader.text()?;
    let principal = principal.parse().map_err(|why: crate::NameFault| reader.wrong(why.to_string()))?;
    let (type_name, instance) = (reader.text()?, reader.text()?);
    let scope = Scope::new(type_name, instance).map_err(|why| reader.wrong(why.to_string()))?;
    Ok(Terms { key, principal, rights, scope, serial, expires })
}

impl From<Right> for Rights {
    fn from(right: Right) -> Rights {
        match right {
            Right::Export => Rights::EXPORT,
            Right::Import => Rights::IMPORT,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Export => "export",
            Right::Import => "import",
        })
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match (self.has(Right::Export), self.has(Right::Import)) {
            (true, true) => "export,import",
            (true, false) => "export",
            (false, _) => "import",
        })
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rights({self})")
    }
}

/// The names of a grant are too long together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    found: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the principal, the type and the instance of a grant have at most {} bytes together; these have \
             {}; use shorter names, or a beginning of the instance with * behind it",
            MAX_GRANT_BYTES - FIXED_BYTES,
            self.found
        )
    }
}

impl std::error::Error for TooLarge {}
