//! Bulk data: a stream of bytes that passes between a call and its reply, on the same connection.
//!
//! In Courier, a procedure with bulk data has a parameter of the type `BulkData.Source` or `BulkData.Sink`,
//! which is an ordinary CHOICE. A caller that passes `immediate` sends or receives the data on the connection
//! of the call; with `null` there is none. The stub carries the parameter. The data itself is attached to the
//! call by [`send`] or [`receive`], and the procedure takes it from [`incoming`] or gives it to [`outgoing`]:
//!
//! ```
//! use std::io::{Read, Write};
//! use std::sync::Arc;
//! use farcall_courier::{Server, bulk};
//!
//! /// `BulkData.Descriptor`, without the forms that need a third party.
//! #[derive(farcall::Xdr, Clone, Copy, Debug, PartialEq)]
//! pub enum Descriptor {
//!     #[xdr(tag = 0)]
//!     Null,
//!     #[xdr(tag = 1)]
//!     Immediate,
//! }
//!
//! #[farcall::interface(program = 770, version = 1)]
//! pub trait Files {
//!     #[procedure(1)]
//!     fn store(&self, source: Descriptor) -> farcall::Result<u32>;
//!     #[procedure(2)]
//!     fn retrieve(&self, sink: Descriptor) -> farcall::Result<()>;
//! }
//!
//! struct Here;
//! impl Files for Here {
//!     fn store(&self, _: Descriptor) -> farcall::Result<u32> {
//!         let mut data = Vec::new();
//!         let source = bulk::incoming().map(|mut source| source.read_to_end(&mut data));
//!         Ok(source.map_or(0, |_| data.len() as u32))
//!     }
//!
//!     fn retrieve(&self, _: Descriptor) -> farcall::Result<()> {
//!         if let Some(mut sink) = bulk::outgoing() {
//!             let _ = sink.write_all(b"some bytes").and_then(|()| sink.finish());
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder().program::<dyn Files>(Arc::new(Here)).tcp("127.0.0.1:0".parse()?).start()?;
//! let files = farcall_courier::import::<dyn Files>(&format!("tcp://{}", server.addresses()[0]))?;
//!
//! let (stored, sent) = bulk::send(&b"contents"[..], || files.store(Descriptor::Immediate));
//! assert_eq!((stored?, sent?), (8, 8));
//! let (done, data, received) = bulk::receive(Vec::new(), || files.retrieve(Descriptor::Immediate));
//! done?;
//! assert_eq!((data, received?), (b"some bytes".to_vec(), 10));
//! # Ok(())
//! # }
//! ```
//!
//! Either end may abort: a source or sink that returns an error, or that a procedure drops before the end.
//! Then the other end's reads or writes fail as [`ConnectionAborted`](std::io::ErrorKind::ConnectionAborted),
//! and the connection stays usable. A call with bulk data is never made twice.

pub(crate) mod caller;
pub(crate) mod served;

pub use caller::{NotAttached, receive, send};
pub use served::{Incoming, Outgoing, incoming, outgoing};
