//! The registry of names: which instances export a type, and where.
//!
//! An interface is found by its *type* and its *instance* (Birrell & Nelson 1984, section 2.1). The type says
//! what is wanted (`FileAccess`), the instance says which implementor of it (`ebbets`). A registry has the
//! role that Grapevine, a name service, has in that paper (section 2.2): a type is a group whose members are
//! instances, and an instance is an individual with a connect-site (an address). farcall adds the export's
//! identifier, the fingerprints of its procedures and the proof that the
//! exporter has signed all that.
//!
//! - [`Name`] is what a user writes: `FileAccess`, `FileAccess/ebbets`,
//!   `udp://10.0.0.7:7000/FileAccess`, `udp://ebbets.example.org:7000/FileAccess`,
//!   `farcall://_fileaccess._udp.example.org/FileAccess`.
//! - [`Registry`] is the trait of registries: exporters publish to a registry, importers ask it.
//! - [`Memory`] is a registry for a single process, and for tests. [`File`] is a registry that all processes
//!   of a user on a machine share, with nothing to install. `Etcd` (feature `etcd`) is a registry that
//!   machines share. [`StaticFile`] can only be read: a text file that people write. So can `Dns`
//!   (feature `dns`): SRV records.
//! - [`suite`] checks implementations of [`Registry`].
//!
//! ```
//! use farcall_names::{Entry, Memory, Name, Registry};
//!
//! let registry = Memory::new();
//! let entry = Entry::new("FileAccess".parse()?, "ebbets".parse()?, "udp://127.0.0.1:7000".parse()?, 0x5eed);
//! let registration = registry.publish(&entry)?;
//!
//! let Name::Type(wanted) = "FileAccess".parse()? else { unreachable!() };
//! assert_eq!(registry.instances(&wanted)?, [entry]);
//!
//! drop(registration);
//! assert!(registry.instances(&wanted)?.is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Who may export a name
//!
//! A process that can write to a registry can claim to be any server in it, so a registry's access control
//! decides who may export a name (section 2.3). [`Memory`] belongs to one process. [`File`] requires a
//! directory that only its user can enter, in which a document may say which programs may export and import
//! what. In etcd its roles decide. Exporters with keys sign their entries ([`Entry::proof`]), and importers
//! with keys take no others: `farcall` signs and checks, around any registry to which exporters publish.

#![forbid(unsafe_code)]

mod acl;
mod clock;
mod directory;
#[cfg(feature = "dns")]
mod dns;
mod entry;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod format;
mod log;
mod memory;
mod name;
mod own;
mod owner;
mod ownership;
mod place;
mod registry;
mod service;
mod socket_address;
mod static_file;
pub mod suite;
mod table;
mod user_secret;

#[cfg(feature = "dns")]
pub use dns::Dns;
pub use entry::{Entry, Fingerprint, MAX_ADDRESSES, MAX_FINGERPRINTS, MAX_PROOF};
pub use error::{Distrust, Error, PlaceError, Result};
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, EtcdBuilder};
#[cfg(feature = "etcd-tls")]
pub use etcd::{EtcdTls, EtcdTlsError};
pub use farcall_base::canonical;
pub use file::File;
pub use format::MAX_FILE;
pub use memory::Memory;
pub use name::{Address, Fault, Host, Label, MAX_EXPORT, MAX_LABEL, MAX_NAME, Name, NameError};
pub use owner::{Liveness, Owner};
pub use ownership::Ownership;
pub use place::open;
pub use registry::{Listing, Registration, Registry, Renewal};
pub use service::resolve_service;
pub use socket_address::{socket_address, socket_address_at};
pub use static_file::StaticFile;
pub use user_secret::user_secrets;

/// Reads a text as a registry file of format 2 whose lines have the right checks. For the fuzz target.
#[doc(hidden)]
pub fn fuzz_log(text: &[u8]) {
    log::fuzz(text);
}

/// Finds the instances of a type by messages of DNS, each with its length in two bytes in front. For the fuzz
/// target.
#[doc(hidden)]
#[cfg(feature = "dns")]
pub fn fuzz_dns(messages: &[u8]) {
    dns::fuzz(messages);
}

/// Reads each line as an answer of etcd to a question for entries, and as a line of a watch. For the fuzz
/// target.
#[doc(hidden)]
#[cfg(feature = "etcd")]
pub fn fuzz_etcd(lines: &[u8]) {
    etcd::fuzz(lines);
}

/// Parses the text as that of a registry file and as rules for one, and checks that a parsed file survives
/// rendering. For the fuzz target.
#[doc(hidden)]
pub fn fuzz_file(text: &[u8]) {
    let _ = acl::Acl::parse(text);
    for boot in [0, 7] {
        if let Ok(mut log) = log::Log::parse(text, boot) {
            let log::Writing::Replace(again) = log.writing(boot, 0) else {
                unreachable!("no file is that small")
            };
            let read = log::Log::parse(again.as_bytes(), boot).ok();
            assert_eq!(read.as_ref().map(log::Log::table), Some(log.table()));
        }
    }
}
