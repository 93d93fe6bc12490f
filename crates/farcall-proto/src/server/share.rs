//! A conversation's share of all that is being sent in fragments: calls whose results will be long wait for
//! it (docs/protocol.md, "At the server").

use super::hosts::Kept;
use super::work::{PROMISED, Phase};
use super::{CallKey, Server};

/// It is this part of the budget, or one result.
const PART: usize = 16;

impl Server {
    /// Whether a call that the user has, and whose result will have about so many bytes, may be executed:
    /// then they count as being sent until it is finished, or its caller asks for it. Else its conversation
    /// is being sent its share, and the call is to wait until [`Server::next_with_room`] names that.
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

    /// A conversation of which a call was to wait, and which has fetched something since.
    #[inline]
    pub fn next_with_room(&mut self) -> Option<u64> {
        self.sending.roomy.pop()
    }

    /// A call whose result was to be long is over, and what there is of that counts itself; or it takes
    /// longer than was thought.
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

    /// A conversation is being sent less than before.
    pub(super) fn note_room(&mut self, place: usize) {
        let entry = self.table.at_mut(place);
        if let Some(more) = &mut entry.more
            && std::mem::take(&mut more.wanted)
        {
            self.sending.roomy.push(entry.id);
        }
    }
}
