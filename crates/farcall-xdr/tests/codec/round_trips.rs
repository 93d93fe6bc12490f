//! Tests with random values and bytes. Every value survives encoding and decoding; its encoding consists of
//! whole words, and is not shorter than its least size. No bytes cause a panic, and strictly decoded bytes
//! encode to the same bytes.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use farcall_macros::Xdr;
use farcall_xdr::schema::Types;
use farcall_xdr::{Decode, Decoder, Encode, from_slice, to_vec};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Rich {
    flags: (bool, u8, i16, Option<char>),
    #[xdr(max = 40)]
    name: String,
    numbers: Vec<u64>,
    words: Vec<u32>,
    reals: Vec<i64>,
    opaque: [u8; 5],
    data: Bytes,
    map: BTreeMap<String, Value>,
    span: Option<Duration>,
    next: Option<Box<Rich>>,
}

#[derive(Clone, Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Value {
    Nothing,
    #[xdr(tag = -7)]
    Number(i128),
    Text {
        text: String,
    },
    List(Vec<Value>),
    Pair(Box<(Value, Value)>),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nothing),
        any::<i128>().prop_map(Value::Number),
        ".{0,9}".prop_map(|text| Value::Text { text }),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::List),
            (inner.clone(), inner).prop_map(|pair| Value::Pair(Box::new(pair))),
        ]
    })
}

fn rich() -> impl Strategy<Value = Rich> {
    let scalars = (any::<(bool, u8, i16, Option<char>)>(), "[a-zü]{0,20}", any::<[u8; 5]>());
    let lists = (
        vec(any::<u64>(), 0..70),
        vec(any::<u32>(), 0..70),
        vec(any::<i64>(), 0..70),
        vec(any::<u8>(), 0..30),
    );
    let others = (btree_map(".{0,3}", value(), 0..4), any::<Option<Duration>>());
    let node = (scalars, lists, others).prop_map(|(scalars, lists, others)| Rich {
        flags: scalars.0,
        name: scalars.1,
        opaque: scalars.2,
        numbers: lists.0,
        words: lists.1,
        reals: lists.2,
        data: lists.3.into(),
        map: others.0,
        span: others.1,
        next: None,
    });
    vec(node, 1..4).prop_map(|nodes| {
        let link = |next, mut node: Rich| {
            node.next = Option::map(next, Box::new);
            Some(node)
        };
        nodes.into_iter().fold(None, link).expect("one node or more")
    })
}

fn total<T: Encode + for<'a> Decode<'a> + Debug>(bytes: &[u8]) {
    if let Ok(value) = from_slice::<T>(bytes) {
        assert_eq!(to_vec(&value).unwrap(), bytes);
    }
    let _ = T::decode(&mut Decoder::new(bytes).lenient());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn values_come_back(value in rich()) {
        let bytes = to_vec(&value).unwrap();
        prop_assert!(bytes.len() % 4 == 0 && bytes.len() >= Rich::MIN_SIZE);
        prop_assert_eq!(from_slice::<Rich>(&bytes).unwrap(), value.clone());
        let packet = Bytes::from(bytes);
        prop_assert_eq!(Rich::decode(&mut Decoder::with_packet(&packet)).unwrap(), value);
    }

    #[test]
    fn any_bytes_are_a_value_or_an_error(bytes in vec(any::<u8>(), 0..200)) {
        total::<Rich>(&bytes);
        total::<Types>(&bytes);
    }

    #[test]
    fn words_that_are_small(words in vec(0u32..6, 0..60)) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        total::<Vec<Value>>(&bytes);
        total::<Types>(&bytes);
        total::<Vec<Option<[u16; 3]>>>(&bytes);
    }

    #[test]
    fn a_changed_word(value in rich(), at in any::<prop::sample::Index>(), word in any::<u32>()) {
        let mut bytes = to_vec(&value).unwrap();
        let at = at.index(bytes.len() / 4) * 4;
        bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
        if let Ok(changed) = from_slice::<Rich>(&bytes) {
            // The keys of a map may come in any order.
            prop_assert_eq!(to_vec(&changed).unwrap().len(), bytes.len());
        }
    }
}
