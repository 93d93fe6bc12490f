//! Courier's words to XDR bytes. The words come from a peer, and may be any bytes.

use super::error::{Error, ErrorKind};
use super::layout::{Layout, Values};
use super::shape::{Field, Place, Shape};
use super::{Booleans, Limits};
use farcall::{room, work};

impl Layout {
    /// Appends the XDR bytes of a value to `out`, given the value's words. After an error, `out` is as it was
    /// before.
    ///
    /// Takes time and memory in proportion to `words`: a count that the words do not bear out is refused
    /// before its elements are looked at. The byte that pads a string may have any value.
    ///
    /// # Errors
    /// The words are not such a value, or something follows it, or a limit is exceeded.
    pub fn to_xdr(
        &self,
        values: Values,
        words: &[u8],
        out: &mut Vec<u8>,
        limits: Limits,
    ) -> Result<(), Error> {
        let start = out.len();
        let used = self.to_xdr_of_first(values, words, out, limits)?;
        if used < words.len() {
            out.truncate(start);
            return Err(Error::new(ErrorKind::Trailing(words.len() - used)).of(values.name));
        }
        Ok(())
    }

    /// Appends the XDR bytes of the value with which `words` begin, as [`Layout::to_xdr`] does, and returns
    /// how many bytes of `words` the value has.
    pub(super) fn to_xdr_of_first(
        &self,
        values: Values,
        words: &[u8],
        out: &mut Vec<u8>,
        limits: Limits,
    ) -> Result<usize, Error> {
        let start = out.len();
        let mut transcoder = ToXdr { layout: self, words, out, limits, depth: limits.depth, steps: 0 };
        let transcoded = transcoder.value(values.at).and_then(|()| transcoder.check_length(start));
        work::steps(transcoder.steps);
        let left = transcoder.words.len();
        if let Err(why) = transcoded {
            out.truncate(start);
            return Err(why.of(values.name));
        }
        Ok(words.len() - left)
    }
}

struct ToXdr<'a> {
    layout: &'a Layout,
    /// The words that are left.
    words: &'a [u8],
    out: &'a mut Vec<u8>,
    limits: Limits,
    /// How many levels deeper the value may still nest.
    depth: u32,
    /// How many values were looked at, and parts of words taken.
    steps: usize,
}

impl ToXdr<'_> {
    fn check_length(&self, start: usize) -> Result<(), Error> {
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
            Shape::Record(fields) => self.nested(|this| this.record(fields)),
            Shape::Array { count, element } => self.nested(|this| this.elements(*element, *count)),
            Shape::Sequence { max, element } => {
                let count = self.count(*max)?;
                self.nested(|this| this.elements(*element, count))
            }
            Shape::Choice(choice) => {
                let [designator] = self.take::<1>()?;
                let Some(arm) = choice.arm(designator) else {
                    return Err(Error::new(ErrorKind::UnknownDesignator(designator.into())));
                };
                self.put(designator.into())?;
                if layout.node(arm.fields).least_words == 0 {
                    return Ok(());
                }
                self.nested(|this| this.value(arm.fields)).map_err(|why| why.in_field(&arm.name))
            }
        }
    }

    fn record(&mut self, fields: &[Field]) -> Result<(), Error> {
        fields.iter().try_for_each(|field| self.value(field.at).map_err(|why| why.in_field(&field.name)))
    }

    fn elements(&mut self, element: Place, count: usize) -> Result<(), Error> {
        let node = self.layout.node(element);
        if node.least_words == 0 || count == 0 {
            return Ok(());
        }
        if count.saturating_mul(node.least_words) > self.words.len() / 2 {
            return Err(Error::new(ErrorKind::Count { count, left: self.words.len() }));
        }
        match node.shape {
            Shape::Boolean | Shape::Cardinal | Shape::Integer | Shape::Long => self.run(element, count),
            _ => (0..count).try_for_each(|index| self.value(element).map_err(|why| why.at_index(index))),
        }
    }

    /// Transcodes `count` numbers or booleans, which stand one after the other.
    #[inline]
    fn run(&mut self, at: Place, count: usize) -> Result<(), Error> {
        let shape = &self.layout.node(at).shape;
        let width = if matches!(shape, Shape::Long) { 4 } else { 2 };
        let from = self.take_bytes(count.saturating_mul(width))?;
        let start = self.out.len();
        self.reserve(count * 4)?;
        if let Shape::Long = shape {
            self.out.extend_from_slice(from);
            return Ok(());
        }
        self.out.resize(start + count * 4, 0);
        let (to, from) = (self.out[start..].as_chunks_mut::<4>().0, from.as_chunks::<2>().0);
        let pairs = to.iter_mut().zip(from);
        match (shape, self.layout.booleans) {
            (Shape::Integer, _) => {
                pairs.for_each(|(to, from)| *to = i32::from(i16::from_be_bytes(*from)).to_be_bytes());
            }
            (Shape::Boolean, Booleans::HighBytes) => {
                pairs.for_each(|(to, from)| *to = u32::from(from[0]).to_be_bytes());
            }
            _ => pairs.for_each(|(to, from)| *to = [0, 0, from[0], from[1]]),
        }
        if let Shape::Boolean = shape {
            return check_booleans(&self.out[start..], count);
        }
        Ok(())
    }

    fn string(&mut self, max: usize) -> Result<(), Error> {
        let length = self.count(max)?;
        let bytes = self.take_bytes(length)?;
        if length % 2 == 1 {
            self.take_bytes(1)?;
        }
        let padding = length.wrapping_neg() & 3;
        self.reserve(length + padding)?;
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(&[0; 3][..padding]);
        Ok(())
    }

    /// Transcodes a count, and returns it.
    fn count(&mut self, max: usize) -> Result<usize, Error> {
        let [count] = self.take::<1>()?;
        let length = usize::from(count);
        if length > max {
            return Err(Error::new(ErrorKind::TooLong { length, max }));
        }
        self.put(count.into())?;
        Ok(length)
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

    fn put(&mut self, number: u32) -> Result<(), Error> {
        self.reserve(4)?;
        self.out.extend_from_slice(&number.to_be_bytes());
        Ok(())
    }

    #[inline]
    fn reserve(&mut self, more: usize) -> Result<(), Error> {
        room::reserve(self.out, more).map_err(Error::no_memory)
    }

    fn take<const N: usize>(&mut self) -> Result<[u16; N], Error> {
        let bytes = self.take_bytes(2 * N)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u16::from_be_bytes(*bytes);
        }
        Ok(words)
    }
}

impl<'a> ToXdr<'a> {
    fn take_bytes(&mut self, needed: usize) -> Result<&'a [u8], Error> {
        let Some((head, rest)) = self.words.split_at_checked(needed) else {
            return Err(Error::new(ErrorKind::Truncated { needed, left: self.words.len() }));
        };
        self.words = rest;
        self.steps += needed / 16;
        Ok(head)
    }
}

/// Checks that these XDR integers are booleans. The index of an element is part of the error if there are
/// several.
pub(super) fn check_booleans(xdr: &[u8], count: usize) -> Result<(), Error> {
    let values = xdr.as_chunks::<4>().0.iter().map(|bytes| u32::from_be_bytes(*bytes));
    let Some((index, value)) = values.enumerate().find(|(_, value)| *value > 1) else { return Ok(()) };
    let why = Error::new(ErrorKind::NotBoolean(value));
    Err(if count > 1 { why.at_index(index) } else { why })
}
