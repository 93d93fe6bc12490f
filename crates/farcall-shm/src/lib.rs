//! Calls between two processes of one Linux machine, through memory that both of them write.
//!
//! This crate moves bytes only; the crate `farcall` gives them the meaning of calls. `docs/shared-memory.md`
//! says which process writes which word, and why a hostile peer cannot do harm by what it writes.
//!
//! ```text
//! caller       the calling half: claims slots, makes requests, waits for answers
//! server       the serving half: takes requests and answers them
//! layout       the structure of the shared memory, which consists of atomic words
//! bulk_ring    rings for what does not fit a slot: one side fills parts, the other empties earlier ones
//! answer_word  the word of a slot at which its caller sleeps until the answer has come
//! wake_word    the word at which a thread sleeps until the other process has work for it
//! processor    the word by which each end says on which processor it runs
//! sync         futexes, and the bound on a sleep that only the other process could end
//! call_memory  the memory of a connection;  mapped_file: a mapped memory file;  copy: bytes to and from shared
//!              words. Only these three have unsafe code.
//! words        copies short runs of bytes to and from atomic words
//! meeting      Unix sockets that pass memory files and close when a process dies;  disposal: closing them
//! hello        an importer's first message, with the question by which the exporter proves its identity
//! ```
#![cfg(target_os = "linux")]
#![deny(unsafe_code)]

mod answer_word;
mod bulk_ring;
mod call_memory;
mod caller;
mod copy;
mod disposal;
mod hello;
mod layout;
mod mapped_file;
mod meeting;
mod processor;
mod server;
mod sync;
mod wake_word;
mod words;

pub use bulk_ring::{BulkConsumer, BulkProducer};
pub use call_memory::CallMemory;
pub use caller::{ArgumentRing, Caller, RequestId};
pub use disposal::unclosed;
pub use hello::{
    CHALLENGE_BYTES, Hello, KEYED_PROOF_BYTES, KeyedHello, MAX_HELLO_BYTES, PROOF_BYTES, TicketHolder, Wants,
};
pub use layout::{
    FETCH_PARTS, MAX_DETAIL_BYTES, MAX_DRAINED, PART_BYTES, RING_COUNT, RING_PARTS, SLOT_BODY_BYTES,
    SLOT_COUNT,
};
pub use mapped_file::{AccessRights, MappedFile, ReadOnlyWord, next_written, own_pages, punch_hole};
pub use meeting::{Alarm, EpollSet, Listener, Received, UnixChannel, file_limit};
pub use server::{BulkArguments, Call, Request, RequestCursor, SeenWork, Server};
pub use wake_word::SleepIntent;

/// The kind of a reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The procedure's result.
    Result,
    /// The procedure's declared exception.
    Exception,
    /// The call failed. The body is a message for people.
    Failed {
        /// The number of the failure's kind.
        kind: u16,
        /// The number that says whether the call ran.
        ran: u8,
    },
    /// A part of an earlier reply was copied to where the caller asked for it.
    Part,
}

impl Status {
    fn code(self) -> u32 {
        match self {
            Status::Result => 0,
            Status::Exception => 1,
            Status::Part => 2,
            Status::Failed { kind, ran } => 3 | u32::from(ran) << 8 | u32::from(kind) << 16,
        }
    }

    /// Decodes a word of shared memory. Every value means some status.
    fn from_code(code: u32) -> Status {
        match code & 0xff {
            0 => Status::Result,
            1 => Status::Exception,
            2 => Status::Part,
            _ => Status::Failed { kind: (code >> 16) as u16, ran: (code >> 8) as u8 },
        }
    }
}
