//! An ONC RPC program and its client, generated from an `.x` file. The package depends only on `farcall-onc`.

#![forbid(unsafe_code)]

/// The Rust that is generated from `calculator.x`.
pub mod protocol {
    #![allow(missing_docs)]
    farcall_onc::include_x!("calculator.x");
}

use farcall_onc::Result;
use protocol::{CalculatorV1, Operands, Quotient};

/// A server that calculates in this process.
pub struct Calculator;

impl CalculatorV1 for Calculator {
    fn add(&self, operands: &Operands) -> Result<i64> {
        Ok(operands.left.wrapping_add(operands.right))
    }

    fn divide(&self, operands: &Operands) -> Result<Quotient> {
        Ok(operands.left.checked_div(operands.right))
    }
}
