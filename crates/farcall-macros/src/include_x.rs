//! Implements `include_x!`: reads an `.x` file while the crate is built, and replaces the macro by the Rust
//! generated from it.

use farcall_idl::x::{self, Options};
use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, LitStr, Path, Result, Token};

use crate::include::{Arguments, definition, texts};

/// The options of `.x` files, for a message.
const KNOWN: &str = ", `define = \"NAME=value\"`, `external(\"name\", …)` and `extern_type(\"name\", path)`";

/// Returns the code that replaces `include_x!(arguments)`. The arguments are `"nfs.x"`, those of
/// [`Arguments`], `define = "NAME=1"`, `external("sockaddr")` and `extern_type("timeval", crate::Timeval)`.
pub fn expand(arguments: TokenStream) -> Result<TokenStream> {
    let mut options = Options::default();
    let mut own = |key: &Ident, input: ParseStream<'_>, arguments: &mut Arguments| {
        option(key, input, arguments, &mut options)
    };
    let parse = |input: ParseStream<'_>| Arguments::parse(input, &mut own, KNOWN);
    let arguments = parse.parse2(arguments)?;
    options.include_dirs.clone_from(&arguments.include_dirs);
    arguments.items(x::read(&arguments.path(), &options))
}

fn option(
    key: &Ident,
    input: ParseStream<'_>,
    arguments: &mut Arguments,
    options: &mut Options,
) -> Result<bool> {
    match key.to_string().as_str() {
        "define" => options.defines.push(definition(input)?),
        "extern_type" => {
            let inner;
            syn::parenthesized!(inner in input);
            let name: LitStr = inner.parse()?;
            inner.parse::<Token![,]>()?;
            let path = inner.parse::<Path>()?;
            let config = std::mem::take(&mut arguments.config);
            arguments.config = config.extern_type(name.value(), quote!(#path).to_string());
            options.external.push(name.value());
        }
        "external" => options.external.extend(texts(input)?),
        _ => return Ok(false),
    }
    Ok(true)
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
