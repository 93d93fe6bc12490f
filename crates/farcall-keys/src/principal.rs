//! Principals: who the other end is, and by which evidence.

use std::fmt;
use std::sync::Arc;

use crate::grant::{Grant, Right};
use crate::key::PublicKey;

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
