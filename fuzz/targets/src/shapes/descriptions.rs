//! Shapes of descriptions of interfaces, and of values by them.

use farcall_idl::{Argument, Interface, Procedure};
use farcall_xdr::schema::{Arm, Body, Field, Type, Types};
use farcall_xdr::to_vec;

use super::Shape;

pub(super) const SHAPES: &[Shape] = &[
    Shape {
        target: "interface",
        name: "procedures",
        make: |n| {
            described(
                |types| {
                    define(types, "T", vec![]);
                },
                n,
                |_| Type::U32,
            )
        },
    },
    Shape {
        target: "interface",
        name: "procedures and types",
        make: |n| {
            described(
                |types| {
                    (0..n).for_each(|at| {
                        define(types, &format!("T{at}"), vec![Type::U32]);
                    })
                },
                n,
                |at| Type::Named(at as u32),
            )
        },
    },
    Shape {
        target: "interface",
        name: "procedures and types in a circle",
        make: |n| {
            described(
                |types| {
                    (0..n).for_each(|at| {
                        define(types, &format!("T{at}"), vec![Type::U32, optional(((at + 1) % n) as u32)]);
                    })
                },
                n,
                |at| Type::Named(at as u32),
            )
        },
    },
    Shape {
        target: "interface",
        name: "procedures of one type",
        make: |n| {
            described(
                |types| {
                    define(types, "T", vec![Type::U32; n]);
                },
                n,
                |_| Type::Named(0),
            )
        },
    },
    Shape {
        target: "interface",
        name: "types",
        make: |n| {
            described(
                |types| {
                    (0..n).for_each(|at| {
                        define(types, &format!("T{at}"), vec![Type::U32]);
                    })
                },
                1,
                |_| Type::Named(0),
            )
        },
    },
    Shape {
        target: "interface",
        name: "types of one name",
        make: |n| {
            described(
                |types| {
                    (0..n).for_each(|_| {
                        define(types, "T", vec![Type::U32]);
                    })
                },
                1,
                |_| Type::Named(0),
            )
        },
    },
    Shape {
        target: "interface",
        name: "types that contain one another",
        make: |n| {
            described(
                |types| {
                    (0..n).for_each(|at| {
                        define(
                            types,
                            &format!("T{at}"),
                            vec![if at % 100 == 0 { Type::U32 } else { Type::Named(at as u32 - 1) }],
                        );
                    })
                },
                1,
                |_| Type::Named(n as u32 - 1),
            )
        },
    },
    Shape {
        target: "interface",
        name: "a chain of pointers",
        make: |n| {
            described(
                |types| {
                    (0..n).for_each(|at| {
                        define(
                            types,
                            &format!("T{at}"),
                            vec![if at == 0 { Type::U32 } else { optional(at as u32 - 1) }],
                        );
                    })
                },
                1,
                |_| Type::Named(n as u32 - 1),
            )
        },
    },
    Shape {
        target: "interface",
        name: "a diamond of pointers",
        make: |n| {
            described(
                |types| {
                    (0..n).for_each(|at| {
                        define(
                            types,
                            &format!("T{at}"),
                            if at == 0 { vec![Type::U32] } else { vec![optional(at as u32 - 1); 2] },
                        );
                    })
                },
                1,
                |_| Type::Named(n as u32 - 1),
            )
        },
    },
    Shape {
        target: "interface",
        name: "fields of one type",
        make: |n| {
            described(
                |types| {
                    define(types, "T", vec![Type::U32; n]);
                },
                1,
                |_| Type::Named(0),
            )
        },
    },
    Shape {
        target: "interface",
        name: "wide references to wide types",
        make: |n| {
            described(
                |types| {
                    define(types, "T", vec![Type::U32; n]);
                    define(types, "U", vec![optional(0); n]);
                },
                1,
                |_| Type::Named(1),
            )
        },
    },
    Shape {
        target: "interface",
        name: "arms",
        make: |n| {
            described(
                |types| {
                    union(types, n);
                },
                1,
                |_| Type::Named(0),
            )
        },
    },
    Shape {
        target: "interface",
        name: "arms that differ",
        make: |n| {
            described(
                |types| {
                    union(types, n);
                    define(types, "U", vec![Type::Named(0)]);
                },
                1,
                |_| Type::Named(1),
            )
        },
    },
    Shape {
        target: "interface",
        name: "a deep tuple",
        make: |n| {
            described(
                |types| {
                    define(types, "T", vec![(0..n.min(40)).fold(Type::U32, |ty, _| Type::Tuple(vec![ty]))]);
                },
                n,
                |_| Type::Named(0),
            )
        },
    },
    Shape {
        target: "interface",
        name: "a chain of tuples",
        make: |n| {
            described(|_| (), 1, |_| (0..n.min(100)).fold(Type::U32, |ty, _| Type::Optional(Box::new(ty))))
        },
    },
    Shape {
        target: "interface",
        name: "a tuple of streams",
        make: |n| {
            described(
                |_| (),
                1,
                |_| Type::Tuple(vec![Type::Tuple(vec![Type::Opaque { size: 0 }, Type::U32]); n.min(200)]),
            )
        },
    },
    Shape {
        target: "json",
        name: "elements",
        make: |n| valued(list(Type::U32), "[0", n, |_| ", 0".into(), "]"),
    },
    Shape {
        target: "json",
        name: "strings",
        make: |n| valued(list(Type::String { max: u32::MAX }), "[\"\"", n, |at| format!(", \"{at}\""), "]"),
    },
    Shape {
        target: "json",
        name: "fields",
        make: |n| valued(Type::Named(0), "{\"f0\": 0", n, |at| format!(", \"f{}\": 0", at + 1), "}"),
    },
    Shape {
        target: "json",
        name: "values of a wide union",
        make: |n| valued(list(Type::Named(1)), "[\"a0\"", n, |at| format!(", \"a{at}\""), "]"),
    },
    Shape {
        target: "json",
        name: "integers of a wide union",
        make: |n| valued(list(Type::Named(1)), "[0", n, |at| format!(", {at}"), "]"),
    },
    Shape {
        target: "values",
        name: "elements",
        make: |n| {
            let mut bytes = to_vec(&(Types::new(), list(Type::U32))).expect("types");
            bytes.extend(to_vec(&vec![7_u32; n]).expect("numbers"));
            bytes
        },
    },
    Shape {
        target: "values",
        name: "values of a wide union",
        make: |n| {
            let mut bytes = to_vec(&(wide(n), list(Type::Named(1)))).expect("types");
            bytes.extend(to_vec(&(0..n as u32).collect::<Vec<_>>()).expect("numbers"));
            bytes
        },
    },
];

