//! Who calls (RFC 5531 sections 8.2, 10 and appendix A): flavours of authentication that carry their proof in
//! the header.
//!
//! Of flavours that protect the body too (RPCSEC_GSS, RFC 2203) only the numbers stand here.

use std::fmt;
use std::ops::Deref;

/// A credential or a verifier as the header has it: a flavour, and at most 400 bytes that it alone
/// understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpaqueAuth<'a> {
    flavor: Flavor,
    /// No longer than `LONGEST`.
    body: &'a [u8],
}

impl<'a> OpaqueAuth<'a> {
    /// AUTH_NONE.
    pub const NONE: OpaqueAuth<'static> = OpaqueAuth { flavor: Flavor::NONE, body: &[] };
    /// The bytes that a body may have (section 8.2).
    pub const LONGEST: usize = 400;

    /// One of this flavour and body; none if the body is too long.
    #[inline]
    pub fn new(flavor: u32, body: &'a [u8]) -> Option<OpaqueAuth<'a>> {
        (body.len() <= Self::LONGEST).then_some(OpaqueAuth { flavor: Flavor(flavor), body })
    }

    /// One that has a flavour and nothing else.
    #[inline]
    pub fn empty(flavor: u32) -> OpaqueAuth<'a> {
        OpaqueAuth { flavor: Flavor(flavor), body: &[] }
    }

    /// What it is.
    #[inline]
    pub fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// What it says.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// What it says, understood.
    ///
    /// # Errors
    /// What the caller is told if its body does not hold what its flavour asks for.
    #[inline]
    pub fn credential(&self) -> Result<Credential<'a>, AuthStat> {
        Ok(match self.flavor {
            Flavor::NONE => Credential::None,
            Flavor::SYS => Credential::Sys(Sys::parse(self.body)?),
            Flavor::SHORT => Credential::Short(self.body),
            _ => Credential::Other(*self),
        })
    }

    /// Appends it.
    #[inline]
    pub fn write(&self, out: &mut Vec<u8>) {
        // No longer than LONGEST.
        put(out, [self.flavor.0, self.body.len() as u32]);
        put_opaque(out, self.body);
    }
}

/// Flavours of authentication: an open set, whose numbers IANA keeps.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flavor(pub u32);

impl Flavor {
    /// Nobody in particular.
    pub const NONE: Flavor = Flavor(0);
    /// A user and groups, on the caller's word.
    pub const SYS: Flavor = Flavor(1);
    /// What a server gave for an AUTH_SYS, to stand for it.
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

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// Nobody in particular.
    None,
    /// A user and groups, on the caller's word.
    Sys(Sys<'a>),
    /// What a server gave to stand for an AUTH_SYS.
    Short(&'a [u8]),
    /// Of another flavour.
    Other(OpaqueAuth<'a>),
}

/// A user and groups, on the caller's word (RFC 5531 appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sys<'a> {
    /// Anything; the time, often.
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
    /// The bytes that a machine's name may have.
    pub const LONGEST_NAME: usize = 255;
    /// The groups that a body has room for, the first one apart.
    pub const MOST_GIDS: usize = Gids::MOST;
    /// A body is never longer.
    pub const LONGEST: usize = 20 + 256 + 4 * Gids::MOST;

    /// The user `uid` of `gid` and `gids` at `machine`; none if the name or the list is too long.
    pub fn new(stamp: u32, machine: &'a [u8], uid: u32, gid: u32, gids: &[u32]) -> Option<Sys<'a>> {
        if machine.len() > Self::LONGEST_NAME {
            return None;
        }
        Some(Sys { stamp, machine, uid, gid, gids: Gids::new(gids)? })
    }

    /// The machine's name.
    pub fn machine(&self) -> &'a [u8] {
        self.machine
    }

    /// The user's other groups.
    pub fn gids(&self) -> &[u32] {
        &self.gids
    }

    /// What a credential's body says.
    ///
    /// # Errors
    /// [`AuthStat::BADCRED`] if the body is longer or shorter than its fields, or they than they may be.
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

/// Why authentication failed (RFC 5531 section 9, `auth_stat`): an open set.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthStat(pub u32);

impl AuthStat {
    /// The credential is malformed.
    pub const BADCRED: AuthStat = AuthStat(1);
    /// The client must begin a new session.
    pub const REJECTEDCRED: AuthStat = AuthStat(2);
    /// The verifier is malformed.
    pub const BADVERF: AuthStat = AuthStat(3);
    /// The verifier has expired or was sent before.
    pub const REJECTEDVERF: AuthStat = AuthStat(4);
    /// Refused for reasons of security: something stronger is asked for.
    pub const TOOWEAK: AuthStat = AuthStat(5);
    /// The client did not believe the server's verifier.
    pub const INVALIDRESP: AuthStat = AuthStat(6);
    /// Some other reason.
    pub const FAILED: AuthStat = AuthStat(7);
    /// There is no such credential of RPCSEC_GSS, or it has expired (RFC 2203).
    pub const GSS_CREDPROBLEM: AuthStat = AuthStat(13);
    /// There is no such context of RPCSEC_GSS (RFC 2203).
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
