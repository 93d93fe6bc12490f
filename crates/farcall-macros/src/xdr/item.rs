//! Parses an item with `#[derive(Xdr)]`: its fields, variants and attributes. Refuses items that can have no
//! wire form.

use farcall_idl::stubs::documentation;
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Expr, Generics, Ident, Member, Path, Result, Type};

use crate::crossing::{self, Refusals};

/// The struct or enum with `#[derive(Xdr)]`.
pub struct Item {
    pub ident: Ident,
    pub generics: Generics,
    pub docs: String,
    /// The path of farcall-xdr.
    pub xdr: TokenStream,
    /// Whether that path leads through farcall, so that farcall's traits can be named too.
    pub in_farcall: bool,
    /// Whether the type implements `Drop` itself although it is a linked list.
    pub own_drop: bool,
    pub shape: Shape,
}

pub enum Shape {
    Struct { fields: Vec<Field>, extensible: bool },
    Enum(Vec<Variant>),
}

pub struct Field {
    pub member: Member,
    /// The field's name in errors and descriptions.
    pub name: String,
    pub docs: String,
    pub ty: Type,
    pub max: Option<Expr>,
    pub with: Option<Path>,
    /// Whether the field is sent as a linked list.
    pub chain: bool,
    pub default: bool,
}

pub struct Variant {
    pub ident: Ident,
    pub docs: String,
    /// The integer that selects the variant, if the source gives one.
    pub tag: Option<Expr>,
    /// Whether every integer that no other variant has selects this variant.
    pub default: bool,
    pub fields: Vec<Field>,
}

