//! The deferred work of a worker: to wake tasks and to drop the user's values, while no lock is held.

use std::task::Waker;

use farcall_memory::Accessor;

use super::{Next, Receiver};
use crate::Bytes;
use crate::server::Core;

/// What a worker is to do before the next call.
#[derive(Default)]
pub(super) struct Deferred {
    /// A set of the flags below.
    pub(super) flags: u8,
    /// Tasks that accesses are to wake.
    pub(super) woken: Vec<Waker>,
    /// Long parts of results that were sent. They may be of a type of the user's.
    pub(super) to_drop: Vec<Bytes>,
}

/// The flag that the watchdog must be woken, because a timer is due before the watchdog wakes by itself.
pub(super) const ALARM: u8 = 1;
/// The flag that values of the user's wait to be dropped.
const DROPS: u8 = 2;
/// The flag that tasks wait to be woken.
const WOKEN: u8 = 4;
/// The flag that the thread must be woken that computes handshakes.
pub(super) const HANDSHAKES: u8 = 8;
/// The kinds of deferred work that run the user's code.
pub(super) const USER_CODE: u8 = DROPS | WOKEN;

/// The most results whose drops wait until a call has been executed.
const MAX_UNDROPPED_RESULTS: usize = 4;

impl Receiver<'_> {
    /// Notes the tasks to wake and the results to drop.
    #[cold]
    pub(super) fn note_user_code(&mut self, core: &mut Core) {
        self.deferred.woken.append(&mut core.accessor.woken);
        self.deferred.flags |= if self.deferred.woken.is_empty() { 0 } else { WOKEN };
        self.deferred.to_drop.append(&mut core.protocol.take_loose());
        self.deferred.flags |= if self.deferred.to_drop.is_empty() { 0 } else { DROPS };
    }

    /// Does the deferred work. A receiving worker runs user code as it runs a quick call: if that takes long,
    /// another worker receives.
    #[cold]
    pub(super) fn run_deferred(&mut self, next: Next) -> Next {
        let flags = std::mem::take(&mut self.deferred.flags);
        if flags & ALARM != 0 {
            self.server.watchdog.set();
        }
        if flags & HANDSHAKES != 0 {
            self.server.handshakes.set();
        }
        if flags & USER_CODE == 0 {
            return next;
        }
        let executes = matches!(next, Next::Execute);
        if !executes {
            let plan = self.server.lock().pool.plan_deferred(&self.worker);
            self.leave_to_others(plan);
        }
        Accessor { woken: std::mem::take(&mut self.deferred.woken), ..Accessor::default() }.wake();
        if executes && self.deferred.to_drop.len() < MAX_UNDROPPED_RESULTS {
            // The call is executed first, because a drop may take long.
            self.deferred.flags |= flags & DROPS;
            return next;
        }
        self.deferred.to_drop.clear();
        if executes {
            return next;
        }
        self.server.lock().pool.done(&self.worker);
        Next::Look
    }
}
