//! The deferred work of a worker, which it does while nothing is locked: wakes tasks, and drops what the user
//! made.

use super::{Next, Receiver};
use crate::server::Core;
use farcall_memory::Accessor;

/// The watchdog sleeps too long.
pub(super) const ALARM: u8 = 1;
/// There is something to be dropped.
const DROPS: u8 = 2;
/// There are tasks to be woken.
const WOKEN: u8 = 4;
/// Deferred work that runs the user's code.
pub(super) const USER_CODE: u8 = DROPS | WOKEN;

/// Most results whose drops wait until a call has been executed.
const MAX_UNDROPPED_RESULTS: usize = 4;

impl Receiver<'_> {
    /// Notes which tasks to wake, and which results to drop.
    #[cold]
    pub(super) fn note_user_code(&mut self, core: &mut Core) {
        self.woken.append(&mut core.accessor.woken);
        self.deferred_work |= if self.woken.is_empty() { 0 } else { WOKEN };
        self.to_drop.append(&mut core.protocol.take_loose());
        self.deferred_work |= if self.to_drop.is_empty() { 0 } else { DROPS };
    }

    /// Does the work that comes up rarely. The receiving thread runs the user's code in it as it runs a quick
    /// call: another thread receives if that takes long.
    #[cold]
    pub(super) fn run_deferred(&mut self, next: Next) -> Next {
        let deferred_work = std::mem::take(&mut self.deferred_work);
        if deferred_work & ALARM != 0 {
            self.server.watchdog.set();
        }
        if deferred_work & USER_CODE == 0 {
            return next;
        }
        let executes = matches!(next, Next::Execute);
        if !executes {
            let plan = self.server.lock().pool.plan_deferred(&self.worker);
            self.leave_to_others(plan);
        }
        Accessor { woken: std::mem::take(&mut self.woken), ..Accessor::default() }.wake();
        if executes && self.to_drop.len() < MAX_UNDROPPED_RESULTS {
            // A drop that takes long is not to hold up the call.
            self.deferred_work |= deferred_work & DROPS;
            return next;
        }
        self.to_drop.clear();
        if executes {
            return next;
        }
        self.server.lock().pool.done(&self.worker);
        Next::Look
    }
}
