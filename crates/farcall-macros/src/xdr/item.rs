//! What stands in the source: the item, its fields and variants, their attributes, and what is refused.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Data, DeriveInput, Error, Expr, Generics, Ident, Member, Path, Result, Type};

/// The struct or enum that is derived for.
pub struct Item {
    pub ident: Ident,
    pub generics: Generics,
    pub docs: String,
    /// Where farcall-xdr is, and whether that is within farcall.
    pub xdr: TokenStream,
    pub in_farcall: bool,
    /// Whether the type implements `Drop` itself, though it is a list.
    pub own_drop: bool,
    pub shape: Shape,
}

pub enum Shape {
    Struct { fields: Vec<Field>, extensible: bool },
    Enum(Vec<Variant>),
}

pub struct Field {
    pub member: Member,
    /// Its name in errors and descriptions.
    pub name: String,
    pub docs: String,
    pub ty: Type,
    pub max: Option<Expr>,
    pub with: Option<Path>,
    /// Whether it crosses as a linked list.
    pub chain: bool,
    pub default: bool,
}

pub struct Variant {
    pub ident: Ident,
    pub docs: String,
    /// The integer that selects it, where one is given.
    pub tag: Option<Expr>,
    /// Whether all integers that no other variant has select it.
    pub default: bool,
    pub fields: Vec<Field>,
}

impl Item {
    pub fn parse(input: DeriveInput) -> Result<Item> {
        let attributes = Attributes::parse(&input.attrs)?;
        attributes.only(&["extensible", "own_drop", "crate"], "a struct or an enum")?;
        let mut errors = Vec::new();
        let shape = match &input.data {
            Data::Struct(data) => {
                let fields = parse_fields(&data.fields, &mut errors);
                if !attributes.extensible {
                    errors.extend(fields.iter().filter(|field| field.default).map(|field| {
                        let why = "only an #[xdr(extensible)] struct can end before a field";
                        Error::new(field.ty.span(), why)
                    }));
                } else if let Some(field) = between_defaults(&fields) {
                    let why =
                        "a field after an #[xdr(default)] one needs #[xdr(default)] too: it comes later";
                    errors.push(Error::new(field.ty.span(), why));
                }
                Shape::Struct { fields, extensible: attributes.extensible }
            }
            Data::Enum(data) => {
                if attributes.extensible {
                    let why =
                        "an enum is extended by an #[xdr(default)] variant, which holds the unknown i32";
                    return Err(Error::new(input.ident.span(), why));
                }
                Shape::Enum(parse_variants(data, &input.ident, &mut errors)?)
            }
            Data::Union(_) => {
                let why =
                    "a Rust union cannot cross: use an enum, which is a discriminated union on the wire";
                return Err(Error::new(input.ident.span(), why));
            }
        };
        all(errors)?;
        let in_farcall = attributes.krate.is_none();
        let xdr = attributes.krate.map_or(quote!(::farcall::xdr), |path| quote!(#path));
        Ok(Item {
            docs: docs(&input.attrs),
            own_drop: attributes.own_drop,
            ident: input.ident,
            generics: input.generics,
            xdr,
            in_farcall,
            shape,
        })
    }
}

fn parse_fields(fields: &syn::Fields, errors: &mut Vec<Error>) -> Vec<Field> {
    let members = fields.members();
    let mut parsed = Vec::new();
    for (field, member) in fields.iter().zip(members) {
        match parse_field(field, member) {
            Ok(field) => parsed.push(field),
            Err(error) => errors.push(error),
        }
    }
    parsed
}

fn parse_field(field: &syn::Field, member: Member) -> Result<Field> {
    let attributes = Attributes::parse(&field.attrs)?;
    attributes.only(&["max", "with", "chain", "default"], "a field")?;
    if attributes.with.is_none() {
        refuse(&field.ty)?;
    } else if let Some(max) = attributes.max {
        return Err(Error::new(max.span(), "the functions of `with` check the length themselves"));
    }
    if let (true, Some(with)) = (attributes.chain, &attributes.with) {
        return Err(Error::new(with.span(), "`chain` says already how the field crosses"));
    }
    if let (true, Some(max)) = (attributes.chain, &attributes.max) {
        return Err(Error::new(max.span(), "a chain has no length that could be declared"));
    }
    let name = match &member {
        Member::Named(ident) => ident.to_string().trim_start_matches("r#").to_owned(),
        Member::Unnamed(index) => index.index.to_string(),
    };
    Ok(Field {
        member,
        name,
        docs: docs(&field.attrs),
        ty: field.ty.clone(),
        max: attributes.max,
        with: attributes.with,
        chain: attributes.chain,
        default: attributes.default,
    })
}

/// A field that comes after one with a default, and has none.
fn between_defaults(fields: &[Field]) -> Option<&Field> {
    fields.iter().skip_while(|field| !field.default).find(|field| !field.default)
}

fn parse_variants(data: &syn::DataEnum, ident: &Ident, errors: &mut Vec<Error>) -> Result<Vec<Variant>> {
    let mut variants = Vec::new();
    for variant in &data.variants {
        let attributes = Attributes::parse(&variant.attrs)?;
        attributes.only(&["tag", "default"], "a variant")?;
        let discriminant = variant.discriminant.as_ref().map(|(_, expr)| expr.clone());
        variants.push(Variant {
            ident: variant.ident.clone(),
            docs: docs(&variant.attrs),
            tag: attributes.tag.or(discriminant),
            default: attributes.default,
            fields: parse_fields(&variant.fields, errors),
        });
    }
    if variants.is_empty() {
        return Err(Error::new(ident.span(), "an enum without variants has no value to cross"));
    }
    for variant in variants.iter().filter(|variant| variant.default) {
        if variant.fields.is_empty() || variant.tag.is_some() {
            let why =
                "a default variant has no tag; its first field is what selected it, an i32 or an enumeration";
            errors.push(Error::new(variant.ident.span(), why));
        }
    }
    if let Some(second) = variants.iter().filter(|variant| variant.default).nth(1) {
        errors.push(Error::new(second.ident.span(), "there can be only one default variant"));
    }
    for field in variants.iter().flat_map(|variant| &variant.fields).filter(|field| field.default) {
        errors.push(Error::new(field.ty.span(), "fields of variants have no #[xdr(default)]"));
    }
    Ok(variants)
}

/// What `#[xdr(...)]` says, anywhere.
#[derive(Default)]
struct Attributes {
    /// The names that were used, and where.
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
                    return Err(meta.error("given twice"));
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

    /// Refuses attributes that mean nothing here.
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

fn docs(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let syn::Meta::NameValue(meta) = &attribute.meta
            && let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &meta.value
        {
            let text = text.value();
            lines.push(text.strip_prefix(' ').unwrap_or(&text).to_owned());
        }
    }
    lines.join("\n").trim().to_owned()
}

/// `ty` without the invisible parentheses that a declarative macro puts around it.
pub fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => bare(&group.elem),
        _ => ty,
    }
}

