//! Tests long bytes that an encoder does not copy into its buffer.

use bytes::Bytes;
use farcall_xdr::{Encode, Encoder, Error, Spill, to_vec};

/// The least length of opaque data, in bytes, that the encoder offers to a spill.
const LONG: usize = 8 << 10;

/// A spill that keeps the bytes which it is offered.
#[derive(Default)]
struct Kept(Option<(usize, Bytes)>);

impl Spill for Kept {
    fn take(&mut self, _before: &[u8], _bytes: &[u8], _more: usize) -> Option<usize> {
        None
    }

    fn keep(&mut self, at: usize, bytes: &Bytes) -> bool {
        self.0 = Some((at, bytes.clone()));
        true
    }
}

/// Returns the whole encoding of `encode` with a spill that keeps bytes, and the place of the kept bytes if
/// there are any.
fn together(encode: impl Fn(&mut Encoder<'_>) -> Result<(), Error>) -> (Vec<u8>, Option<usize>) {
    let (mut out, mut kept) = (vec![9; 5], Kept::default());
    let mut encoder = Encoder::with_spill(&mut out, &mut kept);
    encode(&mut encoder).unwrap();
    let len = encoder.offset();
    let mut whole = out.split_off(5);
    let at = kept.0.map(|(at, bytes)| {
        whole.splice(at..at, bytes);
        at
    });
    assert_eq!(whole.len(), len);
    (whole, at)
}

fn long(len: usize) -> Bytes {
    (0..len).map(|n| n as u8).collect()
}

#[test]
fn kept_bytes_belong_where_the_encoder_says() {
    for len in [0, 100, LONG, 20_000, 20_001, 20_002, 20_003] {
        let value = (7u32, vec![long(len), long(len + 1)], "after".to_owned());
        let (whole, at) = together(|e| value.encode(e));
        assert_eq!(whole, to_vec(&value).unwrap(), "{len}");
        assert_eq!(at, (len >= LONG).then_some(12), "{len}");
    }
}

/// A spill that takes at most `most` bytes of each offer, or nothing if `most` is `None`. It keeps no bytes.
struct Taking {
    most: Option<usize>,
    taken: Vec<u8>,
    offers: usize,
}

impl Spill for Taking {
    fn take(&mut self, before: &[u8], bytes: &[u8], more: usize) -> Option<usize> {
        self.offers += 1;
        assert!(bytes.len() >= LONG && (bytes.len() + more).is_multiple_of(4) && more < 4);
        let len = self.most?.min(bytes.len());
        self.taken.extend_from_slice(before);
        self.taken.extend_from_slice(&bytes[..len]);
        Some(len)
    }
}

#[test]
fn the_taken_bytes_and_then_the_buffer_make_up_the_encoding() {
    let value = (vec![long(100), long(LONG)], long(LONG + 1), "after".to_owned());
    let expected = to_vec(&value).unwrap();
    // A spill that did not take all of an offer is offered nothing more.
    for (most, offers) in [(None, 1), (Some(0), 1), (Some(1001), 1), (Some(usize::MAX), 2)] {
        let mut spill = Taking { most, taken: Vec::new(), offers: 0 };
        let mut out = vec![9; 5];
        let mut encoder = Encoder::with_spill(&mut out, &mut spill);
        value.encode(&mut encoder).unwrap();
        let len = encoder.offset();
        let whole = [spill.taken, out].concat();
        assert_eq!((&whole[..5], &whole[5..]), (&[9; 5][..], &*expected), "{most:?}");
        assert_eq!((len, spill.offers), (expected.len(), offers), "{most:?}");
    }
}

#[test]
fn what_is_counted_in_bytes_is_not_kept() {
    let value = long(20_001);
    let (whole, at) = together(|e| {
        e.sized(|e| value.encode(e))?;
        value.encode(e)
    });
    let len = to_vec(&value).unwrap().len();
    assert_eq!(whole[..4], (len as u32).to_be_bytes());
    assert_eq!(
        (&whole[4..4 + len], &whole[4 + len..]),
        (&*to_vec(&value).unwrap(), &*to_vec(&value).unwrap())
    );
    assert_eq!(at, Some(4 + len + 4));
}
