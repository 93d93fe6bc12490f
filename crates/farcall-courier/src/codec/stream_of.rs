//! The convention StreamOf: items in segments, as bulk data carries them.
//!
//! `StreamOfT: CHOICE OF { nextSegment(0) => RECORD [segment: SEQUENCE OF T, restOfStream: StreamOfT],
//! lastSegment(1) => SEQUENCE OF T }`. The type contains itself, but its words are a list of segments, each
//! after a word that says whether it is the last.

use std::marker::PhantomData;

use farcall::idl::Interface;
use farcall::xdr::{Decode, Decoder, Encode, Encoder, Schema};

use super::Limits;
use super::error::{Error, ErrorKind};
use super::layout::{Layout, Refusal, Values};

/// Reads and writes streams of items of the type `T`.
///
/// ```
/// use farcall_courier::codec::{Limits, StreamOf};
///
/// let numbers = StreamOf::<u16>::new()?;
/// let mut words = Vec::new();
/// numbers.write(&[7, 8], false, &mut words)?;
/// numbers.write(&[9], true, &mut words)?;
/// assert_eq!(words, [0, 0, 0, 2, 0, 7, 0, 8, 0, 1, 0, 1, 0, 9]);
/// assert_eq!(numbers.read(&words, Limits::default())?, [7, 8, 9]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StreamOf<T> {
    layout: Layout,
    segment: Values,
    item: PhantomData<fn(T) -> T>,
}

const NEXT_SEGMENT: u16 = 0;
const LAST_SEGMENT: u16 = 1;

impl<T: Schema + Encode + for<'a> Decode<'a>> StreamOf<T> {
    /// Returns the reader and writer of such streams.
    ///
    /// # Errors
    /// Courier cannot say the type of the items ([`Layout::new`]).
    pub fn new() -> Result<StreamOf<T>, Refusal> {
        let mut interface = Interface::new("StreamOf");
        interface.procedure(0, "segment").result::<Vec<T>>();
        let layout = Layout::new(&interface)?;
        let Some(segment) = layout.procedure(0).map(|procedure| procedure.result()) else {
            unreachable!("the interface was made with this procedure")
        };
        Ok(StreamOf { layout, segment: Values { name: "segment", ..segment }, item: PhantomData })
    }

    /// Appends the words of one segment. The stream ends with it if it `is_last`.
    ///
    /// # Errors
    /// The segment has more than 65,535 items, or Courier cannot hold one of them. Then `out` is as it was
    /// before.
    pub fn write(&self, items: &[T], is_last: bool, out: &mut Vec<u8>) -> Result<(), Error> {
        let mut xdr = Vec::new();
        let mut encoder = Encoder::new(&mut xdr);
        let encoded = encoder.count(items.len());
        let encoded = encoded.and_then(|()| items.iter().try_for_each(|item| item.encode(&mut encoder)));
        encoded.map_err(|why| Error::new(ErrorKind::NotOfItsType(why.to_string())).of("segment"))?;
        let start = out.len();
        out.extend(if is_last { LAST_SEGMENT } else { NEXT_SEGMENT }.to_be_bytes());
        let limits = Limits { bytes: usize::MAX, ..Limits::default() };
        self.layout.to_words(self.segment, &xdr, out, limits).inspect_err(|_| out.truncate(start))
    }

    /// Returns the items of a whole stream.
    ///
    /// # Errors
    /// The words are not such a stream, something follows it, or the items of a segment exceed a limit.
    pub fn read(&self, words: &[u8], limits: Limits) -> Result<Vec<T>, Error> {
        let (mut rest, mut items, mut xdr) = (words, Vec::new(), Vec::new());
        loop {
            let Some((designator, after)) = rest.split_first_chunk() else {
                return Err(Error::new(ErrorKind::Truncated { needed: 2, left: rest.len() }).of("stream"));
            };
            xdr.clear();
            let used = self.layout.to_xdr_of_first(self.segment, after, &mut xdr, limits)?;
            let segment = Vec::<T>::decode(&mut Decoder::new(&xdr));
            let segment =
                segment.map_err(|why| Error::new(ErrorKind::NotOfItsType(why.to_string())).of("segment"))?;
            items.extend(segment);
            rest = after.get(used..).unwrap_or_default();
            match u16::from_be_bytes(*designator) {
                NEXT_SEGMENT => {}
                LAST_SEGMENT if rest.is_empty() => return Ok(items),
                LAST_SEGMENT => return Err(Error::new(ErrorKind::Trailing(rest.len())).of("stream")),
                other => return Err(Error::new(ErrorKind::UnknownDesignator(other.into())).of("stream")),
            }
        }
    }
}
