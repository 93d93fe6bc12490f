//! XDR bytes to Courier's words. The bytes come from a stub's encoder, but are checked like a peer's.

use super::error::{Error, ErrorKind};
use super::layout::{Layout, Values};
use super::shape::{Place, Shape};
use super::to_xdr::check_booleans;
use super::{Booleans, Limits};
use farcall::{room, work};

impl Layout {
    /// Appends the words of a value to `out`, given the value's XDR bytes. After an error, `out` is as it was
    /// before.
    ///
    /// # Errors
    /// The bytes are not such a value, or Courier's type cannot hold it: a string or sequence of more than
    /// 65,535 bytes or elements, for example. Or a limit is exceeded.
    pub fn to_words(
        &self,
        values: Values,
        xdr: &[u8],
        out: &mut Vec<u8>,
        limits: Limits,
    ) -> Result<(), Error> {
        let start = out.len();
        let mut transcoder = ToWords { layout: self, xdr, out, limits, depth: limits.depth, steps: 0 };
        let transcoded = transcoder.value(values.at).and_then(|()| transcoder.finish(start));
        work::steps(transcoder.steps);
        if let Err(why) = transcoded {
            out.truncate(start);
            return Err(why.of(values.name));
        }
        Ok(())
    }
}

struct ToWords<'a> {
    layout: &'a Layout,
    /// The XDR bytes that are left.
    xdr: &'a [u8],
    out: &'a mut Vec<u8>,
    limits: Limits,
    /// How many levels deeper the value may still nest.
    depth: u32,
    /// How many values were looked at, and parts of bytes taken.
    steps: usize,
}

