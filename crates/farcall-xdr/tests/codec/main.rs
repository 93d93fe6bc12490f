//! Tests the codec, the derive macro and the descriptions of types.
#![allow(missing_docs)]

mod derive;
mod hostile;
mod round_trips;
mod scatter_gather;
mod schema;
mod vectors;
mod x_types;
