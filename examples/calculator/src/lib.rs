//! An ONC RPC program and its client, made of an `.x` file. The package depends on `farcall-onc` alone.

#![forbid(unsafe_code)]

/// What is made of `calculator.x`.
pub mod protocol {
    #![allow(missing_docs)]
    farcall_onc::include_x!("calculator.x");
}

use farcall_onc::Result;
use protocol::{CalculatorV1, Operands, Quotient};

/// Calculates in this process.
pub struct Calculator;

impl CalculatorV1 for Calculator {
    fn add(&self, operands: &Operands) -> Result<i64> {
        Ok(operands.left.wrapping_add(operands.right))
    }

    fn divide(&self, operands: &Operands) -> Result<Quotient> {
        Ok(operands.left.checked_div(operands.right))
    }
}
