//! Enrolment tokens: how a new machine asks an authority for its first grant.
//!
//! The authority prints a token, and a person carries it to the new machine. The token says where the
//! authority listens and how to recognise its key, and holds a secret: by a MAC with it, the new machine
//! shows that it was given the token. The authority accepts each token once; that is its program's business.
//!
//! The text is `farcall-enrol:` and base64url without padding of: the version byte 1, the authority's
//! fingerprint (16 bytes), the secret (16), when the token expires (8, Unix seconds), for how many seconds
//! the grant will be (4), its rights (1), and four texts with their lengths in front: address, principal,
//! type, instance.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use zeroize::{Zeroize as _, Zeroizing};

use crate::codec::{Malformed, Read, Reader, put_text};
use crate::grant::{Right, Rights};
use crate::key::{Context, Fingerprint, PublicKey};
use crate::name::{NameFault, PrincipalName, Scope};

/// The length of a MAC in bytes.
pub const MAC_BYTES: usize = 32;

const PREFIX: &str = "farcall-enrol:";
const VERSION: u8 = 1;
const SECRET_BYTES: usize = 16;
const LIFETIME_SECONDS: u64 = 600;
const MAX_ADDRESS_BYTES: usize = 255;

/// The maximum length of a token's text in bytes: more than its largest encoding has.
const MAX_TEXT_BYTES: usize = 2048;

const MAC: Context = Context::new("farcall enrolment 1");

/// A token for one enrolment within ten minutes of its making.
///
/// ```
/// use farcall_keys::{EnrolmentToken, Identity, Rights, Template};
///
/// let authority = Identity::from_entropy([1; 32]).public();
/// let template = Template {
///     principal: "alice".parse()?,
///     rights: Rights::IMPORT,
///     scope: "Store".parse()?,
///     seconds: 90 * 86_400,
/// };
/// let now = 1_800_000_000;
/// let token = EnrolmentToken::issue(&authority, "10.0.0.7:7000", template, [9; 16], now)?;
/// let carried: EnrolmentToken = token.to_text().parse()?;
/// let mac = carried.mac(b"the new machine's public key");
/// token.check_mac(b"the new machine's public key", &mac, now + 599)?;
/// assert!(token.check_mac(b"the new machine's public key", &mac, now + 600).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EnrolmentToken {
    authority: Fingerprint,
    address: String,
    template: Template,
    expires: u64,
    secret: Zeroizing<[u8; SECRET_BYTES]>,
}

/// The grant that the token's holder will get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Who the holder will be.
    pub principal: PrincipalName,
    /// What the holder may do.
    pub rights: Rights,
    /// With which names.
    pub scope: Scope,
    /// For how many seconds the grant counts.
    pub seconds: u32,
}

/// Why a token is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenError {
    /// It is no token.
    Malformed(Malformed),
    /// The address is empty, longer than 255 bytes, or has characters other than visible ASCII.
    Address,
    /// It expired so many seconds ago.
    Expired(u64),
    /// The MAC was not made with the token's secret over these bytes.
    WrongMac,
}

impl EnrolmentToken {
    /// Makes a token that expires ten minutes after `now`, in Unix seconds. The secret is entropy of the
    /// operating system.
    ///
    /// # Errors
    /// [`TokenError::Address`].
    pub fn issue(
        authority: &PublicKey,
        address: &str,
        template: Template,
        mut secret: [u8; SECRET_BYTES],
        now: u64,
    ) -> Result<EnrolmentToken, TokenError> {
        check_address(address)?;
        let token = EnrolmentToken {
            authority: authority.fingerprint(),
            address: address.to_owned(),
            template,
            expires: now.saturating_add(LIFETIME_SECONDS),
            secret: Zeroizing::new(secret),
        };
        secret.zeroize();
        Ok(token)
    }

