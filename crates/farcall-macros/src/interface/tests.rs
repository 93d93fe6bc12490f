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

#[test]
fn signals_and_streams() {
    let item = quote! {
        pub trait Log {
            /// Sends the entries from `from` on.
            fn entries(&self, from: u64) -> farcall::Result<farcall::Stream<Entry, Truncated>, Truncated>;
            fn append(&self, topic: &str, entries: farcall::Stream<Entry>) -> farcall::Result<u64>;
            /// The log is full. The answer is how many entries may be dropped.
            #[signal]
            fn full(&self, entries: u64, topic: &str) -> u64;
            #[signal]
            fn note(&self, text: &str);
        }
    };
    expands_to("log", quote!(), item);
}

#[test]
fn a_signal_is_what_a_handler_can_answer() {
    let cases = [
        ("", "#[signal] fn full(&self) -> u64 { 1 }", "a signal has no body"),
        ("", "#[signal] fn full(&self) -> farcall::Result<u64>;", "answers by a value"),
        ("", "#[signal] fn full(&self) -> farcall::Result<u64, Full>;", "answers by a value"),
        ("", "#[signal(3)] fn full(&self) -> u64;", "takes no arguments"),
        ("", "#[signal] #[idempotent] fn full(&self);", "unknown attribute on a signal"),
        ("", "#[signal] fn full(&self) -> &str;", "a result is owned"),
        ("", "#[signal] fn start(&self);", "`start` is taken"),
        ("", "#[signal] fn full(&self); #[signal] fn full(&self);", "two signals `full`"),
        ("", "#[signal] fn full(&self, items: farcall::Stream<u64>);", "no streams"),
        ("", "#[signal] fn full(&self) -> farcall::Stream<u64>;", "no streams"),
        ("program = 7, version = 1", "#[signal] fn full(&self);", "ONC RPC carries no signals"),
    ];
    for (options, signal, part) in cases {
        let signal: proc_macro2::TokenStream = signal.parse().unwrap();
        let told = refusal(options.parse().unwrap(), quote!(trait Bad { #signal }));
        assert!(told.contains(part), "`{part}` is not in: {told}");
    }
}

#[test]
fn one_way_calls() {
    let item = quote! {
        pub trait Notes {
            /// Notes a line.
            #[oneway]
            fn note(&self, line: &str) -> farcall::Result<()>;
            fn lines(&self) -> farcall::Result<u64>;
            fn all(&self) -> farcall::Result<farcall::Stream<String>>;
        }
    };
    expands_to("notes", quote!(), item);
}

#[test]
fn a_one_way_procedure_tells_its_caller_nothing() {
    let cases = [
        ("", "#[oneway] fn note(&self) -> farcall::Result<u64>;", "is told nothing"),
        ("", "#[oneway] fn note(&self) -> farcall::Result<(), Full>;", "is told nothing"),
        ("", "#[oneway] fn note(&self, all: farcall::Stream<u64>) -> farcall::Result<()>;", "no streams"),
        ("", "#[oneway] #[idempotent] fn note(&self) -> farcall::Result<()>;", "nobody waits"),
        ("", "#[oneway] #[deadline(ms = 5)] fn note(&self) -> farcall::Result<()>;", "nobody waits"),
        ("", "#[oneway(3)] fn note(&self) -> farcall::Result<()>;", "unexpected token"),
        (
            "program = 7, version = 1",
            "#[oneway] fn note(&self) -> farcall::Result<()>;",
            "ONC RPC carries no",
        ),
    ];
    for (options, procedure, part) in cases {
        let procedure: proc_macro2::TokenStream = procedure.parse().unwrap();
        let told = refusal(options.parse().unwrap(), quote!(trait Bad { #procedure }));
        assert!(told.contains(part), "`{part}` is not in: {told}");
    }
    let fine = quote!(
        trait Fine {
            #[oneway]
            #[blocking]
            fn note(&self) -> farcall::Result<()>;
        }
    );
    assert!(expand(quote!(async), fine).is_ok());
}

#[test]
fn a_procedure_has_one_argument_stream_and_a_server_that_can_send_it() {
    let stream = quote!(
        trait Streams {
            fn sum(&self, numbers: farcall::Stream<u64>) -> farcall::Result<u64>;
        }
    );
    let result = quote!(
        trait Streams {
            fn below(&self, limit: u64) -> farcall::Result<farcall::Stream<u64>>;
        }
    );
    for item in [stream, result] {
        assert!(expand(quote!(), item.clone()).is_ok());
        assert!(expand(quote!(async), item.clone()).is_ok());
        let told = refusal(quote!(program = 7, version = 1), item);
        assert!(told.contains("ONC RPC has no streams"), "{told}");
    }
    let two = quote!(
        trait Streams {
            fn join(&self, left: farcall::Stream<u64>, right: farcall::Stream<u64>) -> farcall::Result<()>;
        }
    );
    let told = refusal(quote!(), two);
    assert!(told.contains("one argument that is a stream"), "{told}");
}
