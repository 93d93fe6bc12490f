//! Generates unions as enums with a variant for each label. A union that means either a result or an error
//! code also gets conversions to `Result`. Also generates the declared errors of Courier's procedures.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{Writer, as_error, tokens};
use crate::language::plan::names::ident;
use crate::language::plan::{Discriminant, Kind, Label, Raised, Shape, Union, Variant};

impl Writer<'_> {
    pub(super) fn union(&self, index: usize, union: &Union) -> TokenStream {
        let head = self.head(index, union.variants.iter().map(|variant| &variant.named), []);
        let name = self.name(index);
        let variants = union.variants.iter().map(|variant| {
            let (name, docs) = tokens(&variant.named);
            let content = variant.shape.as_ref().map(|shape| {
                let (attribute, ty) = (self.attribute(shape), self.outermost(shape));
                quote!(#attribute #ty)
            });
            match variant.label {
                Some(label) => {
                    let tag = self.value(union.discriminant, label, true);
                    let content = content.map(|content| quote!((#content)));
                    quote!(#docs #[xdr(tag = #tag)] #name #content,)
                }
                None => {
                    let discriminant = self.discriminant(union.discriminant);
                    let content = content.map(|content| quote!(, #content));
                    quote!(#docs #[xdr(default)] #name(#discriminant #content),)
                }
            }
        });
        let success = union.status.map(|success| self.success(&name, union, success));
        quote! {
            #head
            pub enum #name {
                #(#variants)*
            }
            #success
        }
    }

    /// Generates the errors of a procedure: an enum whose variants have the errors' arguments as named
    /// fields.
    pub(super) fn exception(&self, index: usize, errors: &[Raised]) -> TokenStream {
        let members = errors.iter().flat_map(|error| &error.members).map(|member| &member.named);
        let head = self.head(index, errors.iter().map(|error| &error.named), members);
        let name = self.name(index);
        let variants = errors.iter().map(|Raised { named, value, members }| {
            let ((name, docs), value) = (tokens(named), Literal::i32_unsuffixed(*value));
            let members = members.iter().map(|member| self.field(member));
            let members = (members.len() > 0).then(|| quote!({ #(#members,)* }));
            quote!(#docs #[xdr(tag = #value)] #name #members,)
        });
        let shown = errors.iter().map(|Raised { named, members, .. }| {
            let (name, spelled) = (ident(&named.name), &named.spelled);
            let pattern = (!members.is_empty()).then(|| quote!({ .. }));
            quote!(Self::#name #pattern => #spelled,)
        });
        let error = as_error(&name, shown);
        // The derive implements the trait only where farcall has its usual path.
        let farcall = &self.farcall;
        let raised = self.is_elsewhere().then(|| quote!(impl #farcall::Exception for #name {}));
        quote! {
            #head
            pub enum #name {
                #(#variants)*
            }
            #error
            #raised
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

    /// Returns the value that selects a variant: its tag, or a value of the discriminant's type.
    fn value(&self, discriminant: Discriminant, label: Label, tag: bool) -> TokenStream {
        let number = |value| quote!(#value);
        match (discriminant, label.enumerator) {
            (Discriminant::Enumeration(item), Some(enumerator)) => {
                let name = self.name(item);
                match &self.plan.items[item].kind {
                    Kind::Enumeration(enumerators) => {
                        let enumerator = ident(&enumerators[enumerator].named.name);
                        quote!(#name::#enumerator)
                    }
                    _ => number(Literal::i32_unsuffixed(label.value)),
                }
            }
            (Discriminant::U32, _) if !tag => number(Literal::u32_unsuffixed(label.value.cast_unsigned())),
            _ => number(Literal::i32_unsuffixed(label.value)),
        }
    }

    /// Generates `ok` and `into_ok`, which return the result or the error code.
    fn success(&self, name: &TokenStream, union: &Union, success: usize) -> TokenStream {
        let Variant { named, shape, .. } = &union.variants[success];
        let (variant, reason) = (ident(&named.name), self.discriminant(union.discriminant));
        let plain = |shape: &Shape| self.outermost(shape);
        let (owned, borrowed, pattern, value) = match shape.as_ref().map(plain) {
            Some(ty) => (ty.clone(), quote!(&#ty), quote!((value)), quote!(value)),
            None => (quote!(()), quote!(()), TokenStream::new(), quote!(())),
        };
        // The default variant holds the error code itself.
        let others = |held: TokenStream| -> Vec<TokenStream> {
            let others = union.variants.iter().enumerate().filter(|(at, _)| *at != success);
            let arm = |(_, variant): (usize, &Variant)| {
                let name = ident(&variant.named.name);
                let (pattern, value) = match (union.discriminant, variant.label) {
                    (_, None) => (quote!((reason, ..)), held.clone()),
                    // A label that is not in the enumeration cannot have been decoded.
                    (Discriminant::Enumeration(_), Some(Label { enumerator: None, .. })) => {
                        (quote!({ .. }), quote!(::core::unreachable!()))
                    }
                    (discriminant, Some(label)) => (quote!({ .. }), self.value(discriminant, label, false)),
                };
                quote!(Self::#name #pattern => ::core::result::Result::Err(#value),)
            };
            others.map(arm).collect()
        };
        let (others_borrowed, others) = (others(quote!(*reason)), others(quote!(reason)));
        quote! {
            impl #name {
                /// Returns the result, or the error code if there is none.
                pub fn ok(&self) -> ::core::result::Result<#borrowed, #reason> {
                    match self {
                        Self::#variant #pattern => ::core::result::Result::Ok(#value),
                        #(#others_borrowed)*
                    }
                }

                /// Converts this value to the result, or to the error code if there is none.
                pub fn into_ok(self) -> ::core::result::Result<#owned, #reason> {
                    match self {
                        Self::#variant #pattern => ::core::result::Result::Ok(#value),
                        #(#others)*
                    }
                }
            }
        }
    }
}
