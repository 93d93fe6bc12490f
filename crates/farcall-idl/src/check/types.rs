//! Compares two wire types. Finds the first breaking difference, and the harmless differences before it.

use std::collections::{HashSet, VecDeque};

use farcall_xdr::schema::{Arm, Body, Field, Type, Types};

use super::Change;
use crate::spell;

/// Compares both types level by level. Does not recurse, because types in a decoded table can nest deeply.
pub fn compare(old: &Types, new: &Types, place: String, was: &Type, is: &Type) -> Vec<Change> {
    let mut walk =
        Walk { old, new, waiting: VecDeque::from([(place, was, is)]), met: HashSet::new(), fine: Vec::new() };
    while let Some((place, was, is)) = walk.waiting.pop_front() {
        if let Err(breaking) = walk.step(place, was, is) {
            walk.fine.insert(0, breaking);
            break; // further differences may be consequences of this one
        }
    }
    walk.fine
}

struct Walk<'a> {
    old: &'a Types,
    new: &'a Types,
    waiting: VecDeque<(String, &'a Type, &'a Type)>,
    /// Pairs of named types that were compared or are waiting to be compared.
    met: HashSet<(u32, u32)>,
    fine: Vec<Change>,
}

impl<'a> Walk<'a> {
    fn step(&mut self, place: String, was: &'a Type, is: &'a Type) -> Result<(), Change> {
        match (was, is) {
            (Type::Array { size: a, element: before }, Type::Array { size: b, element: after }) if a == b => {
                self.waiting.push_back((place + "[]", before, after));
            }
            (Type::List { max: a, element: before }, Type::List { max: b, element: after }) if a == b => {
                self.waiting.push_back((place + "[]", before, after));
            }
            (Type::Chain(before), Type::Chain(after)) => {
                self.waiting.push_back((place + "[]", before, after));
            }
            (Type::Optional(before), Type::Optional(after)) => {
                self.waiting.push_back((place, before, after));
            }
            (Type::Tuple(_), _) | (_, Type::Tuple(_)) => return self.records(place, was, is),
            (Type::Named(before), Type::Named(after)) => return self.named(place, *before, *after),
            _ if was == is => {}
            _ => return Err(self.became(place, was, is)),
        }
        Ok(())
    }

    /// Compares tuples and structs with each other too, because they have the same wire form if their parts
    /// are the same.
    fn records(&mut self, place: String, was: &'a Type, is: &'a Type) -> Result<(), Change> {
        match (parts(self.old, was), parts(self.new, is)) {
            (Some(before), Some(after)) if before.len() == after.len() => {
                for (index, (before, after)) in before.into_iter().zip(after).enumerate() {
                    self.waiting.push_back((format!("{place}.{index}"), before, after));
                }
                Ok(())
            }
            _ => Err(self.became(place, was, is)),
        }
    }

    fn became(&self, place: String, was: &Type, is: &Type) -> Change {
        breaking(place, format!("{} became {}", spell(self.old, was), spell(self.new, is)))
    }

    fn named(&mut self, place: String, was: u32, is: u32) -> Result<(), Change> {
        if !self.met.insert((was, is)) {
            return Ok(());
        }
        let (old, new) = (self.old, self.new);
        let (Some(before), Some(after)) = (old.get(was), new.get(is)) else {
            return Err(breaking(place, "refers to no type".into()));
        };
        match (&before.body, &after.body) {
            (
                Body::Struct { fields: was, extensible: false },
                Body::Struct { fields: is, extensible: false },
            ) => self.fields(place, was, is),
            (
                Body::Struct { fields: was, extensible: true },
                Body::Struct { fields: is, extensible: true },
            ) => self.extensible(place, was, is),
            (Body::Union { arms: was }, Body::Union { arms: is }) => self.arms(place, was, is),
            _ => {
                let what = format!(
                    "{} {} became {} {}",
                    kind(&before.body),
                    before.name,
                    kind(&after.body),
                    after.name
                );
                Err(breaking(place, what))
            }
        }
    }

