//! Started calls whose reply goes to a recipient as soon as it arrives, on the thread that receives it. They
//! have no result slot and no handle, so a call allocates nothing of its own.

use std::sync::Arc;
use std::task::Waker;

use farcall_proto::client::CallId;

use super::caller::Caller;
use super::owners::Owner;
use super::request::CallRequest;
use super::waiter::Watcher;
use super::{Endpoint, Peer};
use crate::stub::{Call, CallKey, NO_HANDLERS, Procedure, Recipient};
use crate::xdr::Encoder;
use crate::{CallFailed, Ran};

impl Endpoint {
    /// Starts a call whose arguments are encoded. Returns the call's key, or `None` if the call cannot be
    /// started.
    pub(crate) fn start_for(
        self: &Arc<Self>,
        peer: &Arc<Peer>,
        (export, procedure): (u64, &Procedure),
        arguments: &[u8],
        recipient: Arc<dyn Recipient>,
    ) -> Option<CallKey> {
        self.check_process().ok()?;
        let service = self.service().ok()?;
        // The length of encoded arguments is a multiple of four, so `opaque` adds no padding to them.
        let encode = |e: &mut Encoder<'_>| e.opaque(arguments);
        let (handlers, encode) = (&NO_HANDLERS, &encode);
        let call = Call {
            procedure,
            within: None,
            encode,
            shared: None,
            handlers,
            sending: None,
            carries: &[],
            hurries: false,
        };
        let request = CallRequest { call: &call, deadline: None, begin_by: None, trace: None };
        let owner = Owner::Recipient(recipient, Watcher::Nobody);
        let mut caller = Caller::take(&self.env);
        let begun = self.begin_owned(Some(service), peer, (export, &request), owner, &mut caller.tools);
        caller.keep();
        let (CallId { activity, sequence }, token) = begun.ok()?;
        Some(CallKey { activity, sequence, token })
    }

    /// Blocks until `done` returns true, which it does at the latest when the call has ended.
    pub(crate) fn wait_for(
        &self,
        peer: &Peer,
        call: CallKey,
        done: &dyn Fn() -> bool,
    ) -> Result<(), CallFailed> {
        if done() {
            return Ok(());
        }
        self.check_process()?;
        let mut caller = Caller::take_to_wait(&self.env).map_err(|why| why.but_ran(Ran::Maybe))?;
        let Caller { waiter, tools, .. } = &mut *caller;
        let mut attendance = self.attend(waiter);
        let watcher = if attendance.leads() { Watcher::Nobody } else { Watcher::Thread(waiter.clone()) };
        if self.watch(peer, identified(call), watcher) == Some(false) {
            self.send_unsent(tools);
        }
        attendance.until(tools, self.env.now(), done);
        drop(attendance);
        caller.keep();
        Ok(())
    }

    /// Makes the service thread receive soon, and wakes `waker` when the call has ended, unless it has
    /// ended already.
    pub(crate) fn watch_for(&self, peer: &Peer, call: CallKey, waker: Waker) {
        if self.watch(peer, identified(call), Watcher::Task(waker)).is_some() {
            self.hasten();
        }
    }
}

fn identified(call: CallKey) -> (CallId, u64) {
    (CallId { activity: call.activity, sequence: call.sequence }, call.token)
}
