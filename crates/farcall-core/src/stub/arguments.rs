//! How the arguments of a call are encoded, and how stubs report that one cannot be encoded or decoded.

use std::sync::Arc;

use crate::xdr::{self, Encoder};
use crate::{CallFailed, Kind, Ran, SharedArguments};

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

/// Arguments that are encoded already.
#[derive(Clone, Copy, Debug)]
pub struct EncodedArguments<'a> {
    /// The encoded arguments.
    pub bytes: &'a [u8],
    /// The shared form of these arguments, if other calls keep them too.
    pub shared: Option<&'a Arc<SharedArguments>>,
}

impl<'a> EncodedArguments<'a> {
    /// Returns shared arguments.
    #[inline]
    pub fn of(shared: &'a Arc<SharedArguments>) -> EncodedArguments<'a> {
        EncodedArguments { bytes: shared.bytes(), shared: Some(shared) }
    }

    /// Returns the arguments for several attempts of a call. Copies them if they are not shared yet.
    pub fn to_shared(self) -> Arc<SharedArguments> {
        self.shared.cloned().unwrap_or_else(|| SharedArguments::new(self.bytes.to_vec()))
    }
}

/// Returns the failure of a call whose arguments could not be encoded.
#[cold]
pub fn bad_arguments(why: xdr::Error) -> CallFailed {
    CallFailed::new(Kind::BadArguments, Ran::No).caused_by(why)
}
