//! What tells that a file has changed, without reading it.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The size, the times and the identity of a file. A changed file has another stamp, unless it was changed
/// twice within the precision of its file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
    /// When the content or the attributes were changed last. Unlike the time of modification, nobody can set
    /// it.
    changed: Option<SystemTime>,
    /// The device and the inode.
    identity: (u64, u64),
}

/// A file whose last change is older than this gets another time with its next change. Kernels take the times
/// of files from a clock that ticks at least every 10 ms.
const CLOCK_TICK: Duration = Duration::from_millis(100);

impl Stamp {
    pub(super) fn of(found: &Metadata) -> Stamp {
        let modified = found.modified().ok();
        Stamp { size: found.len(), modified, changed: changed(found), identity: identity(found) }
    }

    /// Returns whether a change of the file will give it another stamp, if the file is changed at `now` or
    /// later. So it is also if the last change was in the future, because the clock has been set back.
    pub(super) fn is_settled(&self, now: SystemTime) -> bool {
        let Some(changed) = self.changed else { return false };
        let distance = now.duration_since(changed).unwrap_or_else(|ahead| ahead.duration());
        distance > CLOCK_TICK
    }
}

#[cfg(unix)]
fn changed(found: &Metadata) -> Option<SystemTime> {
    use std::os::unix::fs::MetadataExt as _;
    let seconds = u64::try_from(found.ctime()).ok()?;
    let nanos = u32::try_from(found.ctime_nsec()).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

#[cfg(not(unix))]
fn changed(found: &Metadata) -> Option<SystemTime> {
    found.modified().ok()
}

#[cfg(unix)]
fn identity(found: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt as _;
    (found.dev(), found.ino())
}

#[cfg(not(unix))]
fn identity(_: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// Opens a file for reading. Does not block if it is a pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        let flags = rustix::fs::OFlags::NONBLOCK.bits();
        options.custom_flags(flags as i32);
    }
    options.open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_from_the_future_is_not_read_again_for_each_question() {
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let stamp = Stamp { size: 1, modified: Some(changed), changed: Some(changed), identity: (1, 2) };
        assert!(stamp.is_settled(changed + 2 * CLOCK_TICK));
        assert!(!stamp.is_settled(changed) && !stamp.is_settled(changed + CLOCK_TICK));
        // The clock has been set back by an hour.
        assert!(stamp.is_settled(changed - Duration::from_secs(3600)));
        assert!(!Stamp { changed: None, ..stamp }.is_settled(changed + 2 * CLOCK_TICK));
    }
}
