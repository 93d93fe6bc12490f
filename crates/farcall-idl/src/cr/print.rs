//! Prints the description of an interface as a `.cr` file, and reads it back to check that it means the same.

mod names;
mod same;
mod sayable;

use std::fmt::Write;
use std::path::Path;

use farcall_xdr::schema::{Arm, Body, Field, Type, Types, field};

use self::names::Names;
use super::resolve::MAX_CARDINAL;
use super::{Options, read_text};
use crate::language::{Refused, interfaces};
use crate::{Interface, Procedure};

type Done<T = ()> = Result<T, Refused>;

/// Returns the `.cr` file of an interface: its types, its errors and its procedures.
///
/// The wire forms stay the same, and so do names: reading the file gives the same description, except for
/// what Courier has no words for. These are the maximum of a string, tuples (which become records), and
/// attributes such as `#[idempotent]`. A name that is in use already gets another form or a number.
///
/// ```
/// use farcall_idl::{Interface, cr::to_cr};
/// let mut echo = Interface::new("Echo");
/// echo.procedure(1, "twice").argument::<u32>("number").result::<[u16; 2]>();
/// let text = to_cr(&echo, 4000, 1)?;
/// assert!(text.contains("Twice: PROCEDURE [number: LONG CARDINAL]\n\tRETURNS [result: ARRAY 2 OF CARDINAL] = 1;"));
/// echo.procedure(2, "wide").argument::<u64>("number");
/// let why = to_cr(&echo, 4000, 1).unwrap_err().to_string();
/// assert_eq!(why, "procedure `wide`, argument `number`: Courier has no `u64`");
/// # Ok::<(), farcall_idl::language::Refused>(())
/// ```
///
/// # Errors
/// When Courier cannot express something: the message names the procedure, the argument and the type.
pub fn to_cr(interface: &Interface, program: u32, version: u32) -> Done<String> {
    if version > MAX_CARDINAL {
        return Err(Refused(format!("a version in Courier is a number of 16 bits, and {version} is not")));
    }
    sayable::check(interface)?;
    let printer = Printer { types: &interface.types, names: Names::new(interface) };
    let text = printer.program(interface, program, version);
    let again = read_text(Path::new("made.cr"), &text, &Options::default())
        .map_err(|why| Refused(format!("the printed file cannot be read back:\n{why}")))?;
    let again = interfaces(&again)?;
    let again = again.first().map(|version| &version.interface);
    match again.map_or(Some(interface.procedures.is_empty()), |again| same::on_the_wire(interface, again)) {
        Some(true) => Ok(text),
        Some(false) => Err(Refused("the printed file means something else when it is read back".into())),
        None => Err(Refused("the interface is too large to check its printed file".into())),
    }
}

struct Printer<'i> {
    types: &'i Types,
    names: Names,
}

