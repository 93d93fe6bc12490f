//! Program 1: loops around calls of local procedures, in C and in Rust.

use std::hint::black_box;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::ways::{Language, Size};

/// What a loop does in each of its iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Body {
    /// Nothing.
    Empty,
    /// It calls a procedure.
    Call(Size),
}

impl Body {
    /// All bodies, in the order of table 2.
    pub const ALL: [Body; 4] =
        [Body::Empty, Body::Call(Size::None), Body::Call(Size::Two), Body::Call(Size::Four)];
}

/// Executes a loop.
///
/// # Errors
/// When there was no C compiler.
pub fn execute(language: Language, body: Body, iterations: u32) -> Result<()> {
    match language {
        Language::C => c(body, iterations),
        Language::Rust => {
            rust(body, iterations);
            Ok(())
        }
    }
}

#[cfg(c)]
fn c(body: Body, iterations: u32) -> Result<()> {
    crate::ffi::local(if let Body::Call(size) = body { size.bytes() } else { -1 }, iterations);
    Ok(())
}

#[cfg(not(c))]
fn c(_: Body, _: u32) -> Result<()> {
    anyhow::bail!("there was no C compiler when this was built")
}

fn none() {}
fn two(_: i16) {}
fn four(_: i32) {}

/// Calls through pointers that the compiler cannot know, so that it cannot leave the calls out.
fn rust(body: Body, iterations: u32) {
    match body {
        Body::Empty => (0..iterations).for_each(|_| black_box(())),
        Body::Call(Size::None) => {
            let procedure: fn() = black_box(none);
            (0..iterations).for_each(|_| procedure());
        }
        Body::Call(Size::Two) => {
            let procedure: fn(i16) = black_box(two);
            (0..iterations).for_each(|number| procedure(number as i16));
        }
        Body::Call(Size::Four) => {
            let procedure: fn(i32) = black_box(four);
            (0..iterations).for_each(|number| procedure(number as i32));
        }
    }
}
