//! Opens the file that a path names below a directory, and never a file outside.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::path::Below;

/// Flags for reading. Opening a pipe must not wait for its other end, and a terminal must not become this
/// process's.
pub(super) const TO_READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Flags for examining a file without opening its content, if the system can.
#[cfg(target_os = "linux")]
pub(super) const TO_LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const TO_LOOK: OFlags = TO_READ;

/// How a path is resolved.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// By the kernel, which checks every step: `openat2` with `RESOLVE_BENEATH`.
    #[cfg(target_os = "linux")]
    Beneath,
    /// Name by name from the root. Each name is opened in the directory before it, and no symbolic link is
    /// followed.
    Walk,
}

impl How {
    /// Returns the best way that this system offers.
    pub(super) fn best() -> How {
        #[cfg(target_os = "linux")]
        if beneath::is_offered() {
            return How::Beneath;
        }
        How::Walk
    }

    pub(super) fn open(
        self,
        root: BorrowedFd<'_>,
        path: &Below,
        flags: OFlags,
    ) -> rustix::io::Result<OwnedFd> {
        match self {
            #[cfg(target_os = "linux")]
            How::Beneath => beneath::open(root, path, flags),
            How::Walk => walk(root, path, flags),
        }
    }
}

/// Opens each name in the directory before it. A name contains no slash, so only a symbolic link could lead
/// elsewhere.
fn walk(root: BorrowedFd<'_>, path: &Below, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let (way, last) = path.split();
    let mut here: Option<OwnedFd> = None;
    for name in way {
        here = Some(step(here.as_ref().map_or(root, AsFd::as_fd), name, TO_LOOK | OFlags::DIRECTORY)?);
    }
    step(here.as_ref().map_or(root, AsFd::as_fd), last, flags)
}

fn step(directory: BorrowedFd<'_>, name: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::openat(directory, name, flags | OFlags::NOFOLLOW, Mode::empty()) {
        // With these flags a symbolic link is opened itself instead of being refused.
        Ok(found) if flags.contains(TO_LOOK) && is_link(rustix::fs::fstat(&found)) => Err(Errno::LOOP),
        // Systems report different errors for a link that is not followed: MLINK, or NOTDIR if a directory is
        // required.
        Err(_) if is_link(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)) => Err(Errno::LOOP),
        other => other,
    }
}

fn is_link(looked: rustix::io::Result<Stat>) -> bool {
    looked.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode as _).is_symlink())
}

#[cfg(target_os = "linux")]
mod beneath {
    //! `openat2(2)`.

    use super::*;
    use rustix::fs::{CWD, ResolveFlags, openat2};

    /// The most attempts to resolve a path. The kernel gives up if a part of the path is being renamed.
    const TRIES: usize = 128;

    /// Returns whether the system has `openat2`. Linux has it since 5.6, and some sandboxes forbid it.
    pub(super) fn is_offered() -> bool {
        openat2(CWD, ".", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::BENEATH).is_ok()
    }

    pub(super) fn open(root: BorrowedFd<'_>, path: &Below, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES {
            match openat2(root, path.as_str(), flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }
}
