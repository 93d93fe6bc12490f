//! Implements `include_cr!`: reads a `.cr` file while the crate is built, and replaces the macro by the Rust
//! generated from it.

use farcall_idl::cr::{self, Options};
use proc_macro2::TokenStream;
use syn::Result;
use syn::parse::{ParseStream, Parser};

use crate::include::Arguments;

/// Returns the code that replaces `include_cr!(arguments)`. The arguments are `"Filing4.cr"` and those of
/// [`Arguments`].
pub fn expand(arguments: TokenStream) -> Result<TokenStream> {
    let parse = |input: ParseStream<'_>| Arguments::parse(input, &mut |_, _, _| Ok(false), "");
    let arguments = parse.parse2(arguments)?;
    let options = Options { include_dirs: arguments.include_dirs.clone() };
    arguments.items(cr::read(&arguments.path(), &options))
}
