//! Refusals: why a key may not do what it wants to.

use std::fmt;

/// Why a key is refused: what was expected, what came, and what to do. One line of text.
///
/// The text names keys, principals and rules of this end. It is for this end's log; a peer is told the
/// [kind](Refusal::kind) at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    kind: RefusalKind,
    expected: String,
    found: String,
    advice: String,
}

/// The kind of a [`Refusal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusalKind {
    /// What was shown is not a presentation.
    Malformed,
    /// The handshake was made by another key than the one that is shown.
    OtherKey,
    /// A registry entry has no signature.
    Unsigned,
    /// Nobody here knows the key, and it shows no grant.
    UnknownKey,
    /// Lines of `known_servers` name other keys for the name, and allow no grants.
    Pinned,
    /// No trusted authority signed the grant.
    UntrustedAuthority,
    /// The authority that signed the grant may not name this principal.
    WrongPrincipal,
    /// The grant does not have the right.
    WrongRight,
    /// The grants, or the lines of `authorized_keys`, are for other names.
    WrongName,
    /// The grant, the registry entry or the certificate has expired.
    Expired,
    /// The registry entry expires too late: the clocks differ.
    WrongClock,
    /// The grant's signature is not its authority's, or the registry entry's not its exporter's.
    Forged,
    /// The key or the grant is revoked.
    Revoked,
    /// The revocation list of the grant's authority is too old to be relied on.
    StaleRevocations,
    /// The key is now another principal than before.
    OtherPrincipal,
    /// A request for enrolment is to another authority.
    OtherAuthority,
    /// A challenge is not this authority's, or was issued too long ago.
    StaleChallenge,
    /// A proof has come before.
    UsedChallenge,
    /// There are too many enrolments.
    Overloaded,
    /// A proof was not made with the private key of the certificate.
    WrongPrivateKey,
    /// A certificate breaks a rule for certificates of hosts.
    WrongCertificate,
    /// A certificate is of a trust domain that the authority does not know.
    OtherTrustDomain,
    /// Certificates do not lead to an authority of the trust bundle.
    UntrustedCertificate,
    /// No rule of the authority allows a certificate.
    NoRule,
}

impl Refusal {
    pub(crate) fn new(
        kind: RefusalKind,
        expected: impl Into<String>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Refusal {
        Refusal { kind, expected: expected.into(), found: found.into(), advice: advice.into() }
    }

    /// Returns the kind of the refusal.
    pub fn kind(&self) -> RefusalKind {
        self.kind
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}; found {}; {}", self.expected, self.found, self.advice)
    }
}

impl std::error::Error for Refusal {}
