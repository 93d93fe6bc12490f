//! Tests `check`: which changes break callers, and the place of the first difference.

use farcall_idl::{Builder, Interface, check, refusals};
use farcall_macros::Xdr;

/// Drops a procedure's builder.
fn done(_: Builder<'_>) {}

fn told(old: impl FnOnce(&mut Interface), new: impl FnOnce(&mut Interface)) -> Vec<String> {
    let (mut before, mut after) = (Interface::new("Store"), Interface::new("Store"));
    old(&mut before);
    new(&mut after);
    let changes = check(&before, &after);
    // An importer's binding to the new version refuses exactly the procedures for which `check` reports
    // something breaking.
    let refused = refusals(&before, &after.fingerprints());
    for procedure in &before.procedures {
        let place = format!("Store.{}", procedure.name);
        let is_there = |found: &str| found == place || found.starts_with(&format!("{place} "));
        let breaking = changes.iter().any(|change| change.breaking && is_there(&change.place));
        let refusal = refused.iter().find(|(number, _)| *number == procedure.number);
        assert_eq!(breaking, refusal.is_some(), "{place}: told {changes:?}, refused {refusal:?}");
    }
    changes.iter().map(ToString::to_string).collect()
}

#[test]
fn procedures() {
    assert!(told(|old| done(old.procedure(1, "get")), |new| done(new.procedure(1, "get"))).is_empty());
    assert_eq!(
        told(|old| done(old.procedure(1, "get")), |_| ()),
        ["breaking: Store.get: procedure 1 is gone"]
    );
    assert_eq!(
        told(|_| (), |new| done(new.procedure(4, "list"))),
        ["fine: Store.list: is new, as procedure 4"]
    );
    assert_eq!(
        told(|old| done(old.procedure(1, "get")), |new| done(new.procedure(1, "fetch"))),
        ["breaking: Store.get: is named fetch now; pin it with #[procedure(1)]"]
    );
    let swapped = told(
        |old| {
            old.procedure(1, "get");
            old.procedure(2, "put");
        },
        |new| {
            new.procedure(1, "put");
            new.procedure(2, "get");
        },
    );
    assert_eq!(
        swapped,
        [
            "breaking: Store.get: moved from number 1 to 2; pin it with #[procedure(1)]",
            "breaking: Store.put: moved from number 2 to 1; pin it with #[procedure(2)]",
        ]
    );
    let stolen = told(
        |old| {
            old.procedure(1, "get");
            old.procedure(2, "put");
        },
        |new| done(new.procedure(1, "put").pinned()),
    );
    assert_eq!(
        stolen,
        [
            "breaking: Store.get: procedure 1 is put now; pin it with #[procedure(1)]",
            "breaking: Store.put: moved from number 2 to 1; pin it with #[procedure(2)]",
        ]
    );
    let mut renamed = Interface::new("Shop");
    renamed.procedure(1, "get");
    assert!(check(&Interface::new("Store"), &renamed)[0].breaking);
}

#[test]
fn a_number_that_either_side_has_pinned_keeps_its_procedure_under_another_name() {
    for pinned in [[true, false], [false, true], [true, true]] {
        let one = |x: &mut Interface, name: &str, pinned: bool| {
            let procedure = x.procedure(1, name);
            if pinned {
                procedure.pinned();
            }
        };
        let changes = told(|old| one(old, "get", pinned[0]), |new| one(new, "fetch", pinned[1]));
        assert_eq!(changes, ["fine: Store.get: is named fetch now"]);
    }
}

#[test]
fn facts_beside_the_types() {
    let changes = told(
        |old| done(old.procedure(1, "get").idempotent().docs("Old.")),
        |new| done(new.procedure(1, "get").deadline_ms(9).blocking().docs("New.")),
    );
    assert_eq!(
        changes,
        [
            "fine: Store.get: is no longer idempotent; callers of the old version still repeat it",
            "fine: Store.get: deadline none became 9 ms",
        ]
    );
}

#[test]
fn arguments_results_exceptions() {
    let changes = told(
        |old| {
            done(old.procedure(1, "get").argument::<String>("key").argument::<u8>("n").result::<Vec<u32>>())
        },
        |new| {
            done(
                new.procedure(1, "get")
                    .argument::<Vec<u8>>("name")
                    .result::<Vec<u64>>()
                    .exception::<String>(),
            )
        },
    );
    assert_eq!(
        changes,
        [
            "fine: Store.get argument key: is named name now",
            "breaking: Store.get argument key: string<> became opaque<>",
            "breaking: Store.get argument n: is gone",
            "breaking: Store.get result[]: u32 became u64",
            "breaking: Store.get exception: void became string<>",
        ]
    );
}

mod old {
    #[derive(super::Xdr)]
    #[xdr(crate = farcall_xdr)]
    #[allow(dead_code)]
    pub struct Entry {
        #[xdr(max = 255)]
        name: String,
        inner: Option<Box<Entry>>,
        state: State,
    }
    #[derive(super::Xdr)]
    #[xdr(crate = farcall_xdr)]
    #[allow(dead_code)]
    pub enum State {
        Fresh,
        Stale { since: u64 },
    }
    #[derive(super::Xdr)]
    #[xdr(crate = farcall_xdr, extensible)]
    #[allow(dead_code)]
    pub struct Grows {
        a: u32,
    }
}

mod new {
    #[derive(super::Xdr)]
    #[xdr(crate = farcall_xdr)]
    #[allow(dead_code)]
    pub struct Entry {
        #[xdr(max = 100)]
        title: String,
        inner: Option<Box<Entry>>,
        state: State,
    }
    #[derive(super::Xdr)]
    #[xdr(crate = farcall_xdr)]
    #[allow(dead_code)]
    pub enum State {
        Fresh,
        Stale { since: u64 },
        Gone,
    }
    #[derive(super::Xdr)]
    #[xdr(crate = farcall_xdr, extensible)]
    #[allow(dead_code)]
    pub struct Grows {
        a: u32,
        #[xdr(default)]
        b: u64,
    }
}

#[test]
fn inside_structs_and_enums() {
    let entries = told(
        |old| done(old.procedure(1, "list").result::<Vec<old::Entry>>()),
        |new| done(new.procedure(1, "list").result::<Vec<new::Entry>>()),
    );
    assert_eq!(
        entries,
        [
            "breaking: Store.list result[].name: string<255> became string<100>",
            "fine: Store.list result[].name: is named title now",
        ]
    );
    assert_eq!(
        told(
            |old| done(old.procedure(1, "state").result::<old::State>()),
            |new| done(new.procedure(1, "state").result::<new::State>()),
        ),
        ["breaking: Store.state result::Gone: variant 2 is new: the old version cannot decode it"]
    );
    assert_eq!(
        told(
            |old| done(old.procedure(1, "grow").argument::<old::Grows>("it")),
            |new| done(new.procedure(1, "grow").argument::<new::Grows>("it")),
        ),
        ["fine: Store.grow argument it.b: is new, with a default"]
    );
    assert_eq!(
        told(
            |old| done(old.procedure(1, "grow").argument::<new::Grows>("it")),
            |new| done(new.procedure(1, "grow").argument::<old::Grows>("it")),
        ),
        ["fine: Store.grow argument it.b: is gone; the old version has a default for it"]
    );
    assert_eq!(
        told(
            |old| done(old.procedure(1, "p").argument::<old::Grows>("it")),
            |new| done(new.procedure(1, "p").argument::<old::State>("it")),
        ),
        ["breaking: Store.p argument it: extensible struct Grows became enum State"]
    );
}

#[test]
fn a_tuple_is_a_struct_without_names() {
    #[derive(Xdr)]
    #[xdr(crate = farcall_xdr)]
    #[allow(dead_code)]
    struct Pair {
        left: u32,
        right: String,
    }
    assert!(
        told(
            |old| done(old.procedure(1, "p").argument::<(u32, String)>("it")),
            |new| done(new.procedure(1, "p").argument::<Pair>("it")),
        )
        .is_empty()
    );
}

/// Returns an interface whose procedures all use one struct, with fields that begin with `prefix`.
fn sharing(procedures: u32, fields: usize, prefix: &str) -> Interface {
    let mut shared = Interface::new("Shared");
    let field =
        |at| farcall_xdr::schema::field(&format!("{prefix}{at}"), "", farcall_xdr::schema::Type::U32, false);
    let body =
        farcall_xdr::schema::Body::Struct { fields: (0..fields).map(field).collect(), extensible: false };
    let ty = shared.types.define("wide", "Wide", "", |_| body);
    for number in 0..procedures {
        done(shared.procedure(number, format!("p{number}")));
        shared.procedures.last_mut().unwrap().result = ty.clone();
    }
    shared
}

#[test]
fn the_comparison_of_types_that_many_procedures_share_is_bounded_and_says_so() {
    let (old, new) = (sharing(500, 500, "a"), sharing(500, 500, "b"));
    let (changes, steps) = farcall_base::work::counted(|| check(&old, &new));
    assert!(steps < 100_000, "{steps}");
    let last = changes.last().unwrap().to_string();
    assert_eq!(last, "fine: Shared: has more differences in its types than are listed here");
    assert!(changes.iter().all(|change| !change.breaking));

    // What breaks is said of each procedure nevertheless.
    let (changes, steps) = farcall_base::work::counted(|| check(&old, &sharing(500, 499, "b")));
    assert!(steps < 100_000, "{steps}");
    for number in 0..500 {
        let place = format!("Shared.p{number}");
        let is_it = |found: &str| found == place || found.starts_with(&format!("{place} "));
        assert!(changes.iter().any(|change| change.breaking && is_it(&change.place)), "{place}");
    }

    // Types without differences are compared once.
    assert_eq!(check(&old, &old), []);
}

#[test]
fn a_difference_far_inside_is_shown_by_its_last_parts() {
    use farcall_xdr::schema::{Body, Type, field};
    let deep = |leaf: Type| {
        let mut deep = Interface::new("Deep");
        for level in 0_u32..1000 {
            let inner = || Type::Optional(Box::new(Type::Named(level - 1)));
            let ty = if level == 0 { leaf.clone() } else { inner() };
            let fields = vec![field("next", "", ty, false)];
            deep.types.define(&level.to_string(), "Node", "", |_| Body::Struct { fields, extensible: false });
        }
        done(deep.procedure(1, "get"));
        deep.procedures[0].result = Type::Named(999);
        deep
    };
    let changes = check(&deep(Type::U32), &deep(Type::U64));
    let place = format!("Deep.get result …{}", ".next".repeat(24));
    assert_eq!((changes[0].place.as_str(), changes[0].what.as_str()), (place.as_str(), "u32 became u64"));
}
