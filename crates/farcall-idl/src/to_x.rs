//! An interface written in Rust as an `.x` file, so that others make stubs of it: rpcgen for C, and whoever reads the language.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use farcall_xdr::schema::{Arm, Body, Definition, Field, Type, Types};

use crate::{Interface, Procedure, spell_program};

/// Words that are no names in an `.x` file, or in the C that rpcgen makes of it.
const KEYWORDS: &str = "asm auto bool break case char class const continue default delete do double else enum extern float for \
    goto hyper if inline int long namespace new opaque program quadruple register return short signed sizeof static string \
    struct switch this typedef union unsigned version void volatile while";

/// The `.x` file of an interface: its types, and one version of one program.
///
/// Wire forms are kept, names as far as C allows: what stands under a type in Rust is `Type_name` here, procedures are
/// `INTERFACE_NAME`. A declared exception has no place in an `.x` file and is mentioned only; an extensible struct is
/// opaque data.
///
/// ```
/// use farcall_idl::{Interface, to_x};
/// let mut echo = Interface::new("Echo");
/// echo.procedure(1, "twice").argument::<u32>("number").result::<Vec<u32>>();
/// let text = to_x(&echo, 0x2000_0001, 1)?;
/// assert!(text.contains("typedef unsigned int Echo_twice_result<>;"));
/// assert!(text.contains("Echo_twice_result ECHO_TWICE(unsigned int /* number */) = 1;"));
/// # Ok::<(), farcall_idl::NotDescribed>(())
/// ```
///
/// # Errors
/// If the interface needs a type of which it says nothing: one that an `.x` file left to be declared
/// elsewhere.
pub fn to_x(interface: &Interface, program: u32, version: u32) -> Result<String, NotDescribed> {
    check(interface)?;
    let names = names(interface);
    let states = vec![State::Unknown; names.len()];
    let taken = KEYWORDS.split_whitespace().map(String::from).chain(names.iter().cloned()).collect();
    let mut printer =
        Printer { types: &interface.types, names, states, depth: 0, taken, text: String::new() };
    printer.comment("", &interface.docs);
    let name = identifier(&interface.name);
    // What they need is declared on the way.
    let procedures: Vec<String> =
        interface.procedures.iter().map(|procedure| printer.procedure(&name, procedure)).collect();
    let upper = name.to_uppercase();
    let _ = write!(
        printer.text,
        "program {upper}_PROG {{\n    version {upper}_VERS_{version} {{\n{}    }} = {version};\n}} = {};\n",
        procedures.concat(),
        spell_program(program)
    );
    Ok(printer.text)
}

/// A type of which an interface says nothing but the name; it has no values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDescribed {
    name: String,
}

impl fmt::Display for NotDescribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is declared elsewhere, and what it is, is not known", self.name)
    }
}

impl std::error::Error for NotDescribed {}

/// Refuses an interface with types that are not described. Those are structs of one field, of a union without
/// variants, which the interface cannot be spoken without.
fn check(interface: &Interface) -> Result<(), NotDescribed> {
    let types = &interface.types;
    let is_empty = |ty: &Type| match ty {
        Type::Named(place) => types
            .get(*place)
            .is_none_or(|found| matches!(&found.body, Body::Union { arms } if arms.is_empty())),
        _ => false,
    };
    let wraps_nothing = |definition: &&Definition| match &definition.body {
        Body::Struct { fields, .. } => matches!(fields.as_slice(), [only] if is_empty(&only.ty)),
        Body::Union { arms } => arms.is_empty(),
    };
    // The wrapper's name says more than that of what it wraps, and stands before it.
    match types.definitions().iter().find(wraps_nothing) {
        Some(found) => Err(NotDescribed { name: found.name.clone() }),
        None => Ok(()),
    }
}

struct Printer<'t> {
    types: &'t Types,
    /// Of the definitions, by place.
    names: Vec<String>,
    states: Vec<State>,
    /// How many definitions are being declared, one for the other.
    depth: usize,
    taken: BTreeSet<String>,
    text: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Begun,
    Declared,
}

