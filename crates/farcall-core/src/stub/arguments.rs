//! How stubs report that one argument cannot be encoded or decoded.

use crate::xdr;

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
