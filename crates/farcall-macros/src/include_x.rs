//! Implements `include_x!`: reads an `.x` file while the crate is built, and replaces the macro by the Rust
//! generated from it.

use std::path::PathBuf;

use farcall_idl::x::{self, Config, Options};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Ident, LitStr, Path, Result, Token};

use crate::crossing::refuse;
use crate::interface::assigned;

/// The arguments of the macro: `crate = farcall, "nfs.x", async, include = "dir", define = "NAME=1",
/// external("sockaddr"), extern_type("timeval", crate::Timeval)`.
struct Arguments {
    file: LitStr,
    options: Options,
    config: Config,
    /// The path of farcall.
    farcall: Path,
}

/// Returns the code that replaces `include_x!(arguments)`.
pub fn expand(arguments: TokenStream) -> Result<TokenStream> {
    let Arguments { file, options, config, farcall } = syn::parse2(arguments)?;
    let refuse = |why: String| Error::new(file.span(), why);
    let path = root().join(file.value());
    let specification = x::read(&path, &options).map_err(|why| refuse(why.to_string()))?;
    let items =
        x::generate_naming(&specification, &config, &farcall).map_err(|why| refuse(why.to_string()))?;
    // `include_bytes!` makes the compiler build the crate again when a file changes.
    let files =
        specification.files.iter().filter_map(|file| file.to_str().map(|file| quote!(include_bytes!(#file))));
    Ok(quote! {
        #items
        const _: &[&[u8]] = &[#(#files),*];
    })
}

/// Returns the directory of the crate that is being built. Paths are relative to it, as in a build script.
fn root() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default()
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Arguments> {
        // `crate = path` is accepted before the file too, because a macro of another crate puts it before its
        // user's arguments.
        let mut farcall = syn::parse_quote!(::farcall);
        if input.parse::<Option<Token![crate]>>()?.is_some() {
            farcall = assigned(input, Path::parse_mod_style)?;
            input.parse::<Token![,]>()?;
        }
        let file = input.parse()?;
        let mut arguments = Arguments { file, options: Options::default(), config: Config::new(), farcall };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            if !input.is_empty() {
                arguments = arguments.option(input)?;
            }
        }
        Ok(arguments)
    }
}

impl Arguments {
    fn option(mut self, input: ParseStream<'_>) -> Result<Arguments> {
        let text = |input| assigned(input, <LitStr as Parse>::parse).map(|text| text.value());
        let key = input.call(Ident::parse_any)?;
        match key.to_string().as_str() {
            "async" => self.config = self.config.asynchronous(),
            "crate" => self.farcall = assigned(input, Path::parse_mod_style)?,
            "include" => self.options.include_dirs.push(root().join(text(input)?)),
            "define" => {
                let define = text(input)?;
                let (name, value) = define.split_once('=').unwrap_or((&define, "1"));
                self.options.defines.push((name.into(), value.into()));
            }
            "extern_type" => {
                let inner;
                syn::parenthesized!(inner in input);
                let name: LitStr = inner.parse()?;
                inner.parse::<Token![,]>()?;
                let path = inner.parse::<Path>()?;
                self.config = self.config.extern_type(name.value(), quote!(#path).to_string());
                self.options.external.push(name.value());
            }
            "external" => {
                let inner;
                syn::parenthesized!(inner in input);
                let names = inner.parse_terminated(<LitStr as Parse>::parse, Token![,])?;
                self.options.external.extend(names.iter().map(LitStr::value));
            }
            _ => {
                let hint = "known are `async`, `crate = path`, `include = \"directory\"`, `define = \"NAME=value\"`, \
                            `external(\"name\", …)` and `extern_type(\"name\", path)`";
                return Err(refuse(&key, &format!("unknown option `{key}`"), hint));
            }
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use proc_macro2::TokenTree;
    use syn::Item;

    use super::*;

    /// Returns the full expansion of `include_x!(arguments)`, with its derives and attributes expanded too.
    fn expanded(arguments: TokenStream) -> TokenStream {
        let items = expand(arguments).expect("a file that can be read");
        let file: syn::File = syn::parse2(items.clone()).expect("Rust");
        let inner = file.items.into_iter().map(|item| match item {
            Item::Trait(mut item) => {
                let is_interface = |attribute: &syn::Attribute| {
                    attribute.path().segments.last().is_some_and(|last| last.ident == "interface")
                };
                let place = item.attrs.iter().position(is_interface).expect("an interface");
                let options = item.attrs.remove(place).parse_args().expect("options");
                crate::interface::expand(options, quote!(#item)).expect("an interface")
            }
            Item::Struct(item) => crate::xdr::derive(quote!(#item)).expect("a type that can be sent"),
            Item::Enum(item) => crate::xdr::derive(quote!(#item)).expect("a type that can be sent"),
            _ => TokenStream::new(),
        });
        let inner: TokenStream = inner.collect();
        quote!(#items #inner)
    }

    /// Returns whether code contains a word outside of strings and documentation.
    fn says(code: TokenStream, word: &str) -> bool {
        code.into_iter().any(|token| match token {
            TokenTree::Ident(name) => name == word,
            TokenTree::Group(group) => says(group.stream(), word),
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        })
    }

    #[test]
    fn where_the_crate_is_said_to_be_farcall_is_not_named() {
        let file = "../farcall-onc/x/nfs3.x";
        for arguments in
            [quote!(crate = other::place, #file, async), quote!(#file, async, crate = other::place)]
        {
            let code = expanded(arguments);
            assert!(says(code.clone(), "place") && !says(code, "farcall"));
        }
        assert!(says(expanded(quote!(#file)), "farcall"));
    }
}
