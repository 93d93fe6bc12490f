//! The procedural macros of farcall: `#[derive(Xdr)]`, `#[interface]` and, with the feature `x`,
//! `include_x!`.
#![forbid(unsafe_code)]

mod crossing;
#[cfg(feature = "x")]
mod include_x;
mod interface;
mod xdr;

use proc_macro::TokenStream;

/// Implements `Encode`, `Decode` and `Schema` of farcall-xdr for a struct or an enum, so that its values
/// cross between machines in the form of RFC 4506; and `farcall::Exception`, so that procedures can raise it.
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
/// A **struct** is its fields in order. An **enum** is an integer, then the fields of the variant. The
/// integer is the variant's discriminant where one is written, else one more than that of the variant before.
/// Lifetimes (`&'a str`, `&'a [u8]`) borrow from the packet. Each type parameter gets the trait as a bound.
///
/// A struct whose last field is `Option<Box<Self>>` is a **linked list**. A peer may make it as long as its
/// packets allow, so it is encoded, decoded and also dropped by loops: the derive implements `Drop`. (So
/// fields cannot be moved out; `take` them.) Other recursion is limited in depth.
///
/// On the item:
/// - `#[xdr(extensible)]`, a struct: it may gain fields at its end, each with `#[xdr(default)]`; older
///   readers skip them, and newer ones fill them in. Costs four bytes, the length.
/// - `#[xdr(own_drop)]`, a linked list: the type implements `Drop` itself, or no peer makes it long.
/// - `#[xdr(crate = path)]`: where farcall-xdr is, if not at `::farcall::xdr`; `Exception` is left out.
///
/// On a field:
/// - `#[xdr(max = N)]`: the most bytes of a string or opaque data, or elements of a list, set or map; checked
///   both ways.
/// - `#[xdr(with = path)]`: the functions of that module are used instead of the type's traits:
///   `encode(&T, &mut Encoder<'_>) -> Result<(), Error>`, `decode(&mut Decoder<'_>) -> Result<T, Error>`
///   and `schema(&mut Types) -> Type`.
/// - `#[xdr(chain)]`, a `Vec`: it crosses as a linked list of `.x` files, as `farcall::xdr::Chain` does.
/// - `#[xdr(default)]`, in an extensible struct: `Default::default()` where the value ends before it.
///
/// On a variant:
/// - `#[xdr(tag = N)]`: its integer.
/// - `#[xdr(default)]`: it takes all integers that no other variant has; its first field holds them: an
///   `i32`, or an enumeration (an enum without fields) of those that there may be.
#[proc_macro_derive(Xdr, attributes(xdr))]
pub fn derive_xdr(item: TokenStream) -> TokenStream {
    xdr::derive(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes stubs of a trait: what a caller holds, and what a server is exported through.
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
/// The trait stays, and stays dyn-compatible: a server implements it, and so does the user-stub
/// `StoreClient`, which is made beside it with `StoreStart`, the surface of `StoreClient::start`.
///
/// **Arguments** may be `&str`, `&[u8]` (borrowed from the packet at the server), `&T`, `&[T]`, or owned.
/// Results and exceptions are owned. All types in them implement [`Xdr`](macro@Xdr). Every procedure takes
/// `&self` and returns `farcall::Result<T>` or `farcall::Result<T, E>`. What cannot cross is refused where it
/// stands:
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
/// **On the trait**: `#[farcall::interface(async)]` also makes `StoreAsync`, the same procedures as `async
/// fn`s for a server, and `StoreAsyncServer`, which exports one; `name = "…"` gives the interface another
/// type name than the trait's; `crate = path` says where farcall is, if not at `::farcall`; `program = n,
/// version = n` are the numbers by which ONC RPC calls it (`farcall::stub::Program`), whose procedure 0 may
/// then be declared too, with what it does at every server: `#[procedure(0)] fn null(&self) ->
/// farcall::Result<()> { Ok(()) }`.
///
/// **On a procedure**:
/// - `#[procedure(n)]` pins its number. Without it a procedure takes the number after its predecessor's, the
///   first one 1; so appending is safe, and when one is removed its successor is pinned. Programs of both
///   versions know a procedure by its number and its name; one that is renamed is still known if it is
///   pinned, in either version. 0 and the numbers from 0xffff0000 up are the runtime's.
/// - `#[idempotent]`: running twice does no harm, so a call that may have run is repeated when its server
///   fails.
/// - `#[blocking]`: it may wait for something, so it never runs on the thread that receives packets, and does
///   not count as one of the server's workers, only as one of its threads.
/// - `#[uncancelled]`: at a server of `async fn`s its future goes on when its call is given up. (That of any
///   other is dropped; a server of plain functions is told by `context().cancelled()`.)
/// - `#[deadline(ms = n)]`: a call may take that long, unless its caller says less.
///
/// **On an argument**: `#[xdr(max = n)]`, the most bytes of a string or opaque data, or elements of a list.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    interface::expand(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// The Rust of an `.x` file (RFC 4506 section 6, RFC 5531 section 12): its constants, its types, and for each
/// version of each program a trait, with the stubs that [`interface`](macro@interface) makes.
///
/// ```
/// mod mount {
///     # #![allow(dead_code)]
///     farcall::include_x!("../farcall-onc/x/mount.x");
/// }
/// use mount::MountV3; // a trait, as `#[interface]` would have it
/// ```
///
/// The path is seen from the directory of `Cargo.toml`. The crate is built anew when the file changes, or one
/// that it includes. What is called what stands in `docs/x-names.md`.
///
/// `crate = path` before the file's path or after it says where farcall is, if not at `::farcall`. A crate
/// that offers what generated code names, without farcall, can so offer this macro to its own users:
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
/// After the path, in any order: `async` also makes the pair for servers of `async fn`s;
/// `include = "directory"` is looked through for included files; `define = "NAME=value"` is a macro of the
/// preprocessor; `extern_type("name", path)` says which Rust type stands for one that the file does not
/// declare, and `external("name", …)` that there is none: then it has no values.
///
/// A build script can do the same by `farcall_idl::build`, and `farcall gen` on the command line.
#[cfg(feature = "x")]
#[proc_macro]
pub fn include_x(arguments: TokenStream) -> TokenStream {
    include_x::expand(arguments.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
