//! The oracle of a simulated run. It knows every call and every execution, and checks the invariants about
//! both.

mod exchanging;
mod restored;

use std::collections::HashMap;
use std::fmt;

use farcall_proto::server::{CallKey, Incoming, Reading};
use farcall_proto::{ACCESSES, Failure, Kind, READINGS, Ran, Trace};

use crate::counts::counts;
use crate::memory::{FORGOTTEN, Head, Import, POSTED, Post, READ, REFUSED};
use crate::net::{MILLIS, Nanos, SECS};
use crate::rng::mix;
use exchanging::{Inside, Loans};
use restored::Undone;

/// An invariant that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant's name.
    pub rule: &'static str,
    /// The virtual time of the violation.
    pub at: Nanos,
    /// The facts that violate the invariant.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.at as f64 / SECS as f64;
        write!(f, "{} at {seconds:.6} s: {}", self.rule, self.what)
    }
}

/// The outcome of a call, as its caller knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// The call has not ended.
    #[default]
    Open,
    /// The call returned a result or an exception.
    Returned,
    /// The call failed, and the caller was told whether it ran.
    Failed(Ran),
    /// The caller is dead and will never know.
    Abandoned,
}

/// One logical call, as its caller meant it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Call {
    /// The calling machine.
    pub client: usize,
    /// The called server.
    pub server: usize,
    /// The server whose address the client calls. A client may call an export of another server there.
    called: usize,
    /// The export that the caller had in mind.
    pub export: u64,
    /// The procedure.
    pub procedure: u32,
    /// The length of the arguments in bytes.
    pub args: usize,
    /// When the call was started.
    pub started: Nanos,
    /// When its caller stops waiting.
    pub deadline: Option<Nanos>,
    /// Whether the call carries trace context.
    pub traced: bool,
    /// Whether something passes inside the call besides its arguments and its result.
    pub inside: bool,
    /// Whether the caller cancelled the call.
    pub cancelled: bool,
    /// Whether the caller detached the call before any part of it was sent.
    pub detached: bool,
    /// Whether a server gave the call up because its client was silent.
    pub forsaken: bool,
    /// Whether the procedure was told to stop while it was executed.
    pub told: bool,
    /// The outcome, as the caller knows it.
    pub state: State,
    /// When the call ended at its caller.
    pub ended: Nanos,
    /// How often any server executed the call.
    pub executed: u32,
    /// How often the call was executed by a server that was then restored from an earlier snapshot.
    pub undone: u32,
    /// Whether the call was neither executed nor refused when the snapshot was taken from which its server
    /// was restored, or was made shortly after the restoration.
    unsettled: bool,
    /// Whether a server said that the call will never be executed.
    pub refused: bool,
    /// Identifies the execution that the result comes from.
    pub nonce: u64,
    /// The length of the result in bytes. The caller of an access chooses it.
    pub result: usize,
    /// Whether the result is an exception.
    pub exception: bool,
    /// The number of writes that the server had done when the call was started.
    pub version: u64,
    /// The number of posted writes of the import that were done when the call was started.
    pub done: u64,
    /// The beginning of the result of an access's last execution.
    pub head: Head,
    /// When the call was sent first, as far as that is known.
    pub sent: Nanos,
    /// For how long the caller's machine was paused since the call was sent.
    pub paused: Nanos,
    /// The life of the server that executed the call.
    executor: usize,
    /// The reason why the caller may be told that the call did not run although it did.
    excuse: Excuse,
    /// The import that the call belongs to, if it is about posted writes.
    pub import: Option<usize>,
    /// The stream of that import.
    pub stream: u64,
}

impl Call {
    /// Makes a record of a new call or access from a client to a server; the caller sets the other fields.
    pub fn new(
        (client, server): (usize, usize),
        export: u64,
        procedure: u32,
        args: usize,
        started: Nanos,
    ) -> Call {
        let (sent, executor) = (started, NOBODY);
        Call { client, server, export, procedure, args, started, sent, executor, ..Call::default() }
    }