impl Item {
    pub fn parse(input: DeriveInput) -> Result<Item> {
        let attributes = Attributes::parse(&input.attrs)?;
        attributes.only(&["extensible", "own_drop", "crate"], "a struct or an enum")?;
        let mut refusals = Refusals::default();
        let shape = match &input.data {
            Data::Struct(data) => {
                let fields = parse_fields(&data.fields, &mut refusals);
                if !attributes.extensible {
                    for field in fields.iter().filter(|field| field.default) {
                        let why =
                            "`default` needs #[xdr(extensible)]: in other structs no field can be missing";
                        refusals.add(Error::new(field.ty.span(), why));
                    }
                } else if let Some(field) = between_defaults(&fields) {
                    let why =
                        "fields after an #[xdr(default)] one need it too: if that is missing, so are they";
                    refusals.add(Error::new(field.ty.span(), why));
                }
                Shape::Struct { fields, extensible: attributes.extensible }
            }
            Data::Enum(data) => {
                if attributes.extensible {
                    let why =
                        "an enum is extended by an #[xdr(default)] variant, which holds the unknown i32";
                    return Err(Error::new(input.ident.span(), why));
                }
                Shape::Enum(parse_variants(data, &input.ident, &mut refusals)?)
            }
            Data::Union(_) => {
                let why =
                    "a Rust union cannot be sent: use an enum, which is a discriminated union on the wire";
                return Err(Error::new(input.ident.span(), why));
            }
        };
        refusals.finish(Item {
            docs: documentation(&input.attrs),
            own_drop: attributes.own_drop,
            ident: input.ident,
            generics: input.generics,
            in_farcall: attributes.krate.is_none(),
            xdr: attributes.krate.map_or(quote!(::farcall::xdr), |path| quote!(#path)),
            shape,
        })
    }
}

fn parse_fields(fields: &syn::Fields, refusals: &mut Refusals) -> Vec<Field> {
    let fields = fields.iter().zip(fields.members());
    fields.filter_map(|(field, member)| refusals.take(parse_field(field, member))).collect()
}

fn parse_field(field: &syn::Field, member: Member) -> Result<Field> {
    let attributes = Attributes::parse(&field.attrs)?;
    attributes.only(&["max", "with", "chain", "default"], "a field")?;
    let refuse = |at: Span, why: &str| Err(Error::new(at, why));
    match (&attributes.with, &attributes.max, attributes.chain) {
        (Some(_), Some(max), _) => {
            return refuse(
                max.span(),
                "`max` cannot be combined with `with`: the functions of `with` check the length themselves",
            );
        }
        (Some(with), _, true) => {
            return refuse(
                with.span(),
                "`with` cannot be combined with `chain`: each says how the field is sent",
            );
        }
        (_, Some(max), true) => {
            return refuse(
                max.span(),
                "`max` cannot be combined with `chain`: a linked list has no length on the wire",
            );
        }
        (Some(_), ..) => {}
        (None, ..) => crossing::check(&field.ty, None)?,
    }
    let name = match &member {
        Member::Named(ident) => ident.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    };
    Ok(Field {
        member,
        name,
        docs: documentation(&field.attrs),
        ty: field.ty.clone(),
        max: attributes.max,
        with: attributes.with,
        chain: attributes.chain,
        default: attributes.default,
    })
}

/// Returns a field without a default that follows a field with a default.
fn between_defaults(fields: &[Field]) -> Option<&Field> {
    fields.iter().skip_while(|field| !field.default).find(|field| !field.default)
}

fn parse_variants(data: &syn::DataEnum, ident: &Ident, refusals: &mut Refusals) -> Result<Vec<Variant>> {
    let mut variants = Vec::new();
    for variant in &data.variants {
        let attributes = Attributes::parse(&variant.attrs)?;
        attributes.only(&["tag", "default"], "a variant")?;
        let discriminant = variant.discriminant.as_ref().map(|(_, expr)| expr.clone());
        variants.push(Variant {
            ident: variant.ident.clone(),
            docs: documentation(&variant.attrs),
            tag: attributes.tag.or(discriminant),
            default: attributes.default,
            fields: parse_fields(&variant.fields, refusals),
        });
    }
    if variants.is_empty() {
        return Err(Error::new(ident.span(), "an enum without variants has no value to send"));
    }
    for variant in variants.iter().filter(|variant| variant.default) {
        let why = if variant.tag.is_some() {
            "a default variant has no tag of its own: it is selected by every tag that no other variant has"
        } else if variant.fields.is_empty() {
            "a default variant needs a first field, an i32 or an enumeration: it holds the received tag"
        } else {
            continue;
        };
        refusals.add(Error::new(variant.ident.span(), why));
    }
    if let Some(second) = variants.iter().filter(|variant| variant.default).nth(1) {
        refusals.add(Error::new(second.ident.span(), "there can be only one default variant"));
    }
    for field in variants.iter().flat_map(|variant| &variant.fields).filter(|field| field.default) {
        refusals.add(Error::new(field.ty.span(), "a field of a variant cannot have #[xdr(default)]"));
    }
    Ok(variants)
}

/// The content of `#[xdr(...)]` on an item, a field or a variant.
#[derive(Default)]
struct Attributes {
    /// The names that were used, and their places.
    used: Vec<(&'static str, Span)>,
    max: Option<Expr>,
    with: Option<Path>,
    tag: Option<Expr>,
    krate: Option<Path>,
    extensible: bool,
    default: bool,
    own_drop: bool,
    chain: bool,
}

impl Attributes {
    fn parse(attributes: &[Attribute]) -> Result<Attributes> {
        let mut parsed = Attributes::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("xdr")) {
            attribute.parse_nested_meta(|meta| {
                const NAMES: [&str; 8] =
                    ["max", "with", "tag", "crate", "extensible", "default", "own_drop", "chain"];
                let Some(name) = NAMES.into_iter().find(|name| meta.path.is_ident(name)) else {
                    return Err(meta.error(format!("expected one of {}", NAMES.join(", "))));
                };
                if parsed.used.iter().any(|(used, _)| *used == name) {
                    return Err(meta.error("this attribute is given twice"));
                }
                parsed.used.push((name, meta.path.span()));
                match name {
                    "max" => parsed.max = Some(meta.value()?.parse()?),
                    "with" => parsed.with = Some(meta.value()?.parse()?),
                    "tag" => parsed.tag = Some(meta.value()?.parse()?),
                    "crate" => parsed.krate = Some(meta.value()?.call(Path::parse_mod_style)?),
                    "extensible" => parsed.extensible = true,
                    "default" => parsed.default = true,
                    "chain" => parsed.chain = true,
                    _ => parsed.own_drop = true,
                }
                Ok(())
            })?;
        }
        Ok(parsed)
    }

    /// Refuses attributes other than the `allowed` ones. `place` says for the message where the attributes
    /// are.
    fn only(&self, allowed: &[&str], place: &str) -> Result<()> {
        match self.used.iter().find(|(name, _)| !allowed.contains(name)) {
            None => Ok(()),
            Some((name, span)) => {
                let why = format!("`{name}` is not for {place}; there are {}", allowed.join(", "));
                Err(Error::new(*span, why))
            }
        }
    }
}
