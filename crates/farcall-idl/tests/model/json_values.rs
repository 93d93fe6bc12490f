//! Tests the conversion of JSON to XDR and back, by a description.

use std::collections::BTreeMap;
use std::fmt::Debug;

use farcall_idl::{Interface, values};
use farcall_macros::Xdr as Derive;
use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use farcall_xdr::{Decoder, Encoder, Limits, Xdr, from_slice, to_vec};
use serde_json::{Value, json};

fn to_xdr(types: &Types, ty: &Type, value: &Value) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    values::encode(types, ty, value, &mut Encoder::new(&mut out)).map_err(|why| why.to_string())?;
    Ok(out)
}

fn to_json(types: &Types, ty: &Type, bytes: &[u8]) -> Result<Value, String> {
    let mut decoder = Decoder::new(bytes);
    let value = values::decode(types, ty, &mut decoder).map_err(|why| why.to_string())?;
    decoder.finish().map_err(|why| why.to_string())?;
    Ok(value)
}

/// Asserts that `value` is shown as `json`, and that `json` and all of `others` are accepted as `value`.
fn same<T: Xdr + PartialEq + Debug>(value: T, json: Value, others: &[Value]) {
    let mut types = Types::new();
    let ty = T::schema(&mut types);
    assert_eq!(to_json(&types, &ty, &to_vec(&value).unwrap()).unwrap(), json);
    for json in [&json].into_iter().chain(others) {
        let bytes = to_xdr(&types, &ty, json).unwrap();
        assert_eq!(from_slice::<T>(&bytes).unwrap(), value, "{json}");
    }
}

fn refused<T: Xdr>(json: Value) -> String {
    let mut types = Types::new();
    let ty = T::schema(&mut types);
    to_xdr(&types, &ty, &json).expect_err("a refusal")
}

#[derive(Derive, Debug, PartialEq)]
#[xdr(crate = farcall_xdr)]
struct Entry {
    name: String,
    #[xdr(max = 3)]
    tags: Vec<u8>,
    owner: Option<u32>,
    kind: Kind,
}

#[derive(Derive, Debug, PartialEq)]
#[xdr(crate = farcall_xdr)]
enum Kind {
    File,
    Link(String),
    Pair(u32, u32),
    Device { major: u32, minor: u32 },
}

#[derive(Derive, Debug, PartialEq)]
#[xdr(crate = farcall_xdr)]
struct Meters(f64);

#[derive(Derive, Debug, PartialEq)]
#[xdr(crate = farcall_xdr)]
struct Unit;

#[derive(Derive, Debug, PartialEq)]
#[xdr(crate = farcall_xdr, extensible)]
struct Grows {
    a: u32,
    #[xdr(default)]
    b: u64,
    #[xdr(default)]
    c: Option<u32>,
}

#[test]
fn numbers() {
    same(7u8, json!(7), &[json!("7")]);
    same(-7i16, json!(-7), &[]);
    same(u64::MAX, json!("18446744073709551615"), &[json!(u64::MAX)]);
    // A number is accepted and shown as a string, whatever its size.
    same(7u64, json!("7"), &[json!(7)]);
    same(-7i64, json!("-7"), &[json!(-7)]);
    same(i64::MIN, json!("-9223372036854775808"), &[json!(i64::MIN)]);
    same(0.1f32, json!(0.1), &[]);
    same(1.5f64, json!(1.5), &[]);
    same(2.0f64, json!(2.0), &[json!(2)]);
    same(f64::INFINITY, json!("Infinity"), &[]);
    same(f32::NEG_INFINITY, json!("-Infinity"), &[]);
    assert_eq!(refused::<u8>(json!(256)), "at $: expected u8, found 256");
    assert_eq!(refused::<u32>(json!(-1)), "at $: expected u32, found -1");
    assert_eq!(refused::<i8>(json!("128")), "at $: expected i8, found \"128\"");
    assert_eq!(refused::<u64>(json!(1.5)), "at $: expected u64, found 1.5");
    assert_eq!(refused::<f32>(json!(1e300)), "at $: expected f32, found 1e+300");
    assert_eq!(refused::<bool>(json!(1)), "at $: expected bool, found 1");
    assert_eq!(refused::<()>(json!({})), "at $: expected void, found an object");
}

