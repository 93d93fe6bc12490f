//! Uses of one call to many servers. Each module has a program (`examples/`) and a test in the simulation.
//!
//! | | |
//! |---|---|
//! | [`register`] | files that a majority of the servers keeps: linearizable, even if any minority is down |
//! | [`callback`] | a file server that notifies all clients whose copies become stale |
//! | [`lookup`] | the first answer of many name servers |
//! | [`tree`] | two levels of servers: each node calls many, and answers for all of them |

#![forbid(unsafe_code)]

pub mod callback;
pub mod lookup;
pub mod register;
pub mod tree;
