//! What Cooper's dialect over streams and Larus' packets have in common: the messages, what they can say of
//! an interface, and how a server answers them.
//!
//! ```text
//! message   a call and a reply             program   what the messages can say of an interface
//! offer     a program that is served       report    what a server tells its operator
//! wire      bytes to and from a peer, until a given time
//! ```

pub(crate) mod message;
pub(crate) mod offer;
pub(crate) mod program;
pub(crate) mod report;
pub(crate) mod wire;
