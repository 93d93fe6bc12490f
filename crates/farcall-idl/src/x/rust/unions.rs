//! Unions as enums: a variant for each label, and what is success of those that say so.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::quote;

use super::{Writer, spelled, tokens};
use crate::x::plan::names::ident;
use crate::x::plan::{Discriminant, Kind, Shape, Union, Variant};

impl Writer<'_> {
    pub(super) fn union(&self, index: usize, union: &Union) -> TokenStream {
        let named = &self.plan.items[index].named;
        let variants = union.variants.iter().map(|variant| &variant.named);
        let names =
            [named].into_iter().chain(variants).chain(union.default.iter().map(|default| &default.named));
        let leave = spelled(names.map(|named| named.name.as_str()), []);
        let ((name, docs), derives, xdr) = (tokens(named), self.derives(index), self.attributes());
        let variants = union.variants.iter().map(|variant| {
            let (name, docs) = tokens(&variant.named);
            let tag = self.value(union.discriminant, variant, true);
            let content = variant.shape.as_ref().map(|shape| {
                let (attribute, ty) = (self.attribute(shape), self.outermost(shape));
                quote!((#attribute #ty))
            });
            quote!(#docs #[xdr(tag = #tag)] #name #content,)
        });
        let default = union.default.as_ref().map(|default| {
            let (name, docs) = tokens(&default.named);
            let discriminant = self.discriminant(union.discriminant);
            let content = default.shape.as_ref().map(|shape| {
                let (attribute, ty) = (self.attribute(shape), self.outermost(shape));
                quote!(, #attribute #ty)
            });
            quote!(#docs #[xdr(default)] #name(#discriminant #content),)
        });
        let success = union.status.map(|success| self.success(&name, union, success));
        quote! {
            #docs
            #leave
            #derives
            #xdr
            pub enum #name {
                #(#variants)*
                #default
            }
            #success
        }
    }

    fn discriminant(&self, discriminant: Discriminant) -> TokenStream {
        match discriminant {
            Discriminant::Bool => quote!(bool),
            Discriminant::I32 => quote!(i32),
            Discriminant::U32 => quote!(u32),
            Discriminant::Enumeration(item) => self.name(item),
        }
    }

    /// What selects a variant: as a tag, or as a value of the discriminant's type.
    fn value(&self, discriminant: Discriminant, variant: &Variant, tag: bool) -> TokenStream {
        let number = |value| quote!(#value);
        match (discriminant, variant.enumerator) {
            (Discriminant::Enumeration(item), Some(enumerator)) => {
                let name = self.name(item);
                match &self.plan.items[item].kind {
                    Kind::Enumeration(enumerators) => {
                        let enumerator = ident(&enumerators[enumerator].named.name);
                        quote!(#name::#enumerator)
                    }
                    _ => number(Literal::i32_unsuffixed(variant.value)),
                }
            }
            (Discriminant::U32, _) if !tag => number(Literal::u32_unsuffixed(variant.value.cast_unsigned())),
            _ => number(Literal::i32_unsuffixed(variant.value)),
        }
    }

    /// `ok` and `into_ok`: the result, or the reason why there is none.
    fn success(&self, name: &Ident, union: &Union, success: usize) -> TokenStream {
        let Variant { named, shape, .. } = &union.variants[success];
        let (variant, reason) = (ident(&named.name), self.discriminant(union.discriminant));
        let plain = |shape: &Shape| self.outermost(shape);
        let (owned, lent, pattern, value) = match shape.as_ref().map(plain) {
            Some(ty) => (ty.clone(), quote!(&#ty), quote!((value)), quote!(value)),
            None => (quote!(()), quote!(()), TokenStream::new(), quote!(())),
        };
        let others =
            union.variants.iter().enumerate().filter(|(at, _)| *at != success).map(|(_, variant)| {
                let (name, value) =
                    (ident(&variant.named.name), self.value(union.discriminant, variant, false));
                let value = match (union.discriminant, variant.enumerator) {
                    // A label that its enumeration does not have never crosses.
                    (Discriminant::Enumeration(_), None) => quote!(::core::unreachable!()),
                    _ => value,
                };
                quote!(Self::#name { .. } => ::core::result::Result::Err(#value),)
            });
        let default = |reason: TokenStream| {
            let name = union.default.as_ref().map(|default| ident(&default.named.name));
            name.map(|name| quote!(Self::#name(reason, ..) => ::core::result::Result::Err(#reason),))
        };
        let (lent_default, default) = (default(quote!(*reason)), default(quote!(reason)));
        let others: Vec<TokenStream> = others.collect();
        quote! {
            impl #name {
                /// The result, or the reason why there is none.
                pub fn ok(&self) -> ::core::result::Result<#lent, #reason> {
                    match self {
                        Self::#variant #pattern => ::core::result::Result::Ok(#value),
                        #(#others)*
                        #lent_default
                    }
                }

                /// The result, taken out of this value, or the reason why there is none.
                pub fn into_ok(self) -> ::core::result::Result<#owned, #reason> {
                    match self {
                        Self::#variant #pattern => ::core::result::Result::Ok(#value),
                        #(#others)*
                        #default
                    }
                }
            }
        }
    }
}
