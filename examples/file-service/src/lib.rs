//! A distributed file service over real files, in three structures (Thekkath, Levy & Lazowska 1994, section 5).
//!
//! Clients call a [`Clerk`] on their own machine by local call ([`client`]), and do not know its [`Structure`]:
//!
//! | | |
//! |---|---|
//! | DX | The clerk reads the server's memory, where files' attributes, names, links, directories and blocks stand in hash tables. The server's processor does nothing but what the carrier of the memory costs. Control goes to it only for what is not there; then it is. |
//! | HY | Hybrid-1: the clerk writes its request into the server's memory, with notice. The server writes the answer into the clerk's, where the clerk waits for a word to change. |
//! | RPC | Ordinary calls: the plain [`FileAccess`](farcall_file_access::FileAccess), and [`MoreFiles`] for what it does not offer. |
//!
//! All three execute the same procedures at the server; HY is only another way for the same stubs' calls (`hybrid`),
//! and the way by which DX asks for what it misses.
//!
//! **Coherence.** Whoever reads, reads the server's memory. There each entry has two version words, so that one read
//! tells whether it is whole (`table`). With copies ([`Structure::DxCopies`]) it reads only these words, and uses its
//! copy if they are what they were. One of them is the token: who swaps it may change the entry, and nobody else. A
//! clerk writes into a block that stands there by taking the token, writing, and
//! giving it back with notice; other clerks read it from then on, and the server takes it to the file
//! ([`Files::commit`] waits for that, as NFS's). Everything else, a file that grows, a block that does not stand
//! there, is written by the server, which takes the tokens of what it changes. A clerk that dies with a token in its
//! hand holds it for 20 ms at most: the server then exports its segment anew, so that nothing arrives that the clerk
//! may still send, and fills the entry from the file (`server::keep`).
//! What others than this service change in the directory is seen after [`Server::refresh`].
//!
//! **Trust** is as in section 3.5: clerks and server are one service and may do anything to one another's segments;
//! clients only call.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use farcall_file_service::{Clerk, Files, Server, Shape, Structure};
//!
//! let directory = tempfile::tempdir()?;
//! std::fs::write(directory.path().join("file"), "some bytes")?;
//! # let farcall = || farcall::Runtime::builder().registry(farcall::names::Memory::new()).build();
//!
//! let server = Server::export(&farcall()?, "files", directory.path(), Shape::SMALL)?;
//! let clerk = Clerk::new(&farcall()?, &server.addresses(), Structure::Dx)?; // anywhere else
//! let files = farcall_file_service::client(clerk.files);
//!
//! let file = files.look_up(files.root()?, "file")?.handle;
//! assert_eq!(&*files.read(file, 5, 100)?.0, b"bytes"); // the server is asked, and keeps the block
//! assert_eq!(&*files.read(file, 0, 4)?.0, b"some"); // the server does not hear of it
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! files      what clients call                     more       what clerks call
//! clerk      the three structures                  direct     DX
//! calls      RPC, and HY over hybrid               hybrid     Hybrid-1, as what carries calls
//! server     a directory and its memory            areas      where what stands in the memory
//! copies     what a clerk keeps                    letter     requests and answers in memory
//! table      hash tables whose entries are whole   mix        table 1a, replayed
//! ```

#![cfg(unix)]
#![forbid(unsafe_code)]

mod areas;
mod calls;
mod clerk;
mod copies;
mod direct;
mod files;
mod hybrid;
mod imported;
mod letter;
pub mod mix;
mod more;
mod paths;
mod server;
mod table;
mod tally;

pub use clerk::{Clerk, Structure};
pub use files::{BLOCK, Files, FilesClient, Found, Handle, Names, client, names};
pub use more::{Attached, Looked, MoreFiles, MoreFilesClient, Shape};
pub use server::{Addresses, Server};
pub use tally::{Counts, Tally};
