//! Generates the code for an interface's signals: the functions by which a server raises them, the trait that
//! callers' handlers implement, and the type that tells handlers which procedure has raised a signal.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use super::encode::encode;
use super::{Procedure, Source};

/// Generates the items for signals, unless no signals are declared.
pub(super) fn generate(source: &Source) -> Option<TokenStream> {
    if source.signals.is_empty() {
        return None;
    }
    let raises = raises(source);
    let awaited = source.asynchronous.then(|| awaited(source));
    let (raiser, handler) = (raiser(source), handler(source));
    Some(quote! {
        #raises
        #awaited
        #raiser
        #handler
    })
}

impl Source {
    fn handler_name(&self) -> Ident {
        format_ident!("{}Handler", self.name)
    }

    fn raiser_name(&self) -> Ident {
        format_ident!("{}Raiser", self.name)
    }
}

/// Generates `StoreClient::catching`, unless no signals are declared.
pub(super) fn catching(source: &Source) -> Option<TokenStream> {
    if source.signals.is_empty() {
        return None;
    }
    let (handler, adapter) = (source.handler_name(), adapter_name(source));
    Some(quote! {
        /// Returns a stub with the same binding and a handler that answers the signals raised in its calls.
        /// Handlers that are added later are asked first.
        #[must_use = "the stub that it is called on keeps its own handlers"]
        pub fn catching(
            &self,
            handler: impl #handler + ::core::marker::Send + ::core::marker::Sync + 'static,
        ) -> Self {
            Self { binding: self.binding.catching(#adapter(handler)) }
        }
    })
}

/// Generates `StoreMulti::catching`, unless no signals are declared.
pub(super) fn catching_each(source: &Source) -> Option<TokenStream> {
    if source.signals.is_empty() {
        return None;
    }
    let (handler, adapter) = (source.handler_name(), adapter_name(source));
    Some(quote! {
        /// Returns the same group with a handler for each member, which answers the signals raised in the
        /// member's calls. `handler` makes it of the member's name.
        #[must_use = "the group that it is called on keeps its own handlers"]
        pub fn catching<H>(&self, handler: impl ::core::ops::Fn(&str) -> H) -> Self
        where
            H: #handler + ::core::marker::Send + ::core::marker::Sync + 'static,
        {
            Self { members: self.members.catching(|member| #adapter(handler(member))), ..*self }
        }
    })
}

/// Returns the name of the struct by which the runtime calls a handler.
fn adapter_name(source: &Source) -> Ident {
    format_ident!("__{}Handling", source.name)
}

/// Generates `enum StoreSignals`, which has no values, with a function that raises each signal.
fn raises(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, .. } = source;
    let signals = format_ident!("{name}Signals");
    let (handler, adapter) = (source.handler_name(), adapter_name(source));
    let about = format!(
        " Raises the signals of [`{name}`] in the call that the calling thread serves. Each waits until the\n\
         caller resumes it with a value, or unwinds the call."
    );
    let about_catching = format!(
        " Runs `body`. Meanwhile the handler answers the signals that are raised in calls of [`{name}`] which\n\
         this thread waits for, by whatever stub, or of a server that it calls directly. It may borrow from\n\
         the code around. Handlers of the stub, and those that are set inside `body`, are asked first."
    );
    let functions = source.signals.iter().enumerate().map(|(index, signal)| {
        let Procedure { attributes, name: signal_name, result, .. } = signal;
        let (parameters, encode) = (signal.parameters(), encode(source, signal));
        quote! {
            #(#attributes)*
            ///
            /// # Errors
            /// When the caller unwinds the call, or has no handler that answers the signal.
            pub fn #signal_name(#parameters) -> ::core::result::Result<#result, #farcall::Unwound> {
                #farcall::stub::raise(&<dyn #name as #farcall::stub::Interface>::signals()[#index], #encode)
            }
        }
    });
    quote! {
        #[doc = #about]
        #[derive(Clone, Copy, Debug)]
        #visibility enum #signals {}

        impl #signals {
            #(#functions)*

            #[doc = #about_catching]
            pub fn catching<R>(handler: impl #handler, body: impl ::core::ops::FnOnce() -> R) -> R {
                #farcall::stub::catching(&#adapter(handler), body)
            }
        }
    }
}

/// Generates `enum StoreAsyncSignals`, which has no values, with a function that raises each signal from a
/// server of `async fn`s.
fn awaited(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, .. } = source;
    let signals = format_ident!("{name}AsyncSignals");
    let about = format!(
        " Raises the signals of [`{name}`] in the call that the calling task serves. Each future waits until the\n\
         caller resumes the procedure with a value, or unwinds the call."
    );
    let functions = source.signals.iter().enumerate().map(|(index, signal)| {
        let Procedure { attributes, name: signal_name, result, .. } = signal;
        let (parameters, encode) = (signal.parameters(), encode(source, signal));
        quote! {
            #(#attributes)*
            ///
            /// # Errors
            /// When the caller unwinds the call, or nobody catches the signal.
            pub fn #signal_name(#parameters) -> impl ::core::future::Future<
                Output = ::core::result::Result<#result, #farcall::Unwound>,
            > + ::core::marker::Send {
                let __signals = <dyn #name as #farcall::stub::Interface>::signals();
                #farcall::stub::raise_later(&__signals[#index], #encode)
            }
        }
    });
    quote! {
        #[doc = #about]
        #[derive(Clone, Copy, Debug)]
        #visibility enum #signals {}

        impl #signals {
            #(#functions)*
        }
    }
}

