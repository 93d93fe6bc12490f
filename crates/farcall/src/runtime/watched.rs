//! Puts interceptors around an importer's channel. If there are none, the channel stays as it is.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::Inner;
use crate::env::{Env, Time};
use crate::exchange::Exchanges;
use crate::intercept::{self, Interceptors, Outcome};
use crate::stub::{Call, CarriedBy, Channel, OpenCall, PendingCall, Reply, RestartHook, Sink};
use crate::wait::{ReadyList, WaitPoint};
use crate::{CallFailed, context};

/// Puts interceptors around a channel. Returns the channel itself if there are none.
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

    /// Tells the interceptors that a call begins. Returns the time, or the failure with which an interceptor
    /// refuses the call.
    fn begin(&self, procedure: &str) -> Result<Time, CallFailed> {
        self.interceptors.before(&self.call(procedure))?;
        Ok(self.env.now())
    }

    /// Runs `ask`. If `ask` gives the reply to its sink, then tells the interceptors how the call ended. This
    /// happens after the sink has returned, because interceptors may make calls, and a sink must not: the
    /// reply may still lie in the receive buffer.
    fn tell_end<R>(
        &self,
        procedure: &'static str,
        since: Time,
        sink: Sink<'_>,
        ask: impl FnOnce(Sink<'_>) -> R,
    ) -> R {
        // `Ok(true)` is a result, `Ok(false)` an exception.
        let mut ended: Option<Result<bool, CallFailed>> = None;
        let asked = ask(&mut |reply| {
            ended = match &reply {
                Reply::Result(_) | Reply::ResultOf(..) => Some(Ok(true)),
                Reply::Exception(_) => Some(Ok(false)),
                Reply::Failed(why) => Some(Err(why.clone())),
                // The call goes on. The stream that is its result reports its end.
                Reply::Stream(_) => None,
            };
            sink(match reply {
                Reply::Stream(call) => {
                    Reply::Stream(Box::new(WatchedStream { watch: self.clone(), procedure, since, call }))
                }
                ended => ended,
            });
        });
        let outcome = match &ended {
            Some(Ok(true)) => Outcome::Result,
            Some(Ok(false)) => Outcome::Exception,
            Some(Err(why)) => Outcome::Failed(why),
            None => return asked,
        };
        self.interceptors.after(&self.call(procedure), outcome, self.env.now().since(since));
        asked
    }
}

impl Channel for Watched {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        let name = call.procedure.name;
        match self.watch.begin(name) {
            Ok(since) => self.watch.tell_end(name, since, sink, |sink| self.channel.call(call, sink)),
            Err(why) => sink(Reply::Failed(why)),
        }
    }

    fn on_restart(&self, hook: RestartHook) -> Result<(), CallFailed> {
        self.channel.on_restart(hook)
    }

    fn silence(&self) -> Option<CallFailed> {
        self.channel.silence()
    }

    fn is_asked(&self) -> bool {
        self.channel.is_asked()
    }

    fn wake_at(&self, time: Time, waker: &Waker) -> bool {
        self.channel.wake_at(time, waker)
    }

    fn suspect(&self) {
        self.channel.suspect();
    }

    fn lacks(&self, procedure: u32) -> bool {
        self.channel.lacks(procedure)
    }

    fn env(&self) -> Arc<dyn Env> {
        self.channel.env()
    }

    fn may_wait(&self) -> Result<(), CallFailed> {
        self.channel.may_wait()
    }

    fn carried_by(&self) -> CarriedBy {
        // Interceptors may block.
        CarriedBy::Blocking
    }

    fn post(&self, bytes: &[u8]) -> bool {
        self.channel.post(bytes)
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        let (watch, procedure) = (self.watch.clone(), call.procedure.name);
        match watch.begin(procedure) {
            Ok(since) => Box::new(WatchedCall { watch, procedure, since, call: self.channel.start(call) }),
            Err(why) => Box::new(why),
        }
    }

    fn start_at(
        &self,
        call: Call<'_>,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        let (watch, procedure) = (self.watch.clone(), call.procedure.name);
        match watch.begin(procedure) {
            Ok(since) => {
                let call = self.channel.start_at(call, wait_point, ready, member);
                Box::new(WatchedCall { watch, procedure, since, call })
            }
            Err(why) => {
                ready.token(member).mark_ready();
                Box::new(why)
            }
        }
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        self.channel.wait_point()
    }
}

/// A call whose result is a stream. If this is dropped, interceptors are not told of the call's end.
struct WatchedStream {
    watch: Watch,
    procedure: &'static str,
    since: Time,
    call: Box<dyn OpenCall>,
}

impl OpenCall for WatchedStream {
    fn exchanges(&self) -> Arc<dyn Exchanges> {
        self.call.exchanges()
    }

    fn stream(&self) -> u32 {
        self.call.stream()
    }

    fn sends(&self) -> bool {
        self.call.sends()
    }

    fn attend(&mut self, context: &mut Context<'_>) {
        self.call.attend(context);
    }

    fn finish(self: Box<Self>, sink: Sink<'_>) {
        let WatchedStream { watch, procedure, since, call } = *self;
        watch.tell_end(procedure, since, sink, |sink| call.finish(sink));
    }

    fn poll_finish(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let WatchedStream { watch, procedure, since, call } = self;
        watch.tell_end(procedure, *since, sink, |sink| call.poll_finish(context, sink))
    }
}

/// A started call. If it is detached or dropped, interceptors are not told of its end, because no caller
/// takes the reply.
struct WatchedCall {
    watch: Watch,
    procedure: &'static str,
    since: Time,
    call: Box<dyn PendingCall>,
}

impl PendingCall for WatchedCall {
    fn wait(self: Box<Self>, sink: Sink<'_>) {
        let WatchedCall { watch, procedure, since, call } = *self;
        watch.tell_end(procedure, since, sink, |sink| call.wait(sink));
    }

    fn poll(&mut self, context: &mut Context<'_>, sink: Sink<'_>) -> Poll<()> {
        let WatchedCall { watch, procedure, since, call } = self;
        watch.tell_end(procedure, *since, sink, |sink| call.poll(context, sink))
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
        let WatchedCall { watch, procedure, since, call } = self;
        watch.tell_end(procedure, *since, sink, |sink| call.poll_at(wait_point, ready, member, sink))
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
