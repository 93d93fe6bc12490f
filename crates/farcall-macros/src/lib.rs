//! The procedural macros of farcall: `#[derive(Xdr)]` and `#[interface]`.
#![forbid(unsafe_code)]

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
