//! The procedural macros of farcall: `#[derive(Xdr)]`, `#[interface]`, and with the features of their
//! names `include_x!`, `include_cr!` and `include_rpc2!`.
#![forbid(unsafe_code)]

mod crossing;
#[cfg(feature = "x")]
mod include;
#[cfg(feature = "cr")]
mod include_cr;
#[cfg(feature = "rpc2")]
mod include_rpc2;
#[cfg(feature = "x")]
mod include_x;
mod interface;
mod xdr;

use proc_macro::TokenStream;

/// Implements `Encode`, `Decode` and `Schema` of farcall-xdr for a struct or an enum, so that its values can
/// be sent in the form of RFC 4506. Also implements `farcall::Exception`, so that procedures can raise the
/// value.
///
/// ```
/// #[derive(farcall::Xdr)]
/// struct Entry {
///     #[xdr(max = 255)]
///     name: String,
///     size: u64,
///     kind: Kind,
/// }
///
/// #[derive(farcall::Xdr)]
/// enum Kind {
///     File,
///     Directory,
///     Link { to: String },
///     #[xdr(default)]
///     Unknown(i32),
/// }
///
/// let link = Kind::Link { to: "x".into() };
/// assert_eq!(farcall::xdr::to_vec(&link)?, b"\0\0\0\x02\0\0\0\x01x\0\0\0");
/// # Ok::<(), farcall::xdr::Error>(())
/// ```
///
/// The wire form of a **struct** is its fields in order. The wire form of an **enum** is an integer, then the
/// fields of the variant. The integer is the variant's discriminant if the source gives one. Otherwise it is
/// one more than that of the previous variant, and 0 for the first. Values with lifetimes (`&'a str`, `&'a
/// [u8]`) borrow from the packet. Each type parameter gets the trait as a bound.
///
/// A struct whose last field is `Option<Box<Self>>` is a **linked list**. A peer can make it as long as its
/// packets allow, so loops encode, decode and drop it. For that purpose the derive implements `Drop`, so
/// fields cannot be moved out of the struct: `take` them instead. Other recursion is limited in depth.
///
/// On the item:
/// - `#[xdr(extensible)]` on a struct: a later version can add fields at the end, each with
///   `#[xdr(default)]`. Programs of the older version skip the added fields. Programs of the newer version
///   use the defaults of added fields that are missing. The struct's length comes before it and takes four
///   bytes.
/// - `#[xdr(own_drop)]` on a linked list: the derive does not implement `Drop`. Use it if the type implements
///   `Drop` itself, or if no peer can make the list long.
/// - `#[xdr(crate = path)]`: the path of farcall-xdr, if it is not `::farcall::xdr`. `Exception` is then not
///   implemented.
///
/// On a field:
/// - `#[xdr(max = N)]`: the maximum number of bytes of a string or opaque data, or of elements of a list, set
///   or map. The maximum is checked when the value is encoded and when it is decoded.
/// - `#[xdr(with = path)]`: the functions of this module are used instead of the type's traits: `encode(&T,
///   &mut Encoder<'_>) -> Result<(), Error>`, `decode(&mut Decoder<'_>) -> Result<T, Error>` and `schema(&mut
///   Types) -> Type`.
/// - `#[xdr(chain)]` on a `Vec`: the value is sent as a linked list (`entry *next` in `.x` files), as a
///   `farcall::xdr::Chain` is.
/// - `#[xdr(default)]` in an extensible struct: the field is `Default::default()` if the value ends before
///   it.
///
/// On a variant:
/// - `#[xdr(tag = N)]`: the integer that selects the variant.
/// - `#[xdr(default)]`: the variant is selected by all integers that no other variant has. Its first field
///   holds the integer: an `i32`, or an enumeration (an enum without fields) of the possible integers.
#[proc_macro_derive(Xdr, attributes(xdr))]
pub fn derive_xdr(item: TokenStream) -> TokenStream {
    xdr::derive(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes the stubs of a trait: the user-stub, by which callers call, and the server-stub, by which a server
/// is exported.
///
/// ```
/// # // `farcall::interface` is this macro.
/// #[farcall::interface]
/// pub trait Store {
///     /// The value under `key`.
///     #[idempotent]
///     fn get(&self, key: &str) -> farcall::Result<u64, NoSuchKey>;
/// }
///
/// #[derive(Debug, farcall::Xdr)]
/// pub struct NoSuchKey;
/// # fn main() {}
/// ```
///
/// The trait remains as it is, and is dyn-compatible. A server implements it. The generated user-stub
/// `StoreClient` implements it too. `StoreClient::start` returns a `StoreStart`, whose methods start calls
/// without waiting for them.
///
/// **Arguments** can be `&str` and `&[u8]` (borrowed from the packet at the server), `&T`, `&[T]`, or owned
/// values. Results and exceptions are owned. Their types implement [`Xdr`](macro@Xdr). Every procedure takes
/// `&self` and returns `farcall::Result<T>` or `farcall::Result<T, E>`. The compiler reports a type that
/// cannot be sent at its place in the trait:
///
/// ```compile_fail,E0277
/// #[farcall::interface]
/// trait Files {
///     fn put(&self, file: std::fs::File) -> farcall::Result<()>; // `File` cannot be put on the wire
/// }
/// ```
///
/// ```compile_fail,E0277
/// #[farcall::interface]
/// trait Store {
///     fn get(&self) -> std::result::Result<u64, String>; // a procedure returns `farcall::Result<T, E>`
/// }
/// ```
///
/// **On the trait**, between the parentheses of `#[farcall::interface(…)]`:
/// - `async` also makes `StoreAsync`, a trait with the same procedures as `async fn`s for a server to
///   implement, and `StoreAsyncServer`, which exports such a server. Such a procedure awaits the answers to
///   its signals: `StoreAsyncSignals` raises them.
/// - `name = "…"` gives the interface another type name than the trait's.
/// - `crate = path` is the path of farcall, if it is not `::farcall`.
/// - `program = n, version = n` are the numbers by which ONC RPC calls the interface
///   (`farcall::stub::Program`). Such a trait can also declare procedure 0, with a body that every server
///   then has: `#[procedure(0)] fn null(&self) -> farcall::Result<()> { Ok(()) }`.
///
/// **On a procedure**:
/// - `#[procedure(n)]` pins the procedure's number: it sets it to `n`. A procedure without this attribute has
///   the number after that of the previous procedure; the first has 1. So appending procedures is safe. If
///   you remove a procedure, pin the next one. Programs of two versions recognise a procedure by its number
///   and its name. A renamed procedure is recognised if either version pins it. The numbers 0 and from
///   0xffff0000 are reserved for the runtime.
/// - `#[oneway]`: callers do not wait, and get no result. The calls of one stub are executed in the order in
///   which they were made, each at most once, and before later calls of that stub. The calls of a clone of
///   the stub have an order of their own. The procedure returns `farcall::Result<()>`; an error at the caller
///   says that the arguments could not be encoded. `binding().flush()` waits for the stub's one-way calls.
/// - `#[idempotent]`: the procedure may run twice without harm. If its server fails, a call that may have run
///   is repeated.
/// - `#[blocking]`: the procedure may wait for something. It never runs on the thread that receives packets.
///   Its thread counts as one of the server's threads, but not as one of its workers.
/// - `#[uncancelled]`: if the caller gives up the call, a server of `async fn`s still completes the
///   procedure's future. Without the attribute the future is dropped. (A server of plain functions can ask
///   `context().cancelled()`.)
/// - `#[deadline(ms = n)]`: the maximum time that a call may take, in milliseconds, unless its caller sets a
///   shorter deadline.
/// - `#[signal]` declares a signal: a question that a procedure can raise during a call and that the caller's
///   handler answers. A signal's return type is the type of the answer alone, and no server implements it. A
///   procedure raises signals by `StoreSignals`, and a caller handles them by a `StoreHandler`. It gives the
///   handler to `StoreClient::catching`, for the calls of that stub, or to `StoreSignals::catching`, for the
///   calls of its thread meanwhile. The handler is told by a `StoreRaiser` which procedure has raised the
///   signal, and unwinds it with an outcome of that procedure's types:
///
/// ```
/// # use std::sync::Arc;
/// use farcall::{Answer, Result};
///
/// #[farcall::interface]
/// pub trait Store {
///     fn put(&self, bytes: u64) -> Result<u64>;
///     #[signal]
///     fn low_space(&self, needed: u64) -> u64;
/// }
///
/// struct Server;
/// impl Store for Server {
///     fn put(&self, bytes: u64) -> Result<u64> {
///         let freed = StoreSignals::low_space(bytes)?;
///         Ok(freed - bytes)
///     }
/// }
///
/// struct Frees;
/// impl StoreHandler for Frees {
///     fn low_space(&self, by: StoreRaiser, needed: u64) -> Answer<u64> {
///         match by {
///             StoreRaiser::put(call) if needed > 100 => call.unwind(Ok(0)),
///             _ => Answer::Resume(needed + 1),
///         }
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let store = farcall::stub::local::<dyn Store>(Arc::new(Server)).catching(Frees);
/// assert_eq!((store.put(5)?, store.put(500)?), (1, 0));
/// # Ok(())
/// # }
/// ```
///
/// **A stream**: the result or one argument, or both, may be a `farcall::Stream<T>` or a `farcall::Bulk`,
/// whose items arrive while the call is open. It is awaited and sent by threads or by tasks.
///
/// **On an argument**: `#[xdr(max = n)]` sets the maximum number of bytes of a string or opaque data, or of
/// elements of a list.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    interface::expand(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Generates Rust from an `.x` file (RFC 4506 section 6, RFC 5531 section 12): its constants, its types, and,
/// for each version of each program, a trait with the stubs that [`interface`](macro@interface) makes.
///
/// ```
/// mod mount {
///     # #![allow(dead_code)]
///     farcall::include_x!("../farcall-onc/x/mount.x");
/// }
/// use mount::MountV3; // a trait, as `#[interface]` would have it
/// ```
///
/// The path is relative to the directory of `Cargo.toml`. The crate is built again when the file, or a file
/// that it includes, changes. `docs/x-names.md` says which names the items have.
///
/// `crate = path` before or after the file's path gives the path of farcall, if it is not `::farcall`. A
/// crate that re-exports what the generated code needs can offer this macro to its own users:
///
/// ```
/// # mod seam { pub use farcall::*; }
/// macro_rules! include_here {
///     ($($arguments:tt)*) => { farcall::include_x!(crate = $crate::seam, $($arguments)*); };
/// }
/// # mod mount { #![allow(dead_code)] include_here!("../farcall-onc/x/mount.x"); }
/// # fn main() {}
/// ```
///
/// After the file's path, in any order:
/// - `async` also makes, for each trait, the two items for servers of `async fn`s (see
///   [`interface`](macro@interface));
/// - `include = "directory"` names a directory that is searched for included files;
/// - `define = "NAME=value"` defines a macro of the preprocessor;
/// - `extern_type("name", path)` names the Rust type for a type that the file does not declare;
/// - `external("name", …)` names types that the file does not declare and that have no values in Rust.
///
/// `farcall_idl::build` does the same in a build script, and `farcall gen` on the command line.
#[cfg(feature = "x")]
#[proc_macro]
pub fn include_x(arguments: TokenStream) -> TokenStream {
    include_x::expand(arguments.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Generates Rust from a `.cr` file (Xerox's Courier): its constants, its types, a trait with the stubs that
/// [`interface`](macro@interface) makes, and a module for each program that it depends upon.
///
/// ```
/// mod lookup {
///     # #![allow(dead_code)]
///     farcall::include_cr!("../farcall/tests/cr/PasswordLookup.cr");
/// }
/// use lookup::PasswordLookup; // a trait, as `#[interface]` would have it
/// ```
///
/// The path is relative to the directory of `Cargo.toml`. The crate is built again when the file, or a file
/// of a program that it depends upon, changes. `docs/courier.md` says which names the items have.
///
/// `crate = path` before or after the file's path gives the path of farcall, as in
/// [`include_x!`](macro@include_x). After the file's path there may also be:
/// - `async`, which also makes, for each trait, the two items for servers of `async fn`s (see
///   [`interface`](macro@interface));
/// - `include = "directory"`, which names a directory that is searched for the files of other programs.
///
/// `farcall_idl::build` does the same in a build script, and `farcall gen` on the command line.
#[cfg(feature = "cr")]
#[proc_macro]
pub fn include_cr(arguments: TokenStream) -> TokenStream {
    include_cr::expand(arguments.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Generates Rust from a `.rpc2` file (the interface language of CMU's RPC2): its constants, its types, and a
/// trait with the stubs that [`interface`](macro@interface) makes.
///
/// ```
/// mod clock {
///     # #![allow(dead_code)]
///     farcall::include_rpc2!("../farcall/tests/rpc2/clock.rpc2");
/// }
/// use clock::Clock; // a trait, as `#[interface]` would have it
/// ```
///
/// The path is relative to the directory of `Cargo.toml`. The crate is built again when the file, or a file
/// that it includes, changes. `docs/rpc2.md` says which names the items have.
///
/// `crate = path` before or after the file's path gives the path of farcall, as in
/// [`include_x!`](macro@include_x). After the file's path there may also be:
/// - `async`, which also makes, for each trait, the two items for servers of `async fn`s (see
///   [`interface`](macro@interface));
/// - `include = "directory"`, which names a directory that is searched for included files;
/// - `define = "NAME=value"`, which gives the value of a number that the file has from a header of C;
/// - `from_server("Procedure", …)`, which names procedures whose server sends the bulk data.
///
/// `farcall_idl::build` does the same in a build script, and `farcall gen` on the command line.
#[cfg(feature = "rpc2")]
#[proc_macro]
pub fn include_rpc2(arguments: TokenStream) -> TokenStream {
    include_rpc2::expand(arguments.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
