//! Tests the model of interfaces: its encoding, compatibility, values as JSON, and `.x` files.

mod compatibility;
#[cfg(feature = "cr")]
mod cr_language;
#[cfg(all(feature = "values", feature = "x"))]
mod dialects;
mod encoding;
#[cfg(any(feature = "cr", feature = "rpc2"))]
mod faults;
#[cfg(feature = "values")]
mod json_values;
#[cfg(feature = "rpc2")]
mod rpc2_language;
#[cfg(all(feature = "values", feature = "x"))]
mod rpcgen_agreement;
mod vectors;
#[cfg(feature = "x")]
mod x_errors;
#[cfg(feature = "x")]
mod x_language;
