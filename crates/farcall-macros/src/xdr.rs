//! Implements `#[derive(Xdr)]`: generates the code that encodes, decodes and describes a struct or an enum.

mod item;
#[cfg(test)]
mod tests;

use farcall_idl::stubs::plain;
use item::{Field, Item, Shape, Variant};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{DeriveInput, GenericParam, Generics, Lifetime, Type};

use crate::crossing::parameters;

/// Returns the implementations for one item.
pub fn derive(item: TokenStream) -> syn::Result<TokenStream> {
    let item = Item::parse(syn::parse2::<DeriveInput>(item)?)?;
    let (tags, encode, decode, schema) = match &item.shape {
        Shape::Struct { fields, extensible } => of_struct(&item, fields, *extensible),
        Shape::Enum(variants) => of_enum(&item, variants),
    };
    let encode = implement_encode(&item, encode);
    let decode = implement_decode(&item, decode);
    let schema = implement_schema(&item, schema);
    let drop = implement_drop(&item);
    let tag = implement_tag(&item);
    let exception = implement_exception(&item);
    Ok(quote! {
        const _: () = { #tags #encode #decode #schema #tag #drop #exception };
    })
}

/// Constants for the tags of an enum, and the bodies of `Encode`, `Decode` and `Schema`, which use the
/// constants.
type Bodies = (TokenStream, TokenStream, TokenStream, TokenStream);

/// Returns a span for code that is generated for `tokens`: compiler errors are shown at `tokens`, but names
/// are resolved as in all generated code, even if a declarative macro wrote the tokens.
fn at(tokens: &impl Spanned) -> Span {
    Span::call_site().located_at(tokens.span())
}

// Structs.

fn of_struct(item: &Item, fields: &[Field], extensible: bool) -> Bodies {
    let xdr = &item.xdr;
    let (encode, decode) = match list_tail(item) {
        Some((tail, heads)) => of_list(item, heads, tail),
        None => {
            let encode = fields.iter().map(|field| {
                let member = &field.member;
                encode_field(item, field, &field.name, quote!(&self.#member))
            });
            let decode = decode_fields(item, fields, "");
            let (encode, decode) = (quote!(#(#encode)* Ok(())), quote!(Ok(Self { #decode })));
            match extensible {
                true => (
                    quote!(encoder.sized(|encoder| { #encode })),
                    quote!(decoder.sized(|decoder| { #decode })),
                ),
                false => (encode, decode),
            }
        }
    };
    let size = match extensible {
        true => quote!(4),
        false => {
            let sizes = fields.iter().filter(|field| field.with.is_none()).map(|field| {
                let ty = &field.ty;
                quote_spanned!(at(ty)=> + <#ty as #xdr::Decode<'xdr>>::MIN_SIZE)
            });
            quote!(0 #(#sizes)*)
        }
    };
    let decode = quote! {
        const MIN_SIZE: usize = #size;

        #[inline]
        fn decode(decoder: &mut #xdr::Decoder<'xdr>) -> ::core::result::Result<Self, #xdr::Error> {
            #decode
        }
    };
    let described = describe_fields(item, fields);
    let schema = quote! {
        #xdr::derive::Body::Struct { fields: #described, extensible: #extensible }
    };
    (TokenStream::new(), encode, decode, schema)
}

/// Returns the last field, if it is the pointer to the next node of a linked list, and the fields before it.
fn list_tail(item: &Item) -> Option<(&Field, &[Field])> {
    let Shape::Struct { fields, extensible: false } = &item.shape else {
        return None;
    };
    let (tail, heads) = fields.split_last()?;
    let [boxed] = parameters(&tail.ty, "Option")?[..] else { return None };
    let [inner] = parameters(boxed, "Box")?[..] else { return None };
    let Type::Path(path) = plain(inner) else {
        return None;
    };
    let name = &path.path.segments.last()?.ident;
    let is_list = (name == "Self" || *name == item.ident) && tail.with.is_none();
    is_list.then_some((tail, heads))
}

/// Returns the bodies that encode and decode a linked list. Both are loops, because a list can be too long
/// for recursion.
fn of_list(item: &Item, heads: &[Field], tail: &Field) -> (TokenStream, TokenStream) {
    let place = in_field(item, &tail.name);
    let tail = &tail.member;
    let encode = heads.iter().map(|field| {
        let member = &field.member;
        encode_field(item, field, &field.name, quote!(&node.#member))
    });
    let encode = quote! {
        let mut node = self;
        loop {
            #(#encode)*
            encoder.bool(node.#tail.is_some()) #place?;
            match &node.#tail {
                ::core::option::Option::Some(next) => node = next,
                ::core::option::Option::None => return Ok(()),
            }
        }
    };
    let decode = decode_fields(item, heads, "");
    let node = quote!(Self { #decode #tail: ::core::option::Option::None });
    let decode = quote! {
        let mut first = #node;
        let mut end = &mut first.#tail;
        while decoder.bool() #place? {
            decoder.charge(::core::mem::size_of::<Self>()) #place?;
            let node = #node;
            end = &mut end.insert(::std::boxed::Box::new(node)).#tail;
        }
        Ok(first)
    };
    (encode, decode)
}

// Enums.

fn of_enum(item: &Item, variants: &[Variant]) -> Bodies {
    let xdr = &item.xdr;
    let name = item.ident.to_string();
    let tags = tags(item, variants);
    let taken: Vec<_> = (0..variants.len())
        .filter(|index| !variants[*index].default)
        .map(|index| format_ident!("TAG_{index}"))
        .collect();
    let encode = variants
        .iter()
        .enumerate()
        .map(|(index, variant)| encode_variant(item, variant, &format_ident!("TAG_{index}"), &taken));
    let mut otherwise = quote!(Err(#xdr::derive::unknown_tag(tag, #name, decoder)));
    let mut arms = Vec::new();
    for (index, variant) in variants.iter().enumerate() {
        let (ident, tag) = (&variant.ident, format_ident!("TAG_{index}"));
        let prefix = format!("{ident}.");
        if variant.default {
            let Field { member, ty, .. } = &variant.fields[0];
            let fields = decode_fields(item, &variant.fields[1..], &prefix);
            otherwise = quote_spanned! {at(ty)=> {
                let tag = <#ty as #xdr::derive::Tag>::decoded(tag, #name, decoder)?;
                Ok(Self::#ident { #member: tag, #fields })
            }};
        } else {
            let fields = decode_fields(item, &variant.fields, &prefix);
            arms.push(quote!(#tag => Ok(Self::#ident { #fields }),));
        }
    }
    let decode = quote! {
        const MIN_SIZE: usize = 4;

        #[inline]
        fn decode(decoder: &mut #xdr::Decoder<'xdr>) -> ::core::result::Result<Self, #xdr::Error> {
            match decoder.i32()? {
                #(#arms)*
                tag => #otherwise,
            }
        }
    };
    let described = variants.iter().enumerate().map(|(index, variant)| {
        let (name, docs, tag) = (variant.ident.to_string(), &variant.docs, format_ident!("TAG_{index}"));
        let (tag, fields) = match variant.default {
            true => (quote!(::core::option::Option::None), &variant.fields[1..]),
            false => (quote!(::core::option::Option::Some(#tag)), &variant.fields[..]),
        };
        let fields = describe_fields(item, fields);
        quote!(#xdr::derive::arm(#name, #docs, #tag, #fields))
    });
    let schema = quote!(#xdr::derive::Body::Union { arms: ::std::vec![#(#described),*] });
    (tags, quote!(match self { #(#encode)* } Ok(())), decode, schema)
}

/// Generates a constant for the tag of each variant: the given integer, or one more than that of the previous
/// variant.
fn tags(item: &Item, variants: &[Variant]) -> TokenStream {
    let xdr = &item.xdr;
    let mut constants = Vec::new();
    let mut next = quote!(0);
    for (index, variant) in variants.iter().enumerate().filter(|(_, variant)| !variant.default) {
        let name = format_ident!("TAG_{index}");
        let value = match &variant.tag {
            Some(tag) => quote_spanned!(at(tag)=> #xdr::derive::tag((#tag) as i128)),
            None => quote_spanned!(at(&variant.ident)=> #xdr::derive::tag(#next)),
        };
        constants.push((name.clone(), value));
        next = quote!(#name as i128 + 1);
    }
    let (names, values): (Vec<_>, Vec<_>) = constants.into_iter().unzip();
    let why = format!("two variants of {} have the same tag", item.ident);
    quote_spanned! {at(&item.ident)=>
        #(#[allow(clippy::unnecessary_cast)] const #names: i32 = #values;)*
        const _: () = ::core::assert!(#xdr::derive::distinct(&[#(#names),*]), #why);
    }
}

fn encode_variant(item: &Item, variant: &Variant, tag: &syn::Ident, taken: &[syn::Ident]) -> TokenStream {
    let xdr = &item.xdr;
    let ident = &variant.ident;
    let members = variant.fields.iter().map(|field| &field.member);
    let bindings: Vec<_> = (0..variant.fields.len()).map(|index| format_ident!("field_{index}")).collect();
    let encode = variant.fields.iter().zip(&bindings).map(|(field, binding)| {
        let name = format!("{ident}.{}", field.name);
        encode_field(item, field, &name, quote!(#binding))
    });
    let encode = match variant.default {
        false => quote!(encoder.i32(#tag)?; #(#encode)*),
        true => {
            let encode = encode.skip(1);
            let (tag, ty) = (&bindings[0], &variant.fields[0].ty);
            quote! {
                let tag = <#ty as #xdr::derive::Tag>::to_tag(#tag);
                if [#(#taken),*].contains(&tag) {
                    return Err(#xdr::derive::taken_tag(tag, encoder));
                }
                encoder.i32(tag)?;
                #(#encode)*
            }
        }
    };
    quote!(Self::#ident { #(#members: #bindings),* } => { #encode })
}

// Fields.

/// Generates `.map_err(...)`, which adds the field's name to an error.
fn in_field(item: &Item, name: &str) -> TokenStream {
    let container = item.ident.to_string();
    quote!(.map_err(|error| error.in_field(#container, #name)))
}

/// The operations on a field.
#[derive(Clone, Copy)]
enum Verb {
    Encode,
    Decode,
    Describe,
}

/// Generates the call that encodes, decodes or describes a field. The generated code calls a function in the
/// module that `with` names, a function of farcall-xdr, or the type's trait.
fn call(item: &Item, field: &Field, verb: Verb, value: Option<TokenStream>) -> TokenStream {
    let Field { ty, with, max, chain, .. } = field;
    let xdr = &item.xdr;
    let (name, of, through) = match verb {
        Verb::Encode => ("encode", quote!(#xdr::Encode), quote!(encoder)),
        Verb::Decode => ("decode", quote!(#xdr::Decode<'xdr>), quote!(decoder)),
        Verb::Describe => ("schema", quote!(#xdr::Schema), quote!(types)),
    };
    let (value, function) = (value.map(|value| quote!(#value,)), format_ident!("{name}"));
    match (with, max) {
        (Some(with), _) => quote!(#with::#function(#value #through)),
        _ if *chain => {
            let function = format_ident!("{name}_chain");
            let of = matches!(verb, Verb::Describe).then(|| quote!(::<#ty>));
            quote_spanned!(at(ty)=> #xdr::derive::#function #of(#value #through))
        }
        (None, Some(max)) => {
            let function = format_ident!("{name}_max");
            quote_spanned!(at(ty)=> #xdr::derive::#function::<#ty>(#value #max, #through))
        }
        (None, None) => quote_spanned!(at(ty)=> <#ty as #of>::#function(#value #through)),
    }
}

fn encode_field(item: &Item, field: &Field, name: &str, value: TokenStream) -> TokenStream {
    let (encode, place) = (call(item, field, Verb::Encode, Some(value)), in_field(item, name));
    quote!(#encode #place?;)
}

/// Generates `member: value,` for each field. Errors name the field, with `prefix` before its name.
fn decode_fields(item: &Item, fields: &[Field], prefix: &str) -> TokenStream {
    let fields = fields.iter().map(|field| {
        let (member, decode) = (&field.member, call(item, field, Verb::Decode, None));
        let place = in_field(item, &format!("{prefix}{}", field.name));
        match field.default {
            false => quote!(#member: #decode #place?,),
            true => quote! {
                #member: match decoder.remaining() {
                    0 => ::core::default::Default::default(),
                    _ => #decode #place?,
                },
            },
        }
    });
    quote!(#(#fields)*)
}

fn describe_fields(item: &Item, fields: &[Field]) -> TokenStream {
    let xdr = &item.xdr;
    let fields = fields.iter().map(|field| {
        let Field { name, docs, default, .. } = field;
        let described = call(item, field, Verb::Describe, None);
        quote!(#xdr::derive::field(#name, #docs, #described, #default))
    });
    quote!(::std::vec![#(#fields),*])
}

// The implementations around the bodies.

/// Returns the item's generics with a further bound on each type parameter.
fn bounded(generics: &Generics, bound: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    let parameters: Vec<_> = generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    let clause = generics.make_where_clause();
    for parameter in parameters {
        clause.predicates.push(syn::parse_quote!(#parameter: #bound));
    }
    generics
}

/// Generates `impl … of for Item { body }`, with the parameters and the bounds of `generics`.
fn implement(item: &Item, generics: &Generics, of: TokenStream, body: TokenStream) -> TokenStream {
    let (ident, (_, arguments, _)) = (&item.ident, item.generics.split_for_impl());
    let (parameters, _, clause) = generics.split_for_impl();
    quote! {
        #[automatically_derived]
        #[allow(unused_variables)]
        impl #parameters #of for #ident #arguments #clause { #body }
    }
}

fn implement_encode(item: &Item, body: TokenStream) -> TokenStream {
    let xdr = &item.xdr;
    let body = quote! {
        #[inline]
        fn encode(&self, encoder: &mut #xdr::Encoder<'_>) -> ::core::result::Result<(), #xdr::Error> {
            #body
        }
    };
    implement(item, &bounded(&item.generics, &quote!(#xdr::Encode)), quote!(#xdr::Encode), body)
}

fn implement_decode(item: &Item, body: TokenStream) -> TokenStream {
    let xdr = &item.xdr;
    let mut generics = bounded(&item.generics, &quote!(#xdr::Decode<'xdr>));
    let lifetimes: Vec<Lifetime> = generics.lifetimes().map(|parameter| parameter.lifetime.clone()).collect();
    let clause = generics.make_where_clause();
    for lifetime in lifetimes {
        // Everything that the value borrows, it borrows from the packet.
        clause.predicates.push(syn::parse_quote!('xdr: #lifetime));
    }
    generics.params.insert(0, GenericParam::Lifetime(syn::parse_quote!('xdr)));
    implement(item, &generics, quote!(#xdr::Decode<'xdr>), body)
}

fn implement_schema(item: &Item, body: TokenStream) -> TokenStream {
    let (xdr, docs, name) = (&item.xdr, &item.docs, item.ident.to_string());
    let types: Vec<_> = item.generics.type_params().map(|parameter| &parameter.ident).collect();
    let name = match types.len() {
        0 => quote!(::std::string::String::from(#name)),
        count => {
            let format = format!("{name}<{}>", vec!["{}"; count].join(", "));
            quote!(::std::format!(#format #(, #xdr::derive::short_name::<#types>())*))
        }
    };
    let body = quote! {
        fn schema(types: &mut #xdr::schema::Types) -> #xdr::schema::Type {
            let place = ::core::concat!(::core::file!(), ":", ::core::line!(), ":", ::core::column!());
            #xdr::derive::define::<Self>(types, place, #name, #docs, |types| #body)
        }
    };
    implement(item, &bounded(&item.generics, &quote!(#xdr::Schema)), quote!(#xdr::Schema), body)
}

/// Implements the trait by which an enumeration selects the variants of a union.
fn implement_tag(item: &Item) -> TokenStream {
    let variants = match &item.shape {
        Shape::Enum(variants) if variants.iter().all(|variant| variant.fields.is_empty()) => variants,
        _ => return TokenStream::new(),
    };
    let xdr = &item.xdr;
    let tags: Vec<_> = (0..variants.len()).map(|index| format_ident!("TAG_{index}")).collect();
    let names: Vec<_> = variants.iter().map(|variant| &variant.ident).collect();
    let body = quote! {
        #[inline]
        fn to_tag(&self) -> i32 {
            match self {
                #(Self::#names { .. } => #tags,)*
            }
        }

        #[inline]
        fn from_tag(tag: i32) -> ::core::option::Option<Self> {
            match tag {
                #(#tags => ::core::option::Option::Some(Self::#names {}),)*
                _ => ::core::option::Option::None,
            }
        }
    };
    implement(item, &item.generics, quote!(#xdr::derive::Tag), body)
}

/// Implements `Drop` by a loop for a linked list. A peer can make the list so long that dropping it by
/// recursion would overflow the stack.
fn implement_drop(item: &Item) -> TokenStream {
    let Some((tail, _)) = list_tail(item).filter(|_| !item.own_drop) else {
        return TokenStream::new();
    };
    let tail = &tail.member;
    let body = quote! {
        fn drop(&mut self) {
            let mut rest = self.#tail.take();
            while let ::core::option::Option::Some(mut node) = rest {
                rest = node.#tail.take();
            }
        }
    };
    implement(item, &item.generics, quote!(::core::ops::Drop), body)
}

fn implement_exception(item: &Item) -> TokenStream {
    match item.in_farcall {
        true => implement(item, &item.generics, quote!(::farcall::Exception), TokenStream::new()),
        false => TokenStream::new(),
    }
}
