//! Tests the types that `.x` files need: byte strings, linked lists, bounds on the elements of a list, typed
//! defaults, and large arrays.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};
use std::thread;

use farcall_macros::Xdr;
use farcall_xdr::schema::{Body, Type, Types};
use farcall_xdr::{
    Bounded, ByteString, Chain, Decode, Decoder, ErrorKind, Limits, Linked, Schema, from_slice, to_vec,
};

#[derive(Debug, PartialEq, Clone, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Entry {
    id: u32,
    #[xdr(max = 4)]
    name: ByteString,
}

#[derive(Debug, PartialEq, Clone, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Listing {
    #[xdr(chain)]
    entries: Vec<Entry>,
    eof: bool,
}

#[derive(Debug, PartialEq, Clone, Copy, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Status {
    Ok = 0,
    Gone = 2,
    Denied = 13,
}

#[derive(Debug, PartialEq, Clone, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Reply {
    #[xdr(tag = Status::Ok)]
    Ok(#[xdr(chain)] Vec<Entry>),
    #[xdr(default)]
    Default(Status, u64),
}

#[derive(Debug, PartialEq, Clone, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Flag {
    #[xdr(tag = 1)]
    True(u32),
    #[xdr(default)]
    Default(bool),
}

#[derive(Debug, PartialEq, Clone, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Switch {
    #[xdr(tag = 0)]
    Off,
    #[xdr(default)]
    Default(bool),
}

#[derive(Debug, PartialEq, Clone, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Word {
    #[xdr(tag = 7)]
    Seven,
    #[xdr(default)]
    Default(u32),
}

fn entry(id: u32, name: &str) -> Entry {
    Entry { id, name: name.into() }
}

#[test]
fn a_string_is_any_bytes() {
    let text = ByteString::from(b"a\xffb".as_slice());
    let wire = to_vec(&text).unwrap();
    assert_eq!(wire, b"\0\0\0\x03a\xffb\0");
    assert_eq!(from_slice::<ByteString>(&wire).unwrap(), text);
    assert_eq!(format!("{text} {text:?} {:?}", ByteString::from("é\"")), "a\u{fffd}b b\"a\\xffb\" \"é\\\"\"");
    assert_eq!(format!("{:>4}|", ByteString::from("ab")), "  ab|");
    let x: ByteString = "x".into();
    assert!(x == "x" && x == *"x");
    assert_eq!(size_of::<ByteString>(), 32);
    for length in [0, 1, 29, 30, 31, 300] {
        let bytes = vec![7; length];
        let (copied, moved) = (ByteString::from(bytes.as_slice()), ByteString::from(bytes.clone()));
        assert_eq!((&*copied, copied.clone().into_bytes()), (&*moved, bytes));
        assert!(copied == moved && copied.cmp(&moved).is_eq());
        // Enough bytes follow the string that the decoder can copy a fixed number of bytes, more than the
        // string has. A string of at most 30 bytes stands in the `ByteString` itself, and no memory is
        // charged for it.
        let wire = to_vec(&(&copied, [u64::MAX; 5])).unwrap();
        assert_eq!(from_slice::<(ByteString, [u64; 5])>(&wire).unwrap().0, copied);
        let limits = Limits { bytes: 0, ..Limits::default() };
        assert_eq!(ByteString::decode(&mut Decoder::new(&wire).limits(limits)).is_ok(), length <= 30);
        assert_eq!(HashSet::from([copied, moved]).len(), 1);
    }
    assert_eq!(ByteString::schema(&mut Types::new()), String::schema(&mut Types::new()));
}

#[test]
fn a_byte_string_is_compared_found_changed_and_converted_as_its_bytes() {
    for length in [1, 30, 31, 300] {
        let (text, mut bytes) = (&*"x".repeat(length), vec![b'x'; length]);
        let (unchanged, mut string) = (ByteString::from(text), ByteString::from(text.to_owned()));
        assert!(string == unchanged && string == text && string == *text);
        assert!(HashSet::from([string.clone()]).contains(&*bytes));
        assert!(BTreeSet::from([string.clone()]).contains(&*bytes));
        (string[0], bytes[0]) = (b'y', b'y');
        assert!(string != unchanged && string != text && string != *text);
        assert_eq!(string.partial_cmp(&unchanged), Some(Ordering::Greater));
        let (referred, borrowed): (&[u8], &[u8]) = (string.as_ref(), string.borrow());
        assert_eq!((referred, borrowed), (&*bytes, &*bytes));
        assert_eq!(Vec::from(string), bytes);
    }
}

