//! Reads a `#[signal]`: what a procedure may raise in a call, and its caller's handler answers.

use farcall_idl::stubs::{Argument, Procedure};
use syn::{Attribute, Meta, Result, ReturnType, TraitItemFn};

use super::attributes::Options;
use super::{check_name, check_signature, read_argument, types};
use crate::crossing::{Refusals, refuse};

/// Reads a method that is marked as a signal. `earlier` holds the signals before it.
pub fn read(method: TraitItemFn, options: &Options, earlier: &[Procedure]) -> Result<Procedure> {
    let mut refusals = Refusals::default();
    let TraitItemFn { attrs, modifiers, sig, default, .. } = method;
    refusals.take(modifiers.require_empty());
    refusals.take(check_name(&sig.ident));
    refusals.take(check_signature(&sig));
    if options.program.is_some() {
        let hint = "declare the signal in an interface without `program` and `version`";
        refusals.add(refuse(&sig.ident, "ONC RPC carries no signals", hint));
    }
    if let Some(body) = &default {
        let hint = "a caller answers it: see `catching` of the user-stub";
        refusals.add(refuse(body, "a signal has no body: servers raise it and do not implement it", hint));
    }
    if earlier.iter().any(|other| other.name == sig.ident) {
        let what = format!("there are two signals `{}`", sig.ident);
        refusals.add(refuse(&sig.ident, &what, "another name"));
    }
    let attributes: Vec<Attribute> =
        attrs.into_iter().filter_map(|attribute| refusals.take(kept(attribute)).flatten()).collect();
    let arguments =
        sig.inputs.into_iter().filter_map(|input| refusals.take(read_argument(input).transpose()?));
    let arguments: Vec<Argument> = arguments.collect();
    let result = match sig.output {
        ReturnType::Default => syn::parse_quote!(()),
        ReturnType::Type(_, written) => *written,
    };
    if types::result_of(&result).is_some() {
        let hint = "write the type of the value alone: `-> u64`";
        refusals.add(refuse(&result, "a handler answers by a value, or unwinds the call", hint));
    } else {
        refusals.take(types::check_result(&result));
    }
    let signal = Procedure {
        attributes,
        name: sig.ident,
        number: 0,
        pinned: false,
        arguments,
        output: result.clone(),
        result,
        exception: None,
        idempotent: false,
        blocking: false,
        uncancelled: false,
        oneway: false,
        deadline_ms: None,
        body: None,
    };
    if signal.has_streams() {
        let hint = "raise the signal once for each item, or make the stream an argument of the procedure";
        refusals.add(refuse(&signal.name, "no streams pass in a signal", hint));
    }
    refusals.finish(signal)
}

/// Returns an attribute that stays on the generated functions; `None` for `#[signal]` itself.
fn kept(attribute: Attribute) -> Result<Option<Attribute>> {
    let path = attribute.path();
    if path.is_ident("signal") {
        return match attribute.meta {
            Meta::Path(_) => Ok(None),
            _ => Err(refuse(&attribute, "`#[signal]` takes no arguments", "write #[signal]")),
        };
    }
    if path.is_ident("doc") || path.is_ident("deprecated") {
        return Ok(Some(attribute));
    }
    Err(refuse(&attribute, "unknown attribute on a signal", "a signal has documentation, and #[signal]"))
}
