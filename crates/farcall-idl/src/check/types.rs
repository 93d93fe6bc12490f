//! Compares two wire types. Finds the first breaking difference, and the harmless differences before it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;

use farcall_base::work;
use farcall_xdr::schema::{Arm, Body, Field, Type, Types};

use super::Change;
use crate::{Interface, spell};

/// How many steps all comparisons of two interfaces may take for each part of their descriptions. A type that
/// differs is compared again for each procedure that uses it, because each may stop at another difference.
const STEPS_PER_PART: usize = 16;
/// How many steps they may take besides.
const STEPS: usize = 1 << 12;
/// The most names of a place that are shown. Of a longer one, the beginning and the last ones are shown.
const MAX_SHOWN: usize = 24;

/// What earlier comparisons of two interfaces have found about pairs of their named types, and how many steps
/// are left for further ones.
pub struct Compared {
    /// Pairs of named types between which there is no difference at all.
    same: HashSet<(u32, u32)>,
    left: usize,
}

impl Compared {
    pub fn new(old: &Interface, new: &Interface) -> Compared {
        let parts = parts_of(old).saturating_add(parts_of(new));
        Compared { same: HashSet::new(), left: parts.saturating_mul(STEPS_PER_PART).saturating_add(STEPS) }
    }

    /// Returns whether comparisons ended because there were no steps left. Then differences that break nothing
    /// may be missing.
    pub fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// Compares two types level by level. Does not recurse, because types in a decoded table can nest deeply.
    pub fn compare(&mut self, [old, new]: [&Types; 2], place: String, was: &Type, is: &Type) -> Vec<Change> {
        let mut walk = Walk {
            old,
            new,
            root: place,
            places: Vec::new(),
            waiting: VecDeque::from([(None, was, is)]),
            met: HashSet::new(),
            fine: Vec::new(),
            known: self,
        };
        while let Some((place, was, is)) = walk.waiting.pop_front() {
            if !walk.take(1) {
                return walk.fine;
            }
            if let Err(breaking) = walk.step(place, was, is) {
                walk.fine.insert(0, breaking);
                return walk.fine; // further differences may be consequences of this one
            }
        }
        let (met, fine) = (walk.met, walk.fine);
        if fine.is_empty() && !self.is_exhausted() {
            self.same.extend(met);
        }
        fine
    }
}

/// Returns how many types, fields and arms a description has.
fn parts_of(interface: &Interface) -> usize {
    fn of_type(ty: &Type) -> usize {
        1 + match ty {
            Type::Array { element: inner, .. }
            | Type::List { element: inner, .. }
            | Type::Optional(inner)
            | Type::Chain(inner) => of_type(inner),
            Type::Tuple(parts) => parts.iter().map(of_type).sum(),
            _ => 0,
        }
    }
    let of_fields = |fields: &[Field]| fields.iter().map(|field| of_type(&field.ty)).sum::<usize>();
    let types = interface.types.definitions().iter().map(|definition| match &definition.body {
        Body::Struct { fields, .. } => 1 + of_fields(fields),
        Body::Union { arms } => 1 + arms.iter().map(|arm| 1 + of_fields(&arm.fields)).sum::<usize>(),
    });
    let procedures = interface.procedures.iter().map(|procedure| {
        let arguments = procedure.arguments.iter().map(|argument| of_type(&argument.ty));
        arguments.sum::<usize>() + of_type(&procedure.result) + of_type(&procedure.exception)
    });
    types.chain(procedures).sum()
}

/// A place within the type that is compared: its name, and the place that contains it (`None` for the whole).
#[derive(Clone, Copy)]
struct Place<'a> {
    within: Option<usize>,
    depth: usize,
    name: Name<'a>,
}