    /// Returns whether the call accesses memory.
    pub fn is_access(&self) -> bool {
        self.procedure >= ACCESSES
    }

    /// Returns whether the call changes nothing, so that it may be executed more than once.
    pub fn reads(&self) -> bool {
        self.procedure >= READINGS
    }

    /// Returns how many bytes of the arguments are not part of the pattern.
    fn marked(&self) -> usize {
        match self.procedure {
            POSTED => 16,
            _ if self.args >= 8 => 8,
            _ => 0,
        }
    }
}

/// The number that no life of a server has.
const NOBODY: usize = usize::MAX;

/// A client that was silent for less than this speaks, as servers see it by their own clocks.
const SPEAKS_WITHIN: Nanos = 15 * SECS;

/// The reason why a call may be reported as not run although it ran. A reason is a fact that a client cannot
/// know (docs/protocol.md 7.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Excuse {
    /// There is no reason.
    #[default]
    None,
    /// The server that refuses the ticket began before the call was sent, and after the client last received
    /// from the former server. The former server is alive nevertheless.
    TwoLive {
        /// When the client last received from the former server.
        heard: Nanos,
    },
    /// The client's machine was paused meanwhile, and the server forgot a conversation.
    Paused,
}

/// One life of a server.
#[derive(Clone, Copy, Debug)]
struct Life {
    born: Nanos,
    /// For how long its machine was paused since.
    paused: Nanos,
}

counts! {
    /// Counts of how calls ended.
    Outcomes {
        /// Calls that returned a result or an exception.
        returned,
        /// Calls that failed with "did not run".
        no,
        /// Calls that failed with "may have run".
        maybe,
        /// Calls that failed with "ran".
        yes,
        /// Calls whose caller died.
        abandoned,
        /// Executions.
        executed,
        /// Executions in which something could pass inside the call.
        exchanging,
        /// Questions of signals that were handled.
        handled,
        /// Bytes that users sent in exchanges.
        carried,
        /// Readings that were answered at once.
        answered,
        /// Posted writes that were done.
        posted,
        /// How often an importer was told that all its posted writes were done.
        flushed,
        /// Calls that were reported as not run although they ran, to clients that could not know
        /// (docs/protocol.md 7.4).
        beyond_knowledge,
        /// Calls of restored servers that were executed again, or that were reported as not run although they
        /// ran.
        undone,
    }
}

/// The oracle of one run.
#[derive(Default)]
pub struct Oracle {
    salt: u64,
    /// Whether no fault happens in this run. Then no call has a reason to fail.
    calm: bool,
    /// How long a server must be silent before a call may fail because of the silence.
    patience: Nanos,
    /// How long a client may be silent before a server gives its calls up: at least, and at most.
    pub silence: (Nanos, Nanos),
    /// How long a ticket is good at least, for a client that is silent.
    ticket_life: Nanos,
    /// Whether the server in the next report may be given up before the patience is over, because its port
    /// was refused.
    pub may_give_up: bool,
    /// Every call, in the order of starting.
    pub calls: Vec<Call>,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// The truth about the posted writes of each import.
    pub imports: Vec<Import>,
    /// How many writes each server has done.
    versions: Vec<u64>,
    /// All lives of servers, and the present life of each server.
    lives: Vec<Life>,
    living: Vec<usize>,
    /// The server of each export.
    exports: HashMap<u64, usize>,
    undone: Undone,
    inside: HashMap<usize, Inside>,
    loans: Loans,
    counts: Outcomes,
}

impl Oracle {
    /// Returns an oracle that has seen nothing.
    pub fn new(salt: u64, calm: bool, (patience, ticket_life): (Nanos, Nanos), servers: usize) -> Oracle {
        let (versions, living) = (vec![0; servers], vec![NOBODY; servers]);
        Oracle { salt, calm, patience, ticket_life, versions, living, ..Oracle::default() }
    }

