//! Tests of a server by clients that exchange raw messages with it.

#![cfg(target_os = "linux")]

mod budgets;
mod calc;
mod calls;
mod drains;
mod flavours;
mod hostile;
mod panics;
mod several_addresses;
mod twice;
