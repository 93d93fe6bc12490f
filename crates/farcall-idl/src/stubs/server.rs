//! The server-stub: the description of the interface, and the dispatch from a procedure number to a method.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;

use super::{Argument, Passing, Procedure, Source, documentation};

/// Generates the server-stub.
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

/// Generates `impl Program for dyn Store`, for an interface that ONC RPC calls by these numbers.
fn program(source: &Source, (program, version): (u32, u32)) -> TokenStream {
    let Source { farcall, name, .. } = source;
    quote! {
        impl #farcall::stub::Program for dyn #name {
            const PROGRAM: u32 = #program;
            const VERSION: u32 = #version;
        }
    }
}

/// Generates assertions that each procedure's return type has the result and the exception that its spelling
/// shows. If an assertion fails, the compiler's error points at the interface's source. A missing `Xdr`
/// implementation is reported elsewhere, where the type is encoded or decoded.
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
    let described_signals = source.signals.iter().map(described_signal);
    let signals = signals(source);
    let dispatch = dispatch(source);
    quote! {
        #[allow(deprecated, unused_mut)]
        impl #farcall::stub::Interface for dyn #name {
            type Client = #client;
            const NAME: &'static str = #type_name;
            const PROCEDURES: &'static [#farcall::stub::Procedure] = &[#(#facts),*];

            #signals

            fn interface() -> &'static #farcall::idl::Interface {
                static INTERFACE: ::std::sync::OnceLock<#farcall::idl::Interface> = ::std::sync::OnceLock::new();
                INTERFACE.get_or_init(|| {
                    let mut __interface = #farcall::idl::Interface::new(#type_name)#docs;
                    #(#described)*
                    #(#described_signals)*
                    __interface
                })
            }

            fn dispatch(
                &self,
                __procedure: u32,
                __arguments: &mut #farcall::xdr::Decoder<'_>,
                __reply: &mut #farcall::xdr::Encoder<'_>,
            ) -> #farcall::stub::Dispatched {
                #dispatch
            }
        }
    }
}

/// Generates the body of `dispatch`. If the interface has signals or streams, the call is executed inside
/// `stub::serving`, which notes the signals that may be raised.
fn dispatch(source: &Source) -> TokenStream {
    let farcall = &source.farcall;
    let arms = source.procedures.iter().map(|procedure| arm(source, procedure));
    let body = quote! {
        match __procedure {
            #(#arms)*
            _ => #farcall::stub::Dispatched::NoSuchProcedure,
        }
    };
    match source.has_exchanges() {
        false => body,
        true => quote! {
            #farcall::stub::serving(<Self as #farcall::stub::Interface>::signals(), || #body)
        },
    }
}

/// Generates `fn signals()`, unless no signals are declared.
fn signals(source: &Source) -> Option<TokenStream> {
    let farcall = &source.farcall;
    (!source.signals.is_empty()).then(|| {
        quote! {
            fn signals() -> &'static [#farcall::stub::Signal] {
                static SIGNALS: ::std::sync::OnceLock<::std::vec::Vec<#farcall::stub::Signal>> =
                    ::std::sync::OnceLock::new();
                SIGNALS.get_or_init(|| {
                    #farcall::stub::Signal::all(<Self as #farcall::stub::Interface>::interface())
                })
            }
        }
    })
}

/// Generates a `stub::Procedure`: the facts that the runtime must know before a call.
fn facts(source: &Source, procedure: &Procedure) -> TokenStream {
    let farcall = &source.farcall;
    let Procedure { number, idempotent, uncancelled, .. } = procedure;
    let blocking = procedure.blocking || procedure.has_streams();
    let (name, interface) = (procedure.name.unraw().to_string(), &source.type_name);
    // No caller waits for a one-way call, so no caller would answer the call's signals.
    let exchanges = !procedure.oneway && !source.signals.is_empty() || procedure.has_streams();
    let deadline = match procedure.deadline_ms {
        Some(ms) => quote!(::core::option::Option::Some(::core::time::Duration::from_millis(#ms))),
        None => quote!(::core::option::Option::None),
    };
    quote! {
        #farcall::stub::Procedure {
            number: #number,
            name: #name,
            interface: #farcall::stub::InterfaceId::of(#interface),
            idempotent: #idempotent,
            blocking: #blocking,
            uncancelled: #uncancelled,
            exchanges: #exchanges,
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
    let arguments = described_arguments(procedure);
    let exception = exception.as_ref().map(|ty| quote!(.exception::<#ty>()));
    let idempotent = procedure.idempotent.then(|| quote!(.idempotent()));
    let blocking = procedure.blocking.then(|| quote!(.blocking()));
    let oneway = procedure.oneway.then(|| quote!(.oneway()));
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
            #oneway
            #deadline
            #pinned;
    }
}

/// Generates the statement that adds a signal to the run-time description of the interface.
fn described_signal(signal: &Procedure) -> TokenStream {
    let name = signal.name.unraw().to_string();
    let docs = documentation(&signal.attributes);
    let docs = (!docs.is_empty()).then(|| quote!(.docs(#docs)));
    let (arguments, result) = (described_arguments(signal), &signal.result);
    quote!(__interface.signal(#name)#docs #(#arguments)*.result::<#result>();)
}

/// Generates the method calls that add the arguments to the run-time description.
fn described_arguments(procedure: &Procedure) -> impl Iterator<Item = TokenStream> + '_ {
    procedure.arguments.iter().map(|Argument { name, owned, max, .. }| {
        let name = name.unraw().to_string();
        match max {
            None => quote!(.argument::<#owned>(#name)),
            Some(max) => quote!(.argument_max::<#owned>(#name, #max)),
        }
    })
}

/// Generates an arm of `dispatch`, such as
/// `1 => serve(arguments, reply, |d| Ok((…)), |(key,)| Store::get(self, key)),`.
fn arm(source: &Source, procedure: &Procedure) -> TokenStream {
    let Source { farcall, name: interface, .. } = source;
    let Procedure { number, name, output, .. } = procedure;
    let answer = procedure.answer(source);
    let decode = procedure.decode(source);
    let names = procedure.names();
    let passed = procedure.passed();
    let span = Span::call_site().located_at(output.span());
    let call = quote_spanned!(span=> <Self as #interface>::#name(self, #passed));
    if procedure.result_stream().is_some() {
        return quote! {
            #number => match #farcall::stub::arguments(__arguments, #decode) {
                ::core::result::Result::Ok(#names) => #farcall::stub::serve_stream(__reply, #call),
                ::core::result::Result::Err(__why) => #farcall::stub::Dispatched::BadArguments(__why),
            },
        };
    }
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

    /// Generates the pattern that destructures the tuple of decoded arguments.
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