#[derive(Clone, Copy)]
enum Name<'a> {
    Elements,
    Part(usize),
    Field(&'a str),
    Arm(&'a str),
}

struct Walk<'a, 'c> {
    old: &'a Types,
    new: &'a Types,
    /// The place of the whole type.
    root: String,
    places: Vec<Place<'a>>,
    waiting: VecDeque<(Option<usize>, &'a Type, &'a Type)>,
    /// Pairs of named types that were compared or are waiting to be compared.
    met: HashSet<(u32, u32)>,
    fine: Vec<Change>,
    known: &'c mut Compared,
}

impl<'a> Walk<'a, '_> {
    /// Takes this many steps. Returns false if there are not so many left.
    fn take(&mut self, steps: usize) -> bool {
        work::steps(steps);
        self.known.left = self.known.left.saturating_sub(steps);
        self.known.left > 0
    }

    fn step(&mut self, place: Option<usize>, was: &'a Type, is: &'a Type) -> Result<(), Change> {
        match (was, is) {
            (Type::Array { size: a, element: before }, Type::Array { size: b, element: after }) if a == b => {
                self.wait(place, Name::Elements, before, after);
            }
            (Type::List { max: a, element: before }, Type::List { max: b, element: after }) if a == b => {
                self.wait(place, Name::Elements, before, after);
            }
            (Type::Chain(before), Type::Chain(after)) => self.wait(place, Name::Elements, before, after),
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

    fn within(&mut self, within: Option<usize>, name: Name<'a>) -> Option<usize> {
        let depth = within.map_or(0, |within| self.places[within].depth) + 1;
        self.places.push(Place { within, depth, name });
        Some(self.places.len() - 1)
    }

    fn wait(&mut self, within: Option<usize>, name: Name<'a>, was: &'a Type, is: &'a Type) {
        let place = self.within(within, name);
        self.waiting.push_back((place, was, is));
    }

    /// Returns the place as it is shown: `Store.list result[].size`.
    fn shown(&self, place: Option<usize>) -> String {
        let mut last = Vec::new();
        let mut at = place;
        while let Some(place) = at.map(|at| self.places[at])
            && last.len() < MAX_SHOWN
        {
            last.push(place.name);
            at = place.within;
        }
        let mut shown = self.root.clone();
        if at.is_some() {
            shown += " …";
        }
        for name in last.into_iter().rev() {
            // A write to a string does not fail.
            let _ = match name {
                Name::Elements => write!(shown, "[]"),
                Name::Part(index) => write!(shown, ".{index}"),
                Name::Field(name) => write!(shown, ".{name}"),
                Name::Arm(name) => write!(shown, "::{name}"),
            };
        }
        shown
    }

    /// Compares tuples and structs with each other too, because they have the same wire form if their parts
    /// are the same.
    fn records(&mut self, place: Option<usize>, was: &'a Type, is: &'a Type) -> Result<(), Change> {
        match (Parts::of(self.old, was), Parts::of(self.new, is)) {
            (Some(before), Some(after)) if before.len() == after.len() => {
                for index in 0..before.len() {
                    let (Some(before), Some(after)) = (before.get(index), after.get(index)) else { break };
                    self.wait(place, Name::Part(index), before, after);
                }
                Ok(())
            }
            _ => Err(self.became(place, was, is)),
        }
    }

    fn became(&self, place: Option<usize>, was: &Type, is: &Type) -> Change {
        let what = format!("{} became {}", spell(self.old, was), spell(self.new, is));
        breaking(self.shown(place), what)
    }

    fn named(&mut self, place: Option<usize>, was: u32, is: u32) -> Result<(), Change> {
        if self.known.same.contains(&(was, is)) || !self.met.insert((was, is)) {
            return Ok(());
        }
        let (old, new) = (self.old, self.new);
        let (Some(before), Some(after)) = (old.get(was), new.get(is)) else {
            return Err(breaking(self.shown(place), "refers to no type".into()));
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
                Err(breaking(self.shown(place), what))
            }
        }
    }

    fn fields(&mut self, place: Option<usize>, was: &'a [Field], is: &'a [Field]) -> Result<(), Change> {
        let common = was.len().min(is.len());
        self.common(place, &was[..common], &is[..common]);
        if let Some(gone) = was.get(common) {
            let place = self.within(place, Name::Field(&gone.name));
            return Err(breaking(self.shown(place), "is gone".into()));
        }
        if let Some(added) = is.get(common) {
            let what = "is new, and the struct is not extensible".into();
            let place = self.within(place, Name::Field(&added.name));
            return Err(breaking(self.shown(place), what));
        }
        Ok(())
    }

    /// Compares the fields of extensible structs, in which fields may be added or removed at the end.
    fn extensible(&mut self, place: Option<usize>, was: &'a [Field], is: &'a [Field]) -> Result<(), Change> {
        let common = was.len().min(is.len());
        self.common(place, &was[..common], &is[..common]);
        if let Some((before, _)) =
            was.iter().zip(is).find(|(before, after)| before.defaulted != after.defaulted)
        {
            let what = "has a default in one version only".into();
            let place = self.within(place, Name::Field(&before.name));
            return Err(breaking(self.shown(place), what));
        }
        for gone in &was[common..] {
            let place = self.within(place, Name::Field(&gone.name));
            if !gone.defaulted {
                let what = "is gone, and the old version has no default for it".into();
                return Err(breaking(self.shown(place), what));
            }
            self.fine(place, "is gone; the old version has a default for it".into());
        }
        for added in &is[common..] {
            let place = self.within(place, Name::Field(&added.name));
            if !added.defaulted {
                return Err(breaking(self.shown(place), "is new; mark it #[xdr(default)]".into()));
            }
            self.fine(place, "is new, with a default".into());
        }
        Ok(())
    }

    /// Compares the fields at the same positions. The names of fields do not matter on the wire.
    fn common(&mut self, place: Option<usize>, was: &'a [Field], is: &'a [Field]) {
        for (before, after) in was.iter().zip(is) {
            let place = self.within(place, Name::Field(&before.name));
            if before.name != after.name {
                self.fine(place, format!("is named {} now", after.name));
            }
            self.waiting.push_back((place, &before.ty, &after.ty));
        }
    }

    fn arms(&mut self, place: Option<usize>, was: &'a [Arm], is: &'a [Arm]) -> Result<(), Change> {
        if !self.take(was.len() + is.len()) {
            return Ok(());
        }
        let before = super::first_of_each(was.iter().map(|arm| (arm.tag, arm)));
        let after: HashMap<Option<i32>, &'a Arm> = super::first_of_each(is.iter().map(|arm| (arm.tag, arm)));
        for before in was {
            let place = self.within(place, Name::Arm(&before.name));
            let Some(after) = after.get(&before.tag) else {
                return Err(breaking(self.shown(place), format!("variant {} is gone", tag(before))));
            };
            if before.name != after.name {
                self.fine(place, format!("is named {} now", after.name));
            }
            self.fields(place, &before.fields, &after.fields)?;
        }
        match is.iter().find(|after| !before.contains_key(&after.tag)) {
            Some(added) => {
                let what = format!("variant {} is new: the old version cannot decode it", tag(added));
                let place = self.within(place, Name::Arm(&added.name));
                Err(breaking(self.shown(place), what))
            }
            None => Ok(()),
        }
    }

    fn fine(&mut self, place: Option<usize>, what: String) {
        self.fine.push(Change { breaking: false, place: self.shown(place), what });
    }
}

/// The parts of a tuple, or of a struct that is not extensible.
enum Parts<'a> {
    Tuple(&'a [Type]),
    Struct(&'a [Field]),
}

impl<'a> Parts<'a> {
    fn of(types: &'a Types, ty: &'a Type) -> Option<Parts<'a>> {
        match ty {
            Type::Tuple(parts) => Some(Parts::Tuple(parts)),
            Type::Named(place) => match &types.get(*place)?.body {
                Body::Struct { fields, extensible: false } => Some(Parts::Struct(fields)),
                _ => None,
            },
            _ => None,
        }
    }

    fn len(&self) -> usize {
        match self {
            Parts::Tuple(parts) => parts.len(),
            Parts::Struct(fields) => fields.len(),
        }
    }

    fn get(&self, index: usize) -> Option<&'a Type> {
        match self {
            Parts::Tuple(parts) => parts.get(index),
            Parts::Struct(fields) => fields.get(index).map(|field| &field.ty),
        }
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
