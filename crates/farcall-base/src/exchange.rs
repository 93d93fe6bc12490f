//! What an end says of the bytes that it sends in an exchange of a call. An exchange is a signal or a stream;
//! each end sends bytes in one direction of it.

/// Says what follows bytes that are sent in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// More bytes may follow.
    More,
    /// The sender's direction ends.
    End,
    /// The sender's direction ends, and needs no acknowledgement, because the bytes are a signal's question
    /// or its answer: what the other end sends next shows that they have arrived.
    Question,
}