/// Generates `enum StoreRaiser`, with a variant for each procedure that can raise a signal.
fn raiser(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, .. } = source;
    let raiser = source.raiser_name();
    let about = format!(
        " Says which procedure of [`{name}`] has raised a signal. What a variant holds unwinds the call with an\n\
         outcome of that procedure."
    );
    let variants = raising(source).map(|procedure| {
        let (variant, answer) = (&procedure.name, procedure.answer(source));
        let about = format!(" [`{name}::{variant}`].");
        quote! {
            #[doc = #about]
            #variant(#farcall::stub::Unwinds<#answer>),
        }
    });
    quote! {
        #[doc = #about]
        #[allow(dead_code, non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #visibility enum #raiser {
            #(#variants)*
            /// A procedure of a server that is called directly, without a stub. Which one is not known.
            Direct,
        }
    }
}

/// Returns the procedures in whose calls a caller can answer signals.
fn raising(source: &Source) -> impl Iterator<Item = &Procedure> {
    source.procedures.iter().filter(|procedure| !procedure.oneway)
}

/// Generates `trait StoreHandler`, and the adapter by which the runtime calls it.
fn handler(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, .. } = source;
    let (handler, adapter) = (source.handler_name(), adapter_name(source));
    let raiser = source.raiser_name();
    // The name of a signal's argument may be the same.
    let raised_by = Ident::new("raised_by", Span::mixed_site());
    let about = format!(
        " Answers the signals of [`{name}`]. Each method gets the procedure that has raised the signal, and the\n\
         signal's arguments. A signal whose method is not implemented passes on to the next handler outwards."
    );
    let methods = source.signals.iter().map(|signal| {
        let Procedure { attributes, name, result, .. } = signal;
        let parameters = signal.parameters();
        quote! {
            #(#attributes)*
            #[allow(unused_variables)]
            fn #name(&self, #raised_by: #raiser, #parameters) -> #farcall::Answer<#result> {
                #farcall::Answer::Pass
            }
        }
    });
    let arms = source.signals.iter().enumerate().map(|(index, signal)| {
        let (decode, names, passed) = (signal.decode(source), signal.names(), signal.passed());
        let span = Span::call_site().located_at(signal.output.span());
        let method = &signal.name;
        let answer = quote_spanned!(span=> #handler::#method(&self.0, __raiser, #passed));
        quote! {
            if __raised.signal == __signals[#index].id {
                let #names = #farcall::stub::arguments(__arguments, #decode)
                    .map_err(#farcall::stub::bad_arguments)?;
                return #farcall::stub::answered(
                    #answer,
                    __raised,
                    <dyn #name as #farcall::stub::Interface>::interface,
                );
            }
        }
    });
    let raisers = raising(source).map(|Procedure { name, number, .. }| {
        quote!(::core::option::Option::Some(#number) => #raiser::#name(#farcall::stub::Unwinds::new(#number)),)
    });
    quote! {
        #[doc = #about]
        #visibility trait #handler {
            #(#methods)*
        }

        #[doc(hidden)]
        struct #adapter<H>(H);

        impl<H: #handler> #farcall::stub::Handler for #adapter<H> {
            fn handle(
                &self,
                __raised: &#farcall::stub::Raised,
                __arguments: &mut #farcall::xdr::Decoder<'_>,
            ) -> ::core::result::Result<#farcall::stub::Handled, #farcall::CallFailed> {
                let __signals = <dyn #name as #farcall::stub::Interface>::signals();
                let __raiser = match __raised.procedure {
                    #(#raisers)*
                    ::core::option::Option::None => #raiser::Direct,
                    // A newer version of the interface has a procedure that this one does not have.
                    ::core::option::Option::Some(_) => {
                        return ::core::result::Result::Ok(#farcall::stub::Handled::Pass);
                    }
                };
                #(#arms)*
                ::core::result::Result::Ok(#farcall::stub::Handled::Pass)
            }
        }
    }
}
