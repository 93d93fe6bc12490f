//! Credentials and verifiers (RFC 5531 sections 8.2, 10 and appendix A) of those flavours of authentication
//! whose proof is in the header of a message.
//!
//! For flavours that also protect the body (RPCSEC_GSS, RFC 2203), this module has only the numbers.

use std::fmt;
use std::ops::Deref;

/// A credential or a verifier as the header carries it: a flavour, and at most 400 bytes whose meaning the
/// flavour defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    flavor: Flavor,
    /// No longer than `LONGEST`.
    body: &'a [u8],
}

impl<'a> OpaqueAuth<'a> {
    /// The credential or verifier AUTH_NONE, which is empty.
    pub const NONE: OpaqueAuth<'static> = OpaqueAuth { flavor: Flavor::NONE, body: &[] };
    /// The most bytes of a body (section 8.2).
    pub const LONGEST: usize = 400;

    /// Returns a credential or verifier of this flavour and body, or `None` if the body is too long.
    #[inline]
    pub fn new(flavor: u32, body: &'a [u8]) -> Option<OpaqueAuth<'a>> {
        (body.len() <= Self::LONGEST).then_some(OpaqueAuth { flavor: Flavor(flavor), body })
    }

    /// Returns a credential or verifier of this flavour with an empty body.
    #[inline]
    pub fn empty(flavor: u32) -> OpaqueAuth<'a> {
        OpaqueAuth { flavor: Flavor(flavor), body: &[] }
    }

    /// Returns the flavour.
    #[inline]
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Returns the body.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Parses the body as the flavour defines it.
    ///
    /// # Errors
    /// The reason to send to the caller, if the body is not what the flavour requires.
    #[inline]
    pub fn credential(&self) -> Result<Credential<'a>, AuthStat> {
        Ok(match self.flavor {
            Flavor::NONE => Credential::None,
            Flavor::SYS => Credential::Sys(Sys::parse(self.body)?),
            Flavor::SHORT => Credential::Short(self.body),
            _ => Credential::Other(*self),
        })
    }

    /// Appends the flavour and the body.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        // No longer than LONGEST.
        put(out, [self.flavor.0, self.body.len() as u32]);
        put_opaque(out, self.body);
    }
}

/// A flavour of authentication. IANA assigns the numbers, and may add more.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flavor(pub u32);

impl Flavor {
    /// No user is named.
    pub const NONE: Flavor = Flavor(0);
    /// A user and groups, which the caller asserts without proof.
    pub const SYS: Flavor = Flavor(1);
    /// A token that a server gave in place of an AUTH_SYS.
    pub const SHORT: Flavor = Flavor(2);
    /// Diffie-Hellman.
    pub const DH: Flavor = Flavor(3);
    /// RPCSEC_GSS (RFC 2203).
    pub const GSS: Flavor = Flavor(6);
    /// Asks whether the server would go on inside TLS (RFC 9289).
    pub const TLS: Flavor = Flavor(7);
}

impl fmt::Debug for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Flavor::NONE => f.write_str("AUTH_NONE"),
            Flavor::SYS => f.write_str("AUTH_SYS"),
            Flavor::SHORT => f.write_str("AUTH_SHORT"),
            Flavor::DH => f.write_str("AUTH_DH"),
            Flavor::GSS => f.write_str("RPCSEC_GSS"),
            Flavor::TLS => f.write_str("AUTH_TLS"),
            Flavor(other) => write!(f, "flavour {other}"),
        }
    }
}

