//! What signals and their interfaces are known by.

use crate::idl;
use crate::xdr::schema::TypeHashes;

/// A signal that an interface declares.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    /// The name by which it was declared.
    pub name: &'static str,
    /// What it is known by.
    pub id: SignalId,
}

/// What an interface is known by inside a process: a hash of its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceId(u64);

impl InterfaceId {
    /// The procedures of the runtime itself, which raise no signals.
    pub const NONE: InterfaceId = InterfaceId(0);

    /// Returns what an interface of this name is known by (FNV-1a).
    pub const fn of(name: &str) -> InterfaceId {
        let (bytes, mut hash, mut at) = (name.as_bytes(), 0xcbf2_9ce4_8422_2325_u64, 0);
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        InterfaceId(hash)
    }
}

/// What a signal is known by: its interface, its name and its types. Only the name and the types cross the
/// wire, because both ends of a call know the interface that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalId {
    /// The interface that declares it.
    pub interface: InterfaceId,
    /// A hash of the name.
    pub name: u64,
    /// A hash of the types of its arguments and of its result.
    pub types: u64,
}

impl Signal {
    /// Returns the signals of an interface, in the order of their declaration.
    pub fn all(interface: &'static idl::Interface) -> Vec<Signal> {
        let ids = SignalId::all(interface);
        interface.signals.iter().zip(ids).map(|(signal, id)| Signal { name: &signal.name, id }).collect()
    }
}

impl SignalId {
    /// Returns what the signals of an interface are known by, in the order of their declaration.
    pub fn all(interface: &idl::Interface) -> Vec<SignalId> {
        let (hashes, of) = (TypeHashes::new(&interface.types), InterfaceId::of(&interface.name));
        let id = |signal: &idl::Procedure| SignalId {
            interface: of,
            name: signal.name_hash(),
            types: signal.fingerprint(&hashes),
        };
        interface.signals.iter().map(id).collect()
    }
}
