//! One call to many servers.
#![allow(missing_docs)]

#[path = "../common/cluster.rs"]
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod many_members;
mod members_that_hang;
mod outcomes;
mod shapes;
