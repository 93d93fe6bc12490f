//! Tests of expedited calls over real UDP sockets: ours to ours, and each with a scripted peer.

#![cfg(unix)]

mod bad_packets;
mod common;
mod drains;
mod lengths;
mod lost;
mod outcomes;
mod repeated;
mod vectors;
