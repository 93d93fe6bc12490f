//! Encoded arguments that several calls share, and the budget of all arguments that unfinished calls keep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::lock;

/// Arguments of at most this many bytes are not counted, because the number of outstanding calls is bounded.
pub const MAX_UNCOUNTED_ARGUMENT_BYTES: usize = 2 << 10;

/// The bytes of the arguments that unfinished calls may keep, by default.
const DEFAULT_BYTES: usize = 512 << 20;

/// The bytes of the arguments that all unfinished calls of a runtime keep together. Only arguments longer
/// than [`MAX_UNCOUNTED_ARGUMENT_BYTES`] count.
///
/// The budget is a pool: a server's unfinished calls may keep as much as the budget then leaves free. So hung
/// servers use up what they hold, and every other server still has as much as each of them.
#[derive(Debug)]
pub struct ArgumentBudget {
    limit: usize,
    used: AtomicUsize,
}

impl Default for ArgumentBudget {
    fn default() -> ArgumentBudget {
        ArgumentBudget::new(DEFAULT_BYTES)
    }
}

impl ArgumentBudget {
    /// Returns the budget that all clients of this process share which have no runtime.
    pub fn of_process() -> Arc<ArgumentBudget> {
        static SHARED: OnceLock<Arc<ArgumentBudget>> = OnceLock::new();
        SHARED.get_or_init(Arc::default).clone()
    }

    /// Returns a budget of this many bytes.
    pub const fn new(limit: usize) -> ArgumentBudget {
        ArgumentBudget { limit, used: AtomicUsize::new(0) }
    }

    /// Returns the size of the budget in bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns how many bytes are used now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns whether the calls to a server may keep `len` more bytes, if they keep `held` bytes already.
    /// `shared` are these arguments, if other calls may keep them too. Short arguments are always admitted.
    /// So are the only counted arguments of a server, whatever their length.
    pub fn admits(&self, held: usize, len: usize, shared: Option<&SharedArguments>) -> bool {
        if len <= MAX_UNCOUNTED_ARGUMENT_BYTES || held == 0 {
            return true;
        }
        let added = if shared.is_some_and(SharedArguments::is_counted) { 0 } else { len };
        held.saturating_add(len) <= self.limit.saturating_sub(self.used().saturating_add(added))
    }

