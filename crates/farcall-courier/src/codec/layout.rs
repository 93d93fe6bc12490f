//! Makes the shapes of all types of an interface, and refuses what Courier cannot say.

use std::collections::HashMap;
use std::fmt;

use farcall::idl::{self, Interface};
use farcall::xdr::schema::{self, Body, Type, Types};

use super::Booleans;
use super::shape::{Arm, Choice, Field, Node, Place, Shape};

/// The most bytes of a STRING and the most elements of a SEQUENCE.
pub(super) const MAX_COUNT: u32 = 65_535;

/// The types of an interface, in the form in which the transcoder uses them.
#[derive(Debug)]
pub struct Layout {
    pub(super) nodes: Vec<Node>,
    pub(super) booleans: Booleans,
    /// The procedures in the order of their numbers.
    procedures: Vec<Procedure>,
}

/// A procedure of a [`Layout`].
#[derive(Clone, Debug)]
pub struct Procedure {
    number: u16,
    name: String,
    arguments: Values,
    result: Values,
    errors: Option<Values>,
    /// The indices of the arguments that describe bulk data.
    pub(super) descriptors: Vec<usize>,
}

/// The arguments, the result or the errors of a procedure. To be used with the [`Layout`] that it came from.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    pub(super) at: Place,
    /// What error messages call the value.
    pub(super) name: &'static str,
}

/// Why Courier cannot carry the calls of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    interface: String,
    /// The procedure and its part, such as `lookup, argument user`; empty if the interface itself is refused.
    part: String,
    why: String,
}

impl Layout {
    /// Makes the layout of an interface for the standard's encoding.
    ///
    /// # Errors
    /// Courier cannot say a type of the interface: numbers of 8 or 64 bits, floating-point numbers, opaque
    /// data, optional data, linked lists, extensible structs, a union with a default arm or with a number
    /// above 65,535, or a string or list that is declared longer than 65,535. It has no signals, no streams
    /// and no one-way calls. The numbers of procedures have 16 bits. A declared exception must be an enum,
    /// because each error has a number.
    pub fn new(interface: &Interface) -> Result<Layout, Refusal> {
        Layout::with(interface, Booleans::Words)
    }

    /// Makes the layout of an interface as [`Layout::new`] does, with this encoding of BOOLEAN.
    ///
    /// # Errors
    /// The errors of [`Layout::new`].
    pub fn with(interface: &Interface, booleans: Booleans) -> Result<Layout, Refusal> {
        let refuse = |part: String, why: String| Refusal { interface: interface.name.clone(), part, why };
        if !interface.signals.is_empty() {
            return Err(refuse(String::new(), "it has signals, and Courier has none".into()));
        }
        let roots: Vec<Type> = interface.procedures.iter().flat_map(roots).collect();
        interface.types.check(&roots).map_err(|why| refuse(String::new(), why.to_string()))?;
        let (nodes, known, met, path) = Default::default();
        let mut compiler = Compiler { types: &interface.types, nodes, known, met, made: 0, path };
        let mut procedures = Vec::new();
        for procedure in &interface.procedures {
            let made = compiler.procedure(procedure).map_err(|(part, why)| refuse(part, why))?;
            procedures.push(made);
        }
        procedures.sort_by_key(|procedure| procedure.number);
        let mut nodes = compiler.nodes;
        measure(&mut nodes);
        Ok(Layout { nodes, booleans, procedures })
    }

    /// Returns the procedure with this number.
    pub fn procedure(&self, number: u16) -> Option<&Procedure> {
        let place = self.procedures.binary_search_by_key(&number, |procedure| procedure.number).ok()?;
        self.procedures.get(place)
    }

    /// Returns the name of an error that a procedure declares.
    pub fn error_name(&self, procedure: &Procedure, number: u16) -> Option<&str> {
        let Shape::Choice(choice) = &self.nodes.get(procedure.errors?.at as usize)?.shape else {
            return None;
        };
        Some(&choice.arm(number)?.name)
    }

    pub(super) fn node(&self, at: Place) -> &Node {
        &self.nodes[at as usize]
    }
}

impl Procedure {
    /// Returns the procedure's number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the procedure's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the arguments.
    pub fn arguments(&self) -> Values {
        self.arguments
    }

    /// Returns the result.
    pub fn result(&self) -> Values {
        self.result
    }

    /// Returns the errors that the procedure declares. A value is the number of an error, and its arguments.
    pub fn errors(&self) -> Option<Values> {
        self.errors
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { interface, part, why } = self;
        let dot = if part.is_empty() { "" } else { "." };
        write!(f, "Courier cannot carry the calls of {interface}{dot}{part}: {why}")
    }
}

impl std::error::Error for Refusal {}

/// Returns all types of a procedure.
fn roots(procedure: &idl::Procedure) -> impl Iterator<Item = Type> {
    let arguments = procedure.arguments.iter().map(|argument| &argument.ty);
    arguments.chain([&procedure.result, &procedure.exception]).cloned()
}

