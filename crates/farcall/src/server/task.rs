//! A call that is executed as a future, by an executor that the exporter chose.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use farcall_proto::secure;
use farcall_proto::server::{Finish, Transmit};

use super::Server;
use super::exchanges::ServedExchanges;
use super::exported::Exported;
use super::finish::{finish, unless_late};
use super::reply_to::Back;
use crate::context::{self, CallServer as _, Incoming};
use crate::depart;
use crate::env::Time;
use crate::notice::Notice;
use crate::stub::{AsyncDispatched, Dispatched, panicked};
use crate::{CallFailed, Kind, Principal, Ran, guard};

/// A call that is being executed as a future.
pub(super) struct Serving {
    pub(super) server: Arc<Server>,
    pub(super) exported: Arc<Exported>,
    /// The procedure's place in the interface.
    pub(super) which: usize,
    pub(super) call: Incoming,
    /// Who calls, if the caller has proven that.
    pub(super) principal: Option<Arc<Principal>>,
    pub(super) since: Time,
    /// Whether the future was polled.
    pub(super) begun: bool,
    /// `None` once the call has ended.
    pub(super) future: Option<AsyncDispatched>,
    /// Where the outcome goes, if the call did not come by the socket.
    pub(super) back: Option<Arc<dyn Back>>,
    /// Tells that the caller has given the call up; made when the future is first pending.
    pub(super) teller: Teller,
}

/// What tells a task that its call was given up.
#[derive(Default)]
pub(super) enum Teller {
    #[default]
    Nothing,
    Notice(Arc<Notice>),
    /// The news of a call that has exchanges and no deadline.
    News(Arc<ServedExchanges>),
}

impl Teller {
    fn is_told(&self) -> bool {
        match self {
            Teller::Nothing => false,
            Teller::Notice(notice) => notice.is_told(),
            Teller::News(news) => news.is_given_up(),
        }
    }
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(mut future) = self.future.take() else { return Poll::Ready(()) };
        if self.teller.is_told() {
            self.give_up(future);
            return Poll::Ready(());
        }
        // The executor may have let the call wait.
        if !std::mem::replace(&mut self.begun, true)
            && let Err(why) = self.exported.check_admits(self.call.fence)
        {
            self.end(Dispatched::Failed(why), Vec::new());
            self.drop_future(future);
            return Poll::Ready(());
        }
        let polled = {
            let _serving = context::enter_task(self.server.clone(), self.call, self.principal.clone());
            guard::run(|| future.as_mut().poll(cx))
        };
        let (dispatched, reply) = match polled {
            Ok(Poll::Pending) if self.watch(cx) => {
                self.give_up(future);
                return Poll::Ready(());
            }
            Ok(Poll::Pending) => {
                self.future = Some(future);
                return Poll::Pending;
            }
            Ok(Poll::Ready(ended)) => ended,
            Err(panic) => (Dispatched::Failed(panicked(panic)), Vec::new()),
        };
        self.end(dispatched, reply);
        self.drop_future(future);
        Poll::Ready(())
    }
}

impl Serving {
    /// Drops the user's future. This comes last, because the drop may panic.
    fn drop_future(&self, future: AsyncDispatched) {
        let _serving = context::enter_task(self.server.clone(), self.call, self.principal.clone());
        guard::run_alone("the drop of an async procedure", || drop(future));
    }

    /// Makes sure that the task is woken when its call is given up. Returns whether it was given up already.
    fn watch(&mut self, cx: &Context<'_>) -> bool {
        match &self.teller {
            Teller::Nothing => {}
            Teller::Notice(notice) => {
                notice.watch(cx.waker());
                return notice.is_told();
            }
            Teller::News(news) => return news.watch_call(cx.waker()),
        }
        let facts = &self.exported.known(self.which).facts;
        if facts.uncancelled {
            return false;
        }
        let may_have_news = facts.exchanges && self.call.deadline.is_none();
        let news = if may_have_news { self.server.news_of(self.call.key) } else { None };
        if let Some(news) = news {
            news.watch_call(cx.waker());
            self.teller = Teller::News(news);
        } else {
            let notice = Notice::new(self.call.deadline);
            notice.watch(cx.waker());
            self.server.notify(self.call.key, &notice);
            self.teller = Teller::Notice(notice);
        }
        self.server.is_cancelled(self.call.key)
    }

    /// Ends a call that its caller has given up, and drops the procedure's future.
    fn give_up(&self, future: AsyncDispatched) {
        let kind = self.server.given_up(&self.call).unwrap_or(Kind::Cancelled);
        let why = CallFailed::new(kind, Ran::Maybe);
        self.end(Dispatched::Failed(why), Vec::new());
        self.drop_future(future);
    }

    fn end(&self, dispatched: Dispatched, reply: Vec<u8>) {
        if let Teller::Notice(notice) = &self.teller {
            context::CallServer::forget(&*self.server, self.call.key, notice);
        }
        let known = self.exported.known(self.which);
        let now = self.server.now();
        let dispatched = unless_late(&self.call, now, dispatched);
        known.count(&dispatched, || self.server.given_up(&self.call));
        known.ran(now.since(self.since));
        match &self.back {
            Some(back) => {
                back.give_back(self.call.key, finish(dispatched), reply);
            }
            None => self.server.give_back(now, self.call, finish(dispatched), reply),
        }
        self.server.forget(self.call.key);
        if known.facts.exchanges {
            self.server.end_exchanges(self.call.key);
        }
        self.exported.end();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let Some(future) = self.future.take() else { return };
        self.drop_future(future);
        let why = CallFailed::new(Kind::Other, Ran::Maybe).because("the server's executor dropped it");
        self.end(Dispatched::Failed(why), Vec::new());
    }
}

impl Server {
    /// Returns why the caller of a call takes no result any more, if it does not.
    #[cold]
    pub(super) fn given_up(&self, call: &Incoming) -> Option<Kind> {
        // A client cancels a call at its deadline. Its word may come a little before the server's own clock
        // is there.
        const EARLY: Duration = Duration::from_millis(20);
        if call.is_late(self.now() + EARLY) && (call.is_late(self.now()) || self.is_cancelled(call.key)) {
            return Some(Kind::Deadline);
        }
        self.is_cancelled(call.key).then_some(Kind::Cancelled)
    }

    /// Sends the outcome of a call that no worker executes.
    pub(super) fn give_back(&self, now: Time, call: Incoming, finish: Finish, mut reply: Vec<u8>) {
        let mut out = OUT.take().unwrap_or_else(|| vec![0; depart::ROOM].into_boxed_slice());
        let (sent, alarm, admitted) = {
            let mut core = self.lock();
            let sent = core.protocol.finish(now, call.key, finish, &mut reply, &mut out);
            (sent, core.alarm(), core.admit())
        };
        if alarm {
            self.watchdog.set();
        }
        if admitted {
            self.socket.wake();
        }
        // An outcome that fits one datagram is in `out`. Of a longer one, `flush` sends as many fragments as
        // the protocol allows now.
        match sent {
            // A datagram that the system refuses is lost, like any other.
            Some(Transmit { to, len, cipher, .. }) => {
                secure::seal_by(&cipher, &mut out[..len]);
                drop(self.socket.send(to, &out[..len]))
            }
            None => self.flush(&mut out),
        }
        OUT.set(Some(out));
    }
}

thread_local! {
    /// This thread's buffer for datagrams to send, kept from one call to the next.
    static OUT: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}