impl ToWords<'_> {
    fn finish(&self, start: usize) -> Result<(), Error> {
        if !self.xdr.is_empty() {
            return Err(Error::new(ErrorKind::Trailing(self.xdr.len())));
        }
        let bytes = self.out.len() - start;
        if bytes > self.limits.bytes {
            return Err(Error::new(ErrorKind::TooLarge { bytes, limit: self.limits.bytes }));
        }
        Ok(())
    }

    fn value(&mut self, at: Place) -> Result<(), Error> {
        self.steps += 1;
        let layout = self.layout;
        match &layout.node(at).shape {
            Shape::Boolean | Shape::Cardinal | Shape::Integer | Shape::Long => self.run(at, 1),
            Shape::String { max } => self.string(*max),
            Shape::Record(fields) => self.nested(|this| {
                fields
                    .iter()
                    .try_for_each(|field| this.value(field.at).map_err(|why| why.in_field(&field.name)))
            }),
            Shape::Array { count, element } => self.nested(|this| this.elements(*element, *count)),
            Shape::Sequence { max, element } => {
                let count = self.count(*max)?;
                self.nested(|this| this.elements(*element, count))
            }
            Shape::Choice(choice) => {
                let number = self.number()?;
                let arm = u16::try_from(number).ok().and_then(|designator| choice.arm(designator));
                let Some(arm) = arm else {
                    return Err(Error::new(ErrorKind::UnknownDesignator(number)));
                };
                self.put(arm.designator)?;
                if layout.node(arm.fields).least_words == 0 {
                    return Ok(());
                }
                self.nested(|this| this.value(arm.fields)).map_err(|why| why.in_field(&arm.name))
            }
        }
    }

    fn elements(&mut self, element: Place, count: usize) -> Result<(), Error> {
        let node = self.layout.node(element);
        if node.least_words == 0 || count == 0 {
            return Ok(());
        }
        // An element has at least as many XDR bytes as its words have.
        if count.saturating_mul(2 * node.least_words.min(usize::MAX / 2)) > self.xdr.len() {
            return Err(Error::new(ErrorKind::Count { count, left: self.xdr.len() }));
        }
        match node.shape {
            Shape::Boolean | Shape::Cardinal | Shape::Integer | Shape::Long => self.run(element, count),
            _ => (0..count).try_for_each(|index| self.value(element).map_err(|why| why.at_index(index))),
        }
    }

    /// Transcodes `count` numbers or booleans, which stand one after the other.
    #[inline]
    fn run(&mut self, at: Place, count: usize) -> Result<(), Error> {
        let from = self.take(count.saturating_mul(4))?;
        let shape = &self.layout.node(at).shape;
        self.reserve(if let Shape::Long = shape { count * 4 } else { count * 2 })?;
        if let Shape::Long = shape {
            self.out.extend_from_slice(from);
            return Ok(());
        }
        if let Shape::Boolean = shape {
            check_booleans(from, count)?;
        }
        let start = self.out.len();
        self.out.resize(start + count * 2, 0);
        let (to, from) = (self.out[start..].as_chunks_mut::<2>().0, from.as_chunks::<4>().0);
        let pairs = to.iter_mut().zip(from.iter().map(|bytes| u32::from_be_bytes(*bytes)));
        // One loop for each kind, without branches, so that the compiler can use wide registers.
        let mut lost = 0;
        match (shape, self.layout.booleans) {
            (Shape::Boolean, Booleans::HighBytes) => pairs.for_each(|(to, number)| *to = [number as u8, 0]),
            (Shape::Integer, _) => pairs.for_each(|(to, number)| {
                lost |= number ^ i32::from(number as i16) as u32;
                *to = (number as u16).to_be_bytes();
            }),
            _ => pairs.for_each(|(to, number)| {
                lost |= number >> 16;
                *to = (number as u16).to_be_bytes();
            }),
        }
        if lost != 0 {
            return Err(out_of_range(from, matches!(shape, Shape::Integer)));
        }
        Ok(())
    }

    fn string(&mut self, max: usize) -> Result<(), Error> {
        let length = self.count(max)?;
        let bytes = self.take(length)?;
        self.take(length.wrapping_neg() & 3)?;
        self.reserve(length + 1)?;
        self.out.extend_from_slice(bytes);
        if length % 2 == 1 {
            self.out.push(0);
        }
        Ok(())
    }

    /// Transcodes a count, and returns it.
    fn count(&mut self, max: usize) -> Result<usize, Error> {
        let number = self.number()?;
        match u16::try_from(number) {
            Ok(count) if usize::from(count) <= max => {
                self.put(count)?;
                Ok(count.into())
            }
            _ => Err(Error::new(ErrorKind::TooLong { length: number as usize, max })),
        }
    }

    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        if self.depth == 0 {
            return Err(Error::new(ErrorKind::TooDeep(self.limits.depth)));
        }
        self.depth -= 1;
        let result = inner(self);
        self.depth += 1;
        result
    }

    fn put(&mut self, word: u16) -> Result<(), Error> {
        self.reserve(2)?;
        self.out.extend_from_slice(&word.to_be_bytes());
        Ok(())
    }

    #[inline]
    fn reserve(&mut self, more: usize) -> Result<(), Error> {
        room::reserve(self.out, more).map_err(Error::no_memory)
    }

    fn number(&mut self) -> Result<u32, Error> {
        let bytes = self.take(4)?;
        Ok(bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes)))
    }
}

impl<'a> ToWords<'a> {
    fn take(&mut self, needed: usize) -> Result<&'a [u8], Error> {
        let Some((head, rest)) = self.xdr.split_at_checked(needed) else {
            return Err(Error::new(ErrorKind::Truncated { needed, left: self.xdr.len() }));
        };
        self.xdr = rest;
        self.steps += needed / 16;
        Ok(head)
    }
}

/// Returns the error of the first of these numbers that 16 bits cannot hold.
#[cold]
fn out_of_range(from: &[[u8; 4]], signed: bool) -> Error {
    let numbers = from.iter().map(|bytes| match signed {
        true => i64::from(i32::from_be_bytes(*bytes)),
        false => i64::from(u32::from_be_bytes(*bytes)),
    });
    let fits =
        |number: i64| if signed { i16::try_from(number).is_ok() } else { u16::try_from(number).is_ok() };
    let (index, number) = numbers.enumerate().find(|(_, number)| !fits(*number)).unwrap_or_default();
    let why = Error::new(ErrorKind::OutOfRange(number));
    if from.len() > 1 { why.at_index(index) } else { why }
}
