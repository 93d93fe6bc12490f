//! Prints a tree (a parsed specification) as an `.x` file that rpcgen accepts. Reading the file gives the
//! same tree.
//!
//! The file has no macros, no namespaces, and no types declared in line, because the tree has them resolved.
//! A tree is refused, with the reason, if rpcgen or the C that rpcgen generates cannot express it.

mod same;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

use self::same::comparable;
use super::Refused;
use super::tree::*;
use super::{Options, read_text};
use crate::spell_program;

/// Words that rpcgen or C reserves.
const KEYWORDS: &str = "asm auto bool break case char const continue default do double else enum extern float for goto hyper if \
    inline int long opaque program quadruple register restrict return short signed sizeof static string struct switch typedef \
    union unsigned version void volatile while";

/// Names that `<rpc/rpc.h>` of libtirpc 1.3 and the headers of the C library that it includes declare: types,
/// enumerators, functions, and, after a `#`, macros. If a file uses such a name, the printed file has a
/// `#define` that gives it another name in C.
const HEADER_NAMES: &str = include_str!("print/c_names.txt");

/// The longest chain of types in which C must know each type before the previous one.
const MAX_DEPTH: usize = 256;

type Done<T = ()> = Result<T, Refused>;

/// Returns the text of the `.x` file. Reads the text back first, to check that it declares the same types and
/// programs.
pub fn to_x(tree: &Specification) -> Done<String> {
    let states = vec![State::Unknown; tree.types.len()];
    let mut printer = Printer { tree, states, text: String::new() };
    check_names(tree)?;
    printer.constants()?;
    for place in 0..tree.types.len() {
        printer.definition(place, 0)?;
    }
    tree.programs.iter().try_for_each(|program| printer.program(program))?;
    let text = printer.text.trim_end().to_owned() + "\n";
    let again = read_text(Path::new("made.x"), &text, &Options::default())
        .map_err(|why| Refused(format!("the printed file cannot be read back:\n{why}")))?;
    if comparable(&again) != comparable(tree) {
        return Err(Refused("the printed file means something else when it is read back".into()));
    }
    Ok(text)
}

/// The progress of writing a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Begun,
    Declared,
}

struct Printer<'t> {
    tree: &'t Specification,
    states: Vec<State>,
    text: String,
}

