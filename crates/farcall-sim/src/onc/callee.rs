//! The server of the ONC RPC model: it executes calls that it does not remember, and answers.

use std::collections::HashMap;
use std::time::Duration;

use farcall_onc::model::{Line, Remembered, Running, Seen};
use farcall_onc::server::Retention;
use farcall_onc::wire::message::{Accepted, Call, Reply};
use farcall_onc::wire::record;

use super::{CALLED, Event, Model, Rule, Run, remembered};
use crate::net::{MILLIS, SECS};
use crate::rng::Rng;

/// The server.
pub(super) struct Callee {
    pub(super) up: bool,
    pub(super) life: u64,
    /// Whether the server has the program.
    pub(super) exported: bool,
    pub(super) retention: Retention,
    remembered: Remembered,
    /// The bytes that the server was given to remember, in all its lives.
    pub(super) given: usize,
    jobs: HashMap<u64, Job>,
    numbers: u64,
    /// Connections whose ends the server fails to see, in runs that break this rule on purpose.
    former: Vec<Line>,
    /// The chance that a procedure is slow, in parts per million.
    slow: u32,
    /// The chance that a life of the server has the program, in parts per million.
    complete: u32,
}

/// A procedure that the server executes.
struct Job {
    id: usize,
    xid: u32,
    link: usize,
    running: Option<Running>,
}

/// The most bytes that a remembered reply takes in addition to its own length.
const ENTRY: usize = 512;

impl Callee {
    pub(super) fn new(rng: &mut Rng) -> Callee {
        let bytes = rng.pick(&[4 << 20, 4 << 20, 64 << 10]);
        let retention = Retention { bytes, time: Duration::from_secs(rng.pick(&[120, 10])) };
        Callee {
            up: true,
            life: 1,
            exported: true,
            retention,
            remembered: remembered(retention),
            given: 0,
            jobs: HashMap::new(),
            numbers: 0,
            former: Vec::new(),
            slow: rng.pick(&[20_000, 400_000]),
            complete: rng.pick(&[900_000, 400_000]),
        }
    }
}

impl Model {
    /// Delivers a datagram to the server.
    pub(super) fn asked(&mut self, link: usize, message: &[u8], copied: bool) {
        if self.callee.up {
            return self.called(link, message, copied);
        }
        if self.chance(self.faults.refusals) {
            let delay = self.delay();
            self.after(delay, Event::Refused(link));
        }
    }

    /// Delivers a part of a stream to the server.
    pub(super) fn read(&mut self, link: usize, mut bytes: &[u8]) {
        let known = &mut self.links[link];
        if known.closed[1] || known.cut || known.life != self.callee.life {
            return;
        }
        let mut calls = Vec::new();
        while !bytes.is_empty() {
            let space = known.records.space();
            let len = space.len().min(bytes.len());
            space[..len].copy_from_slice(&bytes[..len]);
            known.records.filled(len);
            bytes = &bytes[len..];
            while let Ok(Some(record)) = known.records.next() {
                calls.push(record.into_owned());
            }
        }
        calls.iter().for_each(|message| self.called(link, message, false));
    }

    fn called(&mut self, link: usize, message: &[u8], copied: bool) {
        let Ok((call, arguments)) = Call::parse(message) else {
            return self.report.violated("arguments-intact", "what came is no call".into());
        };
        let Some(id) = self.report.called(arguments) else { return };
        if !self.callee.exported {
            return self.reply(link, &Reply::accepted(call.xid, Accepted::ProgUnavail));
        }
        let from = self.links[link].from;
        if self.breaks(Rule::ConnectionForgets) && self.links[link].stream {
            let former = std::mem::replace(&mut self.links[link].line, Line::open());
            self.callee.former.push(former);
        }
        let known = &self.links[link];
        let line = known.stream.then_some(&known.line);
        self.callee.remembered.forget();
        let seen = self.callee.remembered.begin(from, line, message);
        let running = match seen {
            None => return,
            Some(Seen::New(running)) => Some(running),
            Some(_) if self.breaks(Rule::DuplicateRuns) => None,
            Some(Seen::Running) => return self.report.tally.remembered += 1,
            Some(Seen::Answered(result)) => {
                self.report.tally.remembered += 1;
                return self.reply(link, &Reply::accepted(call.xid, Accepted::Success(&result)));
            }
        };
        self.ran(id, link, copied);
        self.callee.numbers += 1;
        let (life, job) = (self.callee.life, self.callee.numbers);
        self.callee.jobs.insert(job, Job { id, xid: call.xid, link, running });
        let time = if self.rng.chance(self.callee.slow) {
            self.rng.spread(MILLIS, 20 * SECS)
        } else {
            self.rng.below(MILLIS)
        };
        self.after(time, Event::Done { life, job });
    }

