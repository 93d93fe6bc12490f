//! The user-stub: a struct that implements the trait by calls, and its surface for calls that are only started.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::ext::IdentExt;

use super::{Argument, Passing, Procedure, Source};

pub(super) fn generate(source: &Source) -> TokenStream {
    let client = client(source);
    let calls = calls(source);
    let starts = starts(source);
    quote! {
        #client
        #calls
        #starts
    }
}

impl Source {
    pub(super) fn client_name(&self) -> Ident {
        format_ident!("{}Client", self.name)
    }

    /// `farcall`, as a link in documentation names it.
    fn farcall_in_docs(&self) -> String {
        let segments: Vec<String> = self
            .farcall
            .segments
            .iter()
            .map(|s| s.ident.to_string())
            .collect();
        segments.join("::")
    }

    fn start_name(&self) -> Ident {
        format_ident!("{}Start", self.name)
    }
}

/// `struct StoreClient` and what it offers beside the trait.
fn client(source: &Source) -> TokenStream {
    let Source {
        farcall,
        visibility,
        name,
        ..
    } = source;
    let client = source.client_name();
    let start = source.start_name();
    let about = format!(
        "The user-stub of [`{name}`]: implements it by calling the server that it is bound to.\n\n\
         Cheap to clone; clones share the binding, and any number of threads may call at once."
    );
    let about_start = format!(
        "The procedures of [`{name}`] as calls that are started and not yet waited for: each gives a \
         [`Pending`]({}::Pending).",
        source.farcall_in_docs()
    );
    quote! {
        #[doc = #about]
        #[derive(Clone, Debug)]
        #visibility struct #client {
            binding: #farcall::stub::Binding,
        }

        impl #client {
            /// The same binding with a deadline on every call made through it. The earliest of the procedure's, the
            /// binding's and the calling context's deadlines counts.
            #[must_use = "the stub that it is called on keeps its own deadline"]
            pub fn within(&self, deadline: ::core::time::Duration) -> Self {
                Self { binding: self.binding.within(deadline) }
            }

            #[doc = #about_start]
            pub fn start(&self) -> #start<'_> {
                #start { binding: &self.binding }
            }

            /// What the stub is bound to.
            pub fn binding(&self) -> &#farcall::stub::Binding {
                &self.binding
            }
        }

        impl ::core::convert::From<#farcall::stub::Binding> for #client {
            fn from(binding: #farcall::stub::Binding) -> Self {
                Self { binding }
            }
        }
    }
}

/// `impl Store for StoreClient`
fn calls(source: &Source) -> TokenStream {
    let name = &source.name;
    let client = source.client_name();
    let methods = source
        .procedures
        .iter()
        .enumerate()
        .map(|(index, procedure)| {
            let signature = procedure.signature();
            let facts = facts(source, index);
            let encode = encode(source, procedure);
            quote! {
                #signature {
                    self.binding.call(#facts, #encode)
                }
            }
        });
    quote! {
        #[allow(deprecated)]
        impl #name for #client {
            #(#methods)*
        }
    }
}

/// `struct StoreStart`
fn starts(source: &Source) -> TokenStream {
    let Source {
        farcall,
        visibility,
        name,
        ..
    } = source;
    let client = source.client_name();
    let start = source.start_name();
    let about = format!(
        "Starts calls of [`{name}`] without waiting for them; made by [`{client}::start`]."
    );
    let methods = source
        .procedures
        .iter()
        .enumerate()
        .map(|(index, procedure)| {
            let Procedure {
                name: method,
                result,
                exception,
                ..
            } = procedure;
            let exception = exception.as_ref().map(|ty| quote!(, #ty));
            let about = format!("Starts [`{name}::{method}`].");
            let parameters = procedure.parameters();
            let facts = facts(source, index);
            let encode = encode(source, procedure);
            quote! {
                #[doc = #about]
                pub fn #method(&self, #parameters) -> #farcall::Pending<#result #exception> {
                    self.binding.start(#facts, #encode)
                }
            }
        });
    quote! {
        #[doc = #about]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #start<'a> {
            binding: &'a #farcall::stub::Binding,
        }

        impl #start<'_> {
            #(#methods)*
        }
    }
}

/// Where the static facts of the procedure at `index` stand.
fn facts(source: &Source, index: usize) -> TokenStream {
    let Source { farcall, name, .. } = source;
    quote!(&<dyn #name as #farcall::stub::Interface>::PROCEDURES[#index])
}

/// The closure that writes the arguments into the packet. It may run again, when the call is repeated elsewhere.
fn encode(source: &Source, procedure: &Procedure) -> TokenStream {
    let farcall = &source.farcall;
    if procedure.arguments.is_empty() {
        return quote!(&|_| ::core::result::Result::Ok(()));
    }
    let procedure_name = procedure.name.unraw().to_string();
    let steps = procedure
        .arguments
        .iter()
        .map(|Argument { name, passing, .. }| {
            let text = name.unraw().to_string();
            let borrow = (*passing == Passing::Owned).then(|| quote!(&));
            quote!(#farcall::stub::encode(__arguments, #procedure_name, #text, #borrow #name)?;)
        });
    quote! {
        &|__arguments| {
            #(#steps)*
            ::core::result::Result::Ok(())
        }
    }
}
