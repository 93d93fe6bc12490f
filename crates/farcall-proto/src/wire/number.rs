//! The numbers of datagrams. A [`Number`] is the right to write one datagram, so that no two datagrams have
//! the same number (docs/protocol.md, 3).

/// The right to write one datagram of this number. This type cannot be copied, because in a scheme with
/// secrets the number is the nonce, and sealing two datagrams with one nonce breaks the scheme (RFC 8439,
/// section 4).
#[derive(Debug)]
pub(crate) struct Number(u64);

impl Number {
    /// Gives up the right, and returns the number.
    #[inline(always)]
    pub(super) fn value(self) -> u64 {
        self.0
    }
}

/// Numbers the datagrams of a sender.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: u64,
}

impl Numbers {
    /// Starts at the number `first`.
    pub const fn from(first: u64) -> Numbers {
        Numbers { next: first }
    }

    /// Returns the number that the next datagram will have.
    #[inline(always)]
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the right to write the next datagram.
    #[inline(always)]
    pub fn take(&mut self) -> Number {
        let number = Number(self.next);
        // The number wraps only in fuzzers, which start at the last one.
        self.next = self.next.wrapping_add(1);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has one implementation for types that cannot be cloned. For types that can it has two, between which
    /// the compiler cannot choose, so a use does not compile.
    trait CannotBeCloned<Which> {
        fn holds() {}
    }

    struct Cloned;

    impl<T> CannotBeCloned<()> for T {}
    impl<T: Clone> CannotBeCloned<Cloned> for T {}

    #[test]
    fn the_right_to_a_number_is_given_once_and_cannot_be_copied() {
        // The test is that this compiles.
        <Number as CannotBeCloned<_>>::holds();
        <Numbers as CannotBeCloned<_>>::holds();
        let mut numbers = Numbers::from(7);
        assert_eq!([numbers.take().value(), numbers.take().value(), numbers.next()], [7, 8, 9]);
    }
}
