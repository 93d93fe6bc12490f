//! Programs that a client serves on the connection by which it calls.

use std::sync::{Arc, OnceLock};

use super::caller::{Peer, Transport};
use super::crew::Crew;
use super::outgoing::Outgoing;
use super::programs::{Offer, Programs, Verdict};
use crate::client::link::{Back, Link};
use crate::wire::message::{BadCall, Call};
use crate::wire::record;

/// Programs, and the threads that serve them, once there is a call.
pub(crate) struct Answering {
    programs: Arc<Programs>,
    crew: OnceLock<Arc<Crew>>,
}

/// So many procedures run at once, at most.
const WORKERS: usize = 8;
/// So many more may wait for calls of their own.
const WAITING: usize = 64;

impl Answering {
    pub(crate) fn new(offers: Vec<Offer>) -> Answering {
        let mut programs = Programs::default();
        offers.into_iter().for_each(|offer| programs.add(offer));
        Answering { programs: Arc::new(programs), crew: OnceLock::new() }
    }
}

impl Back for Answering {
    fn take(&self, link: &Arc<Link>, message: Vec<u8>) {
        // What is none is not worth a thread.
        if let Err(BadCall::Unreadable(_)) = Call::parse(&message) {
            return;
        }
        let crew = self.crew.get_or_init(|| Crew::new(WORKERS, WAITING));
        let (link, programs) = (link.clone(), self.programs.clone());
        crew.submit(Box::new(move |_| serve(&programs, &link, &message)));
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Some(crew) = self.crew.get() {
            crew.stop();
        }
    }
}

/// Serves a call, and sends its reply.
fn serve(programs: &Programs, link: &Arc<Link>, message: &[u8]) {
    let peer = Peer { transport: Transport::Tcp, address: None, user: None, connection: None };
    let mut reply = Outgoing::default();
    let wanted = match programs.examine(message, &peer, &mut reply) {
        Verdict::Unreadable | Verdict::Drop => false,
        Verdict::Answered => true,
        Verdict::Run(admitted) => programs.run(admitted, &peer, None, &mut reply),
    };
    if !wanted {
        return;
    }
    let mut out = Vec::with_capacity(reply.len() + record::MARK);
    let at = record::begin(&mut out);
    reply.parts().iter().for_each(|part| out.extend_from_slice(part));
    if record::end(&mut out, at).is_ok() {
        // If the connection has ended nobody waits for it.
        let _ = link.send_only(&out);
    }
}
