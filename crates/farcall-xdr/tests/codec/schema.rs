//! Tests descriptions: their content, their encoding, the refusal of forged ones, and fingerprints.

use std::collections::BTreeMap;
use std::time::Duration;

use farcall_macros::Xdr;
use farcall_xdr::schema::{Arm, Body, Field, Type, Types, fingerprint, name_hash};
use farcall_xdr::{Chain, Encode, Schema, from_slice, to_vec};

fn of<T: Schema>() -> (Types, Type) {
    let mut types = Types::new();
    let ty = T::schema(&mut types);
    (types, ty)
}

fn print<T: Schema>() -> u64 {
    let (types, ty) = of::<T>();
    fingerprint(&types, &[ty])
}

macro_rules! types {
    ($($item:item)*) => {$(
        #[derive(Xdr)]
        #[xdr(crate = farcall_xdr)]
        #[allow(dead_code)]
        $item
    )*};
}

types! {
    struct List { value: u32, next: Option<Box<List>> }
    struct SameList { renamed: u32, more: Option<Box<SameList>> }
    struct OtherList { value: u64, next: Option<Box<OtherList>> }
    struct UnrolledList { value: u32, next: Option<Box<List>> }
    struct Even { value: u32, next: Option<Box<Odd>> }
    struct Odd { value: u32, next: Option<Box<Even>> }
    struct Bounded { #[xdr(max = 5)] name: Option<String> }
    struct Unbounded { name: Option<String> }
    enum Plain { A, B }
    enum Tagged { #[xdr(tag = 1)] B, #[xdr(tag = 0)] A }
    enum Open { A, B, #[xdr(default)] Other(i32) }
    enum Expression { Number(f64), Sum(Vec<Expression>), Named(BTreeMap<String, Expression>) }
}

#[derive(Xdr)]
#[xdr(crate = farcall_xdr, extensible)]
#[allow(dead_code)]
struct Version1 {
    id: u32,
}

#[derive(Xdr)]
#[xdr(crate = farcall_xdr, extensible)]
#[allow(dead_code)]
struct Version2 {
    id: u32,
    #[xdr(default)]
    name: String,
}

#[test]
fn descriptions_cross() {
    let mut types = Types::new();
    Expression::schema(&mut types);
    <(List, Open, Bounded, Version2, Duration, [u8; 3], Vec<i8>)>::schema(&mut types);
    Types::schema(&mut types);
    let bytes = to_vec(&types).unwrap();
    assert_eq!(from_slice::<Types>(&bytes).unwrap(), types);
    assert_ne!(types, Types::new());
    for end in 0..bytes.len() {
        assert!(from_slice::<Types>(&bytes[..end]).is_err());
    }
}

#[test]
fn fingerprints_are_of_the_shape_alone() {
    assert_eq!(print::<List>(), print::<SameList>());
    assert_eq!(print::<List>(), print::<UnrolledList>());
    assert_eq!(print::<List>(), print::<Even>());
    assert_ne!(print::<List>(), print::<OtherList>());
    assert_ne!(print::<Bounded>(), print::<Unbounded>());
    assert_eq!(print::<Plain>(), print::<Tagged>());
    assert_ne!(print::<Plain>(), print::<Open>());
    assert_eq!(print::<Version1>(), print::<Version2>());
    assert_ne!(print::<Version1>(), print::<(u32,)>());
    assert_eq!(print::<Unbounded>(), print::<(Option<Box<str>>,)>());
    assert_ne!(print::<(u32, u64)>(), print::<(u64, u32)>());
    assert_ne!(print::<((u32,), u32)>(), print::<(u32, (u32,))>());
    assert_ne!(print::<u8>(), print::<u32>());
    assert_ne!(print::<[u8; 4]>(), print::<Vec<u8>>());
    let (types, ty) = of::<List>();
    let twice = fingerprint(&types, &[ty.clone(), ty.clone()]);
    assert_ne!(twice, fingerprint(&types, &[ty]));
}

#[test]
fn fingerprints_never_change() {
    let mut lines: BTreeMap<&str, u64> = include_str!("vectors/fingerprints.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, hash)| (name, u64::from_str_radix(hash.trim(), 16).unwrap()))
        .collect();
    let mut check = |name, fingerprint: u64| {
        assert_eq!(lines.remove(name), Some(fingerprint), "{name} {fingerprint:016x}");
    };
    check("nothing", fingerprint(&Types::new(), &[]));
    check("void", print::<()>());
    check("unsigned", print::<u32>());
    check("names", print::<Vec<String>>());
    check("list", print::<List>());
    check("expression", print::<Expression>());
    check("open", print::<Open>());
    check("version-1", print::<Version1>());
    check("duration", print::<Duration>());
    check("types", print::<Types>());
    check("chain", print::<Chain<(u32, String)>>());
    check("the-name-get", name_hash("get"));
    assert!(lines.is_empty());
}

fn field(ty: Type) -> Field {
    Field { name: "f".into(), docs: String::new(), ty, defaulted: false }
}

fn named(fields: Vec<Type>) -> Body {
    Body::Struct { fields: fields.into_iter().map(field).collect(), extensible: false }
}

/// Returns the error of decoding the table of `bodies`, or `None` if it is accepted.
fn refused(bodies: Vec<Body>) -> Option<String> {
    let bodies: Vec<_> = bodies.into_iter().map(|body| ("name", "docs", Encoded(body))).collect();
    let error = from_slice::<Types>(&to_vec(&bodies).unwrap()).err()?;
    Some(error.to_string())
}

struct Encoded(Body);

impl Encode for Encoded {
    fn encode(&self, e: &mut farcall_xdr::Encoder<'_>) -> Result<(), farcall_xdr::Error> {
        self.0.encode(e)
    }
}

fn array(size: u32, element: Type) -> Type {
    Type::Array { size, element: Box::new(element) }
}

#[test]
fn forged_descriptions_are_refused() {
    let itself = "at byte 0: a type contains itself, or is nested too deeply".to_owned();
    let empty = "at byte 0: a type has too many parts of no bytes".to_owned();
    assert_eq!(refused(vec![named(vec![Type::Named(0)])]), Some(itself.clone()));
    let turn = |place| named(vec![Type::U32, array(2, Type::Named(place))]);
    assert_eq!(refused(vec![turn(1), turn(2), turn(0)]), Some(itself.clone()));
    let missing = "at byte 0: a type refers to a definition that is missing".to_owned();
    assert_eq!(refused(vec![named(vec![Type::Named(1)])]), Some(missing.clone()));
    let arm = |ty| Arm { name: String::new(), docs: String::new(), tag: None, fields: vec![field(ty)] };
    let union = |ty| Body::Union { arms: vec![arm(ty)] };
    assert_eq!(refused(vec![union(Type::Optional(Box::new(Type::Named(9))))]), Some(missing));
    // Recursion that costs bytes is allowed, because recursive types need it.
    assert_eq!(refused(vec![union(Type::Named(0))]), None);
    assert_eq!(refused(vec![named(vec![array(u32::MAX, Type::Void)])]), Some(empty.clone()));
    let list = Type::List { max: 1, element: Box::new(array(300, Type::Tuple(vec![]))) };
    assert_eq!(refused(vec![named(vec![list])]), Some(empty.clone()));
    assert_eq!(refused(vec![named(vec![array(1000, Type::Opaque { size: 32 })])]), None);
    // A chain of doublings: 2^60 parts in a few hundred bytes.
    let double = |place| named(vec![Type::Named(place), Type::Named(place)]);
    let mut chain: Vec<_> = (1..60).map(double).collect();
    chain.push(named(vec![]));
    assert_eq!(refused(chain), Some(empty));
    let mut chain: Vec<_> = (1..100_000).map(|place| named(vec![Type::Named(place)])).collect();
    chain.push(named(vec![Type::U32]));
    assert_eq!(refused(chain), Some(itself));
    let with_defaults = |defaults: &[bool], extensible| Body::Struct {
        fields: defaults
            .iter()
            .map(|defaulted| Field { defaulted: *defaulted, ..field(Type::U32) })
            .collect(),
        extensible,
    };
    let not_extensible = "at byte 0: a field has a default, but its struct is not extensible".to_owned();
    assert_eq!(refused(vec![with_defaults(&[false, true], false)]), Some(not_extensible.clone()));
    let arm_field = Field { defaulted: true, ..field(Type::U32) };
    let arm = Arm { name: String::new(), docs: String::new(), tag: Some(1), fields: vec![arm_field] };
    assert_eq!(refused(vec![Body::Union { arms: vec![arm] }]), Some(not_extensible));
    let order = "at byte 0: a field without a default follows a field with a default".to_owned();
    assert_eq!(refused(vec![with_defaults(&[false, true, false], true)]), Some(order));
    assert_eq!(refused(vec![with_defaults(&[false, true, true], true)]), None);
    let types = Types::new();
    assert!(types.check(&[Type::Named(0)]).is_err());
    assert!(types.check(&[Type::U32, Type::Optional(Box::new(Type::Void))]).is_ok());
}

#[test]
fn a_description_at_its_bounds_is_accepted_and_one_beyond_them_is_refused() {
    // Types nest 128 deep, whether each type stands in front of the type that it contains, or behind it.
    let parts_behind = |count| {
        let outer = (1..count).map(|place| named(vec![Type::Named(place)]));
        outer.chain([named(vec![Type::U32])])
    };
    let parts_in_front = |count| {
        let outer = (1..count).map(|at| named(vec![Type::Named(at - 1)]));
        std::iter::once(named(vec![Type::U32])).chain(outer)
    };
    assert_eq!(refused(parts_behind(128).collect()), None);
    assert_eq!(refused(parts_in_front(128).collect()), None);
    let itself = "at byte 0: a type contains itself, or is nested too deeply".to_owned();
    assert_eq!(refused(parts_behind(129).collect()), Some(itself));
    let deep = "at byte 0: a type is nested too deeply".to_owned();
    assert_eq!(refused(parts_in_front(129).collect()), Some(deep));

    // A type may have 256 parts of no bytes. If it has more bytes than that, it may have one such part for
    // each byte, but no more than 65,536.
    let with_voids = |count: usize, ty| Type::Tuple([vec![Type::Void; count], vec![ty]].concat());
    let empty = Some("at byte 0: a type has too many parts of no bytes".to_owned());
    let cases = [
        (array(256, Type::Void), None),
        (array(257, Type::Void), empty.clone()),
        (array(257, Type::Opaque { size: 0 }), empty.clone()),
        (array(100, with_voids(8, Type::U64)), None),
        (array(100, with_voids(9, Type::U64)), empty.clone()),
        (array(100, with_voids(4, Type::F32)), None),
        (array(100, with_voids(5, Type::F32)), empty.clone()),
        (array(1 << 16, with_voids(1, Type::U32)), None),
        (array((1 << 16) + 1, with_voids(1, Type::U32)), empty),
    ];
    for (ty, expected) in cases {
        assert_eq!(refused(vec![named(vec![ty.clone()])]), expected, "{ty:?}");
    }
}

#[test]
fn a_table_finds_definitions_by_key_and_the_names_of_their_integers() {
    let mut types = Types::new();
    for name in ["One", "Two"] {
        types.define(name, name, "", |_| named(vec![]));
    }
    assert_eq!(["One", "Two", "Three"].map(|key| types.place(key)), [Some(0), Some(1), None]);
    assert!(types.definitions().iter().map(|definition| &*definition.name).eq(["One", "Two"]));
    types.name_others(1, || vec![(0, "Zero".into()), (9, "Nine".into())]);
    assert_eq!([0, 9, 5].map(|tag| types.other_name(1, tag)), [Some("Zero"), Some("Nine"), None]);
    assert_eq!(["Zero", "Nine", "Five"].map(|name| types.other_tag(1, name)), [Some(0), Some(9), None]);
    assert_eq!((types.other_name(0, 9), types.other_tag(0, "Nine")), (None, None));
}

#[test]
fn a_forged_description_still_has_a_fingerprint() {
    let mut types = Types::new();
    types.define("key", "name", "", |_| named(vec![Type::Named(0), Type::Named(7)]));
    fingerprint(&types, &[Type::Named(0), Type::Named(u32::MAX)]);
}
