//! Transcodes between the XDR bytes of farcall's stubs and the bytes that the stubs of `rp2gen` pack.
//!
//! Most values are the same in both. Three differ: an RPC2_Byte stands in the first of its four bytes, an
//! RPC2_String has a zero byte behind it that its length does not count, and an RPC2_Double has the order of
//! bytes of a little-endian machine. (RPC2 copies it as it is in memory.) Bytes that pad a value are 0.
//!
//! ```
//! use farcall::idl::Interface;
//! use farcall_rpc2::codec::{Layout, Part};
//!
//! let mut lookup = Interface::new("Lookup");
//! lookup.procedure(1, "find").argument::<String>("user").result::<u32>();
//! let layout = Layout::new(&lookup)?;
//! let find = layout.procedure(1).expect("it was declared");
//!
//! let mut packed = Vec::new();
//! let xdr = [0, 0, 0, 4, b'r', b'o', b'o', b't'];
//! layout.pack(find, Part::Arguments, &xdr, &mut packed)?;
//! assert_eq!(packed, [0, 0, 0, 4, b'r', b'o', b'o', b't', 0, 0, 0, 0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! layout   the procedures of an interface, and what RPC2 cannot say
//! walk     follows a type through bytes
//! error    what is wrong with a value, and in which of its parts
//! ```

mod error;
mod layout;
mod walk;

pub use error::{Error, ErrorKind};
pub use layout::{Layout, Part, Procedure, Refusal};
