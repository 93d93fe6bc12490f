//! The entries of a registry.

use std::net::SocketAddr;

use crate::{Address, Error, Label, MAX_EXPORT, Owner, Result};

/// The maximum number of fingerprints of an entry, which has one for each procedure of its interface.
pub const MAX_FINGERPRINTS: usize = 4096;

/// The maximum length of a proof in bytes.
pub const MAX_PROOF: usize = 1024;

/// The maximum number of addresses of an entry.
pub const MAX_ADDRESSES: usize = 8;

/// A registry's entry for one instance of a type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The type. Its instances form a group, of which this instance is a member.
    pub type_name: Label,
    /// The instance.
    pub instance: Label,
    /// The address at which callers reach the instance (Grapevine calls this the connect-site).
    pub address: Address,
    /// Further addresses at which callers reach the instance, if its host has several; in the order in which
    /// to try them. At most [`MAX_ADDRESSES`], together with the first.
    pub other_addresses: Vec<Address>,
    /// The export's identifier. It is random, and each call checks it, so a restart breaks every binding
    /// (Birrell & Nelson 1984, section 2.3).
    pub export: u64,
    /// The fingerprints of the procedures, at most [`MAX_FINGERPRINTS`].
    pub fingerprints: Vec<Fingerprint>,
    /// Shows that the exporter has signed the entry, with what key and until when; empty if it has no keys.
    /// At most [`MAX_PROOF`] bytes, which importers with keys understand.
    pub proof: Vec<u8>,
    /// The process that exports the instance. When that process is dead, the entry is void.
    pub owner: Owner,
    /// Whether the instance's name is made up, because the registry knows addresses only. The exporter may
    /// use another name, so it is asked for the type alone. Only registries that cannot be published to have
    /// such entries; the others do not keep this.
    pub by_type: bool,
}

/// The part of a procedure's description that a binding compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The procedure's number.
    pub number: u32,
    /// A hash of the procedure's wire types.
    pub types: u64,
    /// A hash of the procedure's name. The lowest bit is not part of the hash: it is 1 if the source fixes
    /// the procedure's number.
    pub name: u64,
}

impl Entry {
    /// Returns an entry that this process owns, without fingerprints or a proof.
    pub fn new(type_name: Label, instance: Label, address: Address, export: u64) -> Self {
        Self {
            type_name,
            instance,
            address,
            other_addresses: Vec::new(),
            export,
            fingerprints: Vec::new(),
            proof: Vec::new(),
            owner: Owner::current(),
            by_type: false,
        }
    }

    /// Returns the entry's name, as in `FileAccess/ebbets`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.type_name, self.instance)
    }

    /// Returns all addresses, the first one to try first.
    pub fn addresses(&self) -> impl Iterator<Item = &Address> {
        std::iter::once(&self.address).chain(&self.other_addresses)
    }

    /// Returns the sockets of all addresses that are written as numbers, the first one to try first.
    pub fn sockets(&self) -> impl Iterator<Item = SocketAddr> {
        self.addresses().filter_map(Address::socket)
    }

    /// Returns the sockets at which this process may reach the instance, the most specific one first: those
    /// of this machine's own (loopback), through which memory can be shared, and then those of networks. If
    /// the owner is on another machine, a loopback address is left out, unless there is no other.
    pub fn sockets_from_here(&self) -> Vec<SocketAddr> {
        let mut sockets: Vec<SocketAddr> = self.sockets().collect();
        let is_local = |socket: &SocketAddr| socket.ip().is_loopback();
        if sockets.len() > 1 && sockets.iter().any(is_local) {
            sockets.sort_by_key(|socket| !is_local(socket));
            if self.owner.is_elsewhere() && !sockets.iter().all(is_local) {
                sockets.retain(|socket| !is_local(socket));
            }
        }
        sockets
    }

    /// Returns the name for which the exporter is asked: `FileAccess/ebbets`, or `FileAccess` if the
    /// instance's name is made up ([`Entry::by_type`]).
    pub fn asked_name(&self) -> String {
        if self.by_type { self.type_name.to_string() } else { self.name() }
    }

    /// Returns what an exporter signs besides the name: all that the entry says but its proof. Entries that
    /// differ in anything of this have different contents.
    ///
    /// Numbers are big-endian: the export (8 bytes); the owner's number (4), start (8), boot (8) and
    /// namespace (8); the number of addresses (1), and each as text after its length (2); the number of
    /// fingerprints (4), and for each the procedure's number (4), types (8) and name (8).
    pub fn contents(&self) -> Vec<u8> {
        let Owner { pid, started, boot, namespace } = self.owner;
        let mut contents = Vec::with_capacity(128 + 20 * self.fingerprints.len());
        contents.extend_from_slice(&self.export.to_be_bytes());
        contents.extend_from_slice(&pid.to_be_bytes());
        [started, boot, namespace].iter().for_each(|n| contents.extend_from_slice(&n.to_be_bytes()));
        contents.push(self.addresses().count() as u8);
        for address in self.addresses().map(Address::to_string) {
            contents.extend_from_slice(&(address.len() as u16).to_be_bytes());
            contents.extend_from_slice(address.as_bytes());
        }
        contents.extend_from_slice(&(self.fingerprints.len() as u32).to_be_bytes());
        for Fingerprint { number, types, name } in &self.fingerprints {
            contents.extend_from_slice(&number.to_be_bytes());
            [types, name].iter().for_each(|hash| contents.extend_from_slice(&hash.to_be_bytes()));
        }
        contents
    }

    /// Returns the error for a second entry of the same name. For implementations of
    /// [`Registry`](crate::Registry).
    pub fn taken(&self) -> Error {
        Error::Taken { name: self.name(), owner: self.owner, address: self.address }
    }

    /// Checks that the entry is within the bounds. Registries call this before they publish the entry.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] names the bound.
    pub fn check(&self) -> Result<()> {
        let bounds = [
            ("bytes of type and instance", self.name().len(), MAX_EXPORT),
            ("addresses", self.addresses().count(), MAX_ADDRESSES),
            ("fingerprints", self.fingerprints.len(), MAX_FINGERPRINTS),
            ("bytes of proof", self.proof.len(), MAX_PROOF),
        ];
        for (what, size, limit) in bounds {
            if size > limit {
                return Err(Error::TooLarge { what, size, limit });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_have_these_bytes() {
        let address = "udp://10.0.0.7:7000".parse().unwrap();
        let mut entry = Entry::new("Store".parse().unwrap(), "main".parse().unwrap(), address, 0x5eed);
        entry.owner = Owner { pid: 1, started: 2, boot: 3, namespace: 4 };
        entry.other_addresses = vec!["udp://[fd00::7]:7000".parse().unwrap()];
        entry.fingerprints = vec![Fingerprint { number: 5, types: 6, name: 7 }];
        let expected = [
            &0x5eed_u64.to_be_bytes()[..],
            &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4],
            &[2, 0, 19],
            b"udp://10.0.0.7:7000",
            &[0, 20],
            b"udp://[fd00::7]:7000",
            &[0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7],
        ];
        assert_eq!(entry.contents(), expected.concat());
        let mut proven = entry.clone();
        proven.proof = vec![1];
        assert_eq!(proven.contents(), entry.contents(), "a proof is not part of what it proves");
    }
}
