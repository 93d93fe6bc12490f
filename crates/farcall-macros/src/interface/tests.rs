//! Tests the expansion of traits against files that people can read.

use quote::quote;

use super::expand;

/// Compares the expansion with `tests/expanded/NAME.rs`. With the environment variable `BLESS=1`, writes the
/// file instead.
fn expands_to(name: &str, options: proc_macro2::TokenStream, item: proc_macro2::TokenStream) {
    let tokens = expand(options, item).expect("an interface");
    let expanded = prettyplease::unparse(&syn::parse2(tokens).expect("Rust"));
    let path = format!("{}/tests/expanded/{name}.rs", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &expanded).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == expanded, "{path} is not what comes out; see what changed with BLESS=1 and git diff");
}

#[test]
fn store() {
    let item = quote! {
        /// Values under keys.
        pub trait Store {
            /// The value under `key`.
            #[idempotent]
            #[deadline(ms = 500)]
            fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey>;

            #[procedure(7)]
            #[blocking]
            fn put_all(&self, entries: &[Entry], data: &[u8], owner: &Owner, count: u32) -> farcall::Result<()>;

            fn size(&self) -> farcall::Result<u64>;
        }
    };
    expands_to("store", quote!(), item);
}

#[test]
fn asynchronous() {
    let item = quote! {
        pub(crate) trait Clock {
            fn now(&self, zone: &str, of: &[u32]) -> farcall::Result<u64, NoSuchZone>;
        }
    };
    expands_to("clock", quote!(async, name = "clock-2"), item);
}

fn refusal(options: proc_macro2::TokenStream, item: proc_macro2::TokenStream) -> String {
    let refused = expand(options, item).expect_err("a refusal");
    refused.into_iter().map(|error| error.to_string()).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_refusal_is_told_at_once() {
    let item = quote! {
        trait Bad {
            fn one(&mut self) -> farcall::Result<()>;
            fn two(&self, size: usize, at: *const u8) -> farcall::Result<&str>;
        }
    };
    let told = refusal(quote!(), item);
    for part in ["to itself", "width", "pointer", "a result is owned"] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn options_are_checked() {
    let item = quote!(
        trait Fine {}
    );
    assert!(refusal(quote!(wrong), item.clone()).contains("unknown option `wrong`"));
    assert!(refusal(quote!(name = "a/b"), item.clone()).contains("not a name"));
    assert!(refusal(quote!(program = 7), item.clone()).contains("go together"));
    assert!(refusal(quote!(program = 7, version = 4294967296), item.clone()).contains("too large"));
    assert!(
        refusal(
            quote!(),
            quote!(
                struct NoTrait;
            )
        )
        .contains("stands on a trait")
    );
    assert!(expand(quote!(), item).is_ok());
}

#[test]
fn only_the_null_procedure_of_a_program_has_number_0_and_a_body() {
    let null = quote!(
        trait Null {
            #[procedure(0)]
            fn null(&self) -> farcall::Result<()> {
                Ok(())
            }
        }
    );
    assert!(expand(quote!(program = 7, version = 1), null.clone()).is_ok());
    let told = refusal(quote!(), null);
    assert!(told.contains("not how it is done"), "{told}");
}
