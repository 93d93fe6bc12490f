//! Tells clients that the server takes no more calls (docs/protocol.md, section 5.8).
//!
//! A client that is told in time sends nothing that the end of the process could leave in doubt: its calls go
//! to another server at once. Nobody confirms a DRAIN, because an idle client reads no datagrams. So it is
//! sent in several rounds.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::table::{Entry, Table};
use super::{Export, Server, Transmit};
use crate::wire::{CallHead, Drain, StaleReason, Target, Writer};
use crate::{BASE_DATAGRAM, Kind, Rule, Time};

/// The most conversations that one round tells.
const MAX_TOLD: usize = 1 << 16;

/// The most exports that are remembered as drained once their drains have ended. Calls of others are refused
/// as not exported.
const MAX_DRAINED: usize = 256;

/// What the server takes no more calls of, and whom it still has to tell.
#[derive(Debug, Default)]
pub(super) struct Draining {
    /// Whether every new call is refused.
    pub(super) all: bool,
    /// The exports that are being drained.
    exports: Vec<DrainedExport>,
    /// The exports that were drained, the latest last.
    drained: VecDeque<DrainedExport>,
    /// Rounds that have not ended yet: what drains (zero stands for everything), and the next place of the
    /// table.
    rounds: Vec<Round>,
    /// When a new call was refused last.
    refused: Time,
    /// When a client last asked for a call that had ended, because it lacks its outcome.
    asked: Time,
}

#[derive(Debug)]
struct DrainedExport {
    id: u64,
    /// The names to which it answered, and to which no export has answered since.
    names: Vec<String>,
}

#[derive(Debug)]
struct Round {
    export: u64,
    next: usize,
    told: usize,
}

impl Draining {
    /// Returns whether calls of an export are refused because of a drain, which may have ended.
    pub(super) fn is_drained(&self, export: u64) -> bool {
        self.all || self.each().any(|drained| drained.id == export)
    }

    /// Returns whether a name was that of an export whose drain is why nobody answers to it.
    #[cold]
    pub(super) fn has_drained_name(&self, name: &[u8]) -> bool {
        self.each().any(|drained| drained.names.iter().any(|drained| drained.as_bytes() == name))
    }

    /// Notes that an export answers to its names again.
    pub(super) fn forget_names(&mut self, export: &Export) {
        let answered = export.names();
        for drained in self.exports.iter_mut().chain(&mut self.drained) {
            drained.names.retain(|name| !answered.contains(name));
        }
    }

    fn each(&self) -> impl Iterator<Item = &DrainedExport> {
        self.exports.iter().chain(&self.drained)
    }

    /// Returns whether an export is being drained.
    fn drains(&self, export: u64) -> bool {
        self.exports.iter().any(|drained| drained.id == export)
    }

    /// Returns whether there is nobody to tell.
    #[inline]
    pub(super) fn is_told(&self) -> bool {
        self.rounds.is_empty()
    }
}

impl Server {
    /// Refuses every new call from now on: of an export, which is withdrawn, or of all. Calls that have begun
    /// are finished. [`Server::tell_drain`] tells the clients.
    pub fn drain(&mut self, now: Time, export: Option<u64>) {
        self.draining.refused = now;
        self.begin_uncalled(now);
        match export {
            None => self.draining.all = true,
            Some(export) => {
                let names = self.exports.get(export).map_or_else(Vec::new, |it| it.names().into());
                self.withdraw(export);
                self.draining.exports.push(DrainedExport { id: export, names });
            }
        }
    }

    /// Begins another round in which [`Server::transmit`] tells every client what is drained: an export, or
    /// all.
    pub fn tell_drain(&mut self, export: Option<u64>) {
        let export = export.unwrap_or(0);
        self.draining.rounds.retain(|round| round.export != export);
        if !self.config.mutant.breaks(Rule::DrainUntold) {
            self.draining.rounds.push(Round { export, next: 0, told: 0 });
        }
    }