    /// Returns the token as one word, which is a secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_TEXT_BYTES));
        bytes.push(VERSION);
        bytes.extend_from_slice(self.authority.as_bytes());
        bytes.extend_from_slice(self.secret.as_slice());
        bytes.extend_from_slice(&self.expires.to_be_bytes());
        bytes.extend_from_slice(&self.template.seconds.to_be_bytes());
        let has = |right, bit| if self.template.rights.has(right) { bit } else { 0 };
        bytes.push(has(Right::Export, 1) | has(Right::Import, 2));
        put_text(&self.address, &mut bytes);
        put_text(&self.template.principal, &mut bytes);
        put_text(&self.template.scope.type_name().to_string(), &mut bytes);
        put_text(&self.template.scope.instance().to_string(), &mut bytes);
        let mut text = Zeroizing::new(String::with_capacity(MAX_TEXT_BYTES));
        text.push_str(PREFIX);
        URL_SAFE_NO_PAD.encode_string(bytes.as_slice(), &mut text);
        text
    }

    /// Returns the fingerprint of the authority's key.
    pub fn authority(&self) -> Fingerprint {
        self.authority
    }

    /// Returns where the authority listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the grant that the holder will get.
    pub fn template(&self) -> &Template {
        &self.template
    }

    /// Returns the first Unix second at which the token no longer counts.
    pub fn expires(&self) -> u64 {
        self.expires
    }

    /// Checks that the token has not expired.
    ///
    /// # Errors
    /// [`TokenError::Expired`].
    pub fn check_time(&self, now: u64) -> Result<(), TokenError> {
        match now < self.expires {
            true => Ok(()),
            false => Err(TokenError::Expired(now - self.expires)),
        }
    }

    /// Returns the HMAC-SHA-256 of the bytes with the token's secret.
    pub fn mac(&self, bytes: &[u8]) -> [u8; MAC_BYTES] {
        self.hmac(bytes).finalize().into_bytes().into()
    }

    /// Checks that the holder of this token made the MAC over these bytes, and that the token has not
    /// expired. Compares in constant time.
    ///
    /// # Errors
    /// [`TokenError::Expired`] and [`TokenError::WrongMac`].
    pub fn check_mac(&self, bytes: &[u8], mac: &[u8; MAC_BYTES], now: u64) -> Result<(), TokenError> {
        self.check_time(now)?;
        self.hmac(bytes).verify_slice(mac).map_err(|_| TokenError::WrongMac)
    }

    /// Returns whether the holder of this token made the MAC over these bytes, whenever that was. Compares in
    /// constant time.
    pub(crate) fn is_mac(&self, bytes: &[u8], mac: &[u8; MAC_BYTES]) -> bool {
        self.hmac(bytes).verify_slice(mac).is_ok()
    }

    fn hmac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        let hmac =
            Hmac::<Sha256>::new_from_slice(self.secret.as_slice()).expect("HMAC takes keys of any length");
        hmac.chain_update(MAC.message(bytes))
    }
}

fn check_address(address: &str) -> Result<(), TokenError> {
    let is_sound = (1..=MAX_ADDRESS_BYTES).contains(&address.len())
        && address.bytes().all(|byte| byte.is_ascii_graphic());
    if is_sound { Ok(()) } else { Err(TokenError::Address) }
}

fn read(bytes: &[u8]) -> Read<EnrolmentToken> {
    let mut reader = Reader::new("an enrolment token", bytes);
    reader.version(VERSION)?;
    let authority = Fingerprint::from_bytes(reader.array()?);
    let secret = Zeroizing::new(reader.array()?);
    let (expires, seconds) = (reader.u64()?, reader.u32()?);
    let rights = match reader.u8()? {
        1 => Rights::EXPORT,
        2 => Rights::IMPORT,
        3 => Rights::BOTH,
        other => return Err(reader.wrong(format!("rights are 1, 2 or 3, not {other}"))),
    };
    let address = reader.text()?;
    check_address(address).map_err(|why| reader.wrong(why.to_string()))?;
    let principal = reader.text()?;
    let principal = principal.parse().map_err(|why: NameFault| reader.wrong(why.to_string()))?;
    let (type_name, instance) = (reader.text()?, reader.text()?);
    let scope = Scope::new(type_name, instance).map_err(|why| reader.wrong(why.to_string()))?;
    reader.end()?;
    let template = Template { principal, rights, scope, seconds };
    Ok(EnrolmentToken { authority, address: address.to_owned(), template, expires, secret })
}

impl FromStr for EnrolmentToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<EnrolmentToken, TokenError> {
        let wrong = |why: &str| TokenError::Malformed(Malformed::new("an enrolment token", 0, why));
        let text = text.trim();
        let Some(base64) = text.strip_prefix(PREFIX) else {
            return Err(wrong("it does not begin with \"farcall-enrol:\""));
        };
        if text.len() > MAX_TEXT_BYTES {
            return Err(wrong("it is too long"));
        }
        let bytes = URL_SAFE_NO_PAD.decode(base64).map_err(|_| wrong("it is not base64url"))?;
        read(&Zeroizing::new(bytes)).map_err(TokenError::Malformed)
    }
}

impl fmt::Debug for EnrolmentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrolmentToken")
            .field("authority", &self.authority)
            .field("address", &self.address)
            .field("template", &self.template)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenError::Malformed(why) => write!(f, "{why}; copy the whole token that the authority printed"),
            TokenError::Address => f.write_str("an authority's address is 1 to 255 visible ASCII characters"),
            TokenError::Expired(ago) => write!(
                f,
                "expected a token of the last ten minutes; found one that expired {ago} s ago; get another"
            ),
            TokenError::WrongMac => f.write_str(
                "expected a MAC by the token's secret; found another; use the token that was printed last",
            ),
        }
    }
}

impl std::error::Error for TokenError {}