/// Sets the fewest words of each node's values.
fn measure(nodes: &mut [Node]) {
    let mut known = vec![None; nodes.len()];
    for at in 0..nodes.len() {
        nodes[at].least_words = least_words(nodes, at as Place, &mut known);
    }
}

/// Returns the fewest words of a node's values. A type contains itself only within a SEQUENCE or a CHOICE,
/// where this recursion ends; `Types::check` bounds its depth.
fn least_words(nodes: &[Node], at: Place, known: &mut [Option<usize>]) -> usize {
    if let Some(known) = known[at as usize] {
        return known;
    }
    match &nodes[at as usize].shape {
        Shape::Array { element, .. } => {
            least_words(nodes, *element, known);
        }
        Shape::Record(fields) => fields.iter().for_each(|field| {
            least_words(nodes, field.at, known);
        }),
        _ => {}
    }
    let words = nodes[at as usize].shape.least_words(|inner| known[inner as usize].unwrap_or(0));
    known[at as usize] = Some(words);
    words
}

/// Makes the nodes of types. Named types are put on a list and made one after the other: a description can
/// come from a peer, and a recursion into its named types could be as deep as the description is long.
struct Compiler<'a> {
    types: &'a Types,
    nodes: Vec<Node>,
    /// The nodes of the named types that have one already.
    known: HashMap<u32, Place>,
    /// The named types in the order in which they were met.
    met: Vec<Met>,
    /// How many of `met` are made.
    made: usize,
    /// The way to the present part from the type that is being made.
    path: Vec<String>,
}

/// A named type, and where it was met.
struct Met {
    place: u32,
    at: Place,
    /// The index in `met` of the type in which it was met; `None` for a type of a procedure.
    within: Option<usize>,
    /// The way to the type from there.
    step: String,
}

