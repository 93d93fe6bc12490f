//! What the ends of random exchanges have lent to one another, read from their datagrams.

use farcall_proto::dump::dump;
use farcall_proto::fuzzing::kinds::CREDIT;
use farcall_proto::{Route, route};

use super::common::frames_of;
use super::plans::End;

/// The loans in the conversation of one client.
#[derive(Default)]
pub struct Loans {
    /// The server's identifier of the conversation.
    conversation: u64,
    /// The most that each end was lent by the other, in bytes, whether or not the CREDIT arrived.
    to: [u64; 2],
}

impl Loans {
    /// Returns with how much credit a direction can begin that this end sends.
    pub fn to(&self, end: End) -> u64 {
        self.to[end as usize]
    }

    /// Notes that a datagram was sent to an end. In a new conversation nothing is lent.
    pub fn sent(&mut self, to: End, datagram: &[u8]) {
        if to == End::Server
            && let Some(Route::Conversation(id)) = route(datagram)
            && id != self.conversation
        {
            *self = Loans { conversation: id, ..Loans::default() };
        }
        if !frames_of(datagram).contains(&CREDIT) {
            return;
        }
        let dump = dump(datagram).expect("a datagram of an end");
        for credit in
            dump.frames().iter().filter(|frame| frame.starts_with("CREDIT") && frame.contains("lends"))
        {
            let number = |name: &str| {
                let (_, rest) = credit.split_once(name).expect("a CREDIT has it");
                rest.split(',').next().and_then(|number| number.parse::<u64>().ok()).expect("a number")
            };
            let lent = &mut self.to[to as usize];
            *lent = (*lent).max(number(" limit ") - number(" through "));
        }
    }
}