#[test]
fn text_and_bytes() {
    same("tea".to_string(), json!("tea"), &[]);
    same(b"hi".to_vec(), json!("aGk="), &[json!("aGk"), json!({"hex": "6869"}), json!({"text": "hi"})]);
    same(*b"hi!", json!("aGkh"), &[json!({"hex": "686921"})]);
    assert!(refused::<Vec<u8>>(json!("a b")).starts_with("at $: not base64"));
    assert_eq!(refused::<Vec<u8>>(json!({"hex": "123"})), "at $.hex: not pairs of hexadecimal digits");
    assert_eq!(refused::<Vec<u8>>(json!({"hex": "+1"})), "at $.hex: not pairs of hexadecimal digits");
    assert_eq!(refused::<[u8; 3]>(json!("aGk=")), "at $: expected 3 bytes, found 2");
}

#[test]
fn structs_and_enums() {
    let entry =
        Entry { name: "a".into(), tags: vec![1], owner: None, kind: Kind::Device { major: 1, minor: 2 } };
    let device = json!({"Device": {"major": 1, "minor": 2}});
    same(
        entry,
        json!({"name": "a", "tags": "AQ==", "owner": null, "kind": device}),
        &[json!({"name": "a", "tags": "AQ==", "kind": device})],
    );
    same(Kind::File, json!("File"), &[json!({"File": null}), json!({"File": {}})]);
    same(Kind::Link("x".into()), json!({"Link": "x"}), &[]);
    same(Kind::Pair(1, 2), json!({"Pair": [1, 2]}), &[]);
    same(Meters(2.5), json!(2.5), &[]);
    same(Unit, json!("Unit"), &[json!(null), json!({})]);
    same((1u32, "x".to_string()), json!([1, "x"]), &[]);
    same([1u32, 2], json!([1, 2]), &[]);
    same(BTreeMap::from([(1u32, 2u32)]), json!([[1, 2]]), &[]);
    same(vec![None, Some(Some(1u32)), Some(None)], json!([null, [1], [null]]), &[]);

    let missing = refused::<Entry>(json!({"name": "a"}));
    assert_eq!(missing, "at $.tags: missing; expected opaque<3>");
    let unknown = refused::<Entry>(json!({"nam": "a"}));
    assert_eq!(unknown, "at $: there is no field \"nam\"; expected name, tags, owner, kind");
    let long = refused::<Vec<Entry>>(json!([{"name": "a", "tags": "AAAAAA==", "kind": "File"}]));
    assert_eq!(long, "at $[0].tags: length 4 is over the maximum of 3");
    assert_eq!(
        refused::<Kind>(json!("Fil")),
        "at $: there is no variant \"Fil\"; expected File, Link, Pair, Device"
    );
    assert_eq!(refused::<Kind>(json!({"Pair": [1]})), "at $.Pair: expected 2 elements, found 1");
    assert_eq!(refused::<Kind>(json!({"Pair": [1, "x"]})), "at $.Pair[1]: expected u32, found \"x\"");
    assert!(refused::<Kind>(json!({"File": 1, "Link": 2})).contains("expected \"Variant\""));
    assert!(refused::<Option<Option<u32>>>(json!(1)).contains("in brackets"));
    assert!(refused::<[u32; 2]>(json!([1])).contains("expected 2 elements"));
}

#[test]
fn extensible_structs_may_end_early() {
    same(Grows { a: 1, b: 2, c: Some(3) }, json!({"a": 1, "b": "2", "c": 3}), &[]);
    let mut types = Types::new();
    let ty = <Grows as farcall_xdr::Schema>::schema(&mut types);
    let bytes = to_xdr(&types, &ty, &json!({"a": 1})).unwrap();
    assert_eq!(bytes, [0, 0, 0, 4, 0, 0, 0, 1]);
    assert_eq!(from_slice::<Grows>(&bytes).unwrap(), Grows { a: 1, b: 0, c: None });
    assert_eq!(to_json(&types, &ty, &bytes).unwrap(), json!({"a": 1}));
    assert!(refused::<Grows>(json!({"a": 1, "c": 3})).starts_with("at $.b: missing"));
}

