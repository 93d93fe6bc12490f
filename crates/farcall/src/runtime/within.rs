//! One time for all calls of a piece of program.

use std::time::Duration;

use super::Runtime;
use crate::context;

impl Runtime {
    /// Runs `f`, with one time for all that waits in it: calls, imports and accesses to memory that this
    /// thread makes or starts there, by whatever stub or runtime, and the calls that these make in turn. One
    /// that has not ended by then fails as one whose own deadline passes. A shorter time that one of them has
    /// counts.
    ///
    /// It covers what has no time of its own, for example the imports by which
    /// [`memory::Renewing`](crate::memory::Renewing) renews itself.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use farcall::memory::{Memory, Renewing, Rights, Settings};
    ///
    /// # fn main() -> farcall::memory::Result<()> {
    /// # let runtime = farcall::Runtime::builder().registry(farcall::names::Memory::new()).build()?;
    /// let segment = runtime.export_segment("Load", Settings::new(64).anyone(Rights::READ))?;
    /// let importer = runtime.clone();
    /// let load = Renewing::new(move || importer.import_segment("Load"))?;
    /// segment.export_again(); // the first import is over
    /// let second = Duration::from_secs(1); // to find that out, to import again, and to read
    /// assert_eq!(runtime.within(second, || load.with(|memory| memory.load(8)))?, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn within<R>(&self, time: Duration, f: impl FnOnce() -> R) -> R {
        let _limited = context::limit(self.0.env.now() + time);
        f()
    }
}
