//! What follows bytes that are sent in an exchange of a call.

/// What follows bytes that are sent in an exchange of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// More bytes may follow.
    More,
    /// The direction ends.
    End,
    /// The direction ends, and what the other end sends next shows that it arrived: it is the question of a
    /// signal, or its answer. So no acknowledgement is asked for.
    Question,
}
