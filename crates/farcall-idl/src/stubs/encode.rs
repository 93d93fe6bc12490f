//! Generates the closure that encodes the arguments of a procedure or of a signal.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::{Argument, Passing, Procedure, Source};

/// Generates the closure that writes the arguments into the packet. The closure runs again if the call is
/// repeated at another server.
pub(super) fn encode(source: &Source, procedure: &Procedure) -> TokenStream {
    let farcall = &source.farcall;
    if procedure.arguments.is_empty() {
        return quote!(&|_| ::core::result::Result::Ok(()));
    }
    let procedure_name = procedure.name.unraw().to_string();
    let steps = procedure.arguments.iter().map(|argument| {
        let Argument { name, passing, written, max, .. } = argument;
        let text = name.unraw().to_string();
        let span = Span::call_site().located_at(written.span());
        if argument.is_stream() {
            return quote_spanned!(span=> #farcall::stub::encode_stream(__arguments)?;);
        }
        let borrow = (*passing == Passing::Owned).then(|| quote_spanned!(span=> &));
        let encoded = match max {
            None => quote_spanned!(span=> #farcall::xdr::Encode::encode(#borrow #name, __arguments)),
            Some(max) => {
                quote_spanned!(span=> #farcall::xdr::derive::encode_max(#borrow #name, #max, __arguments))
            }
        };
        quote_spanned!(span=> #farcall::stub::argument(#procedure_name, #text, #encoded)?;)
    });
    quote! {
        &|__arguments| {
            #(#steps)*
            ::core::result::Result::Ok(())
        }
    }
}
