//! The pages of a segment's memory: pinned ones, and huge ones.

use std::io;

use super::Segment;
use super::area::Area;
use crate::Result;
use farcall_core::sys::fork;
use farcall_core::{CallFailed, Kind, Ran};

/// Whether the system was asked to use huge pages for a segment's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HugePages {
    /// It was not asked.
    NotAsked,
    /// It was asked, and uses huge pages where it has any free. For shared memory `/proc/self/smaps` tells
    /// how many it uses.
    Asked,
    /// It uses ordinary pages, for this reason.
    Refused(String),
}

impl HugePages {
    pub(super) fn ask(area: &Area, wanted: bool) -> HugePages {
        match wanted.then(|| area.ask_for_huge_pages()) {
            None => HugePages::NotAsked,
            Some(Ok(())) => HugePages::Asked,
            Some(Err(why)) => HugePages::Refused(why.to_string()),
        }
    }
}

impl Segment {
    /// Pins the segment's memory: the system keeps it in the machine's memory, and an access never waits for
    /// a disk. The memory stays pinned until [`Segment::unpin`], and when it moves because it is taken away
    /// from importers, if the system allows that ([`Segment::is_pinned`]).
    ///
    /// # Errors
    /// [`Kind::Local`] when the system refuses; the failure tells the limit of this process. On systems other
    /// than Linux.
    pub fn pin(&self) -> Result<()> {
        if self.process != fork::generation() {
            return Err(CallFailed::forked().into());
        }
        Ok(self.core.area.pin().map_err(|why| cannot(&why))?)
    }

    /// Lets the system page the segment's memory out again. The system does not count: if the program itself
    /// has locked the memory at these addresses (`mlock`), it is unlocked too.
    pub fn unpin(&self) {
        if self.process == fork::generation() {
            self.core.area.unpin();
        }
    }

    /// Returns whether the segment's memory is pinned.
    pub fn is_pinned(&self) -> bool {
        self.process == fork::generation() && self.core.area.is_pinned()
    }

    /// Returns whether the system was asked to use huge pages, and if it does not use them, why.
    pub fn huge_pages(&self) -> &HugePages {
        &self.huge_pages
    }
}

fn cannot(why: &io::Error) -> CallFailed {
    CallFailed::new(Kind::Local, Ran::No).because(why.to_string())
}
