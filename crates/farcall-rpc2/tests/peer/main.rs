//! Calls in RPC2's packets: our client and our server with each other, and with RPC2 2.38 itself.

mod common;
mod ours;
mod packets;
mod real;

#[allow(dead_code, clippy::too_many_arguments)]
mod covering {
    farcall::include_rpc2!("../farcall/tests/rpc2/covering.rpc2");
}
