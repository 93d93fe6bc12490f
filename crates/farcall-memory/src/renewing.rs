//! An import that is renewed when its generation ends, or its exporter was restarted.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::access::Refused;
use crate::{Memory, Remote, Result};
use farcall_core::context::inherited;
use farcall_core::{CallFailed, Error, Kind, lock};

/// Imports the segment. It is called again for each renewal.
type Import<M> = Box<dyn Fn() -> farcall_core::Result<M> + Send + Sync>;

/// An import that is renewed when the segment was exported again, or its exporter was restarted: so it
/// recovers as a binding for calls does (Thekkath et al. 1994, section 3.7).
///
/// A time that each access has (`Remote::within`) does not cover the imports, which wait as long as the
/// function that imports does. `Runtime::within` of the runtime gives one time to the whole.
///
/// A later generation may hold other bytes, and the memory of a restarted exporter is new. So what belongs
/// together is one operation: [`Renewing::with`] executes it within one generation, and again from the
/// beginning in the next.
///
/// ```
/// use farcall::memory::{Memory, Renewing, Rights, Settings};
///
/// # fn main() -> farcall::memory::Result<()> {
/// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
/// let segment = runtime.export_segment("Load", Settings::new(64).anyone(Rights::READ))?;
/// let importer = runtime.clone();
/// let load = Renewing::new(move || importer.import_segment("Load"))?;
/// segment.store(8, 7)?;
/// segment.export_again(); // the first import is over
/// assert_eq!(load.with(|memory| memory.load(8))?, 7);
/// # Ok(())
/// # }
/// ```
pub struct Renewing<M = Remote> {
    import: Import<M>,
    now: RwLock<Arc<M>>,
    /// Locked by a thread that imports again, if no other does.
    renewing: Mutex<()>,
}

/// The most attempts of one operation: the segment is imported again between them.
const MAX_ATTEMPTS: usize = 4;

impl<M: Memory> Renewing<M> {
    /// Imports a segment by a function that is called again for each renewal. It may refuse another exporter
    /// than the one that the program knows.
    ///
    /// # Errors
    /// Those of `import`.
    pub fn new(
        import: impl Fn() -> farcall_core::Result<M> + Send + Sync + 'static,
    ) -> farcall_core::Result<Renewing<M>> {
        let now = RwLock::new(Arc::new(import()?));
        Ok(Renewing { import: Box::new(import), now, renewing: Mutex::default() })
    }

    /// Executes an operation on the present import. Imports the segment again, and executes the operation
    /// again from the beginning, if the generation is over or the exporter has gone. The operation may have
    /// been executed in part in the generation that is over, which nobody reads any more.
    ///
    /// # Errors
    /// Those of the operation, and those of importing again.
    pub fn with<T>(&self, operation: impl Fn(&M) -> Result<T>) -> Result<T> {
        for _ in 1..MAX_ATTEMPTS {
            let now = self.current();
            let why = match operation(&now) {
                Err(why) if may_be_renewed(&why) => why,
                outcome => return outcome,
            };
            match self.renew_after(&now) {
                Ok(()) => {}
                // Nobody is there to say more.
                Err(Error::CallFailed(again))
                    if matches!(again.kind(), Kind::Unreachable | Kind::Deadline) =>
                {
                    return Err(match why {
                        Error::CallFailed(_) => why,
                        Error::Declared(_) => again.into(),
                    });
                }
                Err(again) => return Err(CallFailed::from(again).into()),
            }
        }
        operation(&self.current())
    }

    /// Returns the present import.
    pub fn current(&self) -> Arc<M> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Imports again, unless another thread has done so since `former` was the present import.
    fn renew_after(&self, former: &Arc<M>) -> farcall_core::Result<()> {
        // Another thread's import may take longer than the time that this thread has. Then this one imports
        // too.
        let _renewing = match inherited().0 {
            None => Some(lock(&self.renewing)),
            Some(_) => self.renewing.try_lock().ok(),
        };
        if !Arc::ptr_eq(&self.current(), former) {
            return Ok(());
        }
        let next = Arc::new((self.import)()?);
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&now, former) {
            *now = next;
        }
        Ok(())
    }
}

/// Returns whether a later import may succeed where an access failed for this reason.
fn may_be_renewed(why: &Error<Refused>) -> bool {
    match why {
        Error::Declared(refused) => *refused == Refused::Stale,
        Error::CallFailed(why) => {
            matches!(
                why.kind(),
                Kind::NotExported | Kind::Draining | Kind::ServerRestarted | Kind::Unreachable
            )
        }
    }
}

impl<M> fmt::Debug for Renewing<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewing").finish_non_exhaustive()
    }
}
