//! What the arguments of a call say of its bulk data: `BulkData.Descriptor`, as a procedure's argument.

use super::layout::{Layout, Procedure};
use super::shape::{Place, Shape};

/// What a call says of bulk data on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// The procedure has no argument that says it.
    Unsaid,
    /// No data passes on the connection of the call: the descriptor is null, or names a third party.
    None,
    /// The data passes between the call and its reply.
    Immediate,
}

/// The designator of `immediate`.
const IMMEDIATE: u16 = 1;

impl Layout {
    /// Returns what the arguments of a call say of bulk data. `words` are arguments that were transcoded to
    /// words or from them, so they are whole, and nest no deeper than the transcoder allows.
    pub(crate) fn transfer(&self, procedure: &Procedure, words: &[u8]) -> Transfer {
        let Some(last) = procedure.descriptors.last() else { return Transfer::Unsaid };
        let Shape::Record(arguments) = &self.node(procedure.arguments().at).shape else {
            return Transfer::Unsaid;
        };
        let mut rest = words;
        for (index, argument) in arguments.iter().enumerate().take(last + 1) {
            let designator = rest.first_chunk().map(|word| u16::from_be_bytes(*word));
            if procedure.descriptors.contains(&index) && designator == Some(IMMEDIATE) {
                return Transfer::Immediate;
            }
            let Some(behind) = self.skip(argument.at, rest) else { return Transfer::Unsaid };
            rest = behind;
        }
        Transfer::None
    }

    /// Returns the words behind a value.
    fn skip<'w>(&self, at: Place, words: &'w [u8]) -> Option<&'w [u8]> {
        let count = |words: &'w [u8]| {
            let (count, behind) = words.split_first_chunk()?;
            Some((u16::from_be_bytes(*count), behind))
        };
        match &self.node(at).shape {
            Shape::Boolean | Shape::Cardinal | Shape::Integer => words.get(2..),
            Shape::Long => words.get(4..),
            Shape::String { .. } => {
                let (bytes, behind) = count(words)?;
                behind.get(usize::from(bytes).next_multiple_of(2)..)
            }
            Shape::Record(fields) => fields.iter().try_fold(words, |rest, field| self.skip(field.at, rest)),
            Shape::Array { count, element } => self.skip_elements(*element, *count, words),
            Shape::Sequence { element, .. } => {
                let (count, behind) = count(words)?;
                self.skip_elements(*element, count.into(), behind)
            }
            Shape::Choice(choice) => {
                let (designator, behind) = count(words)?;
                self.skip(choice.arm(designator)?.fields, behind)
            }
        }
    }

    fn skip_elements<'w>(&self, element: Place, count: usize, words: &'w [u8]) -> Option<&'w [u8]> {
        if self.node(element).least_words == 0 {
            return Some(words);
        }
        (0..count).try_fold(words, |rest, _| self.skip(element, rest))
    }
}