impl Compiler<'_> {
    /// Returns the way to the part that is being made.
    fn part(&self, within: Option<usize>) -> String {
        let mut steps = vec![self.path.concat()];
        let mut within = within;
        while let Some(met) = within.and_then(|index| self.met.get(index)) {
            steps.push(met.step.clone());
            within = met.within;
        }
        steps.reverse();
        steps.concat()
    }

    /// Makes a procedure with all types that it uses.
    fn procedure(&mut self, procedure: &idl::Procedure) -> Result<Procedure, (String, String)> {
        self.path = vec![procedure.name.clone()];
        let made = self.own_types(procedure).map_err(|why| (self.part(None), why))?;
        while let Some(Met { place, at, .. }) = self.met.get(self.made) {
            let (place, at, within) = (*place, *at, Some(self.made));
            self.path.clear();
            self.nodes[at as usize].shape =
                self.definition(place, within).map_err(|why| (self.part(within), why))?;
            self.made += 1;
        }
        Ok(made)
    }

    fn own_types(&mut self, procedure: &idl::Procedure) -> Result<Procedure, String> {
        let number = u16::try_from(procedure.number)
            .map_err(|_| format!("its number is {}, and 65535 is the greatest", procedure.number))?;
        if procedure.oneway {
            return Err("it is one-way, and in Courier each call has a reply".into());
        }
        if procedure.has_streams() {
            return Err("it has a stream, and Courier has none".into());
        }
        let describes = |argument: &idl::Argument| is_descriptor(self.types, &argument.ty);
        let descriptors = procedure.arguments.iter().enumerate();
        let descriptors = descriptors.filter(|(_, argument)| describes(argument)).map(|(index, _)| index);
        let descriptors = descriptors.collect();
        let mut arguments = Vec::new();
        for argument in &procedure.arguments {
            let at = self.at(format!(", argument {}", argument.name), &argument.ty, None)?;
            arguments.push(Field { name: argument.name.as_str().into(), at });
        }
        let arguments = self.add(Shape::Record(arguments.into()));
        let result = self.at(", result".into(), &procedure.result, None)?;
        let errors = match &procedure.exception {
            Type::Void => None,
            exception => Some(self.at(", exception".into(), exception, None)?),
        };
        if errors.is_some() && !self.is_union(&procedure.exception) {
            self.path.push(", exception".into());
            return Err("it is not an enum, and in Courier each error has a number".into());
        }
        Ok(Procedure {
            number,
            name: procedure.name.clone(),
            arguments: Values { at: arguments, name: "arguments" },
            result: Values { at: result, name: "result" },
            errors: errors.map(|at| Values { at, name: "error" }),
            descriptors,
        })
    }

    fn is_union(&self, ty: &Type) -> bool {
        let Type::Named(place) = ty else { return false };
        self.types.get(*place).is_some_and(|definition| matches!(definition.body, Body::Union { .. }))
    }

    /// Makes the type of a part, to which `step` leads from the present one.
    fn at(&mut self, step: String, ty: &Type, within: Option<usize>) -> Result<Place, String> {
        self.path.push(step);
        let at = self.ty(ty, within)?;
        self.path.pop();
        Ok(at)
    }

    fn ty(&mut self, ty: &Type, within: Option<usize>) -> Result<Place, String> {
        let shape = match ty {
            Type::Void => Shape::Record(Box::default()),
            Type::Bool => Shape::Boolean,
            Type::U16 => Shape::Cardinal,
            Type::I16 => Shape::Integer,
            Type::U32 | Type::I32 => Shape::Long,
            Type::String { max } => Shape::String { max: bound(*max)? },
            Type::Array { size, element } => {
                let element = self.at("[]".into(), element, within)?;
                Shape::Array { count: *size as usize, element }
            }
            Type::List { max, element } => {
                let element = self.at("[]".into(), element, within)?;
                Shape::Sequence { max: bound(*max)?, element }
            }
            Type::Tuple(types) => {
                let mut fields = Vec::new();
                for (index, ty) in types.iter().enumerate() {
                    let at = self.at(format!(".{index}"), ty, within)?;
                    fields.push(Field { name: index.to_string().into(), at });
                }
                Shape::Record(fields.into())
            }
            Type::Named(place) => return Ok(self.named(*place, within)),
            Type::I8 | Type::U8 => return Err("a number of 8 bits; the smallest ones have 16".into()),
            Type::I64 | Type::U64 => return Err("a number of 64 bits; the largest ones have 32".into()),
            Type::F32 | Type::F64 => return Err("Courier has no floating-point numbers".into()),
            Type::Opaque { .. } | Type::Bytes { .. } => {
                return Err("Courier has no opaque data; a list of u16 is a SEQUENCE OF UNSPECIFIED".into());
            }
            Type::Optional(_) => return Err("Courier has no optional data; an enum can say it".into()),
            Type::Chain(_) => return Err("Courier has no linked lists".into()),
        };
        Ok(self.add(shape))
    }

    /// Returns the node of a named type. If the type was not met before, it is made later.
    fn named(&mut self, place: u32, within: Option<usize>) -> Place {
        if let Some(known) = self.known.get(&place) {
            return *known;
        }
        let at = self.add(Shape::Record(Box::default()));
        self.known.insert(place, at);
        self.met.push(Met { place, at, within, step: self.path.concat() });
        at
    }

    fn definition(&mut self, place: u32, within: Option<usize>) -> Result<Shape, String> {
        let Some(definition) = self.types.get(place) else {
            return Err("the description lacks a type".into());
        };
        match &definition.body {
            Body::Struct { extensible: true, .. } => {
                Err(format!("{} is extensible, and records are not", definition.name))
            }
            Body::Struct { fields, .. } => Ok(Shape::Record(self.fields(fields, within)?)),
            Body::Union { arms } => Ok(Shape::Choice(self.arms(&definition.name, arms, within)?)),
        }
    }

    fn fields(&mut self, fields: &[schema::Field], within: Option<usize>) -> Result<Box<[Field]>, String> {
        let mut made = Vec::new();
        for field in fields {
            let at = self.at(format!(".{}", field.name), &field.ty, within)?;
            made.push(Field { name: field.name.as_str().into(), at });
        }
        Ok(made.into())
    }

    fn arms(&mut self, name: &str, arms: &[schema::Arm], within: Option<usize>) -> Result<Choice, String> {
        let mut made = Vec::new();
        for arm in arms {
            let Some(tag) = arm.tag else {
                return Err(format!("{name} has a default arm, and a CHOICE has none"));
            };
            let designator = u16::try_from(tag)
                .map_err(|_| format!("{name}::{} is {tag}, and the numbers are 0 to 65535", arm.name))?;
            self.path.push(format!(".{}", arm.name));
            let fields = self.fields(&arm.fields, within)?;
            self.path.pop();
            let fields = self.add(Shape::Record(fields));
            made.push(Arm { designator, name: arm.name.as_str().into(), fields });
        }
        Ok(Choice::new(made))
    }

    fn add(&mut self, shape: Shape) -> Place {
        self.nodes.push(Node { shape, least_words: 0 });
        // A description has fewer than 2^32 types, because it has fewer bytes.
        (self.nodes.len() - 1) as Place
    }
}

/// Returns whether a type is `BulkData.Descriptor`: a CHOICE of null(0), immediate(1), and perhaps others.
fn is_descriptor(types: &Types, ty: &Type) -> bool {
    const DESIGNATORS: [(i32, &str); 2] = [(0, "null"), (1, "immediate")];
    let Type::Named(place) = ty else { return false };
    let Some(Body::Union { arms }) = types.get(*place).map(|definition| &definition.body) else {
        return false;
    };
    DESIGNATORS.iter().all(|(tag, name)| {
        let arm = arms.iter().find(|arm| arm.tag == Some(*tag));
        arm.is_some_and(|arm| arm.name.eq_ignore_ascii_case(name) && arm.fields.is_empty())
    })
}

/// Returns the greatest length of a string or sequence whose declared maximum is `max`; `u32::MAX` declares
/// none.
fn bound(max: u32) -> Result<usize, String> {
    match max {
        u32::MAX => Ok(MAX_COUNT as usize),
        max if max <= MAX_COUNT => Ok(max as usize),
        max => Err(format!("its declared maximum is {max}, and {MAX_COUNT} is the greatest")),
    }
}
