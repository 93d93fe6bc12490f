//! A seeded network in one process, for proofs of the protocol and for users' tests.
