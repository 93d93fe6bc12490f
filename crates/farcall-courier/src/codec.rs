//! Transcodes between the XDR bytes of farcall's stubs and Courier's 16-bit words.
//!
//! Stubs encode arguments and results as XDR, whichever protocol carries the call. A [`Layout`] is made once
//! of an interface's description. It says for each procedure how the XDR bytes of its arguments, its result
//! and its errors become Courier's words, and back.
//!
//! ```
//! use farcall_courier::codec::{Layout, Limits};
//! use farcall::idl::Interface;
//!
//! let mut lookup = Interface::new("Lookup");
//! lookup.procedure(1, "find").argument::<String>("user").result::<u16>();
//! let layout = Layout::new(&lookup)?;
//! let find = layout.procedure(1).expect("it was declared");
//!
//! let mut words = Vec::new();
//! let xdr = [0, 0, 0, 4, b'r', b'o', b'o', b't'];
//! layout.to_words(find.arguments(), &xdr, &mut words, Limits::default())?;
//! assert_eq!(words, [0, 4, b'r', b'o', b'o', b't']);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//! shape     the compact form of a type that the transcoder follows
//! layout    makes shapes of an interface's description, and refuses what Courier cannot say
//! to_words  XDR bytes to words          to_xdr  words to XDR bytes
//! stream_of items in segments, as bulk data carries them
//! transfer  what the arguments of a call say of its bulk data
//! error     what is wrong with a value, and in which of its parts
//! ```

mod error;
mod layout;
mod shape;
mod stream_of;
mod to_words;
mod to_xdr;
mod transfer;

pub use error::{Error, ErrorKind};
pub use layout::{Layout, Procedure, Refusal, Values};
pub use stream_of::StreamOf;
pub(crate) use transfer::Transfer;

/// How the words of a BOOLEAN stand on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Booleans {
    /// A word that is 0 or 1, as the standard says.
    #[default]
    Words,
    /// A byte that is 0 or 1, and a second byte without a meaning, as Cooper's implementation sends them.
    HighBytes,
}

/// The limits for one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The greatest depth to which records, arrays, sequences and choices nest; 512 by default. It bounds the
    /// use of the stack.
    pub depth: u32,
    /// The most bytes that the transcoded value may have; 64 MiB by default. Without this limit too, words
    /// become at most twice as many bytes of XDR, and XDR bytes become fewer bytes of words.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth: 512, bytes: 64 << 20 }
    }
}
