//! The buffers that a thread keeps from one call to the next, and whether the thread may wait.

use std::cell::Cell;
use std::sync::Arc;

use farcall_proto::secure::Opened;

use super::Peer;
use super::waiter::{Waiter, Wakes};
use crate::env::Env;
use crate::receive_buffers::ReceiveBuffers;
use crate::{CallFailed, Kind, Ran, depart};

/// A thread's tools for calls, which the thread keeps from one call to the next.
pub(super) struct Caller {
    env: Arc<dyn Env>,
    pub(super) waiter: Arc<Waiter>,
    pub(super) tools: Tools,
    /// Whether the thread was in another call already when it took this.
    nested: bool,
}

/// The buffers for sending and receiving.
pub(super) struct Tools {
    /// The buffer for datagrams to send.
    pub(super) out: Box<[u8]>,
    /// The buffer for the arguments of the next call.
    pub(super) arguments: Vec<u8>,
    /// The length of the thread's last arguments, in bytes.
    pub(super) usual_arguments: usize,
    /// The receive buffer; empty until the thread leads for the first time.
    pub(super) buffer: Box<[u8]>,
    /// A spare list for what is known of the seals of the datagrams in `buffer`.
    pub(super) opened: Vec<Option<Opened>>,
    /// Earlier receive buffers, which results share.
    pub(super) shared_buffers: ReceiveBuffers,
    pub(super) wakes: Wakes,
    /// A spare list for the peers whose queued calls are being sent.
    pub(super) peers: Vec<Arc<Peer>>,
}

impl Tools {
    pub(super) fn new() -> Tools {
        Tools {
            out: vec![0; depart::ROOM].into_boxed_slice(),
            arguments: Vec::new(),
            usual_arguments: 0,
            buffer: Box::default(),
            opened: Vec::new(),
            shared_buffers: ReceiveBuffers::default(),
            wakes: Wakes::default(),
            peers: Vec::new(),
        }
    }
}

thread_local! {
    static CALLER: Cell<Option<Box<Caller>>> = const { Cell::new(None) };
    /// Whether this thread has made a [`Caller`], which is then in `CALLER` or in use by a call.
    static KNOWN: Cell<bool> = const { Cell::new(false) };
}

impl Caller {
    /// Takes the thread's caller. Returns a new one if the thread has none for this environment. Also returns
    /// a new one if the thread is in a call already, because a waker or a type's decoding may start another
    /// call.
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

    /// Takes the thread's caller for a call that waits. Refuses if the thread is in a call already, because
    /// the thread may be receiving for all others, and no thread would receive while it waits.
    #[inline(always)]
    pub(super) fn take_to_wait(env: &Arc<dyn Env>) -> Result<Box<Caller>, CallFailed> {
        crate::serving::may_wait()?;
        let caller = Caller::take(env);
        if !caller.nested {
            return Ok(caller);
        }
        let why =
            "a waker, or code that encodes or decodes a value, must not wait for a call; it can start one";
        Err(CallFailed::new(Kind::Local, Ran::No).because(why))
    }

    /// Marks this thread as being in a call for ever. The service thread does this, because it receives for
    /// others. A waker that it runs then gets an error if it tries to wait for a call.
    pub(super) fn never_waits() {
        KNOWN.set(true);
    }

    /// Returns whether the thread was in a call already. Then it must not wait.
    #[inline(always)]
    pub(super) fn is_nested(&self) -> bool {
        self.nested
    }

    fn new(env: &Arc<dyn Env>, nested: bool) -> Box<Caller> {
        Box::new(Caller { env: env.clone(), waiter: Waiter::new(&**env), tools: Tools::new(), nested })
    }

    /// Puts the caller back for the thread's next call.
    #[inline(always)]
    pub(super) fn keep(self: Box<Self>) {
        if !self.nested {
            // If the thread is ending, the caller is dropped.
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
