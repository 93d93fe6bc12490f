//! Handshakes at the client: how it comes to a conversation's key (docs/protocol.md, "Handshake"). The only
//! handshake so far is that of the scheme for tests. A client that demands this scheme accepts only datagrams
//! sealed with the key, and hints.

use super::{Conversation, Event};
use crate::scheme::{Direction, HANDSHAKE, Key, Scheme, Seal, handshake, transcript};
use crate::wire::{self, Frame, Frames, Handshake, Header, Ticket, Welcome};
use crate::{Rule, Time};

/// How far the handshake of one question has come.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// How many bytes of our handshake the server has, and the bytes of the server's that have arrived here.
    through: u32,
    theirs: Vec<u8>,
    /// The ticket that proves our address to the server, and its conversation.
    pub proof: Option<(u64, Ticket<'static>)>,
    /// The body of the last BIND, which a WELCOME has to answer.
    question: Vec<u8>,
    /// The handshake has failed and begins again; the time that the caller is patient does not begin again.
    failed: bool,
}

impl Agreement {
    /// Notes the frames that are being sent; the first is the BIND.
    pub fn ask(&mut self, frames: &[u8]) {
        let bind = Frames::new(frames).next().ok().flatten();
        self.question = bind.map_or(&[][..], |bind| bind.body()).to_vec();
    }

    /// The part of our handshake that is to be sent next.
    pub fn part<'h>(&self, ours: &'h [u8]) -> Handshake<'h> {
        let at = (self.through as usize).min(ours.len());
        let through = self.theirs.len() as u32;
        Handshake { total: ours.len() as u32, offset: at as u32, through, part: &ours[at..] }
    }

    /// Takes in what a WELCOME says of the handshake, and returns whether both ends have all of it.
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
    /// Handles a datagram that is not sealed with the conversation's key. It may be a hint, or carry part of
    /// a handshake. Nothing else in it is believed, unless it completes the handshake and is sealed with the
    /// key that results.
    pub(super) fn handle_unopened(&mut self, now: Time, datagram: &[u8], sink: &mut dyn FnMut(Event<'_>)) {
        let Some((header, frames)) =
            wire::peek(datagram).ok().filter(|(header, _)| [0, self.id].contains(&header.conversation))
        else {
            return self.reject();
        };
        // The checksum shows that no accident has changed a datagram in the open scheme.
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
            // Part of the handshake was forged: the datagram is not sealed with the key that it leads to.
            let question = std::mem::take(&mut request.agreement.question);
            request.agreement = Agreement { failed: true, question, ..Agreement::default() };
            return self.reject();
        }
        self.stats.received += 1;
        self.agreed = Some(key);
        self.on_welcome(now, w, sink);
        self.agreed = None;
    }

    /// Our handshake. A real scheme would make a new one for each conversation.
    pub(super) fn handshake(&self) -> Vec<u8> {
        handshake(&[7; 16], self.id)
    }
}
