//! What Cooper's dialect can say of an interface.

use std::fmt;

use farcall::idl::{Interface, Procedure};
use farcall::xdr::schema::{Body, Type, Types};

use crate::client::target;
use crate::codec::{self, Booleans, Layout};

/// Why calls have no bulk data.
pub(crate) const NO_BULK: &str = "Cooper's dialect has no bulk data";

/// An interface that Cooper's dialect can say.
#[derive(Debug)]
pub(crate) struct Program {
    /// The name of the interface.
    pub(crate) name: String,
    pub(crate) layout: Layout,
    pub(crate) replies: Replies,
}

/// Which procedures have a result, and so a reply.
#[derive(Clone, Debug)]
pub(crate) struct Replies {
    /// Their numbers, in order.
    procedures: Vec<u16>,
}

impl Replies {
    fn of(interface: &Interface) -> Replies {
        let with_result = interface.procedures.iter().filter(|procedure| procedure.result != Type::Void);
        // The layout has checked that the numbers have 16 bits.
        let mut procedures: Vec<u16> = with_result.map(|procedure| procedure.number as u16).collect();
        procedures.sort_unstable();
        Replies { procedures }
    }

    /// Returns whether a procedure has a reply.
    pub(crate) fn has(&self, procedure: u16) -> bool {
        self.procedures.binary_search(&procedure).is_ok()
    }
}

impl Program {
    /// # Errors
    /// The dialect cannot say the interface.
    pub(crate) fn new(interface: &Interface) -> Result<Program, Refusal> {
        for procedure in &interface.procedures {
            check(procedure, &interface.types).map_err(|why| Refusal {
                procedure: format!("{}.{}", interface.name, procedure.name),
                why: Why::Dialect(why),
            })?;
        }
        let layout = Layout::with(interface, Booleans::HighBytes)
            .map_err(|why| Refusal { procedure: String::new(), why: Why::Courier(why) })?;
        Ok(Program { name: interface.name.clone(), layout, replies: Replies::of(interface) })
    }

    /// Returns the program as a client's target, and which of its procedures have a reply. No message has the
    /// numbers of a program.
    pub(crate) fn into_target(self) -> (target::Program, Replies) {
        let Program { name, layout, replies } = self;
        (target::Program { name, program: 0, version: 0, layout }, replies)
    }
}

/// Why Cooper's dialect cannot carry the calls of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The interface and the procedure, if the reason is the dialect's own.
    procedure: String,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    /// What Cooper left out of Courier.
    Dialect(&'static str),
    /// What Courier does not have either.
    Courier(codec::Refusal),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Dialect(why) => {
                write!(f, "Cooper's dialect cannot carry the calls of {}: {why}", self.procedure)
            }
            Why::Courier(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

/// Checks what [`Layout`] does not check, because Courier itself can say it.
fn check(procedure: &Procedure, types: &Types) -> Result<(), &'static str> {
    if procedure.exception != Type::Void {
        return Err("it declares an error, and the dialect has no message for errors");
    }
    if procedure.oneway {
        return Err("it is one-way; leave that out, because a procedure without a result has no reply here");
    }
    if has_several_results(procedure, types) {
        return Err("it has several results, and the dialect has one at most; a record can hold them");
    }
    Ok(())
}

/// Returns whether the result stands for several results: it is a tuple, or the struct `<Procedure>Results`
/// that a `.cr` file becomes.
fn has_several_results(procedure: &Procedure, types: &Types) -> bool {
    match &procedure.result {
        Type::Tuple(parts) => parts.len() > 1,
        Type::Named(place) => types.get(*place).is_some_and(|definition| {
            let is_struct = matches!(definition.body, Body::Struct { .. });
            is_struct && is_results_of(&definition.name, &procedure.name)
        }),
        _ => false,
    }
}

/// Returns whether a type's name is that of a procedure in CamelCase, followed by `Results`.
fn is_results_of(name: &str, procedure: &str) -> bool {
    let Some(stem) = name.strip_suffix("Results") else { return false };
    let letters = procedure.chars().filter(|letter| *letter != '_');
    letters
        .map(|letter| letter.to_ascii_lowercase())
        .eq(stem.chars().map(|letter| letter.to_ascii_lowercase()))
}
