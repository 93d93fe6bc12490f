//! Handshakes at the client: how it comes to a conversation's key (docs/protocol.md, "Handshake"). Here that
//! of the scheme for tests; a client that demands it takes nothing that is not sealed with the key, but
//! hints.

use super::{Conversation, Event};
use crate::scheme::{Direction, HANDSHAKE, Key, Scheme, Seal, handshake, transcript};
use crate::wire::{self, Frame, Frames, Handshake, Header, Ticket, Welcome};
use crate::{Rule, Time};

/// How far a question has come to a key.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// What the server has of ours, and we of the server's.
    through: u32,
    theirs: Vec<u8>,
    /// The ticket that proves our address, and its conversation.
    proof: Option<(u64, Ticket<'static>)>,
    /// The body of the last BIND, to which a WELCOME is to be the answer.
    question: Vec<u8>,
    /// It has failed: it begins again, but patience does not.
    failed: bool,
}

impl Agreement {
    pub fn proof(&self) -> Option<(u64, Ticket<'static>)> {
        self.proof.clone()
    }

    /// These frames are being sent, the first of which asks.
    pub fn ask(&mut self, frames: &[u8]) {
        let len = frames.get(2..4).map_or(0, |len| usize::from(u16::from_be_bytes([len[0], len[1]])));
        self.question = frames.get(4..4 + len).unwrap_or_default().to_vec();
    }

    /// What is to be sent next of our handshake.
    pub fn part<'h>(&self, ours: &'h [u8]) -> Handshake<'h> {
        let at = (self.through as usize).min(ours.len());
        let through = self.theirs.len() as u32;
        Handshake { total: ours.len() as u32, offset: at as u32, through, part: &ours[at..] }
    }

    /// Takes in what a server says of the handshake; whether both have all.
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
    /// Whether nothing but the scheme for tests is spoken.
    pub(super) fn demands_secret(&self) -> bool {
        self.config.secret.is_some()
    }

    /// A datagram that is not sealed with the conversation's key. Unless it completes a handshake nothing in
    /// it is believed: it may hint, or bring a handshake further.
    pub(super) fn handle_unopened(&mut self, now: Time, datagram: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
        let header = datagram.first_chunk().and_then(|head| Header::of(head).ok());
        let Some(header) = header.filter(|header| [0, self.id].contains(&header.conversation)) else {
            return self.reject();
        };
        // By accident nothing in the open scheme has changed.
        let check = header.scheme == Scheme::Open && !self.config.mutant.breaks(Rule::ChecksumIgnored);
        if check && wire::open(datagram, Direction::ToClient, |_| None, true).is_err() {
            return self.reject();
        }
        let frames = wire::frames_of(datagram, header.scheme).unwrap_or_default();
        let first = Frames::new(frames).next().ok().flatten().and_then(|raw| raw.read().ok().flatten());
        match first {
            Some(Frame::Challenge { conversation }) if check => self.on_challenge(now, conversation),
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
        let granted = self.session.granted().is_some_and(|granted| granted.conversation == w.conversation);
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
        if !header.scheme.has_secrets() || seal.open(datagram, numbered, wire::HEADER, true).is_none() {
            // Somebody has said something else than the server.
            let question = std::mem::take(&mut request.agreement.question);
            request.agreement = Agreement { failed: true, question, ..Agreement::default() };
            return self.reject();
        }
        self.stats.received += 1;
        self.agreed = Some(key);
        self.on_welcome(now, w, sink);
        self.agreed = None;
    }

    /// Our handshake: that of a real scheme would be another for each conversation.
    pub(super) fn handshake(&self) -> Vec<u8> {
        handshake(&[7; 16], self.id)
    }
}
