//! Refuses types whose values cannot be sent to another machine, as far as their spelling shows. The compiler
//! refuses all other types that do not implement `Xdr`.

use farcall_idl::stubs::plain;
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Error, Expr, GenericArgument, Lifetime, Path, PathArguments, Result, Type};

/// The errors of one item, so that one build shows all of them.
#[derive(Default)]
pub struct Refusals(Option<Error>);

impl Refusals {
    /// Adds an error.
    pub fn add(&mut self, error: Error) {
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Returns the value of a result, or adds its error.
    pub fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Returns `value` if there are no errors, otherwise the errors.
    pub fn finish<T>(self, value: T) -> Result<T> {
        self.0.map_or(Ok(value), Err)
    }
}

/// Returns an error that says what is wrong and, on a line of its own, what to do instead.
pub fn refuse(at: impl ToTokens, what: &str, hint: &str) -> Error {
    Error::new_spanned(at, format!("{what}\nhint: {hint}"))
}

/// Refuses a type whose values cannot be sent. If `owned` is given, refuses borrowed types too, and `owned`
/// is the hint that says what to write instead.
pub fn check(ty: &Type, owned: Option<&'static str>) -> Result<()> {
    let mut crossing = Crossing { owned, refusals: Refusals::default() };
    crossing.visit_type(ty);
    crossing.refusals.finish(())
}

/// Visits the parts of a type, and collects the refusals.
struct Crossing {
    /// The hint for borrowed types, if they are refused.
    owned: Option<&'static str>,
    refusals: Refusals,
}

impl<'ast> Visit<'ast> for Crossing {
    fn visit_type(&mut self, ty: &'ast Type) {
        let data = "send a type that holds only data: a struct or an enum with #[derive(farcall::Xdr)]";
        let whole = "write the whole type in place of `_` or of the macro";
        let (what, hint) = match (ty, self.owned) {
            (Type::Reference(_), Some(owned)) => ("a reference cannot be sent here", owned),
            (Type::Slice(_), Some(owned)) => ("a slice cannot be sent here", owned),
            (Type::Macro(_) | Type::Verbatim(_), Some(_)) => ("the type must be written out", whole),
            (Type::Reference(reference), None) if reference.mutability.is_some() => (
                "`&mut` cannot be sent: the receiver gets a copy",
                "send the value, and return the changed value",
            ),
            (Type::Ptr(_), _) => {
                ("a pointer means nothing in another process", "send the value that it points to")
            }
            (Type::FnPtr(_), _) => (
                "a function cannot be sent",
                "send data by which the receiver selects one of its own functions",
            ),
            (Type::ImplTrait(_), _) => {
                ("`impl Trait` cannot be sent: the server must know what it decodes", data)
            }
            (Type::TraitObject(_), _) => {
                ("`dyn Trait` cannot be sent: the server must know what it decodes", data)
            }
            (Type::Infer(_), _) => ("the type must be written out", whole),
            (Type::Never(_), _) => {
                ("`!` has no values, so nothing can be sent", "write `()`, as in `farcall::Result<()>`")
            }
            _ => return visit::visit_type(self, ty),
        };
        self.refusals.add(refuse(ty, what, hint));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let (what, hint) = match path.get_ident() {
            Some(name) if name == "usize" || name == "isize" => (
                "`usize` and `isize` cannot be sent: their width depends on the machine",
                "write `u64` or `i64`, or a narrower type that suffices",
            ),
            Some(name) if name == "str" && self.owned.is_some() => {
                ("`str` can be sent only as an argument `&str`", "write `String`")
            }
            Some(name) if name == "Self" && self.owned.is_some() => {
                ("`Self` cannot be sent: it is the server", "export the server, and send its name")
            }
            _ => return visit::visit_path(self, path),
        };
        self.refusals.add(refuse(path, what, hint));
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        if self.owned.is_some() {
            self.refusals.add(refuse(
                lifetime,
                "a lifetime means nothing in another process",
                "write an owned type, which has no lifetime",
            ));
        }
    }

    // Does nothing: array lengths and constant parameters are not sent, so they may be of type `usize`.
    fn visit_expr(&mut self, _: &'ast Expr) {}
}

/// Returns the generic parameters of a type `name<…>`, if all of them are types. Any path may precede the
/// name.
pub fn parameters<'t>(ty: &'t Type, name: &str) -> Option<Vec<&'t Type>> {
    let Type::Path(path) = plain(ty) else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name && path.qself.is_none())?;
    let PathArguments::AngleBracketed(parameters) = &last.arguments else { return None };
    let types = parameters.args.iter().map(|parameter| match parameter {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    });
    types.collect()
}
