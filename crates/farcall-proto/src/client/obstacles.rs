//! Why a server may be silent, as the system or the network reports it. It decides nothing, because it can be
//! forged: the failure of a call tells it to people.

use farcall_base::Obstacle;

use super::{Conversation, Outcome};
use crate::{BASE_DATAGRAM, Failure, Kind, Ran};

/// The latest obstacle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported {
    what: Obstacle,
    /// The number of datagrams that had come from the server when the obstacle was reported.
    received: u64,
}

impl Conversation {
    /// Notes why datagrams to the server may not arrive. Calls that fail because the server is silent say so,
    /// unless the server is heard before.
    pub fn note_obstacle(&mut self, what: Obstacle) {
        // Longer datagrams only find out how long they may be.
        let is_probe =
            matches!(what, Obstacle::TooNarrow { max_bytes: Some(most) } if most as usize >= BASE_DATAGRAM);
        if !is_probe {
            let received = self.stats.received;
            self.refusals.get_or_insert_default().reported = Some(Reported { what, received });
        }
    }

    /// Returns why the server may be silent, if something was reported since it was last heard.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let reported = self.refusals.as_deref()?.reported?;
        (reported.received == self.stats.received).then_some(reported.what)
    }

    /// Returns the failure of a call whose server is silent.
    #[cold]
    pub(super) fn silent(&self, kind: Kind, ran: Ran) -> Failure {
        let failure = Failure::new(kind, ran);
        match self.obstacle() {
            Some(what) => failure.with_detail(what.to_string()),
            None => failure,
        }
    }

    /// Returns the failure of a call as its outcome.
    pub(super) fn failed_in_silence(&self, kind: Kind, ran: Ran) -> Outcome<'static> {
        Outcome::Failed(self.silent(kind, ran))
    }
}
