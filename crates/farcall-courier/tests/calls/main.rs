//! Tests of calls over real TCP and Unix sockets: ours to ours, and each with a scripted peer.

mod bad_calls;
mod bad_replies;
mod bulk;
mod common;
mod connections;
mod deadlines;
mod drains;
mod groups;
mod limits;
mod outcomes;
mod started;
mod versions;
