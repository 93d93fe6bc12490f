//! Where the settings of a runtime come from.

use crate::xdr::{self, Decode, Decoder, Encode, Encoder};

/// Where the settings of a runtime come from, by the names of their variables. Settings that are in neither
/// list have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Origins {
    /// The program has made these settings. Their variables have no effect.
    pub program: Vec<String>,
    /// These variables are set, and have been used.
    pub variables: Vec<String>,
}

impl Origins {
    /// Notes that the program makes the setting that this variable would fill in.
    pub(crate) fn set_by_program(&mut self, variable: &str) {
        if !self.program.iter().any(|known| known == variable) {
            self.program.push(variable.into());
        }
    }
}

// The length precedes the fields, so that a later version can add fields.

impl Encode for Origins {
    fn encode(&self, e: &mut Encoder<'_>) -> Result<(), xdr::Error> {
        e.sized(|e| {
            self.program.encode(e)?;
            self.variables.encode(e)
        })
    }
}

impl<'a> Decode<'a> for Origins {
    fn decode(d: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        d.sized(|d| Ok(Origins { program: Decode::decode(d)?, variables: Decode::decode(d)? }))
    }
}
