//! Implements `include_rpc2!`: reads a `.rpc2` file while the crate is built, and replaces the macro by the
//! Rust generated from it.

use farcall_idl::rpc2::{self, Options};
use proc_macro2::TokenStream;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, Result};

use crate::include::{Arguments, definition, texts};

/// The options of `.rpc2` files, for a message.
const KNOWN: &str = ", `define = \"NAME=value\"` and `from_server(\"procedure\", …)`";

/// Returns the code that replaces `include_rpc2!(arguments)`. The arguments are `"vice.rpc2"`, those of
/// [`Arguments`], `define = "NAME=1"` and `from_server("ViceFetch")`.
pub fn expand(arguments: TokenStream) -> Result<TokenStream> {
    let mut options = Options::default();
    let mut own = |key: &Ident, input: ParseStream<'_>, _: &mut Arguments| option(key, input, &mut options);
    let parse = |input: ParseStream<'_>| Arguments::parse(input, &mut own, KNOWN);
    let arguments = parse.parse2(arguments)?;
    options.include_dirs.clone_from(&arguments.include_dirs);
    arguments.items(rpc2::read(&arguments.path(), &options))
}

fn option(key: &Ident, input: ParseStream<'_>, options: &mut Options) -> Result<bool> {
    match key.to_string().as_str() {
        "define" => options.defines.push(definition(input)?),
        "from_server" => options.from_server.extend(texts(input)?),
        _ => return Ok(false),
    }
    Ok(true)
}
