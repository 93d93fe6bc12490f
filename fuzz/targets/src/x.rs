//! The fuzz target for `.x` files.

use std::collections::HashSet;
use std::path::Path;

use farcall_idl::x::tree::{Body, Declared, Field, Specification, Type};
use farcall_idl::x::{Options, read_text};

/// Reads the text of an `.x` file. The tree must be consistent, and the errors in a wrong file must have
/// texts.
pub fn x_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match read_text(Path::new("no such directory/file.x"), &text, &Options::default()) {
        Ok(tree) => check(&tree),
        Err(why) => {
            assert!(why.iter().all(|each| !each.is_warning()));
            assert!(!why.to_string().is_empty() && !why.coloured().is_empty());
        }
    }
}

fn check(tree: &Specification) {
    for warning in &tree.warnings {
        assert!(warning.is_warning() && !warning.to_string().is_empty());
    }
    let defined =
        |ty: &Type| assert!(!matches!(ty, Type::Defined(place) if *place >= tree.types.len()), "{ty:?}");
    let declared = |declared: &Declared| match declared {
        Declared::One(ty) | Declared::Optional(ty) => defined(ty),
        Declared::Array { element, .. } | Declared::List { element, .. } => defined(element),
        Declared::Opaque { .. } | Declared::Bytes { .. } | Declared::String { .. } => {}
    };
    let field = |field: &Field| declared(&field.declared);
    for definition in &tree.types {
        match &definition.body {
            Body::Alias(what) => declared(what),
            Body::Enum(enumerators) => {
                let names: HashSet<&str> = enumerators.iter().map(|each| each.named.name.as_str()).collect();
                assert_eq!(names.len(), enumerators.len());
            }
            Body::Struct(fields) => fields.iter().for_each(field),
            Body::Union(union) => {
                defined(&union.discriminant);
                let labels: Vec<i32> =
                    union.arms.iter().flat_map(|arm| &arm.labels).map(|label| label.value).collect();
                assert_eq!(labels.iter().collect::<HashSet<_>>().len(), labels.len());
                assert!(union.arms.iter().all(|arm| !arm.labels.is_empty()));
                union
                    .arms
                    .iter()
                    .filter_map(|arm| arm.field.as_ref())
                    .chain(union.default.iter().flatten())
                    .for_each(field);
            }
        }
    }
    for version in tree.programs.iter().flat_map(|program| &program.versions) {
        let numbers: HashSet<u32> = version.procedures.iter().map(|procedure| procedure.number).collect();
        assert_eq!(numbers.len(), version.procedures.len());
        for procedure in &version.procedures {
            declared(&procedure.result);
            procedure.arguments.iter().for_each(|argument| declared(&argument.declared));
        }
    }
}
