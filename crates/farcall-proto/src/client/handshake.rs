//! Handshakes at the client, by which it gets a conversation's key (docs/protocol.md, "Handshake"). The only
//! handshake so far is that of the scheme for tests. A client with a secret for this scheme accepts only
//! datagrams sealed with the key, and hints (CHALLENGE and STALE).

use super::{Conversation, Event};
use crate::scheme::{Direction, HANDSHAKE, Key, Scheme, Seal, handshake, transcript};
use crate::wire::{self, Frame, Frames, Handshake, Header, Ticket, Welcome};
use crate::{Rule, Time};

/// How far the handshake of one question has come.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// How many bytes of the client's handshake the server has.
    through: u32,
    /// The bytes of the server's handshake that have arrived.
    theirs: Vec<u8>,
    /// The ticket that proves the client's address to the server, and the ticket's conversation.
    pub proof: Option<(u64, Ticket<'static>)>,
    /// The body of the last BIND, which a WELCOME has to answer.
    question: Vec<u8>,
    /// Whether the handshake has failed and begins again. The caller's time limit then goes on, and does not
    /// restart.
    failed: bool,
}

impl Agreement {
    /// Notes the frames that are being sent. The first is the BIND.
    pub fn ask(&mut self, frames: &[u8]) {
        let bind = Frames::new(frames).next().ok().flatten();
        self.question = bind.map_or(&[][..], |bind| bind.body()).to_vec();
    }

    /// Returns the part of the client's handshake that is to be sent next.
    pub fn part<'h>(&self, ours: &'h [u8]) -> Handshake<'h> {
        let at = (self.through as usize).min(ours.len());
        let through = self.theirs.len() as u32;
        Handshake { total: ours.len() as u32, offset: at as u32, through, part: &ours[at..] }
    }

    /// Stores the handshake fields of a WELCOME, and returns whether each end has all of the other's
    /// handshake.
    fn take(&mut self, w: &Welcome<'_>) -> bool {
        let Handshake { total, offset, through, part } = w.handshake;
        if self.proof.as_ref().is_none_or(|(conversation, _)| *conversation != w.conversation) {
            self.theirs.clear();
        }
        self.proof = Some((w.conversation, w.ticket.clone().into_owned()));
        self.through = through.min(HANDSHAKE as u32);
        if total as usize == HANDSHAKE && offset as usize == self.theirs.len() {
            self.theirs.extend_from_slice(part);
        }
        self.through as usize == HANDSHAKE && self.theirs.len() == HANDSHAKE
    }
}

impl Conversation {
    /// Handles a datagram that is not sealed with the conversation's key. The datagram can be a hint, or hold
    /// part of a handshake. Everything else in it is ignored, unless the datagram completes the handshake and
    /// is sealed with the resulting key.
    pub(super) fn handle_unopened(&mut self, now: Time, datagram: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
        let Some((header, frames)) =
            wire::peek(datagram).ok().filter(|(header, _)| [0, self.id].contains(&header.conversation))
        else {
            return self.reject();
        };
        // In the open scheme, the checksum shows that no accident has changed the datagram.
        let check = header.scheme == Scheme::Open && !self.config.mutant.breaks(Rule::ChecksumIgnored);
        if check && wire::open(datagram, Direction::ToClient, |_| None, true).is_err() {
            return self.reject();
        }
        match Frames::first(frames) {
            Some(Frame::Challenge(conversation)) if check => self.on_challenge(conversation),
            Some(Frame::Stale(stale)) if check => self.on_stale(now, &stale, sink),
            Some(Frame::Welcome(w)) if header.conversation == self.id && w.scheme == Scheme::Keyed as u16 => {
                self.on_handshake(now, header, datagram, &w, sink);
            }
            _ => self.reject(),
        }
    }

    fn on_handshake(
        &mut self,
        now: Time,
        header: Header,
        datagram: &[u8],
        w: &Welcome<'_>,
        sink: &mut dyn FnMut(Event<'_>),
    ) {
        let (Some(secret), ours) = (self.config.secret, self.handshake()) else { return };
        let granted =
            self.session.granted.as_ref().is_some_and(|granted| granted.conversation == w.conversation);
        let Some(request) = self.session.asked(w.nonce) else { return self.reject() };
        let tries = (request.interval, request.unanswered);
        let key = if granted && w.handshake.total == 0 {
            self.seal.key
        } else if request.agreement.take(w) {
            let transcript = transcript(Scheme::Keyed.bit(), &ours, &request.agreement.theirs);
            Key::of(&secret, self.id, w.conversation, &transcript)
        } else {
            let failed = request.agreement.failed;
            self.session.ask_on(now, w.nonce, self.config.min_retransmit);
            if let Some(request) = self.session.newest().filter(|_| failed) {
                (request.interval, request.unanswered) = tries;
            }
            return;
        };
        let answering = key.answering(&request.agreement.question);
        let seal = Seal { scheme: header.scheme, key: answering, direction: Direction::ToClient };
        let numbered = (header.conversation, header.number);
        if !header.scheme.has_secrets() || seal.open(datagram, numbered, true).is_none() {
            // The datagram is not sealed with the key that results from the handshake, so a part of the
            // handshake was forged.
            let question = std::mem::take(&mut request.agreement.question);
            request.agreement = Agreement { failed: true, question, ..Agreement::default() };
            return self.reject();
        }
        self.stats.received += 1;
        self.agreed = Some(key);
        self.on_welcome(now, w, sink);
        self.agreed = None;
    }

    /// Returns the client's handshake. A real scheme would make a new one for each conversation.
    pub(super) fn handshake(&self) -> Vec<u8> {
        handshake(&[7; 16], self.id)
    }
}
