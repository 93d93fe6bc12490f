//! Takes the bytes of a stream of bytes in parts, before all of an item has arrived.

use std::ops::Range;

use bytes::Bytes;

use super::{Arrival, Source, Stream, item_len};
use crate::xdr::Decode;
use crate::{CallFailed, Kind, Ran, Result};

impl<E: for<'a> Decode<'a>> Stream<Bytes, E> {
    /// Gives the next bytes to `then`, at most `most`, and waits for them; none if there are no more.
    pub(in crate::stub) fn with_part<R>(
        &mut self,
        most: usize,
        then: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, E> {
        let part = match &mut self.source {
            Source::Arrives(arrival) => arrival.part(most),
            _ => return self.with_made(most, then),
        };
        match (part, &self.source) {
            (Some(Ok(part)), Source::Arrives(arrival)) => return Ok(then(&arrival.bytes[part])),
            (Some(Err(why)), _) => {
                self.source = Source::Over(self.taken());
                return Err(why);
            }
            _ => self.source = Source::Over(self.taken()),
        }
        Ok(then(&[]))
    }

    /// Gives the next bytes that are made here to `then`, as [`Stream::with_part`] does.
    fn with_made<R>(&mut self, most: usize, then: impl FnOnce(&[u8]) -> R) -> Result<R, E> {
        if self.rest.is_empty() {
            let next = self.find(|item| item.as_ref().map_or(true, |chunk| !chunk.is_empty()));
            self.rest = next.unwrap_or(Ok(Bytes::new()))?;
        }
        let part = self.rest.split_to(self.rest.len().min(most));
        Ok(then(&part))
    }
}

impl Arrival {
    /// Returns where the next bytes are of a stream of bytes, at most `most`, and waits for them. They may be
    /// a part of an item.
    fn part<E: for<'a> Decode<'a>>(&mut self, most: usize) -> Option<Result<Range<usize>, E>> {
        loop {
            match self.next_part(most) {
                Ok(Some(part)) => return Some(Ok(part)),
                Ok(None) if self.ended => return self.end(),
                Ok(None) => {}
                Err(why) => return Some(Err(why.into())),
            }
            if let Err(why) = self.take() {
                return Some(Err(why.into()));
            }
        }
    }

    /// Returns where the next bytes are, if some have been taken.
    fn next_part(&mut self, most: usize) -> std::result::Result<Option<Range<usize>>, CallFailed> {
        let bad = || {
            let why = "an item of a stream of bytes that does not consist of bytes";
            CallFailed::new(Kind::BadResult, Ran::Yes).because(why)
        };
        loop {
            let (rest, (content, padding)) = (&self.bytes[self.at..], self.begun);
            if content > 0 {
                let len = content.min(most).min(rest.len());
                self.begun.0 -= len;
                self.at += len;
                return Ok((len > 0).then(|| self.at - len..self.at));
            }
            if padding > 0 {
                let Some(zeros) = rest.get(..padding) else { return Ok(None) };
                if zeros.iter().any(|byte| *byte != 0) {
                    return Err(bad());
                }
                self.begun.1 = 0;
                self.at += padding;
                continue;
            }
            let Some((head, rest)) = rest.split_first_chunk() else { return Ok(None) };
            let len = item_len(*head)?;
            let Some(head) = rest.first_chunk() else { return Ok(None) };
            let content = u32::from_be_bytes(*head) as usize;
            let padding = content.wrapping_neg() & 3;
            if content.checked_add(4 + padding) != Some(len) {
                return Err(bad());
            }
            self.begun = (content, padding);
            self.at += 8;
            self.taken += 1;
        }
    }

    /// Skips the rest of an item of which a part was taken. Returns whether all of it has arrived.
    pub(super) fn skip_begun(&mut self) -> bool {
        let (content, padding) = self.begun;
        let skipped = (content + padding).min(self.bytes.len() - self.at);
        self.at += skipped;
        self.begun = (content.saturating_sub(skipped), padding.min(content + padding - skipped));
        self.begun == (0, 0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use std::sync::Arc;

    use super::*;
    use crate::exchange::{Exchanges as _, Tail, pair};
    use crate::{Bulk, xdr};

    /// Returns a stream of bytes of which these have arrived, and then its end.
    fn arrived(bytes: &[u8]) -> Bulk {
        let (near, far) = pair(None);
        let exchange = near.open().unwrap();
        assert_eq!(near.send(exchange, bytes, Tail::End), Some(bytes.len()));
        Stream::from(Source::Arrives(Box::new(Arrival::new(Arc::new(far), exchange, None))))
    }

    fn items(contents: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for content in contents {
            let item = xdr::to_vec(&Bytes::copy_from_slice(content)).unwrap();
            bytes.extend_from_slice(&(item.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&item);
        }
        bytes
    }

    /// Returns what was written of the bytes that have arrived, and why not more.
    fn written(bytes: &[u8]) -> (Vec<u8>, Option<Kind>) {
        let mut written = Vec::new();
        let copied = arrived(bytes).copy_to(&mut written, u64::MAX);
        assert_eq!(copied.bytes, written.len() as u64);
        let kind = copied.failed.map(|why| why.call_failed().expect("no exception is declared").kind());
        (written, kind)
    }

    #[test]
    fn items_of_bytes_are_read_in_parts() {
        let bytes = items(&[b"hello", b"", b"worlds", b"all!"]);
        assert_eq!(written(&bytes), (b"helloworldsall!".to_vec(), None));
        let (mut stream, mut read, mut buffer) = (arrived(&bytes), Vec::new(), [0; 4]);
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => break,
                len => read.push(buffer[..len].to_vec()),
            }
        }
        let parts: [&[u8]; 5] = [b"hell", b"o", b"worl", b"ds", b"all!"];
        assert_eq!((read, stream.taken()), (parts.map(<[u8]>::to_vec).to_vec(), 4));
    }

    #[test]
    fn an_iterator_skips_the_rest_of_an_item_that_was_read_in_part() {
        let mut stream = arrived(&items(&[b"hello", b"world"]));
        assert_eq!(stream.read(&mut [0; 2]).unwrap(), 2);
        assert_eq!(stream.next(), Some(Ok(Bytes::from("world"))));
        assert_eq!(stream.next(), None);
    }

    #[test]
    fn an_item_that_is_not_of_bytes_or_is_torn_fails_the_transfer() {
        let bytes = items(&[b"good", b"hello"]);
        let changed = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            written(&bytes)
        };
        assert_eq!(
            changed(27, 1),
            (b"goodhello".to_vec(), Some(Kind::BadResult)),
            "a padding that is not zero"
        );
        assert_eq!(changed(19, 9), (b"good".to_vec(), Some(Kind::BadResult)), "a length beyond the item");
        assert_eq!(changed(15, 16), (b"good".to_vec(), Some(Kind::BadResult)), "a longer item");
        assert_eq!(changed(12, 9), (b"good".to_vec(), Some(Kind::TooLarge)));
        assert_eq!(written(&bytes[..24]), (b"goodhell".to_vec(), Some(Kind::BadArguments)), "torn");
        assert_eq!(written(&bytes[..16]), (b"good".to_vec(), Some(Kind::BadArguments)), "torn in its head");
    }
}
