//! The server's memory, imported anew when the server has exported it anew.

use std::sync::{Arc, PoisonError, RwLock};

use farcall::memory::{self, Memory, Refused};
use farcall::{CallFailed, Error, Kind, Ran, Result};

/// Imports the server's segment; called again for each of its generations.
pub type Import = Box<dyn Fn() -> Result<Box<dyn Memory>> + Send + Sync>;

/// How often a segment is imported again for one operation.
const TRIES: usize = 4;

/// Somebody else's segment, whichever generation of it is the present one.
pub(crate) struct Imported {
    import: Import,
    now: RwLock<Arc<dyn Memory>>,
}

impl Imported {
    pub(crate) fn new(import: Import) -> Result<Imported> {
        let now = RwLock::new(import()?.into());
        Ok(Imported { import, now })
    }

    /// Does something with it; from the beginning again if the generation was another when it was done.
    ///
    /// A server that takes a token from a clerk exports the segment anew: that clerk must not go on where it was.
    pub(crate) fn with<T>(&self, access: impl Fn(&dyn Memory) -> memory::Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
            let outcome = access(&**now);
            drop(now);
            match outcome {
                Ok(value) => return Ok(value),
                Err(Error::Declared(Refused::Stale)) => self.renew()?,
                Err(Error::Declared(other)) => return Err(refused(other).into()),
                // It was taken away while we wrote. Whatever was done, nobody reads it any more.
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
