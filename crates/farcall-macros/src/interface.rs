//! Implements `#[interface]`: reads a trait into the model of `farcall_idl::stubs`. Refuses a trait that
//! cannot be an interface, with the error at the token that is wrong.

mod attributes;
mod signals;
#[cfg(test)]
mod tests;
mod types;

use farcall_idl::stubs::{Argument, Procedure, RESERVED_NAMES, Source, generate};
use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::{Error, FnArg, Ident, ItemTrait, Pat, ReceiverKind, Result, ReturnType, Signature, TraitItem};
use syn::{TraitItemFn, Type, TypeParamBound};

use crate::crossing::{Refusals, refuse};
use attributes::{Options, Settings};

#[cfg(feature = "x")]
pub use attributes::assigned;

/// The first of the procedure numbers that are reserved for the runtime. Number 0 is reserved too, except in
/// ONC RPC programs.
const RESERVED_NUMBERS: u32 = 0xffff_0000;

/// Returns the code that replaces `#[interface(arguments)] item`.
pub fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: Options = syn::parse2(arguments)?;
    let item: ItemTrait = syn::parse2(item).map_err(|error| {
        Error::new(error.span(), format!("{error}\nhint: #[farcall::interface] stands on a trait"))
    })?;
    read(options, item).map(|source| generate(&source))
}

fn read(options: Options, item: ItemTrait) -> Result<Source> {
    let mut refusals = Refusals::default();
    refusals.take(check_trait(&item));
    let (mut procedures, mut signals): (Vec<Procedure>, Vec<Procedure>) = (Vec::new(), Vec::new());
    for item in item.items {
        if let TraitItem::Fn(method) = &item
            && method.attrs.iter().any(|attribute| attribute.path().is_ident("signal"))
        {
            let signal = signals::read(method.clone(), &options, &signals);
            signals.extend(refusals.take(signal));
            continue;
        }
        let next = procedures.last().map_or(1, |last| last.number.saturating_add(1));
        let read =
            procedure_of(item).and_then(|method| read_procedure(method, next, options.program.is_some()));
        let Some(procedure) = refusals.take(read) else {
            continue;
        };
        refusals.take(check_number(&procedure, &procedures, options.program.is_some()));
        if procedure.has_streams() && options.program.is_some() {
            let hint = "declare the procedure in an interface without `program` and `version`";
            refusals.add(refuse(&procedure.name, "ONC RPC has no streams", hint));
        }
        procedures.push(procedure);
    }
    refusals.finish(Source {
        farcall: options.farcall,
        attributes: item.attrs,
        visibility: item.vis,
        type_name: options.type_name.unwrap_or_else(|| item.ident.unraw().to_string()),
        name: item.ident,
        asynchronous: options.asynchronous,
        program: options.program,
        procedures,
        signals,
    })
}

fn check_trait(item: &ItemTrait) -> Result<()> {
    if let Some(token) = &item.unsafety {
        return Err(refuse(token, "an interface is a safe trait", "remove `unsafe`"));
    }
    item.modifiers.require_empty()?;
    if !item.generics.params.is_empty() || item.generics.where_clause.is_some() {
        return Err(refuse(
            &item.generics,
            "an interface has no type parameters: a server must know what it decodes",
            "write the types out, or declare one interface for each",
        ));
    }
    for bound in &item.supertraits {
        check_supertrait(bound)?;
    }
    Ok(())
}

fn check_supertrait(bound: &TypeParamBound) -> Result<()> {
    let known = match bound {
        TypeParamBound::Lifetime(lifetime) => lifetime.ident == "static",
        TypeParamBound::Trait(bound) => {
            bound.path.segments.last().is_some_and(|last| last.ident == "Send" || last.ident == "Sync")
        }
        _ => false,
    };
    if known {
        return Ok(());
    }
    Err(refuse(
        bound,
        "an interface has no supertraits but `Send + Sync + 'static`, which it always has",
        "its user-stub could not implement them; declare their procedures here",
    ))
}

