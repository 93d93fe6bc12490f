//! For tests: checks all counts.

use super::Conversation;

impl Conversation {
    /// Counts again what is under way, and what was lent.
    ///
    /// # Panics
    /// When a count is wrong.
    #[doc(hidden)]
    pub fn audit(&self) {
        let (mut in_flight, mut on_loan) = (0, 0_usize);
        let all = std::iter::successors(self.slots.first(), |activity| self.slots.after(*activity));
        for slot in all.map(|activity| self.slots.at(activity)) {
            in_flight += slot.counted.bytes() + slot.sending.as_ref().map_or(0, |sending| sending.in_flight);
            if let Some(inside) = &slot.inside {
                (in_flight, on_loan) =
                    (in_flight + inside.exchanges.in_flight(), on_loan + inside.exchanges.on_loan());
            }
        }
        assert_eq!(
            (self.path.in_flight, self.path.on_loan as usize),
            (in_flight, on_loan),
            "bytes under way, and lent"
        );
    }
}
