//! Checks graphs against the interfaces of the procedures that their nodes call: whether there are such
//! procedures, and whether types fit.
//!
//! A type is compared only where it is certain: an argument or value that is one variable, whose place has a
//! type, and one that depends on no variable. What depends on tokens is checked at each call.

use farcall::xdr::Encoder;
use farcall::xdr::schema::{Body, Type, Types};
use farcall_idl::{spell, values};

use super::{Bound, Procedures};
use crate::check::Finding;
use crate::expression::Expression;
use crate::location::Location;
use crate::model::{self, Graph, InputKind, Node, NodeId};

impl Procedures {
    /// Finds the procedures of all nodes, and returns what does not fit. Blocks meanwhile. A procedure that
    /// is not found is a warning, because its server may come later, unless its definition cannot be read.
    pub fn check(&self, graph: &Graph) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (at, node) in graph.nodes.iter().enumerate() {
            let Some(call) = &node.call else { continue };
            let id = NodeId(at as u32);
            match self.find(call) {
                Ok(bound) => Checker { graph, node, id, bound: &bound, findings: &mut findings }.check(call),
                Err(why) => findings.push(Finding {
                    location: Location::Call(id),
                    message: why.to_string(),
                    warning: !why.is_lasting(),
                }),
            }
        }
        findings
    }
}

struct Checker<'a> {
    graph: &'a Graph,
    node: &'a Node,
    id: NodeId,
    bound: &'a Bound,
    findings: &'a mut Vec<Finding>,
}

impl Checker<'_> {
    fn check(&mut self, call: &model::Procedure) {
        self.arguments(call.arguments.as_ref());
        for (at, output) in self.node.outputs.iter().enumerate() {
            let location = Location::Output(self.id, at as u32);
            let (ty, outcome) = match &output.exception {
                None => (&self.bound.procedure().result, "result"),
                Some(name) => {
                    self.exception(location, name);
                    continue;
                }
            };
            let is_outcome = output.value.as_ref().is_some_and(|value| value.to_string() == outcome);
            let place = self.graph.places.get(output.place.0 as usize);
            if let Some(of) = place.and_then(|place| place.of.as_deref()).filter(|_| is_outcome)
                && self.fits(of, ty) == Some(false)
            {
                let found = spell(self.types(), ty);
                self.error(location, format!("the result is {found}, and the place holds {of}"));
            }
        }
    }

    fn arguments(&mut self, arguments: Option<&Expression>) {
        let location = Location::Call(self.id);
        let wanted = &self.bound.procedure().arguments;
        let signature = self.bound.interface().signature(self.bound.procedure());
        let given: Vec<(usize, Expression)> = match arguments {
            None if wanted.is_empty() => return,
            None => return self.error(location, format!("the call has no arguments: {signature}")),
            Some(arguments) => match (arguments.elements(), arguments.fields()) {
                (Some(elements), _) if elements.len() != wanted.len() => {
                    let count = elements.len();
                    return self.error(location, format!("the call has {count} arguments: {signature}"));
                }
                (Some(elements), _) => elements.into_iter().enumerate().collect(),
                (None, Some(fields)) => {
                    let place = |name: &str| wanted.iter().position(|argument| argument.name == name);
                    let known = fields.into_iter().map(|(name, value)| Some((place(name)?, value)));
                    known.flatten().collect()
                }
                (None, None) => Vec::new(),
            },
        };
        for (at, expression) in given {
            self.argument(location, at, &expression);
        }
    }

    fn argument(&mut self, location: Location, at: usize, expression: &Expression) {
        let argument = &self.bound.procedure().arguments[at];
        let (name, ty) = (argument.name.clone(), argument.ty.clone());
        if let Some(value) = expression.known() {
            let mut encoded = Vec::new();
            let encoded = values::encode(self.types(), &ty, &value, &mut Encoder::new(&mut encoded));
            if let Err(why) = encoded {
                self.error(location, format!("argument {name}: {why}"));
            }
            return;
        }
        let text = expression.to_string();
        let of_variable = |input: &&model::Input| {
            input.kind != InputKind::Inhibit && input.variable.as_deref() == Some(text.as_str())
        };
        let Some(input) = self.node.inputs.iter().find(of_variable).filter(|input| input.weight == 1) else {
            return;
        };
        let place = self.graph.places.get(input.place.0 as usize);
        if let Some(of) = place.and_then(|place| place.of.as_deref())
            && self.fits(of, &ty) == Some(false)
        {
            let wanted = spell(self.types(), &ty);
            self.error(location, format!("argument {name} is {wanted}, and {text} is {of}"));
        }
    }

    /// Checks that the procedure can raise the exception that an output is for.
    fn exception(&mut self, location: Location, name: &str) {
        let ty = &self.bound.procedure().exception;
        let known: Vec<&str> = match ty {
            Type::Void => {
                let why = "the procedure declares no exception";
                return self.error(location, why.to_owned());
            }
            Type::Named(place) => match self.types().get(*place) {
                Some(found) => match &found.body {
                    Body::Union { arms } => arms.iter().map(|arm| arm.name.as_str()).collect(),
                    Body::Struct { .. } => vec![found.name.as_str()],
                },
                None => return,
            },
            _ => return,
        };
        if name != "*" && !known.contains(&name) {
            let known = known.join(", ");
            self.error(location, format!("the procedure declares no exception {name}; it declares {known}"));
        }
    }

    /// Returns whether values of a place's type are values of a wire type; `None` if that is not known.
    fn fits(&self, of: &str, ty: &Type) -> Option<bool> {
        const INTEGERS: [&str; 8] = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"];
        let spelled = spell(self.types(), ty);
        let bare = spelled.split('<').next().unwrap_or(&spelled);
        let scalars = ["bool", "f32", "f64", "string"];
        let is_known = |name: &str| INTEGERS.contains(&name) || scalars.contains(&name);
        match (of.rsplit_once('.'), ty) {
            (None, Type::Named(_)) if is_known(of) => Some(false),
            (None, _) if is_known(of) && is_known(bare) => {
                let (a, b) = (INTEGERS.contains(&of), INTEGERS.contains(&bare));
                Some(of == bare || a && b || a && bare.starts_with('f'))
            }
            (Some((interface, name)), Type::Named(_)) if interface == self.bound.interface().name => {
                Some(name == spelled)
            }
            (Some(_), _) if is_known(bare) => Some(false),
            _ => None,
        }
    }

    fn types(&self) -> &Types {
        &self.bound.interface().types
    }

    fn error(&mut self, location: Location, message: String) {
        self.findings.push(Finding { location, message, warning: false });
    }
}
