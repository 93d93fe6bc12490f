//! Proves to an importer that the process to which it connects for shared memory is the server that answered
//! it over UDP. With keys, each proves to the other that it has the secrets of their conversation.
//!
//! Any process of the same user can take the name of the server's socket first, or connect to it. Without
//! keys, only the importer, and the incarnation of the server that issued the importer's ticket, can compute
//! the ticket's MAC (message authentication code). So the importer asks a question whose answer needs that
//! MAC. With keys the MAC is on the wire for everybody to see, so both ends use the conversation's secrets
//! (docs/protocol.md, section 11.10).

use std::net::SocketAddr;
use std::sync::Arc;

use farcall_proto::{Ended, Holder, Meeting, Met, Proven, Shown};
use farcall_shm::{CHALLENGE_BYTES, Hello, KeyedHello, PROOF_BYTES, TicketHolder, UnixChannel, Wants};

use crate::Principal;
use crate::client::{Peer, Standing};
use crate::env::Env;
use crate::server::Server;

/// An importer's first message, its hello, and the answer that proves the server's identity.
pub(crate) struct Question {
    hello: Vec<u8>,
    expected: Expected,
}

/// The answer that proves the server's identity.
enum Expected {
    /// Without keys: these bytes.
    Open([u8; PROOF_BYTES]),
    /// With keys.
    Keyed(Proven),
}

/// What an importer wants, and of which server.
pub(crate) struct Inquirer {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) peer: Arc<Peer>,
    pub(crate) export: u64,
    pub(crate) wants: Wants,
}

impl Inquirer {
    /// Returns the question for a server to which `channel` was connected. With keys, first receives the
    /// server's challenge, which `wait` waits for. Returns `None` if the challenge does not come, or if the
    /// conversation with the server has no ticket, or lacks secrets, now.
    pub(crate) fn question(&self, channel: &UnixChannel, wait: impl FnOnce()) -> Option<Question> {
        match self.peer.has_keys() {
            false => self.open_question(),
            true => {
                wait();
                self.keyed_question(channel)
            }
        }
    }

    fn open_question(&self) -> Option<Question> {
        let nonce = self.nonce();
        let name = self.peer.address();
        let (holder, answer) = self.peer.expected_proof(&Hello::question(&nonce, name))?;
        let hello = self.hello(nonce, &holder).to_bytes();
        Some(Question { hello, expected: Expected::Open(answer) })
    }

    fn keyed_question(&self, channel: &UnixChannel) -> Option<Question> {
        let challenge = receive_challenge(channel)?;
        let meeting = Meeting { challenge, processes: channel.processes()?, at: self.peer.address() };
        let nonce = self.nonce();
        let proven = self.peer.prove_meeting(self.export, &meeting, |holder, ticket| {
            KeyedHello::body_of(ticket, &self.hello(nonce, holder))
        })?;
        let hello = [&proven.proof[..], &proven.body].concat();
        Some(Question { hello, expected: Expected::Keyed(proven) })
    }

    fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        self.env.entropy(&mut nonce);
        nonce
    }

    fn hello(&self, nonce: [u8; 16], holder: &Holder) -> Hello {
        let Holder { client, issued, conversation, address } = *holder;
        let ticket = TicketHolder { client, issued, conversation, address };
        Hello { export: self.export, wants: self.wants, nonce, ticket }
    }
}

impl Question {
    /// Returns a question with this right answer, for tests.
    #[cfg(test)]
    pub(crate) fn expecting(answer: [u8; PROOF_BYTES]) -> Question {
        Question { hello: vec![0], expected: Expected::Open(answer) }
    }

    /// Returns the hello, which is to be sent.
    pub(crate) fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Returns the bytes of the right answer.
    pub(crate) fn answer_len(&self) -> usize {
        match self.expected {
            Expected::Open(_) => PROOF_BYTES,
            Expected::Keyed(_) => Proven::ANSWER_BYTES,
        }
    }

    /// Returns whether `answer` is the right one. An answer is right for one connection only, so it does not
    /// matter that a comparison may tell how much of a wrong one was right.
    pub(crate) fn is_answered_by(&self, answer: &[u8]) -> bool {
        match &self.expected {
            Expected::Open(expected) => answer == expected,
            Expected::Keyed(proven) => proven.is_answered_by(answer),
        }
    }

    /// Returns who the server is that can answer, and what it has shown, if this end has keys.
    pub(crate) fn server(&self) -> Option<Standing> {
        match &self.expected {
            Expected::Open(_) => None,
            Expected::Keyed(proven) => Some(Standing::of(&proven.server)),
        }
    }
}

/// Receives the challenge that a server with keys sends first.
fn receive_challenge(channel: &UnixChannel) -> Option<[u8; CHALLENGE_BYTES]> {
    let mut challenge = [0; CHALLENGE_BYTES + 1];
    match channel.receive(&mut challenge) {
        farcall_shm::Received::Message(CHALLENGE_BYTES) => challenge.first_chunk().copied(),
        _ => None,
    }
}

/// An importer at the server that it meets.
pub(super) struct Importer {
    pub(super) hello: Hello,
    /// The server's answer, which proves its identity.
    pub(super) answer: Vec<u8>,
    /// Who the importer is, and whether its conversation has ended, if this server has keys.
    pub(super) known: Option<(Arc<Principal>, Ended)>,
}

/// The server's end of a connection on which an importer has not said what it wants.
pub(super) struct Threshold<'c> {
    pub(super) channel: &'c UnixChannel,
    /// The challenge that was sent, if this server has keys.
    pub(super) challenge: Option<&'c [u8; CHALLENGE_BYTES]>,
    /// The address by which the importer knows the server.
    pub(super) at: SocketAddr,
}

impl Threshold<'_> {
    /// Reads a hello. Returns `None` if it is malformed, or if this server has keys and the importer does not
    /// prove its own.
    pub(super) fn meet(&self, server: &Server, hello: &[u8]) -> Option<Importer> {
        let Some(challenge) = self.challenge else {
            let hello = Hello::from_bytes(hello)?;
            return Some(Importer { hello, answer: answer(server, &hello, self.at).to_vec(), known: None });
        };
        let KeyedHello { proof, ticket, hello, body } = KeyedHello::from_bytes(hello)?;
        let [this, importer] = self.channel.processes()?;
        let meeting = &Meeting { challenge: *challenge, processes: [importer, this], at: self.at };
        let holder = holder(&hello);
        let Met { principal, answer, ended } =
            server.meet(&Shown { holder, ticket, meeting, body, proof })?;
        Some(Importer { hello, answer: answer.to_vec(), known: Some((principal, ended)) })
    }
}

/// Returns the answer of a server without keys to a hello. `at` is the address by which the importer knows
/// the server.
pub(crate) fn answer(server: &Server, hello: &Hello, at: SocketAddr) -> [u8; PROOF_BYTES] {
    server.prove(&holder(hello), &Hello::question(&hello.nonce, at))
}

fn holder(hello: &Hello) -> Holder {
    let TicketHolder { client, issued, conversation, address } = hello.ticket;
    Holder { client, issued, conversation, address }
}
