//! The fuzz targets for `.x`, `.cr` and `.rpc2` files, which have the same tree.

use std::collections::HashSet;
use std::path::Path;

use farcall_idl::language::tree::{Body, Declared, Field, Specification, Type};
use farcall_idl::language::{Config, generate, interfaces};
use farcall_idl::x::{Diagnostics, Options, read_text};
use farcall_idl::{cr, rpc2};

/// Reads the text of an `.x` file, and generates Rust and descriptions from it. The tree must be consistent,
/// and the errors in a wrong file must have texts.
pub fn x_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let tree = match read_text(Path::new("no such directory/file.x"), &text, &Options::default()) {
        Ok(tree) => tree,
        Err(why) => return check_faults(&why),
    };
    check(&tree);
    // Types that nest too deep for the compiler of Rust are refused.
    if generate(&tree, &Config::new()).is_ok() {
        for version in interfaces(&tree).unwrap_or_default() {
            assert!(!version.interface.to_string().is_empty());
        }
    }
}

/// Reads the text of a `.cr` file, generates Rust from it, and prints the descriptions of its programs. What
/// is printed must mean the same.
pub fn cr_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let tree = match cr::read_text(Path::new("no such directory/file.cr"), &text, &cr::Options::default()) {
        Ok(tree) => tree,
        Err(why) => return check_faults(&why),
    };
    check(&tree);
    // Types that nest too deep for the compiler of Rust are refused.
    if generate(&tree, &Config::new()).is_err() {
        return;
    }
    for version in interfaces(&tree).unwrap_or_default() {
        let printed = cr::to_cr(&version.interface, version.program, version.version);
        let why = printed.err().map(|why| why.to_string()).unwrap_or_default();
        assert!(!why.contains("means something else"), "{why}");
    }
}

/// Reads the text of a `.rpc2` file, and generates Rust and descriptions from it.
pub fn rpc2_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let options = rpc2::Options::default();
    let tree = match rpc2::read_text(Path::new("no such directory/file.rpc2"), &text, &options) {
        Ok(tree) => tree,
        Err(why) => return check_faults(&why),
    };
    check(&tree);
    // Types that nest too deep for the compiler of Rust are refused.
    let generated = generate(&tree, &Config::new());
    assert_eq!(generated.is_ok(), interfaces(&tree).is_ok());
}

fn check_faults(why: &Diagnostics) {
    assert!(why.iter().all(|each| !each.is_warning()));
    assert!(!why.to_string().is_empty() && !why.coloured().is_empty());
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
        Declared::Opaque { .. } | Declared::Bytes { .. } | Declared::String { .. } | Declared::Bulk => {}
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
            Body::Exception(errors) => errors.iter().flat_map(|error| &error.fields).for_each(field),
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
