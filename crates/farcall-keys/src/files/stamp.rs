//! What tells that a file has changed, without reading it.

use std::fs::Metadata;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use crate::fault::Fault;

/// The size, the times and the identity of a file. A changed file has another stamp, unless it was changed
/// twice within the precision of its file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    size: u64,
    modified: Option<SystemTime>,
    /// When the content or the attributes were changed last: seconds and nanoseconds. Unlike the time of
    /// modification, nobody can set it.
    changed: (i64, i64),
    /// The device and the inode.
    identity: (u64, u64),
}

impl Stamp {
    pub(super) fn of(found: &Metadata) -> Stamp {
        let (changed, identity) = details(found);
        Stamp { size: found.len(), modified: found.modified().ok(), changed, identity }
    }
}

/// Returns the stamp of the file at this path, or `None` if there is none.
pub(super) fn of_path(path: &Path) -> Result<Option<Stamp>, Fault> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(Some(Stamp::of(&found))),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Fault::io(path, why)),
    }
}

#[cfg(unix)]
fn details(found: &Metadata) -> ((i64, i64), (u64, u64)) {
    use std::os::unix::fs::MetadataExt as _;
    ((found.ctime(), found.ctime_nsec()), (found.dev(), found.ino()))
}

#[cfg(not(unix))]
fn details(_: &Metadata) -> ((i64, i64), (u64, u64)) {
    ((0, 0), (0, 0))
}
