//! How stubs encode and decode one argument. An error names the procedure and the argument.

use crate::xdr::{self, Decode, Decoder, Encode, Encoder};

/// Of user-stubs: appends one argument.
#[doc(hidden)]
#[inline]
pub fn encode<T: Encode + ?Sized>(
    arguments: &mut Encoder<'_>,
    procedure: &'static str,
    name: &'static str,
    value: &T,
) -> std::result::Result<(), xdr::Error> {
    value.encode(arguments).map_err(|why| why.in_field(procedure, name))
}

/// Of server-stubs: takes one argument.
#[doc(hidden)]
#[inline]
pub fn decode<'a, T: Decode<'a>>(
    arguments: &mut Decoder<'a>,
    procedure: &'static str,
    name: &'static str,
) -> std::result::Result<T, xdr::Error> {
    T::decode(arguments).map_err(|why| why.in_field(procedure, name))
}

/// Of user-stubs: appends one argument, whose length is declared.
#[doc(hidden)]
#[inline]
pub fn encode_max<T: Encode + xdr::Counted + ?Sized>(
    arguments: &mut Encoder<'_>,
    procedure: &'static str,
    name: &'static str,
    value: &T,
    max: u32,
) -> std::result::Result<(), xdr::Error> {
    xdr::derive::encode_max(value, max, arguments).map_err(|why| why.in_field(procedure, name))
}

/// Of server-stubs: takes one argument, whose length is declared.
#[doc(hidden)]
#[inline]
pub fn decode_max<'a, T: Decode<'a> + xdr::Counted>(
    arguments: &mut Decoder<'a>,
    procedure: &'static str,
    name: &'static str,
    max: u32,
) -> std::result::Result<T, xdr::Error> {
    xdr::derive::decode_max(max, arguments).map_err(|why| why.in_field(procedure, name))
}
