//! Shared parts of all front ends that read an interface language: texts and places in them (`source`),
//! tokens (`scan`), messages about faults (`diagnostic`), and suggestions for misspelt names (`nearest`).

pub(crate) mod diagnostic;
pub(crate) mod nearest;
pub(crate) mod scan;
pub(crate) mod source;
