//! Generates constants. A value that owns memory becomes a `static` that is made at its first use, because a
//! `const` cannot hold it.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::{Writer, of_shape, tokens};
use crate::language::plan::names::ident;
use crate::language::plan::{Constant, Kind, Member, Shape, Union, Variant};
use crate::language::tree::{self, Value};

impl Writer<'_> {
    pub(super) fn constant(&self, constant: &Constant) -> TokenStream {
        let Constant { named, value, shape, .. } = constant;
        let leave = named.name.contains(|c: char| c.is_ascii_lowercase());
        let leave = leave.then(|| quote!(#[allow(non_upper_case_globals)]));
        let (name, docs) = tokens(named);
        let docs = quote!(#docs #leave);
        match (value, shape) {
            (Value::Typed { literal, .. }, Some(shape)) => self.typed(&name, &docs, shape, literal),
            (value, _) => untyped(&name, &docs, value),
        }
    }

    /// Generates a constant of a declared type.
    fn typed(&self, name: &Ident, docs: &TokenStream, shape: &Shape, literal: &tree::Literal) -> TokenStream {
        if let (Shape::String(_), tree::Literal::Text(text)) = (self.plan.resolved(shape), literal) {
            return quote!(#docs pub const #name: &str = #text;);
        }
        let (ty, value) = (self.whole(shape), self.literal(shape, literal, true));
        match of_shape(shape, &self.traits).copy {
            true => quote!(#docs pub const #name: #ty = #value;),
            false => quote! {
                #docs
                pub static #name: ::std::sync::LazyLock<#ty> = ::std::sync::LazyLock::new(|| #value);
            },
        }
    }

    /// Returns the expression of a value. `whole` says whether the type is that of [`Writer::whole`], which
    /// has the maximum of a string or a list in it.
    fn literal(&self, shape: &Shape, literal: &tree::Literal, whole: bool) -> TokenStream {
        if let Shape::Boxed(inner) = shape {
            let inner = self.literal(inner, literal, false);
            return quote!(Box::new(#inner));
        }
        let value = self.bare(self.plan.resolved(shape), literal);
        let (bounded, farcall) = (whole && self.plan.max(shape).is_some(), &self.farcall);
        if bounded { quote!(#farcall::xdr::Bounded(#value)) } else { value }
    }

    /// Returns the expression of a value of a type whose aliases are resolved.
    fn bare(&self, shape: &Shape, literal: &tree::Literal) -> TokenStream {
        let farcall = &self.farcall;
        match (shape, literal) {
            (Shape::Named(item), literal) => self.value_of(*item, literal),
            (Shape::Array(element, _), tree::Literal::Elements(all)) => {
                let all = all.iter().map(|each| self.literal(element, each, true));
                quote!([#(#all),*])
            }
            (Shape::List(element, _), tree::Literal::Elements(all)) => {
                let all = all.iter().map(|each| self.literal(element, each, true));
                quote!(::std::vec![#(#all),*])
            }
            (_, tree::Literal::Bool(value)) => quote!(#value),
            (_, tree::Literal::Number(value)) => {
                let value = Literal::i128_unsuffixed(*value);
                quote!(#value)
            }
            (_, tree::Literal::Text(text)) => quote!(#farcall::xdr::ByteString::from(#text)),
            _ => unreachable!("the tree has a literal of another type than the constant's"),
        }
    }

    /// Returns the expression of a value of an item that is no alias.
    fn value_of(&self, item: usize, literal: &tree::Literal) -> TokenStream {
        let name = self.name(item);
        match (&self.plan.items[item].kind, literal) {
            (Kind::Newtype(shape), literal) => {
                let inner = self.literal(shape, literal, false);
                quote!(#name(#inner))
            }
            (Kind::Struct(members), tree::Literal::Record(values)) => {
                let field = |(Member { named, shape }, value): (&Member, &tree::Literal)| {
                    let (name, value) = (ident(&named.name), self.literal(shape, value, false));
                    quote!(#name: #value)
                };
                let fields = members.iter().zip(values).map(field);
                quote!(#name { #(#fields),* })
            }
            (Kind::Enumeration(enumerators), tree::Literal::Enumerator(index)) => {
                let enumerator = ident(&enumerators[*index].named.name);
                quote!(#name::#enumerator)
            }
            (Kind::Union(Union { variants, .. }), tree::Literal::Choice(tag, content)) => {
                let selected = |variant: &&Variant| variant.label.is_some_and(|label| label.value == *tag);
                let variant = variants.iter().find(selected);
                let variant_name = variant.map(|variant| ident(&variant.named.name));
                let shape = variant.and_then(|variant| variant.shape.as_ref());
                let content = shape.zip(content.as_deref()).map(|(shape, content)| {
                    let content = self.literal(shape, content, false);
                    quote!((#content))
                });
                quote!(#name::#variant_name #content)
            }
            _ => unreachable!("the tree has a literal of another type than the constant's"),
        }
    }
}

/// Generates a constant whose type follows from its value.
fn untyped(name: &Ident, docs: &TokenStream, value: &Value) -> TokenStream {
    match value {
        Value::Text(text) => quote!(#docs pub const #name: &str = #text;),
        Value::Integer(number) => {
            let (ty, number) = match *number {
                n if u32::try_from(n).is_ok() => (quote!(u32), Literal::i128_unsuffixed(n)),
                n if i32::try_from(n).is_ok() => (quote!(i32), Literal::i128_unsuffixed(n)),
                n if u64::try_from(n).is_ok() => (quote!(u64), Literal::i128_unsuffixed(n)),
                n if i64::try_from(n).is_ok() => (quote!(i64), Literal::i128_unsuffixed(n)),
                n => (quote!(i128), Literal::i128_unsuffixed(n)),
            };
            quote!(#docs pub const #name: #ty = #number;)
        }
        Value::Typed { .. } => unreachable!("a typed value has a type"),
    }
}
