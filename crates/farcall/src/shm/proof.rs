//! Proves to an importer that the process to which it connects for shared memory is the server that answered
//! it over UDP.
//!
//! Any process of the same user can take the name of the server's socket first. But only the importer, and
//! the incarnation of the server that issued the importer's ticket, can compute the ticket's MAC (message
//! authentication code). So the importer asks a question whose answer needs that MAC.

use std::net::SocketAddr;
use std::sync::Arc;

use farcall_proto::Holder;
use farcall_shm::{Hello, PROOF_BYTES, TicketHolder, Wants};

use crate::client::Peer;
use crate::env::Env;
use crate::server::Server;

/// An importer's first message, its hello, and the answer that proves the server's identity.
pub(crate) struct Question {
    hello: Vec<u8>,
    answer: [u8; PROOF_BYTES],
}

impl Question {
    /// Returns a question for the server that answered over UDP, or `None` if the conversation with it has no
    /// ticket now.
    pub(crate) fn new(env: &dyn Env, peer: &Arc<Peer>, export: u64, wants: Wants) -> Option<Question> {
        let mut nonce = [0; 16];
        env.entropy(&mut nonce);
        let (holder, answer) = peer.expected_proof(&Hello::question(&nonce, peer.address()))?;
        let Holder { client, issued, conversation, address } = holder;
        let ticket = TicketHolder { client, issued, conversation, address };
        Some(Question { hello: Hello { export, wants, nonce, ticket }.to_bytes(), answer })
    }

    /// Returns a question with this right answer, for tests.
    #[cfg(test)]
    pub(crate) fn expecting(answer: [u8; PROOF_BYTES]) -> Question {
        Question { hello: vec![0], answer }
    }

    /// Returns the hello, which is to be sent.
    pub(crate) fn hello(&self) -> &[u8] {
        &self.hello
    }

    /// Returns whether `answer` is the right one.
    pub(crate) fn is_answered_by(&self, answer: &[u8]) -> bool {
        answer == self.answer
    }
}

/// Returns the server's answer to a hello. `at` is the address by which the importer knows the server.
pub(crate) fn answer(server: &Server, hello: &Hello, at: SocketAddr) -> [u8; PROOF_BYTES] {
    let TicketHolder { client, issued, conversation, address } = hello.ticket;
    let holder = Holder { client, issued, conversation, address };
    server.prove(&holder, &Hello::question(&hello.nonce, at))
}