/// Whether `ty` is one of `names`, without path and parameters.
fn is_path(ty: &Type, names: &[&str]) -> bool {
    matches!(bare(ty), Type::Path(path) if names.iter().any(|name| path.path.is_ident(name)))
}

/// Refuses what cannot cross in any case, at its place and with a hint.
fn refuse(ty: &Type) -> Result<()> {
    let mut refusal = Refusal(Vec::new());
    refusal.visit_type(ty);
    all(refusal.0)
}

struct Refusal(Vec<Error>);

impl<'ast> Visit<'ast> for Refusal {
    fn visit_type(&mut self, ty: &'ast Type) {
        let why = match ty {
            Type::Ptr(_) => "a pointer means nothing on another machine",
            Type::FnPtr(_) => "a function cannot cross: it is code of this process",
            Type::TraitObject(_) | Type::ImplTrait(_) => {
                "a trait object cannot cross: use an enum of the types that it may be"
            }
            Type::Reference(reference) if reference.mutability.is_some() => {
                "`&mut` cannot cross: the other side has a copy. Send the value, and return it"
            }
            Type::Path(_) if is_path(ty, &["usize"]) => "`usize` differs between machines: use u32 or u64",
            Type::Path(_) if is_path(ty, &["isize"]) => "`isize` differs between machines: use i32 or i64",
            _ => return visit::visit_type(self, ty),
        };
        self.0.push(Error::new(ty.span(), why));
    }

    // The length of an array, and constants as parameters, are no types that cross.
    fn visit_expr(&mut self, _: &'ast Expr) {}
}

/// All errors as one.
fn all(errors: Vec<Error>) -> Result<()> {
    let combine = |mut first: Error, next| {
        first.combine(next);
        first
    };
    errors.into_iter().reduce(combine).map_or(Ok(()), Err)
}
