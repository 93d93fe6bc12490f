//! Example arguments of a procedure, which a user may edit and call with.

use farcall_xdr::Encoder;
use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use serde_json::{Map, Value, json};

use super::encode::base64;
use super::error::{Error, Path, UNDECLARED};
use super::{DEPTH, Form, encode_arguments, form};
use crate::{Interface, Procedure};

/// How many values an example has at most, and how many bytes of opaque data: it is to be read.
const MAX_SIZE: usize = 1 << 16;

/// An object of arguments with which the procedure can be called: zeros, empty strings and lists, first
/// variants that have an end.
///
/// # Errors
/// If there is none: a type is not described, or nests without end, or its shortest value is too long to be
/// shown.
pub fn example(interface: &Interface, procedure: &Procedure) -> Result<Value, Error> {
    let types = &interface.types;
    let roots: Vec<Type> = procedure.arguments.iter().map(|argument| argument.ty.clone()).collect();
    types.check(&roots)?;
    let mut maker = Maker { types, ranks: ranks(types), left: MAX_SIZE };
    let mut members = Map::new();
    for argument in &procedure.arguments {
        let at = Path::ROOT;
        members.insert(argument.name.clone(), maker.value(&argument.ty, &at.field(&argument.name))?);
    }
    let value = Value::Object(members);
    // What is shown is tried: a description may come from anywhere.
    encode_arguments(interface, procedure, &value, &mut Encoder::new(&mut Vec::new()))?;
    Ok(value)
}

struct Maker<'a> {
    types: &'a Types,
    ranks: Vec<Option<Rank>>,
    /// How much more there may be.
    left: usize,
}

/// How to make a finite value of a type.
#[derive(Clone, Copy)]
struct Rank {
    /// In which round that was found: what its value needs was found before.
    round: usize,
    /// The arm to take, of a union.
    arm: usize,
}

impl Maker<'_> {
    fn value(&mut self, ty: &Type, at: &Path<'_>) -> Result<Value, Error> {
        if at.depth >= DEPTH {
            return Err(at.error(format!("nested deeper than {DEPTH}")));
        }
        self.take(1, at)?;
        Ok(match ty {
            Type::Void | Type::Optional(_) => Value::Null,
            Type::Bool => false.into(),
            Type::I64 | Type::U64 => "0".into(),
            Type::I8 | Type::I16 | Type::I32 | Type::U8 | Type::U16 | Type::U32 => 0.into(),
            Type::F32 | Type::F64 => 0.0.into(),
            Type::Opaque { size } => {
                self.take(*size as usize, at)?;
                base64(&vec![0; *size as usize]).into()
            }
            Type::Bytes { .. } | Type::String { .. } => "".into(),
            Type::List { .. } | Type::Chain(_) => json!([]),
            Type::Array { size, element } => {
                self.take(*size as usize, at)?;
                (0..*size as usize)
                    .map(|index| self.value(element, &at.index(index)))
                    .collect::<Result<_, _>>()?
            }
            Type::Tuple(parts) => {
                let each = parts.iter().enumerate().map(|(index, part)| self.value(part, &at.index(index)));
                each.collect::<Result<_, _>>()?
            }
            Type::Named(place) => self.definition(*place, at)?,
        })
    }

    fn definition(&mut self, place: u32, at: &Path<'_>) -> Result<Value, Error> {
        let types = self.types;
        let Some(definition) = types.get(place) else { return Err(at.error("refers to no type")) };
        match &definition.body {
            Body::Struct { fields, .. } => self.fields(fields, at),
            Body::Union { arms } if arms.is_empty() => Err(at.error(UNDECLARED)),
            Body::Union { arms } => {
                let Some(rank) = self.ranks.get(place as usize).copied().flatten() else {
                    return Err(at.error("no value of this type has an end"));
                };
                // The first arm shows most, unless it leads back here.
                let first = arms.first().is_some_and(|arm| !self.leads_to(arm, place));
                let arm = &arms[if first { 0 } else { rank.arm }];
                self.arm(place, arms, arm, &at.field(&arm.name))
            }
        }
    }

    fn arm(&mut self, place: u32, arms: &[Arm], arm: &Arm, at: &Path<'_>) -> Result<Value, Error> {
        if arm.tag.is_some() && arm.fields.is_empty() {
            return Ok(arm.name.clone().into());
        }
        let content = if arm.fields.is_empty() { None } else { Some(self.fields(&arm.fields, at)?) };
        if arm.tag.is_some() {
            return Ok(json!({ &arm.name: content }));
        }
        let is_free = |tag: &i32| !arms.iter().any(|arm| arm.tag == Some(*tag));
        let tag = (0..).find(is_free).unwrap_or_default();
        let name = self.types.other_name(place, tag).map_or(json!(tag), |name| json!(name));
        let parts: Vec<Value> = [name].into_iter().chain(content).collect();
        Ok(json!({ &arm.name: parts }))
    }

    fn fields(&mut self, fields: &[Field], at: &Path<'_>) -> Result<Value, Error> {
        match (form(fields), fields) {
            (Form::Single, [only]) => self.value(&only.ty, &at.inside()),
            (Form::Named, _) => {
                let mut members = Map::new();
                for field in fields {
                    members.insert(field.name.clone(), self.value(&field.ty, &at.field(&field.name))?);
                }
                Ok(members.into())
            }
            _ => {
                let each =
                    fields.iter().enumerate().map(|(index, field)| self.value(&field.ty, &at.index(index)));
                Ok(Value::Array(each.collect::<Result<_, _>>()?))
            }
        }
    }

    fn take(&mut self, size: usize, at: &Path<'_>) -> Result<(), Error> {
        match self.left.checked_sub(size) {
            Some(left) => self.left = left,
            None => return Err(at.error("the shortest value is too long for an example")),
        }
        Ok(())
    }

    /// Whether a value of an arm may need one of the type at that place.
    fn leads_to(&self, arm: &Arm, place: u32) -> bool {
        let mut waiting: Vec<u32> = arm.fields.iter().flat_map(|field| needed(&field.ty)).collect();
        let mut seen = vec![false; self.types.definitions().len()];
        while let Some(next) = waiting.pop() {
            if next == place {
                return true;
            }
            if seen.get(next as usize).is_some_and(|seen| !seen) {
                seen[next as usize] = true;
                let body = self.types.get(next).map(|found| &found.body);
                waiting.extend(
                    body.into_iter().flat_map(|body| all_fields(body).flat_map(|field| needed(&field.ty))),
                );
            }
        }
        false
    }
}

/// Which types have values with an end; rounds go on while they find some.
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

/// The types of which every value of this one has one.
fn needed(ty: &Type) -> Vec<u32> {
    match ty {
        Type::Named(place) => vec![*place],
        Type::Array { size, element } if *size > 0 => needed(element),
        Type::Tuple(parts) => parts.iter().flat_map(needed).collect(),
        _ => Vec::new(),
    }
}

fn all_fields(body: &Body) -> Box<dyn Iterator<Item = &Field> + '_> {
    match body {
        Body::Struct { fields, .. } => Box::new(fields.iter()),
        Body::Union { arms } => Box::new(arms.iter().flat_map(|arm| &arm.fields)),
    }
}
