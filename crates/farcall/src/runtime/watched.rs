//! Puts interceptors around an importer's channel. Without interceptors the channel stays as it is.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::Inner;
use crate::env::{Env, Time};
use crate::intercept::{self, Interceptors, Outcome};
use crate::stub::{Call, Channel, PendingCall, Reply, Sink};
use crate::wait::{ReadyList, WaitPoint};
use crate::{CallFailed, context};

/// Puts interceptors around a channel, if there are any.
pub(super) fn watched(inner: &Inner, interface: &str, channel: Arc<dyn Channel>) -> Arc<dyn Channel> {
    let interceptors = &inner.calls;
    if interceptors.is_empty() {
        return channel;
    }
    let watch =
        Watch { interceptors: interceptors.clone(), interface: interface.into(), env: inner.env.clone() };
    Arc::new(Watched { watch, channel })
}

#[derive(Clone)]
struct Watch {
    interceptors: Interceptors,
    interface: Arc<str>,
    env: Arc<dyn Env>,
}

struct Watched {
    watch: Watch,
    channel: Arc<dyn Channel>,
}

impl Watch {
    fn call<'a>(&'a self, procedure: &'a str) -> intercept::Call<'a> {
        intercept::Call::new(&self.interface, procedure, None, context::inherited().1)
    }

    /// Tells the interceptors how a call ended, after the sink has returned. Interceptors may make calls. A
    /// sink must not, because the reply may still lie in the shared receive buffer.
    fn end(&self, procedure: &str, since: Time, told: Option<Told>) {
        let outcome = match &told {
            Some(Told::Result) => Outcome::Result,
            Some(Told::Exception) => Outcome::Exception,
            Some(Told::Failed(why)) => Outcome::Failed(why),
            None => return,
        };
        self.interceptors.after(&self.call(procedure), outcome, self.env.now().since(since));
    }
}

/// How a call ended, without what it brought.
enum Told {
    Result,
    Exception,
    Failed(CallFailed),
}

impl Told {
    fn of(reply: &Reply<'_>) -> Told {
        match reply {
            Reply::Result(_) | Reply::ResultOf(..) => Told::Result,
            Reply::Exception(_) => Told::Exception,
            Reply::Failed(why) => Told::Failed(why.clone()),
        }
    }
}

impl Channel for Watched {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        let name = &call.procedure.name;
        if let Err(why) = self.watch.interceptors.before(&self.watch.call(name)) {
            return sink(Reply::Failed(why));
        }
        let since = self.watch.env.now();
        let mut told = None;
        self.channel.call(call, &mut |reply| {
            told = Some(Told::of(&reply));
            sink(reply);
        });
        self.watch.end(name, since, told);
    }

    fn post(&self, bytes: &[u8]) -> bool {
        self.channel.post(bytes)
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        if let Err(why) = self.watch.interceptors.before(&self.watch.call(call.procedure.name)) {
            return Box::new(why);
        }
        let (watch, procedure, since) = (self.watch.clone(), call.procedure.name, self.watch.env.now());
        Box::new(Flight { watch, procedure, since, call: self.channel.start(call) })
    }

    fn start_at(
        &self,
        call: Call<'_>,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        if let Err(why) = self.watch.interceptors.before(&self.watch.call(call.procedure.name)) {
            ready.token(member).mark_ready();
            return Box::new(why);
        }
        let (watch, procedure, since) = (self.watch.clone(), call.procedure.name, self.watch.env.now());
        let call = self.channel.start_at(call, wait_point, ready, member);
        Box::new(Flight { watch, procedure, since, call })
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        self.channel.wait_point()
    }
}

/// A started call. If it is detached or dropped, interceptors do not hear of its end, because nobody takes
/// the reply.
struct Flight {
    watch: Watch,
    procedure: &'static str,
    since: Time,
    call: Box<dyn PendingCall>,
}

impl Flight {
    /// Asks for the reply by `ask`, and tells the interceptors if it has come.
    fn tell(
        &mut self,
        sink: Sink<'_>,
        ask: impl FnOnce(&mut dyn PendingCall, Sink<'_>) -> Poll<()>,
    ) -> Poll<()> {
        let Flight { watch, procedure, since, call } = self;
        let mut told = None;
        let polled = ask(&mut **call, &mut |reply| {
            told = Some(Told::of(&reply));
            sink(reply);
        });
        watch.end(procedure, *since, told);
        polled
    }
}

impl PendingCall for Flight {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        let Flight { watch, procedure, since, call } = *self;
        let mut told = None;
        call.wait(&mut |reply| {
            told = Some(Told::of(&reply));
            sink(reply);
        });
        watch.end(procedure, since, told);
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        self.tell(sink, |call, sink| call.poll(context, sink))
    }

    fn wait_point(&self) -> Option<Arc<dyn WaitPoint>> {
        self.call.wait_point()
    }

    fn poll_at(
        &mut self,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
        sink: Sink<'_>,
    ) -> Poll<()> {
        self.tell(sink, |call, sink| call.poll_at(wait_point, ready, member, sink))
    }

    fn waits_for_itself(&self) -> bool {
        self.call.waits_for_itself()
    }

    fn cancel(&mut self) {
        self.call.cancel();
    }

    fn detach(self: Box<Self>) {
        self.call.detach();
    }

    fn detach_later(self: Box<Self>) {
        self.call.detach_later();
    }
}
