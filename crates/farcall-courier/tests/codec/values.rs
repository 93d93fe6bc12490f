//! Single values: the words of each type, and what is refused, with the part that the error names.

use farcall_courier::codec::{Booleans, Error, ErrorKind, Layout, Limits};

use crate::model::{T, V, layout};

fn to_xdr(layout: &Layout, words: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let values = layout.procedure(1).unwrap().arguments();
    layout.to_xdr(values, words, &mut out, Limits::default()).map(|()| out)
}

fn to_words(layout: &Layout, xdr: &[u8]) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    let values = layout.procedure(1).unwrap().arguments();
    layout.to_words(values, xdr, &mut out, Limits::default()).map(|()| out)
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn the_byte_that_pads_a_string_may_have_any_value_and_is_written_as_zero() {
    let layout = layout(&T::String, Booleans::Words);
    let xdr = to_xdr(&layout, &[0, 3, b'o', b'd', b'd', 0xee]).unwrap();
    assert_eq!(xdr, [0, 0, 0, 3, b'o', b'd', b'd', 0]);
    assert_eq!(to_words(&layout, &xdr).unwrap(), [0, 3, b'o', b'd', b'd', 0]);
}

#[test]
fn cooper_packs_a_boolean_into_the_high_byte_and_leaves_the_other_undefined() {
    let layout = layout(&T::Boolean, Booleans::HighBytes);
    assert_eq!(to_xdr(&layout, &[1, 0xee]).unwrap(), [0, 0, 0, 1]);
    assert_eq!(to_words(&layout, &[0, 0, 0, 1]).unwrap(), [1, 0]);
    assert_eq!(refused(to_xdr(&layout, &[2, 0])), "arguments.a: 2 is not a BOOLEAN, which is 0 or 1");
}

#[test]
fn an_error_names_the_part_that_has_it() {
    let user = T::Record(vec![T::Cardinal, T::Sequence(Box::new(T::Record(vec![T::Boolean])))]);
    let user = layout(&user, Booleans::Words);
    let words = [0, 7, 0, 3, 0, 1, 0, 0, 0, 9];
    assert_eq!(refused(to_xdr(&user, &words)), "arguments.a.f1[2].f0: 9 is not a BOOLEAN, which is 0 or 1");
    assert_eq!(
        refused(to_xdr(&user, &words[..6])),
        "arguments.a.f1: 3 elements do not fit into the 2 bytes that are left"
    );
    let many = layout(&T::Sequence(Box::new(T::Boolean)), Booleans::Words);
    assert_eq!(
        refused(to_xdr(&many, &[0, 3, 0, 1, 0, 0, 0, 9])),
        "arguments.a[2]: 9 is not a BOOLEAN, which is 0 or 1"
    );
    let choice = T::Choice(vec![(0, vec![]), (7, vec![T::String])]);
    let choice = layout(&choice, Booleans::Words);
    assert_eq!(refused(to_xdr(&choice, &[0, 3])), "arguments.a: 3 is none of the numbers that the type has");
    assert_eq!(
        refused(to_xdr(&choice, &[0, 7, 0, 9, 1])),
        "arguments.a.a7.0: the message ends here: 9 bytes are needed, 1 are left"
    );
    assert_eq!(refused(to_xdr(&choice, &[0, 0, 0])), "arguments: 1 bytes follow the value");
}

#[test]
fn a_number_that_does_not_fit_16_bits_is_refused() {
    let cardinals = layout(&T::Sequence(Box::new(T::Cardinal)), Booleans::Words);
    let xdr = [0, 0, 0, 2, 0, 0, 0xff, 0xff, 0, 1, 0, 0];
    assert_eq!(refused(to_words(&cardinals, &xdr)), "arguments.a[1]: 65536 does not fit into 16 bits");
    let integer = layout(&T::Integer, Booleans::Words);
    assert_eq!(to_words(&integer, &(-32_768i32).to_be_bytes()).unwrap(), [0x80, 0]);
    assert_eq!(
        refused(to_words(&integer, &(-32_769i32).to_be_bytes())),
        "arguments.a: -32769 does not fit into 16 bits"
    );
    assert_eq!(
        refused(to_words(&integer, &32_768i32.to_be_bytes())),
        "arguments.a: 32768 does not fit into 16 bits"
    );
}

