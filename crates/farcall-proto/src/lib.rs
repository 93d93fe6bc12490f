//! The packet exchange protocol of farcall: no sockets, no threads, no clock, no randomness.
