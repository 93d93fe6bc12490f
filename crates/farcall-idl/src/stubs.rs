//! Generates the Rust stubs of an interface. This module has the model of an interface in source form,
//! [`Source`], and the generator's entry point, [`generate`].
//!
//! `#[farcall::interface]` fills a [`Source`] from a trait. The compiler of `.x` files writes such traits, so
//! their stubs come from this generator too. The generated code uses only public items of `farcall`, most of
//! which are in `farcall::stub`.

mod asynchronous;
mod encode;
mod server;
mod signals;
mod trait_item;
mod user;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Block, Expr, ExprLit, Lit, Meta, MetaNameValue, Path, PathArguments, Type, Visibility};

/// Names that a procedure cannot have, because they would collide with methods of a user-stub, or with
/// methods that every Rust value has through the prelude.
pub const RESERVED_NAMES: &[&str] = &[
    "start",
    "within",
    "wait_for_server",
    "binding",
    "catching",
    "multi",
    "multi_each",
    "clone",
    "clone_from",
    "to_owned",
    "from",
    "into",
    "try_from",
    "try_into",
    "drop",
];

/// One interface as its author wrote it, with names and Rust types.
#[derive(Clone)]
pub struct Source {
    /// The path of the `farcall` crate at the place of the stubs, usually `::farcall`.
    pub farcall: Path,
    /// The attributes that stay on the trait, including the documentation.
    pub attributes: Vec<Attribute>,
    /// The visibility of the trait and of all items that are generated with it.
    pub visibility: Visibility,
    /// The trait's name.
    pub name: Ident,
    /// The name of the type in the names of exports (`Store` in `"Store/ebbets"`), usually the trait's name.
    pub type_name: String,
    /// Whether the trait and the wrapper for `async fn` servers are generated too.
    pub asynchronous: bool,
    /// The program number and the version by which ONC RPC calls the interface, if they are declared.
    pub program: Option<(u32, u32)>,
    /// The procedures, in the order of their declaration.
    pub procedures: Vec<Procedure>,
    /// The signals that a procedure can raise during a call. Of a signal's fields, only the attributes, the
    /// name, the arguments and the result count; `output` is the type of the result.
    pub signals: Vec<Procedure>,
}

/// One procedure of a [`Source`].
#[derive(Clone)]
pub struct Procedure {
    /// The attributes that stay on the trait's method, including the documentation.
    pub attributes: Vec<Attribute>,
    /// The method's name.
    pub name: Ident,
    /// The procedure's number on the wire, unique in its interface.
    pub number: u32,
    /// Whether the author wrote the number. Otherwise the number follows from the procedure's position.
    pub pinned: bool,
    /// The arguments in order, without the receiver.
    pub arguments: Vec<Argument>,
    /// The return type as written: some spelling of `farcall::Result<result, exception>`.
    pub output: Type,
    /// The type of the result.
    pub result: Type,
    /// The type of the declared exception, if there is one.
    pub exception: Option<Type>,
    /// Whether the procedure may run more than once without harm, so that a call which may have run can be
    /// repeated.
    pub idempotent: bool,
    /// Whether the procedure is slow. It then never runs on the thread that receives packets.
    pub blocking: bool,
    /// Whether the procedure is one-way: callers do not wait, and get no result.
    pub oneway: bool,
    /// Whether an `async fn` server keeps the procedure's future when the caller gives up the call.
    pub uncancelled: bool,
    /// The maximum time that a call may take, in milliseconds, unless its caller sets a shorter deadline.
    pub deadline_ms: Option<u64>,
    /// The default body, for servers that do not implement the procedure.
    pub body: Option<Block>,
}

impl Source {
    /// Returns whether signals or streams can pass inside calls.
    fn has_exchanges(&self) -> bool {
        !self.signals.is_empty() || self.procedures.iter().any(Procedure::has_streams)
    }
}

impl Procedure {
    /// Returns the type parameters of the result, if the result is a stream.
    fn result_stream(&self) -> Option<&PathArguments> {
        stream(&self.result)
    }

