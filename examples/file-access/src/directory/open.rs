//! Opening what a path names below a directory, and never anything else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::path::Below;

/// For reading. A pipe must not make the call wait for its other end, nor a terminal become ours.
pub(super) const TO_READ: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// For looking at something without opening it, where the system can.
#[cfg(target_os = "linux")]
pub(super) const TO_LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
pub(super) const TO_LOOK: OFlags = TO_READ;

/// How a path is resolved.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    /// By the kernel, which sees every step: `openat2` with `RESOLVE_BENEATH`.
    #[cfg(target_os = "linux")]
    Beneath,
    /// Name by name from the root, each opened in the directory before it, no symbolic link followed.
    Walk,
}

impl How {
    /// What this system offers.
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

/// Opens each name in the directory before it. A name is no path, so nothing but a symbolic link could lead
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
        // To look at, a symbolic link itself is opened instead of being refused.
        Ok(found) if flags.contains(TO_LOOK) && is_link(rustix::fs::fstat(&found)) => Err(Errno::LOOP),
        // Systems differ in what they say of one that is not followed: MLINK, NOTDIR where a directory is
        // asked for.
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

    /// How often a resolution is repeated that the kernel gave up because something on the way was being
    /// renamed.
    const TRIES: usize = 128;

    /// Linux has it from 5.6 on; some sandboxes forbid it.
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
