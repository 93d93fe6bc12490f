//! The entries of a registry.

use crate::{Address, Error, Label, MAX_EXPORT, Owner, Result};

/// The most fingerprints of an entry, which has one for each procedure of its interface.
pub const MAX_FINGERPRINTS: usize = 4096;

/// The most bytes of a public key.
pub const MAX_PUBLIC_KEY: usize = 1024;

/// A registry's entry for one instance of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The type: the group that this instance is a member of.
    pub type_name: Label,
    /// The instance.
    pub instance: Label,
    /// The address at which callers reach it (Grapevine calls this the connect-site).
    pub address: Address,
    /// The export's identifier. It is random, and each call checks it, so a restart breaks every binding
    /// (Birrell & Nelson 1984, section 2.3).
    pub export: u64,
    /// The fingerprints of the procedures, at most [`MAX_FINGERPRINTS`].
    pub fingerprints: Vec<Fingerprint>,
    /// The exporter's public key; empty if it has none. At most [`MAX_PUBLIC_KEY`] bytes.
    pub public_key: Vec<u8>,
    /// The process that exports it. The entry is void when that process is dead.
    pub owner: Owner,
}

/// The part of a procedure's description that a binding compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The procedure's number.
    pub number: u32,
    /// A hash of its wire types.
    pub types: u64,
    /// A hash of its name. Its lowest bit is not part of the hash: it is 1 if the number is pinned.
    pub name: u64,
}

impl Entry {
    /// Returns an entry that this process owns, without fingerprints or a public key.
    pub fn new(type_name: Label, instance: Label, address: Address, export: u64) -> Self {
        Self {
            type_name,
            instance,
            address,
            export,
            fingerprints: Vec::new(),
            public_key: Vec::new(),
            owner: Owner::current(),
        }
    }

    /// Returns the entry's name, as in `FileAccess/ebbets`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.type_name, self.instance)
    }

    /// Returns the error for a further entry of this name, which this entry has taken.
    pub(crate) fn taken(&self) -> Error {
        Error::Taken { name: self.name(), owner: self.owner, address: self.address }
    }

    /// Checks that the entry keeps within the bounds. Registries call this before they publish it.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] names the bound.
    pub fn check(&self) -> Result<()> {
        let bounds = [
            ("bytes of type and instance", self.name().len(), MAX_EXPORT),
            ("fingerprints", self.fingerprints.len(), MAX_FINGERPRINTS),
            ("bytes of public key", self.public_key.len(), MAX_PUBLIC_KEY),
        ];
        for (what, size, limit) in bounds {
            if size > limit {
                return Err(Error::TooLarge { what, size, limit });
            }
        }
        Ok(())
    }
}
