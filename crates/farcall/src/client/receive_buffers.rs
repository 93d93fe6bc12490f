//! Buffers in which results arrived, and in which those stay until they are fetched, instead of being copied.

use std::mem;
use std::sync::Arc;

/// A buffer that was received into, and that those results share which came in it and were not fetched.
pub(super) type Train = Arc<Box<[u8]>>;

/// Longer than any datagram, so that none is cut.
const BUFFER: usize = 64 << 10;

/// Fewer bytes that came together are not worth a buffer.
const MUCH: usize = 8 << 10;

/// So many buffers a thread lends at most: a result that is fetched late holds one.
const MOST: usize = 4;

/// Room for what arrives.
pub(super) fn buffer() -> Box<[u8]> {
    vec![0; BUFFER].into_boxed_slice()
}

/// The buffers that a thread has lent.
#[derive(Default)]
pub(super) struct ReceiveBuffers(Vec<Train>);

impl ReceiveBuffers {
    /// Takes a buffer into which so many bytes came, to be shared, if that is worth it and another can take
    /// its place.
    pub(super) fn share(&mut self, buffer: &mut Box<[u8]>, len: usize) -> Option<Train> {
        let some = len >= MUCH && (self.0.len() < MOST || self.0.iter().any(is_returned));
        some.then(|| Arc::new(mem::take(buffer)))
    }

    /// The next buffer to receive into: the same, unless a result stays in it.
    pub(super) fn next(&mut self, train: Train) -> Box<[u8]> {
        let train = match Arc::try_unwrap(train) {
            Ok(buffer) => return buffer,
            Err(train) => train,
        };
        let returned = self.0.iter().position(is_returned).map(|place| self.0.swap_remove(place));
        // What else was returned is let go: a burst's room is not kept.
        self.0.retain(|train| !is_returned(train));
        self.0.push(train);
        returned.and_then(|train| Arc::try_unwrap(train).ok()).unwrap_or_else(buffer)
    }
}

fn is_returned(train: &Train) -> bool {
    Arc::strong_count(train) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_received_into_again_when_nobody_has_it() {
        let (mut lent, mut buffer) = (ReceiveBuffers::default(), buffer());
        assert!(lent.share(&mut buffer, MUCH - 1).is_none(), "little is copied");
        buffer[0] = 1;
        let train = lent.share(&mut buffer, MUCH).unwrap();
        buffer = lent.next(train);
        assert_eq!(buffer[0], 1, "no result stayed");

        let mut held = Vec::new();
        while let Some(train) = lent.share(&mut buffer, MUCH) {
            held.push(train.clone());
            buffer = lent.next(train);
            buffer[0] = 2 + held.len() as u8;
        }
        assert_eq!(held.len(), MOST);
        let returned = held.swap_remove(1)[0];
        let train = lent.share(&mut buffer, MUCH).unwrap();
        held.push(train.clone());
        assert_eq!(lent.next(train)[0], returned);
    }
}
