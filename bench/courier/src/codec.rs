//! Byte swapping: what the codec takes for the arguments and the result of a test, without a network.

use std::hint::black_box;

use anyhow::{Context, Result};
use farcall::stub::Interface;
use farcall::xdr;
use farcall_courier::codec::{Layout, Limits, Procedure};

use crate::clock::thread_seconds;
use crate::interface::{Arguments, Size, Test, Tests};

/// Returns the processor time that a client spends in the codec for this many calls, in seconds.
///
/// With `words`, XDR bytes are transcoded to Courier's words and back, as in Courier's modes. Without, XDR is
/// what is sent.
pub fn seconds(test: Test, calls: u32, words: bool) -> Result<f64> {
    let layout = Layout::new(<dyn Tests as Interface>::interface())?;
    let procedure = layout.procedure(test.procedure()).context("the procedure has no layout")?;
    let mut codec = Codec { layout: &layout, procedure, words, sent: Vec::new(), xdr: Vec::new() };
    let arguments = Arguments::default();
    let start = thread_seconds();
    for _ in 0..calls {
        codec.call(test, black_box(&arguments))?;
    }
    Ok(thread_seconds() - start)
}

struct Codec<'a> {
    layout: &'a Layout,
    procedure: &'a Procedure,
    words: bool,
    sent: Vec<u8>,
    xdr: Vec<u8>,
}

impl Codec<'_> {
    /// Encodes the arguments and decodes the result of one call.
    fn call(&mut self, test: Test, arguments: &Arguments) -> Result<()> {
        let xdr = match test.size {
            Size::Zero => Vec::new(),
            Size::One => xdr::to_vec(&arguments.one)?,
            Size::Hundred => xdr::to_vec(&arguments.hundred)?,
            Size::Thousand => xdr::to_vec(&arguments.thousand)?,
        };
        self.sent.clear();
        if self.words {
            self.layout.to_words(self.procedure.arguments(), &xdr, &mut self.sent, Limits::default())?;
        }
        black_box((&xdr, &self.sent));
        if !test.has_result {
            return Ok(());
        }
        // A LONG INTEGER has the same four bytes in both encodings.
        let result = black_box([0, 0, 0, 7]);
        self.xdr.clear();
        match self.words {
            true => self.layout.to_xdr(self.procedure.result(), &result, &mut self.xdr, Limits::default())?,
            false => self.xdr.extend(result),
        }
        black_box(xdr::from_slice::<i32>(&self.xdr)?);
        Ok(())
    }
}
