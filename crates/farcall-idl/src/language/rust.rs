//! Generates Rust from a plan: constants, types that derive `Xdr`, and a trait with `#[farcall::interface]`
//! for each version. The items of each module are in a Rust module beside the file's own.

mod constants;
mod unions;

use std::rc::Rc;

use farcall_xdr::schema::Types;
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, quote};
use syn::Path;

use super::Config;
use super::plan::names::ident;
use super::plan::{
    Enumerator, Item, Kind, Member, Method, Named, Plan, Refused, Shape, Trait, by_value, shapes,
};
use super::tree::Type;
use crate::{spell, spell_program};

/// Generates Rust from a plan.
pub struct Writer<'p> {
    plan: &'p Plan,
    /// The path of the `farcall` crate.
    farcall: Path,
    asynchronous: bool,
    /// The traits that each item derives.
    traits: Rc<[Derives]>,
    /// The module whose items are written, or `None` for the file's own.
    here: Option<usize>,
}

/// The traits of std that an item can derive, besides those that all items derive.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Derives {
    copy: bool,
    eq: bool,
    default: bool,
}

const ALL: Derives = Derives { copy: true, eq: true, default: true };

impl<'p> Writer<'p> {
    pub fn new(plan: &'p Plan, config: &Config, farcall: &Path) -> Writer<'p> {
        let (farcall, traits) = (farcall.clone(), derives(plan).into());
        Writer { plan, farcall, asynchronous: config.asynchronous, traits, here: None }
    }

    pub fn file(&self) -> Result<TokenStream, Refused> {
        let own = self.items()?;
        let modules: Result<Vec<_>, _> =
            (0..self.plan.modules.len()).map(|index| self.module(index)).collect();
        let modules = modules?;
        Ok(quote!(#own #(#modules)*))
    }

    fn module(&self, index: usize) -> Result<TokenStream, Refused> {
        let farcall = one_deeper(&self.farcall);
        let within = Writer { farcall, traits: self.traits.clone(), here: Some(index), ..*self };
        let (name, items) = (ident(&self.plan.modules[index]), within.items()?);
        Ok(quote!(#[allow(dead_code)] pub mod #name { #items }))
    }

    /// Generates the constants, types and traits of one module.
    fn items(&self) -> Result<TokenStream, Refused> {
        let Plan { constants, items, traits, .. } = self.plan;
        let constants = constants.iter().filter(|each| each.module == self.here);
        let constants = constants.map(|constant| self.constant(constant));
        let here = (0..items.len()).filter(|index| items[*index].module == self.here);
        let items: Result<Vec<_>, _> = here.map(|index| self.item(index)).collect();
        let traits = traits.iter().filter(|each| each.module == self.here);
        let (items, traits) = (items?, traits.map(|version| self.interface(version)));
        Ok(quote! {
            #(#constants)*
            #(#items)*
            #(#traits)*
        })
    }

    fn item(&self, index: usize) -> Result<TokenStream, Refused> {
        let Item { named, kind, .. } = &self.plan.items[index];
        let name = self.name(index);
        Ok(match kind {
            Kind::Alias(shape) => {
                let ((_, docs), ty) = (tokens(named), self.outermost(shape));
                let leave = spelled([named.name.as_str()], []);
                quote!(#docs #leave pub type #name = #ty;)
            }
            Kind::Newtype(shape) => {
                let (head, attribute, ty) =
                    (self.head(index, [], []), self.attribute(shape), self.outermost(shape));
                quote!(#head pub struct #name(#attribute pub #ty);)
            }
            Kind::Enumeration(enumerators) if !enumerators.is_empty() => self.enumeration(index, enumerators),
            Kind::Struct(members) => {
                let head = self.head(index, [], members.iter().map(|member| &member.named));
                let members = members.iter().map(|member| self.member(member));
                quote!(#head pub struct #name { #(#members,)* })
            }
            Kind::Union(union) if !union.variants.is_empty() => self.union(index, union),
            Kind::Exception(errors) => self.exception(index, errors),
            // The path is checked once, here. Other items use the path wherever the type is named.
            Kind::Foreign(Some(elsewhere)) => path(elsewhere).map(|_| TokenStream::new())?,
            // `Foreign(None)` becomes an enum without variants.
            Kind::Enumeration(_) | Kind::Union(_) | Kind::Foreign(None) => {
                let (head, farcall) = (self.head(index, [], []), &self.farcall);
                quote!(#head pub struct #name(pub #farcall::xdr::Foreign);)
            }
        })
    }

    /// Returns the attributes of a type: its documentation, `allow`s for names in unusual case, and derives.
    fn head<'n>(
        &self,
        index: usize,
        variants: impl IntoIterator<Item = &'n Named>,
        members: impl IntoIterator<Item = &'n Named>,
    ) -> TokenStream {
        let Item { named, kind, .. } = &self.plan.items[index];
        let names = |named: &'n Named| named.name.as_str();
        let leave = spelled(
            [named.name.as_str()].into_iter().chain(variants.into_iter().map(names)),
            members.into_iter().map(names),
        );
        let (Derives { copy, eq, default }, farcall) = (self.traits[index], &self.farcall);
        let [copy, default] = [(copy, quote!(Copy,)), (default, quote!(Default,))]
            .map(|(derives, name)| derives.then_some(name));
        let ordered = match kind {
            Kind::Enumeration(all) if !all.is_empty() => Some(quote!(PartialOrd, Ord,)),
            _ => None,
        };
        let eq = eq.then(|| quote!(Eq, #ordered Hash,));
        let ((_, docs), xdr) = (tokens(named), self.attributes());
        quote!(#docs #leave #[derive(Clone, #copy Debug, #default PartialEq, #eq #farcall::Xdr)] #xdr)
    }

    fn enumeration(&self, index: usize, enumerators: &[Enumerator]) -> TokenStream {
        let distinct = enumerators.iter().filter(|one| one.alias_of.is_none());
        let head = self.head(index, distinct.clone().map(|one| &one.named), []);
        let name = self.name(index);
        let variants = distinct.map(|one| {
            let ((name, docs), value) = (tokens(&one.named), Literal::i32_unsuffixed(one.value));
            let default = (one.value == 0).then(|| quote!(#[default]));
            quote!(#docs #default #name = #value,)
        });
        let aliases: Vec<TokenStream> = enumerators
            .iter()
            .filter_map(|one| {
                let target = ident(&enumerators[one.alias_of?].named.name);
                let (name, docs) = tokens(&one.named);
                Some(quote!(#docs #[allow(non_upper_case_globals)] pub const #name: Self = Self::#target;))
            })
            .collect();
        let aliases = (!aliases.is_empty()).then(|| quote!(impl #name { #(#aliases)* }));
        let reason = self.plan.reasons.contains(&index).then(|| reason(&name, enumerators));
        quote! {
            #head
            pub enum #name { #(#variants)* }
            #aliases
            #reason
        }
    }

    fn member(&self, member: &Member) -> TokenStream {
        let (docs, field) = self.field_parts(member);
        quote!(#docs pub #field)
    }

    /// Returns a field of a variant, which has no visibility of its own.
    fn field(&self, member: &Member) -> TokenStream {
        let (docs, field) = self.field_parts(member);
        quote!(#docs #field)
    }

    /// Returns the documentation and attributes of a field, and its name and type.
    fn field_parts(&self, Member { named, shape }: &Member) -> (TokenStream, TokenStream) {
        let (name, docs) = tokens(named);
        let (attribute, ty) = (self.attribute(shape), self.outermost(shape));
        (quote!(#docs #attribute), quote!(#name: #ty))
    }

    /// Returns whether farcall has another path than the one that its macros assume.
    fn is_elsewhere(&self) -> bool {
        let segments = &self.farcall.segments;
        segments.len() != 1 || segments.first().is_none_or(|only| only.ident != "farcall")
    }

    /// Returns `#[xdr(crate = …)]`, if farcall has another path.
    fn attributes(&self) -> TokenStream {
        let farcall = &self.farcall;
        match self.is_elsewhere() {
            true => quote!(#[xdr(crate = #farcall::xdr)]),
            false => TokenStream::new(),
        }
    }

    /// Returns the attributes of a field: the parts of its wire form that its type does not determine.
    fn attribute(&self, shape: &Shape) -> TokenStream {
        if let Shape::Chain(_) = self.plan.resolved(shape) {
            return quote!(#[xdr(chain)]);
        }
        match self.plan.max(shape).map(Literal::u32_unsuffixed) {
            Some(max) => quote!(#[xdr(max = #max)]),
            None => TokenStream::new(),
        }
    }

    /// Returns the Rust type of a field. Parts of the wire form that it does not determine are in the field's
    /// attributes.
    fn outermost(&self, shape: &Shape) -> TokenStream {
        let farcall = &self.farcall;
        match shape {
            Shape::Named(item) => self.name(*item),
            Shape::Chain(item) => {
                let node = self.name(*item);
                quote!(Vec<#node>)
            }
            Shape::Bytes(_) => quote!(Vec<u8>),
            Shape::String(_) => quote!(#farcall::xdr::ByteString),
            Shape::Bulk => quote!(#farcall::Bulk),
            Shape::List(element, _) => {
                let element = self.whole(element);
                quote!(Vec<#element>)
            }
            Shape::Boxed(inner) => {
                let inner = self.outermost(inner);
                quote!(Box<#inner>)
            }
            // The maximum of the content of an option can be declared, that of a linked list cannot.
            Shape::Optional(inner) if !matches!(self.plan.resolved(inner), Shape::Chain(_)) => {
                let inner = self.outermost(inner);
                quote!(Option<#inner>)
            }
            other => self.whole(other),
        }
    }

    /// Returns a type that determines its wire form without attributes.
    fn whole(&self, shape: &Shape) -> TokenStream {
        let farcall = &self.farcall;
        if let Shape::Chain(item) = self.plan.resolved(shape) {
            let node = self.name(*item);
            return quote!(#farcall::xdr::Chain<#node>);
        }
        match shape {
            Shape::Scalar(ty) => scalar(ty),
            Shape::Linked(item) => {
                let node = self.name(*item);
                quote!(#farcall::xdr::Linked<#node>)
            }
            Shape::Opaque(size) => {
                let size = Literal::u32_unsuffixed(*size);
                quote!([u8; #size])
            }
            Shape::Array(element, size) => {
                let (element, size) = (self.whole(element), Literal::u32_unsuffixed(*size));
                quote!([#element; #size])
            }
            Shape::Boxed(inner) => {
                let inner = self.whole(inner);
                quote!(Box<#inner>)
            }
            Shape::Optional(inner) => {
                let inner = self.whole(inner);
                quote!(Option<#inner>)
            }
            _ => {
                let ty = self.outermost(shape);
                match self.plan.max(shape).map(Literal::u32_unsuffixed) {
                    Some(max) => quote!(#farcall::xdr::Bounded<#ty, #max>),
                    None => ty,
                }
            }
        }
    }

    fn name(&self, item: usize) -> TokenStream {
        let Item { module, named, kind } = &self.plan.items[item];
        let name = match kind {
            Kind::Foreign(Some(elsewhere)) => {
                return path(elsewhere).map(|path| quote!(#path)).unwrap_or_default();
            }
            _ => ident(&named.name),
        };
        let module = module.map(|module| (module, ident(&self.plan.modules[module])));
        match (self.here, module) {
            (None, None) => quote!(#name),
            (Some(here), Some((module, _))) if module == here => quote!(#name),
            (None, Some((_, module))) => quote!(#module::#name),
            (Some(_), Some((_, module))) => quote!(super::#module::#name),
            (Some(_), None) => quote!(super::#name),
        }
    }

    /// Generates the trait of a version.
    fn interface(&self, version: &Trait) -> TokenStream {
        let Trait { name, docs, program, version, has_numbers, methods, .. } = version;
        let words = methods.iter().flat_map(|method| {
            let arguments = method.arguments.iter().map(|argument| argument.name.as_str());
            arguments.chain([method.named.name.as_str()])
        });
        let leave = spelled([name.as_str()], words);
        let (name, docs, farcall) = (ident(name), documentation(docs), &self.farcall);
        let (program, version) = (number(*program), Literal::u32_unsuffixed(*version));
        let numbers = has_numbers.then(|| quote!(program = #program, version = #version));
        let asynchronous = self.asynchronous.then(|| quote!(async));
        let elsewhere = self.is_elsewhere().then(|| quote!(crate = #farcall));
        let options: Vec<TokenStream> = [asynchronous, elsewhere, numbers].into_iter().flatten().collect();
        let options = (!options.is_empty()).then(|| quote!((#(#options),*)));
        let methods = methods.iter().map(|method| self.method(method));
        quote! {
            #docs
            #leave
            #[#farcall::interface #options]
            pub trait #name {
                #(#methods)*
            }
        }
    }

    fn method(&self, method: &Method) -> TokenStream {
        let Method { named, number, arguments, result, exception, deadline_ms, is_null } = method;
        let ((name, docs), farcall) = (tokens(named), &self.farcall);
        let number = Literal::u32_unsuffixed(*number);
        let arguments = arguments.iter().map(|argument| {
            let (name, ty) = (ident(&argument.name), self.argument(&argument.shape));
            let max = self.plan.max(&argument.shape).map(Literal::u32_unsuffixed);
            let max = max.map(|max| quote!(#[xdr(max = #max)]));
            quote!(, #max #name: #ty)
        });
        let exception = exception.map(|item| self.name(item));
        let result = match (result, &exception) {
            // What ends a stream early is the procedure's own exception.
            (Shape::Bulk, Some(exception)) => quote!(#farcall::Bulk<#exception>),
            (result, _) => self.whole(result),
        };
        let exception = exception.map(|name| quote!(, #name));
        let body = match is_null {
            true => quote!({ Ok(()) }),
            false => quote!(;),
        };
        let idempotent = is_null.then(|| quote!(#[idempotent]));
        let deadline = deadline_ms.map(Literal::u64_unsuffixed).map(|ms| quote!(#[deadline(ms = #ms)]));
        quote! {
            #docs
            #[procedure(#number)]
            #idempotent
            #deadline
            fn #name(&self #(#arguments)*) -> #farcall::Result<#result #exception> #body
        }
    }

    /// Returns the type of an argument, a reference unless the type is small, with its maximum.
    fn argument(&self, shape: &Shape) -> TokenStream {
        if by_value(&self.plan.items, shape) {
            return self.whole(shape);
        }
        match self.plan.resolved(shape) {
            Shape::Bytes(_) => quote!(&[u8]),
            Shape::List(element, _) => {
                let element = self.whole(element);
                quote!(&[#element])
            }
            Shape::Chain(_) => {
                let ty = self.whole(shape);
                quote!(&#ty)
            }
            _ => {
                let ty = self.outermost(shape);
                quote!(&#ty)
            }
        }
    }
}

/// Returns a path that begins in the enclosing module as a module within sees it.
fn one_deeper(path: &Path) -> Path {
    let first = path.segments.first().filter(|_| path.leading_colon.is_none());
    let relative = first.is_some_and(|first| first.ident == "self" || first.ident == "super");
    if relative { syn::parse_quote!(super::#path) } else { path.clone() }
}

/// Returns the attributes that allow names in the file's own spelling.
fn spelled<'n>(
    types: impl IntoIterator<Item = &'n str>,
    others: impl IntoIterator<Item = &'n str>,
) -> TokenStream {
    let camel = |name: &str| name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains('_');
    let snake = |name: &str| !name.contains(|c: char| c.is_ascii_uppercase()) && !name.contains("__");
    let types = types.into_iter().any(|name| !camel(name)).then(|| quote!(#[allow(non_camel_case_types)]));
    let others = others.into_iter().any(|name| !snake(name)).then(|| quote!(#[allow(non_snake_case)]));
    quote!(#types #others)
}

/// Returns the name of something, and its documentation.
fn tokens(named: &Named) -> (Ident, TokenStream) {
    (ident(&named.name), documentation(&named.docs))
}

/// Returns `#[doc = " …"]` for each line, which prints as `/// …`.
fn documentation(docs: &str) -> TokenStream {
    let lines = docs.lines().map(|line| match line {
        "" => String::new(),
        line => format!(" {line}"),
    });
    quote!(#(#[doc = #lines])*)
}

/// Implements `Error` for an enumeration that is an error code.
fn reason(name: &TokenStream, enumerators: &[Enumerator]) -> TokenStream {
    let arms = enumerators.iter().filter(|one| one.alias_of.is_none()).map(|one| {
        let (name, spelled) = (ident(&one.named.name), &one.named.spelled);
        quote!(Self::#name => #spelled,)
    });
    as_error(name, arms)
}

/// Implements `Error` for an enum. The arms of a match give its texts.
fn as_error(name: &TokenStream, arms: impl Iterator<Item = TokenStream>) -> TokenStream {
    quote! {
        impl ::core::fmt::Display for #name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(match self { #(#arms)* })
            }
        }
        impl ::core::error::Error for #name {}
    }
}

fn scalar(ty: &Type) -> TokenStream {
    match (ty, ty.scalar()) {
        (Type::Void, _) => quote!(()),
        (Type::Quadruple, _) => quote!([u8; 16]),
        (_, Some((wire, _))) => ident(&spell(&Types::new(), &wire)).into_token_stream(),
        (_, None) => unreachable!("definitions and foreign types are items"),
    }
}

/// Parses a path that a user wrote.
pub fn path(text: &str) -> Result<Path, Refused> {
    syn::parse_str(text).map_err(|_| Refused(format!("`{text}` is not a path in Rust")))
}

/// Returns the traits that each item can derive: those that all of its parts can derive. Items that refer to
/// each other in a circle do so through boxes, which rule out `Copy` only.
fn derives(plan: &Plan) -> Vec<Derives> {
    let mut known = vec![ALL; plan.items.len()];
    loop {
        let next: Vec<Derives> = plan.items.iter().map(|item| of_item(item, &known)).collect();
        if next == known {
            return known;
        }
        known = next;
    }
}

fn of_item(item: &Item, known: &[Derives]) -> Derives {
    let both = |a: Derives, b: Derives| Derives {
        copy: a.copy && b.copy,
        eq: a.eq && b.eq,
        default: a.default && b.default,
    };
    let parts = shapes(&item.kind).map(|shape| of_shape(shape, known)).fold(ALL, both);
    match &item.kind {
        Kind::Alias(_) | Kind::Newtype(_) | Kind::Struct(_) => parts,
        Kind::Enumeration(enumerators) => {
            Derives { default: enumerators.iter().any(|enumerator| enumerator.value == 0), ..ALL }
        }
        Kind::Union(_) | Kind::Exception(_) => Derives { default: false, ..parts },
        // Of a type that is declared elsewhere, only `Xdr`, `Clone`, `Debug` and `PartialEq` are known to be
        // implemented.
        Kind::Foreign(path) => Derives { copy: path.is_none(), eq: path.is_none(), default: false },
    }
}

fn of_shape(shape: &Shape, known: &[Derives]) -> Derives {
    match shape {
        Shape::Scalar(Type::F32 | Type::F64) => Derives { eq: false, ..ALL },
        Shape::Scalar(_) => ALL,
        Shape::Named(item) => known[*item],
        Shape::Linked(item) => Derives { copy: false, ..known[*item] },
        Shape::Chain(item) => Derives { copy: false, default: true, ..known[*item] },
        Shape::Boxed(inner) => Derives { copy: false, ..of_shape(inner, known) },
        Shape::Optional(inner) => Derives { default: true, ..of_shape(inner, known) },
        Shape::List(element, _) => Derives { copy: false, default: true, ..of_shape(element, known) },
        Shape::Array(element, size) => {
            let parts = of_shape(element, known);
            Derives { copy: parts.copy && *size <= 32, default: parts.default && *size <= 32, ..parts }
        }
        Shape::Opaque(size) => Derives { copy: *size <= 32, default: *size <= 32, ..ALL },
        Shape::Bytes(_) | Shape::String(_) => Derives { copy: false, ..ALL },
        // No item has one.
        Shape::Bulk => Derives { copy: false, eq: false, default: false },
    }
}

/// Returns a program's number as people write it.
fn number(program: u32) -> Literal {
    spell_program(program).parse().unwrap_or_else(|_| Literal::u32_unsuffixed(program))
}
