//! Which types may stand in an interface, as far as their spelling tells; the rest is the compiler's: they
//! must be `Xdr`.

use farcall_idl::stubs::plain;
use syn::{GenericArgument, PathArguments, Result, Type};

use crate::crossing::{check, refuse};

/// What to write instead of a borrow within an argument.
const OWNED: Option<&str> = Some("pass it by value, or by `&` alone");

/// Refuses an argument that cannot cross.
pub fn check_argument(ty: &Type) -> Result<()> {
    let Type::Reference(reference) = plain(ty) else {
        return check(ty, OWNED);
    };
    if let Some(token) = &reference.mutability {
        let hint = "an argument crosses to the server only; return what comes back";
        return Err(refuse(token, "`&mut` cannot cross", hint));
    }
    if let Some(lifetime) = &reference.lifetime {
        return Err(refuse(lifetime, "no lifetime crosses a call", "write `&` alone"));
    }
    match plain(&reference.elem) {
        Type::Slice(slice) => check(&slice.elem, OWNED),
        Type::Path(path) if path.path.is_ident("str") => Ok(()),
        referent => check(referent, OWNED),
    }
}

/// Refuses a result or an exception that cannot cross.
pub fn check_result(ty: &Type) -> Result<()> {
    check(ty, Some("a result is owned: `String`, `Vec<T>`, `Bytes`; the packet that it came in is gone"))
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
    match parameters.args.iter().collect::<Vec<_>>().as_slice() {
        [GenericArgument::Type(result)] => Some((result.clone(), None)),
        [GenericArgument::Type(result), GenericArgument::Type(exception)] => {
            Some((result.clone(), Some(exception.clone())))
        }
        _ => None,
    }
}
