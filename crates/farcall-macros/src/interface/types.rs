//! Which types may stand in an interface, as far as their spelling tells; the rest is the compiler's: they must be `Xdr`.

use farcall_idl::stubs::plain;
use syn::visit::{self, Visit};
use syn::{Error, GenericArgument, Lifetime, Path, PathArguments, Result, Type};

use super::refuse;

const OWNED: &str = "pass it by value, or by `&` alone";

/// Refuses an argument that cannot cross.
pub fn check_argument(ty: &Type) -> Result<()> {
    let Type::Reference(reference) = plain(ty) else {
        return check_owned(ty, OWNED);
    };
    if let Some(token) = &reference.mutability {
        let hint = "an argument crosses to the server only; return what comes back";
        return Err(refuse(token, "`&mut` cannot cross", hint));
    }
    if let Some(lifetime) = &reference.lifetime {
        return Err(refuse(lifetime, "no lifetime crosses a call", "write `&` alone"));
    }
    match plain(&reference.elem) {
        Type::Slice(slice) => check_owned(&slice.elem, OWNED),
        Type::Path(path) if path.path.is_ident("str") => Ok(()),
        referent => check_owned(referent, OWNED),
    }
}

/// Refuses a result or an exception that cannot cross.
pub fn check_result(ty: &Type) -> Result<()> {
    check_owned(ty, "a result is owned: `String`, `Vec<T>`, `Bytes`; the packet that it came in is gone")
}

fn check_owned(ty: &Type, hint: &'static str) -> Result<()> {
    let mut crossing = Crossing { hint, refusal: None };
    crossing.visit_type(ty);
    crossing.refusal.map_or(Ok(()), Err)
}

/// Looks for the first thing in a type that cannot cross.
struct Crossing {
    hint: &'static str,
    refusal: Option<Error>,
}

impl Crossing {
    fn refuse(&mut self, error: Error) {
        self.refusal.get_or_insert(error);
    }
}

impl<'ast> Visit<'ast> for Crossing {
    fn visit_type(&mut self, ty: &'ast Type) {
        let data = "what crosses is data: a struct or an enum with #[derive(farcall::Xdr)]";
        let (what, hint) = match ty {
            Type::Reference(_) => ("a reference cannot cross here", self.hint),
            Type::Slice(_) => ("a slice cannot cross here", self.hint),
            Type::Ptr(_) => ("a pointer means nothing in another process", "pass what it points to"),
            Type::FnPtr(_) => {
                ("a function cannot cross", "the other side has its own; pass data that chooses one")
            }
            Type::ImplTrait(_) => ("`impl Trait` cannot cross: the server must know what it decodes", data),
            Type::TraitObject(_) => ("`dyn Trait` cannot cross: the server must know what it decodes", data),
            Type::Infer(_) => ("the type must be written out", data),
            Type::Never(_) => ("`!` has no value that could cross", "farcall::Result<()>"),
            Type::Macro(_) | Type::Verbatim(_) => ("the type must be written out", data),
            _ => return visit::visit_type(self, ty),
        };
        self.refuse(refuse(ty, what, hint));
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.is_ident("usize") || path.is_ident("isize") {
            let what = "`usize` and `isize` cannot cross: their width depends on the machine";
            return self.refuse(refuse(path, what, "write `u64` or `i64`, or a narrower type that suffices"));
        }
        if path.is_ident("str") {
            return self.refuse(refuse(path, "`str` stands alone only as `&str`", "write `String`"));
        }
        if path.is_ident("Self") {
            let hint = "a server cannot be passed; export it and pass its name";
            return self.refuse(refuse(path, "`Self` cannot cross", hint));
        }
        visit::visit_path(self, path);
    }

    fn visit_lifetime(&mut self, lifetime: &'ast Lifetime) {
        let hint = "write the owned type";
        self.refuse(refuse(lifetime, "no lifetime crosses a call", hint));
    }
}

/// `T` and `E` of `…::Result<T, E>`, or of `…::Result<T>` alone.
pub fn result_of(written: &Type) -> Option<(Type, Option<Type>)> {
    let Type::Path(path) = plain(written) else {
        return None;
    };
    let last = path.path.segments.last()?;
    let PathArguments::AngleBracketed(parameters) = &last.arguments else {
        return None;
    };
    if last.ident != "Result" || path.qself.is_some() {
        return None;
    }
    let types: Option<Vec<Type>> = parameters.args.iter().map(type_of).collect();
    match types?.as_slice() {
        [result] => Some((result.clone(), None)),
        [result, exception] => Some((result.clone(), Some(exception.clone()))),
        _ => None,
    }
}

fn type_of(argument: &GenericArgument) -> Option<Type> {
    match argument {
        GenericArgument::Type(ty) => Some(ty.clone()),
        _ => None,
    }
}
