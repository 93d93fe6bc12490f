//! The two items for servers that are written with `async fn`: a trait whose methods return futures, and a
//! wrapper that exports an implementation of that trait as the same interface.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{Procedure, Source};

/// Generates the trait and the wrapper.
pub(super) fn generate(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, procedures, .. } = source;
    let asynchronous = format_ident!("{name}Async");
    let server = format_ident!("{name}AsyncServer");
    let methods = procedures.iter().map(method);
    let dispatch = dispatch(source);
    let about = format!(
        " [`{name}`] for a server written with `async fn`: implement it, and export a [`{server}`].\n\n\
         Callers cannot tell the difference."
    );
    let about_server = format!(" Exports a [`{asynchronous}`] as the interface [`{name}`].");
    // Of the interface's own names the compiler warns at the trait.
    quote! {
        #[doc = #about]
        #[allow(non_snake_case)]
        #visibility trait #asynchronous: ::core::marker::Send + ::core::marker::Sync + 'static {
            #(#methods)*
        }

        #[doc = #about_server]
        #[derive(Debug)]
        #visibility struct #server<S>(::std::sync::Arc<S>);

        impl<S: #asynchronous> #server<S> {
            /// Wraps the server.
            pub fn new(server: S) -> Self {
                Self(::std::sync::Arc::new(server))
            }
        }

        impl<S: #asynchronous> ::core::convert::From<::std::sync::Arc<S>> for #server<S> {
            fn from(server: ::std::sync::Arc<S>) -> Self {
                Self(server)
            }
        }

        #[allow(deprecated)]
        impl<S: #asynchronous> #farcall::stub::AsyncServer for #server<S> {
            type Interface = dyn #name;

            fn dispatch(
                self: ::std::sync::Arc<Self>,
                __procedure: u32,
                __packet: ::std::vec::Vec<u8>,
            ) -> #farcall::stub::AsyncDispatched {
                #dispatch
            }
        }
    }
}

/// Generates the body of `dispatch`. If the interface has signals or streams, the future runs inside
/// `stub::serving_task`, which notes the signals that may be raised.
fn dispatch(source: &Source) -> TokenStream {
    let Source { farcall, name, .. } = source;
    let arms = source.procedures.iter().map(|procedure| arm(source, procedure));
    let future = quote! {
        ::std::boxed::Box::pin(async move {
            let mut __reply = ::std::vec::Vec::new();
            let mut __arguments = #farcall::xdr::Decoder::new(&__packet);
            let __dispatched = match __procedure {
                #(#arms)*
                _ => #farcall::stub::Dispatched::NoSuchProcedure,
            };
            (__dispatched, __reply)
        })
    };
    match source.has_exchanges() {
        false => future,
        true => quote! {
            #farcall::stub::serving_task(<dyn #name as #farcall::stub::Interface>::signals(), #future)
        },
    }
}

/// Generates a method of the trait, for example `fn get(&self, key: &str) -> impl Future<Output = …> +
/// Send;`.
fn method(procedure: &Procedure) -> TokenStream {
    let Procedure { attributes, name, output, .. } = procedure;
    let parameters = procedure.parameters();
    let signature = quote! {
        fn #name(&self, #parameters)
            -> impl ::core::future::Future<Output = #output> + ::core::marker::Send
    };
    match &procedure.body {
        None => quote!(#(#attributes)* #signature;),
        Some(body) => quote!(#(#attributes)* #[allow(unused_variables)] #signature { async move #body }),
    }
}

/// Generates the arm of `dispatch` for a procedure: a future that decodes the arguments, awaits the server's
/// method and encodes the result. The future owns the arguments that the method borrows.
fn arm(source: &Source, procedure: &Procedure) -> TokenStream {
    let farcall = &source.farcall;
    let asynchronous = format_ident!("{}Async", source.name);
    let Procedure { number, name, .. } = procedure;
    let answer = procedure.answer(source);
    let decode = procedure.decode(source);
    let names = procedure.names();
    let passed = procedure.passed();
    let reply = match procedure.result_stream() {
        Some(_) => quote!(#farcall::stub::serve_stream_later(&mut __reply, __outcome).await),
        None => quote! {
            #farcall::stub::reply::<#answer>(&mut #farcall::xdr::Encoder::new(&mut __reply), __outcome)
        },
    };
    quote! {
        #number => match #farcall::stub::arguments(&mut __arguments, #decode) {
            ::core::result::Result::Ok(#names) => {
                let __outcome = <S as #asynchronous>::#name(&self.0, #passed).await;
                #reply
            }
            ::core::result::Result::Err(__why) => #farcall::stub::Dispatched::BadArguments(__why),
        },
    }
}
