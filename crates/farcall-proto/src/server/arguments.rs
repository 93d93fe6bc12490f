//! Assembles arguments that arrive in fragments (docs/protocol.md, "Fragments").

use std::borrow::Cow;

use super::Server;
use super::hosts::Kept;
use super::memory::ASSEMBLY;
use super::receive::Visit;
use super::work::Phase;
use crate::scheme::Scheme;
use crate::wire::{self, CallHead, Part};
use crate::{Failure, Kind as FailureKind, MAX_DATAGRAM, Ran, Rule, Time, transfer};

/// The maximum size, in all, of reused buffers that are given to arguments before these have arrived, in
/// bytes.
const MAX_LENT_BYTES: usize = 16 << 20;
/// The hosts of a network are given reused buffers while their arguments take at most this many times the
/// rest of `MAX_LENT_BYTES`. So a single network leaves a fifth for others (Choudhury & Hahne 1998, "Dynamic
/// queue length thresholds").
const SHARE_OF_A_NETWORK: usize = 4;
/// A host is given reused buffers while its arguments take at most this many times the rest of
/// `MAX_LENT_BYTES`. So a single host leaves a third for others.
const SHARE_OF_A_HOST: usize = 2;

impl Server {
    /// Handles a fragment of a call's arguments.
    pub(super) fn receive_arguments(
        &mut self,
        visit: &mut Visit<'_>,
        place: usize,
        head: &CallHead,
        part: Part<'_>,
    ) {
        let activity = head.position.activity;
        let total = part.total() as u32;
        let fragment = part.fragment.unwrap_or(wire::Fragment { total, offset: 0, ask: false });
        let trusted = self.table.at(place).more.as_ref().map_or(0, |more| more.trusted);
        let most = self.window(place) / (self.spare.receiving.max(1) as u32);
        // A client that has sent little so far is allowed little more, because it need not mean to send the
        // rest.
        let window = |arrived: u32| most.min(arrived.max(trusted).saturating_mul(4)).max(MAX_DATAGRAM as u32);
        let mutant = self.config.mutant;
        let begins = self.work(visit.now, place, activity).incoming.is_none();
        let buffer = if begins { self.begin_assembly(visit.now, place, activity, total) } else { Vec::new() };
        let Some(more) = &mut self.table.at_mut(place).more else { return };
        let Some(work) = more.activities.work_mut(activity) else { return };
        let new = || Box::new(transfer::Incoming::new(total, buffer, window(0), 0));
        let incoming = work.incoming.get_or_insert_with(new);
        let before = if begins { 0 } else { incoming.memory() + ASSEMBLY };
        if mutant.breaks(Rule::FarFragmentReserves) {
            incoming.reserve(fragment.offset);
        }
        let taken = incoming.take(visit.header.number, fragment, part.bytes);
        incoming.grant(window(incoming.through));
        let after = incoming.memory() + ASSEMBLY;
        let due = incoming.acknowledge_due();
        work.since = visit.now;
        work.progressed |= !begins;
        if std::mem::replace(&mut work.phase, Phase::Receiving) == Phase::Running {
            more.running -= 1;
        }
        more.recount(&mut self.hosts, Kept::Arguments, before, after);
        match taken {
            transfer::Taken::Complete => self.complete(visit, place, head, fragment.ask),
            transfer::Taken::Contradiction => self.stats.dropped += 1,
            transfer::Taken::NoMemory => {
                let why = Failure::new(FailureKind::Overloaded, Ran::No);
                let why = why.with_detail("the server has no memory for the arguments");
                self.refuse(visit.now, place, head.position, why);
            }
            transfer::Taken::New | transfer::Taken::Nothing if due => self.reply_select(place, head.position),
            transfer::Taken::New | transfer::Taken::Nothing => {}
        }
        self.enforce_reassembly(visit.now);
    }

    /// Returns a buffer for arguments of `total` bytes, which begin to arrive. Usually it is empty and grows
    /// with what arrives. A conversation that has sent arguments as long before can get a reused buffer of
    /// that size, unless too many are given away.
    fn begin_assembly(&mut self, now: Time, place: usize, activity: u32, total: u32) -> Vec<u8> {
        let entry = self.table.at(place);
        let Some(more) = &entry.more else { return Vec::new() };
        let (host, trusted) = (more.host, more.trusted);
        self.spare.receiving += 1;
        self.hosts.begin_receiving(host, (entry.id, activity));
        self.tidy_receiving(host);
        if total > trusted || self.spare.lent >= MAX_LENT_BYTES {
            return Vec::new();
        }
        let buffer = self.spare.long.take(now, total as usize).unwrap_or_default();
        let room = self.config.reassembly_budget.saturating_sub(self.hosts.total(Kept::Arguments));
        let rest = MAX_LENT_BYTES - self.spare.lent;
        let of_network =
            (SHARE_OF_A_NETWORK * rest).saturating_sub(self.hosts.kept_in_network(host, Kept::Arguments));
        let of_host = (SHARE_OF_A_HOST * rest).saturating_sub(self.hosts.kept(host, Kept::Arguments));
        if buffer.capacity() > (2 * total as usize).min(room / 2).min(of_network).min(of_host) {
            self.spare.long.give(buffer);
            return Vec::new();
        }
        self.spare.lent += buffer.capacity();
        buffer
    }

    /// Gives a call whose arguments have all arrived to the user.
    fn complete(&mut self, visit: &mut Visit<'_>, place: usize, head: &CallHead, asked: bool) {
        let args = self.assembled(place, head.position.activity);
        if let Some(more) = &mut self.table.at_mut(place).more {
            more.trusted = more.trusted.max(args.len() as u32);
        }
        // The export can have been withdrawn since the first fragment, and the last fragment can name another
        // export.
        if !self.accepts(head, args.len()) {
            let why = self.objection(head, args.len());
            return self.refuse(visit.now, place, head.position, why);
        }
        if asked {
            self.reply_running(place, head.position);
        }
        self.run(visit, head, Cow::Owned(args));
    }

    /// Returns how many bytes of a message may be sent in this conversation before they are acknowledged.
    pub(super) fn window(&self, place: usize) -> u32 {
        let (most, entry) = (self.config.window, self.table.at(place));
        let is_kept = entry.scheme() == Scheme::Local && !self.config.mutant.breaks(Rule::LocalWindowIgnored);
        match &entry.more {
            _ if is_kept => most.min(self.config.local_window),
            Some(more) => more.path.widen(most),
            None => most,
        }
    }
}
