//! The functions that the code of `#[derive(Xdr)]` calls. They are not for other users, and can change with
//! the macro.

use crate::schema::{Type, Types};
use crate::{Decoder, Encoder, Error, ErrorKind, Schema};

pub use crate::bounds::{decode_max, encode_max, schema_max};
pub use crate::onc::{decode_chain, encode_chain};
pub use crate::schema::{Arm, Body, Field, arm, field};

/// Returns the wire form of a linked list of the elements of a `Vec`.
pub fn schema_chain<V: IntoIterator<Item: Schema>>(types: &mut Types) -> Type {
    Type::Chain(Box::new(V::Item::schema(types)))
}

/// A type whose values select a union's arm: a 32-bit integer, a boolean, or an enumeration with
/// `#[derive(Xdr)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot select a variant",
    label = "not an integer of 32 bits, a boolean or an enumeration",
    note = "the first field of an #[xdr(default)] variant holds the received tag: an i32, or an enum without fields"
)]
pub trait Tag: Sized {
    /// Returns the integer that is sent for the value.
    fn to_tag(&self) -> i32;

    /// Returns the value for an integer from the wire, or `None` if no value has this integer.
    fn from_tag(tag: i32) -> Option<Self>;

    /// Returns the value for the integer `tag`, which was just decoded. If no value has this integer, returns
    /// an error at its offset.
    #[doc(hidden)]
    #[inline]
    fn decoded(tag: i32, of: &'static str, d: &Decoder<'_>) -> Result<Self, Error> {
        Self::from_tag(tag).ok_or_else(|| unknown_tag(tag, of, d))
    }
}

macro_rules! tags {
    ($($type:ty, $to:expr, $from:expr;)*) => {$(
        impl Tag for $type {
            #[inline]
            fn to_tag(&self) -> i32 {
                $to(*self)
            }

            #[inline]
            fn from_tag(tag: i32) -> Option<Self> {
                $from(tag)
            }
        }
    )*};
}

tags! {
    i32, i32::from, Some;
    u32, u32::cast_signed, |tag: i32| Some(tag.cast_unsigned());
    bool, i32::from, |tag| match tag {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
}

/// Returns the error for an integer that selects no variant. The integer was just decoded.
#[cold]
pub fn unknown_tag(value: i32, of: &'static str, d: &Decoder<'_>) -> Error {
    d.error_in_last(4, ErrorKind::UnknownTag { value, of })
}

/// Returns the error for a default variant that holds the integer of another variant.
#[cold]
pub fn taken_tag(value: i32, e: &Encoder<'_>) -> Error {
    let why = format!("{value} has a variant of its own, so the default variant cannot hold it");
    e.error(ErrorKind::Invalid(why.into()))
}

/// Returns the type `T`, which is declared at `place` in the source. Adds its definition to `types`, unless
/// that was done before.
pub fn define<T: ?Sized>(
    types: &mut Types,
    place: &str,
    name: String,
    docs: &str,
    body: impl FnOnce(&mut Types) -> Body,
) -> Type {
    // The key needs both the place and the name: macros and several versions of a crate repeat names, and
    // generic types repeat places.
    let key = format!("{place} {}", std::any::type_name::<T>());
    types.define(&key, name, docs, body)
}

/// Returns the name of `T` without its modules, for use within the name of a generic type.
pub fn short_name<T: ?Sized>() -> String {
    let mut short = String::new();
    for part in std::any::type_name::<T>().split_inclusive(|c: char| !c.is_alphanumeric() && c != '_') {
        match part.strip_suffix(':') {
            Some(_) => {}
            None => short.push_str(part),
        }
    }
    short
}

/// Returns whether all tags of an enum are different. The compiler evaluates this function.
pub const fn distinct(tags: &[i32]) -> bool {
    let mut first = 0;
    while first < tags.len() {
        let mut second = first + 1;
        while second < tags.len() {
            if tags[first] == tags[second] {
                return false;
            }
            second += 1;
        }
        first += 1;
    }
    true
}

/// Returns a discriminant as an integer of 32 bits. The compiler evaluates this function, and reports a
/// larger discriminant.
pub const fn tag(discriminant: i128) -> i32 {
    assert!(
        discriminant >= i32::MIN as i128 && discriminant <= i32::MAX as i128,
        "a variant's tag must fit 32 bits, signed (RFC 4506 section 4.3)"
    );
    discriminant as i32
}
