//! The subcommands, one file each.

pub mod call;
pub mod cat;
pub mod check;
pub mod clerk;
pub mod completions;
pub mod debug;
pub mod describe;
pub mod dump;
pub mod r#gen;
pub mod get;
#[cfg(feature = "keys")]
pub mod keys;
#[cfg(not(all(
    feature = "keys",
    feature = "olympus",
    feature = "olympus-page",
    feature = "secure",
    feature = "x509"
)))]
pub mod lacking;
pub mod list;
pub mod ls;
pub mod multi;
pub mod names;
#[cfg(feature = "olympus")]
pub mod olympus;
pub mod ping;
pub mod put;
pub mod serve;
pub mod top;
