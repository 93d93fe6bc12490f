//! The port mapper's procedures and types (RFC 1833), as interfaces.
//!
//! Version 2 knows ports of IPv4. Versions 3 and 4 know universal addresses, by the network's name.

/// A program's port (`struct mapping`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Mapping {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// 6 is TCP, 17 is UDP.
    pub protocol: u32,
    /// Where it is called.
    pub port: u32,
}

/// The number of TCP in a [`Mapping`].
pub const TCP: u32 = 6;
/// The number of UDP in a [`Mapping`].
pub const UDP: u32 = 17;

/// All ports (`pmaplist`).
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Mappings {
    /// Each of them.
    #[xdr(chain)]
    pub all: Vec<Mapping>,
}

/// A call to be passed on (`call_args`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Passed {
    /// The program.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Its arguments.
    pub arguments: Vec<u8>,
}

/// What came of it (`call_result`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct PassedBack {
    /// Where the program is called.
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
    /// Who registered it.
    #[xdr(max = 1024)]
    pub owner: String,
}

/// All addresses (`rpcblist`).
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct Rpcbs {
    /// Each of them.
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
    /// 1 is datagrams, 3 a stream whose end is told.
    pub semantics: u32,
    /// `inet`, `inet6` or `loopback`.
    pub family: String,
    /// `udp`, `tcp` or `-`.
    pub protocol: String,
}

/// All of a program's addresses (`rpcb_entry_list`).
#[derive(Clone, Debug, Default, PartialEq, Eq, farcall::Xdr)]
pub struct AddressEntries {
    /// Each of them.
    #[xdr(chain)]
    pub all: Vec<AddressEntry>,
}

/// A call to be passed on (`rpcb_rmtcallargs`).
pub type RemoteCall = Passed;

/// What came of it (`rpcb_rmtcallres`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct RemoteResult {
    /// Where the program is called, as a universal address.
    pub address: String,
    /// The result.
    pub result: Vec<u8>,
}

/// An address as the C library holds it (`struct netbuf`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Netbuf {
    /// How long it may be.
    pub longest: u32,
    /// Its bytes.
    #[xdr(max = 1024)]
    pub bytes: Vec<u8>,
}

/// Version 2: the port mapper.
#[farcall::interface(program = 100000, version = 2)]
pub trait Portmap {
    /// Registers a port; false if it cannot be.
    #[procedure(1)]
    fn set(&self, mapping: Mapping) -> farcall::Result<bool>;
    /// Removes all of a program's version; false if there are none.
    #[procedure(2)]
    fn unset(&self, mapping: Mapping) -> farcall::Result<bool>;
    /// The port of a program; 0 if it has none.
    #[procedure(3)]
    #[idempotent]
    fn get_port(&self, mapping: Mapping) -> farcall::Result<u32>;
    /// All ports.
    #[procedure(4)]
    #[idempotent]
    fn dump(&self) -> farcall::Result<Mappings>;
    /// Calls a program of this host; says nothing if that fails.
    #[procedure(5)]
    #[blocking]
    fn call_it(&self, call: Passed) -> farcall::Result<PassedBack>;
}

/// Version 3: rpcbind.
#[farcall::interface(program = 100000, version = 3)]
pub trait Rpcbind3 {
    /// Registers an address; false if it cannot be.
    #[procedure(1)]
    fn set(&self, entry: Rpcb) -> farcall::Result<bool>;
    /// Removes a program's version from a network, or from all if none is named; false if there are none.
    #[procedure(2)]
    fn unset(&self, entry: Rpcb) -> farcall::Result<bool>;
    /// The address of a program on the network that the request came by; empty if it has none.
    #[procedure(3)]
    #[idempotent]
    fn get_address(&self, entry: Rpcb) -> farcall::Result<String>;
    /// All addresses.
    #[procedure(4)]
    #[idempotent]
    fn dump(&self) -> farcall::Result<Rpcbs>;
    /// Calls a program of this host; says nothing if that fails.
    #[procedure(5)]
    #[blocking]
    fn call_it(&self, call: RemoteCall) -> farcall::Result<RemoteResult>;
    /// Seconds since 1970.
    #[procedure(6)]
    #[idempotent]
    fn get_time(&self) -> farcall::Result<u32>;
}

/// Version 4: rpcbind with more.
#[farcall::interface(program = 100000, version = 4)]
pub trait Rpcbind4 {
    /// Registers an address; false if it cannot be.
    #[procedure(1)]
    fn set(&self, entry: Rpcb) -> farcall::Result<bool>;
    /// Removes a program's version from a network, or from all if none is named; false if there are none.
    #[procedure(2)]
    fn unset(&self, entry: Rpcb) -> farcall::Result<bool>;
    /// The address of a program, in whatever version, on the network that the request came by; empty if it
    /// has none.
    #[procedure(3)]
    #[idempotent]
    fn get_address(&self, entry: Rpcb) -> farcall::Result<String>;
    /// All addresses.
    #[procedure(4)]
    #[idempotent]
    fn dump(&self) -> farcall::Result<Rpcbs>;
    /// Calls a program of this host; says nothing if that fails.
    #[procedure(5)]
    #[blocking]
    fn broadcast(&self, call: RemoteCall) -> farcall::Result<RemoteResult>;
    /// Seconds since 1970.
    #[procedure(6)]
    #[idempotent]
    fn get_time(&self) -> farcall::Result<u32>;
    /// As `get_address`, of that version alone.
    #[procedure(9)]
    #[idempotent]
    fn get_version_address(&self, entry: Rpcb) -> farcall::Result<String>;
    /// All addresses of a program's version.
    #[procedure(11)]
    #[idempotent]
    fn get_address_list(&self, entry: Rpcb) -> farcall::Result<AddressEntries>;
}