fn procedure_of(item: TraitItem) -> Result<TraitItemFn> {
    let tokens = item.to_token_stream();
    let what = match item {
        TraitItem::Fn(method) => return Ok(method),
        TraitItem::Const(_) => "a constant",
        TraitItem::Type(_) => "an associated type",
        _ => "a macro",
    };
    Err(refuse(
        tokens,
        &format!("an interface holds procedures; {what} cannot cross"),
        "put it outside the trait",
    ))
}

fn read_procedure(method: TraitItemFn, next: u32, onc: bool) -> Result<Procedure> {
    let mut refusals = Refusals::default();
    let TraitItemFn { attrs, modifiers, sig, default, .. } = method;
    refusals.take(modifiers.require_empty());
    refusals.take(check_name(&sig.ident));
    refusals.take(check_signature(&sig));
    let settings = refusals.take(Settings::read(attrs)).unwrap_or_default();
    let number = settings.number.unwrap_or(next);
    if let Some(body) = default.as_ref().filter(|_| !onc || number != 0) {
        refusals.add(refuse(
            body,
            "an interface says what can be called, not how it is done",
            "write the body where the trait is implemented",
        ));
    }
    let arguments =
        sig.inputs.into_iter().filter_map(|input| refusals.take(read_argument(input).transpose()?));
    let arguments = arguments.collect();
    let arguments: Vec<Argument> = arguments;
    if let Some(second) = arguments.iter().filter(|argument| argument.is_stream()).nth(1) {
        let hint = "send items of an enum, or of a tuple, in one stream";
        refusals.add(refuse(&second.name, "a procedure has one argument that is a stream", hint));
    }
    let output = refusals.take(read_output(sig.output, &sig.ident));
    let (output, (result, exception)) =
        output.unwrap_or_else(|| (syn::parse_quote!(()), (syn::parse_quote!(()), None)));
    let procedure = Procedure {
        attributes: settings.kept,
        name: sig.ident,
        number,
        pinned: settings.number.is_some(),
        arguments,
        output,
        result,
        exception,
        idempotent: settings.idempotent,
        blocking: settings.blocking,
        uncancelled: settings.uncancelled,
        oneway: settings.oneway,
        deadline_ms: settings.deadline_ms,
        body: default,
    };
    if procedure.oneway {
        check_oneway(&procedure, onc, &mut refusals);
    }
    refusals.finish(procedure)
}

/// Refuses what a procedure cannot have whose callers do not wait.
fn check_oneway(procedure: &Procedure, onc: bool, refusals: &mut Refusals) {
    let Procedure { name, output, result, exception, .. } = procedure;
    if !matches!(result, Type::Tuple(unit) if unit.elems.is_empty()) || exception.is_some() {
        let hint = "write `farcall::Result<()>`: an error says that the call could not be accepted here";
        refusals.add(refuse(output, "the caller of a one-way procedure is told nothing", hint));
    }
    if procedure.has_streams() {
        let hint = "remove `#[oneway]`: a stream needs its caller";
        refusals.add(refuse(name, "a one-way procedure has no streams", hint));
    }
    if procedure.deadline_ms.is_some() || procedure.idempotent {
        let hint = "remove `#[deadline]` and `#[idempotent]`: it is executed at most once, whenever that is";
        refusals.add(refuse(name, "nobody waits for a one-way procedure", hint));
    }
    if onc {
        let hint = "ONC RPC's batching is `Client::one_way` of farcall-onc";
        refusals.add(refuse(name, "ONC RPC carries no one-way calls in order", hint));
    }
}

fn check_name(name: &Ident) -> Result<()> {
    let text = name.unraw().to_string();
    if RESERVED_NAMES.contains(&text.as_str()) {
        let what =
            format!("`{text}` is taken: it is a method of the user-stub that this procedure would hide");
        return Err(refuse(name, &what, &format!("another name, as in `do_{text}`")));
    }
    Ok(())
}

