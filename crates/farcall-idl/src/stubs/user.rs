//! Generates the user-stub: a struct that implements the trait by calls. Further methods start calls without
//! waiting for them, and call groups of servers.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;

use super::encode::encode;
use super::{Procedure, Source, signals};

/// Generates the user-stub and the structs for started and group calls.
pub(super) fn generate(source: &Source) -> TokenStream {
    let client = client(source);
    let calls = calls(source);
    let starts = starts(source);
    let multi = multi(source);
    let prepare = prepare(source);
    quote! {
        #client
        #calls
        #starts
        #multi
        #prepare
    }
}

impl Source {
    pub(super) fn client_name(&self) -> Ident {
        format_ident!("{}Client", self.name)
    }

    /// Returns a documentation link to an item of farcall. If the path of farcall is `$crate`, which
    /// documentation cannot name, returns plain text.
    fn link(&self, item: &str) -> String {
        let segments: Vec<String> = self.farcall.segments.iter().map(|s| s.ident.to_string()).collect();
        match segments.first().is_some_and(|first| first == "$crate") {
            true => format!("`{item}`"),
            false => format!("[`{item}`]({}::{item})", segments.join("::")),
        }
    }

    fn has_oneway(&self) -> bool {
        self.procedures.iter().any(|procedure| procedure.oneway)
    }

    fn start_name(&self) -> Ident {
        format_ident!("{}Start", self.name)
    }

    fn multi_name(&self) -> Ident {
        format_ident!("{}Multi", self.name)
    }

    fn prepare_name(&self) -> Ident {
        format_ident!("{}Prepare", self.name)
    }
}

/// Generates `struct StoreClient` and its methods besides the trait's.
fn client(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, .. } = source;
    let client = source.client_name();
    let start = source.start_name();
    let (multi, prepare) = (source.multi_name(), source.prepare_name());
    let catching = signals::catching(source);
    let about = format!(
        " The user-stub of [`{name}`]: implements it by calling the server that it is bound to.\n\n\
         Cheap to clone; clones share the binding, and any number of threads may call at once."
    );
    let about_start = format!(
        " The procedures of [`{name}`] as calls that are started and not yet waited for: each gives a {}.",
        source.link("Pending")
    );
    quote! {
        #[doc = #about]
        #[derive(Clone, Debug)]
        #visibility struct #client {
            binding: #farcall::stub::Binding,
        }

        impl #client {
            /// Returns a stub with the same binding and a deadline for every call through it. The procedure
            /// and the calling context can set deadlines too; the earliest counts.
            #[must_use = "the stub that it is called on keeps its own deadline"]
            pub fn within(&self, deadline: ::core::time::Duration) -> Self {
                Self { binding: self.binding.within(deadline) }
            }

            /// Returns a stub whose calls wait for a server: a call that did not run because its server drains,
            /// is gone, or is not listed, is made again until a server takes it, or until its deadline.
            #[must_use = "the stub that it is called on does not wait"]
            pub fn wait_for_server(&self) -> Self {
                Self { binding: self.binding.wait_for_server() }
            }

            #catching

            #[doc = #about_start]
            pub fn start(&self) -> #start<'_> {
                #start { binding: &self.binding }
            }

            /// Returns the binding of the stub.
            pub fn binding(&self) -> &#farcall::stub::Binding {
                &self.binding
            }
        }

        impl ::core::convert::From<#farcall::stub::Binding> for #client {
            fn from(binding: #farcall::stub::Binding) -> Self {
                Self { binding }
            }
        }

        impl #farcall::stub::Client for #client {
            type Multi<M> = #multi<M>;
            type Prepare = #prepare;

            fn binding(&self) -> &#farcall::stub::Binding {
                &self.binding
            }

            fn multi<M>(members: #farcall::multi::Members) -> #multi<M> {
                #multi { members, kind: ::core::marker::PhantomData }
            }
        }
    }
}

