//! Courier's messages, and the packets that carry them over a stream of bytes. Without I/O.
//!
//! ```text
//! message  calls, returns, aborts and rejections, and the exchange of versions
//! reply    the reply to a call, also from peers that number their replies wrongly
//! packet   packets of the Sequenced Packet Protocol (SPP) over a stream of bytes
//! exchange packets of expedited calls
//! ```
//!
//! A message begins with its kind, 0 to 3. A call has a transaction identifier, which its reply repeats. Both
//! ends of a connection first send the lowest and the highest version of Courier that they speak, and use the
//! highest version that both have.

pub mod exchange;
pub mod message;
pub mod packet;
pub mod reply;
