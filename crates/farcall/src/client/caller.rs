//! What a thread needs to call, kept from one call to the next, and whether it may wait.

use std::cell::Cell;
use std::sync::Arc;

use super::Peer;
use super::waiter::{Waiter, Wakes};
use crate::env::Env;
use crate::receive_buffers::ReceiveBuffers;
use crate::{CallFailed, Kind, Ran, depart};

/// What a thread needs to call, kept from one call to the next.
pub(super) struct Caller {
    env: Arc<dyn Env>,
    pub(super) waiter: Arc<Waiter>,
    pub(super) tools: Tools,
    /// The thread was in a call already.
    nested: bool,
}

/// What sending and receiving need.
pub(super) struct Tools {
    /// Room for datagrams that leave.
    pub(super) out: Box<[u8]>,
    /// Room for the arguments of the next call.
    pub(super) arguments: Vec<u8>,
    /// How long the last arguments were that the thread called with.
    pub(super) usual_arguments: usize,
    /// Room for what arrives, once the thread has led.
    pub(super) buffer: Box<[u8]>,
    /// Earlier receive buffers, which results that came in them share.
    pub(super) shared_buffers: ReceiveBuffers,
    pub(super) wakes: Wakes,
    /// Room for the peers whose calls are sent.
    pub(super) peers: Vec<Arc<Peer>>,
}

impl Tools {
    pub(super) fn new() -> Tools {
        Tools {
            out: vec![0; depart::ROOM].into_boxed_slice(),
            arguments: Vec::new(),
            usual_arguments: 0,
            buffer: Box::default(),
            shared_buffers: ReceiveBuffers::default(),
            wakes: Wakes::default(),
            peers: Vec::new(),
        }
    }
}

thread_local! {
    static CALLER: Cell<Option<Box<Caller>>> = const { Cell::new(None) };
    /// There is a caller of this thread: if not in `CALLER`, then in a call.
    static KNOWN: Cell<bool> = const { Cell::new(false) };
}

impl Caller {
    /// This thread's; a new one if it has none for this environment, or is in a call already (a
    /// waker, or a type's decoding, that starts a call).
    #[inline(always)]
    pub(super) fn take(env: &Arc<dyn Env>) -> Box<Caller> {
        match CALLER.try_with(Cell::take) {
            Ok(Some(caller)) if Arc::ptr_eq(&caller.env, env) => caller,
            Ok(other) => {
                drop(other);
                let nested = KNOWN.try_with(|known| known.replace(true)).unwrap_or(false);
                Caller::new(env, nested)
            }
            Err(_) => Caller::new(env, false),
        }
    }

    /// Takes the thread's caller in order to wait. A thread that is in a call already may be the one that
    /// receives for all others: if it waited in a second call, nobody would receive any more.
    #[inline(always)]
    pub(super) fn take_to_wait(env: &Arc<dyn Env>) -> Result<Box<Caller>, CallFailed> {
        crate::serving::may_wait()?;
        let caller = Caller::take(env);
        if !caller.nested {
            return Ok(caller);
        }
        let why =
            "no call can be waited for in a waker, or while a value is encoded or decoded: start it there";
        Err(CallFailed::new(Kind::Local, Ran::No).because(why))
    }

    /// As if this thread were in a call for ever: it receives for others, so that their wakers must not wait
    /// in it.
    pub(super) fn never_waits() {
        KNOWN.set(true);
    }

    /// Whether its thread was in a call already: it must not wait.
    #[inline(always)]
    pub(super) fn is_nested(&self) -> bool {
        self.nested
    }

    fn new(env: &Arc<dyn Env>, nested: bool) -> Box<Caller> {
        Box::new(Caller { env: env.clone(), waiter: Waiter::new(&**env), tools: Tools::new(), nested })
    }

    /// Keeps it for the thread's next call.
    #[inline(always)]
    pub(super) fn keep(self: Box<Self>) {
        if !self.nested {
            // Where the thread is ending it is dropped.
            let _ = CALLER.try_with(|place| place.set(Some(self)));
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.nested {
            let _ = KNOWN.try_with(|known| known.set(false));
        }
    }
}
