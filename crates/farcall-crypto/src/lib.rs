//! The keys of farcall's conversations: the handshake, the key schedule, and the seals of datagrams and of
//! tickets (docs/protocol.md, section 11).
//!
//! Nothing here is cryptography of our own: the handshake is Noise IK by `snow`, authenticated encryption
//! (AEAD) and key derivation (HKDF) are by `ring`, and the Diffie-Hellman function is by `curve25519-dalek`.
//! This crate has no sockets, no threads, no clock and no randomness: entropy is an argument.
//!
//! | module | job |
//! |---|---|
//! | `suite` | which AEAD, and how a datagram is laid out for it |
//! | `handshake` | the two messages by which two ends agree on a secret |
//! | `secrets` | the secrets of a conversation, and what is derived from them |
//! | `cipher` | seals and opens datagrams |
//! | `logged` | what a log of secrets has of a conversation, to read captured datagrams |
//! | `window` | which datagrams have come already |
//! | `ticket` | the keys by which a server seals secrets into tickets |
//! | `wipe` | overwrites what computations leave on the stack |
//! | `audit` | watches the seals of a simulation |

#![forbid(unsafe_code)]

#[cfg(feature = "audit")]
#[doc(hidden)]
pub mod audit;
mod cipher;
mod handshake;
mod logged;
mod secrets;
mod suite;
mod ticket;
mod window;
mod wipe;

pub use cipher::{Answering, Cipher, MAX_PER_PHASE, limit_per_phase, max_per_phase};
pub use handshake::{Initiator, MESSAGE_1, MESSAGE_2, Responder, public_key};
pub use logged::Logged;
pub use secrets::{End, PROOF, Place, Resumption, Secrets};
pub use suite::{Level, Suite, Suites, TAG};
pub use ticket::TicketKeys;
pub use window::Window;