impl Printer<'_> {
    /// Writes the `const` definitions. Also writes two kinds of `#define`s for C alone: for labels that other
    /// files declare, and for names that C's headers use too.
    fn constants(&mut self) -> Done {
        let tree = self.tree;
        for Constant { named, value, .. } in &tree.constants {
            self.docs("", &named.docs);
            let value = match value {
                Value::Integer(value) => value.to_string(),
                Value::Text(text) => quoted(text)?,
                Value::Typed { .. } => return refuse_courier(),
            };
            let _ = writeln!(self.text, "const {} = {value};", named.name);
        }
        let known: BTreeSet<&str> = global_names(tree).chain(macros(tree)).map(|(name, _)| name).collect();
        let mut labels = BTreeMap::new();
        for union in tree.types.iter().filter_map(|definition| match &definition.body {
            Body::Union(union) if !self.is_bool(&union.discriminant) => Some(union),
            _ => None,
        }) {
            for label in union.arms.iter().flat_map(|arm| &arm.labels) {
                let Some(name) = label.name.as_deref().filter(|name| !known.contains(name)) else { continue };
                let value = labels.entry(name).or_insert(label.value);
                if *value != label.value {
                    return refuse(format!("`{name}` is defined with two different values"));
                }
            }
        }
        for (name, value) in labels {
            let _ = writeln!(self.text, "%#define {name} {value}");
        }
        for name in renamed(tree) {
            let _ = writeln!(self.text, "%#define {name} {name}_of_file");
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        Ok(())
    }

    /// Writes the type at that index, after the types that C must know first.
    fn definition(&mut self, place: usize, depth: usize) -> Done {
        let tree = self.tree;
        let definition = &tree.types[place];
        let name = &definition.named.name;
        match self.states[place] {
            State::Declared => return Ok(()),
            State::Begun => {
                return refuse(format!("`{name}` contains itself directly, which C does not allow"));
            }
            State::Unknown if depth > MAX_DEPTH => {
                return refuse(format!("`{name}` needs too many types before it"));
            }
            State::Unknown => {}
        }
        self.states[place] = State::Begun;
        match &definition.body {
            Body::Alias(declared) => match declared {
                Declared::Array { element, .. } => self.complete(element, depth + 1)?,
                Declared::One(ty) | Declared::Optional(ty) | Declared::List { element: ty, .. } => {
                    self.nameable(ty, depth + 1)?;
                }
                _ => {}
            },
            Body::Enum(_) => {}
            Body::Struct(_) | Body::Exception(_) => self.fields_before(&definition.body, depth + 1)?,
            Body::Union(union) => {
                self.complete(&union.discriminant, depth + 1)?;
                self.fields_before(&definition.body, depth + 1)?;
            }
        }
        let text = self.body(name, &definition.body)?;
        self.docs("", &definition.named.docs);
        self.text += &text;
        self.text += "\n";
        self.states[place] = State::Declared;
        Ok(())
    }

    /// Writes the types that the fields of a struct or a union need.
    fn fields_before(&mut self, body: &Body, depth: usize) -> Done {
        body.fields().into_iter().try_for_each(|field| {
            match (field.declared.in_place(), field.declared.element()) {
                (Some(ty), _) => self.complete(ty, depth),
                (None, Some(ty)) => self.nameable(ty, depth),
                (None, None) => Ok(()),
            }
        })
    }

    /// Writes a type if it is not written yet, so that another type can contain it.
    fn complete(&mut self, ty: &Type, depth: usize) -> Done {
        let Type::Defined(place) = ty else { return Ok(()) };
        self.definition(*place, depth)?;
        match &self.tree.types[*place].body {
            Body::Alias(Declared::One(ty) | Declared::Array { element: ty, .. }) if depth <= MAX_DEPTH => {
                self.complete(ty, depth + 1)
            }
            _ => Ok(()),
        }
    }

    /// Writes a type if C must know it before another type can point to it. C can point to a struct or union
    /// that is not declared yet.
    fn nameable(&mut self, ty: &Type, depth: usize) -> Done {
        match ty {
            Type::Defined(place) => match &self.tree.types[*place].body {
                Body::Struct(_) | Body::Union(_) | Body::Exception(_) => Ok(()),
                Body::Alias(_) | Body::Enum(_) => self.definition(*place, depth),
            },
            _ => Ok(()),
        }
    }

    fn body(&self, name: &str, body: &Body) -> Done<String> {
        let mut text = String::new();
        match body {
            Body::Alias(declared) => {
                let _ = writeln!(text, "typedef {};", self.declaration(declared, name)?);
            }
            Body::Enum(all) if all.is_empty() => {
                return refuse(format!("`{name}` has no enumerators; rpcgen requires at least one"));
            }
            Body::Enum(all) => {
                let line = |each: &Enumerator| {
                    let docs = documented("    ", &each.named.docs);
                    format!("{docs}    {} = {}", each.named.name, each.value)
                };
                let lines: Vec<String> = all.iter().map(line).collect();
                let _ = writeln!(text, "enum {name} {{\n{}\n}};", lines.join(",\n"));
            }
            Body::Struct(fields) if fields.is_empty() => {
                return refuse(format!("`{name}` has no fields; rpcgen requires at least one"));
            }
            Body::Struct(fields) => {
                let _ = writeln!(text, "struct {name} {{");
                for field in fields {
                    text += &documented("    ", &field.named.docs);
                    let _ = writeln!(text, "    {};", self.declaration(&field.declared, &field.named.name)?);
                }
                text += "};\n";
            }
            Body::Union(union) => self.union(name, union, &mut text)?,
            Body::Exception(_) => return refuse_courier(),
        }
        Ok(text)
    }

    fn union(&self, name: &str, union: &Union, text: &mut String) -> Done {
        if union.arms.is_empty() {
            return refuse(format!("`{name}` has no `case`; rpcgen requires at least one"));
        }
        let switch = self.declaration(&Declared::One(union.discriminant.clone()), &union.switch.name)?;
        let _ = writeln!(text, "union {name} switch ({switch}) {{");
        for arm in &union.arms {
            *text += &documented("", &arm.docs);
            for label in &arm.labels {
                let _ = writeln!(text, "case {}:", self.label(&union.discriminant, label));
            }
            self.arm(arm.field.as_ref(), text)?;
        }
        if let Some(default) = &union.default {
            *text += "default:\n";
            self.arm(default.as_ref(), text)?;
        }
        *text += "};\n";
        Ok(())
    }

    fn arm(&self, field: Option<&Field>, text: &mut String) -> Done {
        let Some(field) = field else {
            *text += "    void;\n";
            return Ok(());
        };
        *text += &documented("    ", &field.named.docs);
        let _ = writeln!(text, "    {};", self.declaration(&field.declared, &field.named.name)?);
        Ok(())
    }

    fn label(&self, discriminant: &Type, label: &Label) -> String {
        match (&label.name, self.stripped(discriminant)) {
            (_, Type::Bool) if label.value == 1 => "TRUE".into(),
            (_, Type::Bool) if label.value == 0 => "FALSE".into(),
            (Some(name), _) => name.clone(),
            (None, Type::U32) => label.value.cast_unsigned().to_string(),
            (None, _) => label.value.to_string(),
        }
    }

    /// Returns the C-like declaration of `name`, for example `T name<4>`.
    fn declaration(&self, declared: &Declared, name: &str) -> Done<String> {
        let most = |max: &u32| if *max == u32::MAX { String::new() } else { max.to_string() };
        Ok(match declared {
            Declared::One(ty) => format!("{} {name}", self.spelled(ty)?),
            Declared::Optional(ty) => format!("{} *{name}", self.spelled(ty)?),
            Declared::Array { element, size } => format!("{} {name}[{size}]", self.spelled(element)?),
            Declared::List { element, max } => format!("{} {name}<{}>", self.spelled(element)?, most(max)),
            Declared::Opaque { size } => format!("opaque {name}[{size}]"),
            Declared::Bytes { max } => format!("opaque {name}<{}>", most(max)),
            Declared::String { max } => format!("string {name}<{}>", most(max)),
            Declared::Bulk => return refuse("bulk data has no form in an `.x` file".into()),
        })
    }

    fn spelled(&self, ty: &Type) -> Done<String> {
        match (ty.scalar(), ty) {
            (Some((_, name)), _) => Ok(name.into()),
            (None, Type::Quadruple) => refuse("C has no type for a `quadruple`".into()),
            (None, Type::Foreign(name)) => {
                refuse(format!("`{name}` is declared elsewhere, so its wire form is not known"))
            }
            (None, Type::Defined(place)) => {
                let Definition { named, body, .. } = &self.tree.types[*place];
                let is_tag = matches!(body, Body::Struct(_) | Body::Union(_))
                    && self.states[*place] != State::Declared;
                Ok(if is_tag { format!("struct {}", named.name) } else { named.name.clone() })
            }
            (None, _) => Ok("void".into()),
        }
    }

    fn program(&mut self, program: &Program) -> Done {
        let name = &program.named.name;
        if program.versions.is_empty() {
            return refuse(format!("program `{name}` has no versions; rpcgen requires at least one"));
        }
        self.docs("", &program.named.docs);
        let _ = writeln!(self.text, "program {name} {{");
        for version in &program.versions {
            if version.procedures.is_empty() {
                return refuse(format!(
                    "version `{}` has no procedures; rpcgen requires at least one",
                    version.named.name
                ));
            }
            self.docs("    ", &version.named.docs);
            let _ = writeln!(self.text, "    version {} {{", version.named.name);
            for procedure in &version.procedures {
                let line = self.procedure(procedure)?;
                self.docs("        ", &procedure.named.docs);
                let _ = writeln!(self.text, "        {line}");
            }
            let _ = writeln!(self.text, "    }} = {};", version.number);
        }
        let _ = writeln!(self.text, "}} = {};\n", spell_program(program.number));
        Ok(())
    }

    fn procedure(&self, procedure: &Procedure) -> Done<String> {
        let name = &procedure.named.name;
        let typedef = |what: &str| {
            refuse(format!(
                "{what} of `{name}` has no name of its own, and rpcgen takes only names: give it one by `typedef`"
            ))
        };
        let result = match &procedure.result {
            Declared::One(ty) => self.spelled(ty)?,
            Declared::String { max: u32::MAX } => "string".into(),
            Declared::Bulk => return refuse("bulk data has no form in an `.x` file".into()),
            _ => return typedef("the result"),
        };
        let mut arguments = Vec::new();
        for Argument { name, declared } in &procedure.arguments {
            let name = name.as_deref().unwrap_or("");
            let argument = match declared {
                Declared::One(ty) => format!("{} {name}", self.spelled(ty)?),
                Declared::Optional(ty) => format!("{} *{name}", self.spelled(ty)?),
                Declared::String { max: u32::MAX } => format!("string {name}"),
                Declared::String { max } if !name.is_empty() => format!("string {name}<{max}>"),
                Declared::Bulk => return refuse("bulk data has no form in an `.x` file".into()),
                _ => return typedef("an argument"),
            };
            arguments.push(argument.trim_end().to_owned());
        }
        let arguments = if arguments.is_empty() { "void".into() } else { arguments.join(", ") };
        Ok(format!("{result} {name}({arguments}) = {};", procedure.number))
    }

    fn is_bool(&self, ty: &Type) -> bool {
        matches!(self.stripped(ty), Type::Bool)
    }

    /// Returns the type that remains when all aliases are resolved.
    fn stripped<'a>(&'a self, ty: &'a Type) -> &'a Type {
        crate::language::plan::stripped(self.tree, ty)
    }

    fn docs(&mut self, indent: &str, docs: &str) {
        self.text += &documented(indent, docs);
    }
}

