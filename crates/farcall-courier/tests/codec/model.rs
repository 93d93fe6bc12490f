//! An independent encoder: types and values, with their XDR bytes and their Courier words. It has nothing in
//! common with the transcoder.

use farcall::idl::{Argument, Interface, Procedure};
use farcall::xdr::schema::{Body, Type, Types, arm, field};
use farcall_courier::codec::{Booleans, Layout};

/// A type that Courier has.
#[derive(Clone, Debug)]
pub enum T {
    Boolean,
    Cardinal,
    Integer,
    LongCardinal,
    LongInteger,
    String,
    Array(usize, Box<T>),
    Sequence(Box<T>),
    Record(Vec<T>),
    Choice(Vec<(u16, Vec<T>)>),
}

/// A value.
#[derive(Clone, Debug)]
pub enum V {
    Boolean(bool),
    Cardinal(u16),
    Integer(i16),
    LongCardinal(u32),
    LongInteger(i32),
    String(Vec<u8>),
    /// An array or a record.
    Parts(Vec<V>),
    Sequence(Vec<V>),
    Choice(u16, Vec<V>),
}

impl T {
    pub fn schema(&self, types: &mut Types) -> Type {
        match self {
            T::Boolean => Type::Bool,
            T::Cardinal => Type::U16,
            T::Integer => Type::I16,
            T::LongCardinal => Type::U32,
            T::LongInteger => Type::I32,
            T::String => Type::String { max: u32::MAX },
            T::Array(count, element) => {
                Type::Array { size: *count as u32, element: Box::new(element.schema(types)) }
            }
            T::Sequence(element) => Type::List { max: u32::MAX, element: Box::new(element.schema(types)) },
            T::Record(fields) => {
                let key = format!("{self:?}");
                types.define(&key, "Record", "", |types| {
                    let fields = fields.iter().enumerate();
                    let fields = fields.map(|(at, ty)| field(&format!("f{at}"), "", ty.schema(types), false));
                    Body::Struct { fields: fields.collect(), extensible: false }
                })
            }
            T::Choice(arms) => {
                let key = format!("{self:?}");
                types.define(&key, "Choice", "", |types| {
                    let arms = arms.iter().map(|(tag, fields)| {
                        let fields = fields.iter().enumerate();
                        let fields =
                            fields.map(|(at, ty)| field(&at.to_string(), "", ty.schema(types), false));
                        arm(&format!("a{tag}"), "", Some((*tag).into()), fields.collect())
                    });
                    Body::Union { arms: arms.collect() }
                })
            }
        }
    }
}

impl V {
    pub fn xdr(&self, out: &mut Vec<u8>) {
        match self {
            V::Boolean(value) => out.extend(u32::from(*value).to_be_bytes()),
            V::Cardinal(value) => out.extend(u32::from(*value).to_be_bytes()),
            V::Integer(value) => out.extend(i32::from(*value).to_be_bytes()),
            V::LongCardinal(value) => out.extend(value.to_be_bytes()),
            V::LongInteger(value) => out.extend(value.to_be_bytes()),
            V::String(bytes) => {
                out.extend((bytes.len() as u32).to_be_bytes());
                out.extend(bytes);
                while !out.len().is_multiple_of(4) {
                    out.push(0);
                }
            }
            V::Parts(parts) => parts.iter().for_each(|part| part.xdr(out)),
            V::Sequence(parts) => {
                out.extend((parts.len() as u32).to_be_bytes());
                parts.iter().for_each(|part| part.xdr(out));
            }
            V::Choice(tag, parts) => {
                out.extend(u32::from(*tag).to_be_bytes());
                parts.iter().for_each(|part| part.xdr(out));
            }
        }
    }

    pub fn words(&self, booleans: Booleans, out: &mut Vec<u8>) {
        match self {
            V::Boolean(value) if booleans == Booleans::HighBytes => out.extend([u8::from(*value), 0]),
            V::Boolean(value) => out.extend([0, u8::from(*value)]),
            V::Cardinal(value) => out.extend(value.to_be_bytes()),
            V::Integer(value) => out.extend(value.to_be_bytes()),
            V::LongCardinal(value) => {
                out.extend(((value >> 16) as u16).to_be_bytes());
                out.extend((*value as u16).to_be_bytes());
            }
            V::LongInteger(value) => V::LongCardinal(*value as u32).words(booleans, out),
            V::String(bytes) => {
                out.extend((bytes.len() as u16).to_be_bytes());
                out.extend(bytes);
                if bytes.len() % 2 == 1 {
                    out.push(0);
                }
            }
            V::Parts(parts) => parts.iter().for_each(|part| part.words(booleans, out)),
            V::Sequence(parts) => {
                out.extend((parts.len() as u16).to_be_bytes());
                parts.iter().for_each(|part| part.words(booleans, out));
            }
            V::Choice(tag, parts) => {
                out.extend(tag.to_be_bytes());
                parts.iter().for_each(|part| part.words(booleans, out));
            }
        }
    }
}

/// Returns the interface with one procedure, number 1, whose only argument `a` and whose result have a type.
pub fn interface(ty: &T) -> Interface {
    let mut interface = Interface::new("Test");
    let ty = ty.schema(&mut interface.types);
    interface.procedures.push(procedure(vec![("a", ty.clone())], ty, Type::Void));
    interface
}

/// Returns procedure 1 with these types.
pub fn procedure(arguments: Vec<(&str, Type)>, result: Type, exception: Type) -> Procedure {
    let arguments = arguments.into_iter().map(|(name, ty)| Argument { name: name.into(), ty }).collect();
    Procedure {
        number: 1,
        name: "call".into(),
        docs: String::new(),
        arguments,
        result,
        exception,
        idempotent: false,
        blocking: false,
        deadline_ms: None,
        oneway: false,
        pinned: true,
    }
}

/// Returns the layout of [`interface`].
pub fn layout(ty: &T, booleans: Booleans) -> Layout {
    Layout::with(&interface(ty), booleans).unwrap()
}
