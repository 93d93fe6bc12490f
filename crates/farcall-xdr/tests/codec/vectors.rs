//! Tests golden vectors in both directions. The bytes are in `vectors/*.txt`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Debug;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use farcall_macros::Xdr;
use farcall_xdr::{Decode, Decoder, Encode, from_slice, to_vec};

/// The vectors of a file by name. Each of them must be checked.
struct Vectors(HashMap<String, Vec<u8>>);

impl Vectors {
    fn parse(text: &str) -> Vectors {
        let mut vectors = HashMap::new();
        let mut name = "";
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            if !line.starts_with(' ') {
                name = words.next().unwrap();
            }
            let bytes: &mut Vec<u8> = vectors.entry(name.to_owned()).or_default();
            for word in words {
                let digits = (0..word.len()).step_by(2);
                bytes.extend(digits.map(|at| u8::from_str_radix(&word[at..at + 2], 16).unwrap()));
            }
        }
        Vectors(vectors)
    }

    #[track_caller]
    fn check<T: Encode + for<'a> Decode<'a> + PartialEq + Debug>(&mut self, name: &str, value: T) {
        let bytes = self.0.remove(name).expect("the vector is in the file");
        assert_eq!(to_vec(&value).unwrap(), bytes, "encoding of {name}");
        assert_eq!(from_slice::<T>(&bytes).unwrap(), value, "decoding of {name}");
        assert!(bytes.len() >= T::MIN_SIZE, "least size of {name}");
        for end in 0..bytes.len() {
            assert!(from_slice::<T>(&bytes[..end]).is_err(), "{name} cut to {end}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(from_slice::<T>(&longer).is_err(), "{name} with a byte after it");
        let mut lenient = Decoder::new(&longer).lenient();
        assert_eq!(T::decode(&mut lenient).unwrap(), value);
        lenient.finish().unwrap();
    }

    fn finish(self) {
        assert!(self.0.is_empty(), "not checked: {:?}", self.0.keys());
    }
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Colour {
    Red = 2,
    Yellow = 3,
    Blue = 5,
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum Union {
    Nothing,
    Text(#[xdr(max = 2)] String),
    #[xdr(default)]
    Other(i32, u32),
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Struct {
    a: u32,
    b: i64,
    c: bool,
}

/// The `stringlist` of RFC 4506 section 4.19, with numbers.
#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct Node {
    item: u32,
    next: Option<Box<Node>>,
}

/// The `file` of RFC 4506 section 7.
#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
struct File {
    #[xdr(max = 255)]
    filename: String,
    kind: FileType,
    #[xdr(max = 32)]
    owner: String,
    #[xdr(max = 65535)]
    data: Vec<u8>,
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr)]
enum FileType {
    Text,
    Data(#[xdr(max = 255)] String),
    Exec(#[xdr(max = 255)] String),
}

#[derive(Debug, PartialEq, Xdr)]
#[xdr(crate = farcall_xdr, extensible)]
struct Extensible {
    a: u32,
    #[xdr(default)]
    b: bool,
}

#[test]
fn rfc_4506() {
    let mut vectors = Vectors::parse(include_str!("vectors/rfc4506.txt"));
    vectors.check("int-min", i32::MIN);
    vectors.check("int-minus-one", -1i32);
    vectors.check("int-max", i32::MAX);
    vectors.check("unsigned-262", 262u32);
    vectors.check("unsigned-max", u32::MAX);
    vectors.check("false", false);
    vectors.check("true", true);
    vectors.check("enum-blue", Colour::Blue);
    vectors.check("hyper-min", i64::MIN);
    vectors.check("unsigned-hyper", 0x0102_0304_0506_0708u64);
    vectors.check("float-one", 1f32);
    vectors.check("float-minus-zero", -0f32);
    vectors.check("float-minus-infinity", f32::NEG_INFINITY);
    vectors.check("float-smallest", f32::from_bits(1));
    vectors.check("double-one-and-half", 1.5f64);
    vectors.check("double-largest", f64::MAX);
    vectors.check("opaque-fixed-0", [0u8; 0]);
    vectors.check("opaque-fixed-3", [1u8, 2, 3]);
    vectors.check("opaque-fixed-4", [1u8, 2, 3, 4]);
    vectors.check("opaque-variable-0", Vec::<u8>::new());
    vectors.check("opaque-variable-5", vec![1u8, 2, 3, 4, 5]);
    vectors.check("string-empty", String::new());
    vectors.check("string-utf8", "Müll".to_owned());
    vectors.check("array-fixed", [1u32, 2, 3]);
    vectors.check("array-variable", vec!["a".to_owned(), "bc".to_owned()]);
    vectors.check("struct", Struct { a: 1, b: -2, c: true });
    vectors.check("void", ());
    vectors.check("union-void", Union::Nothing);
    vectors.check("union-string", Union::Text("ok".into()));
    vectors.check("union-default", Union::Other(9, 10));
    vectors.check("optional-none", None::<u32>);
    vectors.check("optional-some", Some(7));
    let tail = Node { item: 2, next: None };
    vectors.check("list", Node { item: 1, next: Some(Box::new(tail)) });
    let file = File {
        filename: "sillyprog".into(),
        kind: FileType::Exec("lisp".into()),
        owner: "john".into(),
        data: b"(quit)".into(),
    };
    vectors.check("file", file);
    vectors.finish();
}

#[test]
fn std_types() {
    let mut vectors = Vectors::parse(include_str!("vectors/std.txt"));
    vectors.check("i8-min", i8::MIN);
    vectors.check("u8-max", u8::MAX);
    vectors.check("i16-min", i16::MIN);
    vectors.check("u16-max", u16::MAX);
    vectors.check("u128", 0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0fu128);
    vectors.check("i128-minus-two", -2i128);
    vectors.check("char", '😀');
    vectors.check("non-zero", NonZero::<u16>::new(3).unwrap());
    vectors.check("tuple", (1u8, "x".to_owned(), true));
    vectors.check("map", BTreeMap::from([(1, "a".to_owned()), (2, "b".to_owned())]));
    vectors.check("set", BTreeSet::from([2u8, 1]));
    vectors.check("bytes", Bytes::from_static(&[1, 2, 3]));
    vectors.check("boxed", Box::new(5u32));
    let span = Duration::from_millis(1500);
    vectors.check("duration", span);
    vectors.check("time-after", UNIX_EPOCH + span);
    vectors.check("time-before", UNIX_EPOCH - span);
    vectors.check("ipv4", IpAddr::from([127, 0, 0, 1]));
    vectors.check("ipv6", IpAddr::from(1u128.to_be_bytes()));
    vectors.check("socket-v4", SocketAddr::from(([127, 0, 0, 1], 80)));
    let v6 = SocketAddrV6::new(1u128.to_be_bytes().into(), 80, 2, 3);
    vectors.check("socket-v6", SocketAddr::V6(v6));
    vectors.check("extensible", Extensible { a: 7, b: true });
    vectors.finish();
}

#[track_caller]
fn same<T: Encode + ?Sized, U: Encode + for<'a> Decode<'a> + PartialEq + Debug>(one: &T, other: U) {
    let bytes = to_vec(one).unwrap();
    assert_eq!(to_vec(&other).unwrap(), bytes);
    assert_eq!(from_slice::<U>(&bytes).unwrap(), other);
}

#[test]
fn owners_and_collections_cross_as_what_they_hold() {
    same("text", "text".to_owned());
    same("text", Box::<str>::from("text"));
    same("text", Rc::<str>::from("text"));
    same("text", Arc::<str>::from("text"));
    same(&[1u8, 2][..], Arc::<[u8]>::from([1, 2]));
    same(&[1u8, 2][..], Bytes::from_static(&[1, 2]));
    same(&[1u64, 2][..], Box::<[u64]>::from([1, 2]));
    same(&7u32, Rc::new(7u32));
    same(&[(1, 2)][..], HashMap::from([(1, 2)]));
    same(&[1][..], HashSet::from([1]));
    same(&(), PhantomData::<u32>);
    same(&[1u32; 12], (1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32, 1u32));
    let bytes = to_vec("text").unwrap();
    assert!(matches!(from_slice::<Cow<'_, str>>(&bytes), Ok(Cow::Borrowed("text"))));
    assert!(matches!(from_slice::<Cow<'_, [u8]>>(&bytes), Ok(Cow::Borrowed(b"text"))));
    assert_eq!(to_vec(&Cow::Borrowed("text")).unwrap(), bytes);
    let long_ago = to_vec(&(i64::MIN, 1u32)).unwrap();
    if let Ok(time) = from_slice::<SystemTime>(&long_ago) {
        assert_eq!(to_vec(&time).unwrap(), long_ago);
    }
}

#[test]
fn numbers_in_bulk_are_numbers_one_by_one() {
    let bytes: Vec<u8> = (0..4000u32).map(|byte| byte as u8 ^ (byte >> 8) as u8).collect();
    for count in (0..70).chain([499, 500]) {
        macro_rules! check {
            ($($number:ident)*) => {$({
                let one_by_one = |d: &mut Decoder<'_>| (0..count).map(|_| $number::decode(d)).collect();
                let numbers: Vec<$number> = Result::unwrap(one_by_one(&mut Decoder::new(&bytes)));
                let wire = [&(count as u32).to_be_bytes(), &bytes[..count * size_of::<$number>()]].concat();
                assert_eq!(to_vec(&numbers).unwrap(), wire);
                let bulk = from_slice::<Vec<$number>>(&wire).unwrap();
                assert!(bulk.iter().map(|n| n.to_bits()).eq(numbers.iter().map(|n| n.to_bits())));
            })*};
        }
        trait ToBits: Copy {
            fn to_bits(self) -> Self {
                self
            }
        }
        impl ToBits for u32 {}
        impl ToBits for i32 {}
        impl ToBits for u64 {}
        impl ToBits for i64 {}
        check! { u32 i32 u64 i64 f32 f64 }
    }
    let array: [u64; 100] = Decode::decode(&mut Decoder::new(&bytes)).unwrap();
    assert_eq!(to_vec(&array).unwrap(), bytes[..800]);
}
