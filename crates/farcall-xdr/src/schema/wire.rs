//! Implements the wire form of descriptions themselves. Descriptions are values too, so there is also a
//! description of this form.

use super::{Arm, Body, Definition, Field, Type, Types, arm, field};
use crate::crossing::crossing;
use crate::{Decode, Decoder, Encode, Encoder, Error, ErrorKind, Schema};

/// Implements the three traits for structs, as `#[derive(Xdr)]` would. The derive depends on this crate, so
/// it cannot be used here.
macro_rules! structs {
    ($($name:ident { $($field:ident: $ty:ty),* })*) => {$(
        impl Encode for $name {
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                $(self.$field.encode(e).map_err(|error| error.in_field(stringify!($name), stringify!($field)))?;)*
                Ok(())
            }
        }

        impl Decode<'_> for $name {
            const MIN_SIZE: usize = 0 $(+ <$ty as Decode<'_>>::MIN_SIZE)*;

            fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
                Ok($name {$(
                    $field: Decode::decode(d).map_err(|error: Error| error.in_field(stringify!($name), stringify!($field)))?,
                )*})
            }
        }

        impl Schema for $name {
            fn schema(types: &mut Types) -> Type {
                types.define(concat!("farcall_xdr::schema::", stringify!($name)), stringify!($name), "", |types| {
                    let fields = vec![$(field(stringify!($field), "", <$ty>::schema(types), false)),*];
                    Body::Struct { fields, extensible: false }
                })
            }
        }
    )*};
}

structs! {
    Definition { name: String, docs: String, body: Body }
    Field { name: String, docs: String, ty: Type, defaulted: bool }
    Arm { name: String, docs: String, tag: Option<i32>, fields: Vec<Field> }
}

/// Implements the three traits for enums, which are sent as the arm's integer and then the arm's fields. Each
/// row of the macro's input has the integer, the arm's name, and for each field its name or number, a
/// variable for it, and its type.
macro_rules! unions {
    ($($name:ident { $($tag:literal $arm:ident { $($index:tt $binding:ident: $ty:ty),* })* })*) => {$(
        impl Encode for $name {
            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), Error> {
                match self {$(
                    Self::$arm { $($index: $binding),* } => {
                        e.i32($tag)?;
                        $($binding.encode(e)?;)*
                    }
                )*}
                Ok(())
            }
        }

        impl Decode<'_> for $name {
            const MIN_SIZE: usize = 4;

            fn decode(d: &mut Decoder<'_>) -> Result<Self, Error> {
                Ok(match d.i32()? {
                    $($tag => Self::$arm { $($index: Decode::decode(d)?),* },)*
                    value => {
                        let of = stringify!($name);
                        return Err(d.error_in_last(4, ErrorKind::UnknownTag { value, of }));
                    }
                })
            }
        }

        impl Schema for $name {
            fn schema(types: &mut Types) -> Type {
                types.define(concat!("farcall_xdr::schema::", stringify!($name)), stringify!($name), "", |types| {
                    let arms = vec![$({
                        let fields = vec![$(field(stringify!($index), "", <$ty>::schema(types), false)),*];
                        arm(stringify!($arm), "", Some($tag), fields)
                    }),*];
                    Body::Union { arms }
                })
            }
        }
    )*};
}

unions! {
    Type {
        0 Void {}
        1 Bool {}
        2 I8 {}
        3 I16 {}
        4 I32 {}
        5 I64 {}
        6 U8 {}
        7 U16 {}
        8 U32 {}
        9 U64 {}
        10 F32 {}
        11 F64 {}
        12 Opaque { size size: u32 }
        13 Bytes { max max: u32 }
        14 String { max max: u32 }
        15 Array { size size: u32, element element: Box<Type> }
        16 List { max max: u32, element element: Box<Type> }
        17 Optional { 0 inner: Box<Type> }
        18 Tuple { 0 types: Vec<Type> }
        19 Named { 0 place: u32 }
        20 Chain { 0 element: Box<Type> }
    }
    Body {
        0 Struct { fields fields: Vec<Field>, extensible extensible: bool }
        1 Union { arms arms: Vec<Arm> }
    }
}

crossing! {
    // Decoding checks the table with [`Types::check`].
    Types, 4, |types| Vec::<Definition>::schema(types), |value, e| value.definitions.encode(e),
        |d| {
            let start = d.offset();
            let types = Types { definitions: Decode::decode(d)?, ..Types::default() };
            types.check(&[]).map_err(|error| Error::new(error.kind().clone(), start))?;
            Ok(types)
        };
}