/// A description may be a peer's: so many definitions are declared one for the other; those behind a pointer then wait.
const DEPTH: usize = 64;

/// What a declaration is, around the name that is declared: `string` and `<255>`.
struct Spelling {
    before: String,
    after: String,
}

impl Spelling {
    fn plain(name: impl Into<String>) -> Spelling {
        Spelling { before: name.into(), after: String::new() }
    }

    fn of(&self, name: &str) -> String {
        let star = if self.before.ends_with('*') { "" } else { " " };
        format!("{}{star}{name}{}", self.before, self.after)
    }
}

impl Printer<'_> {
    fn comment(&mut self, indent: &str, docs: &str) {
        for line in docs.lines().filter(|line| !line.trim().is_empty()) {
            let _ = writeln!(self.text, "{indent}/* {} */", harmless(line));
        }
    }

    /// Declares what stands at that place of the table, after what it consists of.
    fn definition(&mut self, place: usize) {
        let types = self.types;
        let (Some(State::Unknown), Some(definition)) =
            (self.states.get(place), types.definitions().get(place))
        else {
            return;
        };
        self.states[place] = State::Begun;
        self.depth += 1;
        let name = self.names[place].clone();
        self.body(&name, definition);
        self.depth -= 1;
        self.states[place] = State::Declared;
    }

    fn body(&mut self, name: &str, definition: &Definition) {
        match &definition.body {
            Body::Struct { extensible: true, .. } => {
                self.comment("", &definition.docs);
                let _ = writeln!(
                    self.text,
                    "/* A struct that may gain fields, preceded by its length. */\ntypedef opaque {name}<>;\n"
                );
            }
            Body::Struct { fields, .. } => {
                let fields = self.fields(name, fields);
                self.comment("", &definition.docs);
                self.structure(name, &fields);
            }
            Body::Union { arms } if arms.iter().all(|arm| arm.fields.is_empty()) => {
                self.enumeration(name, definition, arms)
            }
            Body::Union { arms } => self.union(name, definition, arms),
        }
    }

    /// rpcgen has no structs of nothing; opaque data of no bytes is as much.
    fn structure(&mut self, name: &str, fields: &[String]) {
        if fields.is_empty() {
            let _ = writeln!(self.text, "typedef opaque {name}[0];\n");
            return;
        }
        let fields: String = fields.iter().map(|field| format!("    {field};\n")).collect();
        let _ = writeln!(self.text, "struct {name} {{\n{fields}}};\n");
    }

    /// The declarations of fields that have bytes.
    fn fields(&mut self, around: &str, fields: &[Field]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut taken = BTreeSet::new();
        for (index, Field { name, ty, .. }) in fields.iter().enumerate() {
            if self.is_void(ty, DEPTH) {
                continue;
            }
            let wanted =
                if name.parse::<usize>().is_ok() { format!("field{index}") } else { identifier(name) };
            let name = free(&wanted, |name| taken.contains(name) || is_keyword(name));
            taken.insert(name.clone());
            lines.push(self.declaration(&format!("{around}_{name}"), ty).of(&name));
        }
        lines
    }

    /// Whether values of the type have no bytes.
    fn is_void(&self, ty: &Type, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        match ty {
            Type::Void | Type::Opaque { size: 0 } => true,
            Type::Array { element, .. } => self.is_void(element, depth),
            Type::Tuple(parts) => parts.iter().all(|part| self.is_void(part, depth)),
            Type::Named(place) => match self.types.get(*place).map(|found| &found.body) {
                Some(Body::Struct { fields, extensible: false }) => {
                    fields.iter().all(|field| self.is_void(&field.ty, depth))
                }
                _ => false,
            },
            _ => false,
        }
    }

    /// An enumeration's constants are known everywhere, so the type's name is part of theirs. One that may have any other value
    /// is just a number.
    fn enumeration(&mut self, name: &str, definition: &Definition, arms: &[Arm]) {
        self.comment("", &definition.docs);
        let open = arms.iter().any(|arm| arm.tag.is_none());
        let constants: Vec<(String, i32)> = arms
            .iter()
            .filter_map(|arm| Some((self.claim(&format!("{name}_{}", identifier(&arm.name))), arm.tag?)))
            .collect();
        if open || constants.is_empty() {
            constants.iter().for_each(|(name, tag)| self.text += &format!("const {name} = {tag};\n"));
            let _ = writeln!(self.text, "typedef int {name};\n");
            return;
        }
        let lines: Vec<String> = constants.iter().map(|(name, tag)| format!("    {name} = {tag}")).collect();
        let _ = writeln!(self.text, "enum {name} {{\n{}\n}};\n", lines.join(",\n"));
    }

    fn union(&mut self, name: &str, definition: &Definition, arms: &[Arm]) {
        let mut lines = String::new();
        let mut taken = BTreeSet::from(["tag".to_string()]);
        for arm in arms {
            let around = format!("{name}_{}", identifier(&arm.name));
            let wanted = identifier(&arm.name).to_lowercase();
            let field = free(&wanted, |name| taken.contains(name) || is_keyword(name));
            taken.insert(field.clone());
            let parts: Vec<&Field> =
                arm.fields.iter().filter(|field| !self.is_void(&field.ty, DEPTH)).collect();
            let content = match parts.as_slice() {
                [] => "void".into(),
                [only] => self.declaration(&around, &only.ty).of(&field),
                _ => {
                    let fields = self.fields(&around, &arm.fields);
                    let name = self.claim(&around);
                    self.structure(&name, &fields);
                    format!("{name} {field}")
                }
            };
            let label = arm.tag.map_or("default".into(), |tag| format!("case {tag}"));
            let _ = writeln!(lines, "{label}:\n    {content};");
        }
        self.comment("", &definition.docs);
        let _ = writeln!(self.text, "union {name} switch (int tag) {{\n{lines}}};\n");
    }

    /// How a type is declared. What the language cannot say in one declaration gets a name, made of `around`.
    fn declaration(&mut self, around: &str, ty: &Type) -> Spelling {
        let most = |max: u32| if max == u32::MAX { "<>".to_string() } else { format!("<{max}>") };
        let with = |before: &str, after: String| Spelling { before: before.into(), after };
        match ty {
            Type::Opaque { size } => with("opaque", format!("[{size}]")),
            Type::Bytes { max } => with("opaque", most(*max)),
            Type::String { max } => with("string", most(*max)),
            Type::Array { size, element } => with(&self.name(around, element), format!("[{size}]")),
            Type::List { max, element } => with(&self.pointed(around, element), most(*max)),
            Type::Optional(inner) => with(&format!("{} *", self.pointed(around, inner)), String::new()),
            Type::Chain(element) => {
                let node = self.claim(&format!("{around}_node"));
                let item = self.declaration(&format!("{around}_item"), element).of("item");
                self.structure(&node, &[item, format!("{node} *next")]);
                with(&format!("{node} *"), String::new())
            }
            other => Spelling::plain(self.name(around, other)),
        }
    }

    /// The name of what a pointer points to, as that of a list's elements: it may be declared later.
    fn pointed(&mut self, around: &str, ty: &Type) -> String {
        if let Type::Named(place) = ty {
            let place = *place as usize;
            let leaf = matches!(self.types.definitions().get(place), Some(found) if is_leaf(&found.body));
            if self.depth < DEPTH || leaf {
                self.definition(place);
            }
            if self.states.get(place).is_some_and(|state| *state != State::Declared) {
                return format!("struct {}", self.names[place]);
            }
        }
        self.name(around, ty)
    }

    /// The name of a type; one is given to what has none.
    fn name(&mut self, around: &str, ty: &Type) -> String {
        if let Some(name) = scalar_name(ty) {
            return name.into();
        }
        match ty {
            Type::Void => {
                let name = self.claim(around);
                self.structure(&name, &[]);
                name
            }
            Type::Named(place) => {
                let place = *place as usize;
                self.definition(place);
                self.names.get(place).cloned().unwrap_or_else(|| "int".into())
            }
            Type::Tuple(parts) => {
                let fields: Vec<Field> = parts.iter().enumerate().map(unnamed).collect();
                let fields = self.fields(around, &fields);
                let name = self.claim(around);
                self.structure(&name, &fields);
                name
            }
            other => {
                let spelling = self.declaration(&format!("{around}_of"), other);
                let name = self.claim(around);
                let _ = writeln!(self.text, "typedef {};\n", spelling.of(&name));
                name
            }
        }
    }

    /// The line of a procedure.
    fn procedure(&mut self, interface: &str, procedure: &Procedure) -> String {
        let own = identifier(&procedure.name);
        let around = format!("{interface}_{own}");
        let result = match &procedure.result {
            Type::Void => "void".into(),
            result => self.name(&format!("{around}_result"), result),
        };
        let arguments: Vec<String> = procedure
            .arguments
            .iter()
            .map(|argument| {
                let ty = self.name(&format!("{around}_{}", identifier(&argument.name)), &argument.ty);
                format!("{ty} /* {} */", harmless(&argument.name))
            })
            .collect();
        let arguments = if arguments.is_empty() { "void".into() } else { arguments.join(", ") };
        let mut line = String::new();
        for docs in procedure.docs.lines().filter(|line| !line.trim().is_empty()) {
            let _ = writeln!(line, "        /* {} */", harmless(docs));
        }
        if procedure.exception != Type::Void {
            let exception = harmless(&crate::spell(self.types, &procedure.exception));
            let _ = writeln!(line, "        /* It may raise {exception}, which ONC RPC cannot say. */");
        }
        let name = around.to_uppercase();
        let _ = writeln!(line, "        {result} {name}({arguments}) = {};", procedure.number);
        line
    }

    /// A name that nothing else has.
    fn claim(&mut self, wanted: &str) -> String {
        let name = free(wanted, |name| self.taken.contains(name));
        self.taken.insert(name.clone());
        name
    }
}

