//! The parts that all readers of an interface language share: texts and places in them (`source`), tokens
//! (`scan`; `simple_scan` for languages without a preprocessor), what parsers do alike (`reader`), comments and
//! their text (`comments`, `docs`), messages about errors (`diagnostic`), and suggestions for misspelt names
//! (`nearest`).

pub(crate) mod comments;
pub(crate) mod diagnostic;
pub(crate) mod docs;
pub(crate) mod reader;
pub(crate) mod scan;
#[cfg(any(feature = "cr", feature = "rpc2"))]
pub(crate) mod simple_scan;
pub(crate) mod source;