    /// Returns the argument that is a stream, if there is one.
    fn argument_stream(&self) -> Option<&Argument> {
        self.arguments.iter().find(|argument| argument.is_stream())
    }

    /// Returns whether an argument or the result is a stream.
    pub fn has_streams(&self) -> bool {
        self.result_stream().is_some() || self.argument_stream().is_some()
    }
}

impl Argument {
    /// Returns whether the argument is a stream.
    pub fn is_stream(&self) -> bool {
        stream(&self.written).is_some()
    }
}

/// Returns the parameters of a type that is spelled `…::Stream<…>` or `…::Bulk`.
fn stream(ty: &Type) -> Option<&PathArguments> {
    let Type::Path(path) = plain(ty) else { return None };
    path.path
        .segments
        .last()
        .filter(|last| last.ident == "Stream" || last.ident == "Bulk")
        .map(|last| &last.arguments)
}

/// One argument of a [`Procedure`].
#[derive(Clone)]
pub struct Argument {
    /// The argument's name, unique in its procedure. It does not begin with two underscores.
    pub name: Ident,
    /// The type as written in the trait.
    pub written: Type,
    /// The owned type that describes the argument on the wire.
    pub owned: Type,
    /// How the server-stub makes a value of `written` from a packet.
    pub passing: Passing,
    /// The declared maximum of bytes or elements, if there is one.
    pub max: Option<Expr>,
}

/// How an argument reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// `T`: decoded and passed by value.
    Owned,
    /// `&T`, `&[T]`: decoded, then passed by reference.
    Lent,
    /// `&str`, `&[u8]`: borrowed from the packet itself.
    Borrowed,
}

impl Argument {
    /// Makes an argument. The type as written determines how the argument is passed.
    pub fn new(name: Ident, written: Type) -> Argument {
        let (passing, owned) = match plain(&written) {
            Type::Reference(reference) => lent(plain(&reference.elem)),
            _ => (Passing::Owned, written.clone()),
        };
        Argument { name, written, owned, passing, max: None }
    }
}

/// Returns how a reference to `referent` is passed, and the owned type of the argument.
fn lent(referent: &Type) -> (Passing, Type) {
    match referent {
        Type::Path(path) if path.path.is_ident("str") => {
            (Passing::Borrowed, syn::parse_quote!(::std::string::String))
        }
        Type::Slice(slice) => {
            let element = &slice.elem;
            let octets = matches!(plain(element), Type::Path(path) if path.path.is_ident("u8"));
            let passing = if octets { Passing::Borrowed } else { Passing::Lent };
            (passing, syn::parse_quote_spanned!(element.span()=> ::std::vec::Vec<#element>))
        }
        other => (Passing::Lent, other.clone()),
    }
}

/// Returns the type without the parentheses and invisible groups that macros put around it.
pub fn plain(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => plain(&group.elem),
        Type::Paren(paren) => plain(&paren.elem),
        other => other,
    }
}

/// Returns the documentation in these attributes, without the space after `///`.
pub fn documentation(attributes: &[Attribute]) -> String {
    let lines: Vec<String> = attributes.iter().filter_map(doc_line).collect();
    lines.join("\n").trim().to_string()
}

fn doc_line(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(MetaNameValue {
            path,
            value: Expr::Lit(ExprLit { lit: Lit::Str(text), .. }),
            ..
        }) if path.is_ident("doc") => {
            let text = text.value();
            Some(text.strip_prefix(' ').unwrap_or(&text).to_string())
        }
        _ => None,
    }
}

/// Returns the items that replace the interface's source: the trait, the user-stub, the server-stub, and what
/// signals and `async fn` servers need.
pub fn generate(source: &Source) -> TokenStream {
    let trait_item = trait_item::generate(source);
    let user = user::generate(source);
    let server = server::generate(source);
    let signals = signals::generate(source);
    let asynchronous = source.asynchronous.then(|| asynchronous::generate(source));
    quote! {
        #trait_item
        #user
        #server
        #signals
        #asynchronous
    }
}