#[test]
fn a_chain_is_a_vec_in_all_but_its_wire_form() {
    let mut chain: Chain<u32> = [1, 2].into_iter().collect();
    chain.push(3);
    let mut sum = 0;
    for item in &chain {
        sum += item;
    }
    assert_eq!((sum, Vec::from(chain.clone())), (6, vec![1, 2, 3]));
    assert_eq!(chain.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_chain_is_a_linked_list_on_the_wire() {
    let listing = Listing { entries: vec![entry(1, "a"), entry(2, "")], eof: true };
    let wire = to_vec(&listing).unwrap();
    let expected = [
        0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, b'a', 0, 0, 0, //
        0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 1,
    ];
    assert_eq!(wire, expected);
    assert_eq!(from_slice::<Listing>(&wire).unwrap(), listing);
    let same = (Chain(listing.entries.clone()), true);
    assert_eq!(to_vec(&same).unwrap(), wire);
    let node = Linked { first: entry(1, "a"), rest: vec![entry(2, "")] };
    assert_eq!(to_vec(&node).unwrap(), wire[4..wire.len() - 4]);
    assert_eq!(from_slice::<Linked<Entry>>(&wire[4..wire.len() - 4]).unwrap(), node);
    assert_eq!(node.iter().map(|entry| entry.id).collect::<Vec<_>>(), [1, 2]);

    let why = from_slice::<Listing>(&wire[..30]).unwrap_err();
    assert_eq!(why.to_string(), "at byte 28, in Listing.entries: 4 bytes are needed, 2 are left");
    let long = Listing { entries: vec![entry(1, "a"), entry(2, "abcde")], eof: true };
    let why = to_vec(&long).unwrap_err();
    assert_eq!(why.to_string(), "at byte 24, in Listing.entries[1].name: length 5 is over the maximum of 4");
}

#[test]
fn a_chain_is_described_as_such() {
    let mut types = Types::new();
    let Type::Named(place) = Listing::schema(&mut types) else { panic!("not a struct") };
    let Body::Struct { fields, .. } = &types.get(place).unwrap().body else { panic!("not a struct") };
    assert_eq!(fields[0].ty, Type::Chain(Box::new(Type::Named(1))));
    let wire = to_vec(&types).unwrap();
    assert_eq!(from_slice::<Types>(&wire).unwrap(), types);
    let linked = Linked::<Entry>::schema(&mut types);
    let entry = Type::Named(1);
    assert_eq!(linked, Type::Tuple(vec![entry.clone(), Type::Chain(Box::new(entry))]));
}

#[test]
fn a_long_chain_needs_no_stack_and_is_charged() {
    let run = || {
        let chain: Chain<()> = vec![(); 1_000_000].into();
        let wire = to_vec(&chain).unwrap();
        assert_eq!(from_slice::<Chain<()>>(&wire).unwrap().len(), 1_000_000);
        let chain: Chain<u64> = vec![7; 1000].into();
        let wire = to_vec(&chain).unwrap();
        let limits = Limits { bytes: 7999, ..Limits::default() };
        let why = Chain::<u64>::decode(&mut Decoder::new(&wire).limits(limits)).unwrap_err();
        assert_eq!(*why.kind(), ErrorKind::TooMuchMemory(7999));
    };
    thread::Builder::new().stack_size(128 << 10).spawn(run).unwrap().join().unwrap();
}

#[test]
fn a_default_arm_holds_what_selected_it() {
    let reply = Reply::Default(Status::Denied, 7);
    let wire = to_vec(&reply).unwrap();
    assert_eq!(wire, [0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0, 7]);
    assert_eq!(from_slice::<Reply>(&wire).unwrap(), reply);
    let why = to_vec(&Reply::Default(Status::Ok, 7)).unwrap_err();
    assert_eq!(
        why.to_string(),
        "at byte 0: 0 has a variant of its own, so the default variant cannot hold it"
    );
    let why = from_slice::<Reply>(&[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 7]).unwrap_err();
    assert_eq!(why.to_string(), "at byte 0: 3 is not a variant of Reply");
    let ok = Reply::Ok(vec![entry(9, "x")]);
    assert_eq!(from_slice::<Reply>(&to_vec(&ok).unwrap()).unwrap(), ok);

    assert_eq!(from_slice::<Flag>(&[0; 4]).unwrap(), Flag::Default(false));
    assert_eq!(from_slice::<Flag>(&[0, 0, 0, 1, 0, 0, 0, 5]).unwrap(), Flag::True(5));
    assert!(from_slice::<Flag>(&[0, 0, 0, 2]).is_err());
    assert_eq!(to_vec(&Flag::Default(false)).unwrap(), [0; 4]);
    assert!(to_vec(&Flag::Default(true)).is_err(), "it has an arm of its own");
    assert_eq!(to_vec(&Switch::Default(true)).unwrap(), [0, 0, 0, 1]);
    assert_eq!(from_slice::<Switch>(&[0, 0, 0, 1]).unwrap(), Switch::Default(true));
    assert_eq!(from_slice::<Switch>(&[0; 4]).unwrap(), Switch::Off);
    assert_eq!(to_vec(&Word::Default(u32::MAX - 1)).unwrap(), [255, 255, 255, 254]);
    assert_eq!(from_slice::<Word>(&[255, 255, 255, 254]).unwrap(), Word::Default(u32::MAX - 1));
    assert_eq!(from_slice::<Word>(&[0, 0, 0, 7]).unwrap(), Word::Seven);
}

#[test]
fn elements_of_a_list_can_be_bounded() {
    type Names = Vec<Bounded<ByteString, 3>>;
    let names: Names = vec!["abc".into(), "".into()];
    let wire = to_vec(&names).unwrap();
    assert_eq!(from_slice::<Names>(&wire).unwrap(), names);
    let why = from_slice::<Vec<Bounded<Vec<u8>, 2>>>(&wire).unwrap_err();
    assert_eq!(why.to_string(), "at byte 4, in [0]: length 3 is over the maximum of 2");
    let described = Names::schema(&mut Types::new());
    assert_eq!(described, Type::List { max: u32::MAX, element: Box::new(Type::String { max: 3 }) });
}

#[test]
fn a_boxed_array_never_stands_on_the_stack() {
    const SIZE: usize = 4 << 20;
    let run = || {
        let array: Box<[u8; SIZE]> = vec![7; SIZE].try_into().unwrap();
        let wire = to_vec(&array).unwrap();
        assert_eq!(wire.len(), SIZE);
        assert!(from_slice::<Box<[u8; SIZE]>>(&wire).unwrap() == array);
        assert!(from_slice::<Box<[u8; SIZE]>>(&wire[1..]).is_err());
        let numbers = from_slice::<Box<[u64; SIZE / 8]>>(&wire).unwrap();
        assert_eq!(numbers[SIZE / 8 - 1], 0x0707_0707_0707_0707);
    };
    thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap();
}
