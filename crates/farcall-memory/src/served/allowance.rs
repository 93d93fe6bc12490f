//! The time that is left to an access. An access may take several calls, which have one time together.

use std::borrow::Cow;
use std::time::Duration;

use farcall_core::Time;
use farcall_core::stub::Binding;

/// When an access ends. Without an end, the clock is never read.
#[derive(Clone, Copy)]
pub(super) struct Allowance(Option<Time>);

impl Allowance {
    /// Returns the time of an access that begins now.
    #[inline(always)]
    pub(super) fn new(binding: &Binding, within: Option<Duration>) -> Allowance {
        Allowance(within.map(|within| binding.channel().env().now() + within))
    }

    /// Returns how much time is left; `None` if there is no end. No call is sent in no time.
    #[inline(always)]
    pub(super) fn left(self, binding: &Binding) -> Option<Duration> {
        self.0.map(|until| until.since(binding.channel().env().now()))
    }

    /// Returns a binding whose calls end with the access.
    pub(super) fn binding(self, binding: &Binding) -> Cow<'_, Binding> {
        match self.left(binding) {
            Some(left) => Cow::Owned(binding.within(left)),
            None => Cow::Borrowed(binding),
        }
    }
}
