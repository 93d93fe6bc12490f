//! The copies that a clerk keeps of entries in the server's memory. Each copy is used only while the server's
//! entry is unchanged.
//!
//! A copy is kept with the place and the version of its entry. That entry's two version words show whether
//! the entry is unchanged, because versions never repeat. One read of the server's memory gives them: then a
//! copy saves the transfer of the value, not the read. Or the server has pushed them into the clerk's memory.

use farcall::memory::{Rights, Segment, Settings};
use farcall::{Result, Runtime, memory};

use crate::Shape;
use crate::areas::Areas;
use crate::table::{Entry, Hints, Key, Look, Table};

/// A clerk's tables. They are like those of the server, but with [`ORIGIN_BYTES`] more in front of each
/// value.
pub(crate) struct Copies {
    areas: Areas,
    memory: Segment,
}

/// Selects one of the tables by a function.
pub(crate) type Which = fn(&Areas) -> &Table;

/// The bytes of the place and the version of a copied entry.
const ORIGIN_BYTES: usize = 16;

impl Copies {
    /// Returns empty tables in a segment to which no other process has any right.
    pub(crate) fn new(runtime: &Runtime, name: &str, shape: &Shape) -> Result<Copies> {
        let areas = Areas::at(0, shape, ORIGIN_BYTES);
        let settings = Settings::new(areas.size() as usize).anyone(Rights::NONE);
        Ok(Copies { areas, memory: runtime.export_segment(name, settings)? })
    }

    /// Returns a copy if the server's entry is unchanged. `versions` returns the two version words of the
    /// entry at a place of the server's table.
    pub(crate) fn look(
        &self,
        which: Which,
        key: Key,
        versions: impl FnOnce(u64) -> Result<(u64, u64)>,
    ) -> Result<Option<Entry>> {
        let own = which(&self.areas);
        let Ok(Look::Found(mut copy)) = own.look(&self.memory, key, 0..own.room(), Hints::NONE) else {
            return Ok(None);
        };
        let Some(of) = copy.bytes.as_chunks().0.first_chunk::<2>() else { return Ok(None) };
        let [place, version] = of.map(u64::from_le_bytes);
        if versions(place)? != (version, version) {
            return Ok(None);
        }
        copy.bytes = copy.bytes.slice(ORIGIN_BYTES.min(copy.bytes.len())..);
        copy.length = copy.bytes.len();
        Ok(Some(copy))
    }

    /// Keeps a copy of a whole entry. Does nothing if another thread is changing the entry that the copy
    /// would replace.
    pub(crate) fn keep(&self, which: Which, entry: &Entry) -> memory::Result<()> {
        let (own, memory) = (which(&self.areas), &self.memory);
        let place = own.spot(memory, entry.key, entry.version)?;
        let (end, begin) = own.versions(memory, place)?;
        if end != begin {
            return Ok(());
        }
        let Some(token) = own.acquire(memory, place, begin, false)? else { return Ok(()) };
        let value = [&entry.place.to_le_bytes()[..], &entry.version.to_le_bytes(), &entry.bytes].concat();
        own.put(memory, &token, entry.key, &value, false)?;
        own.release(memory, token, false)
    }
}
