//! Procedural macros of farcall: #[interface] and #[derive(Xdr)].