/// A parsed credential, which says who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// No user is named.
    None,
    /// A user and groups, which the caller asserts without proof.
    Sys(Sys<'a>),
    /// A token that a server gave in place of an AUTH_SYS.
    Short(&'a [u8]),
    /// A credential of another flavour.
    Other(OpaqueAuth<'a>),
}

/// A user and groups, which the caller asserts without proof (RFC 5531 appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sys<'a> {
    /// A number that the caller chooses, often the time.
    pub stamp: u32,
    /// No longer than `LONGEST_NAME`.
    machine: &'a [u8],
    /// The user.
    pub uid: u32,
    /// The user's first group.
    pub gid: u32,
    gids: Gids,
}

impl<'a> Sys<'a> {
    /// The most bytes of a machine's name.
    pub const LONGEST_NAME: usize = 255;
    /// The most groups in a body, not counting the first one.
    pub const MOST_GIDS: usize = Gids::MOST;
    /// The most bytes of a body.
    pub const LONGEST: usize = 20 + 256 + 4 * Gids::MOST;

    /// Returns the user `uid` of `gid` and `gids` at `machine`; `None` if the name or the list is too long.
    pub fn new(stamp: u32, machine: &'a [u8], uid: u32, gid: u32, gids: &[u32]) -> Option<Sys<'a>> {
        if machine.len() > Self::LONGEST_NAME {
            return None;
        }
        Some(Sys { stamp, machine, uid, gid, gids: Gids::new(gids)? })
    }

    /// Returns the machine's name.
    pub fn machine(&self) -> &'a [u8] {
        self.machine
    }

    /// Returns the user's other groups.
    pub fn gids(&self) -> &[u32] {
        &self.gids
    }

    /// Parses the body of an AUTH_SYS credential.
    ///
    /// # Errors
    /// [`AuthStat::BADCRED`] if the body is longer or shorter than its fields, or a field is too long.
    #[inline]
    pub fn parse(body: &'a [u8]) -> Result<Sys<'a>, AuthStat> {
        Self::fields(body).ok_or(AuthStat::BADCRED)
    }

    fn fields(body: &'a [u8]) -> Option<Sys<'a>> {
        let (stamp, rest) = word(body)?;
        let (length, rest) = word(rest)?;
        let length = length as usize;
        if length > Self::LONGEST_NAME {
            return None;
        }
        let (name, rest) = rest.split_at_checked(length.next_multiple_of(4))?;
        let machine = name.get(..length)?;
        let (uid, rest) = word(rest)?;
        let (gid, rest) = word(rest)?;
        let (count, rest) = word(rest)?;
        if rest.len() != (count as usize).checked_mul(4)? {
            return None;
        }
        Some(Sys { stamp, machine, uid, gid, gids: Gids::from_bytes(rest)? })
    }

    /// Appends the body of the credential.
    pub fn write(&self, out: &mut Vec<u8>) {
        put(out, [self.stamp, self.machine.len() as u32]);
        put_opaque(out, self.machine);
        put(out, [self.uid, self.gid, self.gids.len() as u32]);
        self.gids.iter().for_each(|gid| put(out, [*gid]));
    }
}

/// At most 16 groups.
#[derive(Clone, Copy)]
struct Gids {
    /// No more than `MOST`.
    count: usize,
    ids: [u32; Gids::MOST],
}

impl Gids {
    const MOST: usize = 16;

    fn new(gids: &[u32]) -> Option<Gids> {
        let mut ids = [0; Gids::MOST];
        ids.get_mut(..gids.len())?.copy_from_slice(gids);
        Some(Gids { count: gids.len(), ids })
    }

    fn from_bytes(bytes: &[u8]) -> Option<Gids> {
        let (words, _) = bytes.as_chunks();
        let mut ids = [0; Gids::MOST];
        for (id, word) in ids.get_mut(..words.len())?.iter_mut().zip(words) {
            *id = u32::from_be_bytes(*word);
        }
        Some(Gids { count: words.len(), ids })
    }
}

impl Deref for Gids {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        &self.ids[..self.count]
    }
}

impl PartialEq for Gids {
    fn eq(&self, other: &Gids) -> bool {
        **self == **other
    }
}

impl Eq for Gids {}

impl fmt::Debug for Gids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// The reason why authentication failed (RFC 5531 section 9, `auth_stat`). Other numbers may be added.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthStat(pub u32);

impl AuthStat {
    /// The credential is malformed.
    pub const BADCRED: AuthStat = AuthStat(1);
    /// The client must begin a new session.
    pub const REJECTEDCRED: AuthStat = AuthStat(2);
    /// The verifier is malformed.
    pub const BADVERF: AuthStat = AuthStat(3);
    /// The verifier has expired, or was sent before.
    pub const REJECTEDVERF: AuthStat = AuthStat(4);
    /// The server requires a stronger credential.
    pub const TOOWEAK: AuthStat = AuthStat(5);
    /// The client does not accept the server's verifier.
    pub const INVALIDRESP: AuthStat = AuthStat(6);
    /// Some other reason.
    pub const FAILED: AuthStat = AuthStat(7);
    /// The RPCSEC_GSS credential does not exist or has expired (RFC 2203).
    pub const GSS_CREDPROBLEM: AuthStat = AuthStat(13);
    /// The RPCSEC_GSS context does not exist (RFC 2203).
    pub const GSS_CTXPROBLEM: AuthStat = AuthStat(14);
}

impl fmt::Debug for AuthStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for AuthStat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 15] = [
            "AUTH_OK",
            "AUTH_BADCRED",
            "AUTH_REJECTEDCRED",
            "AUTH_BADVERF",
            "AUTH_REJECTEDVERF",
            "AUTH_TOOWEAK",
            "AUTH_INVALIDRESP",
            "AUTH_FAILED",
            "AUTH_KERB_GENERIC",
            "AUTH_TIMEEXPIRE",
            "AUTH_TKT_FILE",
            "AUTH_DECODE",
            "AUTH_NET_ADDR",
            "RPCSEC_GSS_CREDPROBLEM",
            "RPCSEC_GSS_CTXPROBLEM",
        ];
        match NAMES.get(self.0 as usize) {
            Some(name) => f.write_str(name),
            None => write!(f, "auth_stat {}", self.0),
        }
    }
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_be_bytes(*word), rest))
}

/// Appends words as RFC 4506 encodes them.
pub(super) fn put<const N: usize>(out: &mut Vec<u8>, words: [u32; N]) {
    out.extend_from_slice(words.map(u32::to_be_bytes).as_flattened());
}

fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..bytes.len().wrapping_neg() & 3]);
}
