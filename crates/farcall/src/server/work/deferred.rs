//! The deferred work of a worker: waking tasks and dropping the user's values, while no lock is held.

use super::{Next, Receiver};
use crate::server::Core;
use farcall_memory::Accessor;

/// The watchdog must wake earlier than it knows.
pub(super) const ALARM: u8 = 1;
/// Values of the user's wait to be dropped.
const DROPS: u8 = 2;
/// Tasks wait to be woken.
const WOKEN: u8 = 4;
/// The kinds of deferred work that run the user's code.
pub(super) const USER_CODE: u8 = DROPS | WOKEN;

/// The most results whose drops wait until a call has been executed.
const MAX_UNDROPPED_RESULTS: usize = 4;

impl Receiver<'_> {
    /// Notes the tasks to wake and the results to drop.
    #[cold]
    pub(super) fn note_user_code(&mut self, core: &mut Core) {
        self.woken.append(&mut core.accessor.woken);
        self.deferred_work |= if self.woken.is_empty() { 0 } else { WOKEN };
        self.to_drop.append(&mut core.protocol.take_loose());
        self.deferred_work |= if self.to_drop.is_empty() { 0 } else { DROPS };
    }

    /// Does the deferred work. The receiving worker runs the user's code in it like a quick call: another
    /// worker receives if that takes long.
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
            // The call goes first, because a drop may take long.
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
