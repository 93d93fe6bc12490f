//! Interfaces and `.x` files: what is generated from them, and what is printed.

mod generated;
mod printed;