/// Returns the documentation as a comment, or nothing for an empty text.
fn documented(indent: &str, docs: &str) -> String {
    let lines: Vec<String> = docs.lines().map(harmless).collect();
    match lines.as_slice() {
        [] => String::new(),
        [line] => format!("{indent}/* {line} */\n"),
        lines => {
            let lines: String =
                lines.iter().map(|line| format!("{indent} * {line}").trim_end().to_owned() + "\n").collect();
            format!("{indent}/*\n{lines}{indent} */\n")
        }
    }
}

/// Changes text so that it cannot end its comment.
fn harmless(text: &str) -> String {
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    text.replace("*/", "* /").replace("/*", "/ *")
}

fn quoted(text: &str) -> Done<String> {
    match text.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
        true => {
            refuse("not all readers of `.x` files accept a text with quotes or control characters".into())
        }
        false => Ok(format!("\"{text}\"")),
    }
}

/// Refuses what only trees of Courier programs have.
fn refuse_courier<T>() -> Done<T> {
    refuse("declared errors and typed constants of Courier have no form in an `.x` file".into())
}

fn refuse<T>(why: String) -> Done<T> {
    Err(Refused(why))
}

/// Refuses names that collide in C. There, types, enumerators and macros share one namespace, and macros also
/// replace the names of fields.
fn check_names(tree: &Specification) -> Done {
    let fields: BTreeSet<&str> =
        tree.types.iter().flat_map(|definition| field_names(&definition.body)).collect();
    let all = global_names(tree).chain(macros(tree)).map(|(name, _)| name).chain(fields.iter().copied());
    if let Some(name) = all.into_iter().find(|name| is_keyword(name)) {
        return refuse(format!("`{name}` cannot be a name in C"));
    }
    if let Some(name) =
        tree.types.iter().map(|definition| &definition.named.name).find(|name| is_routine(name))
    {
        return refuse(format!("`{name}` cannot be a type in C: `xdr_{name}` is a routine of the library"));
    }
    let twice = |name: &str| refuse(format!("`{name}` is the name of two things, which C cannot have"));
    let mut global = BTreeSet::new();
    for (name, _) in global_names(tree) {
        if !global.insert(name) {
            return twice(name);
        }
    }
    let mut values = BTreeMap::new();
    for (name, value) in macros(tree) {
        let differs = values.insert(name, value).is_some_and(|other| other != value);
        if differs || global.contains(name) || fields.contains(name) {
            return twice(name);
        }
    }
    Ok(())
}

