//! From an interface in source form to Rust stubs: the model that every front end fills, and the generator's
//! entry.
//!
//! `#[farcall::interface]` fills a [`Source`] from a trait; a compiler of `.x` files fills the same one. What
//! is generated relies only on what `farcall::stub` documents.

mod asynchronous;
mod server;
mod trait_item;
mod user;

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::spanned::Spanned;
use syn::{Attribute, Block, Expr, ExprLit, Lit, Meta, MetaNameValue, Path, Type, Visibility};

/// Names that would collide with what a user-stub has beside its procedures, or with methods that every Rust
/// value has through the prelude.
pub const RESERVED_NAMES: &[&str] = &[
    "start",
    "within",
    "binding",
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

/// One interface as its author wrote it, names and Rust types included.
#[derive(Clone)]
pub struct Source {
    /// The path of the `farcall` crate where the stubs will stand, usually `::farcall`.
    pub farcall: Path,
    /// Attributes of the trait, documentation among them; they stay on it.
    pub attributes: Vec<Attribute>,
    /// Of the trait and of everything made beside it.
    pub visibility: Visibility,
    /// The trait's name.
    pub name: Ident,
    /// The type in an interface name (`Store` in `"Store/ebbets"`); usually the trait's name.
    pub type_name: String,
    /// Whether the pair for `async fn` servers is made too.
    pub asynchronous: bool,
    /// Program and version, by which ONC RPC calls it, if it does.
    pub program: Option<(u32, u32)>,
    /// In the order of their declaration.
    pub procedures: Vec<Procedure>,
}

/// One procedure of a [`Source`].
#[derive(Clone)]
pub struct Procedure {
    /// Attributes that stay on the trait's method, documentation among them.
    pub attributes: Vec<Attribute>,
    /// The method's name.
    pub name: Ident,
    /// What the wire calls it; unique in its interface.
    pub number: u32,
    /// The number is written down, not counted.
    pub pinned: bool,
    /// In order; the receiver is not among them.
    pub arguments: Vec<Argument>,
    /// The return type as written: some spelling of `farcall::Result<result, exception>`.
    pub output: Type,
    /// What the procedure returns.
    pub result: Type,
    /// What it declares to raise, if anything.
    pub exception: Option<Type>,
    /// May run more than once without harm, so a call that may have run can be repeated.
    pub idempotent: bool,
    /// Known to be slow: it never runs on the thread that receives packets.
    pub blocking: bool,
    /// At a server of `async fn`s its future is not dropped when the call is given up.
    pub uncancelled: bool,
    /// How long a call may take, in milliseconds, unless its caller says less.
    pub deadline_ms: Option<u64>,
    /// What it does at a server that does not say.
    pub body: Option<Block>,
}

/// One argument of a [`Procedure`].
#[derive(Clone)]
pub struct Argument {
    /// Its name; no two of a procedure share one, and none begins with two underscores.
    pub name: Ident,
    /// Its type as written in the trait.
    pub written: Type,
    /// The owned type that describes it on the wire.
    pub owned: Type,
    /// How the server-stub makes a value of `written` out of a packet.
    pub passing: Passing,
    /// The most bytes or elements, if that is declared.
    pub max: Option<Expr>,
}

/// How an argument reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// `T`: decoded and given away.
    Owned,
    /// `&T`, `&[T]`: decoded, then lent.
    Lent,
    /// `&str`, `&[u8]`: lent from the packet itself.
    Borrowed,
}

impl Argument {
    /// Works out from the type as written how the argument crosses.
    pub fn new(name: Ident, written: Type) -> Argument {
        let (passing, owned) = match plain(&written) {
            Type::Reference(reference) => lent(plain(&reference.elem)),
            _ => (Passing::Owned, written.clone()),
        };
        Argument { name, written, owned, passing, max: None }
    }
}

/// How a reference to `referent` crosses, and as what.
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

/// The type without the parentheses and invisible groups that macros leave around it.
pub fn plain(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => plain(&group.elem),
        Type::Paren(paren) => plain(&paren.elem),
        other => other,
    }
}

/// The documentation that attributes carry, without the space after `///`.
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

/// Everything that stands in the place of the interface: the trait, the user-stub, the server-stub.
pub fn generate(source: &Source) -> TokenStream {
    let trait_item = trait_item::generate(source);
    let user = user::generate(source);
    let server = server::generate(source);
    let asynchronous = source.asynchronous.then(|| asynchronous::generate(source));
    quote! {
        #trait_item
        #user
        #server
        #asynchronous
    }
}
