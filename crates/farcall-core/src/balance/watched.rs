//! The channel of a member that a group call makes: notes what becomes of its calls.

use std::sync::Arc;
use std::task::Waker;

use super::started::Started;
use super::{Choice, Shared};
use crate::CallFailed;
use crate::env::{Env, Time};
use crate::stub::{Call, CarriedBy, Channel, Member, PendingCall, Reply, RestartHook, Sink};
use crate::wait::{ReadyList, WaitPoint};

pub(super) struct Watched {
    shared: Arc<Shared>,
    choices: Arc<[Choice]>,
    which: usize,
}

impl Watched {
    /// Returns a member whose calls are noted.
    pub fn member(shared: &Arc<Shared>, choices: &Arc<[Choice]>, which: usize) -> Member {
        let watched = Watched { shared: shared.clone(), choices: choices.clone(), which };
        choices[which].member.over(Arc::new(watched))
    }

    fn channel(&self) -> &Arc<dyn Channel> {
        self.choices[self.which].channel()
    }

    fn started(&self, start: impl FnOnce(&dyn Channel) -> Box<dyn PendingCall>) -> Box<dyn PendingCall> {
        Box::new(Started::start_at_member((&self.shared, &self.choices, self.which), start))
    }
}

impl Channel for Watched {
    fn call(&self, call: Call<'_>, sink: Sink<'_>) {
        let begun = self.shared.env.now();
        if let Some(why) = self.shared.call_at((&self.choices, self.which), begun, &call, sink) {
            sink(Reply::Failed(why));
        }
    }

    fn start(&self, call: Call<'_>) -> Box<dyn PendingCall> {
        self.started(|channel| channel.start(call))
    }

    fn start_at(
        &self,
        call: Call<'_>,
        wait_point: &Arc<dyn WaitPoint>,
        ready: &ReadyList,
        member: u32,
    ) -> Box<dyn PendingCall> {
        self.started(|channel| channel.start_at(call, wait_point, ready, member))
    }

    fn on_restart(&self, hook: RestartHook) -> Result<(), CallFailed> {
        self.channel().on_restart(hook)
    }

    fn post(&self, bytes: &[u8]) -> bool {
        self.channel().post(bytes)
    }

    fn silence(&self) -> Option<CallFailed> {
        self.channel().silence()
    }

    fn is_asked(&self) -> bool {
        self.channel().is_asked()
    }

    fn suspect(&self) {
        self.channel().suspect();
    }

    fn lacks(&self, procedure: u32) -> bool {
        self.channel().lacks(procedure)
    }

    fn env(&self) -> Arc<dyn Env> {
        self.channel().env()
    }

    fn may_wait(&self) -> Result<(), CallFailed> {
        self.channel().may_wait()
    }

    fn carried_by(&self) -> CarriedBy {
        self.channel().carried_by()
    }

    fn wait_point(&self) -> Arc<dyn WaitPoint> {
        self.channel().wait_point()
    }

    fn wake_at(&self, time: Time, waker: &Waker) -> bool {
        self.channel().wake_at(time, waker)
    }
}
