//! Fuzz targets for External Data Representation (XDR): values of a type with fields of every kind, and
//! descriptions of types.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use farcall_macros::Xdr;
use farcall_xdr::schema::{Type, Types, fingerprint};
use farcall_xdr::{Decode, Decoder, Encode, Limits, to_vec};

/// A type with fields of every kind.
#[derive(Clone, Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
pub struct Specimen {
    narrow: (i8, u8, i16, u16),
    wide: (i32, u32, i64, u64, i128),
    real: (f32, f64),
    flag: bool,
    letter: char,
    fixed: [u8; 5],
    grid: [[u16; 2]; 2],
    #[xdr(max = 32)]
    text: String,
    opaque: Vec<u8>,
    shared: Bytes,
    list: Option<Box<Node>>,
    tree: Tree,
    shapes: Vec<Shape>,
    units: Vec<Unit>,
    map: BTreeMap<String, Vec<u32>>,
    set: BTreeSet<i64>,
    when: Option<(SystemTime, Duration)>,
    peer: Option<SocketAddr>,
    grown: Vec<Grown>,
}

#[derive(Clone, Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Node {
    value: u32,
    next: Option<Box<Self>>,
}

#[derive(Clone, Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Tree {
    Leaf(u32),
    Branch(Vec<Tree>),
    Pair(Box<Tree>, Box<Tree>),
}

#[derive(Clone, Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Shape {
    Nothing,
    Circle {
        radius: u32,
    },
    #[xdr(tag = 7)]
    Polygon(#[xdr(max = 8)] Vec<(i32, i32)>, Colour),
    #[xdr(default)]
    Unknown(i32, Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Colour {
    Red = 2,
    Blue = 5,
}

#[derive(Clone, Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Unit;

#[derive(Clone, Debug, Default, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr, extensible)]
struct Grown {
    id: u32,
    #[xdr(default)]
    name: String,
    #[xdr(default)]
    size: Option<u64>,
}

/// Returns a value for seeds.
pub fn specimen() -> Specimen {
    let leaf = |n| Box::new(Tree::Leaf(n));
    Specimen {
        narrow: (-1, 2, -3, 4),
        wide: (-5, 6, -7, 8, -9),
        real: (1.5, -2.5),
        flag: true,
        letter: 'ß',
        fixed: *b"fixed",
        grid: [[1, 2], [3, 4]],
        text: "text".into(),
        opaque: b"opaque".to_vec(),
        shared: Bytes::from_static(b"shared"),
        list: Some(Box::new(Node { value: 1, next: Some(Box::new(Node { value: 2, next: None })) })),
        tree: Tree::Branch(vec![Tree::Pair(leaf(1), leaf(2)), Tree::Leaf(3)]),
        shapes: vec![
            Shape::Nothing,
            Shape::Circle { radius: 3 },
            Shape::Polygon(vec![(0, 1), (2, 3)], Colour::Red),
            Shape::Unknown(99, b"later".to_vec()),
        ],
        units: vec![Unit, Unit],
        map: [("a".into(), vec![1]), ("b".into(), vec![])].into(),
        set: [-1, 1].into(),
        when: Some((SystemTime::UNIX_EPOCH, Duration::from_millis(1))),
        peer: Some(SocketAddr::from(([127, 0, 0, 1], 7000))),
        grown: vec![Grown { id: 1, name: "one".into(), size: Some(1) }],
    }
}

/// Decodes a `Specimen` strictly and leniently, borrowed from the input and shared with it. A value that
/// was decoded is encoded, and the encoding is decoded to the same value.
pub fn xdr(data: &[u8]) {
    let strict = again(Decoder::new(data));
    let lenient = again(Decoder::new(data).lenient());
    if let Some(strict) = strict {
        assert_eq!(
            lenient,
            Some(strict),
            "a value that is decoded strictly is decoded leniently to the same value"
        );
    }
    let packet = Bytes::copy_from_slice(data);
    again(Decoder::with_packet(&packet));
    again(Decoder::new(data).limits(Limits { depth: 4, bytes: 64 }));
    let mut borrowed = Decoder::new(data);
    let _ = Vec::<(&str, &[u8], Cow<'_, str>)>::decode(&mut borrowed);
}

/// Returns the encoding of the decoded specimen, or `None` if the bytes are no specimen.
fn again(mut decoder: Decoder<'_>) -> Option<Vec<u8>> {
    let value = Specimen::decode(&mut decoder).ok()?;
    decoder.finish().ok()?;
    let bytes = to_vec(&value).expect("what was decoded can be encoded");
    let mut decoder = Decoder::new(&bytes);
    let same = Specimen::decode(&mut decoder).expect("what was encoded can be decoded");
    decoder.finish().expect("an encoding has no further bytes");
    // The encodings are compared, not the values, because a NaN does not equal itself.
    assert_eq!(to_vec(&same).as_ref(), Ok(&bytes));
    Some(bytes)
}

/// Decodes descriptions of types, and a type that refers to them. If they are consistent, computes their
/// fingerprint and spells the type.
pub fn schema(data: &[u8]) {
    let mut decoder = Decoder::new(data);
    let Ok(types) = Types::decode(&mut decoder) else { return };
    let Ok(ty) = Type::decode(&mut decoder) else { return };
    let mut bytes = to_vec(&types).expect("what was decoded can be encoded");
    ty.encode(&mut farcall_xdr::Encoder::new(&mut bytes)).expect("a type that was decoded can be encoded");
    let mut decoder = Decoder::new(&bytes);
    assert_eq!(Types::decode(&mut decoder).as_ref(), Ok(&types));
    assert_eq!(Type::decode(&mut decoder).as_ref(), Ok(&ty));
    if types.check(std::slice::from_ref(&ty)).is_ok() {
        fingerprint(&types, std::slice::from_ref(&ty));
        farcall_idl::spell(&types, &ty);
    }
}
