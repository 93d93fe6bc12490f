//! Tests which items `#[derive(Xdr)]` refuses, and with which message.

use proc_macro2::TokenStream;
use quote::quote;

/// Returns the errors of the derive for `item`.
fn refusals(item: TokenStream) -> Vec<String> {
    let Err(error) = super::derive(item) else { return Vec::new() };
    error.into_iter().map(|error| error.to_string()).collect()
}

#[track_caller]
fn refused(item: TokenStream, why: &str) {
    assert_eq!(refusals(item), [why]);
}

#[test]
fn types_that_cannot_cross() {
    let hints = refusals(quote! {
        struct S {
            fine: HashMap<u8, [u8; 1usize]>,
            a: usize,
            b: Vec<Option<isize>>,
            c: *const u8,
            d: (fn(u8) -> u8, u8),
            e: &'a mut u8,
            f: Box<dyn Any>,
        }
    });
    let expected = [
        "`usize` and `isize` cannot be sent: their width depends on the machine\nhint: write `u64` or `i64`, or a narrower type that suffices",
        "`usize` and `isize` cannot be sent: their width depends on the machine\nhint: write `u64` or `i64`, or a narrower type that suffices",
        "a pointer means nothing in another process\nhint: send the value that it points to",
        "a function cannot be sent\nhint: send data by which the receiver selects one of its own functions",
        "`&mut` cannot be sent: the receiver gets a copy\nhint: send the value, and return the changed value",
        "`dyn Trait` cannot be sent: the server must know what it decodes\nhint: send a type that holds only data: a struct or an enum with #[derive(farcall::Xdr)]",
    ];
    assert_eq!(hints, expected);
    assert!(
        refusals(quote!(
            struct S {
                #[xdr(with = size)]
                a: usize,
            }
        ))
        .is_empty()
    );
    refused(
        quote!(union U { a: u8 }),
        "a Rust union cannot be sent: use an enum, which is a discriminated union on the wire",
    );
    refused(
        quote!(
            enum E {}
        ),
        "an enum without variants has no value to send",
    );
}

#[test]
fn attributes_that_mean_nothing() {
    refused(
        quote!(
            struct S {
                #[xdr(length = 1)]
                a: u8,
            }
        ),
        "expected one of max, with, tag, crate, extensible, default, own_drop, chain",
    );
    refused(
        quote!(
            struct S(#[xdr(tag = 1)] u8);
        ),
        "`tag` is not for a field; there are max, with, chain, default",
    );
    refused(
        quote!(
            #[xdr(max = 1)]
            struct S(u8);
        ),
        "`max` is not for a struct or an enum; there are extensible, own_drop, crate",
    );
    refused(
        quote!(
            struct S(#[xdr(max = 1, max = 2)] String);
        ),
        "this attribute is given twice",
    );
    refused(
        quote!(
            struct S(#[xdr(max = 1, with = path)] String);
        ),
        "`max` cannot be combined with `with`: the functions of `with` check the length themselves",
    );
}

#[test]
fn defaults_in_the_wrong_place() {
    refused(
        quote!(
            struct S {
                #[xdr(default)]
                a: u8,
            }
        ),
        "`default` needs #[xdr(extensible)]: in other structs no field can be missing",
    );
    refused(
        quote!(
            #[xdr(extensible)]
            struct S {
                #[xdr(default)]
                a: u8,
                b: u8,
            }
        ),
        "fields after an #[xdr(default)] one need it too: if that is missing, so are they",
    );
    refused(
        quote!(
            enum E {
                A,
                #[xdr(default)]
                B,
            }
        ),
        "a default variant needs a first field, an i32 or an enumeration: it holds the received tag",
    );
    refused(
        quote!(
            enum E {
                A,
                #[xdr(default)]
                #[xdr(tag = 1)]
                B(i32),
            }
        ),
        "a default variant has no tag of its own: it is selected by every tag that no other variant has",
    );
    refused(
        quote!(
            struct S {
                #[xdr(chain, max = 3)]
                a: Vec<u8>,
            }
        ),
        "`max` cannot be combined with `chain`: a linked list has no length on the wire",
    );
    refused(
        quote!(
            enum E {
                #[xdr(default)]
                A(i32),
                #[xdr(default)]
                B(i32),
            }
        ),
        "there can be only one default variant",
    );
    refused(
        quote!(
            #[xdr(extensible)]
            enum E {
                A,
            }
        ),
        "an enum is extended by an #[xdr(default)] variant, which holds the unknown i32",
    );
}

#[test]
fn an_exception_is_implemented_within_farcall_alone() {
    let inside = super::derive(quote!(
        struct S(u8);
    ))
    .expect("fine")
    .to_string();
    assert!(inside.contains("Exception"));
    let outside = super::derive(quote!(
        #[xdr(crate = x)]
        struct S(u8);
    ))
    .expect("fine")
    .to_string();
    assert!(!outside.contains("Exception"));
}