#[test]
fn a_string_of_65535_bytes_is_carried_and_a_longer_one_refused() {
    let layout = layout(&T::String, Booleans::Words);
    for (length, fits) in [(65_535, true), (65_536, false)] {
        let mut xdr = Vec::new();
        V::String(vec![b'x'; length]).xdr(&mut xdr);
        let words = to_words(&layout, &xdr);
        assert_eq!(words.is_ok(), fits);
        match words {
            Ok(words) => assert_eq!(to_xdr(&layout, &words).unwrap(), xdr),
            Err(why) => assert_eq!(*why.kind(), ErrorKind::TooLong { length, max: 65_535 }),
        }
    }
}

#[test]
fn a_count_that_lies_costs_nothing() {
    let pair = T::Record(vec![T::LongCardinal, T::LongCardinal]);
    let layout = layout(&T::Sequence(Box::new(pair)), Booleans::Words);
    let mut out = Vec::new();
    let values = layout.procedure(1).unwrap().arguments();
    let refused = layout.to_xdr(values, &[0xff; 10], &mut out, Limits::default()).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::Count { count: 65_535, left: 8 });
    assert!(out.capacity() <= 64);
}

#[test]
fn elements_without_words_cost_no_time() {
    let nothing = T::Array(10, Box::new(T::Record(vec![])));
    let layout = layout(&T::Array(4, Box::new(T::Sequence(Box::new(nothing)))), Booleans::Words);
    let words = [0xff; 8];
    let xdr = to_xdr(&layout, &words);
    assert_eq!(xdr.unwrap(), [0, 0, 0xff, 0xff].repeat(4));
}

#[test]
fn a_value_that_is_larger_than_the_limit_is_refused() {
    let layout = layout(&T::Sequence(Box::new(T::Cardinal)), Booleans::Words);
    let limits = Limits { bytes: 11, ..Limits::default() };
    let mut out = Vec::new();
    let values = layout.procedure(1).unwrap().arguments();
    let why = layout.to_xdr(values, &[0, 2, 0, 1, 0, 2], &mut out, limits).unwrap_err();
    assert_eq!(why.to_string(), "arguments: the value has 12 bytes, and 11 are allowed");
    assert!(out.is_empty());
}

#[test]
fn a_choice_of_65536_arms_finds_each_of_them() {
    let choice = T::Choice((0..=65_535).map(|tag| (tag, vec![])).collect());
    let layout = layout(&choice, Booleans::Words);
    for tag in [0u16, 1, 255, 256, 40_000, 65_535] {
        let xdr = to_xdr(&layout, &tag.to_be_bytes()).unwrap();
        assert_eq!(xdr, u32::from(tag).to_be_bytes());
        assert_eq!(to_words(&layout, &xdr).unwrap(), tag.to_be_bytes());
    }
}

/// A list in the manner of StreamOf: a CHOICE that contains itself.
#[derive(farcall::Xdr, Debug)]
#[allow(dead_code)]
enum StreamOf {
    #[xdr(tag = 0)]
    Next(u16, Box<StreamOf>),
    #[xdr(tag = 1)]
    Last(u16),
}

#[test]
fn a_choice_that_contains_itself_is_carried_up_to_the_limit_of_depth() {
    let mut interface = farcall::idl::Interface::new("Streams");
    interface.procedure(1, "send").argument::<StreamOf>("a");
    let layout = Layout::new(&interface).unwrap();
    let list = |items: usize| {
        let mut words = [0, 0, 0, 9].repeat(items);
        words.extend([0, 1, 0, 9]);
        words
    };
    let xdr = to_xdr(&layout, &list(100)).unwrap();
    assert_eq!(to_words(&layout, &xdr).unwrap(), list(100));
    let why = to_xdr(&layout, &list(100_000)).unwrap_err();
    assert_eq!(*why.kind(), ErrorKind::TooDeep(512));
    assert!(why.path().starts_with("arguments.a.Next.1.Next.1"));
}
