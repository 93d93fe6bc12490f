//! The port mapper's procedures and types (RFC 1833), as interfaces.
//!
//! Version 2 registers ports of IPv4. Versions 3 and 4 register universal addresses, each with the name of
//! its network.

/// A program's port (`struct mapping`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Mapping {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// The protocol: 6 is TCP, 17 is UDP.
    pub protocol: u32,
    /// The port at which the program is called.
    pub port: u32,
}

/// The number of TCP in a [`Mapping`].
pub const TCP: u32 = 6;
/// The number of UDP in a [`Mapping`].
pub const UDP: u32 = 17;

/// A list of ports (`pmaplist`).
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Mappings {
    /// The entries.
    #[xdr(chain)]
    pub all: Vec<Mapping>,
}

/// A call that the port mapper is to pass on (`call_args`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Passed {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// The encoded arguments.
    pub arguments: Vec<u8>,
}

/// The result of a call that was passed on (`call_result`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct PassedBack {
    /// The port at which the program is called.
    pub port: u32,
    /// The result.
    pub result: Vec<u8>,
}

/// A program's address (`struct rpcb`).
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Rpcb {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// The network's name: `udp`, `tcp`, `udp6`, `tcp6`, `local`.
    #[xdr(max = 1024)]
    pub netid: String,
    /// The universal address.
    #[xdr(max = 1024)]
    pub address: String,
    /// The user who registered the address.
    #[xdr(max = 1024)]
    pub owner: String,
}

/// A list of addresses (`rpcblist`).
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Rpcbs {
    /// The entries.
    #[xdr(chain)]
    pub all: Vec<Rpcb>,
}

/// One of a program's addresses (`struct rpcb_entry`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct AddressEntry {
    /// The universal address.
    pub address: String,
    /// The network's name.
    pub netid: String,
    /// The kind of transport: 1 is datagrams, 3 is a stream with an orderly end (`T_COTS_ORD`).
    pub semantics: u32,
    /// The family of addresses: `inet`, `inet6` or `loopback`.
    pub family: String,
    /// The protocol: `udp`, `tcp` or `-`.
    pub protocol: String,
}

/// The addresses of a program (`rpcb_entry_list`).
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct AddressEntries {
    /// The entries.
    #[xdr(chain)]
    pub all: Vec<AddressEntry>,
}

/// A call that rpcbind is to pass on (`rpcb_rmtcallargs`).
pub type RemoteCall = Passed;

/// The result of a call that was passed on (`rpcb_rmtcallres`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct RemoteResult {
    /// The universal address at which the program is called.
    pub address: String,
    /// The result.
    pub result: Vec<u8>,
}

/// An address as the C library holds it (`struct netbuf`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Netbuf {
    /// The most bytes that the address may have.
    pub longest: u32,
    /// The bytes of the address.
    #[xdr(max = 1024)]
    pub bytes: Vec<u8>,
}

/// Version 2: the port mapper.
#[farcall::interface(program = 100000, version = 2)]
pub trait Portmap {
    /// Registers a port. Returns false if it cannot be registered.
    #[procedure(1)]
    fn set(&self, mapping: Mapping) -> farcall::Result<bool>;
    /// Removes all ports of a program's version. Returns false if there are none.
    #[procedure(2)]
    fn unset(&self, mapping: Mapping) -> farcall::Result<bool>;
    /// Returns the port of a program, or 0 if the program has none.
    #[procedure(3)]
    #[idempotent]
    fn get_port(&self, mapping: Mapping) -> farcall::Result<u32>;
    /// Returns all ports.
    #[procedure(4)]
    #[idempotent]
    fn dump(&self) -> farcall::Result<Mappings>;
    /// Calls a program of this host. Sends no reply if the call fails.
    #[procedure(5)]
    #[blocking]
    fn call_it(&self, call: Passed) -> farcall::Result<PassedBack>;
}

/// Version 3: rpcbind.
#[farcall::interface(program = 100000, version = 3)]
pub trait Rpcbind3 {
    /// Registers an address. Returns false if it cannot be registered.
    #[procedure(1)]
    fn set(&self, entry: Rpcb) -> farcall::Result<bool>;
    /// Removes a program's version from the named network, or from all networks if none is named. Returns
    /// false if there are none.
    #[procedure(2)]
    fn unset(&self, entry: Rpcb) -> farcall::Result<bool>;
    /// Returns the address of a program on the network by which the request came. Returns an empty text if
    /// there is none.
    #[procedure(3)]
    #[idempotent]
    fn get_address(&self, entry: Rpcb) -> farcall::Result<String>;
    /// Returns all addresses.
    #[procedure(4)]
    #[idempotent]
    fn dump(&self) -> farcall::Result<Rpcbs>;
    /// Calls a program of this host. Sends no reply if the call fails.
    #[procedure(5)]
    #[blocking]
    fn call_it(&self, call: RemoteCall) -> farcall::Result<RemoteResult>;
    /// Returns the time in seconds since 1970.
    #[procedure(6)]
    #[idempotent]
    fn get_time(&self) -> farcall::Result<u32>;
}

/// Version 4: rpcbind with more procedures.
#[farcall::interface(program = 100000, version = 4)]
pub trait Rpcbind4 {
    /// Registers an address. Returns false if it cannot be registered.
    #[procedure(1)]
    fn set(&self, entry: Rpcb) -> farcall::Result<bool>;
    /// Removes a program's version from the named network, or from all networks if none is named. Returns
    /// false if there are none.
    #[procedure(2)]
    fn unset(&self, entry: Rpcb) -> farcall::Result<bool>;
    /// Returns the address of a program, in whatever version, on the network by which the request came.
    /// Returns an empty text if there is none.
    #[procedure(3)]
    #[idempotent]
    fn get_address(&self, entry: Rpcb) -> farcall::Result<String>;
    /// Returns all addresses.
    #[procedure(4)]
    #[idempotent]
    fn dump(&self) -> farcall::Result<Rpcbs>;
    /// Calls a program of this host. Sends no reply if the call fails.
    #[procedure(5)]
    #[blocking]
    fn broadcast(&self, call: RemoteCall) -> farcall::Result<RemoteResult>;
    /// Returns the time in seconds since 1970.
    #[procedure(6)]
    #[idempotent]
    fn get_time(&self) -> farcall::Result<u32>;
    /// Returns the address of this version of a program, on the network by which the request came. Returns an
    /// empty text if there is none.
    #[procedure(9)]
    #[idempotent]
    fn get_version_address(&self, entry: Rpcb) -> farcall::Result<String>;
    /// Returns all addresses of a program's version.
    #[procedure(11)]
    #[idempotent]
    fn get_address_list(&self, entry: Rpcb) -> farcall::Result<AddressEntries>;
}
