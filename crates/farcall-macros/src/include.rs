//! What `include_x!`, `include_cr!` and `include_rpc2!` do alike: their arguments, and the code that replaces
//! them.

use std::path::PathBuf;

use farcall_idl::language::{self, Config, tree::Specification};
use farcall_idl::x::Diagnostics;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, LitStr, Path, Result, Token};

use crate::crossing::refuse;
use crate::interface::assigned;

/// The arguments of a macro: `crate = farcall, "file", async, include = "dir"`, and options of one language.
pub struct Arguments {
    file: LitStr,
    pub include_dirs: Vec<PathBuf>,
    pub config: Config,
    /// The path of farcall.
    farcall: Path,
}

/// Reads an option of one language. Returns whether the language has an option of that name.
pub type ReadOption<'r> = dyn FnMut(&Ident, ParseStream<'_>, &mut Arguments) -> Result<bool> + 'r;

/// Returns the directory of the crate that is being built. Paths are relative to it, as in a build script.
fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default()
}

/// Parses `= "text"`.
pub fn text(input: ParseStream<'_>) -> Result<String> {
    assigned(input, <LitStr as Parse>::parse).map(|text| text.value())
}

/// Parses `= "NAME=value"`. The value is 1 if there is none.
pub fn definition(input: ParseStream<'_>) -> Result<(String, String)> {
    let define = text(input)?;
    let (name, value) = define.split_once('=').unwrap_or((&define, "1"));
    Ok((name.into(), value.into()))
}

/// Parses `("text", …)`.
pub fn texts(input: ParseStream<'_>) -> Result<Vec<String>> {
    let inner;
    syn::parenthesized!(inner in input);
    let texts = inner.parse_terminated(<LitStr as Parse>::parse, Token![,])?;
    Ok(texts.iter().map(LitStr::value).collect())
}

impl Arguments {
    /// Parses the arguments. `own` reads the options of one language, and `known` names them for a message.
    pub fn parse(input: ParseStream<'_>, own: &mut ReadOption<'_>, known: &str) -> Result<Arguments> {
        // `crate = path` is accepted before the file too, because a macro of another crate puts it before its
        // user's arguments.
        let mut farcall = syn::parse_quote!(::farcall);
        if input.parse::<Option<Token![crate]>>()?.is_some() {
            farcall = assigned(input, Path::parse_mod_style)?;
            input.parse::<Token![,]>()?;
        }
        let (file, config) = (input.parse()?, Config::new());
        let mut arguments = Arguments { file, include_dirs: Vec::new(), config, farcall };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                arguments.option(input, own, known)?;
            }
        }
        Ok(arguments)
    }

    fn option(&mut self, input: ParseStream<'_>, own: &mut ReadOption<'_>, known: &str) -> Result<()> {
        let key = input.call(Ident::parse_any)?;
        match key.to_string().as_str() {
            "async" => self.config = std::mem::take(&mut self.config).asynchronous(),
            "crate" => self.farcall = assigned(input, Path::parse_mod_style)?,
            "include" => self.include_dirs.push(root().join(text(input)?)),
            _ if own(&key, input, self)? => {}
            _ => {
                let hint = format!("known are `async`, `crate = path`, `include = \"directory\"`{known}");
                return Err(refuse(&key, &format!("unknown option `{key}`"), &hint));
            }
        }
        Ok(())
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        root().join(self.file.value())
    }

    /// Returns the code that replaces the macro.
    pub fn items(
        &self,
        specification: std::result::Result<Specification, Diagnostics>,
    ) -> Result<TokenStream> {
        let refuse = |why: String| Error::new(self.file.span(), why);
        let specification = specification.map_err(|why| refuse(why.to_string()))?;
        let items = language::generate_naming(&specification, &self.config, &self.farcall)
            .map_err(|why| refuse(why.to_string()))?;
        // `include_bytes!` makes the compiler build the crate again when a file changes.
        let files = specification.files.iter().filter_map(|file| file.to_str());
        let files = files.map(|file| quote!(include_bytes!(#file)));
        Ok(quote! {
            #items
            const _: &[&[u8]] = &[#(#files),*];
        })
    }
}
