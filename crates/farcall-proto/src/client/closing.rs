//! What a client tells the server of calls that have ended here: that everything of them has arrived, or that
//! no caller waits for them any more.

use super::slots::Stage;
use super::{CallId, Conversation};
use crate::Rule;
use crate::wire::{Position, Writer};

/// The maximum number of notices, waiting to be sent, that answer the server's frames. Further frames are not
/// answered. The server sends or asks again.
pub(super) const MAX_NOTICES: usize = 64;

/// A notice about a call that has ended at the client. The server is told even if nothing else is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClosingNotice {
    /// The bytes before this position have arrived, and nothing more is needed. They are the bytes of the
    /// call's result, or of what the server sent in an exchange.
    Complete(Position, u64),
    /// No caller waits for the call.
    Unwanted(Position),
}

impl ClosingNotice {
    /// Writes the frame that says it. The datagram must have room for 64 bytes.
    pub fn write(self, writer: &mut Writer<'_>) {
        match self {
            ClosingNotice::Complete(position, through) if position.exchange == 0 => {
                writer.select_all(position, through as u32);
            }
            ClosingNotice::Complete(position, through) => writer.credit_all(position, through),
            ClosingNotice::Unwanted(position) => writer.cancel(position),
        }
    }
}

impl Conversation {
    /// Queues a notice in answer to a frame of the server, if there is room for it and it is not queued yet.
    pub(super) fn answer_by(&mut self, notice: ClosingNotice) {
        let notices = &mut self.transfers.notices;
        if notices.len() < MAX_NOTICES && !notices.contains(&notice) {
            notices.push(notice);
        }
    }

    /// Acts on a WANTED: the server asks whether a caller still waits for a call. A call that has ended here
    /// is cancelled. For one that has not, silence is the answer (docs/protocol.md, section 6.1).
    #[cold]
    pub(super) fn on_wanted(&mut self, position: Position) {
        let Position { activity, sequence, exchange } = position;
        let known =
            exchange == 0 && sequence < self.slots.next_sequence && (activity as usize) < self.slots.len();
        let slot = self.slots.find(CallId { activity, sequence });
        let waits = slot.is_some_and(|slot| !matches!(slot.stage, Stage::Cancelling { .. }));
        if known && !waits && !self.config.mutant.breaks(Rule::UnwantedUnanswered) {
            self.answer_by(ClosingNotice::Unwanted(position));
        }
    }
}