pub(super) fn is_keyword(name: &str) -> bool {
    KEYWORDS.split_whitespace().any(|word| word == name)
}

/// Returns whether the RPC library has the function `xdr_NAME`, so that a type cannot have this name.
pub(super) fn is_routine(name: &str) -> bool {
    const ROUTINES: &str = "array bool bytes char double enum float free hyper int int16_t int32_t int64_t int8_t long opaque pointer \
        quad_t reference short string u_char u_hyper u_int u_long u_quad_t u_short uint16_t uint32_t uint64_t uint8_t union vector void \
        wrapstring";
    ROUTINES.split_whitespace().any(|routine| routine == name)
}

/// Returns the names of types, and the names of enumerators with their values.
fn global_names(tree: &Specification) -> impl Iterator<Item = (&str, Option<i128>)> {
    tree.types.iter().flat_map(|definition| {
        let enumerators = match &definition.body {
            Body::Enum(all) => all.as_slice(),
            _ => &[],
        };
        let enumerators = enumerators.iter().map(|each| (each.named.name.as_str(), Some(each.value.into())));
        [(definition.named.name.as_str(), None)].into_iter().chain(enumerators)
    })
}

/// Returns the names in the file that C's headers declare too.
fn renamed(tree: &Specification) -> BTreeSet<String> {
    let headers: BTreeSet<&str> = HEADER_NAMES.lines().map(|line| line.trim_start_matches('#')).collect();
    let macros: BTreeSet<&str> = HEADER_NAMES.lines().filter_map(|line| line.strip_prefix('#')).collect();
    let fields = tree.types.iter().flat_map(|definition| field_names(&definition.body)).map(str::to_owned);
    let fields = fields.filter(|name| macros.contains(name.as_str()));
    c_names(tree).filter(|name| headers.contains(name.as_str())).chain(fields).collect()
}

