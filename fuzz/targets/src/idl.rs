//! Fuzz targets for descriptions of interfaces, which servers send, and for values that tools show and read
//! by a description of their type.

use std::collections::HashSet;

use farcall_idl::{Interface, check, values as by_description};
use farcall_xdr::schema::{Type, Types};
use farcall_xdr::{Decode, Decoder, Encoder, Limits, Schema, from_slice, to_vec};
use serde_json::Value;

use crate::xdr::Specimen;

/// Reads an interface as `describe` returns it, shows it, compares it with itself, and encodes calls of it.
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
        assert_eq!(changes, [], "an interface has no changes from itself");
        assert_eq!(refused, [], "an exporter does not refuse an importer of the same version");
    }
    // Each is the work of a call of its own: it looks at all types.
    for procedure in interface.procedures.iter().take(8) {
        let mut packet = Vec::new();
        let _ = by_description::encode_arguments(
            &interface,
            procedure,
            &Value::Null,
            &mut Encoder::new(&mut packet),
        );
    }
}

/// Shows and reads values by descriptions of their types. The input is read as a value of `Specimen`, and
/// as type definitions, a type, and a value of that type.
pub fn values(data: &[u8]) {
    let mut types = Types::new();
    let ty = Specimen::schema(&mut types);
    both_ways(&types, &ty, data);
    let shown = by_description::decode(&types, &ty, &mut within(data));
    if Specimen::decode(&mut Decoder::new(data)).is_ok() {
        assert!(shown.is_ok(), "a value that its type decodes is also decoded by its description: {shown:?}");
    }
    let mut decoder = Decoder::new(data);
    let Ok(types) = Types::decode(&mut decoder) else { return };
    let Ok(ty) = Type::decode(&mut decoder) else { return };
    both_ways(&types, &ty, &data[decoder.offset()..]);
}

/// Returns a decoder with a lower limit on memory than by default. A few bytes can stand for many elements of
/// no bytes, and JSON shows each element.
fn within(bytes: &[u8]) -> Decoder<'_> {
    Decoder::new(bytes).limits(Limits { bytes: 16 << 20, ..Limits::default() })
}

/// Shows a value, encodes what was shown, and shows the result. Both must be the same.
fn both_ways(types: &Types, ty: &Type, data: &[u8]) {
    let Ok(shown) = by_description::decode(types, ty, &mut within(data)) else { return };
    let mut bytes = Vec::new();
    // The encoding can fail: a description may give two fields the same name.
    if by_description::encode(types, ty, &shown, &mut Encoder::new(&mut bytes)).is_ok() {
        let again = by_description::decode(types, ty, &mut within(&bytes));
        assert_eq!(again.ok().as_ref(), Some(&shown));
    }
}

/// Encodes JSON as a user writes it. The input is read as the JSON of a `Specimen`, and as type
/// definitions, a type, and JSON of that type.
pub fn json(data: &[u8]) {
    if let Ok(value) = serde_json::from_slice::<Value>(data) {
        let mut types = Types::new();
        let ty = Specimen::schema(&mut types);
        if let Some(bytes) = written(&types, &ty, &value) {
            let shown = by_description::decode(&types, &ty, &mut within(&bytes));
            assert!(shown.is_ok(), "a value that was encoded from JSON can be shown: {shown:?}");
        }
    }
    let mut decoder = Decoder::new(data);
    let Ok(types) = Types::decode(&mut decoder) else { return };
    let Ok(ty) = Type::decode(&mut decoder) else { return };
    if let Ok(value) = serde_json::from_slice::<Value>(&data[decoder.offset()..]) {
        // The result may not be decodable: a description may give two arms of a union the same number.
        written(&types, &ty, &value);
    }
}

/// Returns the encoding of a JSON value by a description, if the value has that type.
fn written(types: &Types, ty: &Type, value: &Value) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    by_description::encode(types, ty, value, &mut Encoder::new(&mut bytes)).ok()?;
    Some(bytes)
}
