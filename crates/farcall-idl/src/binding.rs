//! Compares an importer's interface with an exporter's: which procedures can be called, and why the others
//! cannot.
//!
//! An importer is a program that calls; an exporter is a server that offers an interface.

use std::collections::HashMap;
use std::fmt;

use crate::{Fingerprint, Interface};

/// Why an importer cannot call a procedure at an exporter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The exporter has neither a procedure of that number nor one of that name.
    Gone {
        /// The procedure's number at the importer.
        number: u32,
    },
    /// The exporter has the procedure under another number.
    Moved {
        /// The procedure's number at the importer.
        from: u32,
        /// The procedure's number at the exporter.
        to: u32,
    },
    /// The exporter's procedure of that number has the name of another procedure of the importer.
    Another {
        /// The procedure's number.
        number: u32,
        /// The procedure's name at the importer.
        name: String,
    },
    /// The exporter's procedure of that number has another name, and neither side has pinned the number.
    Renamed {
        /// The procedure's number.
        number: u32,
    },
    /// The procedure has other types at the exporter.
    Types {
        /// The procedure's signature as the importer knows it.
        signature: String,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { number } => write!(f, "procedure {number} is gone"),
            Self::Moved { from, to } => {
                write!(f, "moved from number {from} to {to}; pin it with #[procedure({from})]")
            }
            Self::Another { number, name } => {
                write!(f, "procedure {number} is {name} now; pin it with #[procedure({number})]")
            }
            Self::Renamed { number } => {
                write!(f, "procedure {number} has another name now; pin it with #[procedure({number})]")
            }
            Self::Types { signature } => write!(f, "has other types now than {signature}"),
        }
    }
}

/// Returns the numbers of the importer's procedures that cannot be called at this exporter, each with the
/// reason.
///
/// A number alone does not identify a procedure: two procedures of the same types may have exchanged their
/// numbers. So the names are compared as well. A renamed procedure is recognised by its number if either side
/// has pinned the number, unless its old or its new name belongs to another procedure.
pub fn refusals(ours: &Interface, theirs: &[Fingerprint]) -> Vec<(u32, Refusal)> {
    let by_number: HashMap<u32, &Fingerprint> = theirs.iter().map(|their| (their.number, their)).collect();
    let numbers: HashMap<u64, u32> = theirs.iter().map(|their| (their.name_hash(), their.number)).collect();
    let prints = ours.fingerprints();
    let names: HashMap<u64, &str> = prints
        .iter()
        .zip(&ours.procedures)
        .map(|(our, procedure)| (our.name_hash(), &procedure.name[..]))
        .collect();
    let refusal = |(our, procedure): (&Fingerprint, &crate::Procedure)| {
        let number = our.number;
        let their = by_number.get(&number);
        if their.is_none_or(|their| their.name_hash() != our.name_hash())
            && let Some(to) = numbers.get(&our.name_hash())
        {
            return Some((number, Refusal::Moved { from: number, to: *to }));
        }
        let Some(their) = their else { return Some((number, Refusal::Gone { number })) };
        if their.name_hash() != our.name_hash() {
            if let Some(name) = names.get(&their.name_hash()) {
                return Some((number, Refusal::Another { number, name: (*name).to_owned() }));
            }
            if !our.is_pinned() && !their.is_pinned() {
                return Some((number, Refusal::Renamed { number }));
            }
        }
        let signature = || ours.signature(procedure);
        (their.types != our.types).then(|| (number, Refusal::Types { signature: signature() }))
    };
    prints.iter().zip(&ours.procedures).filter_map(refusal).collect()
}
