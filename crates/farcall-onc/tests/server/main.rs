//! A server, as clients see it that know nothing but bytes.

#![cfg(target_os = "linux")]

mod budgets;
mod calc;
mod calls;
mod flavours;
mod hostile;
mod panics;
mod several_addresses;
mod twice;
