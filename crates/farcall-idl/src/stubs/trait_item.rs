//! Generates the trait, which servers implement and callers call.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use super::{Procedure, Source};

pub(super) fn generate(source: &Source) -> TokenStream {
    let Source { attributes, visibility, name, procedures, .. } = source;
    let methods = procedures.iter().map(method);
    quote! {
        #(#attributes)*
        #visibility trait #name: ::core::marker::Send + ::core::marker::Sync + 'static {
            #(#methods)*
        }
    }
}

fn method(procedure: &Procedure) -> TokenStream {
    let attributes = &procedure.attributes;
    let signature = procedure.signature();
    let Some(body) = &procedure.body else {
        return quote! {
            #(#attributes)*
            #signature;
        };
    };
    // Arguments that the body does not use keep their names, because people who write calls read them.
    quote! {
        #(#attributes)*
        #[allow(unused_variables)]
        #signature #body
    }
}

impl Procedure {
    /// Generates the signature of a method, for example `fn get(&self, key: &str) -> farcall::Result<u64,
    /// NoSuchKey>`.
    pub(super) fn signature(&self) -> TokenStream {
        let Procedure { name, output, .. } = self;
        let parameters = self.parameters();
        // With this span, compiler messages about the method point at its name.
        let span = Span::call_site().located_at(name.span());
        quote_spanned!(span=> fn #name(&self, #parameters) -> #output)
    }

    /// Generates the parameters of a method, for example `key: &str, value: u64`.
    pub(super) fn parameters(&self) -> TokenStream {
        let names = self.arguments.iter().map(|argument| &argument.name);
        let types = self.arguments.iter().map(|argument| &argument.written);
        quote!(#(#names: #types),*)
    }
}
