//! Refuses interfaces that Courier cannot express, and names the procedure, the argument and the type.

use std::collections::BTreeSet;

use farcall_xdr::schema::{Body, Type, Types};

use crate::cr::resolve::MAX_CARDINAL;
use crate::language::Refused;
use crate::{Interface, Procedure, spell};

/// The depth to which types refer to one another. A description can come from a peer.
const MAX_DEPTH: usize = 256;
/// The depth to which types without a name nest. The reader of `.cr` files has a limit too.
const MAX_UNNAMED_DEPTH: usize = 48;
/// The maximum number of errors that all procedures report, with their arguments. The procedures of a peer's
/// description can share one large enum, and each lists its errors in the file.
const MAX_REPORTED: usize = 1 << 18;

/// Refuses an interface that has what Courier lacks.
pub(super) fn check(interface: &Interface) -> Result<(), Refused> {
    if let Some(signal) = interface.signals.first() {
        return Err(Refused(format!("signal `{}`: Courier has no signals", signal.name)));
    }
    check_reported(interface)?;
    let mut examination = Examination { types: &interface.types, seen: BTreeSet::new() };
    let mut procedures = interface.procedures.iter();
    procedures.try_for_each(|procedure| check_procedure(interface, procedure, &mut examination))
}

fn check_reported(interface: &Interface) -> Result<(), Refused> {
    let mut left = MAX_REPORTED;
    for procedure in &interface.procedures {
        let Type::Named(place) = &procedure.exception else { continue };
        let Some(Body::Union { arms }) = interface.types.get(*place).map(|of| &of.body) else { continue };
        let parts: usize = arms.iter().map(|arm| 1 + arm.fields.len()).sum();
        left = left
            .checked_sub(parts)
            .ok_or_else(|| Refused("its procedures report too many errors together".into()))?;
    }
    Ok(())
}

fn check_procedure(
    interface: &Interface,
    procedure: &Procedure,
    examination: &mut Examination<'_>,
) -> Result<(), Refused> {
    let refuse = |part: &str, why: String| Refused(format!("procedure `{}`{part}: {why}", procedure.name));
    if interface.has_exchanges(procedure) {
        return Err(refuse("", "Courier has no streams of values".into()));
    }
    if procedure.number > MAX_CARDINAL {
        return Err(refuse("", format!("its number, {}, has more than 16 bits", procedure.number)));
    }
    let types = &interface.types;
    let mut why_not = |ty: &Type| examination.unsayable(ty, MAX_DEPTH, MAX_UNNAMED_DEPTH);
    for argument in &procedure.arguments {
        if let Some(why) = why_not(&argument.ty) {
            return Err(refuse(&format!(", argument `{}`", argument.name), why));
        }
    }
    if let Some(why) = why_not(&procedure.result) {
        return Err(refuse(", result", why));
    }
    // Courier's errors have numbers.
    let is_enum = match &procedure.exception {
        Type::Void => true,
        Type::Named(place) => types.get(*place).is_some_and(|of| matches!(of.body, Body::Union { .. })),
        _ => false,
    };
    let no_enum =
        || format!("`{}` is no enum, and Courier's errors have numbers", spell(types, &procedure.exception));
    let why = if is_enum { why_not(&procedure.exception) } else { Some(no_enum()) };
    why.map_or(Ok(()), |why| Err(refuse(", exception", why)))
}

struct Examination<'t> {
    types: &'t Types,
    /// The named types that were examined.
    seen: BTreeSet<u32>,
}

impl Examination<'_> {
    /// Returns why Courier lacks a type or a part of it.
    fn unsayable(&mut self, ty: &Type, depth: usize, unnamed: usize) -> Option<String> {
        let name = || spell(self.types, ty);
        let (Some(depth), Some(unnamed)) = (depth.checked_sub(1), unnamed.checked_sub(1)) else {
            return Some("its type nests too deep".into());
        };
        let too_long = |parts: &str| {
            Some(format!("`{}` can have more than 65535 {parts}, and Courier counts in 16 bits", name()))
        };
        match ty {
            Type::Void | Type::Bool | Type::U16 | Type::I16 | Type::U32 | Type::I32 => None,
            Type::String { max } if *max <= MAX_CARDINAL => None,
            Type::String { .. } => too_long("bytes"),
            Type::Array { size: count, element } | Type::List { max: count, element } => {
                if *count > MAX_CARDINAL {
                    too_long("elements")
                } else {
                    self.unsayable(element, depth, unnamed)
                }
            }
            Type::Tuple(parts) => parts.iter().find_map(|part| self.unsayable(part, depth, unnamed)),
            Type::Named(place) if self.seen.insert(*place) => self.unsayable_body(*place, depth),
            Type::Named(_) => None,
            Type::Optional(_) | Type::Chain(_) => {
                Some(format!("`{}` is optional or linked data, for which Courier has `CHOICE`", name()))
            }
            _ => Some(format!("Courier has no `{}`", name())),
        }
    }

    fn unsayable_body(&mut self, place: u32, depth: usize) -> Option<String> {
        let definition = self.types.get(place)?;
        let name = &definition.name;
        let mut part = |part: &str, ty: &Type| {
            self.unsayable(ty, depth, MAX_UNNAMED_DEPTH).map(|why| format!("{why} (`{name}.{part}`)"))
        };
        match &definition.body {
            Body::Struct { extensible: true, .. } => {
                Some(format!("`{name}` is extensible, which no record is"))
            }
            Body::Struct { fields, .. } => fields.iter().find_map(|field| part(&field.name, &field.ty)),
            Body::Union { arms } if arms.is_empty() => Some(format!("only the name of `{name}` is known")),
            Body::Union { arms } => arms.iter().find_map(|arm| match arm.tag {
                Some(tag) if u16::try_from(tag).is_ok() => {
                    arm.fields.iter().find_map(|field| part(&arm.name, &field.ty))
                }
                Some(tag) => {
                    Some(format!("`{name}.{}` has the number {tag}, and Courier's have 16 bits", arm.name))
                }
                None => {
                    Some(format!("`{name}.{}` has all other numbers, which no `CHOICE` admits", arm.name))
                }
            }),
        }
    }
}
