//! Stops taking calls without losing one: withdraws names, tells the clients, finishes what has begun, and
//! answers what still comes until nothing comes any more (docs/protocol.md, section 5.8).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use farcall_core::broken::Rule;
use farcall_core::env::breaks;
use farcall_proto::{MAX_DATAGRAM, Time};

use super::Server;
use super::exported::Exported;

/// A server that drains ends a stream of which nothing has passed for this long.
const QUIET_STREAM: Duration = Duration::from_millis(100);

/// A drain ends when no new call has come for this long. A client whose call was lost sends it again sooner
/// on a local network.
const QUIET: Duration = Duration::from_millis(100);

/// How long that is if a client has lately lacked the outcome of a call: then the network loses datagrams,
/// and a client may ask several times before the server hears it. It asks again at first after some 20 ms,
/// and at last every second, but seldom that late.
const LOSSY_QUIET: Duration = Duration::from_secs(1);

/// How long ago that may be.
const LATELY: Duration = Duration::from_secs(2);

/// How often all clients are told meanwhile: a word may be lost.
const ROUNDS: u32 = 3;
const LOSSY_ROUNDS: u32 = 8;

/// Tells the callers by a carrier that the server takes no more calls of an export, or of any.
pub(crate) type DrainTeller = Box<dyn Fn(Option<u64>) + Send + Sync>;

impl Server {
    /// Has the callers by another carrier than the server's socket told of drains, from now on.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    pub(crate) fn tell_drains_by(&self, tell: DrainTeller) {
        let _ = self.drain_teller.set(tell);
    }

    /// Refuses every new call, of one export or of all, and waits at most `time` until all calls that have
    /// begun are finished and no more come. Returns whether those that have begun are finished.
    pub(crate) fn drain(&self, export: Option<&Arc<Exported>>, time: Duration) -> bool {
        let end = self.now() + time;
        let exports = self.stop_taking(export);
        let id = export.map(|exported| exported.id);
        let is_idle = |time| {
            let end = self.now() + time;
            exports.iter().all(|exported| exported.wait_idle(&*self.env, end.since(self.now())))
        };
        self.drain_teller.get().into_iter().for_each(|tell| tell(id));
        self.tell_drain(id);
        if breaks(Rule::DrainWaits, || self.env.clone()) {
            return true;
        }
        let finished = self.finish_begun(id, end, is_idle);
        self.wait_quiet(id, end);
        // Calls that came meanwhile were refused, but one may have begun just before.
        let finished = finished && is_idle(Duration::ZERO);
        if let Some(id) = id {
            self.lock().protocol.end_drain(id);
        }
        finished
    }

    /// Withdraws the names, and refuses further calls. Returns the exports that drain.
    fn stop_taking(&self, export: Option<&Arc<Exported>>) -> Vec<Arc<Exported>> {
        let exports: Vec<_> = match export {
            Some(exported) => vec![exported.clone()],
            None => self.read_offers().exports.iter().cloned().collect(),
        };
        // The names are withdrawn first, so that no caller finds an export that is gone.
        exports.iter().for_each(|exported| exported.unlist());
        let now = self.now();
        if let Some(exported) = export {
            self.write_offers().drain(exported.id);
            let mut core = self.lock();
            core.protocol.drain(now, Some(exported.id));
            core.exports.remove(exported.id);
        } else {
            self.write_offers().draining = true;
            self.kernel().into_iter().for_each(|kernel| kernel.stop());
            self.lock().protocol.drain(now, None);
        }
        exports
    }

    /// Tells every client once that it should call no more.
    fn tell_drain(&self, export: Option<u64>) {
        self.lock().protocol.tell_drain(export);
        self.flush(&mut vec![0; MAX_DATAGRAM]);
    }

    /// Waits by `is_idle` until `end` for the calls that have begun. Meanwhile ends the calls of an export,
    /// or of all, whose results are streams that have no items to send.
    fn finish_begun(&self, export: Option<u64>, end: Time, is_idle: impl Fn(Duration) -> bool) -> bool {
        let mut seen = HashMap::new();
        loop {
            let left = end.since(self.now());
            if is_idle(left.min(QUIET_STREAM)) {
                return true;
            }
            if left <= QUIET_STREAM {
                return false;
            }
            self.end_quiet_streams(export, &mut seen);
        }
    }

    /// Waits until no new call has come for a while, at most until `end`, and repeats the word to the
    /// clients.
    fn wait_quiet(&self, export: Option<u64>, end: Time) {
        let pause = self.env.event();
        // The last call that had begun has just ended, and its result may be lost.
        let (ended, mut rounds) = (self.now(), 1);
        loop {
            let now = self.now();
            let (refused, asked) = {
                let protocol = &self.lock().protocol;
                (protocol.last_refused(), protocol.last_asked())
            };
            let is_lossy = asked != Time::default() && now.since(asked) < LATELY;
            let (quiet, most) = if is_lossy { (LOSSY_QUIET, LOSSY_ROUNDS) } else { (QUIET, ROUNDS) };
            let last = refused.max(asked).max(self.read_offers().last_refused()).max(ended);
            let left = (last + quiet).since(now).min(end.since(now));
            if left.is_zero() {
                return;
            }
            pause.wait(Some(left.min(quiet / most)));
            if rounds < most {
                rounds += 1;
                self.tell_drain(export);
            }
        }
    }
}