/// Returns the names that rpcgen's code declares other than as macros: types, their XDR functions,
/// enumerators, and stubs.
fn c_names(tree: &Specification) -> impl Iterator<Item = String> {
    let types = global_names(tree).flat_map(|(name, value)| {
        let routine = value.is_none().then(|| format!("xdr_{name}"));
        [name.to_owned()].into_iter().chain(routine)
    });
    let versions = tree.programs.iter().flat_map(|program| &program.versions);
    let stubs = versions.flat_map(|version| {
        let stub =
            |procedure: &Procedure| format!("{}_{}", procedure.named.name.to_lowercase(), version.number);
        version.procedures.iter().map(stub).flat_map(|stub| [format!("{stub}_svc"), stub])
    });
    types.chain(stubs)
}

/// Returns the names that rpcgen declares as macros: constants, programs, versions and procedures. Each has
/// its value, if that is a number.
fn macros(tree: &Specification) -> impl Iterator<Item = (&str, Option<i128>)> {
    let constants = tree.constants.iter().map(|constant| match constant.value {
        Value::Integer(value) => (constant.named.name.as_str(), Some(value)),
        Value::Text(_) | Value::Typed { .. } => (constant.named.name.as_str(), None),
    });
    let programs = tree.programs.iter().flat_map(move |program| {
        let versions = program.versions.iter().flat_map(move |version| {
            let procedures =
                version.procedures.iter().map(move |each| numbered_macro(&each.named, each.number));
            [numbered_macro(&version.named, version.number)].into_iter().chain(procedures)
        });
        [numbered_macro(&program.named, program.number)].into_iter().chain(versions)
    });
    constants.chain(programs)
}

fn field_names(body: &Body) -> impl Iterator<Item = &str> {
    let switch = match body {
        Body::Union(union) => Some(union.switch.name.as_str()),
        Body::Alias(_) | Body::Enum(_) | Body::Struct(_) | Body::Exception(_) => None,
    };
    body.fields().into_iter().map(|field| field.named.name.as_str()).chain(switch)
}

fn numbered_macro(named: &Named, number: u32) -> (&str, Option<i128>) {
    (&named.name, Some(number.into()))
}