#[test]
fn the_variant_of_all_other_integers() {
    let unit = |name: &str, tag| Arm { name: name.into(), docs: String::new(), tag, fields: Vec::new() };
    let mut types = Types::new();
    let ty = types
        .define("k", "K", "", |_| Body::Union { arms: vec![unit("Zero", Some(0)), unit("Other", None)] });
    assert_eq!(to_json(&types, &ty, &[0, 0, 0, 9]).unwrap(), json!({"Other": [9]}));
    assert_eq!(to_xdr(&types, &ty, &json!({"Other": [9, {}]})).unwrap(), [0, 0, 0, 9]);
    assert_eq!(to_xdr(&types, &ty, &json!({"Other": [9]})).unwrap(), [0, 0, 0, 9]);
    assert!(to_xdr(&types, &ty, &json!({"Other": [0]})).unwrap_err().contains("0 selects variant Zero"));
    assert!(to_xdr(&types, &ty, &json!("Other")).unwrap_err().contains("[integer, fields]"));

    let Type::Named(place) = ty else { panic!() };
    types.name_others(place, || vec![(0, "Zero".into()), (9, "Nine".into())]);
    assert_eq!(to_json(&types, &ty, &[0, 0, 0, 9]).unwrap(), json!({"Other": ["Nine"]}));
    assert_eq!(to_json(&types, &ty, &[0, 0, 0, 8]).unwrap(), json!({"Other": [8]}));
    assert_eq!(to_xdr(&types, &ty, &json!({"Other": ["Nine"]})).unwrap(), [0, 0, 0, 9]);
    assert!(to_xdr(&types, &ty, &json!({"Other": ["Zero"]})).unwrap_err().contains("0 selects variant Zero"));
    assert!(to_xdr(&types, &ty, &json!({"Other": ["Ten"]})).is_err());
}

#[test]
fn arguments_by_name_by_order_or_alone() {
    let mut store = Interface::new("Store");
    store.procedure(1, "put").argument::<String>("key").argument::<Option<u32>>("value");
    store.procedure(2, "get").argument::<String>("key");
    store.procedure(3, "size");
    let encode = |name: &str, json: Value| {
        let mut out = Vec::new();
        let procedure = store.by_name(name).unwrap();
        values::encode_arguments(&store, procedure, &json, &mut Encoder::new(&mut out))
            .map(|()| out)
            .map_err(|why| why.to_string())
    };
    let put = to_vec(&("k", Some(7u32))).unwrap();
    assert_eq!(encode("put", json!({"value": 7, "key": "k"})), Ok(put.clone()));
    assert_eq!(encode("put", json!(["k", 7])), Ok(put));
    assert_eq!(encode("put", json!({"key": "k"})), Ok(to_vec(&("k", None::<u32>)).unwrap()));
    assert_eq!(encode("get", json!("k")), Ok(to_vec("k").unwrap()));
    assert_eq!(encode("size", json!(null)), Ok(vec![]));
    assert_eq!(encode("size", json!([])), Ok(vec![]));
    assert_eq!(encode("get", json!({})).unwrap_err(), "at $.key: missing; expected string<>");
    assert_eq!(
        encode("put", json!("k")).unwrap_err(),
        "at $: expected an object with key, value, found \"k\""
    );
    assert_eq!(encode("size", json!([1])).unwrap_err(), "at $: expected 0 elements, found 1");
}

#[test]
fn hostile_bytes_and_descriptions_are_bounded() {
    // A list with a false count, of elements without bytes.
    let types = Types::new();
    let nothing = Type::List { max: u32::MAX, element: Box::new(Type::Void) };
    assert!(to_json(&types, &nothing, &[0xff; 4]).is_err());
    // Fixed arrays of nothing, within each other.
    let many = |inner: Type| Type::Array { size: u32::MAX, element: Box::new(inner) };
    assert!(to_json(&types, &many(many(Type::Void)), &[]).is_err());
    // A type that refers to an index that does not exist.
    assert!(to_json(&types, &Type::Named(7), &[]).is_err());
    assert!(to_xdr(&types, &Type::Named(7), &json!(1)).is_err());
    // A list that nests deeper than JSON programs accept.
    let mut types = Types::new();
    let field = |ty| Field { name: "next".into(), docs: String::new(), ty, defaulted: false };
    let node = types.define("n", "Node", "", |_| Body::Struct {
        fields: vec![field(Type::Optional(Box::new(Type::Named(0))))],
        extensible: false,
    });
    let deep = [0, 0, 0, 1].repeat(100_000);
    assert!(to_json(&types, &node, &deep).unwrap_err().contains("deeper"));
    // A long name, in each element of a list.
    let mut types = Types::new();
    let long = Field { name: "x".repeat(1 << 20), docs: String::new(), ty: Type::U32, defaulted: false };
    let element = types.define("l", "L", "", |_| Body::Struct { fields: vec![long], extensible: false });
    let list = Type::List { max: u32::MAX, element: Box::new(element) };
    let bytes = to_vec(&vec![0u32; 1000]).unwrap();
    let mut decoder = Decoder::new(&bytes).limits(Limits { bytes: 64 << 20, ..Limits::default() });
    assert!(values::decode(&types, &list, &mut decoder).is_err());
}