/// Whether it is declared without anything else.
fn is_leaf(body: &Body) -> bool {
    match body {
        Body::Struct { extensible, .. } => *extensible,
        Body::Union { arms } => arms.iter().all(|arm| arm.fields.is_empty()),
    }
}

fn unnamed((index, ty): (usize, &Type)) -> Field {
    Field { name: index.to_string(), docs: String::new(), ty: ty.clone(), defaulted: false }
}

/// The names of the table's types, all different.
fn names(interface: &Interface) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let name = |definition: &Definition| {
        let name = free(&identifier(&definition.name), |name| taken.contains(name) || is_keyword(name));
        taken.insert(name.clone());
        name
    };
    interface.types.definitions().iter().map(name).collect()
}

/// `wanted`, or the first of it with a number that is free.
fn free(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(wanted) {
        return wanted.into();
    }
    (2u64..).map(|number| format!("{wanted}_{number}")).find(|name| !taken(name)).unwrap_or_default()
}

fn is_keyword(name: &str) -> bool {
    KEYWORDS.split_whitespace().any(|word| word == name)
}

/// As C takes it: letters, digits and `_`.
fn identifier(name: &str) -> String {
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match name.trim_matches('_') {
        "" => "x".into(),
        name if name.starts_with(|c: char| c.is_ascii_digit()) => format!("x{name}"),
        name => name.into(),
    }
}

/// What an `.x` file calls a boolean or a number.
pub(crate) fn scalar_name(ty: &Type) -> Option<&'static str> {
    Some(match ty {
        Type::Bool => "bool",
        Type::I8 => "char",
        Type::I16 => "short",
        Type::I32 => "int",
        Type::I64 => "hyper",
        Type::U8 => "unsigned char",
        Type::U16 => "unsigned short",
        Type::U32 => "unsigned int",
        Type::U64 => "unsigned hyper",
        Type::F32 => "float",
        Type::F64 => "double",
        // What is no scalar.
        _ => return None,
    })
}

/// Text that does not end the comment that it stands in.
pub(crate) fn harmless(text: &str) -> String {
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    text.replace("*/", "* /").replace("/*", "/ *")
}
