//! The Interface model of farcall: stubs, fingerprints, compatibility, values.
