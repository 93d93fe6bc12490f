//! Decides how a file's types look in Rust: names, lists, boxes. The generator and the model use the
//! same plan.

mod boxes;
mod docs;
mod graph;
pub mod names;
mod traits;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use farcall_base::work;

use self::names::{Scope, camel, screaming, snake};
use super::Config;
use super::tree::{self, Body, Declared, Language, Specification};

pub use boxes::shapes;
pub use graph::stripped;
pub use traits::{Method, Trait, by_value};

/// The longest chain of types in which each refers to the next. It bounds recursion over types here and in
/// rustc.
const MAX_DEPTH: usize = 100;

/// The plan of a whole file.
pub struct Plan {
    pub constants: Vec<Constant>,
    /// One item for each definition of the tree, in its order, then one for each foreign type.
    pub items: Vec<Item>,
    /// One trait for each version of each program.
    pub traits: Vec<Trait>,
    /// The enumerations that are used as error codes.
    pub reasons: BTreeSet<usize>,
    /// For each definition of the tree, the type that its name alone means.
    pub alone: Vec<Shape>,
    /// The names of the modules in Rust.
    pub modules: Vec<String>,
}

/// A constant.
pub struct Constant {
    /// The index in [`Plan::modules`], or `None` for the file itself.
    pub module: Option<usize>,
    pub named: Named,
    pub value: tree::Value,
    /// The type, if the language declares one.
    pub shape: Option<Shape>,
}

/// The name and the documentation of something.
pub struct Named {
    /// The name in Rust.
    pub name: String,
    /// The name in the file.
    pub spelled: String,
    pub docs: String,
}

impl Named {
    /// Claims a free name in a scope. `case` converts the file's spelling to that of Rust.
    fn new(scope: &mut Scope, case: fn(&str) -> String, named: &tree::Named) -> Named {
        let tree::Named { name, docs } = named;
        Named { name: scope.claim(&case(name), name), spelled: name.clone(), docs: docs::clean(docs) }
    }
}

/// A type of the file, for which Rust is generated.
pub struct Item {
    /// The index in [`Plan::modules`], or `None` for the file itself.
    pub module: Option<usize>,
    pub named: Named,
    pub kind: Kind,
}

pub enum Kind {
    /// Another name for a type.
    Alias(Shape),
    /// Another name for a type that contains this name. A Rust alias cannot be recursive, so this becomes a
    /// struct with one unnamed field.
    Newtype(Shape),
    Enumeration(Vec<Enumerator>),
    Struct(Vec<Member>),
    Union(Union),
    /// The errors that a procedure reports.
    Exception(Vec<Raised>),
    /// A type that is declared elsewhere, with its Rust type if the user has given one.
    Foreign(Option<String>),
}

/// A variant without fields, or a second name for the value of an earlier variant.
pub struct Enumerator {
    pub named: Named,
    pub value: i32,
    /// The earlier variant with the same value, if there is one.
    pub alias_of: Option<usize>,
}

/// An error, with its arguments.
pub struct Raised {
    pub named: Named,
    pub value: i32,
    pub members: Vec<Member>,
}

pub struct Member {
    pub named: Named,
    pub shape: Shape,
}

pub struct Union {
    pub discriminant: Discriminant,
    /// The file's name of the discriminant.
    pub switch: String,
    /// The variants. If there is one for all other values, it comes last.
    pub variants: Vec<Variant>,
    /// If the union means either a result or an error code, the index of the variant with the result.
    pub status: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discriminant {
    Bool,
    I32,
    U32,
    /// The index of the item.
    Enumeration(usize),
}

/// A variant of a union.
pub struct Variant {
    pub named: Named,
    /// The value that selects the variant, or `None` for the variant for all other values.
    pub label: Option<Label>,
    /// The content besides the discriminant.
    pub shape: Option<Shape>,
}

#[derive(Clone, Copy)]
pub struct Label {
    pub value: i32,
    /// The enumerator of that value, if the enumeration has one.
    pub enumerator: Option<usize>,
}

/// A Rust type, and its wire form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number, `bool`, or `void`.
    Scalar(tree::Type),
    /// An item.
    Named(usize),
    /// The first node of a linked list, which is not optional, with the nodes after it.
    Linked(usize),
    /// A linked list, given by a pointer to its first node.
    Chain(usize),
    Boxed(Box<Shape>),
    Optional(Box<Shape>),
    Array(Box<Shape>, u32),
    List(Box<Shape>, u32),
    Opaque(u32),
    Bytes(u32),
    String(u32),
    /// A stream of bytes, as an argument or a whole result.
    Bulk,
}