    /// Notes a new life of a server.
    pub fn born(&mut self, now: Nanos, server: usize) {
        self.living[server] = self.lives.len();
        self.lives.push(Life { born: now, paused: 0 });
    }

    /// Notes for how long a server's machine was paused.
    pub fn server_paused(&mut self, server: usize, paused: Nanos) {
        if let Some(life) = self.lives.get_mut(self.living[server]) {
            life.paused += paused;
        }
    }

    /// Notes for how long the machine of a call's client was paused.
    pub fn client_paused(&mut self, call: usize, paused: Nanos) {
        let call = &mut self.calls[call];
        call.paused += paused;
        call.deadline = call.deadline.map(|deadline| deadline + paused);
    }

    /// Notes the identifier of a server's export.
    pub fn exported(&mut self, server: usize, export: u64) {
        self.exports.insert(export, server);
    }

    /// Notes a call. It goes to the server that has the export.
    pub fn made(&mut self, mut call: Call) {
        call.called = call.server;
        call.server = self.exports.get(&call.export).copied().unwrap_or(call.server);
        call.unsettled = self.hears_undone_words(call.server, call.started);
        let done = call.import.map_or(0, |import| self.imports[import].done);
        (call.version, call.done) = (self.versions[call.server], done);
        self.calls.push(call);
    }

