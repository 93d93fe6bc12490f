//! Checks the types in an interface, as far as their spelling shows. The compiler checks the rest: the types
//! must implement `Xdr`.

use farcall_idl::stubs::plain;
use syn::{Result, Type};

use crate::crossing::{check, parameters, refuse};

/// What to write instead of a borrowed type within an argument.
const OWNED: Option<&str> = Some("pass it by value, or by `&` alone");

/// Refuses an argument that cannot be sent.
pub fn check_argument(ty: &Type) -> Result<()> {
    let Type::Reference(reference) = plain(ty) else {
        return check(ty, OWNED);
    };
    if let Some(token) = &reference.mutability {
        let hint = "an argument is sent to the server only; return what comes back";
        return Err(refuse(token, "`&mut` cannot be sent", hint));
    }
    if let Some(lifetime) = &reference.lifetime {
        return Err(refuse(lifetime, "a lifetime means nothing in another process", "write `&` alone"));
    }
    match plain(&reference.elem) {
        Type::Slice(slice) => check(&slice.elem, OWNED),
        Type::Path(path) if path.path.is_ident("str") => Ok(()),
        referent => check(referent, OWNED),
    }
}

/// Refuses a result or an exception that cannot be sent.
pub fn check_result(ty: &Type) -> Result<()> {
    check(ty, Some("a result is owned: `String`, `Vec<T>`, `Bytes`; the packet that it came in is gone"))
}

/// Returns `T` and `E` of `…::Result<T, E>`, or `T` of `…::Result<T>`.
pub fn result_of(written: &Type) -> Option<(Type, Option<Type>)> {
    match parameters(written, "Result")?.as_slice() {
        [result] => Some(((*result).clone(), None)),
        [result, exception] => Some(((*result).clone(), Some((*exception).clone()))),
        _ => None,
    }
}