    /// Counts bytes, which the caller [gives back](ArgumentBudget::give_back).
    #[inline]
    pub fn take(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives back bytes that were counted.
    #[inline]
    pub fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Encoded arguments that several calls share: those of a group call, and of a call that is made again. They
/// are counted once in a budget, from when a call first keeps them until the last call has ended.
#[derive(Debug)]
pub struct SharedArguments {
    bytes: Vec<u8>,
    counted: OnceLock<Counted>,
}

impl SharedArguments {
    /// Returns arguments that no call keeps yet.
    pub fn new(bytes: Vec<u8>) -> Arc<SharedArguments> {
        Arc::new(SharedArguments { bytes, counted: OnceLock::new() })
    }

    /// Returns the encoded arguments.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Counts the arguments in a budget, unless they are counted already.
    pub fn count_in(&self, budget: &Arc<ArgumentBudget>) {
        let bytes = self.bytes.len();
        if bytes > MAX_UNCOUNTED_ARGUMENT_BYTES {
            self.counted.get_or_init(|| Counted::new(budget, bytes));
        }
    }

    fn is_counted(&self) -> bool {
        self.counted.get().is_some()
    }
}

/// The arguments that unfinished calls to one server keep, within the budget of all servers.
#[derive(Debug)]
pub struct ServerArguments {
    budget: Arc<ArgumentBudget>,
    held: Mutex<usize>,
}

impl Default for ServerArguments {
    fn default() -> ServerArguments {
        ServerArguments { budget: ArgumentBudget::of_process(), held: Mutex::default() }
    }
}

impl ServerArguments {
    /// Returns a server whose calls keep nothing yet.
    pub fn new(budget: Arc<ArgumentBudget>) -> Arc<ServerArguments> {
        Arc::new(ServerArguments { budget, held: Mutex::default() })
    }

    /// Returns whether the calls to this server may keep `len` more bytes.
    pub fn admits(&self, len: usize) -> bool {
        len <= MAX_UNCOUNTED_ARGUMENT_BYTES || self.budget.admits(*lock(&self.held), len, None)
    }

    /// Counts the arguments of a call until the guard is dropped. Returns `None` if the call may not keep
    /// them.
    pub fn keep(self: &Arc<Self>, len: usize) -> Option<KeptArguments> {
        let mut kept = KeptArguments { server: self.clone(), bytes: 0 };
        if len > MAX_UNCOUNTED_ARGUMENT_BYTES {
            let mut held = lock(&self.held);
            if !self.budget.admits(*held, len, None) {
                return None;
            }
            self.budget.take(len);
            *held += len;
            kept.bytes = len;
        }
        Some(kept)
    }

    /// Returns why a call is refused whose arguments do not fit.
    pub fn refusal(&self) -> String {
        let (held, limit) = (*lock(&self.held), self.budget.limit());
        format!(
            "unfinished calls to this server keep {held} bytes of arguments, and those to all servers may keep {limit}"
        )
    }
}

/// Bytes that are counted for a server until this is dropped.
#[derive(Debug)]
pub struct KeptArguments {
    server: Arc<ServerArguments>,
    bytes: usize,
}

impl KeptArguments {
    /// Counts this many bytes from now on, which are there already.
    pub fn set(&mut self, len: usize) {
        let bytes = if len > MAX_UNCOUNTED_ARGUMENT_BYTES { len } else { 0 };
        if bytes == self.bytes {
            return;
        }
        let mut held = lock(&self.server.held);
        self.server.budget.take(bytes);
        self.server.budget.give_back(self.bytes);
        *held = *held + bytes - self.bytes;
        self.bytes = bytes;
    }
}

impl Drop for KeptArguments {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes that are counted in a budget until this is dropped.
#[derive(Debug)]
pub struct Counted {
    budget: Arc<ArgumentBudget>,
    bytes: usize,
}

impl Counted {
    /// Counts bytes in a budget.
    pub fn new(budget: &Arc<ArgumentBudget>, bytes: usize) -> Counted {
        budget.take(bytes);
        Counted { budget: budget.clone(), bytes }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = 4 << 10;

    #[test]
    fn shared_arguments_are_counted_once_until_the_last_call_has_ended() {
        let budget = Arc::new(ArgumentBudget::new(16 * LEN));
        let calls = vec![SharedArguments::new(vec![0; LEN]); 3];
        calls.iter().for_each(|arguments| arguments.count_in(&budget));
        assert_eq!(budget.used(), LEN);
        let last = calls[0].clone();
        drop(calls);
        assert_eq!(budget.used(), LEN);
        drop(last);
        assert_eq!(budget.used(), 0);
        SharedArguments::new(vec![0; MAX_UNCOUNTED_ARGUMENT_BYTES]).count_in(&budget);
        assert_eq!(budget.used(), 0, "short ones are not counted");
    }

    #[test]
    fn a_server_may_hold_as_much_as_is_free_and_always_one_call() {
        let budget = Arc::new(ArgumentBudget::new(12 * LEN));
        let hold = |held: &mut usize| {
            while budget.admits(*held, LEN, None) {
                budget.take(LEN);
                *held += LEN;
            }
        };
        let mut hung = [0; 3];
        hung.iter_mut().for_each(hold);
        assert_eq!(hung, [6 * LEN, 3 * LEN, LEN]);
        assert!(budget.admits(0, 100 * LEN, None), "a server that holds nothing does not suffer");
        assert!(budget.admits(LEN, MAX_UNCOUNTED_ARGUMENT_BYTES, None), "short ones are bounded by number");
        let shared = SharedArguments::new(vec![0; LEN]);
        assert!(!budget.admits(LEN, LEN, Some(&shared)));
        shared.count_in(&budget);
        budget.give_back(2 * LEN);
        assert!(budget.admits(LEN, LEN, Some(&shared)), "what is counted is not counted again");
    }

    #[test]
    fn calls_to_one_server_keep_no_more_than_others_leave_free() {
        let budget = Arc::new(ArgumentBudget::new(8 * LEN));
        let (hung, well) = (ServerArguments::new(budget.clone()), ServerArguments::new(budget.clone()));
        let kept: Vec<KeptArguments> = std::iter::from_fn(|| hung.keep(LEN)).collect();
        assert_eq!((kept.len(), budget.used()), (4, 4 * LEN));
        assert!(!hung.admits(LEN) && hung.keep(MAX_UNCOUNTED_ARGUMENT_BYTES).is_some());
        let mut unsent = well.keep(0).unwrap();
        unsent.set(3 * LEN);
        assert_eq!(budget.used(), 7 * LEN);
        assert!(!well.admits(LEN));
        unsent.set(MAX_UNCOUNTED_ARGUMENT_BYTES);
        assert!(well.admits(9 * LEN), "one call's arguments are always admitted");
        drop((kept, unsent));
        assert_eq!(budget.used(), 0);
        assert!(hung.keep(LEN).is_some());
    }
}
