//! A clerk's own tables, into which the server writes: the structure that Thekkath et al. 1994 call *write
//! requests only* (section 5.1).
//!
//! ```text
//! clerk's segment    mailbox for answers · tables · tokens
//! ```
//!
//! The tables are those of the server's memory without the blocks, entry by entry. The tokens are the two
//! version words of each of the server's blocks, so that the clerk knows which of its copies of blocks are
//! current. Only the server writes there: posted writes, without notice.
//!
//! **Lease.** A server that cannot write into a clerk's memory must not wait for that clerk for ever, and the
//! clerk must not go on to believe its memory. So the clerk believes it only for [`LEASE`] after it has begun
//! to read its lease, a word in the server's memory, which is a transfer of data only. A server that gets no
//! acknowledgement of a write first clears that word, and then waits until the clerk's lease is over at the
//! latest. From then on the clerk does not believe its memory, and attaches anew. There is one exception: the
//! clerk's clock does not advance while its machine is suspended. A clerk that was suspended within its lease
//! believes its memory for the rest of it, at most [`LEASE`], although the server has given it up meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use farcall::Result;
use farcall::memory::Memory;

use crate::areas::{self, Areas};
use crate::copies::Which;
use crate::hybrid::{ANSWERS, Post};
use crate::imported::Imported;
use crate::table::{Hints, Key, Look};
use crate::{MoreFilesClient, Shape};

/// How long a clerk believes its tables after it has begun to read its lease.
pub(crate) const LEASE: Duration = Duration::from_millis(100);

/// How long a server waits until a lease that it has cleared is over. Clocks of different machines run at
/// rates that differ by far less than a tenth.
pub(crate) const LEASE_OVER: Duration = Duration::from_millis(110);

/// The layout of the segment of a clerk into which the server pushes entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(crate) areas: Areas,
    tokens: u64,
    blocks: u64,
}

/// The tables of a clerk into which the server pushes entries.
pub(crate) struct Mirror {
    post: Arc<Post>,
    layout: Layout,
    lease: Lease,
    server: MoreFilesClient,
}

struct Lease {
    /// The offset of the lease in the server's memory, and the lease's value while the server pushes entries.
    offset: u64,
    number: u64,
    began: Instant,
    /// Until when the lease was read, in nanoseconds since `began`.
    until: AtomicU64,
}

impl Layout {
    pub(crate) fn new(shape: &Shape) -> Layout {
        let areas = Areas::at(ANSWERS.end(), shape, 0);
        Layout { areas, tokens: areas.but_blocks().end, blocks: areas.blocks.all().end }
    }

    /// Returns the offset in the clerk's segment for an offset in the server's tables other than the blocks.
    pub(crate) fn offset(&self, server: &Areas, offset: u64) -> u64 {
        offset - server.but_blocks().start + self.areas.but_blocks().start
    }

    /// Returns the offset of the versions of a block in the clerk's segment: `end`, then `begin`.
    pub(crate) fn token(&self, place: u64) -> u64 {
        self.tokens + place.min(self.blocks) * 16
    }

    /// Returns the size of the clerk's segment in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.token(self.blocks)
    }
}

impl Mirror {
    /// Returns the tables of a clerk that has this mailbox and this lease, in its segment for answers.
    pub(crate) fn new(
        post: Arc<Post>,
        shape: &Shape,
        mailbox: u32,
        lease: u64,
        server: MoreFilesClient,
    ) -> Mirror {
        let lease = Lease {
            offset: areas::lease(mailbox),
            number: lease,
            began: Instant::now(),
            until: AtomicU64::new(0),
        };
        Mirror { post, layout: Layout::new(shape), lease, server }
    }

    /// Looks up the value of a key, or a part of the value.
    pub(crate) fn look(
        &self,
        which: Which,
        key: Key,
        part: std::ops::Range<usize>,
        hints: &Hints,
    ) -> farcall::memory::Result<Look> {
        which(&self.layout.areas).look(&self.post.answers, key, part, hints)
    }

    /// Returns the versions of the server's block at a place, as the server has pushed them.
    pub(crate) fn versions(&self, place: u64) -> farcall::memory::Result<(u64, u64)> {
        let mut words = [0; 16];
        self.post.answers.read(self.layout.token(place), &mut words)?;
        let [end, begin] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|byte| words[at + byte])));
        Ok((end, begin))
    }

    /// Returns whether what was read of the tables before this call was current when it was read.
    pub(crate) fn was_current(&self, server: &Imported) -> Result<bool> {
        self.lease.is_held(server)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // So no write waits for a clerk that has ended. If the server does not learn it, the next write does.
        self.server.start().end_lease(self.lease.number).detach();
    }
}

impl Lease {
    fn is_held(&self, server: &Imported) -> Result<bool> {
        let now = nanoseconds(self.began.elapsed());
        if now < self.until.load(Ordering::Relaxed) {
            return Ok(true);
        }
        if server.with(|memory| memory.load(self.offset))? != self.number {
            return Ok(false);
        }
        // The lease is counted from before the word was read, so it is over before the server believes that.
        self.until.fetch_max(now + nanoseconds(LEASE), Ordering::Relaxed);
        Ok(true)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clerks_tables_are_the_servers_without_the_blocks() {
        let (server, layout) = (Areas::new(&Shape::SMALL), Layout::new(&Shape::SMALL));
        for (table, own) in [
            (server.statistics, layout.areas.statistics),
            (server.names, layout.areas.names),
            (server.pages, layout.areas.pages),
        ] {
            assert_eq!(layout.offset(&server, table.start()), own.start());
            assert_eq!(layout.offset(&server, table.end()), own.end());
        }
        assert_eq!(layout.token(0), layout.areas.pages.end());
        assert_eq!(layout.size() - layout.token(0), 16 * u64::from(Shape::SMALL.blocks));
    }
}
