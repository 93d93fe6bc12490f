//! How far the handshake of a question to a server has come.

use std::sync::Arc;

use farcall_base::Principal;
use farcall_crypto::{Initiator, Suites};

use crate::wire::{Frames, Step, Ticket};

/// How far the handshake of one question has come.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    pub stage: Stage,
    /// The ticket that proves the client's address to the server, and the ticket's conversation.
    pub proof: Option<(u64, Ticket<'static>)>,
    /// The body of the last BIND, which a WELCOME has to answer.
    pub question: Vec<u8>,
    /// The key of the server that has sent the last authentic WELCOME, and who it is for the question's name.
    /// `None` if it has shown nothing, because it refuses.
    pub answerer: Option<([u8; 32], Arc<Principal>)>,
}

#[derive(Debug, Default)]
pub(super) enum Stage {
    /// The server is asked who it is, or for its answer if both ends have secrets already.
    #[default]
    Asking,
    /// The first message is under way to a server that was accepted.
    Handshaking { initiator: Initiator, step: Vec<u8>, server: ([u8; 32], Arc<Principal>) },
}

impl Agreement {
    /// Notes the frames that are being sent. The first is the BIND.
    pub fn ask(&mut self, frames: &[u8]) {
        let bind = Frames::new(frames).next().ok().flatten();
        self.question = bind.map_or(&[][..], |bind| bind.body()).to_vec();
    }

    /// Returns the bytes of the client's next step. `random` are the bytes by which a conversation is
    /// resumed.
    pub fn step(&self, suites: Suites, random: Option<&[u8; 32]>) -> Vec<u8> {
        match (&self.stage, random) {
            (Stage::Handshaking { step, .. }, _) => step.clone(),
            (Stage::Asking, Some(random)) => Step::Resume(suites.0, random, &[]).to_bytes(),
            (Stage::Asking, None) => Step::Hello(suites.0, &[]).to_bytes(),
        }
    }
}