fn optional(place: u32) -> Type {
    Type::Optional(Box::new(Type::Named(place)))
}

fn define(types: &mut Types, key: &str, fields: Vec<Type>) -> Type {
    let key = format!("{key} {}", types.definitions().len());
    types.define(&key, key.split(' ').next().unwrap_or(""), "", |_| {
        let field = |(at, ty)| Field { name: format!("f{at}"), docs: String::new(), ty, defaulted: false };
        Body::Struct { fields: fields.into_iter().enumerate().map(field).collect(), extensible: false }
    })
}

fn union(types: &mut Types, n: usize) -> Type {
    types.define("union", "Union", "", |_| Body::Union {
        arms: (0..n)
            .map(|at| Arm {
                name: format!("a{at}"),
                docs: String::new(),
                tag: Some(at as i32),
                fields: vec![],
            })
            .collect(),
    })
}

/// Returns the encoding of a description with so many procedures.
fn described(types: impl FnOnce(&mut Types), procedures: usize, ty: impl Fn(usize) -> Type) -> Vec<u8> {
    let mut interface = Interface::new("Hostile");
    types(&mut interface.types);
    for at in 0..procedures {
        interface.procedure(at as u32, format!("p{at}"));
        let last: &mut Procedure = interface.procedures.last_mut().expect("the procedure that was added");
        last.arguments.push(Argument { name: "a".into(), ty: ty(at) });
        last.result = ty(at);
    }
    to_vec(&interface).expect("a description can be encoded")
}

fn list(element: Type) -> Type {
    Type::List { max: u32::MAX, element: Box::new(element) }
}

/// Returns a struct of `n + 1` fields, and a union of `n` arms.
fn wide(n: usize) -> Types {
    let mut types = Types::new();
    define(&mut types, "T", vec![Type::U32; n + 1]);
    union(&mut types, n);
    types
}

/// Returns these types, a type, and JSON of that type.
fn valued(ty: Type, before: &str, n: usize, each: impl Fn(usize) -> String, after: &str) -> Vec<u8> {
    let mut bytes = to_vec(&(wide(n), ty)).expect("types can be encoded");
    bytes.extend(super::many(before, n, each, after));
    bytes
}
