//! What every front end needs that reads a language of interfaces: texts and places in them (`source`), tokens
//! (`scan`), what is said of a fault (`diagnostic`), and which name was probably meant (`nearest`).

pub(crate) mod diagnostic;
pub(crate) mod nearest;
pub(crate) mod scan;
pub(crate) mod source;
