//! Principals: who the other end is, and by which evidence.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::grant::{Grant, Right};
use crate::key::PublicKey;
use crate::name::Scope;

/// Who the other end is. [`Keyring::check_client`](crate::Keyring::check_client) and
/// [`Keyring::check_server`](crate::Keyring::check_server) make principals; a
/// [keyring](crate::Keyring::still_stands) also says whether one still stands.
#[derive(Clone)]
pub struct Principal {
    /// The name, as the line of a key file or the grant has it.
    pub name: Arc<str>,
    /// The key. A handshake with this principal has the [exchange key](PublicKey::exchange_key) of this key.
    pub key: PublicKey,
    /// The grant that says so: its authority and its serial. `None` if a key file names the key.
    pub grant: Option<(PublicKey, u64)>,
    /// When the principal expires, in Unix seconds; `None` if it does not.
    pub expires: Option<u64>,
    /// What it was asked for.
    pub(crate) asked: Asked,
    /// The grants that it showed and that counted, whose signatures were checked.
    pub(crate) grants: Arc<[Grant]>,
    /// What the lines of a key file let it, as a client.
    pub(crate) lines: Arc<[Scope]>,
}

/// In which role the other end was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// As a client, for any name.
    Client,
    /// As a server of this name; either may be empty.
    Server { type_name: Box<str>, instance: Box<str> },
}

impl Principal {
    /// Returns the right that the principal uses: servers export, clients import.
    pub fn right(&self) -> Right {
        self.asked.right()
    }

    /// Returns what its lines and grants let it, as a client.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &Scope> + Clone {
        self.lines.iter().chain(self.grants.iter().map(|grant| &grant.terms().scope))
    }

    /// Returns what its lines and grants let it, as a client, that those which count now do not. (A server is
    /// judged for each name by itself.)
    pub(crate) fn lost(&self, now: &Principal) -> Option<&Scope> {
        if self.asked != Asked::Client {
            return None;
        }
        self.scopes().find(|former| !now.scopes().any(|scope| scope.includes(former)))
    }

    /// Returns a digest (SHA-256) of who the principal is and of the lines and grants that say so. Two
    /// principals that have the same digest have the same rights.
    pub fn digest(&self) -> [u8; 32] {
        let mut grants: Vec<Vec<u8>> = self.grants.iter().map(Grant::encode).collect();
        grants.sort_unstable();
        grants.dedup();
        let mut digest = Sha256::new();
        let mut lines: Vec<String> = self.lines.iter().map(Scope::to_string).collect();
        lines.sort_unstable();
        lines.dedup();
        digest.update(b"farcall principal 2\0");
        digest.update(self.key.as_bytes());
        digest.update((grants.len() as u64).to_be_bytes());
        let parts = grants.iter().map(|grant| &**grant).chain(lines.iter().map(|line| line.as_bytes()));
        for part in [self.name.as_bytes()].into_iter().chain(parts) {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    /// Returns when the next of the principal's grants expires after `now`, in Unix seconds. Its rights may
    /// change then. Returns `u64::MAX` if none does.
    pub fn next_expiry(&self, now: u64) -> u64 {
        let expiries = self.grants.iter().map(|grant| grant.terms().expires);
        expiries.filter(|expires| *expires > now).min().unwrap_or(u64::MAX)
    }
}

impl Asked {
    pub(crate) fn right(&self) -> Right {
        match self {
            Asked::Client => Right::Import,
            Asked::Server { .. } => Right::Export,
        }
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal")
            .field("name", &self.name)
            .field("key", &self.key)
            .field("grant", &self.grant)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}