/// Generates `impl Store for StoreClient`.
fn calls(source: &Source) -> TokenStream {
    let name = &source.name;
    let client = source.client_name();
    let methods = source.procedures.iter().enumerate().map(|(index, procedure)| {
        let signature = procedure.signature();
        let call = match (procedure.result_stream(), procedure.argument_stream()) {
            _ if procedure.oneway => forward_oneway(source, index),
            (_, None) => forward(source, index, "call"),
            (None, Some(_)) => forward(source, index, "call_sending"),
            (Some(_), Some(_)) => forward(source, index, "call_both"),
        };
        quote! {
            #signature {
                #call
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

/// Generates `struct StoreStart`.
fn starts(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, .. } = source;
    let client = source.client_name();
    let start = source.start_name();
    let about = format!(" Starts calls of [`{name}`] without waiting for them; made by [`{client}::start`].");
    let methods = methods(
        source,
        |procedure| !procedure.oneway,
        ["Starts", ""],
        |index, procedure| {
            let answer = procedure.answer(source);
            let how = match (procedure.argument_stream().is_some(), source.has_oneway()) {
                (false, false) => "start",
                (false, true) => "start_in_order",
                (true, false) => "start_sending",
                (true, true) => "start_sending_in_order",
            };
            (quote!(#farcall::Pending<#answer>), forward(source, index, how))
        },
    );
    quote! {
        #[doc = #about]
        #[derive(Clone, Copy, Debug)]
        #visibility struct #start<'a> {
            binding: &'a #farcall::stub::Binding,
        }

        #[allow(non_snake_case)]
        impl #start<'_> {
            #methods
        }
    }
}

/// Generates `struct StoreMulti`.
fn multi(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, .. } = source;
    let multi = source.multi_name();
    let (prepare, catching) = (source.prepare_name(), signals::catching_each(source));
    let about =
        format!(" Calls every member of a group of [`{name}`]s; made by {}.", source.link("Group::multi"));
    let methods = methods(source, is_called_of_all, ["Calls", " of every member"], |_, procedure| {
        let (answer, name) = (procedure.answer(source), &procedure.name);
        let arguments = procedure.arguments.iter().map(|argument| &argument.name);
        let body = quote! {
            let __prepared = #prepare.#name(#(#arguments),*);
            #farcall::Multi::new(::core::clone::Clone::clone(&self.members), __prepared)
        };
        (quote!(#farcall::Multi<#answer, M>), body)
    });
    quote! {
        #[doc = #about]
        #[derive(Clone, Debug)]
        #visibility struct #multi<M> {
            members: #farcall::multi::Members,
            kind: ::core::marker::PhantomData<fn() -> M>,
        }

        #[allow(non_snake_case)]
        impl<M> #multi<M> {
            #catching

            #methods
        }
    }
}

/// Generates `struct StorePrepare`.
fn prepare(source: &Source) -> TokenStream {
    let Source { farcall, visibility, name, .. } = source;
    let prepare = source.prepare_name();
    let about = format!(
        " Encodes calls of [`{name}`] that are not made yet, for {}.",
        source.link("Group::multi_each")
    );
    let is_prepared = |procedure: &Procedure| !procedure.oneway;
    let methods = methods(source, is_prepared, ["Encodes the arguments of", ""], |index, procedure| {
        let (answer, encode) = (procedure.answer(source), encode(source, procedure));
        let span = Span::call_site().located_at(procedure.output.span());
        let stream = sending(procedure, "into_argument");
        let how = format_ident!("{}", if stream.is_some() { "with_stream" } else { "new" });
        let prepared = quote_spanned! {span=>
            #farcall::multi::Prepared::#how(
                &<dyn #name as #farcall::stub::Interface>::PROCEDURES[#index],
                #encode,
                #stream
            )
        };
        (quote!(#farcall::multi::Prepared<#answer>), prepared)
    });
    quote! {
        #[doc = #about]
        #[derive(Clone, Copy, Debug, Default)]
        #visibility struct #prepare;

        #[allow(non_snake_case)]
        impl #prepare {
            #methods
        }
    }
}

/// Returns whether a procedure can be called at every member of a group by one encoded call. That is not so
/// if an argument is a stream, because each member needs its own stream, or if the procedure is one-way,
/// because then there are no outcomes.
fn is_called_of_all(procedure: &Procedure) -> bool {
    procedure.argument_stream().is_none() && !procedure.oneway
}

/// Generates a method for each procedure that `has` one, with the type and the body that `of` returns. The
/// impl around it allows any name, because the compiler warns of the interface's own names at the trait.
/// `about` is the method's documentation, before and after the procedure's name.
fn methods(
    source: &Source,
    has: impl Fn(&Procedure) -> bool,
    [before, after]: [&str; 2],
    of: impl Fn(usize, &Procedure) -> (TokenStream, TokenStream),
) -> TokenStream {
    let procedures = source.procedures.iter().enumerate();
    let methods = procedures.filter(|(_, procedure)| has(procedure)).map(|(index, procedure)| {
        let (name, parameters) = (&procedure.name, procedure.parameters());
        let about = format!(" {before} [`{}::{name}`]{after}.", source.name);
        let (output, body) = of(index, procedure);
        quote! {
            #[doc = #about]
            pub fn #name(&self, #parameters) -> #output {
                #body
            }
        }
    });
    methods.collect()
}

/// Generates the body of a method: the binding's method `how` with the procedure and its arguments.
fn forward(source: &Source, index: usize, how: &str) -> TokenStream {
    let Source { farcall, name, .. } = source;
    let procedure = &source.procedures[index];
    let (answer, encode) = (procedure.answer(source), encode(source, procedure));
    let in_order = in_order(source, index).filter(|_| how.starts_with("call"));
    let stream = match how {
        "call_both" => sending(procedure, "into_argument_of_thread"),
        _ => sending(procedure, "into_argument"),
    };
    let how = format_ident!("{how}");
    // With this span, compiler errors about the types point at the interface's source.
    let span = Span::call_site().located_at(procedure.output.span());
    quote_spanned! {span=>
        self.binding #in_order.#how::<#answer>(
            &<dyn #name as #farcall::stub::Interface>::PROCEDURES[#index],
            #encode,
            #stream
        )
    }
}

/// Generates the call of the method `into`, which makes the sender of the stream argument. Returns `None` if
/// no argument is a stream.
fn sending(procedure: &Procedure, into: &str) -> Option<TokenStream> {
    let (stream, into) = (&procedure.argument_stream()?.name, format_ident!("{into}"));
    Some(quote!(#stream.#into()))
}

/// Generates the call of `in_order`, which makes a call run after the one-way calls before it. Returns `None`
/// if the interface has no one-way procedures.
fn in_order(source: &Source, index: usize) -> Option<TokenStream> {
    let Source { farcall, name, .. } = source;
    source
        .has_oneway()
        .then(|| quote!(.in_order(&<dyn #name as #farcall::stub::Interface>::PROCEDURES[#index])?))
}

/// Generates the body of a one-way procedure's method.
fn forward_oneway(source: &Source, index: usize) -> TokenStream {
    let Source { farcall, name, .. } = source;
    let procedure = &source.procedures[index];
    let encode = encode(source, procedure);
    let span = Span::call_site().located_at(procedure.output.span());
    quote_spanned! {span=>
        self.binding.call_oneway(&<dyn #name as #farcall::stub::Interface>::PROCEDURES[#index], #encode)
    }
}