/// The reason why no Rust can be generated from a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub(crate) String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl Plan {
    pub fn new(specification: &Specification, config: &Config) -> Result<Plan, Refused> {
        let mut scopes = Scopes::new(specification);
        // First, because later steps follow chains of types.
        let cyclic = graph::check(specification)?;
        let mut planner = Planner::new(specification, config);
        let mut items = planner.items(&mut scopes, &cyclic);
        boxes::insert(&mut items);
        let traits = traits::plan(&mut planner, &items, &mut scopes);
        let constants =
            specification.constants.iter().map(|tree::Constant { module, named, value }| Constant {
                module: *module,
                named: Named::new(scopes.of(*module), screaming, named),
                value: value.clone(),
                shape: match value {
                    tree::Value::Typed { declared, .. } => Some(planner.shape(declared)),
                    tree::Value::Integer(_) | tree::Value::Text(_) => None,
                },
            });
        let constants = constants.collect();
        let alone = planner.lists.iter().enumerate().map(|(item, list)| match list {
            true => Shape::Linked(item),
            false => Shape::Named(item),
        });
        let alone = alone.collect();
        Ok(Plan { constants, traits, reasons: reasons(&items), alone, items, modules: scopes.modules })
    }

    /// Returns the shape with all aliases at its head resolved.
    pub fn resolved<'p>(&'p self, shape: &'p Shape) -> &'p Shape {
        resolved(&self.items, shape)
    }

    /// Returns the declared maximum of the outermost string, opaque data or list, for `#[xdr(max)]`.
    pub fn max(&self, shape: &Shape) -> Option<u32> {
        match self.resolved(shape) {
            Shape::Bytes(max) | Shape::String(max) | Shape::List(_, max) => {
                Some(*max).filter(|max| *max != u32::MAX)
            }
            Shape::Optional(inner) | Shape::Boxed(inner) => self.max(inner),
            _ => None,
        }
    }
}

/// Returns the shape with all aliases at its head resolved. The loop ends, because every circle of aliases
/// contains a newtype.
pub fn resolved<'p>(items: &'p [Item], mut shape: &'p Shape) -> &'p Shape {
    while let Shape::Named(item) = shape {
        match &items[*item].kind {
            Kind::Alias(target) => shape = target,
            _ => break,
        }
    }
    shape
}

/// The names that are taken in the file itself and in each module.
pub struct Scopes {
    own: Scope,
    within: Vec<Scope>,
    /// The names of the modules.
    modules: Vec<String>,
}

impl Scopes {
    fn new(specification: &Specification) -> Scopes {
        let mut own = Scope::default();
        let modules = &specification.modules;
        let names = modules.iter().map(|module| own.claim(&snake(&module.name), &module.name)).collect();
        Scopes { own, within: modules.iter().map(|_| Scope::default()).collect(), modules: names }
    }

    fn of(&mut self, module: Option<usize>) -> &mut Scope {
        module.map_or(&mut self.own, |module| &mut self.within[module])
    }
}

/// The state of making the items of a tree.
pub struct Planner<'t> {
    specification: &'t Specification,
    config: &'t Config,
    /// Which structs are nodes of linked lists.
    lists: Vec<bool>,
    /// The item of each foreign type, after the items of the tree.
    foreigns: BTreeMap<&'t str, usize>,
    /// The index of the first enumerator of each value, of the enumerations that unions use.
    firsts: HashMap<usize, HashMap<i32, usize>>,
}