    /// Notes that an invariant does not hold. Only the first such note is kept.
    pub fn violate(&mut self, rule: &'static str, at: Nanos, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { rule, at, what: what() });
        }
    }

    /// Returns the token that marks a call in its arguments and its trace context.
    pub fn token(&self, call: usize) -> u64 {
        (mix(self.salt ^ call as u64) << 32) | call as u64
    }

    /// Returns the trace context of a call.
    pub fn trace(&self, call: usize) -> Trace {
        let token = self.token(call);
        let mut trace = [0; 16];
        trace[..8].copy_from_slice(&token.to_be_bytes());
        trace[8..].copy_from_slice(&(!token).to_be_bytes());
        Trace { trace, span: token.to_be_bytes() }
    }

    /// Writes a call's arguments.
    pub fn write_args(&self, call: usize, out: &mut Vec<u8>) {
        let token = self.token(call);
        let length = self.calls[call].args;
        if length >= 8 {
            out.extend_from_slice(&token.to_be_bytes());
        }
        if self.calls[call].procedure == POSTED {
            out.extend_from_slice(&self.calls[call].stream.to_be_bytes());
        }
        pattern(token, length, out);
    }

    /// Identifies the call that arrived at `server`, which exports `export`, and checks that it is intact.
    pub fn arrived(&mut self, now: Nanos, server: usize, export: u64, call: &Incoming<'_>) -> Option<usize> {
        let Some(index) = self.identify(call) else {
            self.violate("arguments-intact", now, || {
                format!("server {server} got a call that nobody made: {:?}", call.key)
            });
            return None;
        };
        let meant = self.calls[index];
        let args = &call.args[..];
        let body = args.get(meant.marked()..);
        let whole = args.len() == meant.args
            && body.is_some_and(|body| is_pattern(self.token(index), meant.args, body));
        let trace = meant.traced.then(|| self.trace(index));
        if !whole
            || call.procedure != meant.procedure
            || call.trace != trace
            || call.deadline.is_some() != meant.deadline.is_some()
        {
            self.violate("arguments-intact", now, || {
                format!("call {index} {meant:?} came as {} bytes, procedure {}", args.len(), call.procedure)
            });
        }
        if meant.server != server || meant.export != call.export || export != call.export {
            self.violate("export-is-the-one-meant", now, || {
                format!("call {index} {meant:?} came to server {server} export {}", call.export)
            });
        }
        Some(index)
    }

    fn identify(&self, call: &Incoming<'_>) -> Option<usize> {
        let in_args = call.args.first_chunk::<8>();
        let token = u64::from_be_bytes(match call.trace {
            Some(trace) => trace.span,
            None => *in_args?,
        });
        let index = (token & 0xffff_ffff) as usize;
        (index < self.calls.len() && self.token(index) == token).then_some(index)
    }

    /// Executes a reading that a server may answer at once, if its result fits `room`. Returns the result's
    /// length.
    pub fn read(
        &mut self,
        now: Nanos,
        server: usize,
        export: u64,
        reading: &Reading<'_>,
        room: &mut [u8],
    ) -> Option<usize> {
        let key = CallKey { conversation: 0, activity: 0, sequence: 0 };
        let (named, procedure, args) = (reading.export, reading.procedure, reading.args.into());
        let incoming = Incoming {
            key,
            export: named,
            procedure,
            deadline: None,
            trace: None,
            again: false,
            args,
            principal: None,
        };
        if named != export || procedure != READ {
            return None;
        }
        let call = self.arrived(now, server, export, &incoming)?;
        let meant = self.calls[call];
        // Now and then the server does not answer at once, for no reason.
        let room = room.get_mut(..meant.result).filter(|_| !meant.exception && call % 8 > 0)?;
        self.access(now, call, Head::default());
        self.counts.answered += 1;
        let mut result = Vec::with_capacity(room.len());
        self.write_result(call, &mut result);
        room.copy_from_slice(&result);
        Some(room.len())
    }

    /// Notes that a server executes an access, whose result begins with `head` and the version.
    pub fn access(&mut self, now: Nanos, call: usize, head: Head) {
        let meant = self.calls[call];
        self.execute(now, call, meant.result, meant.exception);
        if !meant.reads() && !meant.exception {
            self.versions[meant.server] += 1;
        }
        self.calls[call].head = Head { version: self.versions[meant.server], ..head };
    }

    /// Adds an import of a server's memory.
    pub fn import(&mut self, server: usize, export: u64) -> usize {
        let server = self.exports.get(&export).copied().unwrap_or(server);
        self.imports.push(Import { server, export, done: 0, refused: false });
        self.imports.len() - 1
    }

    /// Appends a post of `length` bytes to `out`.
    pub fn write_post(&self, post: Post, length: usize, out: &mut Vec<u8>) {
        post.write(out);
        pattern(self.mark(post), length, out);
    }

    fn mark(&self, Post { number, import, .. }: Post) -> u64 {
        mix(self.salt ^ (import << 32) ^ number)
    }

    /// Notes that a server does a posted write, or refuses it.
    pub fn post(&mut self, now: Nanos, (server, export): (usize, u64), bytes: &[u8], refuses: bool) {
        let length = bytes.len();
        let posted = Post::read(bytes).filter(|(post, rest)| {
            (post.import as usize) < self.imports.len() && is_pattern(self.mark(*post), length, rest)
        });
        let Some((post, _)) = posted else {
            return self
                .violate("arguments-intact", now, || format!("server {server} got a post that nobody made"));
        };
        let import = &mut self.imports[post.import as usize];
        let before = *import;
        if refuses {
            import.refused = true;
        } else {
            import.done += 1;
            self.versions[server] += 1;
            self.counts.posted += 1;
        }
        if (before.server, before.export) != (server, export) {
            self.violate("export-is-the-one-meant", now, || {
                format!("{post:?} of {before:?} came to server {server}")
            });
        }
        if self.was_restored(export) {
            return;
        }
        if before.done != post.number || before.refused {
            self.violate("posts-in-order-and-once", now, || format!("{post:?} after {before:?}"));
        }
    }

    /// Checks an importer's belief that all its posted writes before this number are done.
    pub fn flushed(&mut self, now: Nanos, import: usize, end: u64) {
        self.counts.flushed += 1;
        let truth = self.imports[import];
        if truth.done < end && !self.was_restored(truth.export) {
            self.violate("flush-means-done", now, || {
                format!("import {import}, {end} were posted: {truth:?}")
            });
        }
    }

    /// Checks a server's statement about whether a call was given up by its caller.
    pub fn given_up(&mut self, now: Nanos, call: usize, is: bool) {
        let c = self.calls[call];
        if is && !c.cancelled && !c.forsaken && c.state == State::Open {
            self.violate("given-up-is-true", now, || {
                format!("call {call}, which its caller waits for: {c:?}")
            });
        }
    }

    /// Checks that a server gives a call up only after its client was silent for long enough.
    pub fn forsaken(&mut self, now: Nanos, call: usize, silent: Nanos) {
        self.calls[call].forsaken = true;
        let c = self.calls[call];
        // What passes inside a call needs its client, so silence ends even a detached call.
        if c.detached && !c.inside {
            self.violate("detached-goes-on", now, || format!("call {call}, silent for {silent}: {c:?}"));
        }
        let waits = c.state == State::Open && !c.cancelled;
        // A server also gives a call up if nothing of its exchanges arrives at a client that speaks.
        let may_be_narrow = c.inside && silent < SPEAKS_WITHIN;
        let patient = if may_be_narrow { silent.max(now.saturating_sub(c.started)) } else { silent };
        if patient < self.silence.0 || waits && self.calm {
            self.violate("given-up-is-true", now, || {
                format!("call {call}, whose client was silent for {silent} only: {c:?}")
            });
        }
    }

    /// Checks that a server does not keep a call whose client has been silent for too long.
    pub fn goes_on(&mut self, now: Nanos, call: usize, silent: Nanos) {
        let c = self.calls[call];
        // The client sent something when it started the call. That may not have been noted yet.
        let silent = silent.min(now.saturating_sub(c.started));
        // The server measures by its own clock, which may be slow by 6 %.
        let most = self.silence.1 / 16 * 17 + 2 * SECS;
        if c.state == State::Abandoned && !c.detached && !c.told && silent > most {
            self.violate("dead-clients-calls-are-given-up", now, || {
                format!("call {call}, whose client has been silent for {silent}: {c:?}")
            });
        }
    }

    /// Checks that a server knows that a call is over for its caller, if the call has been over since before
    /// `since`, and so have faults. `is` says whether the server takes the call to be given up.
    pub fn is_known_to_be_over(&mut self, now: Nanos, call: usize, since: Nanos, is: bool) {
        let c = self.calls[call];
        if matches!(c.state, State::Failed(_)) && !c.detached && c.ended < since && !is {
            self.violate("ended-calls-are-given-up", now, || format!("call {call} goes on: {c:?}"));
        }
    }

    /// Notes that a server begins to execute a call.
    pub fn execute(&mut self, now: Nanos, call: usize, result: usize, exception: bool) {
        self.counts.executed += 1;
        let nonce = mix(self.salt.wrapping_add(self.counts.executed));
        let c = &mut self.calls[call];
        c.executed += 1;
        (c.result, c.exception) = (result, exception);
        if !c.reads() {
            c.nonce = nonce;
        }
        c.executor = self.living[c.server];
        let c = *c;
        if c.executed > 1 && !c.reads() {
            self.violate("at-most-once", now, || format!("call {call} was executed again: {c:?}"));
        }
        let no = c.state == State::Failed(Ran::No);
        let is_undone = no && self.is_undone(&c);
        if c.undone > 0 || is_undone {
            self.counts.undone += 1;
        }
        if is_undone {
            return;
        }
        if no && self.is_excused(&c) {
            self.counts.beyond_knowledge += 1;
        } else if c.refused || c.state == State::Failed(Ran::No) {
            self.violate("no-means-never", now, || {
                format!("call {call} was executed after it was said not to run: {c:?}")
            });
        }
    }

    /// Notes that a server's user refuses a call.
    pub fn refuse(&mut self, call: usize) {
        self.calls[call].refused = true;
    }

    /// Appends the result of a call's execution to `out`.
    pub fn write_result(&self, call: usize, out: &mut Vec<u8>) {
        let c = &self.calls[call];
        if c.is_access() {
            c.head.write(out);
        }
        pattern(self.token(call) ^ c.nonce, c.result, out);
    }

    /// Checks a result that returned to its caller.
    pub fn returned(&mut self, now: Nanos, call: usize, body: &[u8], exception: bool) {
        let c = self.end(now, call, State::Returned);
        let key = self.token(call) ^ c.nonce;
        let (head, rest) = match Head::read(body).filter(|_| c.is_access()) {
            Some((head, rest)) => (Some(head), rest),
            None => (None, body),
        };
        let executed = if c.reads() { c.executed > 0 } else { c.executed == 1 };
        let right = executed
            && body.len() == c.result
            && exception == c.exception
            && head.is_some() == c.is_access()
            && is_pattern(key, c.result, rest)
            && head.is_none_or(|head| self.is_right(&c, head));
        let right = right || !c.reads() && self.is_of_executions(call, body, exception);
        if c.told {
            self.violate("no-result-after-cancel", now, || format!("call {call} {c:?} returned"));
        }
        self.comes_last(now, call, &c);
        if !right {
            self.violate("result-is-the-executions", now, || {
                format!("call {call} {c:?} returned {} bytes", body.len())
            });
        }
    }

    /// Returns whether the result of an access may begin with `head`. For a reading, `head` must have been
    /// true at some moment during the reading.
    fn is_right(&self, call: &Call, head: Head) -> bool {
        if !call.reads() {
            return head == call.head;
        }
        let posted = match call.import.map(|import| self.imports[import]) {
            Some(import) if head.status != FORGOTTEN && !self.was_restored(import.export) => {
                (call.done..=import.done).contains(&head.word) && (head.status != REFUSED || import.refused)
            }
            _ => true,
        };
        self.versions_of(call).contains(&head.version) && (posted || call.exception)
    }

    /// Checks the failure that a caller was told. `heard` is when the caller last received from the server.
    pub fn failed(&mut self, now: Nanos, call: usize, failure: &Failure, heard: Nanos) {
        let mut c = self.end(now, call, State::Failed(failure.ran));
        c.excuse = match failure.kind {
            Kind::ServerRestarted => Excuse::TwoLive { heard },
            Kind::Forgotten if c.paused > 0 => Excuse::Paused,
            _ => Excuse::None,
        };
        self.calls[call].excuse = c.excuse;
        let ran = c.executed + c.undone > 0;
        if failure.ran == Ran::No && ran && self.may_be_denied(&c) {
            self.counts.undone += 1;
        } else if failure.ran == Ran::No && ran && self.is_excused(&c) {
            self.counts.beyond_knowledge += 1;
        } else if failure.ran == Ran::No && ran && !self.denies(call) {
            self.violate("no-means-never", now, || format!("call {call} had run: {failure:?} {c:?}"));
        }
        if failure.ran == Ran::Yes && !ran {
            self.violate("yes-means-ran", now, || format!("call {call} had not run: {failure:?} {c:?}"));
        }
        if c.deadline == Some(c.started) && (failure.kind, failure.ran) != (Kind::Deadline, Ran::No) {
            self.violate("late-calls-stay", now, || {
                format!("call {call} was made too late: {failure:?} {c:?}")
            });
        }
        // A call that was never sent, because there was no ticket, may have been started late in a long
        // silence.
        let sent = failure.ran != Ran::No;
        let early = now - c.started < self.patience - self.patience / 10 && !self.may_give_up;
        if failure.kind == Kind::Unreachable && sent && early {
            self.violate("patience", now, || format!("call {call} was given up early: {c:?}"));
        }
        let excused = matches!(
            failure.kind,
            Kind::Overloaded | Kind::Cancelled | Kind::Deadline | Kind::NotExported | Kind::Nested
        );
        // The model's procedures alone end in this way.
        if failure.kind == Kind::Nested && ran {
            self.comes_last(now, call, &c);
        }
        // The client was silent for so long that the server has erased the key of the client's ticket. The
        // driver makes such a call again.
        let outlived = failure.kind == Kind::Forgotten
            && failure.ran == Ran::No
            && c.sent.saturating_sub(heard) >= self.ticket_life;
        let unwound = failure.kind == Kind::Unwound;
        if unwound && !self.is_unwound(call) {
            self.violate("unwound-by-its-caller", now, || format!("call {call}: {failure:?} {c:?}"));
        }
        if self.calm && !excused && !unwound && !outlived {
            self.violate("calm-calls-return", now, || {
                format!("call {call} failed without a reason: {failure:?} {c:?}")
            });
        }
    }

    /// Returns whether a call's client could not know that the call ran: another server than the one that
    /// executed it began before the call was sent, by the client's clock, and after the client last received
    /// from the first, by the other server's clock.
    fn is_excused(&self, call: &Call) -> bool {
        match call.excuse {
            Excuse::None => false,
            Excuse::Paused => true,
            Excuse::TwoLive { heard } => self.lives.iter().enumerate().any(|(which, life)| {
                which != call.executor
                    && life.born < call.sent + call.paused
                    && heard < life.born + life.paused
            }),
        }
    }

    fn end(&mut self, now: Nanos, call: usize, state: State) -> Call {
        let before = self.calls[call];
        (self.calls[call].state, self.calls[call].ended) = (state, now);
        if before.state != State::Open {
            self.violate("ends-once", now, || format!("call {call} ended again, {state:?}: {before:?}"));
        }
        before
    }

    /// Checks that a caller that was not stopped notices its deadline soon.
    pub fn deadline_kept(&mut self, now: Nanos, call: usize) {
        let c = self.calls[call];
        // The caller's clock may be slow.
        if c.deadline.is_some_and(|d| now > d + 50 * MILLIS + d.saturating_sub(c.started) / 8) {
            self.violate("deadline-kept", now, || format!("call {call} outlived its deadline: {c:?}"));
        }
    }

    /// Notes that a call's caller died.
    pub fn abandon(&mut self, call: usize) {
        if self.calls[call].state == State::Open {
            self.calls[call].state = State::Abandoned;
        }
    }

    /// Checks that every call to `server` that was started before `before` has ended. `None` stands for any
    /// server.
    pub fn all_ended(&mut self, rule: &'static str, now: Nanos, server: Option<usize>, before: Nanos) {
        let open = self.calls.iter().position(|c| {
            c.state == State::Open && c.started < before && server.is_none_or(|s| s == c.server)
        });
        if let Some(call) = open {
            let c = self.calls[call];
            self.violate(rule, now, || format!("call {call} has not ended: {c:?}"));
        }
    }

    /// Returns the counts of outcomes.
    pub fn outcomes(&self) -> Outcomes {
        let mut outcomes = self.counts;
        for call in &self.calls {
            *match call.state {
                State::Open | State::Abandoned => &mut outcomes.abandoned,
                State::Returned => &mut outcomes.returned,
                State::Failed(Ran::No) => &mut outcomes.no,
                State::Failed(Ran::Maybe) => &mut outcomes.maybe,
                State::Failed(Ran::Yes) => &mut outcomes.yes,
            } += 1;
        }
        outcomes
    }
}

/// Appends bytes to `out` until it has `length`: a sequence that `key` determines.
fn pattern(key: u64, length: usize, out: &mut Vec<u8>) {
    let mut word = mix(key ^ length as u64);
    while out.len() < length {
        let more = (length - out.len()).min(8);
        out.extend_from_slice(&word.to_le_bytes()[..more]);
        word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
    }
}

/// Returns whether `body` is what [`pattern`] appended.
fn is_pattern(key: u64, length: usize, body: &[u8]) -> bool {
    let mut word = mix(key ^ length as u64);
    body.chunks(8).all(|chunk| {
        let expected = word.to_le_bytes();
        word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        *chunk == expected[..chunk.len()]
    })
}
