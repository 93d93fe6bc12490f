//! Decides which calls a client begins.

use super::Conversation;
use crate::mutant::Rule;
use crate::{Failure, Kind, Ran, Time};

impl Conversation {
    /// Returns whether calls of an export may be sent to the present server.
    #[inline(always)]
    pub(super) fn permits(&self, export: u64) -> bool {
        #[cfg(feature = "secure")]
        if let Some(permitted) = &self.permitted {
            return permitted.contains(&export);
        }
        let _ = export;
        true
    }

    /// Returns whether a call with this deadline is not to be sent any more. A call that is sent may run, so
    /// only a call that stays here can be reported as not run.
    #[inline]
    pub(super) fn is_too_late(&self, deadline: Time, now: Time) -> bool {
        deadline <= now && !self.config.mutant.breaks(Rule::SentTooLate)
    }

    /// Returns why a call with arguments of `len` bytes cannot be started.
    #[cold]
    pub(super) fn objection(&self, len: usize, late: bool) -> Failure {
        if late {
            let why = "the time was over before the call was sent";
            return Failure::new(Kind::Deadline, Ran::No).with_detail(why);
        }
        if self.slots.outstanding >= self.config.max_outstanding as usize {
            let detail = format!("{} calls are outstanding, the maximum", self.slots.outstanding);
            return Failure::new(Kind::Overloaded, Ran::No).with_detail(detail);
        }
        Failure::new(Kind::TooLarge, Ran::No).with_detail(format!("arguments of {len} bytes"))
    }
}
