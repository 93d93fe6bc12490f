//! How the arguments of a call are encoded, and how stubs report that one cannot be encoded or decoded.

use crate::xdr::{self, Encoder};
use crate::{CallFailed, Kind, Ran};

/// Names the procedure and the argument in the error of encoding or decoding that argument. Called by
/// generated stubs.
#[doc(hidden)]
#[inline]
pub fn argument<T>(
    procedure: &'static str,
    name: &'static str,
    coded: Result<T, xdr::Error>,
) -> Result<T, xdr::Error> {
    coded.map_err(|why| why.in_field(procedure, name))
}

/// Appends a call's arguments to the packet. A channel may call it more than once.
pub type EncodeArguments<'a> = &'a dyn Fn(&mut Encoder<'_>) -> std::result::Result<(), xdr::Error>;

/// Returns the failure of a call whose arguments could not be encoded.
#[cold]
pub fn bad_arguments(why: xdr::Error) -> CallFailed {
    CallFailed::new(Kind::BadArguments, Ran::No).caused_by(why)
}
