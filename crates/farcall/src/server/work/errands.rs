//! What a worker has to do besides calls, when nothing is locked: to wake, and to drop what the user made.

use super::{Next, Worker};
use crate::server::Core;
use farcall_memory::Accessor;

/// The sentinel sleeps too long.
pub(super) const ALARM: u8 = 1;
/// There is something to be dropped.
const LOOSE: u8 = 2;
/// There are tasks to be woken.
const WOKEN: u8 = 4;
/// Errands that run the user's code.
pub(super) const USERS: u8 = LOOSE | WOKEN;

/// Results whose drops wait until a call has been executed, at most.
const MOST_LOOSE: usize = 4;

impl Worker<'_> {
    /// Notes whom to wake, and what to drop.
    #[cold]
    pub(super) fn note_users(&mut self, core: &mut Core) {
        self.woken.append(&mut core.accessor.woken);
        self.errands |= if self.woken.is_empty() { 0 } else { WOKEN };
        self.loose.append(&mut core.protocol.take_loose());
        self.errands |= if self.loose.is_empty() { 0 } else { LOOSE };
    }

    /// Does the work that comes up rarely. The receiving thread runs the user's code in it as it runs a quick
    /// call: another thread receives if that takes long.
    #[cold]
    pub(super) fn run_errands(&mut self, next: Next) -> Next {
        let errands = std::mem::take(&mut self.errands);
        if errands & ALARM != 0 {
            self.server.sentinel.set();
        }
        if errands & USERS == 0 {
            return next;
        }
        let executes = matches!(next, Next::Execute);
        if !executes {
            let plan = self.server.lock().crew.plan_errands(&self.seat);
            self.leave_to_others(plan);
        }
        Accessor { woken: std::mem::take(&mut self.woken), ..Accessor::default() }.wake();
        if executes && self.loose.len() < MOST_LOOSE {
            // A drop that takes long is not to hold up the call.
            self.errands |= errands & LOOSE;
            return next;
        }
        self.loose.clear();
        if executes {
            return next;
        }
        self.server.lock().crew.done(&self.seat);
        Next::Look
    }
}