    /// Ends a procedure, and sends its reply.
    pub(super) fn done(&mut self, life: u64, job: u64) {
        let Some(job) = self.callee.jobs.remove(&job).filter(|_| self.callee.life == life) else { return };
        let result = self.report.arguments(job.id);
        if let Some(running) = job.running {
            self.callee.remembered.end(running, &result);
            let given = self.callee.given;
            let open = |run: &&mut Run| run.answered.is_none() && run.life == life;
            if let Some(run) = self.runs[job.id].iter_mut().rev().find(open) {
                run.answered = Some((self.report.now, given));
            }
            self.callee.given += result.len() + ENTRY;
        }
        self.reply(job.link, &Reply::accepted(job.xid, Accepted::Success(&result)));
    }

    fn reply(&mut self, link: usize, reply: &Reply<'_>) {
        let mut message = Vec::new();
        if !self.links[link].stream {
            reply.write(&mut message);
            return self.datagram(|_| Event::Answered { link, message: message.clone() });
        }
        let at = record::begin(&mut message);
        reply.write(&mut message);
        if record::end(&mut message, at).is_ok() && self.links[link].life == self.callee.life {
            self.stream(link, false, &message);
        }
    }

    /// Closes the server's end of a stream, although the client may not have received all replies.
    pub(super) fn close_server_end(&mut self, link: usize) {
        let known = &mut self.links[link];
        if !std::mem::replace(&mut known.closed[1], true) {
            // The server's system may know that the stream has ended before the server looks.
            match self.rng.chance(500_000) {
                true => known.line.break_off(),
                false => known.line.end(false),
            }
            known.known = true;
        }
    }

    pub(super) fn kill_server(&mut self) {
        if !std::mem::replace(&mut self.callee.up, false) {
            return;
        }
        self.report.tally.deaths += 1;
        self.report.trace(1, self.callee.life as usize);
        self.callee.jobs.clear();
        for link in 0..self.links.len() {
            let known = &self.links[link];
            if known.stream && known.life == self.callee.life && known.closed == [false; 2] {
                self.links[link].closed[1] = true;
                let at = self.in_order(link, false);
                self.at(at, Event::Over { link, up: false });
            }
        }
        let away = self.rng.spread(MILLIS, 5 * SECS);
        self.after(away, Event::Restart);
    }

    pub(super) fn restart(&mut self) {
        if std::mem::replace(&mut self.callee.up, true) {
            return;
        }
        self.callee.life += 1;
        self.callee.remembered = remembered(self.callee.retention);
        // A server without the program is soon replaced.
        self.callee.exported = self.settling || self.rng.chance(self.callee.complete);
        if !self.callee.exported {
            let soon = self.rng.spread(MILLIS, 5 * SECS);
            self.after(soon, Event::Chaos);
        }
    }

    /// Returns the message of a call: the header and the arguments.
    pub(super) fn message(&self, id: usize, xid: u32, stream: bool) -> Vec<u8> {
        let [program, version, procedure] = CALLED;
        let none = farcall_onc::wire::auth::OpaqueAuth::NONE;
        let call = Call { xid, program, version, procedure, credential: none, verifier: none };
        let mut message = Vec::new();
        let at = if stream { record::begin(&mut message) } else { 0 };
        call.write(&mut message);
        message.extend(self.report.arguments(id));
        if stream {
            record::end(&mut message, at).expect("a short record");
        }
        message
    }
}
