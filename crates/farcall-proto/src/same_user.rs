//! Proofs that a client without keys is a process of the server's user (docs/protocol.md, section 4.5).
//!
//! All processes of a user on one machine can read a secret that others cannot. A server at a loopback
//! address challenges whoever binds, and a client answers by a MAC (message authentication code) of the
//! challenge under the secret. The secret itself is never sent.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::scheme::keyed_hash;
use crate::wire::{self, Mac, Ticket, UserProof};
use crate::{Mutant, Rule};

/// The maximum number of secrets by which a client proves itself in one BIND, and that a server looks at.
pub(crate) const MAX_USER_SECRETS: usize = 4;

/// What a proof is a MAC of begins with this label.
const LABEL: &[u8] = b"farcall user 1\0";

/// A secret that all processes of one user on one machine can read, and nobody else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UserSecret([u8; 16]);

impl UserSecret {
    /// Wraps the bytes of a secret, which must be random.
    pub fn new(bytes: [u8; 16]) -> UserSecret {
        UserSecret(bytes)
    }

    /// Returns a number by which a server finds the secret that a client has used. It tells nothing about
    /// the secret.
    fn id(&self) -> u64 {
        keyed_hash(&self.0, &[b"farcall user secret"]).h1
    }

    /// Returns the proof that this secret's user wants to be let in by the server at `server`, which has
    /// given this ticket of this conversation as a challenge.
    fn prove(&self, (conversation, challenge): (u64, &Ticket<'_>), server: Place) -> UserProof {
        let (conversation, port) = (conversation.to_be_bytes(), server.port.to_be_bytes());
        let mac = keyed_hash(&self.0, &[LABEL, &conversation, &challenge.to_bytes(), &server.ip, &port]);
        UserProof { secret: self.id(), mac: Mac(mac.as_bytes()) }
    }
}

impl fmt::Debug for UserSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserSecret")
    }
}

/// Finds the secrets of the user that this process runs as.
pub trait UserSecrets: fmt::Debug + Send + Sync {
    /// Returns the secrets that this process can read now. The protocol asks only while a client binds, under
    /// its lock, so this must not wait for another process.
    ///
    /// # Errors
    /// Why there is none.
    fn secrets(&self) -> Result<Vec<UserSecret>, String>;
}

/// What an end needs to prove, or to have proven, that both ends are processes of one user.
#[derive(Clone, Debug)]
pub struct SameUser {
    /// The secrets of the user that this process runs as.
    secrets: Arc<dyn UserSecrets>,
    server: Place,
}

/// A server's address as it is in a proof. It is smaller than a `SocketAddr`, and every conversation has one.
#[derive(Clone, Copy, Debug)]
struct Place {
    ip: [u8; 16],
    port: u16,
}

impl SameUser {
    /// `server` is the server's address: at the client the one that it sends to, at the server the one at which
    /// it receives. A proof for one server is of no use at another one.
    pub fn new(secrets: Arc<dyn UserSecrets>, server: SocketAddr) -> SameUser {
        SameUser { secrets, server: server.into() }
    }

    /// Returns the same for another server.
    #[must_use]
    pub fn at(&self, server: SocketAddr) -> SameUser {
        SameUser::new(self.secrets.clone(), server)
    }

    /// Returns the secrets of the user that this process runs as.
    ///
    /// # Errors
    /// Those of [`UserSecrets::secrets`].
    pub(crate) fn secrets(&self) -> Result<Vec<UserSecret>, String> {
        self.secrets.secrets()
    }

    /// Returns the answers of a client to a challenge.
    ///
    /// # Errors
    /// Why there is no secret to answer by.
    pub(crate) fn prove(
        &self,
        challenge: (u64, &Ticket<'_>),
        mutant: Mutant,
    ) -> Result<Vec<UserProof>, String> {
        let server = if mutant.breaks(Rule::UserProofMoves) { Place::ANY } else { self.server };
        let secrets = self.secrets.secrets()?;
        let secrets = secrets.iter().take(MAX_USER_SECRETS);
        Ok(secrets.map(|secret| secret.prove(challenge, server)).collect())
    }

    /// Returns whether one of the proofs answers the challenge by one of these secrets.
    pub(crate) fn is_proven(
        &self,
        known: &[UserSecret],
        challenge: (u64, &Ticket<'_>),
        proofs: &[UserProof],
        mutant: Mutant,
    ) -> bool {
        let server = if mutant.breaks(Rule::UserProofMoves) { Place::ANY } else { self.server };
        let of = |secret: &UserSecret| secret.prove(challenge, server);
        known.iter().map(of).any(|expected| proofs.contains(&expected))
    }

    /// Returns whether a proof is by a secret that is not among these.
    pub(crate) fn has_unknown(known: &[UserSecret], proofs: &[UserProof]) -> bool {
        proofs.iter().any(|proof| known.iter().all(|secret| secret.id() != proof.secret))
    }
}

impl Place {
    /// The address in every proof if proofs are not bound to their servers.
    const ANY: Place = Place { ip: [0; 16], port: 0 };
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Place {
        Place { ip: wire::ip_octets(address), port: address.port() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::ticket::Issuer;

    #[derive(Debug)]
    struct Known(Vec<UserSecret>);

    impl UserSecrets for Known {
        fn secrets(&self) -> Result<Vec<UserSecret>, String> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn a_proof_is_good_for_one_challenge_one_server_and_one_user() {
        let [alice, bob] = [1, 2].map(|byte| UserSecret::new([byte; 16]));
        let server: SocketAddr = "127.0.0.1:7000".parse().unwrap();
        let other: SocketAddr = "127.0.0.1:7001".parse().unwrap();
        let of = |secrets: &[UserSecret], server| SameUser::new(Arc::new(Known(secrets.to_vec())), server);
        let mut issuer = Issuer::new(Time::default(), &[1; 32]);
        let mut ticket = || issuer.issue(Time::default(), 0, 7, 9, "127.0.0.1:4000".parse().unwrap());
        let (challenge, another) = (ticket(), ticket());
        let proofs = of(&[alice], server).prove((9, &challenge), Mutant::NONE).unwrap();
        let end = of(&[], server);
        assert!(end.is_proven(&[bob, alice], (9, &challenge), &proofs, Mutant::NONE));
        assert!(!end.is_proven(&[bob], (9, &challenge), &proofs, Mutant::NONE));
        assert!(!end.is_proven(&[alice], (8, &challenge), &proofs, Mutant::NONE));
        assert!(!end.is_proven(&[alice], (9, &another), &proofs, Mutant::NONE));
        assert!(!of(&[], other).is_proven(&[alice], (9, &challenge), &proofs, Mutant::NONE));
        assert!(SameUser::has_unknown(&[bob], &proofs) && !SameUser::has_unknown(&[bob, alice], &proofs));
        assert_eq!(
            of(&[alice; 9], server).prove((9, &challenge), Mutant::NONE).unwrap().len(),
            MAX_USER_SECRETS
        );
        assert_eq!(format!("{alice:?}"), "UserSecret");
    }
}
