//! What Courier cannot say is refused when the layout is made, with the part that cannot be said.

use farcall::idl::Interface;
use farcall::xdr::schema::{Body, Type, arm, field};
use farcall_courier::codec::Layout;

use crate::model::procedure;

/// Returns the refusal of an argument of this type.
fn refused(ty: Type) -> String {
    let mut interface = Interface::new("Store");
    interface.procedures.push(procedure(vec![("key", ty)], Type::Void, Type::Void));
    Layout::new(&interface).unwrap_err().to_string()
}

fn list(element: Type) -> Type {
    Type::List { max: u32::MAX, element: Box::new(element) }
}

#[test]
fn each_type_that_courier_lacks_is_refused() {
    let optional = Type::Optional(Box::new(Type::U16));
    for (ty, why) in [
        (Type::U8, ": a number of 8 bits; the smallest ones have 16"),
        (Type::I8, ": a number of 8 bits; the smallest ones have 16"),
        (list(Type::U64), "[]: a number of 64 bits; the largest ones have 32"),
        (Type::Tuple(vec![Type::U16, Type::I64]), ".1: a number of 64 bits; the largest ones have 32"),
        (Type::F32, ": Courier has no floating-point numbers"),
        (Type::F64, ": Courier has no floating-point numbers"),
        (
            Type::Opaque { size: 4 },
            ": Courier has no opaque data; a list of u16 is a SEQUENCE OF UNSPECIFIED",
        ),
        (Type::Bytes { max: 4 }, ": Courier has no opaque data; a list of u16 is a SEQUENCE OF UNSPECIFIED"),
        (optional, ": Courier has no optional data; an enum can say it"),
        (Type::Chain(Box::new(Type::U16)), ": Courier has no linked lists"),
        (Type::String { max: 65_536 }, ": its declared maximum is 65536, and 65535 is the greatest"),
        (
            Type::List { max: 70_000, element: Box::new(Type::U16) },
            ": its declared maximum is 70000, and 65535 is the greatest",
        ),
    ] {
        assert_eq!(refused(ty), format!("Courier cannot carry the calls of Store.call, argument key{why}"));
    }
}

#[test]
fn structs_and_unions_are_refused_for_what_they_contain() {
    let body = |body: Body| {
        let mut interface = Interface::new("Store");
        let ty = interface.types.define("T", "T", "", |_| body);
        let outer = interface.types.define("U", "U", "", |_| Body::Struct {
            fields: vec![field("inner", "", list(ty), false)],
            extensible: false,
        });
        interface.procedures.push(procedure(vec![("key", outer)], Type::Void, Type::Void));
        Layout::new(&interface).unwrap_err().to_string()
    };
    let start = "Courier cannot carry the calls of Store.call, argument key.inner[]";
    let fields = || vec![field("x", "", Type::U64, false)];
    let extensible = Body::Struct { fields: vec![], extensible: true };
    assert_eq!(body(extensible), format!("{start}: T is extensible, and records are not"));
    assert_eq!(
        body(Body::Struct { fields: fields(), extensible: false }),
        format!("{start}.x: a number of 64 bits; the largest ones have 32")
    );
    assert_eq!(
        body(Body::Union { arms: vec![arm("other", "", None, vec![])] }),
        format!("{start}: T has a default arm, and a CHOICE has none")
    );
    assert_eq!(
        body(Body::Union { arms: vec![arm("far", "", Some(65_536), vec![])] }),
        format!("{start}: T::far is 65536, and the numbers are 0 to 65535")
    );
    assert_eq!(
        body(Body::Union { arms: vec![arm("near", "", Some(-1), fields())] }),
        format!("{start}: T::near is -1, and the numbers are 0 to 65535")
    );
    assert_eq!(
        body(Body::Union { arms: vec![arm("one", "", Some(1), fields())] }),
        format!("{start}.one.x: a number of 64 bits; the largest ones have 32")
    );
}

#[test]
fn what_is_no_call_and_reply_is_refused() {
    let refusal = |change: &dyn Fn(&mut Interface)| {
        let mut interface = Interface::new("Store");
        interface.procedures.push(procedure(vec![], Type::Void, Type::Void));
        change(&mut interface);
        Layout::new(&interface).unwrap_err().to_string()
    };
    assert_eq!(
        refusal(&|store| store.procedures[0].oneway = true),
        "Courier cannot carry the calls of Store.call: it is one-way, and in Courier each call has a reply"
    );
    assert_eq!(
        refusal(&|store| store.procedures[0].number = 65_536),
        "Courier cannot carry the calls of Store.call: its number is 65536, and 65535 is the greatest"
    );
    assert_eq!(
        refusal(&|store| {
            store.signal("progress");
        }),
        "Courier cannot carry the calls of Store: it has signals, and Courier has none"
    );
    assert_eq!(
        refusal(&|store| store.procedures[0].exception = Type::U16),
        "Courier cannot carry the calls of Store.call, exception: it is not an enum, and in Courier each \
         error has a number"
    );
    assert_eq!(
        refusal(&|store| store.procedures[0].result = Type::U64),
        "Courier cannot carry the calls of Store.call, result: a number of 64 bits; the largest ones have 32"
    );
}

#[test]
fn a_description_with_a_long_chain_of_types_does_not_overflow_the_stack() {
    let mut interface = Interface::new("Store");
    let mut ty = Type::U64;
    for at in 0..100_000 {
        let fields = vec![field("f", "", list(ty), false)];
        ty = interface.types.define(&at.to_string(), "T", "", |_| Body::Struct { fields, extensible: false });
    }
    interface.procedures.push(procedure(vec![("key", ty)], Type::Void, Type::Void));
    let why = Layout::new(&interface).unwrap_err().to_string();
    assert!(why.ends_with(".f[].f[]: a number of 64 bits; the largest ones have 32"));
}