    fn fields(&mut self, place: String, was: &'a [Field], is: &'a [Field]) -> Result<(), Change> {
        let common = was.len().min(is.len());
        self.common(&place, &was[..common], &is[..common]);
        if let Some(gone) = was.get(common) {
            return Err(breaking(format!("{place}.{}", gone.name), "is gone".into()));
        }
        if let Some(added) = is.get(common) {
            let what = "is new, and the struct is not extensible".into();
            return Err(breaking(format!("{place}.{}", added.name), what));
        }
        Ok(())
    }

    /// Compares the fields of extensible structs, in which fields may be added or removed at the end.
    fn extensible(&mut self, place: String, was: &'a [Field], is: &'a [Field]) -> Result<(), Change> {
        let common = was.len().min(is.len());
        self.common(&place, &was[..common], &is[..common]);
        if let Some((before, _)) =
            was.iter().zip(is).find(|(before, after)| before.defaulted != after.defaulted)
        {
            let what = "has a default in one version only".into();
            return Err(breaking(format!("{place}.{}", before.name), what));
        }
        for gone in &was[common..] {
            let place = format!("{place}.{}", gone.name);
            if !gone.defaulted {
                return Err(breaking(place, "is gone, and the old version has no default for it".into()));
            }
            self.fine(place, "is gone; the old version has a default for it".into());
        }
        for added in &is[common..] {
            let place = format!("{place}.{}", added.name);
            if !added.defaulted {
                return Err(breaking(place, "is new; mark it #[xdr(default)]".into()));
            }
            self.fine(place, "is new, with a default".into());
        }
        Ok(())
    }

    /// Compares the fields at the same positions. The names of fields do not matter on the wire.
    fn common(&mut self, place: &str, was: &'a [Field], is: &'a [Field]) {
        for (before, after) in was.iter().zip(is) {
            let place = format!("{place}.{}", before.name);
            if before.name != after.name {
                self.fine(place.clone(), format!("is named {} now", after.name));
            }
            self.waiting.push_back((place, &before.ty, &after.ty));
        }
    }

    fn arms(&mut self, place: String, was: &'a [Arm], is: &'a [Arm]) -> Result<(), Change> {
        for before in was {
            let place = format!("{place}::{}", before.name);
            let Some(after) = is.iter().find(|after| after.tag == before.tag) else {
                return Err(breaking(place, format!("variant {} is gone", tag(before))));
            };
            if before.name != after.name {
                self.fine(place.clone(), format!("is named {} now", after.name));
            }
            self.fields(place, &before.fields, &after.fields)?;
        }
        match is.iter().find(|after| !was.iter().any(|before| before.tag == after.tag)) {
            Some(added) => {
                let what = format!("variant {} is new: the old version cannot decode it", tag(added));
                Err(breaking(format!("{place}::{}", added.name), what))
            }
            None => Ok(()),
        }
    }

    fn fine(&mut self, place: String, what: String) {
        self.fine.push(Change { breaking: false, place, what });
    }
}

/// Returns the parts of a tuple, or of a struct that is not extensible.
fn parts<'a>(types: &'a Types, ty: &'a Type) -> Option<Vec<&'a Type>> {
    match ty {
        Type::Tuple(parts) => Some(parts.iter().collect()),
        Type::Named(place) => match &types.get(*place)?.body {
            Body::Struct { fields, extensible: false } => {
                Some(fields.iter().map(|field| &field.ty).collect())
            }
            _ => None,
        },
        _ => None,
    }
}

fn breaking(place: String, what: String) -> Change {
    Change { breaking: true, place, what }
}

fn kind(body: &Body) -> &'static str {
    match body {
        Body::Struct { extensible: false, .. } => "struct",
        Body::Struct { extensible: true, .. } => "extensible struct",
        Body::Union { .. } => "enum",
    }
}

fn tag(arm: &Arm) -> String {
    arm.tag.map_or_else(|| "default".into(), |tag| tag.to_string())
}
