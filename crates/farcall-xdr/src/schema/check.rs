//! Checks that a program can safely walk a description. A hostile peer can have made it.

use super::{Body, Field, Type, Types};
use crate::{Error, ErrorKind, MAX_DEPTH};

/// A type may have this many parts that take no bytes, however few bytes its values have. A type with more
/// bytes may have as many such parts as bytes.
const MAX_EMPTY_PARTS_OF_SHORT: u32 = 256;
/// The maximum number of parts that take no bytes, in any type.
const MAX_EMPTY_PARTS: u32 = 1 << 16;

pub(super) fn check(types: &Types, roots: &[Type]) -> Result<(), Error> {
    let extents = vec![None; types.definitions.len()];
    let mut walk = Walk { types, extents, later: Vec::new() };
    for place in 0..types.definitions.len() {
        walk.named(place as u32, MAX_DEPTH)?;
    }
    for root in roots {
        walk.ty(root, MAX_DEPTH)?;
    }
    while let Some(part) = walk.later.pop() {
        match part {
            Part::Type(ty) => walk.ty(ty, MAX_DEPTH)?,
            Part::Fields(fields) => walk.fields(fields, false, MAX_DEPTH)?,
        };
    }
    Ok(())
}

struct Walk<'t> {
    types: &'t Types,
    /// The extents of the definitions that have been walked, by index.
    extents: Vec<Option<Extent>>,
    /// The content of optional data, lists and unions, to be walked later, because it can contain the type
    /// that is being walked.
    later: Vec<Part<'t>>,
}

enum Part<'t> {
    Type(&'t Type),
    Fields(&'t [Field]),
}

/// What every value of a type contains.
#[derive(Clone, Copy, Default)]
struct Extent {
    /// The number of levels of types that nest in the value.
    height: u32,
    /// The least number of bytes on the wire.
    bytes: u32,
    /// The number of parts that take no bytes.
    empty: u32,
}

impl<'t> Walk<'t> {
    /// Returns the extent of `ty`, in which types may nest `depth` levels deep.
    fn ty(&mut self, ty: &'t Type, depth: u32) -> Result<Extent, Error> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(invalid("a type contains itself, or is nested too deeply"));
        };
        let inside = match ty {
            Type::Void => Extent::default(),
            Type::Opaque { size } => bytes(*size),
            Type::I64 | Type::U64 | Type::F64 => bytes(8),
            Type::Array { size, element } => {
                let extent = self.ty(element, depth)?;
                let times = |n: u32| n.saturating_mul(*size);
                Extent { bytes: times(extent.bytes), empty: times(extent.empty), ..extent }
            }
            Type::List { element: inner, .. } | Type::Optional(inner) | Type::Chain(inner) => {
                self.later.push(Part::Type(inner));
                bytes(4)
            }
            Type::Tuple(types) => {
                let mut sum = Extent::default();
                for ty in types {
                    sum.add(self.ty(ty, depth)?);
                }
                sum
            }
            Type::Named(place) => self.named(*place, depth)?,
            _ => bytes(4),
        };
        inside.around(depth)
    }

    fn named(&mut self, place: u32, depth: u32) -> Result<Extent, Error> {
        let Some(known) = self.extents.get(place as usize) else {
            return Err(invalid("a type refers to a definition that is missing"));
        };
        if let Some(extent) = known {
            return Ok(*extent);
        }
        let extent = match &self.types.definitions[place as usize].body {
            Body::Struct { fields, extensible: false } => self.fields(fields, false, depth)?,
            Body::Struct { fields, extensible: true } => {
                let mut extent = self.fields(fields, true, depth)?;
                extent.bytes = 4;
                extent
            }
            Body::Union { arms } => {
                self.later.extend(arms.iter().map(|arm| Part::Fields(&arm.fields)));
                bytes(4)
            }
        };
        self.extents[place as usize] = Some(extent);
        Ok(extent)
    }

    /// Returns the extent of a struct's or an arm's fields. Only in an extensible struct can a field be
    /// missing, and then all fields that follow it are missing too: `#[derive(Xdr)]` accepts nothing else.
    fn fields(&mut self, fields: &'t [Field], extensible: bool, depth: u32) -> Result<Extent, Error> {
        let mut optional = fields.iter().skip_while(|field| !field.defaulted);
        if !extensible && optional.clone().next().is_some() {
            return Err(invalid("a field has a default, but its struct is not extensible"));
        }
        if optional.any(|field| !field.defaulted) {
            return Err(invalid("a field without a default follows a field with a default"));
        }
        let mut sum = Extent::default();
        for field in fields {
            sum.add(self.ty(&field.ty, depth)?);
        }
        Ok(sum)
    }
}

impl Extent {
    fn add(&mut self, other: Extent) {
        self.height = self.height.max(other.height);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.empty = self.empty.saturating_add(other.empty);
    }

    /// Returns the extent of a type that contains this extent, or an error if a limit is exceeded.
    fn around(mut self, depth: u32) -> Result<Extent, Error> {
        if self.height > depth {
            return Err(invalid("a type is nested too deeply"));
        }
        if self.bytes == 0 {
            self.empty = self.empty.max(1);
        }
        if self.empty > MAX_EMPTY_PARTS || self.empty > MAX_EMPTY_PARTS_OF_SHORT.max(self.bytes) {
            return Err(invalid("a type has too many parts of no bytes"));
        }
        Ok(Extent { height: self.height + 1, ..self })
    }
}

fn bytes(bytes: u32) -> Extent {
    Extent { bytes, ..Extent::default() }
}

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::Invalid(why.into()), 0)
}