impl<'t> Planner<'t> {
    fn new(specification: &'t Specification, config: &'t Config) -> Planner<'t> {
        let lists =
            (0..specification.types.len()).map(|index| graph::is_list(specification, index)).collect();
        Planner { specification, config, lists, foreigns: BTreeMap::new(), firsts: HashMap::new() }
    }

    /// Makes the items. `cyclic` says which types are aliases that contain themselves.
    fn items(&mut self, scopes: &mut Scopes, cyclic: &[bool]) -> Vec<Item> {
        let types = &self.specification.types;
        let name = |ty: &tree::Definition| Named::new(scopes.of(ty.module), camel, &ty.named);
        let names: Vec<Named> = types.iter().map(name).collect();
        let item = |(index, named): (usize, Named)| Item {
            module: types[index].module,
            named,
            kind: self.kind(index, cyclic[index]),
        };
        let mut items: Vec<Item> = names.into_iter().enumerate().map(item).collect();
        // This finds the foreign types that only procedures mention.
        for procedure in
            self.specification.programs.iter().flat_map(|p| &p.versions).flat_map(|v| &v.procedures)
        {
            self.shape(&procedure.result);
            procedure.arguments.iter().for_each(|argument| drop(self.shape(&argument.declared)));
        }
        let mut foreigns: Vec<(&str, usize)> =
            self.foreigns.iter().map(|(name, item)| (*name, *item)).collect();
        foreigns.sort_by_key(|(_, item)| *item);
        for (spelled, _) in foreigns {
            let path = self.config.externs.get(spelled).cloned();
            let name =
                if path.is_some() { spelled.into() } else { scopes.own.claim(&camel(spelled), spelled) };
            let docs = format!(
                "`{spelled}`, which is declared elsewhere. It has no values unless `extern_type` says what it is."
            );
            let named = Named { name, spelled: spelled.into(), docs };
            items.push(Item { module: None, named, kind: Kind::Foreign(path) });
        }
        items
    }

    fn kind(&mut self, index: usize, cyclic: bool) -> Kind {
        let specification = self.specification;
        match &specification.types[index].body {
            Body::Alias(declared) if cyclic => Kind::Newtype(self.shape(declared)),
            Body::Alias(declared) => Kind::Alias(self.shape(declared)),
            Body::Enum(enumerators) => Kind::Enumeration(enumeration(enumerators)),
            Body::Struct(fields) => {
                let kept = fields.len() - usize::from(self.lists[index]);
                Kind::Struct(self.members(&fields[..kept]))
            }
            Body::Union(union) => match option(specification, union) {
                Some(field) if !cyclic => Kind::Alias(Shape::Optional(Box::new(self.shape(&field.declared)))),
                Some(field) => Kind::Newtype(Shape::Optional(Box::new(self.shape(&field.declared)))),
                None => Kind::Union(self.union(union)),
            },
            Body::Exception(errors) => Kind::Exception(self.errors(errors)),
        }
    }

    fn members(&mut self, fields: &'t [tree::Field]) -> Vec<Member> {
        let mut scope = Scope::default();
        let member = |field: &'t tree::Field| Member {
            shape: self.shape(&field.declared),
            named: Named::new(&mut scope, snake, &field.named),
        };
        fields.iter().map(member).collect()
    }

    fn errors(&mut self, errors: &'t [tree::Raised]) -> Vec<Raised> {
        let mut scope = Scope::default();
        let error = |error: &'t tree::Raised| Raised {
            named: Named::new(&mut scope, camel, &error.named),
            value: error.value,
            members: self.members(&error.fields),
        };
        errors.iter().map(error).collect()
    }

    fn union(&mut self, union: &'t tree::Union) -> Union {
        let discriminant = self.discriminant(&union.discriminant);
        let mut scope = Scope::default();
        let mut variants = Vec::new();
        let mut add = |this: &mut Self, (wish, name, spelled): (&str, &str, String), label, docs, field| {
            let named = Named { name: scope.claim(wish, name), spelled, docs: docs::of_arm(docs, field) };
            let shape = field.map(|field: &'t tree::Field| this.shape(&field.declared));
            variants.push(Variant { named, label, shape });
        };
        for arm in &union.arms {
            for tree::Label { name, value } in &arm.labels {
                let enumerator = self.enumerator(discriminant, *value);
                let (spelled, name) = self.label(discriminant, name.as_deref(), *value);
                let label = Label { value: *value, enumerator };
                add(self, (&camel(&name), &name, spelled), Some(label), &arm.docs, arm.field.as_ref());
            }
        }
        if let Some(field) = &union.default {
            add(self, ("Default", "default", "default".into()), None, "", field.as_ref());
        }
        let status = self.status(union, discriminant, &variants);
        Union { discriminant, switch: union.switch.name.clone(), variants, status }
    }

    fn discriminant(&self, ty: &tree::Type) -> Discriminant {
        match graph::stripped(self.specification, ty) {
            tree::Type::Bool => Discriminant::Bool,
            tree::Type::U32 => Discriminant::U32,
            tree::Type::Defined(item) if matches!(self.specification.types[*item].body, Body::Enum(_)) => {
                Discriminant::Enumeration(*item)
            }
            _ => Discriminant::I32,
        }
    }

    fn enumerators(&self, discriminant: Discriminant) -> &'t [tree::Enumerator] {
        match discriminant {
            Discriminant::Enumeration(item) => match &self.specification.types[item].body {
                Body::Enum(enumerators) => enumerators,
                _ => &[],
            },
            _ => &[],
        }
    }

    /// Returns the first enumerator of that value.
    fn enumerator(&mut self, discriminant: Discriminant, value: i32) -> Option<usize> {
        let Discriminant::Enumeration(item) = discriminant else { return None };
        let enumerators = self.enumerators(discriminant);
        self.firsts.entry(item).or_insert_with(|| first_of_each_value(enumerators)).get(&value).copied()
    }

    /// Returns a label as the file spells it, or its number if it has no name, and the name of its variant.
    /// For a number the name of the variant is made up.
    fn label(&mut self, discriminant: Discriminant, name: Option<&str>, value: i32) -> (String, String) {
        let known = self.enumerator(discriminant, value);
        let known = known.and_then(|known| self.enumerators(discriminant).get(known));
        let name = name.or(known.map(|enumerator| enumerator.named.name.as_str()));
        match (discriminant, name) {
            (Discriminant::Bool, _) if value == 0 => ("FALSE".into(), "False".into()),
            (Discriminant::Bool, _) => ("TRUE".into(), "True".into()),
            (_, Some(name)) => (name.into(), name.into()),
            (Discriminant::U32, None) => {
                let value = value.cast_unsigned();
                (value.to_string(), format!("Case{value}"))
            }
            (_, None) if value < 0 => (value.to_string(), format!("CaseMinus{}", value.unsigned_abs())),
            (_, None) => (value.to_string(), format!("Case{value}")),
        }
    }

    /// Returns the index of the variant that 0 selects, if the union means either a result or an error code.
    /// The names of that variant, of the discriminant or of its type show it.
    fn status(&self, union: &tree::Union, discriminant: Discriminant, variants: &[Variant]) -> Option<usize> {
        // Courier and RPC2 have declared errors instead of error codes.
        if self.specification.language != Language::Onc {
            return None;
        }
        let is_zero = |variant: &Variant| variant.label.is_some_and(|label| label.value == 0);
        let success = variants.iter().position(is_zero)?;
        let of_type = match discriminant {
            Discriminant::Bool => return None,
            Discriminant::Enumeration(item) => self.specification.types[item].named.name.as_str(),
            _ => "",
        };
        let says = |name: &str, words: &[&str]| {
            let name = name.to_ascii_lowercase();
            words.iter().any(|word| name.contains(word))
        };
        let reasons = ["stat", "err", "res", "ret"];
        let good = says(&variants[success].named.name, &["ok", "succ"]);
        (good || says(&union.switch.name, &reasons) || says(of_type, &reasons)).then_some(success)
    }

    /// Returns the shape of a declaration.
    pub fn shape(&mut self, declared: &'t Declared) -> Shape {
        let element = |shape| Box::new(shape);
        match declared {
            Declared::One(ty) => self.one(ty),
            Declared::Optional(ty) => match self.list_node(ty) {
                Some(item) => Shape::Chain(item),
                None => Shape::Optional(element(self.one(ty))),
            },
            Declared::Array { element: ty, size } => Shape::Array(element(self.one(ty)), *size),
            Declared::List { element: ty, max } => Shape::List(element(self.one(ty)), *max),
            Declared::Opaque { size } => Shape::Opaque(*size),
            Declared::Bytes { max } => Shape::Bytes(*max),
            Declared::String { max } => Shape::String(*max),
            Declared::Bulk => Shape::Bulk,
        }
    }

    fn one(&mut self, ty: &'t tree::Type) -> Shape {
        match ty {
            tree::Type::Defined(item) if self.lists[*item] => Shape::Linked(*item),
            tree::Type::Defined(item) => Shape::Named(*item),
            tree::Type::Foreign(name) => {
                let next = self.specification.types.len() + self.foreigns.len();
                Shape::Named(*self.foreigns.entry(name).or_insert(next))
            }
            scalar => Shape::Scalar(scalar.clone()),
        }
    }

    /// Returns the item of a linked list's node, if the type is one, perhaps under another name.
    fn list_node(&self, ty: &tree::Type) -> Option<usize> {
        match graph::stripped(self.specification, ty) {
            tree::Type::Defined(item) if self.lists[*item] => Some(*item),
            _ => None,
        }
    }
}

