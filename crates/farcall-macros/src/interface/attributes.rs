//! Reads the attributes of an interface and of its procedures.

use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Expr, LitInt, LitStr, Path, Result, Token};

use crate::crossing::{Refusals, refuse};

/// The arguments of `#[interface(async, name = "…", crate = …, program = …, version = …)]`.
pub struct Options {
    pub asynchronous: bool,
    pub type_name: Option<String>,
    pub farcall: Path,
    /// The numbers of the program and of the version.
    pub program: Option<(u32, u32)>,
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Options> {
        let farcall = syn::parse_quote!(::farcall);
        let mut options = Options { asynchronous: false, type_name: None, farcall, program: None };
        let (mut program, mut version): (Option<LitInt>, Option<LitInt>) = (None, None);
        while !input.is_empty() {
            let key = input.call(syn::Ident::parse_any)?;
            match key.to_string().as_str() {
                "async" => options.asynchronous = true,
                "crate" => options.farcall = assigned(input, Path::parse_mod_style)?,
                "name" => options.type_name = Some(type_name(&assigned(input, <LitStr as Parse>::parse)?)?),
                "program" => program = Some(assigned(input, <LitInt as Parse>::parse)?),
                "version" => version = Some(assigned(input, <LitInt as Parse>::parse)?),
                _ => {
                    let hint =
                        "known are `async`, `name = \"…\"`, `crate = path`, `program = n` and `version = n`";
                    return Err(refuse(&key, &format!("unknown option `{key}`"), hint));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        options.program = match (program, version) {
            (None, None) => None,
            (Some(program), Some(version)) => Some((program.base10_parse()?, version.base10_parse()?)),
            (Some(alone), None) | (None, Some(alone)) => {
                let hint = "ONC RPC calls by both: `program = n, version = n`";
                return Err(refuse(&alone, "a program and a version go together", hint));
            }
        };
        Ok(options)
    }
}

/// Parses `= value`, with `parse` for the value.
pub fn assigned<T>(input: ParseStream<'_>, parse: fn(ParseStream<'_>) -> Result<T>) -> Result<T> {
    input.parse::<Token![=]>()?;
    input.call(parse)
}

/// Returns the text, which must be one word, because it becomes the part before the `/` of an interface name.
fn type_name(text: &LitStr) -> Result<String> {
    let name = text.value();
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(word) {
        return Err(refuse(text, "not a name of an interface", "letters, digits, `_`, `-` and `.`"));
    }
    Ok(name)
}

/// The settings that a procedure's attributes give.
#[derive(Default)]
pub struct Settings {
    pub number: Option<u32>,
    pub idempotent: bool,
    pub blocking: bool,
    pub uncancelled: bool,
    pub oneway: bool,
    pub deadline_ms: Option<u64>,
    /// The attributes that stay on the trait's method.
    pub kept: Vec<Attribute>,
}

impl Settings {
    pub fn read(attributes: Vec<Attribute>) -> Result<Settings> {
        let mut settings = Settings::default();
        let mut refusals = Refusals::default();
        for attribute in attributes {
            refusals.take(settings.read_one(attribute));
        }
        refusals.finish(settings)
    }

    fn read_one(&mut self, attribute: Attribute) -> Result<()> {
        let name = attribute.path().get_ident().map(ToString::to_string).unwrap_or_default();
        match name.as_str() {
            "procedure" => self.number = Some(attribute.parse_args::<LitInt>()?.base10_parse()?),
            "idempotent" => self.idempotent = is_given(&attribute)?,
            "blocking" => self.blocking = is_given(&attribute)?,
            "uncancelled" => self.uncancelled = is_given(&attribute)?,
            "oneway" => self.oneway = is_given(&attribute)?,
            "deadline" => self.deadline_ms = Some(deadline(&attribute)?),
            "doc" | "deprecated" | "must_use" | "allow" | "expect" | "warn" | "deny" | "forbid" => {
                self.kept.push(attribute);
            }
            "cfg" | "cfg_attr" => {
                let what = "a procedure cannot be conditional: both sides number them the same";
                return Err(refuse(attribute, what, "put the condition in the server's body"));
            }
            _ => {
                let hint = "known are #[procedure(n)], #[idempotent], #[blocking], #[uncancelled], #[oneway], #[deadline(ms = n)] and #[signal]";
                return Err(refuse(attribute, "unknown attribute on a procedure", hint));
            }
        }
        Ok(())
    }
}

/// Returns true for an attribute without arguments, and an error for an attribute with arguments.
fn is_given(attribute: &Attribute) -> Result<bool> {
    attribute.meta.require_path_only().map(|_| true)
}

/// Returns the milliseconds of `#[deadline(ms = 500)]`.
fn deadline(attribute: &Attribute) -> Result<u64> {
    let mut found = None;
    attribute.parse_nested_meta(|meta| {
        if !meta.path.is_ident("ms") {
            return Err(meta.error("a deadline is given as `ms = n`, in milliseconds"));
        }
        found = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
        Ok(())
    })?;
    match found {
        Some(0) => {
            Err(refuse(attribute, "a deadline of 0 ms has passed before the call begins", "at least 1"))
        }
        Some(ms) => Ok(ms),
        None => Err(Error::new_spanned(attribute, "a deadline is given as `ms = n`, in milliseconds")),
    }
}

/// Returns the maximum of `#[xdr(max = n)]`, the only attribute that an argument can have.
pub fn max_of(attributes: &[Attribute]) -> Result<Option<Expr>> {
    let mut max = None;
    for attribute in attributes {
        if !attribute.path().is_ident("xdr") {
            return Err(refuse(
                attribute,
                "an argument has no attributes but #[xdr(max = n)]",
                "put it on its type",
            ));
        }
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("max") {
                return Err(meta.error("an argument has a `max` only; other attributes go with fields"));
            }
            max = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    Ok(max)
}
