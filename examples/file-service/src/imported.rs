//! The imported memory of the server. It is imported again when the server has exported it again.

use farcall::memory::{self, Memory, Refused, Remote, Renewing};
use farcall::{CallFailed, Error, Kind, Ran, Result};

use crate::tally::Counted;

/// The present generation of the server's segment.
pub(crate) struct Imported(Renewing<Counted<Remote>>);

impl Imported {
    /// Imports the server's segment by a function that is called again for each generation.
    pub(crate) fn new(
        import: impl Fn() -> Result<Counted<Remote>> + Send + Sync + 'static,
    ) -> Result<Imported> {
        Ok(Imported(Renewing::new(import)?))
    }

    /// Calls `access` with the segment, and again from the beginning if the generation has changed meanwhile.
    ///
    /// When a server takes a token (the right to change an entry) away from a clerk, it exports the segment
    /// again. That clerk must not continue its operation.
    pub(crate) fn with<T>(&self, access: impl Fn(&dyn Memory) -> memory::Result<T>) -> Result<T> {
        self.0.with(|memory| access(memory)).map_err(|why| match why {
            Error::CallFailed(why) => why.into(),
            Error::Declared(Refused::Stale) => refused(Kind::NotExported, Refused::Stale).into(),
            Error::Declared(other) => refused(Kind::NotPermitted, other).into(),
        })
    }
}

fn refused(kind: Kind, why: Refused) -> CallFailed {
    CallFailed::new(kind, Ran::Maybe).caused_by(why)
}
