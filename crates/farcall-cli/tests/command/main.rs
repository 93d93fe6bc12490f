//! Tests the `farcall` command as users run it.
#![allow(missing_docs)]

mod calls;
#[cfg(all(unix, feature = "secure", feature = "x509"))]
mod certificates;
mod clerk;
mod common;
mod corpus;
#[cfg(unix)]
mod courier;
mod cr_files;
mod demo;
#[cfg(all(target_os = "linux", feature = "etcd"))]
mod documented_deployment;
#[cfg(all(target_os = "linux", feature = "secure"))]
mod documented_keys;
#[cfg(target_os = "linux")]
mod documented_tour;
mod dump;
mod files;
#[cfg(target_os = "linux")]
mod generated_c;
mod help;
#[cfg(all(target_os = "linux", any(feature = "etcd", feature = "secure")))]
mod hosts;
mod inside_calls;
#[cfg(all(unix, feature = "keys"))]
mod keys;
mod multi;
#[cfg(feature = "olympus")]
mod olympus;
#[cfg(target_os = "linux")]
mod onc;
#[cfg(target_os = "linux")]
mod other_users;
#[cfg(target_os = "linux")]
mod printing;
mod rpc2_files;
#[cfg(all(feature = "dns", feature = "etcd"))]
mod silent_registries;
mod transfers;
mod x_files;