fn check_number(procedure: &Procedure, earlier: &[Procedure], onc: bool) -> Result<()> {
    let Procedure { number, name, .. } = procedure;
    if (*number == 0 && !onc) || *number >= RESERVED_NUMBERS {
        let what = format!("procedure number {number} belongs to the runtime");
        return Err(refuse(name, &what, "numbers from 1 to 4294901759 are an interface's own"));
    }
    if let Some(other) = earlier.iter().find(|other| other.number == *number) {
        let what = format!("`{name}` and `{}` both have procedure number {number}", other.name);
        let hint =
            "a procedure that is not pinned by #[procedure(n)] takes the number after its predecessor's";
        return Err(refuse(name, &what, hint));
    }
    Ok(())
}

fn check_signature(sig: &Signature) -> Result<()> {
    if let Some(token) = &sig.asyncness {
        return Err(refuse(
            token,
            "a procedure is written without `async`: callers choose how they wait",
            "remove `async`; for a server of `async fn`, write #[farcall::interface(async)] and implement the trait \
             whose name ends in `Async`",
        ));
    }
    if let Some(token) = &sig.constness {
        return Err(refuse(token, "a procedure cannot be `const`", "remove `const`"));
    }
    if !matches!(sig.safety, syn::Safety::Default) {
        return Err(refuse(&sig.safety, "a procedure is a safe function", "remove the qualifier"));
    }
    if let Some(abi) = &sig.abi {
        return Err(refuse(abi, "a procedure has no calling convention but farcall's", "remove `extern`"));
    }
    if !sig.generics.params.is_empty() {
        return Err(refuse(
            &sig.generics,
            "a procedure has no type or lifetime parameters: a server must know what it decodes",
            "write the types out; elided lifetimes are all that an argument needs",
        ));
    }
    if let Some(clause) = &sig.generics.where_clause {
        return Err(refuse(clause, "a procedure has no bounds", "remove the `where` clause"));
    }
    check_receiver(sig)
}

fn check_receiver(sig: &Signature) -> Result<()> {
    let hint = "write `&self`: many calls run at the same time; a server guards what they share, with a Mutex or atomics";
    let Some(FnArg::Receiver(receiver)) = sig.inputs.first() else {
        return Err(refuse(&sig.ident, "a procedure is called on its server", hint));
    };
    match &receiver.kind {
        ReceiverKind::Reference(_, None, None) if receiver.attrs.is_empty() => Ok(()),
        ReceiverKind::Reference(_, None, Some(_)) => {
            Err(refuse(receiver, "a procedure cannot have its server to itself", hint))
        }
        ReceiverKind::Reference(_, Some(lifetime), _) => {
            Err(refuse(lifetime, "no lifetime crosses a call", "write `&self`"))
        }
        _ => Err(refuse(receiver, "a procedure does not consume its server", hint)),
    }
}

/// Returns an argument, or `None` for the receiver.
fn read_argument(input: FnArg) -> Result<Option<Argument>> {
    let FnArg::Typed(argument) = input else {
        return Ok(None);
    };
    let max = attributes::max_of(&argument.attrs)?;
    let name = match *argument.pat {
        Pat::Ident(name) if name.by_ref.is_none() && name.mutability.is_none() && name.subpat.is_none() => {
            name.ident
        }
        other => {
            return Err(refuse(other, "an argument is a plain name", "take it apart in the server's body"));
        }
    };
    if name.to_string().starts_with("__") {
        return Err(refuse(name, "names that begin with `__` are the stub's own", "another name"));
    }
    types::check_argument(&argument.ty)?;
    Ok(Some(Argument { max, ..Argument::new(name, *argument.ty) }))
}

/// Returns the return type as written, and the types of the result and of the exception in it.
fn read_output(output: ReturnType, procedure: &Ident) -> Result<(Type, (Type, Option<Type>))> {
    let hint = "every procedure returns `farcall::Result<T>` or `farcall::Result<T, Exception>`: the call itself may fail";
    let ReturnType::Type(_, written) = output else {
        return Err(refuse(procedure, "a procedure says that its call can fail", hint));
    };
    let Some(parts) = types::result_of(&written) else {
        return Err(refuse(written, "not a `farcall::Result`", hint));
    };
    types::check_result(&parts.0)?;
    parts.1.as_ref().map_or(Ok(()), types::check_result)?;
    Ok((*written, parts))
}
