//! Calls within the process: a procedure that gets a copy of its argument, as Larus' had, and no call at all.

use std::hint::black_box;

use super::{Caller, Failed};
use crate::interface::{Arguments, Size, Test};

/// Returns a caller of local procedures.
pub fn calls(test: Test) -> Box<dyn Caller> {
    Box::new(Local { size: test.size, arguments: Arguments::default() })
}

/// Returns a caller that does nothing.
pub fn nothing() -> Box<dyn Caller> {
    Box::new(Nothing)
}

struct Local {
    size: Size,
    arguments: Arguments,
}

impl Caller for Local {
    fn call(&mut self) -> Result<(), Failed> {
        let Arguments { one, hundred, thousand } = black_box(&self.arguments);
        black_box(match self.size {
            Size::Zero => procedure([]),
            Size::One => procedure(*one),
            Size::Hundred => procedure(*hundred),
            Size::Thousand => procedure(*thousand),
        });
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failed> {
        Ok(())
    }
}

/// Gets its argument by value, so that the caller copies it.
#[inline(never)]
fn procedure<const N: usize>(words: [i32; N]) -> i32 {
    black_box(&words).last().copied().unwrap_or_default()
}

struct Nothing;

impl Caller for Nothing {
    fn call(&mut self) -> Result<(), Failed> {
        black_box(Ok(()))
    }

    fn finish(&mut self) -> Result<(), Failed> {
        Ok(())
    }
}
