//! The procedural macros of farcall: `#[derive(Xdr)]` and `#[interface]`.
#![forbid(unsafe_code)]

mod interface;
mod xdr;

use proc_macro::TokenStream;

/// Implements `Encode`, `Decode` and `Schema` for a struct or an enum; see the crate `farcall-xdr`
/// for the wire form and the list of attributes.
#[proc_macro_derive(Xdr, attributes(xdr))]
pub fn derive_xdr(item: TokenStream) -> TokenStream {
    xdr::derive(item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
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
/// The trait stays, and stays dyn-compatible: a server implements it, and so does the user-stub `StoreClient`, which
/// is made beside it with `StoreStart`, the surface of `StoreClient::start`.
///
/// **Arguments** may be `&str`, `&[u8]` (borrowed from the packet at the server), `&T`, `&[T]`, or owned. Results and
/// exceptions are owned. All types in them implement [`Xdr`](macro@Xdr). Every procedure takes `&self` and returns
/// `farcall::Result<T>` or `farcall::Result<T, E>`.
///
/// **On the trait**: `#[farcall::interface(async)]` also makes `StoreAsync`, the same procedures as `async fn`s for a
/// server, and `StoreAsyncServer`, which exports one; `name = "…"` gives the interface another type name than the
/// trait's; `crate = path` says where farcall is, if not at `::farcall`.
///
/// **On a procedure**:
/// - `#[procedure(n)]` pins its number. Without it a procedure takes the number after its predecessor's, the first one
///   1; so appending is safe, and when one is removed its successor is pinned. 0 and the numbers from 0xffff0000 up
///   are the runtime's.
/// - `#[idempotent]`: running twice does no harm, so a call that may have run is repeated when its server fails.
/// - `#[blocking]`: it may take long, so it never runs on the thread that receives packets.
/// - `#[deadline(ms = n)]`: a call may take that long, unless its caller says less.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    interface::expand(arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
