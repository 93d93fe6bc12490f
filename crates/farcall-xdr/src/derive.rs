//! What `#[derive(Xdr)]` expands to calls; not for others, and free to change with the macro.

use crate::schema::{Type, Types};
use crate::{Decoder, Encoder, Error, ErrorKind, Schema};

pub use crate::bounds::{decode_max, encode_max, schema_max};
pub use crate::onc::{decode_chain, encode_chain};
pub use crate::schema::{Arm, Body, Field, arm, field};

/// The wire form of a linked list of what is in a `Vec`.
pub fn schema_chain<V: IntoIterator<Item: Schema>>(types: &mut Types) -> Type {
    Type::Chain(Box::new(V::Item::schema(types)))
}

/// What selects a union's arm: an integer of either sign, a boolean, or an enumeration, for which the derive
/// implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot select a variant",
    label = "not an integer of 32 bits, a boolean or an enumeration",
    note = "the first field of an #[xdr(default)] variant holds what selected it: an i32, or an enum without fields"
)]
pub trait Tag: Sized {
    /// As it crosses.
    fn to_tag(&self) -> i32;

    /// What crosses as `tag`; `None` if nothing does.
    fn from_tag(tag: i32) -> Option<Self>;

    /// What crosses as `tag`, which was just decoded: an error at its offset if nothing does.
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

/// The error of an integer that selects no variant, which was just decoded.
#[cold]
pub fn unknown_tag(value: i32, of: &'static str, d: &Decoder<'_>) -> Error {
    d.error_in_last(4, ErrorKind::UnknownTag { value, of })
}

/// The error of a default variant that holds the integer of another variant.
#[cold]
pub fn taken_tag(value: i32, e: &Encoder<'_>) -> Error {
    let why = format!("{value} has a variant of its own, and cannot be in the default one");
    e.error(ErrorKind::Invalid(why.into()))
}

/// Enters the definition of `T`, declared at `place` of the source, unless it is there already.
pub fn define<T: ?Sized>(
    types: &mut Types,
    place: &str,
    name: String,
    docs: &str,
    body: impl FnOnce(&mut Types) -> Body,
) -> Type {
    // Neither is unique by itself: names by macros and versions of crates, places by generics.
    let key = format!("{place} {}", std::any::type_name::<T>());
    types.define(&key, name, docs, body)
}

/// The name of `T` without the modules, as a parameter of a generic type's name.
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

/// Whether an enum's tags are all different; evaluated when it is compiled.
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

/// A discriminant as an integer of 32 bits; evaluated when it is compiled.
pub const fn tag(discriminant: i128) -> i32 {
    assert!(
        discriminant >= i32::MIN as i128 && discriminant <= i32::MAX as i128,
        "a variant's tag must fit 32 bits, signed (RFC 4506 section 4.3)"
    );
    discriminant as i32
}
