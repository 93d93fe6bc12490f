//! A distributed file service over real files, in four structures (Thekkath, Levy & Lazowska 1994, section
//! 5).
//!
//! Clients call a [`Clerk`] on their own machine by local call ([`client`]), and do not know its
//! [`Structure`]:
//!
//! | | |
//! |---|---|
//! | DX | The clerk reads the server's memory, where hash tables hold files' attributes, names, links, directories and blocks. The server's processor only carries these accesses. The clerk asks the server only for an entry that is not there, and the server then adds the entry. |
//! | WR | Write requests only: the server writes each changed entry into every clerk's memory, without notice, before the change is over: attributes, names, links, directories, and the tokens of blocks. The clerk finds all of these in its own memory, and reads a block of the server's memory only if its copy is not current. It asks the server to write. |
//! | HY | Hybrid-1: the clerk writes its request into the server's memory, with notice. The server writes the answer into the clerk's memory, where the clerk waits for a word to change. |
//! | RPC | Ordinary calls: the plain [`FileAccess`](farcall_file_access::FileAccess), and [`MoreFiles`] for the operations that it does not offer. |
//!
//! All four execute the same procedures at the server. HY carries the calls of the same stubs in another way
//! (`hybrid`), which DX and WR also use to ask for missing entries.
//!
//! **Coherence.** All clerks read the server's memory. There each entry has two version words, so that one
//! read shows whether the entry is whole (`table`). A clerk with copies ([`Structure::DxCopies`]) reads only
//! these words, and uses its copy if they have not changed. One of the words is the token: only the process
//! that has swapped it may change the entry. A clerk writes into a block in the server's memory by taking the
//! token, writing, and returning the token with notice. From then on other clerks read the new bytes, and the
//! server writes them to the file ([`Files::commit`] waits for that, as NFS's COMMIT does). The server itself
//! executes all other writes, such as one that extends a file, and takes the tokens of the entries that it
//! changes. A clerk that dies with a token blocks the entry for at most 20 ms: then the server exports its
//! segment again, so that no later write of that clerk arrives, and fills the entry from the file
//! (`server::keep`). Changes that other programs make in the directory are seen after [`Server::refresh`].
//!
//! With WR, a write is coherent at once among all clerks of that structure: before the server changes a file,
//! it marks the entries as held in every clerk's memory and waits until the clerks have acknowledged that;
//! after the change it writes the new entries (`server::push`). A clerk that does not acknowledge within 100
//! ms is given up. It may still run, so its memory must not mislead it: it believes its memory only under a
//! *lease* of 100 ms, which it renews by reading a word of the server's memory, and whose end the server waits
//! for (`mirror`). So a clerk that dies holds up writes by 210 ms, once. One that stops while it attaches, when
//! the server writes all entries into its memory, holds them up for at most 5 s. A given-up clerk attaches
//! anew. The lease is of the clerk's own clock, which does not advance while its machine is suspended: then the
//! clerk may believe its memory for up to 100 ms after its machine has resumed.
//!
//! **Recovery** is as in RPC (section 3.7). A clerk that finds its server restarted attaches to it anew, with the
//! handles that its clients have (`attaching`). While no server is there, operations fail as unreachable. What
//! a clerk of DX has written into the memory of a server that was killed may be lost; then the next commit of
//! that file fails as [`ServerRestarted`](farcall::Kind::ServerRestarted), and the client writes it again.
//!
//! **Trust** is as in section 3.5 of the paper. Clerks and server are one service, and have all rights to one
//! another's segments. Clients only call.
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
//! assert_eq!(&*files.read(file, 5, 100)?.0, b"bytes"); // the server is asked, and adds the block
//! assert_eq!(&*files.read(file, 0, 4)?.0, b"some"); // the clerk reads the block without the server
//! # Ok(())
//! # }
//! ```
//!
//! ```text
//! files      the interface for clients             more       the interface for clerks
//! clerk      the four structures                   direct     DX, and what WR finds
//! attaching  recovery from a restarted server      mirror     a clerk's tables that the server fills
//! calls      RPC, and HY over hybrid               hybrid     Hybrid-1 as a carrier of calls
//! server     a directory and its memory            areas      the layout of the memory
//! copies     a clerk's copies of entries           letter     requests and answers in memory
//! table      hash tables with versioned entries    mix        table 1a, replayed
//! ```

#![cfg(unix)]
#![forbid(unsafe_code)]

mod areas;
mod attaching;
mod calls;
mod clerk;
mod copies;
mod direct;
mod files;
mod hybrid;
mod imported;
mod letter;
mod mirror;
pub mod mix;
mod more;
mod paths;
mod server;
mod table;
mod tally;

pub use clerk::{Clerk, Structure};
pub use files::{BLOCK, Files, FilesClient, Found, Handle, Names, client, names};
pub use more::{Attached, Looked, MoreFiles, MoreFilesClient, Reads, Shape};
pub use server::{Addresses, Server};
pub use tally::{Counts, Tally};
