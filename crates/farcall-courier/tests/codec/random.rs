//! Random values of random types: the transcoder agrees with the independent encoder, and refuses what is cut
//! off.

use farcall_courier::codec::{Booleans, Error, Layout, Limits};

use crate::model::{T, V, layout};

/// A generator of random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn ty(&mut self, depth: usize) -> T {
        match self.below(if depth == 0 { 6 } else { 10 }) {
            0 => T::Boolean,
            1 => T::Cardinal,
            2 => T::Integer,
            3 => T::LongCardinal,
            4 => T::LongInteger,
            5 => T::String,
            6 => T::Array(self.below(4), Box::new(self.ty(depth - 1))),
            7 => T::Sequence(Box::new(self.ty(depth - 1))),
            8 => T::Record(self.types(depth - 1)),
            _ => {
                let first = self.next() as u16;
                let step = [1, 3, 257][self.below(3)];
                let arms = (0..1 + self.below(4)).map(|at| {
                    let fields = if self.below(2) == 0 { Vec::new() } else { self.types(depth - 1) };
                    (first.wrapping_add(step * at as u16), fields)
                });
                T::Choice(arms.collect())
            }
        }
    }

    fn types(&mut self, depth: usize) -> Vec<T> {
        (0..self.below(4)).map(|_| self.ty(depth)).collect()
    }

    fn value(&mut self, ty: &T) -> V {
        match ty {
            T::Boolean => V::Boolean(self.below(2) == 1),
            T::Cardinal => V::Cardinal(self.next() as u16),
            T::Integer => V::Integer(self.next() as i16),
            T::LongCardinal => V::LongCardinal(self.next() as u32),
            T::LongInteger => V::LongInteger(self.next() as i32),
            T::String => V::String((0..self.below(9)).map(|_| self.next() as u8).collect()),
            T::Array(count, element) => V::Parts((0..*count).map(|_| self.value(element)).collect()),
            T::Sequence(element) => {
                let count = [self.below(5), 40][usize::from(self.below(8) == 0)];
                V::Sequence((0..count).map(|_| self.value(element)).collect())
            }
            T::Record(fields) => V::Parts(fields.iter().map(|field| self.value(field)).collect()),
            T::Choice(arms) => {
                let (tag, fields) = &arms[self.below(arms.len())];
                V::Choice(*tag, fields.iter().map(|field| self.value(field)).collect())
            }
        }
    }
}

fn to_words(layout: &Layout, xdr: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = vec![0xaa];
    let values = layout.procedure(1).unwrap().arguments();
    let transcoded = layout.to_words(values, xdr, &mut out, Limits::default());
    assert!(transcoded.is_ok() || out == [0xaa], "an error leaves the buffer as it was");
    transcoded.map(|()| out.split_off(1))
}

fn to_xdr(layout: &Layout, words: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = vec![0xaa];
    let values = layout.procedure(1).unwrap().result();
    let transcoded = layout.to_xdr(values, words, &mut out, Limits::default());
    assert!(transcoded.is_ok() || out == [0xaa], "an error leaves the buffer as it was");
    transcoded.map(|()| out.split_off(1))
}

#[test]
fn values_become_what_the_independent_encoder_makes_of_them_and_come_back() {
    let mut random = Random(1);
    for _ in 0..3000 {
        let ty = random.ty(3);
        let booleans = [Booleans::Words, Booleans::HighBytes][random.below(2)];
        let layout = layout(&ty, booleans);
        let value = random.value(&ty);
        let (mut xdr, mut words) = (Vec::new(), Vec::new());
        value.xdr(&mut xdr);
        value.words(booleans, &mut words);
        assert_eq!(to_words(&layout, &xdr).as_ref(), Ok(&words), "{ty:?} {value:?}");
        assert_eq!(to_xdr(&layout, &words).as_ref(), Ok(&xdr), "{ty:?} {value:?}");
        assert!(xdr.len() <= 2 * words.len());
        for end in 0..words.len() {
            assert!(to_xdr(&layout, &words[..end]).is_err(), "{end} bytes of {words:x?}, {ty:?}");
        }
        for end in 0..xdr.len() {
            assert!(to_words(&layout, &xdr[..end]).is_err(), "{end} bytes of {xdr:x?}, {ty:?}");
        }
        words.push(0);
        xdr.push(0);
        assert!(to_xdr(&layout, &words).is_err() && to_words(&layout, &xdr).is_err());
    }
}

#[test]
fn random_words_give_a_value_or_an_error() {
    let mut random = Random(2);
    let mut values = 0;
    for _ in 0..10_000 {
        let ty = random.ty(3);
        let layout = layout(&ty, Booleans::Words);
        let small = random.below(2) == 0;
        let words: Vec<u8> = (0..2 * random.below(20))
            .map(
                |at| if small && at % 2 == 0 { 0 } else { random.next() as u8 & if small { 3 } else { 255 } },
            )
            .collect();
        let Ok(xdr) = to_xdr(&layout, &words) else { continue };
        values += 1;
        let again = to_words(&layout, &xdr).unwrap();
        // Only the bytes that pad strings may differ.
        assert_eq!(again.len(), words.len(), "{ty:?} {words:x?}");
        assert_eq!(to_xdr(&layout, &again).as_ref(), Ok(&xdr));
    }
    assert!(values > 250, "{values} of the random words are values");
}