fn reasons(items: &[Item]) -> BTreeSet<usize> {
    let of_item = |item: &Item| match &item.kind {
        Kind::Union(Union { status: Some(_), discriminant: Discriminant::Enumeration(reason), .. }) => {
            Some(*reason)
        }
        _ => None,
    };
    items.iter().filter_map(of_item).collect()
}

fn enumeration(enumerators: &[tree::Enumerator]) -> Vec<Enumerator> {
    let mut scope = Scope::default();
    let firsts = first_of_each_value(enumerators);
    let each = enumerators.iter().enumerate().map(|(index, enumerator)| Enumerator {
        named: Named::new(&mut scope, camel, &enumerator.named),
        value: enumerator.value,
        alias_of: firsts.get(&enumerator.value).copied().filter(|first| *first < index),
    });
    each.collect()
}

/// Returns the index of the first enumerator of each value.
fn first_of_each_value(enumerators: &[tree::Enumerator]) -> HashMap<i32, usize> {
    let mut firsts = HashMap::new();
    for (index, enumerator) in enumerators.iter().enumerate() {
        work::step();
        firsts.entry(enumerator.value).or_insert(index);
    }
    firsts
}

/// Returns the content of a union that has a field for TRUE and none for FALSE. On the wire, such a union is
/// the same as optional data.
fn option<'t>(specification: &Specification, union: &'t tree::Union) -> Option<&'t tree::Field> {
    let arm = |value| union.arms.iter().find(|arm| arm.labels.iter().any(|label| label.value == value));
    let [one] = arm(1)?.labels.as_slice() else { return None };
    let nothing = match arm(0) {
        Some(arm) => arm.field.is_none(),
        None => matches!(union.default, Some(None)),
    };
    let boolean = *graph::stripped(specification, &union.discriminant) == tree::Type::Bool && one.value == 1;
    arm(1)?.field.as_ref().filter(|_| boolean && nothing)
}
