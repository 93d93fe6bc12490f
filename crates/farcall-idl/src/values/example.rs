//! Makes example arguments of a procedure, which a user can edit and call with.

use std::collections::HashSet;

use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use farcall_xdr::{Decoder, Encoder};
use serde_json::{Map, Value};

use super::error::{Error, Path, UNDECLARED};
use super::{MAX_DEPTH, decode, encode_arguments};
use crate::{Interface, Procedure};

/// The maximum of the values in an example plus the bytes of its opaque data. Larger examples would not help
/// their readers.
const MAX_SIZE: usize = 1 << 16;

/// Returns an object of arguments with which the procedure can be called: zeros, empty strings, empty lists,
/// and the first variants that have finite values.
///
/// # Errors
/// When there is no example: a type is not described, every value of it nests without end, or no value is
/// short enough to show.
pub fn example(interface: &Interface, procedure: &Procedure) -> Result<Value, Error> {
    let types = &interface.types;
    let roots: Vec<Type> = procedure.arguments.iter().map(|argument| argument.ty.clone()).collect();
    types.check(&roots)?;
    let mut maker = Maker { types, ranks: ranks(types), bytes: Vec::new(), left: MAX_SIZE };
    for argument in &procedure.arguments {
        maker.value(&argument.ty, &Path::ROOT.field(&argument.name))?;
    }
    let mut bytes = Decoder::new(&maker.bytes);
    let mut members = Map::new();
    for argument in &procedure.arguments {
        members.insert(argument.name.clone(), decode(types, &argument.ty, &mut bytes)?);
    }
    let value = Value::Object(members);
    // The example is checked by encoding it, because a description can come from an untrusted peer.
    encode_arguments(interface, procedure, &value, &mut Encoder::new(&mut Vec::new()))?;
    Ok(value)
}

/// The state of making an example. The example is built in encoded form, in `bytes`.
struct Maker<'a> {
    types: &'a Types,
    ranks: Vec<Option<Rank>>,
    bytes: Vec<u8>,
    /// How many more values and bytes of opaque data the example may have.
    left: usize,
}

/// How to make a finite value of a type.
#[derive(Clone, Copy)]
struct Rank {
    /// The round of the search that found a finite value. The values that it contains were found in earlier
    /// rounds.
    round: usize,
    /// The arm to take, for a union.
    arm: usize,
}

