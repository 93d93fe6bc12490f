//! Segments that the kernel serves: the XDP program beside the server in user space.

#[path = "../common/commands.rs"]
mod commands;
#[path = "../common/mod.rs"]
mod common;
mod equal_answers;
mod frames;
mod namespaces;
