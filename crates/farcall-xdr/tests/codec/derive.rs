//! Tests the wire forms that `#[derive(Xdr)]` gives structs, enums, unions, generics and lists.

use std::collections::BTreeMap;
use std::thread;

use bytes::Bytes;
use farcall_macros::Xdr;
use farcall_xdr::derive::{distinct, tag};
use farcall_xdr::schema::{Body, Type, Types};
use farcall_xdr::{Decode, Decoder, Encode, Schema, Xdr, from_slice, to_vec};

fn is_xdr<T: Xdr>() {}

/// A place.
#[derive(Debug, PartialEq, Clone, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Place {
    /// Degrees.
    latitude: f64,
    longitude: f64,
    #[xdr(max = 8)]
    name: String,
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Titled {
    #[xdr(max = 2)]
    title: Option<String>,
    size: u32,
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Unit;

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Pair(u32, Option<String>);

#[derive(Debug, PartialEq, Clone, Copy, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Colour {
    Red = 2,
    Yellow,
    Blue = 5,
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Shape {
    Nothing,
    Circle {
        radius: f32,
    },
    #[xdr(tag = 7)]
    Polygon(Vec<(i32, i32)>, Colour),
    Later(u64),
    #[xdr(default)]
    Unknown(i32, #[xdr(max = 4)] Vec<u8>),
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Borrowed<'a, T> {
    key: &'a str,
    value: &'a [u8],
    extra: T,
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Page<T, const N: usize> {
    items: [T; N],
    next: Option<Box<Page<T, N>>>,
}

#[derive(Debug, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Node {
    value: u32,
    next: Option<Box<Self>>,
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Tree {
    Leaf(u32),
    Branch(Vec<Tree>),
    Pair(Box<Tree>, Box<Tree>),
}

#[derive(Debug, PartialEq, Default, Xdr)]
#[xdr(crate = farcall_xdr, extensible)]
struct Old {
    id: u32,
}

#[derive(Debug, PartialEq, Default, Xdr)]
#[xdr(crate = farcall_xdr, extensible)]
struct New {
    id: u32,
    #[xdr(default)]
    name: String,
    #[xdr(default)]
    size: Option<u64>,
}

mod hex {
    use farcall_xdr::{Decoder, Encoder, Error, ErrorKind, schema};

    pub fn encode(text: &str, e: &mut Encoder<'_>) -> Result<(), Error> {
        match u64::from_str_radix(text, 16) {
            Ok(value) => e.u64(value),
            Err(_) => Err(e.error(ErrorKind::Invalid("not hexadecimal".into()))),
        }
    }

    pub fn decode(d: &mut Decoder<'_>) -> Result<String, Error> {
        Ok(format!("{:x}", d.u64()?))
    }

    pub fn schema(_: &mut schema::Types) -> schema::Type {
        schema::Type::U64
    }
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Custom {
    #[xdr(with = hex)]
    digits: String,
    r#type: i8,
}

fn round_trip<T: Encode + for<'a> Decode<'a> + PartialEq + std::fmt::Debug>(value: T) -> Vec<u8> {
    let bytes = to_vec(&value).unwrap();
    assert_eq!(from_slice::<T>(&bytes).unwrap(), value);
    bytes
}

#[test]
fn structs() {
    is_xdr::<Place>();
    is_xdr::<Page<Vec<Place>, 2>>();
    let bytes = round_trip(Place { latitude: 1.0, longitude: -2.0, name: "x".into() });
    assert_eq!(bytes.len(), 24);
    assert_eq!(round_trip(Unit), []);
    assert_eq!(round_trip(Pair(3, Some("ab".into()))), *b"\0\0\0\x03\0\0\0\x01\0\0\0\x02ab\0\0");
    assert_eq!(
        round_trip(Custom { digits: "ff".into(), r#type: -1 }),
        *b"\0\0\0\0\0\0\0\xff\xff\xff\xff\xff"
    );
}

#[test]
fn enums_and_unions() {
    assert_eq!(round_trip(Colour::Yellow), [0, 0, 0, 3]);
    assert_eq!(round_trip(Shape::Nothing), [0, 0, 0, 0]);
    assert_eq!(round_trip(Shape::Circle { radius: 1.0 }), [0, 0, 0, 1, 0x3f, 0x80, 0, 0]);
    assert_eq!(round_trip(Shape::Polygon(vec![(1, -1)], Colour::Red))[..4], [0, 0, 0, 7]);
    assert_eq!(round_trip(Shape::Later(9))[..4], [0, 0, 0, 8]);
    assert_eq!(round_trip(Shape::Unknown(-5, vec![1]))[..4], [255, 255, 255, 251]);
    let error = from_slice::<Colour>(&[0, 0, 0, 4]).unwrap_err();
    assert_eq!(error.to_string(), "at byte 0: 4 is not a variant of Colour");
    let error = to_vec(&Shape::Unknown(7, vec![])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "at byte 0: 7 has a variant of its own, so the default variant cannot hold it"
    );
}

/// The code of the derive macro calls these functions when it is compiled.
#[test]
fn tags_are_distinct_and_fit_an_integer() {
    for tags in [&[][..], &[1], &[1, 2, 3], &[i32::MIN, -1, 0, i32::MAX]] {
        assert!(distinct(tags), "{tags:?}");
    }
    for tags in [&[1, 1][..], &[1, 2, 1], &[1, 2, 2], &[1, 1, 2], &[0, 1, 2, 0]] {
        assert!(!distinct(tags), "{tags:?}");
    }
    assert_eq!([i32::MIN, -1, 0, 1, 7, i32::MAX].map(|n| tag(n.into())), [i32::MIN, -1, 0, 1, 7, i32::MAX]);
    for beyond in [i128::from(i32::MIN) - 1, i128::from(i32::MAX) + 1] {
        assert!(std::panic::catch_unwind(|| tag(beyond)).is_err(), "{beyond}");
    }
}

#[test]
fn references_borrow_from_the_packet() {
    let bytes = to_vec(&Borrowed { key: "k", value: &[1, 2], extra: Colour::Blue }).unwrap();
    let value: Borrowed<'_, Colour> = from_slice(&bytes).unwrap();
    assert_eq!(value, Borrowed { key: "k", value: &[1, 2], extra: Colour::Blue });
    assert!(bytes.as_ptr_range().contains(&value.key.as_ptr()));
}

#[test]
fn maxima_hold_both_ways() {
    let place = |name: &str| Place { latitude: 0.0, longitude: 0.0, name: name.into() };
    round_trip(place("12345678"));
    let error = to_vec(&place("123456789")).unwrap_err();
    assert_eq!(error.to_string(), "at byte 16, in Place.name: length 9 is over the maximum of 8");
    let bytes = to_vec(&(0.0, 0.0, "123456789")).unwrap();
    let error = from_slice::<Place>(&bytes).unwrap_err();
    assert_eq!(error.to_string(), "at byte 16, in Place.name: length 9 is over the maximum of 8");
    let error = to_vec(&Shape::Unknown(-5, vec![0; 5])).unwrap_err();
    let text = "at byte 4, in Shape.Unknown.1: length 5 is over the maximum of 4";
    assert_eq!(error.to_string(), text);

    // The maximum of an optional field holds for its content, if there is any.
    let titled = |title: Option<&str>| Titled { title: title.map(str::to_owned), size: 9 };
    round_trip(titled(None));
    round_trip(titled(Some("ab")));
    let text = "at byte 0, in Titled.title: length 3 is over the maximum of 2";
    assert_eq!(to_vec(&titled(Some("abc"))).unwrap_err().to_string(), text);
    let bytes = to_vec(&(Some("abc"), 9u32)).unwrap();
    assert_eq!(from_slice::<Titled>(&bytes).unwrap_err().to_string(), text);
}

#[test]
fn extensible_structs_read_each_other() {
    let new = New { id: 1, name: "n".into(), size: Some(2) };
    let bytes = to_vec(&(&new, 9u32)).unwrap();
    assert_eq!(from_slice::<(Old, u32)>(&bytes).unwrap(), (Old { id: 1 }, 9));
    assert_eq!(from_slice::<(New, u32)>(&bytes).unwrap(), (new, 9));
    let bytes = to_vec(&(Old { id: 1 }, 9u32)).unwrap();
    assert_eq!(from_slice::<(New, u32)>(&bytes).unwrap(), (New { id: 1, ..New::default() }, 9));
    let error = from_slice::<Old>(&[0, 0, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "at byte 4, in Old.id: 4 bytes are needed, 0 are left");
    assert!(from_slice::<Old>(&[0, 0, 0, 3, 0, 0, 0]).is_err());
    assert!(from_slice::<Old>(&[0, 0, 0, 8, 0, 0, 0, 0]).is_err());
}

#[test]
fn errors_and_borrowed_bytes_are_located_right_around_an_extensible_struct() {
    let error = from_slice::<(Old, u32)>(&[0, 0, 0, 0, 0, 0, 0, 9]).unwrap_err();
    assert_eq!(error.to_string(), "at byte 4, in .0.id: 4 bytes are needed, 0 are left");
    let new = New { id: 1, name: "n".into(), size: Some(2) };
    let error = from_slice::<(Old, bool)>(&to_vec(&(&new, 2u32)).unwrap()).unwrap_err();
    assert_eq!(error.to_string(), "at byte 28, in .1: 2 is not a boolean (0 or 1)");
    let packet = Bytes::from(to_vec(&(&new, &b"shared with the packet"[..])).unwrap());
    let (_, shared) = <(Old, Bytes)>::decode(&mut Decoder::with_packet(&packet)).unwrap();
    assert_eq!(shared, &b"shared with the packet"[..]);
    assert!(packet.as_ptr_range().contains(&shared.as_ptr()));
}

fn list(length: u32) -> Node {
    let mut node = Node { value: length - 1, next: None };
    for value in (0..length - 1).rev() {
        node = Node { value, next: Some(Box::new(node)) };
    }
    node
}

fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    thread::Builder::new().stack_size(128 << 10).spawn(test).unwrap().join().unwrap();
}

#[test]
fn a_list_of_a_million_nodes_needs_no_stack() {
    on_a_small_stack(|| {
        let bytes = to_vec(&list(1_000_000)).unwrap();
        assert_eq!(bytes.len(), 8_000_000);
        let first: Node = from_slice(&bytes).unwrap();
        let mut node = &first;
        for value in 0..999_999 {
            assert_eq!(node.value, value);
            node = node.next.as_deref().unwrap();
        }
        assert!(node.next.is_none());
    });
}

#[test]
fn a_list_that_breaks_off_is_dropped_without_stack() {
    on_a_small_stack(|| {
        let bytes = to_vec(&list(1_000_000)).unwrap();
        let error = from_slice::<Node>(&bytes[..bytes.len() - 2]).unwrap_err();
        assert_eq!(error.to_string(), "at byte 7999996, in Node.next: 4 bytes are needed, 2 are left");
    });
}

#[test]
fn trees_are_limited_in_depth() {
    let tree = |depth| (0..depth).fold(Tree::Leaf(1), |tree, _| Tree::Branch(vec![tree]));
    round_trip(tree(128));
    assert!(to_vec(&tree(129)).unwrap_err().to_string().ends_with("nested deeper than 128"));
    round_trip(Tree::Pair(Box::new(Tree::Leaf(1)), Box::new(Tree::Branch(vec![]))));
    let bytes = [0, 0, 0, 1, 0, 0, 0, 1].repeat(100_000);
    let error = from_slice::<Tree>(&bytes).unwrap_err();
    assert!(error.to_string().ends_with("nested deeper than 128"));
}

#[test]
fn errors_say_where() {
    #[derive(Debug, Xdr)]
    #[xdr(crate = farcall_xdr)]
    #[allow(dead_code)]
    struct Entry {
        name: String,
    }
    #[derive(Debug, Xdr)]
    #[xdr(crate = farcall_xdr)]
    #[allow(dead_code)]
    struct Directory {
        entries: Vec<Entry>,
        sizes: BTreeMap<String, [u16; 2]>,
    }
    let error = from_slice::<Directory>(b"\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\x02b\xff\0\0").unwrap_err();
    let text = "at byte 17, in Directory.entries[1].name: string is not UTF-8";
    assert_eq!(error.to_string(), text);
    let bytes = to_vec(&(0u32, vec![("a", [1u32, 65536])])).unwrap();
    let error = from_slice::<Directory>(&bytes).unwrap_err();
    let text = "at byte 20, in Directory.sizes[0].1[1]: 65536 does not fit u16";
    assert_eq!(error.to_string(), text);
    assert_eq!((error.path().as_str(), error.offset()), ("Directory.sizes[0].1[1]", 20));
}

#[test]
fn schemas_describe_the_source() {
    let mut types = Types::new();
    let ty = <(Place, Place, Node)>::schema(&mut types);
    assert_eq!(ty, Type::Tuple(vec![Type::Named(0), Type::Named(0), Type::Named(1)]));
    let place = types.get(0).unwrap();
    assert_eq!((&*place.name, &*place.docs), ("Place", "A place."));
    let Body::Struct { fields, extensible: false } = &place.body else { panic!() };
    assert_eq!((&*fields[0].name, &*fields[0].docs), ("latitude", "Degrees."));
    assert_eq!(fields[2].ty, Type::String { max: 8 });
    let Body::Struct { fields, .. } = &types.get(1).unwrap().body else { panic!() };
    assert_eq!(fields[1].ty, Type::Optional(Box::new(Type::Named(1))));
    let Type::Named(page) = Page::<Option<Place>, 3>::schema(&mut types) else { panic!() };
    assert_eq!(types.get(page).unwrap().name, "Page<Option<Place>>");
    let Type::Named(shape) = Shape::schema(&mut types) else { panic!() };
    let Body::Union { arms } = &types.get(shape).unwrap().body else { panic!() };
    let tags: Vec<_> = arms.iter().map(|arm| (&*arm.name, arm.tag)).collect();
    let expected = [
        ("Nothing", Some(0)),
        ("Circle", Some(1)),
        ("Polygon", Some(7)),
        ("Later", Some(8)),
        ("Unknown", None),
    ];
    assert_eq!(tags, expected);
    types.check(&[]).unwrap();
}
