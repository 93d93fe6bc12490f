//! The server-stub: the description of the interface, and the dispatch from a procedure number to a method.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::{Argument, Passing, Procedure, Source, documentation};

pub(super) fn generate(source: &Source) -> TokenStream {
    let implementation = implementation(source);
    let program = source.program.map(|numbers| program(source, numbers));
    let assertions = assertions(source);
    quote! {
        #implementation
        #program
        #assertions
    }
}

/// Generates `impl Program for dyn Store`.
fn program(source: &Source, (program, version): (u32, u32)) -> TokenStream {
    let Source { farcall, name, .. } = source;
    quote! {
        impl #farcall::stub::Program for dyn #name {
            const PROGRAM: u32 = #program;
            const VERSION: u32 = #version;
        }
    }
}

/// Generates assertions that a procedure's return type is what its spelling says, with errors at the
/// interface's source. (Missing `Xdr` implementations are reported where the types are encoded and decoded.)
fn assertions(source: &Source) -> TokenStream {
    let farcall = &source.farcall;
    let returns = source.procedures.iter().map(|procedure| {
        let (output, answer) = (&procedure.output, procedure.answer(source));
        quote_spanned!(output.span()=> #farcall::stub::returns::<#output, #answer>();)
    });
    quote! {
        const _: () = {
            #(#returns)*
        };
    }
}

/// Generates `impl Interface for dyn Store`.
fn implementation(source: &Source) -> TokenStream {
    let Source { farcall, name, type_name, procedures, .. } = source;
    let client = source.client_name();
    let facts = procedures.iter().map(|procedure| facts(source, procedure));
    let docs = documentation(&source.attributes);
    let docs = (!docs.is_empty()).then(|| quote!(.docs(#docs)));
    let described = procedures.iter().map(described);
    let arms = procedures.iter().map(|procedure| arm(source, procedure));
    quote! {
        #[allow(deprecated, unused_mut)]
        impl #farcall::stub::Interface for dyn #name {
            type Client = #client;
            const NAME: &'static str = #type_name;
            const PROCEDURES: &'static [#farcall::stub::Procedure] = &[#(#facts),*];

            fn interface() -> &'static #farcall::idl::Interface {
                static INTERFACE: ::std::sync::OnceLock<#farcall::idl::Interface> = ::std::sync::OnceLock::new();
                INTERFACE.get_or_init(|| {
                    let mut __interface = #farcall::idl::Interface::new(#type_name)#docs;
                    #(#described)*
                    __interface
                })
            }

            fn dispatch(
                &self,
                __procedure: u32,
                __arguments: &mut #farcall::xdr::Decoder<'_>,
                __reply: &mut #farcall::xdr::Encoder<'_>,
            ) -> #farcall::stub::Dispatched {
                match __procedure {
                    #(#arms)*
                    _ => #farcall::stub::Dispatched::NoSuchProcedure,
                }
            }
        }
    }
}

/// Generates a `stub::Procedure`: the facts that the runtime needs before a call.
fn facts(source: &Source, procedure: &Procedure) -> TokenStream {
    let farcall = &source.farcall;
    let Procedure { number, idempotent, blocking, uncancelled, .. } = procedure;
    let name = procedure.name.unraw().to_string();
    let deadline = match procedure.deadline_ms {
        Some(ms) => quote!(::core::option::Option::Some(::core::time::Duration::from_millis(#ms))),
        None => quote!(::core::option::Option::None),
    };
    quote! {
        #farcall::stub::Procedure {
            number: #number,
            name: #name,
            idempotent: #idempotent,
            blocking: #blocking,
            uncancelled: #uncancelled,
            deadline: #deadline,
        }
    }
}

/// Generates the statement that adds the procedure to the run-time description of the interface.
fn described(procedure: &Procedure) -> TokenStream {
    let Procedure { number, result, exception, .. } = procedure;
    let name = procedure.name.unraw().to_string();
    let docs = documentation(&procedure.attributes);
    let docs = (!docs.is_empty()).then(|| quote!(.docs(#docs)));
    let arguments = procedure.arguments.iter().map(|Argument { name, owned, max, .. }| {
        let name = name.unraw().to_string();
        match max {
            None => quote!(.argument::<#owned>(#name)),
            Some(max) => quote!(.argument_max::<#owned>(#name, #max)),
        }
    });
    let exception = exception.as_ref().map(|ty| quote!(.exception::<#ty>()));
    let idempotent = procedure.idempotent.then(|| quote!(.idempotent()));
    let blocking = procedure.blocking.then(|| quote!(.blocking()));
    let deadline = procedure.deadline_ms.map(|ms| quote!(.deadline_ms(#ms)));
    let pinned = procedure.pinned.then(|| quote!(.pinned()));
    quote! {
        __interface
            .procedure(#number, #name)
            #docs
            #(#arguments)*
            .result::<#result>()
            #exception
            #idempotent
            #blocking
            #deadline
            #pinned;
    }
}

/// Generates the arm that calls a method, for example `1 => serve(arguments, reply, |d| Ok((…)), |(key,)|
/// Store::get(self, key)),`.
fn arm(source: &Source, procedure: &Procedure) -> TokenStream {
    let Source { farcall, name: interface, .. } = source;
    let Procedure { number, name, output, .. } = procedure;
    let answer = procedure.answer(source);
    let decode = procedure.decode(source);
    let names = procedure.names();
    let passed = procedure.passed();
    let span = Span::call_site().located_at(output.span());
    let call = quote_spanned!(span=> <Self as #interface>::#name(self, #passed));
    quote! {
        #number => #farcall::stub::serve::<_, #answer>(
            __arguments,
            __reply,
            #decode,
            |#names| #call,
        ),
    }
}

impl Procedure {
    /// Returns the types of the result and of the exception, which is `Never` if none is declared.
    pub(super) fn answer(&self, source: &Source) -> TokenStream {
        let Procedure { result, exception, .. } = self;
        let farcall = &source.farcall;
        match exception {
            Some(exception) => quote!(#result, #exception),
            None => {
                let never = quote_spanned!(self.output.span()=> #farcall::Never);
                quote!(#result, #never)
            }
        }
    }

    /// Generates the closure that decodes all arguments as one tuple.
    pub(super) fn decode(&self, source: &Source) -> TokenStream {
        let farcall = &source.farcall;
        if self.arguments.is_empty() {
            return quote!(|_| ::core::result::Result::Ok(()));
        }
        let procedure = self.name.unraw().to_string();
        let values = self.arguments.iter().map(|argument| {
            let ty = match argument.passing {
                Passing::Owned | Passing::Borrowed => &argument.written,
                Passing::Lent => &argument.owned,
            };
            let name = argument.name.unraw().to_string();
            let span = Span::call_site().located_at(argument.written.span());
            let decoded = match &argument.max {
                None => quote_spanned!(span=> <#ty as #farcall::xdr::Decode>::decode(__arguments)),
                Some(max) => {
                    quote_spanned!(span=> #farcall::xdr::derive::decode_max::<#ty>(#max, __arguments))
                }
            };
            quote_spanned!(span=> #farcall::stub::argument(#procedure, #name, #decoded)?)
        });
        quote!(|__arguments| ::core::result::Result::Ok((#(#values,)*)))
    }

    /// Generates the pattern that destructures the tuple.
    pub(super) fn names(&self) -> TokenStream {
        let names = self.arguments.iter().map(|argument| &argument.name);
        quote!((#(#names,)*))
    }

    /// Generates the arguments of the call of the trait's method.
    pub(super) fn passed(&self) -> TokenStream {
        let values = self.arguments.iter().map(|Argument { name, passing, .. }| match passing {
            Passing::Owned | Passing::Borrowed => quote!(#name),
            Passing::Lent => quote!(&#name),
        });
        quote!(#(#values),*)
    }
}
