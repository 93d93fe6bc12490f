//! `FileAccess`, an interface to the files of another machine, and [`Directory`], a server of it.
//!
//! It is the interface of the example in Birrell & Nelson 1984, section 2, and the running example of
//! farcall: the command serves it, and the demo measures it. A program is written against the trait, and does
//! not know whether the files are local or remote:
//!
//! ```
//! use farcall_file_access::{FileAccess, FileError};
//!
//! fn first_bytes(files: &dyn FileAccess, path: &str) -> farcall::Result<Vec<u8>, FileError> {
//!     Ok(files.read(path, 0, 16)?.0.to_vec())
//! }
//!
//! # #[cfg(unix)] {
//! # use std::sync::Arc;
//! use farcall_file_access::Directory;
//! let directory = Directory::open(env!("CARGO_MANIFEST_DIR")).unwrap();
//! assert_eq!(first_bytes(&directory, "Cargo.toml").unwrap(), b"[package]\nname =");
//!
//! // A stub implements the same trait. `farcall::import` returns one that is bound to a server elsewhere.
//! let client = farcall::stub::local::<dyn FileAccess>(Arc::new(directory));
//! assert_eq!(first_bytes(&client, "Cargo.toml").unwrap(), b"[package]\nname =");
//! # }
//! ```

#![forbid(unsafe_code)]

mod digest;
#[cfg(unix)]
mod directory;
#[cfg(not(unix))]
#[path = "directory/nowhere.rs"]
mod directory;
mod interface;
#[cfg(unix)]
mod path;
mod walk;

pub use digest::Digesting;
pub use directory::Directory;
#[cfg(unix)]
pub use directory::{Itself, Statistics};
pub use interface::{
    Attributes, Contents, Digest, Entry, FileAccess, FileAccessClient, FileAccessStart, FileError, FileKind,
    MAX_PAGE, MAX_PATH, MAX_READ, Page,
};
pub use walk::entries;