    /// Ends the drain of an export, once its clients were told. Later calls of it, and questions for its
    /// names, still fail as draining.
    pub fn end_drain(&mut self, export: u64) {
        let Draining { exports, drained, rounds, .. } = &mut self.draining;
        rounds.retain(|round| round.export != export);
        let ended = exports.extract_if(.., |draining| draining.id == export);
        for ended in ended {
            if drained.len() == MAX_DRAINED {
                drained.pop_front();
            }
            drained.push_back(ended);
        }
    }

    /// Returns when the last new call came of what is drained, or when the drain began.
    pub fn last_refused(&self) -> Time {
        self.draining.refused
    }

    /// Returns when a client last asked for a call that had ended: it lacks the outcome, which was lost or is
    /// slow. Zero if no client has asked so far.
    pub fn last_asked(&self) -> Time {
        self.draining.asked
    }

    /// Notes that a client asks for a call that has ended.
    #[cold]
    pub(super) fn note_asked(&mut self, now: Time) {
        self.draining.asked = self.draining.asked.max(now);
    }

    /// Notes that a client comes with a genuine ticket of a conversation that is forgotten. A drain waits for
    /// it as for one whose call is refused: until it has asked what became of its calls, it cannot know.
    #[cold]
    pub(super) fn note_forgotten(&mut self, now: Time, reason: StaleReason) {
        let is_genuine = matches!(reason, StaleReason::Horizon | StaleReason::Full);
        let drains = self.draining.all || !self.draining.exports.is_empty();
        if is_genuine && drains && !self.config.mutant.breaks(Rule::ForgottenUnheard) {
            self.draining.refused = self.draining.refused.max(now);
        }
    }

    /// Notes that a new call was refused, if it was because of a drain.
    #[cold]
    pub(super) fn note_refused(&mut self, now: Time, head: &CallHead) {
        if self.draining.all || self.draining.drains(head.export) {
            self.draining.refused = self.draining.refused.max(now);
        }
    }

    /// Returns why calls of an export are refused that is not there.
    #[cold]
    pub fn why_not_exported(&self, export: u64) -> Kind {
        if self.draining.is_drained(export) { Kind::Draining } else { Kind::NotExported }
    }

    /// Returns why a question for a name is refused to which no export answers.
    #[cold]
    pub(super) fn why_not_named(&self, name: &[u8]) -> Kind {
        if self.draining.has_drained_name(name) { Kind::Draining } else { Kind::NotExported }
    }

    /// Writes the next DRAIN, if anybody is still to be told.
    #[cold]
    pub(super) fn write_drain(&mut self, out: &mut [u8]) -> Option<Transmit> {
        loop {
            let round = self.draining.rounds.last_mut()?;
            let Some((to, target, drain)) = round.next(&self.table) else {
                self.draining.rounds.pop();
                continue;
            };
            if self.seals.may_seal(target) {
                let claims_all = self.config.mutant.breaks(Rule::DrainClaimsAll);
                let drain = if claims_all { Drain { through: 0, ..drain } } else { drain };
                let mut writer = Writer::new(out, BASE_DATAGRAM, target);
                writer.drain(&drain);
                return Some(self.count_sent(to, writer, None));
            }
        }
    }
}

impl Round {
    /// Returns what the next client is told, and where it is.
    fn next(&mut self, table: &Table) -> Option<(SocketAddr, Target, Drain)> {
        if self.next >= table.size() || self.told == MAX_TOLD {
            return None;
        }
        let rest = table.part(self.next, table.size());
        let place = rest.iter().position(|entry| entry.id != 0)?;
        let entry = &rest[place];
        self.next += place + 1;
        self.told += 1;
        let drain = Drain { conversation: entry.id, export: self.export, through: latest(entry) };
        Some((entry.address(), entry.target(), drain))
    }
}

/// Returns the greatest number of a call that has come in a conversation.
fn latest(entry: &Entry) -> u64 {
    let others = entry.more.as_ref().map_or(0, |more| more.activities.latest());
    entry.last.sequence().max(others)
}
