//! Limits how much of the budget for sending results one conversation takes. Calls whose results will be long
//! wait until their client has fetched other results (docs/protocol.md, "At the server").

use super::hosts::Kept;
use super::work::{PROMISED, Phase};
use super::{CallKey, Server};

/// A conversation's share of the budget is one in this many, but at least one result.
const PART: usize = 16;

impl Server {
    /// Returns whether a call that the user has, and whose result will have about `len` bytes, may be
    /// executed. If so, the bytes count as being sent until the call is finished or its caller probes. If
    /// not, the conversation has used up its share, and the call must wait until [`Server::next_with_room`]
    /// returns its conversation.
    pub fn may_execute(&mut self, key: CallKey, len: usize) -> bool {
        let share = self.config.sending_budget / PART;
        let Some(place) = self.table.find(key.conversation) else { return true };
        let Some(more) = &mut self.table.at_mut(place).more else { return true };
        let taken = more.kept(Kept::Sending) + more.promised;
        let work =
            more.activities.work_mut(key.activity).filter(|work| work.position.sequence == key.sequence);
        let Some(work) = work.filter(|work| work.phase == Phase::Running && work.marks & PROMISED == 0)
        else {
            return true;
        };
        if taken > 0 && taken + len > share {
            more.wanted = true;
            return false;
        }
        work.marks |= PROMISED;
        work.promised = len;
        more.promised += len;
        true
    }

    /// Returns a conversation that had to let a call wait, and that has room in its share again.
    #[inline]
    pub fn next_with_room(&mut self) -> Option<u64> {
        self.sending.roomy.pop()
    }

    /// Ends the reservation for a call's result. Either the call is over, so that the result itself is
    /// counted from now on, or the call takes longer than expected.
    #[cold]
    pub(super) fn end_promise(&mut self, place: usize, activity: u32) {
        if let Some(more) = &mut self.table.at_mut(place).more
            && let Some(work) = more.activities.work_mut(activity).filter(|work| work.marks & PROMISED != 0)
        {
            work.marks &= !PROMISED;
            more.promised -= std::mem::take(&mut work.promised);
            self.note_room(place);
        }
    }

    /// Notes that the conversation has fewer bytes to be sent than before, so that waiting calls can try
    /// again.
    pub(super) fn note_room(&mut self, place: usize) {
        let entry = self.table.at_mut(place);
        if let Some(more) = &mut entry.more
            && std::mem::take(&mut more.wanted)
        {
            self.sending.roomy.push(entry.id);
        }
    }
}
