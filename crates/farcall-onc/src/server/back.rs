//! Lets a client serve programs to its server, on the connection by which it calls the server.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use farcall::workers::{Jobs, Threads};
use farcall::{room, serving};

use super::outgoing::Outgoing;
use super::peer::{Peer, Transport};
use super::programs::{Offer, Programs};
use crate::client::Builder;
use crate::client::link::{Back, Link};
use crate::wire::message::{Accepted, BadCall, Call};
use crate::wire::record;

impl Builder {
    /// Serves these programs to the server, which can call them on the same connection (TCP or a Unix
    /// socket).
    #[must_use]
    pub fn serve(self, offers: Vec<Offer>) -> Builder {
        self.back(Arc::new(Answering::new(offers)))
    }
}

/// The client's programs, and the threads that serve them. The threads are started at the server's first
/// call.
struct Answering {
    programs: Arc<Programs>,
    jobs: OnceLock<Arc<Jobs>>,
    load: Arc<Mutex<Load>>,
}

/// The most procedures that run at once, not counting procedures that wait in remote calls of their own.
const WORKERS: usize = 8;
/// The most procedures that wait in remote calls of their own.
const MAX_WAITING: usize = 64;
/// The most calls that are accepted and not answered yet, and the most bytes of these calls. A call beyond
/// either limit is answered with SYSTEM_ERR. A call is always accepted if it is the only one.
const MAX_LOAD: Load = Load { calls: 1024, bytes: 16 << 20 };

impl Answering {
    fn new(offers: Vec<Offer>) -> Answering {
        let mut programs = Programs::default();
        offers.into_iter().for_each(|offer| programs.add(offer));
        Answering { programs: Arc::new(programs), jobs: OnceLock::new(), load: Arc::default() }
    }
}

impl Back for Answering {
    fn take(&self, link: &Arc<Link>, message: Vec<u8>) {
        let xid = match Call::parse(&message) {
            Ok((call, _)) => call.xid,
            Err(BadCall::Refused { xid, .. }) => xid,
            // A message that is no call is ignored.
            Err(BadCall::Unreadable(_)) => return,
        };
        let Some(taken) = Taken::new(&self.load, message.len()) else {
            let mut reply = Outgoing::default();
            reply.accepted(xid, None, Accepted::SystemErr);
            return send(link, xid, &reply);
        };
        let jobs = self.jobs.get_or_init(|| {
            let budget = Threads::besides_waiting(WORKERS, MAX_WAITING);
            Jobs::new(link.env().clone(), "onc-worker", budget, usize::MAX)
        });
        let member = jobs.member();
        let (link, programs) = (link.clone(), self.programs.clone());
        // If no thread can be started, the call gets no reply, as if the connection had ended.
        let _ = jobs.submit(Box::new(move || {
            serving::serve_elsewhere(Some(member));
            serve(&programs, &link, (xid, &message));
            drop(taken);
        }));
    }
}

/// The calls that were accepted and have not been answered.
#[derive(Clone, Copy, Default)]
struct Load {
    calls: usize,
    bytes: usize,
}

/// A call that was accepted. It counts in the load until this value is dropped.
struct Taken {
    load: Arc<Mutex<Load>>,
    bytes: usize,
}

impl Taken {
    /// Accepts a call of this length, unless the load would exceed [`MAX_LOAD`].
    fn new(load: &Arc<Mutex<Load>>, bytes: usize) -> Option<Taken> {
        let mut all = lock(load);
        let more = Load { calls: all.calls + 1, bytes: all.bytes + bytes };
        if all.calls > 0 && (more.calls > MAX_LOAD.calls || more.bytes > MAX_LOAD.bytes) {
            return None;
        }
        *all = more;
        Some(Taken { load: load.clone(), bytes })
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut all = lock(&self.load);
        *all = Load { calls: all.calls - 1, bytes: all.bytes - self.bytes };
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(jobs) = self.jobs.get() {
            jobs.stop();
        }
    }
}

/// Serves a call and sends its reply.
fn serve(programs: &Programs, link: &Arc<Link>, (xid, message): (u32, &[u8])) {
    let peer = Peer::at(Transport::Tcp, None);
    let mut reply = Outgoing::default();
    if programs.answer(message, &peer, &mut reply) {
        send(link, xid, &reply);
    }
}

/// Sends the reply to a call, or that the call failed if this process has no memory for the reply.
fn send(link: &Arc<Link>, xid: u32, reply: &Outgoing) {
    let (mut out, mut failed) = (Vec::new(), Outgoing::default());
    let reply = match room::reserve_exact(&mut out, reply.len() + record::MARK) {
        Ok(()) => reply,
        Err(_) => {
            failed.accepted(xid, None, Accepted::SystemErr);
            &failed
        }
    };
    let at = record::begin(&mut out);
    reply.parts().iter().for_each(|part| out.extend_from_slice(part));
    if record::end(&mut out, at).is_ok() {
        // If the connection has ended, the server no longer waits for the reply, so the error is ignored.
        let _ = link.send_only(&out);
    }
}

fn lock(load: &Mutex<Load>) -> MutexGuard<'_, Load> {
    load.lock().unwrap_or_else(PoisonError::into_inner)
}
