//! The imported memory of the server. It is imported again when the server has exported it again.

use std::sync::{Arc, PoisonError, RwLock};

use farcall::memory::{self, Memory, Refused};
use farcall::{CallFailed, Error, Kind, Ran, Result};

/// Imports the server's segment. It is called again for each generation.
pub type Import = Box<dyn Fn() -> Result<Box<dyn Memory>> + Send + Sync>;

/// The most attempts of one operation: the segment is imported again between them.
const MAX_ATTEMPTS: usize = 4;

/// The present generation of another process's segment.
pub(crate) struct Imported {
    import: Import,
    now: RwLock<Arc<dyn Memory>>,
}

impl Imported {
    pub(crate) fn new(import: Import) -> Result<Imported> {
        let now = RwLock::new(import()?.into());
        Ok(Imported { import, now })
    }

    /// Calls `access` with the segment, and again from the beginning if the generation has changed meanwhile.
    ///
    /// When a server takes a token (the right to change an entry) away from a clerk, it exports the segment
    /// again. That clerk must not continue its operation.
    pub(crate) fn with<T>(&self, access: impl Fn(&dyn Memory) -> memory::Result<T>) -> Result<T> {
        for _ in 0..MAX_ATTEMPTS {
            let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
            let outcome = access(&**now);
            drop(now);
            match outcome {
                Ok(value) => return Ok(value),
                Err(Error::Declared(Refused::Stale)) => self.renew()?,
                Err(Error::Declared(other)) => return Err(refused(other).into()),
                // The memory was taken away during a write. No process reads what was written there.
                Err(Error::CallFailed(why)) if why.kind() == Kind::NotExported => self.renew()?,
                Err(Error::CallFailed(why)) => return Err(why.into()),
            }
        }
        Err(refused(Refused::Stale).into())
    }

    fn renew(&self) -> Result<()> {
        let new = (self.import)()?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = new.into();
        Ok(())
    }
}

fn refused(why: Refused) -> CallFailed {
    CallFailed::new(Kind::NotPermitted, Ran::Maybe).caused_by(why)
}