impl Maker<'_> {
    fn value(&mut self, ty: &Type, at: &Path<'_>) -> Result<(), Error> {
        if at.depth >= MAX_DEPTH {
            return Err(at.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        self.take(1, at)?;
        let zeros = match ty {
            Type::Void => 0,
            Type::I64 | Type::U64 | Type::F64 => 8,
            Type::Opaque { size } => (*size as usize).next_multiple_of(4),
            Type::Array { size, element } => {
                self.take(*size as usize, at)?;
                return (0..*size as usize).try_for_each(|index| self.value(element, &at.index(index)));
            }
            Type::Tuple(parts) => {
                let mut parts = parts.iter().enumerate();
                return parts.try_for_each(|(index, part)| self.value(part, &at.index(index)));
            }
            Type::Named(place) => return self.definition(*place, at),
            _ => 4,
        };
        self.take(zeros, at)?;
        self.bytes.resize(self.bytes.len() + zeros, 0);
        Ok(())
    }

    fn definition(&mut self, place: u32, at: &Path<'_>) -> Result<(), Error> {
        let types = self.types;
        let Some(definition) = types.get(place) else {
            return Err(at.error("the interface's description refers to a type that it does not define"));
        };
        match &definition.body {
            Body::Struct { fields, extensible: false } => self.fields(fields, at),
            Body::Struct { fields, extensible: true } => {
                let start = self.bytes.len() + 4;
                self.bytes.resize(start, 0);
                self.fields(fields, at)?;
                // The length of an example is limited.
                let length = (self.bytes.len() - start) as u32;
                self.bytes[start - 4..start].copy_from_slice(&length.to_be_bytes());
                Ok(())
            }
            Body::Union { arms } if arms.is_empty() => Err(at.error(UNDECLARED)),
            Body::Union { arms } => {
                let Some(rank) = self.ranks.get(place as usize).copied().flatten() else {
                    return Err(at.error("every value of this type nests without end"));
                };
                // The first arm is the best example, unless it contains the union itself.
                let first = arms.first().is_some_and(|arm| !self.leads_to(arm, place));
                let arm = &arms[if first { 0 } else { rank.arm }];
                let free = || {
                    let taken: HashSet<i32> = arms.iter().filter_map(|arm| arm.tag).collect();
                    (0..).find(|tag| !taken.contains(tag))
                };
                let tag = arm.tag.or_else(free).unwrap_or_default();
                self.bytes.extend_from_slice(&tag.to_be_bytes());
                self.fields(&arm.fields, &at.field(&arm.name))
            }
        }
    }

    fn fields(&mut self, fields: &[Field], at: &Path<'_>) -> Result<(), Error> {
        fields.iter().try_for_each(|field| self.value(&field.ty, &at.field(&field.name)))
    }

    fn take(&mut self, size: usize, at: &Path<'_>) -> Result<(), Error> {
        match self.left.checked_sub(size) {
            Some(left) => self.left = left,
            None => return Err(at.error("the shortest value is too long for an example")),
        }
        Ok(())
    }

    /// Returns whether a value of an arm can contain a value of the type at that index, directly or through
    /// other types.
    fn leads_to(&self, arm: &Arm, place: u32) -> bool {
        let mut waiting: Vec<u32> = arm.fields.iter().flat_map(|field| needed(&field.ty)).collect();
        let mut seen = vec![false; self.types.definitions().len()];
        while let Some(next) = waiting.pop() {
            if next == place {
                return true;
            }
            if seen.get(next as usize).is_some_and(|seen| !seen) {
                seen[next as usize] = true;
                let fields = self.types.get(next).map_or(Vec::new(), |found| all_fields(&found.body));
                waiting.extend(fields.iter().flat_map(|field| needed(&field.ty)));
            }
        }
        false
    }
}

/// Finds the types that have finite values, in rounds, until a round finds no further type.
fn ranks(types: &Types) -> Vec<Option<Rank>> {
    let mut ranks: Vec<Option<Rank>> = vec![None; types.definitions().len()];
    for round in 0..=ranks.len() {
        let is_ready = |field: &Field| {
            needed(&field.ty).iter().all(|place| {
                ranks.get(*place as usize).copied().flatten().is_some_and(|rank: Rank| rank.round < round)
            })
        };
        let mut found = Vec::new();
        for (place, definition) in
            types.definitions().iter().enumerate().filter(|(place, _)| ranks[*place].is_none())
        {
            let arm = match &definition.body {
                Body::Struct { fields, .. } => fields.iter().all(is_ready).then_some(0),
                Body::Union { arms } => arms.iter().position(|arm| arm.fields.iter().all(is_ready)),
            };
            found.extend(arm.map(|arm| (place, Rank { round, arm })));
        }
        if found.is_empty() {
            break;
        }
        found.into_iter().for_each(|(place, rank)| ranks[place] = Some(rank));
    }
    ranks
}

/// Returns the types that every value of this type contains.
fn needed(ty: &Type) -> Vec<u32> {
    match ty {
        Type::Named(place) => vec![*place],
        Type::Array { size, element } if *size > 0 => needed(element),
        Type::Tuple(parts) => parts.iter().flat_map(needed).collect(),
        _ => Vec::new(),
    }
}

fn all_fields(body: &Body) -> Vec<&Field> {
    match body {
        Body::Struct { fields, .. } => fields.iter().collect(),
        Body::Union { arms } => arms.iter().flat_map(|arm| &arm.fields).collect(),
    }
}
