//! Compares docs/vectors/types.txt (docs/interfaces.md) with the code: how a description encodes each wire
//! type and an interface, and their fingerprints.
//!
//! `FARCALL_WRITE_VECTORS=1 cargo test -p farcall-idl --test model vectors` writes the file anew. If that
//! changes the file, the wire format has changed.

use std::collections::BTreeMap;
use std::fmt::Write;

use farcall_idl::{Fingerprint, Interface};
use farcall_xdr::schema::{Arm, Body, Field, Type, Types, fingerprint};
use farcall_xdr::{Schema, to_vec};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/vectors/types.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn field(name: &str, ty: Type) -> Field {
    Field { name: name.into(), docs: String::new(), ty, defaulted: false }
}

fn arm(name: &str, tag: Option<i32>, fields: Vec<Field>) -> Arm {
    Arm { name: name.into(), docs: String::new(), tag, fields }
}

/// A struct that contains a list of itself, and has a field that its first version did not have.
struct Tree;

impl Schema for Tree {
    fn schema(types: &mut Types) -> Type {
        types.define("Tree", "Tree", "A tree.", |types| {
            let children = Type::List { max: 16, element: Box::new(Tree::schema(types)) };
            let added = Field { defaulted: true, ..field("added", Type::U32) };
            let fields = vec![field("name", Type::String { max: 255 }), field("children", children), added];
            Body::Struct { fields, extensible: true }
        })
    }
}

/// A union with a positive tag, a negative tag, and a default arm.
struct Shape;

impl Schema for Shape {
    fn schema(types: &mut Types) -> Type {
        types.define("Shape", "Shape", "", |_| {
            let square = arm("Square", Some(7), vec![field("side", Type::F64)]);
            let arms = vec![square, arm("Point", Some(-1), Vec::new()), arm("Other", None, Vec::new())];
            Body::Union { arms }
        })
    }
}

/// Returns the text of the file as this code generates it.
fn generated() -> String {
    let mut out =
        String::from("# Wire types: the type as a description has it, and the fingerprint of its values.\n");
    for ty in plain_types() {
        let print = fingerprint(&Types::new(), std::slice::from_ref(&ty));
        let spelled = farcall_idl::spell(&Types::new(), &ty);
        writeln!(out, "# {spelled}\ntype {} {print:016x}", hex(&to_vec(&ty).unwrap())).unwrap();
    }
    out += "\n# An interface as `describe` has it, and the fingerprints of its procedures.\n";
    let mut forest = Interface::new("Forest").docs("Trees.");
    forest.procedure(1, "plant").docs("Plants it.").argument::<Tree>("tree").result::<u64>().idempotent();
    forest
        .procedure(4, "cut")
        .argument::<String>("name")
        .argument::<Shape>("shape")
        .exception::<Shape>()
        .blocking()
        .pinned();
    forest.procedure(5, "count").result::<Option<BTreeMap<String, u32>>>().deadline_ms(1500);
    for line in forest.to_string().lines() {
        writeln!(out, "# {line}").unwrap();
    }
    write!(out, "interface {}", hex(&to_vec(&forest).unwrap())).unwrap();
    for Fingerprint { number, types, name } in forest.fingerprints() {
        write!(out, " {number}:{types:016x}:{name:016x}").unwrap();
    }
    out + "\n"
}

fn plain_types() -> Vec<Type> {
    let u16s = || Box::new(Type::U16);
    vec![
        Type::Void,
        Type::Bool,
        Type::I8,
        Type::I16,
        Type::I32,
        Type::I64,
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::F32,
        Type::F64,
        Type::Opaque { size: 16 },
        Type::Bytes { max: u32::MAX },
        Type::String { max: 255 },
        Type::Array { size: 3, element: u16s() },
        Type::List { max: 100, element: u16s() },
        Type::Optional(u16s()),
        Type::Tuple(vec![Type::Bool, Type::Optional(Box::new(Type::Tuple(Vec::new())))]),
        Type::Chain(u16s()),
    ]
}

#[test]
fn wire_types_and_fingerprints_match_the_vectors() {
    let generated = generated();
    if std::env::var_os("FARCALL_WRITE_VECTORS").is_some() {
        std::fs::write(FILE, &generated).unwrap();
    }
    let Ok(written) = std::fs::read_to_string(FILE) else {
        println!("skipped: {FILE} is missing, because it is not part of the crate's package");
        return;
    };
    assert_eq!(generated, written);
}