impl Printer<'_> {
    fn program(&self, interface: &Interface, program: u32, version: u32) -> String {
        let mut text = documented("", without_numbers(&interface.docs));
        let name = &self.names.program;
        let _ = write!(text, "{name}: PROGRAM {program} VERSION {version} =\nBEGIN\n\n");
        for (place, definition) in (0..).zip(self.types.definitions()) {
            if let Some(name) = self.names.types.get(&place) {
                text += &documented("", &definition.docs);
                let _ = write!(text, "{name}: TYPE = {};\n\n", self.body(&definition.body));
            }
        }
        for names::Error { name, arm } in &self.names.errors {
            text += &documented("", &arm.docs);
            let (arguments, value) = (self.fields(&arm.fields), arm.tag.unwrap_or_default());
            let _ = write!(text, "{name}: ERROR{arguments} = {value};\n\n");
        }
        for (index, procedure) in interface.procedures.iter().enumerate() {
            text += &documented("", &procedure.docs);
            text += &self.procedure(index, procedure);
        }
        text + "END.\n"
    }

    fn procedure(&self, index: usize, procedure: &Procedure) -> String {
        let arguments = procedure.arguments.iter();
        let arguments: Vec<Field> =
            arguments.map(|argument| field(&argument.name, "", argument.ty.clone(), false)).collect();
        let results = match (self.names.several(procedure, self.types), &procedure.result) {
            (_, Type::Void) => String::new(),
            (Some(results), _) => format!("\n\tRETURNS{}", self.fields(results)),
            (None, result) => format!("\n\tRETURNS [result: {}]", self.spelled(result)),
        };
        let errors = self.names.reported[index].iter().map(|error| self.names.errors[*error].name.as_str());
        let errors: Vec<&str> = errors.collect();
        let reports = match errors.is_empty() {
            true => String::new(),
            false => format!("\n\tREPORTS [{}]", errors.join(", ")),
        };
        let (name, arguments) = (&self.names.procedures[index], self.fields(&arguments));
        format!("{name}: PROCEDURE{arguments}{results}{reports} = {};\n\n", procedure.number)
    }

    /// Returns ` [a: T, b: U]`, or nothing if there are no fields.
    fn fields(&self, fields: &[Field]) -> String {
        if fields.is_empty() {
            return String::new();
        }
        let has_docs = fields.iter().any(|field| !field.docs.is_empty());
        let (indent, between) = if has_docs { ("\t", ",\n") } else { ("", ", ") };
        let line = |(field, name): (&Field, String)| {
            format!("{}{indent}{name}: {}", documented(indent, &field.docs), self.spelled(&field.ty))
        };
        let lines: Vec<String> = fields.iter().zip(names::fields(fields)).map(line).collect();
        let (open, close) = if has_docs { ("\n", " ") } else { ("", "") };
        format!(" [{open}{}{close}]", lines.join(between))
    }

    fn record(&self, fields: &[Field]) -> String {
        if fields.is_empty() { "RECORD [ ]".into() } else { format!("RECORD{}", self.fields(fields)) }
    }

    fn body(&self, body: &Body) -> String {
        let arms = match body {
            Body::Struct { fields, .. } => return self.record(fields),
            Body::Union { arms } => arms,
        };
        let enumeration = arms.iter().all(|arm| arm.fields.is_empty());
        let designators = names::designators(arms, &self.names.scope);
        let lines = arms.iter().zip(designators).map(|(arm, name)| {
            let docs = documented("\t", &arm.docs);
            let content = if enumeration { String::new() } else { format!(" => {}", self.content(arm)) };
            format!("{docs}\t{name}({}){content}", arm.tag.unwrap_or_default())
        });
        let lines = lines.collect::<Vec<_>>().join(",\n");
        if enumeration { format!("{{\n{lines} }}") } else { format!("CHOICE OF {{\n{lines} }}") }
    }

    /// Returns the type of an alternative. A single field without a name is the type itself.
    fn content(&self, arm: &Arm) -> String {
        match arm.fields.as_slice() {
            [only] if only.name == "0" => self.spelled(&only.ty),
            fields => self.record(fields),
        }
    }

    /// Returns a type that [`sayable::check`] has accepted.
    fn spelled(&self, ty: &Type) -> String {
        match ty {
            Type::Bool => "BOOLEAN".into(),
            Type::U16 => "CARDINAL".into(),
            Type::I16 => "INTEGER".into(),
            Type::U32 => "LONG CARDINAL".into(),
            Type::I32 => "LONG INTEGER".into(),
            Type::String { .. } => "STRING".into(),
            Type::Array { size, element } => format!("ARRAY {size} OF {}", self.spelled(element)),
            Type::List { max: MAX_CARDINAL, element } => format!("SEQUENCE OF {}", self.spelled(element)),
            Type::List { max, element } => format!("SEQUENCE {max} OF {}", self.spelled(element)),
            Type::Tuple(parts) => {
                let part = |(index, ty): (usize, &Type)| field(&index.to_string(), "", ty.clone(), false);
                self.record(&parts.iter().enumerate().map(part).collect::<Vec<_>>())
            }
            Type::Named(place) => self.names.types.get(place).cloned().unwrap_or_default(),
            _ => "RECORD [ ]".into(),
        }
    }
}

/// Returns the documentation without the last paragraph, if that is the one which tells a Courier program's
/// numbers. Reading the file adds it again.
fn without_numbers(docs: &str) -> &str {
    let (before, last) = docs.rsplit_once("\n\n").unwrap_or(("", docs));
    if last.starts_with("Courier program `") { before } else { docs }
}

/// Returns documentation as comments, a line each. The marks that Markdown needs are removed.
fn documented(indent: &str, docs: &str) -> String {
    let line = |line: &str| {
        let mut plain = String::new();
        let mut characters = line.chars().filter(|c| !c.is_control()).peekable();
        while let Some(c) = characters.next() {
            let escapes = c == '\\' && characters.peek().is_some_and(char::is_ascii_punctuation);
            plain.extend((!escapes).then_some(c).or_else(|| characters.next()));
        }
        // Two hyphens would end the comment.
        while plain.contains("--") {
            plain = plain.replace("--", "- -");
        }
        format!("{indent}-- {}", plain.trim_end()).trim_end().to_owned() + "\n"
    };
    docs.lines().filter(|line| !line.starts_with("```")).map(line).collect()
}
