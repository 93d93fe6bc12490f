//! Tests of Cooper's dialect and of Larus' packets over real sockets: ours to ours, and each with a scripted
//! peer.

mod bad_calls;
mod bad_replies;
mod commands;
mod common;
mod drains;
mod outcomes;
mod packets;
mod refusals;
mod vectors;
