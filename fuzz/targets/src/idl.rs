//! Descriptions of interfaces, which servers send, and values by description, as tools show and read them.

use std::collections::HashSet;

use farcall_idl::{Interface, check, values as by_description};
use farcall_xdr::schema::{Type, Types};
use farcall_xdr::{Decode, Decoder, Encoder, Limits, Schema, from_slice, to_vec};
use serde_json::Value;

use crate::xdr::Specimen;

/// An interface, as `describe` answers: shown, compared, its calls written.
pub fn interface(data: &[u8]) {
    let Ok(interface) = from_slice::<Interface>(data) else { return };
    let bytes = to_vec(&interface).expect("what was decoded can be encoded");
    assert_eq!(from_slice::<Interface>(&bytes).as_ref(), Ok(&interface));
    let refused = farcall_idl::refusals(&interface, &interface.fingerprints());
    let _ = interface.to_string();
    let changes = check(&interface, &interface);
    let numbers: HashSet<u32> = interface.procedures.iter().map(|procedure| procedure.number).collect();
    let names: HashSet<&str> = interface.procedures.iter().map(|procedure| procedure.name.as_str()).collect();
    if numbers.len() == interface.procedures.len() && names.len() == numbers.len() {
        assert_eq!(changes, [], "unlike itself");
        assert_eq!(refused, [], "an importer of the same version");
    }
    for procedure in &interface.procedures {
        let mut packet = Vec::new();
        let _ = by_description::encode_arguments(
            &interface,
            procedure,
            &Value::Null,
            &mut Encoder::new(&mut packet),
        );
    }
}

/// A value by its description: types, a type and a value, one after the other; and a specimen by ours.
pub fn values(data: &[u8]) {
    let mut types = Types::new();
    let ty = Specimen::schema(&mut types);
    both_ways(&types, &ty, data);
    let shown = by_description::decode(&types, &ty, &mut within(data));
    if Specimen::decode(&mut Decoder::new(data)).is_ok() {
        assert!(shown.is_ok(), "decoded, but not by description: {shown:?}");
    }
    let mut decoder = Decoder::new(data);
    let Ok(types) = Types::decode(&mut decoder) else { return };
    let Ok(ty) = Type::decode(&mut decoder) else { return };
    both_ways(&types, &ty, &data[decoder.offset()..]);
}

/// A few bytes may stand for many elements of no bytes, which JSON shows one by one: less of it than by
/// default.
fn within(bytes: &[u8]) -> Decoder<'_> {
    Decoder::new(bytes).limits(Limits { bytes: 16 << 20, ..Limits::default() })
}

/// What is shown of a value, written, is shown the same.
fn both_ways(types: &Types, ty: &Type, data: &[u8]) {
    let Ok(shown) = by_description::decode(types, ty, &mut within(data)) else { return };
    let mut bytes = Vec::new();
    // It need not succeed: a description may give two fields one name.
    if by_description::encode(types, ty, &shown, &mut Encoder::new(&mut bytes)).is_ok() {
        let again = by_description::decode(types, ty, &mut within(&bytes));
        assert_eq!(again.ok().as_ref(), Some(&shown));
    }
}

/// JSON that a user writes, as a specimen, and by a description that comes before it.
pub fn json(data: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<Value>(data) {
        let mut types = Types::new();
        let ty = Specimen::schema(&mut types);
        if let Some(bytes) = written(&types, &ty, &value) {
            let shown = by_description::decode(&types, &ty, &mut within(&bytes));
            assert!(shown.is_ok(), "written, but cannot be shown: {shown:?}");
        }
    }
    let mut decoder = Decoder::new(data);
    let Ok(types) = Types::decode(&mut decoder) else { return };
    let Ok(ty) = Type::decode(&mut decoder) else { return };
    if let Ok(value) = serde_json::from_slice::<Value>(&data[decoder.offset()..]) {
        // It need not be readable: a description may give two arms of a union one number.
        written(&types, &ty, &value);
    }
}

fn written(types: &Types, ty: &Type, value: &Value) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    by_description::encode(types, ty, value, &mut Encoder::new(&mut bytes)).ok()?;
    Some(bytes)
}
